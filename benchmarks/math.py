"""Vector mathematics against torch: `python -m benchmarks.math`.

exp, log, tanh, erf and sigmoid of 2**20 float32 on one thread, and their errors in units in the last place against
float64, over every N-th float32 there is (`--every N`, 4001 unless given) and the special values.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import oneir
from benchmarks.measure import interleaved, verdict
from oneir.script import tir as T
from oneir.target import Target
from oneir.target.cpu import cpu_info

SIZE = 1 << 20
FUNCTIONS = ("exp", "log", "tanh", "erf", "sigmoid")
RANGES = {"log": (0.01, 4.0)}


def vectorized(name: str, n: int):
    """The elementwise function over n float32, vectors two registers long."""
    function = getattr(T, name)
    lanes = cpu_info(Target("llvm")).vector_bytes // 4 * 2

    @T.prim_func
    def elementwise(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(n // lanes):
            for v in T.vectorized(lanes):
                B[i * lanes + v] = function(A[i * lanes + v])

    return oneir.build(elementwise)["elementwise"]


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """The function in float64."""
    with np.errstate(invalid="ignore"):  # signalling NaNs are among the points
        wide = torch.from_numpy(x.astype(np.float64))
    return getattr(torch, name)(wide).numpy()


def largest_error(result: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units in the last place of float32; infinite where a special value is wrong."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded) & np.isfinite(result)
    same_special = (np.isnan(rounded) & np.isnan(result)) | (rounded == result)
    if not np.all(finite | same_special):
        # Just below overflow, rounding up to infinity is one unit away.
        edge = np.abs(exact[~(finite | same_special)])
        if not np.all((edge > 3.4028e38) & (edge < 3.4029e38)):
            return float("inf")
    unit = np.spacing(np.abs(rounded[finite]))
    return float((np.abs(result[finite].astype(np.float64) - exact[finite]) / unit).max())


def samples(every: int) -> np.ndarray:
    """Every N-th bit pattern of float32, and the special values."""
    bits = np.arange(0, 1 << 32, every, dtype=np.uint64).astype(np.uint32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38], np.float32)
    x = np.concatenate([bits.view(np.float32), special])
    return np.concatenate([x, np.zeros(-len(x) % 64, np.float32)])


def contest(name: str, points: np.ndarray) -> None:
    """Prints one function's figures."""
    low, high = RANGES.get(name, (-4.0, 4.0))
    x = np.random.default_rng(0).uniform(low, high, SIZE).astype(np.float32)
    ours, theirs = vectorized(name, SIZE), getattr(torch, name)
    a, b = oneir.runtime.tensor(x), oneir.runtime.empty((SIZE,))
    ta, tb = torch.from_numpy(x), torch.empty(SIZE)
    seconds = interleaved({"ours": lambda: ours(a, b), "torch": lambda: theirs(ta, out=tb)})
    ratio = seconds["torch"] / seconds["ours"]
    result = np.empty_like(points)
    vectorized(name, len(points))(points, result)
    ulp = largest_error(result, reference(name, points))
    print(
        f"{name:8} {seconds['ours'] * 1e6:9.0f} {seconds['torch'] * 1e6:9.0f} {ratio:6.2f} {ulp:6.2f}   "
        f"speed {verdict(ratio, 1.0, True)}, error {verdict(ulp, 4.0, False)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=4001)
    points = samples(parser.parse_args().every)
    torch.set_num_threads(1)
    print(f"{'':8} {'OneIR µs':>9} {'torch µs':>9} {'ratio':>6} {'ulp':>6}   ({len(points)} points)")
    for name in FUNCTIONS:
        contest(name, points)


if __name__ == "__main__":
    main()
