"""LowerCrossThreadReduction: what becomes of a reduction over threads, and which reductions threads cannot do."""

from __future__ import annotations

import pytest
from pass_checks import apply, unchanged

from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.testing import check_pass
from oneir.tir.transform import LowerCrossThreadReduction


def test_loops_that_are_all_bound():
    @T.prim_func
    def before(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for i in range(4):
            for k in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    @T.prim_func
    def expected(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "main"})
        with T.block("root"):
            cross_thread_B = T.alloc_buffer((1,), strides=(1,), scope="local")
            for i in range(4):
                for k in T.thread_binding(8, thread="threadIdx.x"):
                    with T.block("B_cross_thread"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        T.reads(A[vi, vk])
                        T.writes(cross_thread_B[0])
                        T.attr(
                            T.comm_reducer(lambda x, y: x + y, [T.float32(0)]),
                            "reduce_scope",
                            T.reinterpret("handle", T.uint64(0)),
                        )
                        T.tvm_thread_allreduce(T.uint32(1), A[vi, vk], T.bool(True), cross_thread_B[0], k)
                    with T.block("B_write_back"):
                        vi = T.axis.spatial(4, i)
                        T.where(k == 0)
                        T.reads(cross_thread_B[0])
                        T.writes(B[vi])
                        B[vi] = cross_thread_B[0]

    check_pass(LowerCrossThreadReduction(), before, expected)


def test_a_reduction_without_threads_stays():
    @T.prim_func
    def func(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i in T.thread_binding(4, thread="threadIdx.x"):
            for k in range(8):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    unchanged(LowerCrossThreadReduction(), func)


def test_thread_blocks_cannot_reduce_together():
    @T.prim_func
    def func(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            for k in T.thread_binding(8, thread="blockIdx.x"):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    with pytest.raises(WellFormedError, match=r"only be bound to `threadIdx.x/y/z`. Loop `k` of block `B`") as caught:
        apply(LowerCrossThreadReduction(), func)
    assert "use rfactor" in str(caught.value)
    assert "^^^" in str(caught.value)


def test_loops_below_the_threads_move_around_them():
    @T.prim_func
    def before(A: T.Buffer((4, 8, 3), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for k in T.thread_binding(8, thread="threadIdx.x"):
            for i in range(4):
                for j in range(3):
                    with T.block("B"):
                        vi, vk, vj = T.axis.remap("SRR", [i, k, j])
                        with T.init():
                            B[vi] = T.float32(0)
                        B[vi] = B[vi] + A[vi, vk, vj]

    @T.prim_func
    def moved(A: T.Buffer((4, 8, 3), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for i in range(4):
            for k in T.thread_binding(8, thread="threadIdx.x"):
                for j in range(3):
                    with T.block("B"):
                        vi, vk, vj = T.axis.remap("SRR", [i, k, j])
                        with T.init():
                            B[vi] = T.float32(0)
                        B[vi] = B[vi] + A[vi, vk, vj]

    check_pass(LowerCrossThreadReduction(), before, apply(LowerCrossThreadReduction(), moved))


def test_loops_over_what_threads_prepare_do_not_move():
    @T.prim_func
    def func(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for k in T.thread_binding(8, thread="threadIdx.x"):
            for i in range(4):
                with T.block("C"):
                    vi, vk = T.axis.remap("SS", [i, k])
                    A[vi, vk] = A[vi, vk] + T.float32(1)
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    with pytest.raises(WellFormedError, match=r"to be the deepest .* reorder the loops"):
        apply(LowerCrossThreadReduction(), func)
