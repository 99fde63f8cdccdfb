"""LowerThreadAllreduce: trees and shuffles equal NumPy for every number of threads; what it needs is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_compiler
from pass_checks import apply

from oneir import build, cuda, nd
from oneir.ir import IRModule
from oneir.runtime.error import DeviceError, InvalidValue, WellFormedError
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import interpret
from oneir.testing.cuda_host import ORDERS, CudaOnHost, cuda_on_host
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


# -- shuffles --

SHUFFLED = [(1, 32), (3, 32), (1, 128), (2, 64), (4, 8), (1, 1024), (1, 16), (5, 2), (3, 16)]
TREES = [(3, 7), (1, 48), (9, 12)]


def device_rows(groups, threads, dtype):
    """The sum of each row and the place of its largest element, in all threads of the row."""

    @T.prim_func
    def func(
        A: T.Buffer((groups, threads), dtype),
        B: T.Buffer((groups, threads), dtype),
        P: T.Buffer((groups, threads), "int32"),
    ):
        for bx in T.thread_binding(1, "blockIdx.x"):
            for ty in T.thread_binding(groups, "threadIdx.y"):
                total = T.alloc_buffer((groups,), dtype, scope="local")
                most = T.alloc_buffer((groups,), dtype, scope="local")
                place = T.alloc_buffer((groups,), "int32", scope="local")
                for tx in T.thread_binding(threads, "threadIdx.x"):
                    with T.block("sum"):
                        vy = T.axis.spatial(groups, ty)
                        vx = T.axis.reduce(threads, tx)
                        with T.init():
                            total[vy] = T.Cast(dtype, 0)
                        total[vy] = total[vy] + A[vy, vx]
                for tx in T.thread_binding(threads, "threadIdx.x"):
                    with T.block("largest"):
                        vy = T.axis.spatial(groups, ty)
                        vx = T.axis.reduce(threads, tx)
                        with T.init():
                            most[vy] = T.min_value(dtype)
                            place[vy] = -1
                        v_most = T.Select(most[vy] >= A[vy, vx], most[vy], A[vy, vx])
                        v_place = T.Select(most[vy] >= A[vy, vx], place[vy], vx)
                        most[vy] = v_most
                        place[vy] = v_place
                for tx in T.thread_binding(threads, "threadIdx.x"):
                    with T.block("out"):
                        vy, vx = T.axis.remap("SS", [ty, tx])
                        B[vy, vx] = total[vy]
                        P[vy, vx] = place[vy]

    return func.with_attr("global_symbol", f"{dtype}_{groups}_{threads}")


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_warps_exchange_values(dtype):
    sizes = SHUFFLED + TREES
    funcs = {f"{dtype}_{g}_{t}": device_rows(g, t, dtype) for g, t in sizes}
    ex = build(IRModule(funcs), Target("cuda", host="llvm"))
    kernels = {
        text.partition("_kernel(")[0].split()[-1]: text for text in ex.inspect_source("cuda").split('extern "C"')
    }
    for size in sizes:
        text = kernels[f"{dtype}_{size[0]}_{size[1]}"]
        assert ("oneir_shuffle_down(" in text) == (size in SHUFFLED)
        if size in SHUFFLED and size[1] <= 32:
            assert "__shared__" not in text and "__syncthreads" not in text
    for order in ORDERS:
        with cuda_on_host(order):
            for groups, threads in sizes:
                a = np.random.default_rng(0).permutation(groups * threads).reshape(groups, threads) % 127
                a = a.astype(dtype)
                b, places = nd.array(np.zeros_like(a), cuda()), nd.array(np.zeros(a.shape, "int32"), cuda())
                ex[f"{dtype}_{groups}_{threads}"](nd.array(a, cuda()), b, places)
                expected = np.repeat(a.sum(1, keepdims=True, dtype=dtype), threads, 1)
                np.testing.assert_array_equal(b.numpy(), expected)
                largest = np.take_along_axis(a, places.numpy().astype("int64"), 1)
                np.testing.assert_array_equal(largest, np.repeat(a.max(1, keepdims=True), threads, 1))


@needs_compiler
def test_a_warp_whose_threads_part_is_reported():
    text = build(device_rows(1, 32, "float32"), Target("cuda", host="llvm")).inspect_source("cuda")
    kernel = text.index('extern "C"')
    text = text[:kernel] + text[kernel:].replace(
        "const float w_16", "if (threadIdx_x == 3) return; const float w_16", 1
    )
    with pytest.raises(DeviceError, match="thread 3 has ended"):
        CudaOnHost(text).launch("float32_1_32_kernel", [1], [32], [np.zeros(32, "float32") for _ in range(3)])
