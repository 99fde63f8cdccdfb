"""Models as `transformers` writes them, with one or two layers and a few channels, and smaller ones of our own.

model = seeded(resnet)
assert_same(compiled(model, images), model, images)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import oneir
from benchmarks.zoo import OneResult, UNet, lively
from examples.fashion_mnist.models import load_model
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program

transformers = pytest.importorskip("transformers")

ATTENTION = ["sdpa", "eager"]


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().eval().requires_grad_(False)


def compiled(model: nn.Module, example: torch.Tensor, dims: dict[int, Any] | None = None) -> Any:
    """The function that runs the imported model natively; extents of the input vary as `dims` say."""
    with torch.no_grad():
        program = torch.export.export(model, (example,), dynamic_shapes=None if dims is None else [dims])
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    return relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"]


def assert_same(function: Any, model: nn.Module, *inputs: torch.Tensor) -> None:
    """The function's results are those of the model, within a thousandth of the largest element."""
    for x in inputs:
        expected = model(x).numpy()
        found = function(oneir.runtime.tensor(x.numpy())).numpy()
        assert found.shape == expected.shape and found.dtype == expected.dtype
        # Results that are nearly all zeros would agree with anything.
        assert np.count_nonzero(expected) > expected.size / 2
        assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()


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


def convnext() -> nn.Module:
    config = transformers.ConvNextConfig(depths=[1, 2], hidden_sizes=[16, 32], num_stages=2, num_labels=5)
    return OneResult(transformers.ConvNextForImageClassification(config), "logits")


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


def llama() -> nn.Module:
    """Rotary positions; two heads of queries share one of keys and values."""
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=80,
        use_cache=False,
    )
    return OneResult(transformers.LlamaForCausalLM(config), "logits")


def t5_encoder() -> nn.Module:
    """Learned biases for the distances of tokens."""
    config = transformers.T5Config(
        vocab_size=99,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
    )
    return OneResult(transformers.T5EncoderModel(config), "last_hidden_state")


def falcon() -> nn.Module:
    """One head of keys and values for all, which is cut off by negative indices."""
    config = transformers.FalconConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, use_cache=False
    )
    return OneResult(transformers.FalconForCausalLM(config), "logits")


def mixtral() -> nn.Module:
    """Two of four experts for each token."""
    config = transformers.MixtralConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        num_local_experts=4,
        use_cache=False,
    )
    return OneResult(transformers.MixtralForCausalLM(config), "logits")


class First(nn.Module):
    """A layer of `torch.nn`, its input given so many times, and the first of its results."""

    def __init__(self, layer: nn.Module, times: int = 1):
        super().__init__()
        self.layer, self.times = layer, times

    def forward(self, x):
        found = self.layer(*[x] * self.times)
        return found[0] if isinstance(found, tuple) else found


def transformer_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return First(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


LANGUAGE_MODELS: dict[str, Callable[[], nn.Module]] = {
    **{f"bert, {a}": (lambda a=a: bert(a)) for a in ATTENTION},
    **{f"gpt2, {a}": (lambda a=a: gpt2(a)) for a in ATTENTION},
    "llama": llama,
    "falcon": falcon,
    "mixtral": mixtral,
    "t5 encoder": t5_encoder,
}

# Layers of sequences: (batch, steps, 32).
SEQUENCE_LAYERS = {
    "lstm": lambda: First(nn.LSTM(32, 16, 2, batch_first=True)),
    "gru": lambda: First(nn.GRU(32, 16, 2, batch_first=True)),
    "transformer encoder": transformer_encoder,
}

IMAGE_MODELS = {
    "resnet": (resnet, (3, 32, 32)),
    "resnet features": (resnet_features, (3, 35, 32)),
    "mobilenet": (mobilenet, (3, 32, 32)),
    "convnext": (convnext, (3, 32, 32)),
    **{f"vit, {a}": (lambda a=a: vit(a), (3, 32, 32)) for a in ATTENTION},
    "clothes": (lambda: load_model("cnn"), (1, 28, 28)),
    "unet": (lambda: lively(UNet(width=4, levels=2)), (3, 16, 24)),
}
