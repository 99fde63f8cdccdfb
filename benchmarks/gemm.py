"""A hand-tiled GEMM against the libraries: `python -m benchmarks.gemm`.

float32, square, B packed inside of the timed call. One thread against NumPy's OpenBLAS and torch's MKL on one thread,
then two threads against one.
"""

from __future__ import annotations

import numpy as np
import torch

import oneir
from benchmarks.measure import interleaved, verdict
from examples.matmul import tiled_matmul


def contest(n: int) -> None:
    """Prints one size's figures."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    c, d = np.empty((n, n), "float32"), np.empty((n, n), "float32")
    ta, tb, tc = (torch.from_numpy(x) for x in (a, b, d))
    one = oneir.build(tiled_matmul(n))["matmul"]
    two = oneir.build(tiled_matmul(n, threads=True))["matmul"]
    for function in (one, two):
        function(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-3 * n**0.5)
    x, y, z = oneir.runtime.tensor(a), oneir.runtime.tensor(b), oneir.runtime.empty((n, n))
    seconds = interleaved(
        {
            "one": lambda: one(x, y, z),
            "numpy": lambda: np.matmul(a, b, out=d),
            "torch": lambda: torch.mm(ta, tb, out=tc),
            "two": lambda: two(x, y, z),
        }
    )
    rate = {name: 2 * n**3 / t / 1e9 for name, t in seconds.items()}
    ratio = rate["one"] / max(rate["numpy"], rate["torch"])
    scaling = rate["two"] / rate["one"]
    print(f"{n:5d} {rate['one']:8.1f} {rate['numpy']:9.1f} {rate['torch']:8.1f}")
    print(f"      of the better library: {ratio:.2f} {verdict(ratio, 0.9, True)}")
    print(f"      two threads: {rate['two']:.1f}, {scaling:.2f} x one {verdict(scaling, 1.8, True)}")


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'n':>5} {'OneIR':>8} {'OpenBLAS':>9} {'MKL':>8}   GFLOP/s on one thread")
    for n in (768, 1536):
        contest(n)


if __name__ == "__main__":
    main()
