"""LowerDeviceKernelLaunch: calls of kernels as launches."""

from __future__ import annotations

import pytest

from oneir.ir import IRModule
from oneir.ir.expr import Call
from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.transform import AnnotateDeviceRegions, LowerDeviceKernelLaunch, SplitHostDevice


def lowered(func):
    mod = IRModule({"main": func.with_attr("target", Target("opencl", host="llvm"))})
    return LowerDeviceKernelLaunch()(SplitHostDevice()(AnnotateDeviceRegions()(mod)))


@T.prim_func
def fill(a: T.handle, n: T.int32):
    A = T.match_buffer(a, (n,))
    bx = T.launch_thread("blockIdx.x", n // 64)
    tx = T.launch_thread("threadIdx.x", 64)
    A[bx * 64 + tx] = T.float32(0)


def test_a_launch_passes_the_arguments_and_then_the_extents():
    mod = lowered(fill)
    call = mod["main"].body.value
    assert isinstance(call, Call) and call.op.name == "tir.tvm_call_packed"
    name, data, n, blocks, threads = call.args
    assert name.value == "fill_kernel" and data.name == "A" and n.name == "n"
    assert str(blocks) == "n // 64" and threads.value == 64
    kernel = mod["fill_kernel"]
    assert kernel.attrs["calling_conv"] == 2 and kernel.attrs["global_symbol"] == "fill_kernel"
    assert list(kernel.attrs["tir.kernel_launch_params"]) == ["blockIdx.x", "threadIdx.x"]


def test_dynamic_shared_memory_is_passed_last_in_bytes():
    @T.prim_func
    def dynamic(A: T.Buffer((64,), "float32")):
        bx = T.launch_thread("blockIdx.x", 1)
        tx = T.launch_thread("threadIdx.x", 64)
        S = T.allocate([64], "float32", "shared.dyn")
        T.evaluate(S)
        A[bx + tx] = T.float32(0)

    mod = lowered(dynamic)
    assert list(mod["dynamic_kernel"].attrs["tir.kernel_launch_params"])[-1] == "tir.use_dyn_shared_memory"
    assert mod["main"].body.value.args[-1].value == 256


def test_an_extent_that_only_the_kernel_knows_is_an_error():
    @T.prim_func
    def inner(A: T.Buffer((64,), "int32")):
        bx = T.launch_thread("blockIdx.x", 4)
        n = A[bx]
        tx = T.launch_thread("threadIdx.x", n)
        A[tx] = 0

    with pytest.raises(WellFormedError, match=r"the launch of `inner_kernel` needs `.*`, which only the kernel knows"):
        lowered(inner)
