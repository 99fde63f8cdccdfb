"""Products of matrices of any size beside PyTorch's: `OMP_NUM_THREADS=1 python -m benchmarks.products`.

Batches, rows, columns and sums are drawn from extents that models have, most of them no multiple of a vector, with the
same seed every time; either factor may lie transposed. Neither is constant, so nothing is packed before. Printed are
those that take longest beside PyTorch, which computes with MKL or oneDNN; `--write-docs` writes them into
docs/speed.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import torch

import oneir
from benchmarks.measure import interleaved
from benchmarks.page import slowest, write_section
from oneir import relax
from oneir.relax import op

EXTENTS = (2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 49, 50, 63, 64, 96, 100, 127, 150, 197, 256, 300)
LEAST_WORK = 1e5
"""Multiplications below which a call costs more than its product."""


@dataclass(frozen=True)
class Product:
    """Batches of (rows, depth) by (depth, columns); a factor that lies transposed is "T"."""

    batches: int
    rows: int
    columns: int
    depth: int
    lies: str

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of both factors as they lie in memory."""
        a, b = [self.rows, self.depth], [self.depth, self.columns]
        first, second = (m[::-1] if lies == "T" else m for m, lies in zip((a, b), self.lies, strict=True))
        return (self.batches, *first), (self.batches, *second)

    @property
    def work(self) -> int:
        return self.batches * self.rows * self.columns * self.depth


def drawn(count: int) -> list[Product]:
    """So many different products."""
    rng, found = np.random.default_rng(0), dict[Product, None]()
    while len(found) < count:
        rows, columns, depth = (int(n) for n in rng.choice(EXTENTS, 3))
        product = Product(int(rng.choice([1, 1, 4, 24])), rows, columns, depth, str(rng.choice(["NN", "NT", "TN"])))
        if product.work >= LEAST_WORK:
            found[product] = None
    return list(found)


def contest(product: Product, rounds: int) -> tuple[float, float]:
    """Our seconds and PyTorch's."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(name, relax.TensorStructInfo(s, "float32")) for name, s in zip("ab", product.shapes, strict=True)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            first, second = (
                builder.emit(op.permute_dims(p, [0, 2, 1])) if lies == "T" else p
                for p, lies in zip(params, product.lies, strict=True)
            )
            result = builder.emit_output(op.matmul(first, second))
        builder.emit_func_output(result)
    function = relax.VirtualMachine(relax.build(builder.get(), "llvm"), oneir.cpu())["main"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in product.shapes]
    ours, theirs = [oneir.runtime.tensor(a) for a in arrays], [torch.from_numpy(a) for a in arrays]
    a, b = (t.transpose(1, 2) if lies == "T" else t for t, lies in zip(theirs, product.lies, strict=True))
    with torch.inference_mode():
        np.testing.assert_allclose(function(*ours).numpy(), torch.matmul(a, b).numpy(), rtol=1e-3, atol=1e-3)
        seconds = interleaved({"ours": lambda: function(*ours), "torch": lambda: torch.matmul(a, b)}, rounds, 0.005)
    return seconds["ours"], seconds["torch"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many products")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write-docs", action="store_true", help="write the result into docs/speed.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if oneir.runtime.pool.num_threads() != 1:
        raise SystemExit("start with OMP_NUM_THREADS=1, so that all have one thread")
    found: list[tuple[float, str]] = []
    for product in drawn(options.count):
        ours, theirs = contest(product, options.rounds)
        shape = f"{product.batches} × {product.rows} × {product.columns} × {product.depth}"
        speeds = f"{2 * product.work / ours / 1e9:.1f} | {2 * product.work / theirs / 1e9:.1f}"
        found.append((ours / theirs, f"| {shape} | {product.lies} | {speeds} | {ours / theirs:.2f} |"))
    head = (
        "| Batches × rows × columns × sum | Lie | GFLOP/s | PyTorch's | Our time / PyTorch's |\n"
        "| --- | --- | ---: | ---: | ---: |"
    )
    text = slowest(found, "PyTorch's", "products", head, 10)
    print(text)
    if options.write_docs:
        write_section("benchmarks.products --write-docs", text)


if __name__ == "__main__":
    main()
