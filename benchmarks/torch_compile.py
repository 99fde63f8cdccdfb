"""Programs through `torch.compile`: whether they are right, and how long they take beside eager and Inductor.

    .venv/bin/python -m benchmarks.torch_compile
    .venv/bin/python -m benchmarks.torch_compile --threads 1 --only mlp rk4
    .venv/bin/python -m benchmarks.torch_compile --threads 1 --keep FILE
    .venv/bin/python -m benchmarks.torch_compile --threads 2 --keep FILE --write-docs

Each program runs as PyTorch does without compiling, with `backend="oneir"`, and with Inductor, in one process and in
turns; a time is the least of all turns. Results, and the losses of what trains, are compared with those of eager.
Nothing is compiled before: both compilers get a new cache. `--keep` adds what was measured to a file, one line of JSON
for each program, and `--write-docs` makes docs/torch-compile.md of all that is in it.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from oneir.bench.table import machine
from oneir.relax.frontend.torch import dynamo

Compile = Callable[[Any], Any]
Step = Callable[[], Any]


@dataclass(frozen=True)
class Program:
    """`make(compile)` gives the function that is timed, whose results are compared; some of them train."""

    make: Callable[[Compile], Step]
    trains: bool = False


def _training(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[Compile], Step]:
    def make(compile: Compile) -> Step:
        own = copy.deepcopy(model).train()
        run, optimizer, count = compile(own), torch.optim.SGD(own.parameters(), 1e-2), [0]

        def step() -> torch.Tensor:
            x, y = batches[count[0] % len(batches)]
            count[0] += 1
            loss = functional.cross_entropy(run(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    return make


def _inference(function: Any, *args: Any) -> Callable[[Compile], Step]:
    def make(compile: Compile) -> Step:
        run = compile(copy.deepcopy(function))

        def step() -> Any:
            with torch.no_grad():
                return run(*args)

        return step

    return make


def mlp() -> Program:
    """An MLP with dropout is trained."""
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    return Program(_training(model, [(torch.randn(64, 784), torch.randint(0, 10, (64,)))]), True)


def cnn() -> Program:
    """A CNN with batch normalization is trained."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )
    return Program(_training(model, [(torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,)))]), True)


def bert() -> Program:
    """A step of fine-tuning a small BERT."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    config.num_labels = 10

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertForSequenceClassification(config)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.model(ids).logits

    ids = torch.randint(0, config.vocab_size, (8, 64))
    return Program(_training(Logits(), [(ids, torch.randint(0, 10, (8,)))]), True)


def graph_break() -> Program:
    """Two layers, and Python that cannot be compiled between them."""
    first, second = nn.Linear(256, 512), nn.Linear(512, 256)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = first(x).relu()
        torch._dynamo.graph_break()
        return second(y).sigmoid()

    return Program(_inference(function, torch.randn(64, 256)))


def batches() -> Program:
    """Batches of sizes that change from call to call."""
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).eval()
    inputs = [torch.randn(rows, 256) for rows in (32, 17, 64, 5)]

    def make(compile: Compile) -> Step:
        run = compile(copy.deepcopy(model))

        def step() -> Any:
            with torch.no_grad():
                return tuple(run(x) for x in inputs)

        return step

    return Program(make)


def autocast() -> Program:
    """A perceptron in bfloat16 by autocast."""
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).eval()

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    return Program(_inference(function, torch.randn(64, 512)))


def buffer() -> Program:
    """A model that writes a running mean into its buffer."""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(256, 256)
            self.mean: torch.Tensor
            self.register_buffer("mean", torch.zeros(256))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            return y - self.mean

    return Program(_inference(Mean().eval(), torch.randn(64, 256)))


def diffusion() -> Program:
    """A step of a small U-Net with attention."""

    class Block(nn.Module):
        def __init__(self, channels: int, out: int) -> None:
            super().__init__()
            self.norm, self.conv = nn.GroupNorm(8, channels), nn.Conv2d(channels, out, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(functional.silu(self.norm(x)))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.down, self.inner = nn.Conv2d(3, 32, 3, padding=1), Block(32, 64), Block(64, 64)
            self.qkv, self.up, self.leave = nn.Linear(64, 192), Block(96, 32), nn.Conv2d(32, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            top = self.enter(x)
            y = self.inner(self.down(functional.avg_pool2d(top, 2)))
            n, c, h, w = y.shape
            q, k, v = self.qkv(y.flatten(2).transpose(1, 2)).view(n, h * w, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, h * w, c)
            y = functional.interpolate(y + seen.transpose(1, 2).view(n, c, h, w), scale_factor=2)
            return self.leave(self.up(torch.cat([y, top], 1)))

    return Program(_inference(UNet().eval(), torch.randn(1, 3, 32, 32)))


def recurrent() -> Program:
    """A recurrent cell, step by step."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRUCell(64, 128), nn.Linear(128, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = x.new_zeros(x.shape[1], 128)
            for step in x:
                state = self.cell(step, state)
            return self.head(state)

    return Program(_inference(Recurrent().eval(), torch.randn(8, 4, 64)))


def rk4() -> Program:
    """Ten steps of a Runge-Kutta solver of a field of 64×64 coupled oscillators."""

    def slope(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.roll(x, 1, 0) - x) + torch.sin(torch.roll(x, -1, 1) - x) - 0.1 * x

    def solve(x: torch.Tensor) -> torch.Tensor:
        h = 0.05
        for _ in range(10):
            a = slope(x)
            b = slope(x + h / 2 * a)
            c = slope(x + h / 2 * b)
            d = slope(x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
        return x

    return Program(_inference(solve, torch.randn(64, 64)))


def numpy_inside() -> Program:
    """A function of NumPy's arrays."""

    def function(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=1, keepdims=True)
        return np.exp(-(centred**2)).sum(axis=1)

    return Program(_inference(function, np.random.default_rng(0).standard_normal((512, 256)).astype("float32")))


def one_row() -> Program:
    """An MLP for one row, which takes eager 20 µs."""
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).eval()
    return Program(_inference(model, torch.randn(1, 784)))


PROGRAMS = (mlp, cnn, bert, graph_break, batches, autocast, buffer, diffusion, recurrent, rk4, numpy_inside, one_row)
BACKENDS: dict[str, Compile] = {
    "eager": lambda f: f,
    "oneir": lambda f: torch.compile(f, backend=dynamo.backend),
    "inductor": lambda f: torch.compile(f),
}


def _difference(found: Any, expected: Any) -> float:
    """The largest difference of results, over the largest element."""
    if isinstance(expected, (tuple, list)):
        return max(_difference(a, b) for a, b in zip(found, expected, strict=True))
    a, b = (np.asarray(x.float() if isinstance(x, torch.Tensor) else x, "float64") for x in (found, expected))
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


@dataclass(frozen=True)
class Row:
    """What was measured of a program."""

    program: str
    threads: int
    trains: bool
    seconds: dict[str, float]
    """The shortest step of each backend."""
    first: dict[str, float]
    """The first step of each backend, in seconds."""
    errors: dict[str, float]
    """The largest difference from eager, over the largest element."""
    wrong: dict[str, str]
    """What went wrong, of backends without times."""

    def against(self, name: str) -> float | None:
        """OneIR's time over that of a backend; None where one of them has no time."""
        return self.seconds["oneir"] / self.seconds[name] if {"oneir", name} <= self.seconds.keys() else None

    def cells(self) -> list[str]:
        """The cells of a table, in the order of `COLUMNS`."""
        times = [f"{self.seconds[n] * 1e3:.3f}" if n in self.seconds else self.wrong[n] for n in BACKENDS]
        ratios = ["" if (r := self.against(name)) is None else f"{r:.2f}" for name in ("eager", "inductor")]
        first = [f"{self.first[name]:.1f}" if name in self.first else "" for name in ("oneir", "inductor")]
        error = self.errors.get("oneir")
        return [self.program, *times, *ratios, "" if error is None else f"{error:.1e}", *first]


COLUMNS = [
    *("Program", "Eager ms", "OneIR ms", "Inductor ms", "OneIR / eager", "OneIR / Inductor", "Error"),
    *("First step s", "Inductor's"),
]


def measured(make: Callable[[], Program], rounds: int) -> Row:
    """Times of a program with each backend, in turns."""
    wrong: dict[str, str] = {}
    first: dict[str, float] = {}
    errors: dict[str, float] = {}
    steps: dict[str, Step] = {}
    expected: list[Any] = []
    trains = False
    for name, compile in BACKENDS.items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        program = make()
        trains = program.trains
        try:
            step = program.make(compile)
            torch.manual_seed(1)
            start = time.perf_counter()
            results = [step()]
            first[name] = time.perf_counter() - start
            results += [step() for _ in range(5)]
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
            continue
        expected = expected or results
        steps[name] = step
        errors[name] = max(_difference(a, b) for a, b in zip(results, expected, strict=True))
    best = dict.fromkeys(steps, math.inf)
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < 0.1:
                step()
                count += 1
            best[name] = min(best[name], (time.perf_counter() - start) / count)
    return Row(make.__name__, torch.get_num_threads(), trains, best, first, errors, wrong)


def table(rows: Sequence[Row]) -> str:
    """A table of rows in Markdown, with geometric means under it."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (COLUMNS, *(row.cells() for row in rows))]
    lines.insert(1, "| --- |" + " ---: |" * (len(COLUMNS) - 1))
    for name in ("eager", "Inductor"):
        for kind, trains in (("inference", False), ("training", True)):
            ratios = [r for row in rows if row.trains == trains and (r := row.against(name.lower())) is not None]
            if ratios:
                mean = math.exp(np.mean(np.log(ratios)))
                lines += ["", f"OneIR's time over that of {name}, geometric mean of {kind}: {mean:.2f}"]
    return "\n".join(lines)


PAGE = Path(__file__).parent.parent / "docs" / "torch-compile.md"


def page(rows: Sequence[Row]) -> str:
    """The page in docs/."""
    parts = [
        f"""# Programs through `torch.compile`

{machine()}. PyTorch {torch.__version__}.

Each program runs as PyTorch does without compiling, with `backend="oneir"`, and with Inductor, in one process and in
turns; a time is the least of all turns. *Error* is the largest difference from eager in six steps, over the largest
element; of what trains, of the losses. *First step* is the first call, with nothing compiled before: PyTorch's tracing,
compiling, and running. `python -m benchmarks.torch_compile --write-docs` makes this page.
"""
    ]
    for threads in sorted({row.threads for row in rows}):
        shown = [row for row in rows if row.threads == threads]
        parts.append(f"## {threads} thread{'s' * (threads > 1)}\n\n{table(shown)}\n")
    described = [f"| {make.__name__} | {str(make.__doc__).strip()} |" for make in PROGRAMS]
    parts.append("| Program | What it is |\n| --- | --- |\n" + "\n".join(described) + "\n")
    return "\n".join(parts)


def kept_rows(path: Path) -> list[Row]:
    """The rows in a file, the last one of each program and number of threads, in the order of the programs."""
    rows = [Row(**json.loads(line)) for line in path.read_text().splitlines()]
    latest = {(row.program, row.threads): row for row in rows}
    order = [make.__name__ for make in PROGRAMS]
    return sorted(latest.values(), key=lambda row: (row.threads, order.index(row.program)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), metavar="N", help="of PyTorch and OneIR"
    )
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="turns of 0.1 s for each (10)")
    parser.add_argument("--only", nargs="*", choices=[p.__name__ for p in PROGRAMS], help="some of the programs")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add what is measured to this file")
    parser.add_argument("--write-docs", action="store_true", help="write docs/torch-compile.md; needs --keep")
    options = parser.parse_args()
    keep: Path | None = options.keep
    if options.write_docs and keep is None:
        parser.error("--write-docs needs --keep, the file with what was measured")
    torch.set_num_threads(options.threads)
    from oneir.runtime import set_num_threads

    set_num_threads(options.threads)
    warnings.simplefilter("ignore", (FutureWarning, DeprecationWarning, UserWarning))
    print(f"{machine()}\nPyTorch {torch.__version__}, {options.threads} threads\n")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as caches:
        os.environ |= {"ONEIR_CACHE_DIR": f"{caches}/oneir", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
        for make in PROGRAMS:
            if options.only is None or make.__name__ in options.only:
                rows.append(measured(make, options.rounds))
                print("  ".join(rows[-1].cells()), flush=True)
                if keep is not None:
                    with keep.open("a") as file:
                        file.write(json.dumps(asdict(rows[-1])) + "\n")
    if rows:
        print(f"\n{table(rows)}")
    if options.write_docs and keep is not None:
        PAGE.write_text(page(kept_rows(keep)), encoding="utf-8")


if __name__ == "__main__":
    main()
