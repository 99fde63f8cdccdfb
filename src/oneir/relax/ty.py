"""The types that earlier releases gave graph values; struct info says more and is what the compiler uses."""

from __future__ import annotations

from ..ir.dtype import DataType
from ..ir.node import attr, meta
from ..ir.span import Span
from ..ir.type import Type
from .struct_info import as_dtype


class ShapeType(Type):
    """A shape; `ndim` is -1 when the number of dimensions is not known."""

    ndim: int = attr(default=-1)
    span: Span | None = meta(default=None)


class ObjectType(Type):
    """Any value."""

    span: Span | None = meta(default=None)


class TensorType(Type):
    """A tensor; `ndim` is -1, and `dtype` "void", when they are not known."""

    ndim: int = attr(default=-1)
    dtype: DataType = attr(default="float32", converter=as_dtype)
    span: Span | None = meta(default=None)


DynTensorType = TensorType
"""The name of `TensorType` in earlier releases."""


class PackedFuncType(Type):
    """A function of the runtime."""

    span: Span | None = meta(default=None)
