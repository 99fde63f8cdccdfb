"""Operators of lowered programs: storages, tensors in them, views, and what the virtual machine is told."""

from __future__ import annotations

import re
from typing import Any

import pytest
from op_testing import infer, tensor, var

from oneir import relax, tir
from oneir.ir.op import Op
from oneir.relax import op
from oneir.relax.struct_info import ObjectStructInfo, PrimStructInfo, ShapeStructInfo, TupleStructInfo
from oneir.runtime.error import OneIRError

N = tir.Var("n", "int64")
SHAPE = relax.Var("s", ShapeStructInfo(ndim=2))
STORAGE = relax.Var("storage", ObjectStructInfo())
NOTHING = TupleStructInfo([])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: op.builtin.alloc_tensor((2, N), "int8", 0), tensor((2, N), "int8")),
        (lambda: op.builtin.stop_lift_params(var((2, N))), tensor((2, N))),
        (lambda: op.memory.alloc_storage((24,), 0, "global", "uint8"), ObjectStructInfo()),
        (lambda: op.memory.alloc_tensor(STORAGE, 0, (2, 3), "float16"), tensor((2, 3), "float16")),
        (lambda: op.memory.alloc_tensor(STORAGE, 8, SHAPE, "float16"), tensor(SHAPE, "float16")),
        (lambda: op.memory.kill_storage(STORAGE), NOTHING),
        (lambda: op.memory.kill_tensor(var((2,))), NOTHING),
        (lambda: op.memory.ensure_zero_offset(var(ndim=2)), tensor(ndim=2)),
        (lambda: op.memory.view(var((4, 8)), (8, 4)), tensor((8, 4))),
        (lambda: op.memory.view(var((4, 8)), (128,), "int8"), tensor((128,), "int8")),
        (lambda: op.memory.view(var((4, N)), (4, N), "int32"), tensor((4, N), "int32")),
        (lambda: op.memory.view(var((4, 8)), (8,), relative_byte_offset=96), tensor((8,))),
        (lambda: op.memory.view(var(), SHAPE), tensor(None, ndim=2)),
        (lambda: op.memory.view(var(ndim=2), dtype="int32"), tensor(None, "int32", 2)),
        (
            lambda: op.memory.view(var((8,)), (4,), relax.Var("d", ObjectStructInfo())),
            tensor((4,), None),
        ),
        (
            lambda: op.memory.view(var((8,)), (4,), relative_byte_offset=relax.Var("o", PrimStructInfo("int64"))),
            tensor((4,)),
        ),
        (lambda: op.vm.alloc_storage((24,), 0, "uint8"), ObjectStructInfo()),
        (lambda: op.vm.alloc_tensor(STORAGE, 0, (2, N), "int8"), tensor((2, N), "int8")),
        (lambda: op.vm.alloc_tensor(STORAGE, 0, SHAPE, "int8"), tensor(None, "int8", 2)),
        (lambda: op.vm.kill_object(STORAGE), NOTHING),
        (lambda: op.vm.call_tir_dyn(relax.extern("f"), (var((N,)), relax.ShapeExpr([N]))), NOTHING),
    ],
)
def test_struct_info(call: Any, expected: Any) -> None:
    assert infer(call()) == expected


def test_arguments_are_values() -> None:
    call: Any = op.memory.alloc_tensor(STORAGE, 8, (2, 3), "float16")
    kinds = [type(a) for a in call.args]
    assert kinds == [relax.Var, relax.PrimValue, relax.ShapeExpr, relax.DataTypeImm, relax.PrimValue]
    call = op.builtin.alloc_tensor((2, 3), "float16", 1, "local")
    kinds = [type(a) for a in call.args]
    assert kinds == [relax.ShapeExpr, relax.DataTypeImm, relax.PrimValue, relax.StringImm]


def test_what_frees_memory_has_an_effect_and_what_takes_it_has_none() -> None:
    for name in ("memory.kill_storage", "memory.kill_tensor", "vm.kill_object", "vm.call_tir_dyn"):
        assert not Op.get(f"relax.{name}").get_attr("FPurity")
    for name in ("builtin.alloc_tensor", "memory.alloc_storage", "memory.alloc_tensor", "vm.alloc_storage"):
        assert Op.get(f"relax.{name}").get_attr("FPurity") and Op.get(f"relax.{name}").get_attr("TAllocator")


def test_a_view_becomes_a_call_of_the_runtime() -> None:
    builder = relax.BlockBuilder()
    lower = Op.get("relax.memory.view").get_attr("FLowerBuiltin")
    x = var((4, 8))
    call: Any = builder.normalize(op.memory.view(x, (128,), "int8"))
    lowered: Any = builder.normalize(lower(builder, call))
    assert lowered.op.global_symbol == "runtime.TVMTensorCreateView"
    assert lowered.struct_info == tensor((128,), "int8") and len(lowered.args) == 4
    same: Any = builder.normalize(op.memory.view(x))
    assert lower(builder, same) is x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: op.builtin.alloc_tensor(SHAPE, "int8", 0),
            "relax.builtin.alloc_tensor: the shape must be written out",
        ),
        (lambda: op.builtin.alloc_tensor((2,), "int8", 0, 3), "expected a text, found 3"),
        (lambda: op.memory.alloc_tensor(STORAGE, 0, STORAGE, "int8"), "argument shape must be a shape"),
        (lambda: op.memory.view(var((4, 8)), (4, 9)), "must not end behind the tensor"),
        (lambda: op.memory.view(var((4, 8)), dtype="float64"), "must not end behind the tensor"),
        (lambda: op.memory.view(var(), dtype="float64"), "must not end behind the tensor"),
        (lambda: op.memory.view(var(), relative_byte_offset=4), "must not end behind the tensor"),
        (lambda: op.memory.view(var((8,), None), (9,)), "must not end behind the tensor"),
        (lambda: op.memory.view(var((8,)), STORAGE), "argument shape must be a shape"),
        (lambda: op.memory.view(var((8,)), relative_byte_offset=var(())), "relative_byte_offset must be one int64"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())
