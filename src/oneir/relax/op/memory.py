"""Storages and tensors in them, as memory planning writes them; tensors that look into other tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import TypeMismatch
from ...runtime.registry import register_func
from ..expr import Call, DataTypeImm, Expr, ExternFunc, PrimValue, ShapeExpr, Tuple, Var
from ..operator_facts import FLowerBuiltin, RequiresArgumentShapes, TAllocator, ViewsArgument
from ..struct_info import (
    VOID,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .arguments import dtype_value, number_value, shape_value, text_value
from .inference import fail, returns_nothing, returns_object, same_as_input, tensor_argument
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.memory.alloc_storage")
def alloc_storage(size: Any, virtual_device_index: Any, storage_scope: Any, dtype: Any) -> Call:
    """Memory for elements of a dtype, as many as the shape `size` has; -1 is the device index of the host."""
    return alloc_storage.call(
        shape_value(size), number_value(virtual_device_index), text_value(storage_scope), dtype_value(dtype)
    )


alloc_storage.struct_info(returns_object)
TAllocator.set(alloc_storage.op, True)


@operator("relax.memory.alloc_tensor")
def alloc_tensor(storage: Expr, offset: Any, shape: Any, dtype: Any, runtime_device_ind: Any = 0) -> Call:
    """A tensor that lies in a storage, from the byte `offset` on."""
    return alloc_tensor.call(
        storage, number_value(offset), shape_value(shape), dtype_value(dtype), number_value(runtime_device_ind)
    )


@alloc_tensor.struct_info
def _alloc_tensor_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    shape, dtype = call.args[2], call.args[3]
    info = shape.struct_info
    if not isinstance(info, ShapeStructInfo):
        raise fail(
            call, f"argument shape must be a shape, such as R.shape([2, 3]), found `{shape}`: {info}", TypeMismatch
        )
    return TensorStructInfo(shape, dtype.value if isinstance(dtype, DataTypeImm) else VOID)


TAllocator.set(alloc_tensor.op, True)


@operator("relax.memory.kill_storage", pure=False)
def kill_storage(storage: Expr) -> Call:
    """Ends the life of a storage: its memory may be used again."""
    return kill_storage.call(storage)


kill_storage.struct_info(returns_nothing)


@operator("relax.memory.kill_tensor", pure=False)
def kill_tensor(tensor: Expr) -> Call:
    """Ends the life of a tensor."""
    return kill_tensor.call(tensor)


kill_tensor.struct_info(returns_nothing)


# -- views --


@operator("relax.memory.view")
def view(data: Expr, shape: Any = None, dtype: Any = None, relative_byte_offset: Any = None) -> Expr:
    """The bytes of a tensor from an offset on, as a tensor of another shape or dtype. What is not given stays."""
    nothing = Tuple(())
    return view.call(
        data,
        nothing if shape is None else shape_value(shape),
        nothing if dtype is None else dtype_value(dtype),
        nothing if relative_byte_offset is None else number_value(relative_byte_offset),
    )


def _is_left_out(expr: Expr) -> bool:
    info = expr.struct_info
    return isinstance(info, TupleStructInfo) and not info.fields


ViewsArgument.set(view.op, True)


@view.struct_info
def _view_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.args) != 4:
        raise fail(call, f"expected 4 arguments, found {len(call.args)}", TypeMismatch)
    data = tensor_argument(call, 0, "data")
    shape = _viewed_shape(call, data)
    dtype = _viewed_dtype(call, data, builder)
    result = TensorStructInfo(shape.values, dtype, data.vdevice, shape.ndim)
    _check_bounds(call, data, result, _byte_offset(call), builder.analyzer)
    return result


def _viewed_shape(call: Call, data: TensorStructInfo) -> ShapeStructInfo:
    if _is_left_out(call.args[1]):
        return ShapeStructInfo(data.extents, -1 if data.extents is not None else data.ndim)
    info = call.args[1].struct_info
    if not isinstance(info, ShapeStructInfo):
        raise fail(call, f"argument shape must be a shape, found `{call.args[1]}`: {info}", TypeMismatch)
    if any((as_int(extent) or 0) < 0 for extent in info.values or ()):
        raise fail(call, f"the extents of the view must not be below 0, found {list(info.values or ())}")
    return info


def _viewed_dtype(call: Call, data: TensorStructInfo, builder: BlockBuilder) -> DataType:
    given = call.args[2]
    if _is_left_out(given):
        return data.dtype
    while isinstance(given, Var):
        bound = builder.lookup_binding(given)
        if bound is None:
            break
        given = bound
    if isinstance(given, DataTypeImm):
        return given.value
    if isinstance(given.struct_info, ObjectStructInfo):
        return VOID
    raise fail(call, f'argument dtype must be a dtype, as R.dtype("int8"), found `{given}`', TypeMismatch)


def _byte_offset(call: Call) -> PrimExpr | None:
    """The offset; None if it is not known."""
    given = call.args[3]
    if _is_left_out(given):
        return const(0, "int64")
    info = given.struct_info
    if not isinstance(info, PrimStructInfo) or info.dtype != "int64":
        raise fail(call, f"argument relative_byte_offset must be one int64, found `{given}`: {info}", TypeMismatch)
    if (as_int(info.value) or 0) < 0:
        raise fail(call, f"argument relative_byte_offset must not be below 0, found {info.value}")
    return info.value


def _check_bounds(
    call: Call, data: TensorStructInfo, result: TensorStructInfo, offset: Any, analyzer: Analyzer
) -> None:
    """An error if the view is known to end after the end of the tensor."""
    has, needs = _elements(data, analyzer), _elements(result, analyzer)
    same_dtype, same_shape = _is_left_out(call.args[2]), _is_left_out(call.args[1])
    if VOID in (data.dtype, result.dtype):
        if not same_dtype:
            return
        size = needed_size = 1
        offset = const(0, "int64") if offset is None or not same_shape else offset
    else:
        size, needed_size = _bytes(data.dtype), _bytes(result.dtype)
    if same_shape and (has is None or needs is None):
        has = needs = const(1, "int64")
        offset = offset if same_dtype else None
    if has is None or needs is None:
        return
    start = const(0, "int64") if offset is None else offset
    available, end = has * size, needs * needed_size + start
    if analyzer.can_prove(end > available):
        raise fail(
            call,
            f"the view {result} must not end behind the tensor {data}: "
            f"it ends at byte {analyzer.simplify(end)} of {analyzer.simplify(available)}",
        )


def _elements(info: TensorStructInfo, analyzer: Analyzer) -> PrimExpr | None:
    if info.extents is None:
        return None
    count: PrimExpr = const(1, "int64")
    for extent in info.extents:
        count = count * extent
    return analyzer.simplify(count)


def _bytes(dtype: DataType) -> int:
    return (dtype.bits * dtype.lanes + 7) // 8


# By name, so that a lowered program can be saved.
_VIEW, _SAME = "tvm.relax.struct_info.infer_view_sinfo", "tvm.relax.struct_info.infer_ensure_zero_offset_sinfo"
register_func(_VIEW, _view_struct_info)
register_func(_SAME, same_as_input)


def _lower_view(builder: BlockBuilder, call: Call) -> Expr:
    data, shape, dtype, offset = call.args
    if _is_left_out(shape) and _is_left_out(dtype) and _is_left_out(offset):
        return data
    info = tensor_argument(call, 0, "data")
    if _is_left_out(shape):
        if info.extents is None:
            raise fail(call, f"the shape of the view is not known: pass shape=, or cast `{data}`: {info}")
        shape = ShapeExpr(info.extents)
    if _is_left_out(dtype):
        if info.dtype == VOID:
            raise fail(call, f"the dtype of the view is not known: pass dtype=, or cast `{data}`: {info}")
        dtype = DataTypeImm(info.dtype)
    if _is_left_out(offset):
        offset = PrimValue(0)
    signature = FuncStructInfo.opaque_func(derive_func=_VIEW, purity=True)
    return Call(ExternFunc("runtime.TVMTensorCreateView", signature), [data, shape, dtype, offset])


FLowerBuiltin.set(view.op, _lower_view)
RequiresArgumentShapes.set(view.op, False)


@operator("relax.memory.ensure_zero_offset")
def ensure_zero_offset(data: Expr) -> Expr:
    """The tensor, copied to memory of its own if it starts inside of another's."""
    return ensure_zero_offset.call(data)


ViewsArgument.set(ensure_zero_offset.op, True)
ensure_zero_offset.struct_info(same_as_input)
ensure_zero_offset.reference(lambda data: data)


def _lower_ensure_zero_offset(builder: BlockBuilder, call: Call) -> Expr:
    signature = FuncStructInfo.opaque_func(derive_func=_SAME, purity=True)
    return Call(ExternFunc("vm.builtin.ensure_zero_offset", signature), call.args)


FLowerBuiltin.set(ensure_zero_offset.op, _lower_ensure_zero_offset)
RequiresArgumentShapes.set(ensure_zero_offset.op, False)
