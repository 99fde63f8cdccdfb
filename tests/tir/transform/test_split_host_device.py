"""SplitHostDevice: kernels out of functions."""

from __future__ import annotations

from oneir.ir import GlobalVar, IRModule, structural_equal
from oneir.ir.expr import Call
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.stmt import Evaluate
from oneir.tir.transform import AnnotateDeviceRegions, SplitHostDevice


def split(func, host="llvm"):
    mod = IRModule({"main": func.with_attr("target", Target("opencl", host=host))})
    return SplitHostDevice()(AnnotateDeviceRegions()(mod))


@T.prim_func
def scale(A: T.Buffer((64,), "float32"), n: T.int32):
    T.func_attr({"global_symbol": "scale"})
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.launch_thread("threadIdx.x", 16)
    if bx * 16 + tx < n:
        A[bx * 16 + tx] = A[bx * 16 + tx] * T.float32(2)


def test_a_region_becomes_a_kernel_of_the_variables_that_it_uses():
    mod = split(scale)
    assert {var.name_hint for var in mod.functions} == {"main", "scale_kernel"}
    host, kernel = mod["main"], mod["scale_kernel"]
    assert isinstance(host.body, Evaluate)
    call = host.body.value
    assert isinstance(call, Call) and isinstance(call.op, GlobalVar) and call.op.name_hint == "scale_kernel"
    # Pointers come first, then numbers.
    (buffer,) = host.buffer_map.values()
    assert list(call.args) == [buffer.data, host.params[1]]
    assert [param.name for param in kernel.params] == ["A", "n"]
    assert kernel.attrs["target"] == Target("opencl") and kernel.attrs["tir.is_global_func"]
    assert not set(kernel.params) & set(call.args)  # each function has variables of its own


def test_several_regions_are_numbered():
    @T.prim_func
    def two(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        with T.launch_thread("threadIdx.x", 16) as tx:
            A[tx] = T.float32(1)
        with T.launch_thread("threadIdx.x", 16) as ty:
            B[ty] = A[ty]

    assert {var.name_hint for var in split(two).functions} == {"main", "two_kernel", "two_kernel_1"}


def test_a_module_without_regions_is_left_as_it_is():
    @T.prim_func
    def plain(A: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.float32(1)

    mod = IRModule({"main": plain})
    assert SplitHostDevice()(mod) is mod


def test_a_region_for_a_processor_reports_errors():
    region = split(scale)["scale_kernel"]
    assert not region.ret_type.fields  # kernels of devices return nothing
    mod = IRModule({"main": scale.with_attr("target", Target({"kind": "c", "host": "llvm"}))})
    mod = SplitHostDevice()(AnnotateDeviceRegions()(mod))
    assert str(mod["scale_kernel"].ret_type.dtype) == "int32"
    assert "Error executing compute kernel" in mod["main"].script()


def test_kernels_of_equal_functions_are_equal():
    assert structural_equal(split(scale)["scale_kernel"], split(scale)["scale_kernel"], map_free_vars=True)
