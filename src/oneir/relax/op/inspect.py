"""What a tensor is when the program runs: its dtype, shape and place in memory, as numbers.

Python's attributes make these calls: `x.dtype.bits`, `x.ndim`, `x.shape[i]`, `x.strides[i]`, `x.byte_offset`. What is
known while compiling is the number in the struct info, and costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.expr import IntImm, PrimExpr
from ...runtime.dtype import dlpack_dtype
from ...runtime.error import TypeMismatch
from ..expr import Call, Expr, PrimValue
from ..struct_info import VOID, PrimStructInfo, StructInfo, TensorStructInfo
from .arguments import number_value
from .inference import fail, tensor_argument
from .registry import Operator, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder

NAMES = ("dtype_code", "dtype_bits", "dtype_lanes", "ndim", "shape_i", "stride_i", "byte_offset", "elem_offset")
"""What the names of the operators end in, after "relax.inspect.tensor_", and those of the runtime's functions."""

Known = Callable[[TensorStructInfo], int | None]
"""The number, where what is known of the tensor says it."""


def _of_dtype(index: int) -> Known:
    """The type code, the bits or the lanes, as DLPack has them."""
    return lambda info: None if info.dtype == VOID else dlpack_dtype(str(info.dtype))[index]


def _number(name: str, doc: str, dtype: str, known: Known) -> Operator[[Expr], Call]:
    """An operator of one tensor."""

    def function(tensor: Expr) -> Call:
        return made.call(tensor)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.inspect.{name}")(function)

    @made.struct_info
    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        value = known(tensor_argument(call, 0))
        return PrimStructInfo(dtype) if value is None else PrimStructInfo(value=IntImm(dtype, value))

    return made


def _along_axis(name: str, doc: str, known: Callable[[TensorStructInfo, int], PrimExpr | None]) -> Any:
    """An operator of a tensor and an axis; int64."""

    def function(tensor: Expr, axis: Any) -> Call:
        return made.call(tensor, number_value(axis))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.inspect.{name}")(function)

    @made.struct_info
    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        info, axis = tensor_argument(call, 0), call.args[1].struct_info
        if not isinstance(axis, PrimStructInfo) or not axis.dtype.is_int:
            raise fail(call, f"the axis must be an integer, found `{call.args[1]}`: {axis}", TypeMismatch)
        value = axis.value.value if isinstance(axis.value, IntImm) else None
        if value is None:
            return PrimStructInfo("int64")
        if value < 0 or 0 <= info.ndim <= value:
            raise fail(call, f"the axis must be at least 0 and below the number of dimensions, found {value}: {info}")
        found = known(info, value)
        return PrimStructInfo("int64") if found is None else PrimStructInfo(value=found)

    return made


tensor_dtype_code = _number("tensor_dtype_code", "DLPack's type code of the dtype.", "uint8", _of_dtype(0))
tensor_dtype_bits = _number("tensor_dtype_bits", "The bits of one lane of the dtype.", "uint8", _of_dtype(1))
tensor_dtype_lanes = _number("tensor_dtype_lanes", "The lanes of the dtype.", "uint16", _of_dtype(2))
tensor_ndim = _number(
    "tensor_ndim", "The number of dimensions.", "int32", lambda info: None if info.ndim < 0 else info.ndim
)
tensor_shape_i = _along_axis(
    "tensor_shape_i",
    "The extent along an axis.",
    lambda info, axis: None if info.extents is None else info.extents[axis],
)
tensor_stride_i = _along_axis(
    "tensor_stride_i", "How many elements lie from one index along an axis to the next.", lambda info, axis: None
)
tensor_byte_offset = _number(
    "tensor_byte_offset",
    "The bytes before the first element in its memory.",
    "uint64",
    lambda info: None,
)
tensor_elem_offset = _number("tensor_elem_offset", "The same in elements.", "uint64", lambda info: None)


def known_number(call: Call) -> PrimValue | None:
    """The number that a call of these gives, where it is known."""
    info = call.struct_info
    return PrimValue(info.value) if isinstance(info, PrimStructInfo) and info.value is not None else None


# -- Python's attributes --


class TensorDType:
    """The dtype of a tensor of a graph, part by part."""

    def __init__(self, tensor: Expr):
        self._tensor = tensor

    @property
    def type_code(self) -> Expr:
        """DLPack's type code."""
        return tensor_dtype_code(self._tensor)

    @property
    def bits(self) -> Expr:
        """The bits of one lane."""
        return tensor_dtype_bits(self._tensor)

    @property
    def lanes(self) -> Expr:
        """The number of lanes."""
        return tensor_dtype_lanes(self._tensor)


class TensorExtents:
    """The shape or the strides of a tensor of a graph, by axis."""

    def __init__(self, tensor: Expr, at: Operator[..., Call]):
        self._tensor, self._at = tensor, at

    def __getitem__(self, axis: Any) -> Expr:
        return self._at(self._tensor, axis)

    def __iter__(self) -> Any:
        raise TypeMismatch(
            "the extents of a tensor of a graph are known when the program runs: index them by an axis; "
            "relax.op.shape_of gives the whole shape"
        )


def attribute(tensor: Expr, name: str) -> Any:
    """What `tensor.name` is, for the attributes that tensors have when the program runs."""
    if name == "dtype":
        return TensorDType(tensor)
    if name == "shape":
        return TensorExtents(tensor, tensor_shape_i)
    if name == "strides":
        return TensorExtents(tensor, tensor_stride_i)
    return {"ndim": tensor_ndim, "byte_offset": tensor_byte_offset, "elem_offset": tensor_elem_offset}[name](tensor)
