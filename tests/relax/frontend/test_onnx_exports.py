"""Whole models through PyTorch's exporters to ONNX, with two layers and a few channels, equal to eager PyTorch."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from small_models import bert, gpt2, mobilenet, resnet, seeded, transformers, vit
from torch import nn

import oneir
from benchmarks.zoo import OneResult
from oneir import relax
from oneir.relax.frontend.onnx import from_onnx

pytest.importorskip("onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def convnext() -> nn.Module:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, num_labels=5)
    return OneResult(transformers.ConvNextForImageClassification(config), "logits")


def llama() -> nn.Module:
    """Queries in groups that share keys, rotary embeddings, RMS normalization, SiLU."""
    config = transformers.LlamaConfig(**SMALL, intermediate_size=48, num_key_value_heads=2, use_cache=False)
    return OneResult(transformers.LlamaForCausalLM(config), "logits")


def t5() -> nn.Module:
    config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    return OneResult(transformers.T5EncoderModel(config), "last_hidden_state")


class Recurrent(nn.Module):
    """Two layers of one of PyTorch's recurrent ones."""

    def __init__(self, kind: str, **options: Any):
        super().__init__()
        self.layer = getattr(nn, kind)(6, 8, 2, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 99, (batch, length))


def images(batch: int, length: int) -> torch.Tensor:
    return torch.randn(batch, 3, 32, 32)


def vectors(width: int) -> Callable[[int, int], torch.Tensor]:
    return lambda batch, length: torch.randn(batch, length, width)


@dataclass(frozen=True)
class Model:
    build: Callable[[], nn.Module]
    inputs: Callable[[int, int], torch.Tensor]
    fused: int = 0
    """How many layers of attention there are, all of which must be recognised."""
    any_length: bool = True
    """Whether the exporter leaves the length of sequences open."""


MODELS = {
    "resnet": Model(resnet, images),
    "mobilenet": Model(mobilenet, images),
    "convnext": Model(convnext, images),
    "vit": Model(lambda: vit("sdpa"), images, 2),
    "bert": Model(lambda: bert("sdpa"), tokens, 2),
    "gpt2": Model(lambda: gpt2("sdpa"), tokens, 2),
    "llama": Model(llama, tokens, 2),
    "t5": Model(t5, tokens, 2),
    "encoder": Model(encoder, vectors(16), 2),
    "lstm": Model(lambda: Recurrent("LSTM"), vectors(6)),
    "gru, both ways": Model(lambda: Recurrent("GRU", bidirectional=True), vectors(6), any_length=False),
}


def exported(model: nn.Module, *args: torch.Tensor, **options: Any) -> onnx.ModelProto:
    logging.disable(logging.CRITICAL)
    try:
        return torch.onnx.export(model, args, dynamo=True, verbose=False, **options).model_proto
    finally:
        logging.disable(logging.NOTSET)


def exported_before(model: nn.Module, *args: torch.Tensor, **options: Any) -> onnx.ModelProto:
    """By the exporter that traces, which many files come from."""
    file = io.BytesIO()
    torch.onnx.export(model, args, file, dynamo=False, input_names=["x"], **options)
    return onnx.load_from_string(file.getvalue())


def attentions(mod: Any) -> int:
    """How many layers of attention are recognised in a program."""
    return len(re.findall(r"R\.nn\.(safe_)?attention", relax.transform.FuseAttention()(mod).script()))


def check(mod: Any, model: nn.Module, *inputs: torch.Tensor) -> None:
    machine = relax.VirtualMachine(oneir.compile(mod, "llvm"), oneir.cpu())
    for x in inputs:
        with torch.no_grad():
            expected = model(x).numpy()
        np.testing.assert_allclose(machine["main"](oneir.nd.array(x.numpy())).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mobilenet"])
def test_batches_and_sequences_of_any_size(name):
    own = MODELS[name]
    model, x = seeded(own.build), own.inputs(2, 7)
    dims: dict[int, Any] = {0: torch.export.Dim("batch")}
    if own.inputs is not images and own.any_length:
        dims[1] = torch.export.Dim("length", min=2, max=32)
    mod = from_onnx(exported(model, x, dynamic_shapes=(dims,)))
    assert attentions(mod) == own.fused
    check(mod, model, own.inputs(3, 9 if 1 in dims else 7))


@pytest.mark.parametrize("name", ["mobilenet"])
def test_static_shapes(name):
    own = MODELS[name]
    model, x = seeded(own.build), own.inputs(2, 7)
    check(from_onnx(exported(model, x)), model, x)


@pytest.mark.parametrize("name", ["t5", "gru, both ways"])
def test_the_exporter_that_traces(name):
    own = MODELS[name]
    model, x = seeded(own.build), own.inputs(2, 7)
    axes = {0: "batch"} if own.inputs is images else {0: "batch", 1: "length"}
    mod = from_onnx(exported_before(model, x, dynamic_axes={"x": axes}))
    assert attentions(mod) == own.fused
    check(mod, model, own.inputs(3, 9))
