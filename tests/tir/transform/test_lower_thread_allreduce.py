"""LowerThreadAllreduce: trees equal NumPy for every number of threads and size of warp; what it needs is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply

from oneir.ir import IRModule
from oneir.runtime.error import InvalidValue, WellFormedError
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir.transform import BindTarget, LowerThreadAllreduce


def rows(groups, threads):
    """The sum of each row, by as many threads as it has elements."""

    @T.prim_func
    def func(A: T.Buffer((groups, threads), "int32"), B: T.Buffer((groups, threads), "int32")):
        ty = T.launch_thread("threadIdx.y", groups)
        tx = T.launch_thread("threadIdx.x", threads)
        data = T.allocate([1], "int32", "local")
        R = T.decl_buffer((1,), "int32", data=data, scope="local")
        with T.attr(T.comm_reducer(lambda x, y: x + y, [0]), "reduce_scope", T.reinterpret("handle", T.uint64(0))):
            T.tvm_thread_allreduce(T.uint32(1), A[ty, tx], T.bool(True), R[0], tx)
        B[ty, tx] = R[0]

    return func


def lowered(func, warp_size):
    target = Target({"kind": "opencl", "thread_warp_size": warp_size})
    return LowerThreadAllreduce()(BindTarget(target)(IRModule({"main": func})))["main"]


@pytest.mark.parametrize("warp_size", [1, 4, 32])
@pytest.mark.parametrize(("groups", "threads"), [(1, 8), (1, 7), (3, 8), (2, 5), (2, 1), (1, 20)])
def test_every_thread_gets_the_sum(groups, threads, warp_size):
    a = np.random.default_rng(0).integers(-9, 9, (groups, threads)).astype("int32")
    b = np.zeros_like(a)
    func = lowered(rows(groups, threads), warp_size)
    interpret(func, a, b)
    np.testing.assert_array_equal(b, np.repeat(a.sum(1, keepdims=True), threads, 1))
    assert "tvm_thread_allreduce" not in func.script()


def test_threads_of_one_warp_use_its_barriers():
    assert 'T.tvm_storage_sync("warp")' in lowered(rows(1, 8), 32).script()
    assert 'T.tvm_storage_sync("warp")' not in lowered(rows(1, 8), 1).script()


def test_a_target_is_needed():
    with pytest.raises(InvalidValue, match="apply BindTarget before"):
        apply(LowerThreadAllreduce(), rows(1, 4))


def test_threads_are_named_by_their_variables():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        tx = T.launch_thread("threadIdx.x", 8)
        data = T.allocate([1], "int32", "local")
        R = T.decl_buffer((1,), "int32", data=data, scope="local")
        with T.attr(T.comm_reducer(lambda x, y: x + y, [0]), "reduce_scope", T.reinterpret("handle", T.uint64(0))):
            T.tvm_thread_allreduce(T.uint32(1), A[tx], T.bool(True), R[0], tx + 1)
        B[tx] = R[0]

    with pytest.raises(WellFormedError, match=r"names their variables, found tx \+ 1"):
        lowered(func, 1)


def test_the_number_of_threads_is_constant():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", n)
        data = T.allocate([1], "int32", "local")
        R = T.decl_buffer((1,), "int32", data=data, scope="local")
        with T.attr(T.comm_reducer(lambda x, y: x + y, [0]), "reduce_scope", T.reinterpret("handle", T.uint64(0))):
            T.tvm_thread_allreduce(T.uint32(1), A[tx], T.bool(True), R[0], tx)
        B[tx] = R[0]

    with pytest.raises(WellFormedError, match=r"threadIdx\.x has n: split the loop by a constant"):
        lowered(func, 1)
