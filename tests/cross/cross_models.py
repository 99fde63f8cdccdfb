"""The models of `benchmarks.zoo`, of the same architectures but so small that emulators run them in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.zoo import MODELS, OneResult, UNet, lively


def _resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2], num_labels=10)
    return lively(OneResult(ResNetForImageClassification(config), "logits"))


def _mobilenet() -> nn.Module:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(num_labels=10, depth_multiplier=0.25, image_size=32)
    return lively(OneResult(MobileNetV2ForImageClassification(config), "logits"))


SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return OneResult(
        ViTForImageClassification(ViTConfig(num_labels=10, image_size=32, patch_size=8, **SIZES)), "logits"
    )


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return OneResult(BertModel(BertConfig(vocab_size=200, **SIZES)), "last_hidden_state")


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=200, n_embd=64, n_layer=2, n_head=4, use_cache=False)
    return OneResult(GPT2LMHeadModel(config), "logits")


def _image(size: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(1, 3, size, size),)


def _tokens() -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 200, (1, 16)),)


SMALL: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "mlp": (MODELS["mlp"].build, lambda: MODELS["mlp"].inputs(1, 1)),
    "fashion_cnn": (MODELS["fashion_cnn"].build, lambda: MODELS["fashion_cnn"].inputs(1, 1)),
    "mobilenet_v2": (_mobilenet, _image(32)),
    "resnet50": (_resnet, _image(32)),
    "unet": (lambda: lively(UNet(width=8, levels=2)), _image(16)),
    "vit_b16": (_vit, _image(32)),
    "bert_base": (_bert, _tokens),
    "gpt2": (_gpt2, _tokens),
}


def small(name: str) -> tuple[Any, tuple[torch.Tensor, ...], torch.Tensor]:
    """A model as a graph with its weights, its inputs, and what PyTorch computes of them in float64."""
    from oneir.relax.frontend.torch import from_exported_program

    build, inputs = SMALL[name]
    torch.manual_seed(0)
    module = build().eval().requires_grad_(False)
    tensors = inputs()
    with torch.no_grad():
        graph = from_exported_program(torch.export.export(module, tensors), unwrap_unit_return_tuple=True)
        exact = module.double()(*(x.double() if x.is_floating_point() else x for x in tensors))
    return graph, tensors, exact
