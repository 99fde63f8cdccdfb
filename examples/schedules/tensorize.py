"""A 16 x 16 x 16 piece of a matrix product replaced by a function of one's own.

    python -m examples.schedules.tensorize

A `TensorIntrin` has two halves. The *description* is plain TensorIR: what the instruction computes. The
*implementation* is how it is called, over the same buffers. `tensorize` compares a block of the program with the
description, and puts the implementation in its place, with the buffers matched to the parts that the block uses.

The implementation here is a call of `gemm_16x16x16`. There are two ways to say what that is. LLVM IR, written by hand
as here or by `clang -S -emit-llvm`, becomes a part of the program when a loop is annotated with `pragma_import_llvm`. A
function of a C library is found when the library was loaded with its names visible to all of the process.
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
C_SOURCE = """
int gemm_16x16x16(const float* a, const float* b, float* c, int a_stride, int b_stride, int c_stride) {
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 16; ++j)
        c[i * c_stride + j] += a[i * a_stride + k] * b[k * b_stride + j];
  return 0;
}
"""

# The same: a row of C stays in a vector while a row of B after the other, times an element of A, is added to it.
LLVM_IR = """
define i32 @gemm_16x16x16(ptr %a, ptr %b, ptr %c, i32 %a_stride, i32 %b_stride, i32 %c_stride) {
begin:
  br label %row
row:
  %i = phi i32 [ 0, %begin ], [ %next_i, %stored ]
  %a_row = mul i32 %i, %a_stride
  %c_row = mul i32 %i, %c_stride
  %c_at = getelementptr float, ptr %c, i32 %c_row
  %before = load <16 x float>, ptr %c_at, align 4
  br label %step
step:
  %k = phi i32 [ 0, %row ], [ %next_k, %step ]
  %sum = phi <16 x float> [ %before, %row ], [ %next_sum, %step ]
  %a_index = add i32 %a_row, %k
  %a_at = getelementptr float, ptr %a, i32 %a_index
  %x = load float, ptr %a_at, align 4
  %first = insertelement <16 x float> poison, float %x, i32 0
  %xs = shufflevector <16 x float> %first, <16 x float> poison, <16 x i32> zeroinitializer
  %b_row = mul i32 %k, %b_stride
  %b_at = getelementptr float, ptr %b, i32 %b_row
  %ys = load <16 x float>, ptr %b_at, align 4
  %products = fmul <16 x float> %xs, %ys
  %next_sum = fadd <16 x float> %sum, %products
  %next_k = add i32 %k, 1
  %more_k = icmp slt i32 %next_k, 16
  br i1 %more_k, label %step, label %stored
stored:
  store <16 x float> %next_sum, ptr %c_at, align 4
  %next_i = add i32 %i, 1
  %more_i = icmp slt i32 %next_i, 16
  br i1 %more_i, label %row, label %end
end:
  ret i32 0
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
def implementation(a: T.handle, b: T.handle, c: T.handle):
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


def load_c_function() -> None:
    """Compiles the C function and loads it where compiled programs look symbols up: among the process's own."""
    assert COMPILER is not None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "gemm.c"), Path(folder, "gemm.so")
        source.write_text(C_SOURCE)
        subprocess.run([COMPILER, "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def matmul(n: int) -> tir.PrimFunc:
    """C = A @ B of n x n float32 matrices."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")


def schedule(n: int, llvm_ir: str | None) -> tir.Schedule:
    """The function with each piece done by a call, of `llvm_ir` or else of C; `n` is a multiple of 16."""
    tir.TensorIntrin.register("example.gemm_16x16x16", description, implementation, override=True)
    sch = tir.Schedule(matmul(n))
    block = sch.get_block("C")
    outer, inner = zip(*(sch.split(loop, [None, SIDE]) for loop in sch.get_loops(block)), strict=True)
    sch.reorder(*outer, *inner)
    sch.decompose_reduction(block, outer[-1])
    sch.tensorize(inner[0], "example.gemm_16x16x16")
    if llvm_ir is not None:
        sch.annotate(outer[0], "pragma_import_llvm", llvm_ir)
    return sch


def check(n: int, llvm_ir: str | None) -> None:
    """Runs the function on random matrices and compares with NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    c = np.full((n, n), np.nan, "float32")
    oneir.build(schedule(n, llvm_ir).mod)["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4 * n**0.5)


if __name__ == "__main__":
    schedule(64, None).show()
    check(64, LLVM_IR)
    if COMPILER is not None:
        load_c_function()
        check(64, None)
    print("The result is NumPy's.")
