"""verify_gpu_code: each limit holds at its value and is broken one below it."""

from __future__ import annotations

import pytest

from oneir.ir import IRModule
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.analysis import verify_gpu_code
from oneir.tir.transform import LowerOpaqueBlock


@T.prim_func
def kernel(A: T.Buffer((128, 4), "float32"), B: T.Buffer((128, 4), "float32")):
    bx = T.launch_thread("blockIdx.x", 2)
    ty = T.launch_thread("threadIdx.y", 4)
    tx = T.launch_thread("threadIdx.x", 16)
    s = T.allocate([64, 4], "float32", "shared")
    r = T.allocate([3], "float64", "local")
    S = T.decl_buffer((64, 4), data=s, scope="shared")
    R = T.decl_buffer((3,), "float64", data=r, scope="local")
    R[0] = T.float64(0)
    S[ty * 16 + tx, 0:4] = A[bx * 64 + ty * 16 + tx, 0:4]
    B[bx * 64 + ty * 16 + tx, 0:4] = S[ty * 16 + tx, 0:4]


LIMITS = {
    "max_threads_per_block": 64,
    "max_thread_x": 16,
    "max_thread_y": 4,
    "max_shared_memory_per_block": 1024,
    "max_local_memory_per_block": 24,
    "max_vector_bytes": 16,
    "max_kernels": 1,
}


def test_all_limits_hold():
    assert verify_gpu_code(kernel, LIMITS)
    assert verify_gpu_code(kernel, {})


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_one_below_does_not(name):
    assert not verify_gpu_code(kernel, {**LIMITS, name: LIMITS[name] - 1})


def test_a_thread_has_one_extent_in_a_kernel():
    @T.prim_func
    def two(A: T.Buffer((16,), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        with T.launch_thread("threadIdx.x", 8) as tx:
            A[bx * 8 + tx] = T.float32(0)
        with T.launch_thread("threadIdx.x", 4) as tx:
            A[bx * 8 + tx] = T.float32(1)

    assert not verify_gpu_code(two, {})


def test_virtual_threads():
    @T.prim_func
    def loops(A: T.Buffer((16,), "float32")):
        for vx in T.thread_binding(2, "vthread.x"):
            for tx in T.thread_binding(8, "threadIdx.x"):
                A[vx * 8 + tx] = T.float32(0)

    virtual = LowerOpaqueBlock()(IRModule({"main": loops}))["main"]
    assert verify_gpu_code(virtual, {"max_vthread": 2})
    assert not verify_gpu_code(virtual, {"max_vthread": 1})


def test_an_unknown_limit_is_refused():
    with pytest.raises(InvalidValue, match="no limit of kernels is called 'max_threads'; there are max_local_memory"):
        verify_gpu_code(kernel, {"max_threads": 1})
