"""Recurrent layers of many shapes beside PyTorch and ONNX Runtime: `OMP_NUM_THREADS=1 python -m benchmarks.recurrent`.

Each row is one network, imported from `torch.export` and timed in turns with PyTorch's own and with ONNX Runtime on
what `torch.onnx` writes. OneIR has as many threads as OMP_NUM_THREADS says, and so do the others. GFLOP/s count the
products of inputs and of hidden states. `--write-docs` draws them into docs/speed.md.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import oneir
from benchmarks.measure import interleaved
from benchmarks.page import draw_bars, write_section
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program


@dataclass(frozen=True)
class Shape:
    """A network: its kind, sequences at once, steps, numbers of an input and of a hidden state, layers."""

    kind: str
    batch: int
    steps: int
    inputs: int
    units: int
    layers: int = 1
    bidirectional: bool = False

    @property
    def name(self) -> str:
        direction = " both ways" if self.bidirectional else ""
        return f"{self.kind} {self.layers}x{self.units}{direction}, batch {self.batch}, {self.steps} steps"

    def work(self) -> float:
        """GFLOP of one call."""
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[self.kind]
        ways = 2 if self.bidirectional else 1
        inputs = [self.inputs, *[self.units * ways] * (self.layers - 1)]
        each = sum(ways * gates * self.units * (size + self.units) for size in inputs)
        return 2 * self.batch * self.steps * each / 1e9


GRID = (
    Shape("LSTM", 1, 64, 512, 512, layers=2),
    Shape("LSTM", 8, 64, 512, 512, layers=2),
    Shape("LSTM", 1, 64, 256, 256),
    Shape("LSTM", 8, 64, 256, 256),
    Shape("LSTM", 32, 32, 256, 256),
    Shape("LSTM", 1, 128, 128, 128),
    Shape("LSTM", 8, 128, 128, 128, bidirectional=True),
    Shape("LSTM", 1, 64, 512, 512, layers=2, bidirectional=True),
    Shape("LSTM", 1, 128, 40, 64),
    Shape("LSTM", 1, 32, 1024, 1024),
    Shape("LSTM", 8, 32, 1024, 1024),
    Shape("LSTM", 1, 1, 512, 512, layers=2),
    Shape("LSTM", 1, 12, 512, 512),
    Shape("GRU", 1, 64, 512, 512, layers=2),
    Shape("GRU", 8, 64, 512, 512, layers=2),
    Shape("GRU", 1, 128, 128, 128, bidirectional=True),
    Shape("GRU", 8, 128, 128, 128),
    Shape("RNN", 1, 64, 512, 512),
    Shape("RNN", 8, 64, 512, 512),
    Shape("RNN", 1, 128, 128, 128),
)


def contest(shape: Shape, threads: int, rounds: int, peers: list[str]) -> tuple[dict[str, float], float]:
    """The seconds of each contestant, and our largest difference from PyTorch in float64."""
    torch.manual_seed(0)
    layer = getattr(torch.nn, shape.kind)
    module = layer(shape.inputs, shape.units, shape.layers, bidirectional=shape.bidirectional).eval()
    x = torch.randn(shape.steps, shape.batch, shape.inputs)
    with torch.no_grad():
        program = torch.export.export(module, (x,))
    machine = relax.VirtualMachine(relax.build(from_exported_program(program), "llvm"), oneir.cpu())
    main, own = machine["main"], oneir.runtime.tensor(x.numpy())
    contestants: dict[str, Any] = {"ours": lambda: main(own)}
    if "torch" in peers:
        contestants["torch"] = lambda: module(x)
    if "ort" in peers:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            torch.onnx.export(module, (x,), str(path), dynamo=True, verbose=False)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: x.numpy()}
        contestants["ort"] = lambda: session.run(None, feed)
    with torch.inference_mode():
        found = main(own)[0].numpy()
        seconds = interleaved(contestants, rounds)
        exact = module.double()(x.double())[0].numpy()
    return seconds, float(np.abs(found - exact).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--peers", nargs="*", default=["torch", "ort"], choices=["torch", "ort"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write-docs", action="store_true", help="draw the speeds into docs/speed.md")
    options = parser.parse_args()
    threads = oneir.runtime.pool.num_threads()
    torch.set_num_threads(threads)
    print(f"{threads} threads\n{'':48} {'ms':>8} {'GFLOP/s':>8} {'torch':>8} {'ort':>8} {'of best':>8} {'error':>8}")
    ratios: list[float] = []
    names: list[str] = []
    gflops: dict[str, list[float]] = {"OneIR": [], "PyTorch": [], "ONNX Runtime": []}
    for shape in GRID:
        if options.only not in shape.name:
            continue
        seconds, error = contest(shape, threads, options.rounds, options.peers)
        ours = seconds["ours"]
        others = [seconds.get(name, math.nan) for name in ("torch", "ort")]
        ratio = ours / min(seconds[name] for name in options.peers) if options.peers else math.nan
        ratios.append(ratio)
        names.append(shape.name)
        for contestant, s in zip(gflops.values(), (ours, *others), strict=True):
            contestant.append(shape.work() / s)
        speeds = " ".join(f"{values[-1]:8.1f}" for values in gflops.values())
        print(f"{shape.name:48} {ours * 1e3:8.3f} {speeds} {ratio:8.2f} {error:8.1e}", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean of {len(ratios)}: {mean:.2f}")
    if options.write_docs:
        shown = draw_bars(names, gflops, "GFLOP/s", "recurrent.png")
        told = f"Threads: {threads}; {mean:.2f} of the best other's time (geometric mean of {len(ratios)} networks)"
        write_section("benchmarks.recurrent --write-docs", f"{told}.\n\n{shown}")


if __name__ == "__main__":
    main()
