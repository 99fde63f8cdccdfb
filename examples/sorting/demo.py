"""A Transformer from PyTorch to native code: it sorts digits, and is compared with PyTorch and NumPy.

    python -m examples.sorting.demo [--output FILE.pt2]

Exports the model for any number of rows to a file, for the command line, and compiles it. Lets it sort 1,000 rows of
16 random digits, and prints some of them, how many are right, and how long it takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import oneir
from examples.sorting.model import DIGITS, LENGTH, Sorter, load_model
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program

console = Console()
ROWS = 1000


def exported(model: Sorter) -> torch.export.ExportedProgram:
    """The model as a program of PyTorch, for any number of rows."""
    batch = torch.export.Dim("batch", min=1, max=4096)
    example = torch.zeros(2, LENGTH, dtype=torch.int64)
    with torch.no_grad():
        return torch.export.export(model, (example,), dynamic_shapes=({0: batch},))


def milliseconds(call: Callable[[], object]) -> float:
    """The median time of a call, of as many as fit into 0.3 s."""
    times: list[float] = []
    while sum(times) < 300 and len(times) < 200:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def as_text(digits: np.ndarray) -> str:
    """A row of digits."""
    return " ".join(map(str, digits.tolist()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("build/sorting.pt2"), help="where to write the program")
    path = parser.parse_args().output
    console.rule("PyTorch: a Transformer that has learned to sort")
    model = load_model()
    exported_program = exported(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(exported_program, path)
    mod = from_exported_program(exported_program, unwrap_unit_return_tuple=True)
    start = time.perf_counter()
    program = relax.build(mod, "llvm")
    weights = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"{weights:,} weights, compiled for this machine in {time.perf_counter() - start:.2f} s")
    sort = relax.VirtualMachine(program, oneir.cpu())["main"]
    digits = np.random.default_rng(0).integers(0, DIGITS, (ROWS, LENGTH))
    logits = sort(digits).numpy()
    answers = logits.argmax(axis=-1)
    for row in range(4):
        console.print(f"{as_text(digits[row])}  becomes  {as_text(answers[row])}", highlight=False)
    right = (answers == np.sort(digits)).all(axis=1)
    with torch.inference_mode():
        reference = model(torch.from_numpy(digits)).numpy()
        same = (answers == reference.argmax(axis=-1)).all(axis=1)
        inputs = torch.from_numpy(digits)
        times = [
            ("OneIR", milliseconds(lambda: sort(digits)), milliseconds(lambda: sort(digits[:1]))),
            ("PyTorch", milliseconds(lambda: model(inputs)), milliseconds(lambda: model(inputs[:1]))),
        ]
    console.print(
        f"{right.sum()} of {ROWS} rows are as NumPy sorts them; {same.sum()} of {ROWS} as PyTorch's model sorts them; "
        f"largest difference of logits {np.abs(logits - reference).max():.1e}",
        highlight=False,
    )
    table = Table(title="milliseconds", title_justify="left")
    for column in ("runtime", f"{ROWS:,} rows", "one row"):
        table.add_column(column, justify="left" if column == "runtime" else "right")
    for name, many, one in times:
        table.add_row(name, f"{many:.1f}", f"{one:.3f}")
    console.print(table)
    console.print(f"on the command line: oneir run {path} --repeat 100", highlight=False)
    np.testing.assert_allclose(logits, reference, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
