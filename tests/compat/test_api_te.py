"""What programs written for TVM say to `te`, `target` and `arith`."""

from __future__ import annotations

import pytest

import oneir as tvm
from oneir import te


def test_arithmetic_of_tensor_expressions():
    x, y = te.var("x"), te.var("y", dtype="int32")
    tvm.ir.assert_structural_equal(te.add(x, y), x + y)
    tvm.ir.assert_structural_equal(te.subtract(x, y), x - y)
    tvm.ir.assert_structural_equal(te.multiply(x, y), x * y)
    assert te.trace([x, y]).op.name == "tir.tvm_call_trace_packed"


def test_options_of_a_kind_of_target():
    assert tvm.target.TargetKind.options_from_name("llvm") == tvm.target.Target("llvm").kind.options
    with pytest.raises(tvm.TVMError, match=r'There is no target kind "lvm".* Did you mean "llvm"'):
        tvm.target.TargetKind.options_from_name("lvm")


def test_names_from_below():
    assert te.AXIS_SEPARATOR is tvm.tir.IndexMap.AXIS_SEPARATOR
    assert tvm.Object is tvm.runtime.Object and tvm.DataTypeCode is tvm.runtime.DataTypeCode
