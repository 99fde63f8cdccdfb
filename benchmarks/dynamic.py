"""Programs of unknown extents beside those compiled for one size: `OMP_NUM_THREADS=1 python -m benchmarks.dynamic`.

Each model is compiled once with symbolic extents, and once for every size. Both run on the same inputs in turns, beside
what the first becomes once it was called with these often, and ONNX Runtime with symbolic extents. `--write-docs`
writes the table into docs/speed.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnxruntime
import torch

import oneir
from benchmarks.measure import general_code, interleaved, often_called
from benchmarks.page import write_section
from benchmarks.zoo import Extents, Subject
from oneir import relax
from oneir.bench.table import digits, table


@dataclass(frozen=True)
class Sizes:
    """A model, the dimensions of its inputs that are unknown, and the shapes of inputs that it is called with."""

    model: str
    extents: Extents
    shapes: tuple[tuple[int, ...], ...]


BATCH = torch.export.Dim("batch", min=1, max=256)
LENGTH = torch.export.Dim("length", min=2, max=512)
HEIGHT, WIDTH = torch.export.Dim("height", min=64, max=512), torch.export.Dim("width", min=64, max=512)

CASES = (
    Sizes("mlp", {0: BATCH}, ((1, 784), (3, 784), (16, 784), (64, 784))),
    Sizes("resnet50", {0: BATCH}, ((1, 3, 224, 224), (3, 3, 224, 224), (8, 3, 224, 224))),
    Sizes("squeezenet", {0: BATCH, 2: HEIGHT, 3: WIDTH}, ((1, 3, 224, 224), (1, 3, 160, 288), (8, 3, 224, 224))),
    Sizes("bert_base", {0: BATCH, 1: LENGTH}, ((1, 16), (1, 128), (1, 509), (4, 37), (64, 16))),
)


def compiled(mod: oneir.ir.IRModule) -> relax.VirtualMachine:
    """A graph as native code."""
    return relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())


def contest(
    subject: Subject,
    unknown: relax.VirtualMachine,
    often: relax.VirtualMachine,
    session: onnxruntime.InferenceSession,
    rounds: int,
) -> tuple[float, ...]:
    """Seconds of the program of unknown extents, of what it becomes once it was called with these often, of the one
    for the subject's inputs, and of ONNX Runtime.
    """
    known, general = compiled(subject.graph())["main"], unknown["main"]
    arrays = subject.inputs()
    tensors = [oneir.runtime.tensor(x) for x in arrays]
    feeds = {entry.name: x for entry, x in zip(session.get_inputs(), arrays, strict=True)}
    np.testing.assert_allclose(general(*tensors).numpy(), known(*tensors).numpy(), rtol=1e-3, atol=1e-3)
    calls: dict[str, Callable[[], object]] = {
        "unknown": lambda: general(*tensors),
        "often": often_called(often, *tensors),
        "known": lambda: known(*tensors),
        "onnxruntime": lambda: session.run(None, feeds),
    }
    return tuple(interleaved(calls, rounds, 0.1).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=[case.model for case in CASES])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write-docs", action="store_true", help="write the table into docs/speed.md")
    options = parser.parse_args()
    threads = oneir.runtime.num_threads()
    rows: list[list[str]] = []
    for case in CASES:
        if options.models and case.model not in options.models:
            continue
        subject = Subject(case.model, 2, 128)
        often = compiled(subject.graph(case.extents))
        with general_code():
            unknown = compiled(subject.graph(case.extents))
        session = subject.session(threads, case.extents)
        (own,) = subject.tensors
        for shape in case.shapes:
            # As many of the model's own elements as the shape has, again from the first where these are too few.
            subject.tensors = (torch.from_numpy(np.resize(own.numpy(), shape)),)
            seconds = contest(subject, unknown, often, session, options.rounds)
            general, again, known, theirs = seconds
            ratios = [f"{ratio:.2f}" for ratio in (general / known, again / known, general / theirs)]
            rows.append([case.model, "x".join(map(str, shape)), *(digits(s * 1e3) for s in seconds), *ratios])
            print(*rows[-1], flush=True)
    head = ("Model", "Shape", "Unknown ms", "Often ms", "Known ms", "ONNX Runtime ms")
    head += ("Unknown / known", "Often / known", "Unknown / ONNX Runtime")
    text = table(head, rows, texts=(0, 1))
    print(text)
    if options.write_docs:
        about = f"{threads} threads, ONNX Runtime {onnxruntime.__version__}, {options.rounds} turns."
        write_section("benchmarks.dynamic --write-docs", f"{about}\n\n{text}")


if __name__ == "__main__":
    main()
