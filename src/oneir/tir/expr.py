"""The expressions of loops: those that graphs share, and loads, iteration variables, reductions in tensor
expressions, lane shuffles.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ..ir.container import Array, is_sequence
from ..ir.dtype import DataType
from ..ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOpExpr,
    Broadcast,
    Call,
    CallEffectKind,
    Cast,
    CmpExpr,
    ConstExpr,
    Div,
    EqualOp,
    ExprOp,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IntImmEnum,
    Let,
    LogicalExpr,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    NotEqualOp,
    Or,
    PrimExpr,
    PrimExprWithOp,
    Ramp,
    Range,
    Select,
    SizeVar,
    StringImm,
    Sub,
    Var,
    as_expr,
)
from ..ir.expr import ExprLike as ExprLike
from ..ir.expr import const as const
from ..ir.node import Node, as_array, attr, binder, child, meta
from ..ir.operators import div_ambiguity_error
from ..ir.span import Span
from ..ir.substitute import substitute
from ..runtime.error import TypeMismatch

if TYPE_CHECKING:
    from .buffer import Buffer

__all__ = [
    "EQ",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "Add",
    "And",
    "BinaryOpExpr",
    "Broadcast",
    "BufferLoad",
    "Call",
    "CallEffectKind",
    "Cast",
    "CmpExpr",
    "CommReducer",
    "ConstExpr",
    "Div",
    "EqualOp",
    "ExprOp",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "IntImm",
    "IntImmEnum",
    "IterVar",
    "IterVarType",
    "Let",
    "LogicalExpr",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "NotEqualOp",
    "Or",
    "PrimExpr",
    "PrimExprWithOp",
    "ProducerLoad",
    "Ramp",
    "Range",
    "Reduce",
    "Select",
    "Shuffle",
    "SizeVar",
    "StringImm",
    "Sub",
    "Var",
    "access_dtype",
    "as_expr",
    "convert",
    "div_ambiguity_error",
    "expr_array",
    "ramp_or_scalar",
]


def expr_array(values: ExprOp | int | Iterable[ExprLike]) -> Array[PrimExpr]:
    """One expression or several, as an array of expressions."""
    if isinstance(values, (ExprOp, int)):
        return Array((as_expr(values),))
    given: Any = values
    if given.__class__ is Array and all(isinstance(v, PrimExpr) for v in values):
        return given
    return Array(as_expr(v) for v in values)


def optional_expr_array(values: ExprOp | int | Iterable[ExprLike] | None) -> Array[PrimExpr]:
    """`expr_array`, to which None is an empty array."""
    return Array() if values is None else expr_array(values)


def convert(expr: Any) -> Any:
    """A number or string as a constant, a list as an array of expressions, an expression as itself."""
    return Array(map(convert, expr)) if is_sequence(expr) else as_expr(expr)


class IterVarType(IntEnum):
    """How an iteration variable may run; named in TVMScript by `kind_names`."""

    DataPar = 0
    ThreadIndex = 1
    CommReduce = 2
    Ordered = 3
    Opaque = 4
    Unrolled = 5
    Vectorized = 6
    Parallelized = 7
    Tensorized = 8


def _as_domain(dom: Range | tuple[ExprLike, ExprLike] | None) -> Range | None:
    return dom if dom is None or isinstance(dom, Range) else Range(*dom)


def _as_iter_variable(var: Var | str, dom: Range | None = None) -> Var:
    """A name makes a variable of the domain's dtype."""
    return Var(var, "int32" if dom is None else dom.extent.dtype) if isinstance(var, str) else var


class IterVar(ExprOp, Node, shared=True):
    """A variable with the range it runs over and how: spatial (DataPar), reduction (CommReduce), a thread's index,
    ...
    """

    dom: Range | None = child(converter=_as_domain)
    var: Var = binder(converter=_as_iter_variable, deferred=True)
    iter_type: IterVarType = attr(converter=IterVarType)
    thread_tag: str = ""
    span: Span | None = meta(default=None)

    DataPar = IterVarType.DataPar
    ThreadIndex = IterVarType.ThreadIndex
    CommReduce = IterVarType.CommReduce
    Ordered = IterVarType.Ordered
    DimInfo = IterVarType.Opaque
    Unrolled = IterVarType.Unrolled
    Vectorized = IterVarType.Vectorized
    Parallelized = IterVarType.Parallelized
    Tensorized = IterVarType.Tensorized

    def _derive(self) -> None:
        self.var = _as_iter_variable(self.var, self.dom)

    def __prim_expr__(self) -> PrimExpr:
        return self.var

    @property
    def dtype(self) -> DataType:
        """The variable's dtype."""
        return self.var.dtype


class BufferLoad(PrimExpr):
    """An element of a buffer, or a vector of elements when the last index is a vector.

    `predicate`, a bool vector, says which lanes are read; the others are 0.
    """

    buffer: Buffer
    indices: Array[PrimExpr] = child(converter=expr_array)
    predicate: PrimExpr | None = None

    def _derive(self) -> None:
        self.dtype = access_dtype(self.buffer, self.indices)


class ProducerLoad(PrimExpr):
    """An element of a tensor expression's output."""

    producer: Any = attr()
    indices: Array[PrimExpr] = child(converter=expr_array)

    def _derive(self) -> None:
        self.dtype = DataType(self.producer.dtype)


class Shuffle(PrimExpr):
    """The lanes named by `indices` out of all lanes of `vectors` laid end to end."""

    vectors: Array[PrimExpr] = child(converter=expr_array)
    indices: Array[PrimExpr] = child(converter=expr_array)

    def _derive(self) -> None:
        self.dtype = self.vectors[0].dtype.with_lanes(len(self.indices))


class CommReducer(Node, shared=True):
    """An associative, commutative combination: `result` over the variables `lhs` and `rhs`, and its neutral
    elements.
    """

    lhs: Array[Var] = binder(converter=as_array)
    rhs: Array[Var] = binder(converter=as_array)
    result: Array[PrimExpr] = child(converter=expr_array)
    identity_element: Array[PrimExpr] = child(converter=expr_array)
    span: Span | None = meta(default=None)

    def combine(self, lhs: Any, rhs: Any) -> Array[PrimExpr]:
        """The combination of two tuples of values."""
        values = {**dict(zip(self.lhs, lhs, strict=True)), **dict(zip(self.rhs, rhs, strict=True))}
        return Array(substitute(r, values) for r in self.result)


def _as_condition(condition: Any) -> PrimExpr:
    """A condition; none holds always."""
    return const(True) if condition is None else as_expr(condition)


class Reduce(PrimExpr):
    """The combination of `source` over `axis`, where `condition` holds; the `value_index`-th of a tuple of values."""

    combiner: CommReducer | None
    source: Array[PrimExpr] = child(converter=expr_array, alias="src")
    axis: Array[IterVar] = binder(converter=as_array, alias="rdom")
    condition: PrimExpr = child(converter=_as_condition)
    value_index: int = attr()
    init: Array[PrimExpr] = child(default=(), converter=optional_expr_array)

    def _derive(self) -> None:
        self.dtype = self.source[self.value_index].dtype


def access_dtype(buffer: Buffer, indices: Array[PrimExpr]) -> DataType:
    """The dtype of the elements of `buffer` at `indices`; only the last index may be a vector."""
    if len(indices) != len(buffer.shape):
        raise TypeMismatch(
            f"buffer `{buffer.name}` has {len(buffer.shape)} dimensions, found {len(indices)} indices: {list(indices)}"
        )
    if not indices:
        return buffer.dtype
    for index in indices[:-1]:
        if not index.dtype.is_scalar:
            raise TypeMismatch(f"only the last index of buffer `{buffer.name}` may be a vector, found {index}")
    for index in indices:
        if index.dtype.is_float:
            raise TypeMismatch(f"buffer `{buffer.name}` is indexed by integers, found {index} of dtype {index.dtype}")
    last = indices[-1].dtype
    if last.is_scalar:
        return buffer.dtype
    return buffer.dtype.with_lanes(buffer.dtype.lanes * last.lanes, last.scalable or buffer.dtype.scalable)


def ramp_or_scalar(start: Any, extent: int | PrimExpr, step: Any = 1) -> PrimExpr:
    """The index of a slice of `extent` elements: a ramp, or the start alone when there is one element."""
    return as_expr(start) if extent == 1 else Ramp(start, as_expr(step).astype(as_expr(start).dtype), extent)
