"""Whole models at full size, imported and built, against PyTorch: `python -m benchmarks.fidelity [NAME ...]`.

The models of the zoo and others that the importers are made for, with seeded weights, batch 1 and sequences of 128.
Each goes through `torch.export`, and with `--through-onnx` through `torch.onnx` as well. What they compute may differ
from PyTorch by a thousandth of the largest element; the exit code is 1 if one differs by more, or cannot be built.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

import oneir
from benchmarks.zoo import FEW, Model, OneResult
from oneir import relax
from oneir.ir import IRModule
from oneir.relax.frontend.onnx import from_onnx
from oneir.relax.frontend.torch import from_exported_program

BOUND = 1e-3


class First(nn.Module):
    """A layer that returns several tensors, as one that returns the first."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def convnext_tiny() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return OneResult(ConvNextForImageClassification(ConvNextConfig()), "logits")


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=4,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return OneResult(LlamaForCausalLM(config), "logits")


def t5_encoder() -> nn.Module:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12)
    return OneResult(T5EncoderModel(config), "last_hidden_state")


def transformer_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)


def images(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 224, 224),)


def tokens(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 32000, (batch, seq)),)


def vectors(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, seq, 512),)


ALL = FEW | {
    "convnext_tiny": Model(convnext_tiny, images, "224×224"),
    "llama": Model(llama, tokens, "4 layers of the form of Llama 3.2 1B"),
    "t5_encoder": Model(t5_encoder, tokens, "12 layers of 768"),
    "lstm": Model(lambda: First(nn.LSTM(512, 512, 2, batch_first=True)), vectors, "2 layers of 512"),
    "gru": Model(lambda: First(nn.GRU(512, 512, 2, batch_first=True)), vectors, "2 layers of 512"),
    "transformer_encoder": Model(transformer_encoder, vectors, "6 layers of 512"),
}


@dataclass(frozen=True)
class Found:
    """How a model was imported, how far off its result is, of the largest element, or why there is none."""

    model: str
    way: str
    error: float
    seconds: float
    failure: str = ""

    @property
    def holds(self) -> bool:
        return not self.failure and self.error <= BOUND

    def row(self) -> str:
        """A row of the table."""
        result = self.failure or f"{self.error:.1e}"
        return f"| {self.model} | {self.way} | {result} | {self.seconds:.0f} s | {'yes' if self.holds else 'NO'} |"


def exported(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> IRModule:
    """The module by way of `torch.export`."""
    return from_exported_program(torch.export.export(module, inputs), unwrap_unit_return_tuple=True)


def through_onnx(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> IRModule:
    """The module by way of `torch.onnx`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, inputs, str(path), dynamo=True, verbose=False)
        return from_onnx(path)


WAYS: dict[str, Callable[[nn.Module, tuple[torch.Tensor, ...]], IRModule]] = {
    "torch.export": exported,
    "torch.onnx": through_onnx,
}


@torch.inference_mode(False)
@torch.no_grad()
def examine(name: str, way: str) -> Found:
    """Builds one model and compares what it computes."""
    module, inputs = ALL[name].make()
    expected = module(*inputs).numpy()
    start = time.perf_counter()
    try:
        executable = relax.build(WAYS[way](module, inputs), "llvm")
        found = relax.VirtualMachine(executable, oneir.cpu())["main"](
            *(oneir.runtime.tensor(x.numpy()) for x in inputs)
        )
    except Exception as error:  # the table has a row for each model, whatever happens
        reason = " ".join(str(error).split())[:100]
        return Found(name, way, np.inf, time.perf_counter() - start, f"{type(error).__name__}: {reason}")
    difference = float(np.abs(found.numpy() - expected).max() / np.abs(expected).max())
    return Found(name, way, difference, time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}")
    parser.add_argument("--through-onnx", action="store_true", help="import what torch.onnx exports as well")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in ALL]
    if unknown:
        parser.error(f"there is no model {unknown[0]}; the models are {', '.join(ALL)}")
    results: list[Found] = []
    for name in options.names or ALL:
        for way in WAYS if options.through_onnx else ["torch.export"]:
            print(f"{name}, {way} ...", file=sys.stderr, flush=True)
            results.append(examine(name, way))
            print(results[-1].row(), file=sys.stderr, flush=True)
            gc.collect()
    print("| Model | Imported from | Error | Built in | Within 1e-3 |\n| --- | --- | ---: | ---: | --- |")
    print("\n".join(result.row() for result in results))
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
