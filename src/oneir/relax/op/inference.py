"""What struct-info rules are written with: arguments as tensors, dtypes and shapes brought together, errors that name
the operator, the argument and what was found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...arith import Analyzer
from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr, as_int
from ...ir.global_info import VDevice
from ...runtime.error import InvalidValue, OneIRError, TypeMismatch
from ..analysis.struct_info import call_error
from ..expr import Call
from ..operator_facts import StructInfoRule
from ..struct_info import (
    VOID,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    same_extent,
)

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def fail(call: Call, message: str, kind: type[OneIRError] = InvalidValue) -> OneIRError:
    """An error about a call: names its operator and underlines its source, where that is known.

    Extents in the message are written as numbers.
    """
    message = re.sub(r"T\.int64\((-?\d+)\)", r"\1", message)
    return call_error(call, kind, f"{call.op.name}: {message}")


def tensor_argument(call: Call, index: int, name: str = "") -> TensorStructInfo:
    """Argument `index` as a tensor."""
    if index >= len(call.args):
        raise fail(call, f"argument {name or index} is missing; found {len(call.args)} arguments", TypeMismatch)
    info = call.args[index].struct_info
    if not isinstance(info, TensorStructInfo):
        what = f"argument {name or index}"
        raise fail(call, f"{what} must be a tensor, found `{call.args[index]}`: {info}", TypeMismatch)
    return info


def tensor_or_number(call: Call, index: int) -> TensorStructInfo:
    """Argument `index` as a tensor; a number is a tensor without dimensions."""
    info = call.args[index].struct_info
    if isinstance(info, PrimStructInfo):
        return TensorStructInfo((), info.dtype)
    return tensor_argument(call, index)


def tensors_of_tuple(call: Call, index: int = 0) -> list[TensorStructInfo]:
    """Argument `index` as a tuple of tensors."""
    info = call.args[index].struct_info
    if not isinstance(info, TupleStructInfo) or not all(isinstance(f, TensorStructInfo) for f in info.fields):
        raise fail(call, f"argument {index} must be a tuple of tensors, found {info}", TypeMismatch)
    return [f for f in info.fields if isinstance(f, TensorStructInfo)]


def only(kind: str) -> Callable[[Call], None]:
    """A check that the tensors and numbers of a call are "numbers", "floats", "integers", "bits" or "bools".

    Bits are integers and bools; numbers are all but bools.
    """
    text, belongs = _KINDS[kind]

    def check(call: Call) -> None:
        for i, arg in enumerate(call.args):
            info = arg.struct_info
            infos = info.fields if isinstance(info, TupleStructInfo) else [info]
            for field in infos:
                dtype = field.dtype if isinstance(field, (TensorStructInfo, PrimStructInfo)) else VOID
                if dtype != VOID and not belongs(dtype):
                    found = f"argument {i} of dtype {dtype}"
                    raise fail(call, f"expected {text}, found {found}; convert it with astype", TypeMismatch)

    return check


_KINDS: dict[str, tuple[str, Callable[[DataType], bool]]] = {
    "numbers": ("numbers", lambda dtype: not dtype.is_bool),
    "floats": ("floats", lambda dtype: dtype.is_float),
    "integers": ("integers", lambda dtype: dtype.is_int),
    "bits": ("integers or bools", lambda dtype: dtype.is_int or dtype.is_bool),
    "bools": ("bools", lambda dtype: dtype.is_bool),
}


def same_as_input(call: Call, builder: BlockBuilder) -> StructInfo:
    """The result looks like the first argument."""
    info = tensor_argument(call, 0)
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


def elementwise(dtype: str | None = None, *, floats_only: bool = False) -> StructInfoRule:
    """The rule of an elementwise operator: the shape of the first argument, and its dtype unless one is given."""

    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        info = tensor_argument(call, 0)
        if floats_only and info.dtype != VOID and not info.dtype.is_float:
            raise fail(call, f"expected a tensor of floats, found dtype {info.dtype}", TypeMismatch)
        return TensorStructInfo(info.shape, dtype or info.dtype, info.vdevice, info.ndim)

    return rule


def common_dtype(call: Call, infos: Sequence[TensorStructInfo]) -> DataType:
    """The one dtype of several tensors; "void" where one is not known."""
    known: DataType | None = None
    for info in infos:
        if info.dtype == VOID:
            continue
        if known is not None and known != info.dtype:
            found = " and ".join(str(i.dtype) for i in infos)
            raise fail(call, f"expected arguments of one dtype, found {found}; convert one with astype", TypeMismatch)
        known = info.dtype
    return known if known is not None and all(i.dtype != VOID for i in infos) else VOID


def common_vdevice(infos: Sequence[TensorStructInfo]) -> VDevice | None:
    """The device of the first tensor that has one."""
    return next((i.vdevice for i in infos if i.vdevice is not None), None)


def broadcast_extents(
    call: Call, a: Sequence[PrimExpr], b: Sequence[PrimExpr], analyzer: Analyzer
) -> list[PrimExpr] | None:
    """The shape of two shapes after NumPy's broadcasting; None where symbolic extents leave it open."""
    if len(a) < len(b):
        a, b = b, a
    result, offset = list(a[: len(a) - len(b)]), len(a) - len(b)
    for i, (x, y) in enumerate(zip(a[offset:], b, strict=True)):
        if _is_one(x):
            result.append(y)
        elif _is_one(y) or same_extent(x, y, analyzer):
            result.append(x)
        elif isinstance(x, IntImm) and isinstance(y, IntImm):
            shapes = f"({', '.join(map(str, a))}) and ({', '.join(map(str, b))})"
            raise fail(call, f"shapes {shapes} cannot be broadcast: extents {x} and {y} at dimension {i - len(b)}")
        else:
            return None
    return result


def _is_one(extent: PrimExpr) -> bool:
    return as_int(extent) == 1


def broadcast(dtype: str | None = None) -> StructInfoRule:
    """The rule of a binary operator: shapes are broadcast, dtypes must agree; the result has theirs, or `dtype`."""

    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        infos = [tensor_or_number(call, 0), tensor_or_number(call, 1)]
        if all(isinstance(a.struct_info, PrimStructInfo) for a in call.args):
            raise fail(call, "expected at least one tensor, found two numbers", TypeMismatch)
        result_dtype = common_dtype(call, infos)
        result_dtype = DataType(dtype) if dtype is not None else result_dtype
        return broadcast_tensor(call, infos, result_dtype, builder.analyzer)

    return rule


def broadcast_tensor(
    call: Call, infos: Sequence[TensorStructInfo], dtype: DataType, analyzer: Analyzer
) -> TensorStructInfo:
    """The tensor that several broadcast tensors give together."""
    vdevice = common_vdevice(infos)
    ndim = -1 if any(i.ndim == -1 for i in infos) else max(i.ndim for i in infos)
    shape: Sequence[PrimExpr] | None = infos[0].extents
    for info in infos[1:]:
        if shape is None or info.extents is None:
            shape = None
            break
        shape = broadcast_extents(call, shape, info.extents, analyzer)
    if shape is None:
        first = infos[0]
        if all(i.shape is not None and i.shape is first.shape for i in infos):
            return TensorStructInfo(first.shape, dtype, vdevice)
        return TensorStructInfo(None, dtype, vdevice, ndim)
    return TensorStructInfo(shape, dtype, vdevice)


def normalize_axis(call: Call, axis: int, ndim: int, what: str = "axis") -> int:
    """An axis counted from the front; one outside of the dimensions is an error."""
    if not -ndim <= axis < ndim:
        allowed = f" (allowed: {-ndim} to {ndim - 1})" if ndim else ", which has no axes"
        raise fail(call, f"{what} {axis} is outside of a tensor of {ndim} dimensions{allowed}")
    return axis % ndim


def normalize_axes(call: Call, axes: Sequence[int], ndim: int) -> list[int]:
    """Several different axes, each counted from the front."""
    normal = [normalize_axis(call, a, ndim) for a in axes]
    if len(set(normal)) != len(normal):
        raise fail(call, f"axes {list(axes)} name a dimension of the {ndim} twice")
    return normal


def shape_argument(call: Call, index: int) -> ShapeStructInfo:
    """Argument `index` as a shape."""
    info = call.args[index].struct_info
    if not isinstance(info, ShapeStructInfo):
        raise fail(call, f"argument {index} must be a shape, such as R.shape([2, 3]), found {info}", TypeMismatch)
    return info


def returns_object(call: Call, builder: BlockBuilder) -> StructInfo:
    """Nothing is known of the result."""
    return ObjectStructInfo()


def returns_nothing(call: Call, builder: BlockBuilder) -> StructInfo:
    """The result is the empty tuple."""
    return TupleStructInfo([])
