"""estimate_tir_flops: operations in what is stored, times the iterations around them."""

from __future__ import annotations

from oneir.ir.module import IRModule
from oneir.script import tir as T
from oneir.tir.analysis import estimate_tir_flops


@T.prim_func
def matmul(A: T.Buffer((16, 32), "float32"), B: T.Buffer((32, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for i, j, k in T.grid(16, 8, 32):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_a_matrix_product_takes_two_operations_a_step():
    assert estimate_tir_flops(matmul) == 2 * 16 * 8 * 32
    assert estimate_tir_flops(IRModule({"a": matmul, "b": matmul})) == 2 * 2 * 16 * 8 * 32
    assert estimate_tir_flops(matmul.body) == 2 * 16 * 8 * 32


def test_indices_do_not_count_and_lanes_do():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(8):
            B[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(i * 8, 1, 8)] * T.Broadcast(T.float32(2), 8)

    assert estimate_tir_flops(func) == 64


def test_a_branch_counts_as_its_larger_side():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), c: T.bool):
        if c:
            A[0] = A[1] + A[2]
        else:
            A[0] = A[1] + A[2] * A[3] - A[4]

    assert estimate_tir_flops(func) == 3


def test_a_loop_of_unknown_extent_counts_once():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(n):
            A[0] = A[0] + T.float32(1)

    assert estimate_tir_flops(func) == 1
