"""AnnotateDeviceRegions: where a device takes over."""

from __future__ import annotations

from oneir.ir import IRModule
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.stmt import AttrStmt
from oneir.tir.transform import AnnotateDeviceRegions


@T.prim_func
def threads(A: T.Buffer((64,), "float32")):
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.launch_thread("threadIdx.x", 16)
    A[bx * 16 + tx] = T.float32(0)


def test_the_outermost_thread_axis_is_wrapped_in_the_target_without_its_host():
    target = Target("opencl", host="llvm")
    (func,) = AnnotateDeviceRegions()(IRModule({"main": threads.with_attr("target", target)})).functions.values()
    assert isinstance(func.body, AttrStmt) and func.body.attr_key == "target"
    assert func.body.node == Target("opencl") and func.body.node.host is None
    assert func.body.body is threads.body  # and nothing inside of it


def test_functions_without_a_host_run_in_one_place():
    for target in (Target("llvm"), Target("opencl")):
        mod = IRModule({"main": threads.with_attr("target", target)})
        assert AnnotateDeviceRegions()(mod) is mod
    mod = IRModule({"main": threads})
    assert AnnotateDeviceRegions()(mod) is mod
