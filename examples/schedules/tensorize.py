"""A 16 x 16 x 16 piece of a matrix product replaced by a function of one's own.

    python -m examples.schedules.tensorize

A `TensorIntrin` has two halves. The *description* is plain TensorIR: what the instruction computes. The
*implementation* is how it is called, over the same buffers. `tensorize` compares a block of the program with the
description, and puts the implementation in its place, with the buffers matched to the parts that the block uses.

The implementation here is a call of a C function, if there is a C compiler; else vectors in TensorIR.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import oneir
from oneir import te, tir
from oneir.script import tir as T

SIDE = 16
COMPILER = shutil.which("cc") or shutil.which("clang") or shutil.which("gcc")

# Adds A @ B to C; strides are elements between rows. Nothing looks at the result.
SOURCE = """
int gemm_16x16x16(const float* a, const float* b, float* c, int a_stride, int b_stride, int c_stride) {
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 16; ++j)
        c[i * c_stride + j] += a[i * a_stride + k] * b[k * b_stride + j];
  return 0;
}
"""


@T.prim_func
def description(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (16, 16), offset_factor=1)
    B = T.match_buffer(b, (16, 16), offset_factor=1)
    C = T.match_buffer(c, (16, 16), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j, k in T.grid(16, 16, 16):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def call_of_c(a: T.handle, b: T.handle, c: T.handle):
    sa, sb, sc = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (16, 16), offset_factor=1, strides=[sa, 1])
    B = T.match_buffer(b, (16, 16), offset_factor=1, strides=[sb, 1])
    C = T.match_buffer(c, (16, 16), offset_factor=1, strides=[sc, 1])
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        T.evaluate(
            T.call_extern(
                "int32", "gemm_16x16x16", A.access_ptr("r"), B.access_ptr("r"), C.access_ptr("rw"), sa, sb, sc
            )
        )


@T.prim_func
def vectors(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (16, 16), offset_factor=1)
    B = T.match_buffer(b, (16, 16), offset_factor=1)
    C = T.match_buffer(c, (16, 16), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, k in T.grid(16, 16):
            for j in T.vectorized(16):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]


def load_c_function() -> None:
    """Compiles the C function and loads it where compiled programs look symbols up: among the process's own."""
    assert COMPILER is not None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "gemm.c"), Path(folder, "gemm.so")
        source.write_text(SOURCE)
        subprocess.run([COMPILER, "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def matmul(n: int) -> tir.PrimFunc:
    """C = A @ B of n x n float32 matrices."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")


def schedule(n: int, implementation: tir.PrimFunc) -> tir.Schedule:
    """The function with each piece done by `implementation`; `n` is a multiple of 16."""
    tir.TensorIntrin.register("example.gemm_16x16x16", description, implementation, override=True)
    sch = tir.Schedule(matmul(n))
    block = sch.get_block("C")
    outer, inner = zip(*(sch.split(loop, [None, SIDE]) for loop in sch.get_loops(block)), strict=True)
    sch.reorder(*outer, *inner)
    sch.decompose_reduction(block, outer[-1])
    sch.tensorize(inner[0], "example.gemm_16x16x16")
    return sch


def check(n: int, implementation: tir.PrimFunc) -> None:
    """Runs the function on random matrices and compares with NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    c = np.full((n, n), np.nan, "float32")
    oneir.build(schedule(n, implementation).mod)["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4 * n**0.5)


if __name__ == "__main__":
    if COMPILER is not None:
        load_c_function()
    chosen = call_of_c if COMPILER is not None else vectors
    schedule(64, chosen).show()
    check(64, chosen)
    print("The result is NumPy's.")
