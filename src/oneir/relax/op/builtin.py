"""Operators that passes put between the operators of a user's program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.error import TypeMismatch
from ..expr import Call, DataTypeImm, Expr, ShapeExpr, StringImm
from ..operator_facts import TAllocator
from ..struct_info import StructInfo, TensorStructInfo
from .arguments import dtype_value, number_value, shape_value, text_value
from .inference import fail, same_as_input
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.builtin.alloc_tensor")
def alloc_tensor(shape: Any, dtype: Any, runtime_device_index: Any, storage_scope: Any = "global") -> Call:
    """A new tensor with arbitrary contents, on the device of that index (-1 is the host)."""
    scope = text_value(storage_scope)
    if not isinstance(scope, StringImm):
        raise TypeMismatch(f"relax.builtin.alloc_tensor expects a text as the storage scope, found `{scope}`")
    return alloc_tensor.call(shape_value(shape), dtype_value(dtype), number_value(runtime_device_index), scope)


@alloc_tensor.struct_info
def _alloc_tensor_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    shape, dtype = call.args[0], call.args[1]
    if not isinstance(shape, ShapeExpr):
        raise fail(call, f"the shape must be written out, as R.shape([2, 3]), found `{shape}`", TypeMismatch)
    if not isinstance(dtype, DataTypeImm):
        raise fail(call, f'the dtype must be written out, as R.dtype("float32"), found `{dtype}`', TypeMismatch)
    return TensorStructInfo(shape, dtype.value)


TAllocator.set(alloc_tensor.op, True)


@operator("relax.builtin.stop_lift_params")
def stop_lift_params(x: Expr) -> Expr:
    """The tensor itself. What uses it is not computed ahead, when transformations of parameters are lifted."""
    return stop_lift_params.call(x)


stop_lift_params.struct_info(same_as_input)
stop_lift_params.reference(lambda x: x)
