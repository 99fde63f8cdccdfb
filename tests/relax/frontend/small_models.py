"""Models as `transformers` writes them, with two layers and a few channels, and smaller ones of our own.

model = seeded(resnet)
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from benchmarks.zoo import OneResult, UNet, lively
from examples.fashion_mnist.models import load_model

transformers = pytest.importorskip("transformers")

ATTENTION = ["sdpa", "eager"]


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().eval().requires_grad_(False)


def resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2], num_labels=5, layer_type="bottleneck"
    )
    return lively(OneResult(transformers.ResNetForImageClassification(config), "logits"))


def resnet_features() -> nn.Module:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return lively(OneResult(transformers.ResNetModel(config), "last_hidden_state"))


def mobilenet() -> nn.Module:
    config = transformers.MobileNetV2Config(depth_multiplier=0.25, image_size=32, num_labels=5)
    return lively(OneResult(transformers.MobileNetV2ForImageClassification(config), "logits"))


def vit(attention: str) -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=5,
        attn_implementation=attention,
    )
    return OneResult(transformers.ViTForImageClassification(config), "logits")


def bert(attention: str) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        attn_implementation=attention,
    )
    return OneResult(transformers.BertModel(config), "last_hidden_state")


def gpt2(attention: str) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=99,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=attention,
        use_cache=False,
    )
    return OneResult(transformers.GPT2LMHeadModel(config), "logits")


IMAGE_MODELS = {
    "resnet": (resnet, (3, 32, 32)),
    "resnet features": (resnet_features, (3, 35, 32)),
    "mobilenet": (mobilenet, (3, 32, 32)),
    **{f"vit, {a}": (lambda a=a: vit(a), (3, 32, 32)) for a in ATTENTION},
    "clothes": (lambda: load_model("cnn"), (1, 28, 28)),
    "unet": (lambda: lively(UNet(width=4, levels=2)), (3, 16, 24)),
}
