"""What compiling costs: `python -m benchmarks.compile`.

Parse, lower and compile a plain 128 x 128 x 128 matmul once warm; the same from the cache on disk in a new process;
`import oneir`; and a call of a compiled function with three kinds of arguments.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import oneir
from benchmarks.measure import interleaved, verdict

MATMUL = """
@T.prim_func
def matmul(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    for i, j, k in T.grid(128, 128, 128):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

FROM_CACHE = f"""
import time
import oneir
from llvmlite import binding
from oneir.runtime import llvm, pool
llvm.host_cpu(), llvm.host_features()
func = oneir.script.from_source({MATMUL!r})
start = time.perf_counter()
built = oneir.build(func)
built["matmul"]
print((time.perf_counter() - start) * 1e3)
"""

IMPORT = "import time; start = time.perf_counter(); import oneir; print((time.perf_counter() - start) * 1e3)"


def in_new_process(code: str, **environment: str) -> float:
    """The number that a Python program prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return float(run.stdout)


def compile_once() -> float:
    """Milliseconds to parse, lower, compile and link, without the cache."""
    start = time.perf_counter()
    oneir.build(oneir.script.from_source(MATMUL))["matmul"]
    return (time.perf_counter() - start) * 1e3


def line(what: str, value: float, bar: float, unit: str) -> None:
    print(f"{what:58} {value:8.2f} {unit}  {verdict(value, bar, False)}")


def main() -> None:
    os.environ["ONEIR_CACHE_DIR"] = ""
    compile_once()
    line(
        "parse + lower + LLVM of a 128³ matmul, once warm",
        statistics.median(compile_once() for _ in range(9)),
        60,
        "ms",
    )
    with tempfile.TemporaryDirectory() as directory:
        in_new_process(FROM_CACHE, ONEIR_CACHE_DIR=directory)
        cached = [in_new_process(FROM_CACHE, ONEIR_CACHE_DIR=directory) for _ in range(5)]
    line("the same from the cache, in a new process", statistics.median(cached), 10, "ms")
    line("import oneir", statistics.median(in_new_process(IMPORT) for _ in range(5)), 500, "ms")

    func = oneir.script.from_source(MATMUL.replace("128", "2"))
    call = oneir.build(func)["matmul"]
    arrays = [np.zeros((2, 2), "float32") for _ in range(3)]
    tensors, torches = [oneir.runtime.tensor(a) for a in arrays], [torch.from_numpy(a) for a in arrays]
    seconds = interleaved(
        {
            "tensors": lambda: call(*tensors),
            "arrays": lambda: call(*arrays),
            "torch": lambda: call(*torches),
            "nothing": lambda: None,
        }
    )
    for kind, what, bar in (
        ("tensors", "a call with three prepared tensors", 1.5),
        ("arrays", "a call with three NumPy arrays", 2.5),
        ("torch", "a call with three PyTorch tensors", 6.0),
    ):
        line(what, (seconds[kind] - seconds["nothing"]) * 1e6, bar, "µs")


if __name__ == "__main__":
    main()
