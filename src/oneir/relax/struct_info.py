"""Struct info: what is known about a graph value while compiling.

TensorStructInfo((n, 4), "float32")  # a matrix of n rows, n a symbolic variable
TensorStructInfo(dtype="float32", ndim=2)  # a matrix of unknown extents
TupleStructInfo([a, b])

Less may be known than is true: `ObjectStructInfo` is any value at all. What can be asked of struct info (is one a
special case of another, what do two have in common) stands in `analysis/struct_info.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.container import Array
from ..ir.dtype import DataType
from ..ir.expr import PrimExpr, Var, as_expr, const
from ..ir.global_info import VDevice
from ..ir.node import Node, as_array, attr, binder, child, meta
from ..ir.span import Span
from ..ir.structural import structural_equal, structural_hash
from ..runtime.error import InvalidValue, TypeMismatch

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor
    from .expr import Expr

VOID = DataType("void")


def as_dtype(dtype: Any) -> DataType:
    """A dtype; none at all is "void", a dtype that is not known."""
    return VOID if dtype is None or dtype == "" else DataType(dtype)


class StructInfo(Node):
    """Base of all struct info. Compares by structure."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, StructInfo) and structural_equal(self, other))

    def __hash__(self) -> int:
        return structural_hash(self, map_free_vars=True)

    def same_as(self, other: object) -> bool:
        """Whether two are equal in structure."""
        return self == other

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether every value that `derived` describes is described by this as well."""
        from .analysis.struct_info import is_base_of

        return is_base_of(self, derived)


class ObjectStructInfo(StructInfo):
    """Any value."""

    span: Span | None = meta(default=None)


class PrimStructInfo(StructInfo):
    """A number outside of tensors: of a dtype, or of a known value, which may be symbolic.

    `PrimStructInfo("int64")`, `PrimStructInfo(value=n)`.
    """

    value: PrimExpr | None = child(defines=True)
    dtype: DataType = attr()
    span: Span | None = meta(default=None)

    def __init__(self, dtype: Any = None, value: Any = None, span: Span | None = None):
        if value is not None:
            self.value = const(value, "int64") if type(value) is int else as_expr(value)
            if dtype is not None and self.value.dtype != dtype:
                raise TypeMismatch(f"a value of dtype {self.value.dtype} cannot be described as {dtype}")
            self.dtype = self.value.dtype
        elif dtype is None:
            raise InvalidValue("PrimStructInfo expects a dtype or a value, found neither")
        else:
            self.value, self.dtype = None, DataType(dtype)
        self.span = span


def as_extent(value: Any) -> PrimExpr:
    """An extent of a shape: Python integers and int32 constants are int64."""
    if isinstance(value, bool):
        raise TypeMismatch(f"an extent of a shape is an integer, found {value!r}")
    if isinstance(value, str):
        raise TypeMismatch(f"an extent of a shape is an integer or a symbolic variable, found the text {value!r}")
    if hasattr(value, "__index__") and not isinstance(value, PrimExpr):
        return const(value.__index__(), "int64")
    expr = as_expr(value)
    if not expr.dtype.is_int:
        raise TypeMismatch(f"an extent of a shape is an integer, found `{expr}` of dtype {expr.dtype}")
    index = getattr(expr, "value", None)
    return const(index, "int64") if type(index) is int and expr.dtype != "int64" else expr


def as_extents(values: Any) -> Array[PrimExpr]:
    """Extents of a shape, each as `as_extent` gives it."""
    return Array(as_extent(v) for v in values)


class ShapeStructInfo(StructInfo):
    """A shape: of known extents, of a known number of dimensions, or neither (`ndim` is -1)."""

    values: Array[PrimExpr] | None = child(default=None, defines=True)
    ndim: int = attr(default=-1)
    span: Span | None = meta(default=None)

    def __init__(self, values: Any = None, ndim: int = -1, span: Span | None = None):
        self.values = None if values is None else as_extents(values)
        if self.values is not None and ndim not in (-1, len(self.values)):
            raise InvalidValue(f"a shape of {len(self.values)} extents cannot have ndim={ndim}")
        self.ndim = ndim if self.values is None else len(self.values)
        self.span = span


class TensorStructInfo(StructInfo):
    """A tensor.

    `shape` is None, a `ShapeExpr` (or what makes one), or a variable that holds a shape; `dtype` is "void" when it is
    not known; `ndim` is -1 when it is not known; `vdevice` is where the tensor lies, None when that is left open.
    """

    shape: Any = child(defines=True)
    dtype: DataType = attr()
    ndim: int = attr(default=-1)
    vdevice: VDevice | None = attr(default=None)
    span: Span | None = meta(default=None)

    def __init__(
        self,
        shape: Expr | list[Any] | tuple[Any, ...] | None = None,
        dtype: Any = "float32",
        vdevice: VDevice | str | None = None,
        ndim: int = -1,
        span: Span | None = None,
    ):
        from .expr import Expr, ShapeExpr

        if shape is not None and not isinstance(shape, Expr):
            if isinstance(shape, (str, int, PrimExpr)):
                raise TypeMismatch(f"the shape of a tensor is a list or tuple of extents, found {shape!r}")
            shape = ShapeExpr(shape)
        known = -1
        if isinstance(shape, ShapeExpr):
            known = len(shape.values)
        elif shape is not None:
            info = shape.struct_info
            if not isinstance(info, ShapeStructInfo):
                raise TypeMismatch(f"the shape of a tensor must be a shape, found `{shape}` with struct info {info}")
            known = info.ndim
        if known >= 0 and ndim not in (-1, known):
            raise InvalidValue(f"a tensor of the shape {shape} has {known} dimensions, not ndim={ndim}")
        self.shape, self.dtype, self.ndim = shape, as_dtype(dtype), max(known, ndim)
        self.vdevice = VDevice(vdevice) if isinstance(vdevice, str) else vdevice
        self.span = span

    @property
    def extents(self) -> Array[PrimExpr] | None:
        """The extents, where the shape is written out; else None."""
        from .expr import ShapeExpr

        shape = self.shape
        if isinstance(shape, ShapeExpr):
            return shape.values
        if shape is not None and isinstance(shape.struct_info, ShapeStructInfo):
            return shape.struct_info.values
        return None

    def get_shape(self) -> Array[PrimExpr] | None:
        """The extents, where the shape is known; else None."""
        return self.extents


class TupleStructInfo(StructInfo):
    """A tuple of values."""

    fields: Array[StructInfo] = child(converter=as_array, defines=True)
    span: Span | None = meta(default=None)


class FuncStructInfo(StructInfo):
    """A function.

    `params` is None for a function that takes anything (an external one); `derive_func(call, builder)` then works out
    what a call gives. Symbolic variables in `params` are the function's own.
    """

    params: Array[StructInfo] | None = binder()
    ret: StructInfo = child()
    purity: bool = attr(default=True)
    derive_func: Any = attr(default=None)
    span: Span | None = meta(default=None)

    def __init__(
        self,
        params: Any,
        ret: StructInfo | None = None,
        purity: bool = True,
        span: Span | None = None,
        *,
        derive_func: Callable[..., StructInfo] | None = None,
    ):
        self.params = None if params is None else Array(params)
        self.ret = ObjectStructInfo() if ret is None else ret
        self.purity, self.derive_func, self.span = bool(purity), derive_func, span

    @staticmethod
    def opaque_func(
        *, ret: StructInfo | None = None, derive_func: Any = None, purity: bool = False, span: Span | None = None
    ) -> FuncStructInfo:
        """A function of which only the result is known."""
        if isinstance(derive_func, str):
            from ..ir.env_func import EnvFunc

            derive_func = EnvFunc.get(derive_func)
        return FuncStructInfo(None, ret, purity, span, derive_func=derive_func)


def symbolic_vars(extents: Any) -> list[Var]:
    """The extents that are variables by themselves: the places where a symbolic variable gets its value."""
    return [e for e in extents or () if isinstance(e, Var)]


def tensor_struct_info_of(tensor: Tensor) -> TensorStructInfo:
    """What is known about a tensor that is there."""
    return TensorStructInfo(tensor.shape, tensor.dtype)
