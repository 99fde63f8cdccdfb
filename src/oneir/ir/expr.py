"""Expressions that both levels share: variables, constants, arithmetic, vectors, calls.

    x = Var("x", "int32")
    x * 2 + 1  # Add(Mul(x, 2), 1), dtype int32

Python's operators build nodes, folding what is constant; `==` and `!=` give an object that is a truth value for Python
(are both the same expression?) and turns into an `EQ` or `NE` node where an expression is wanted.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from ..runtime.error import InvalidValue, OneIRError, TypeMismatch
from ..runtime.object import ObjectConvertible
from . import operators as ops
from .container import Array
from .dtype import BOOL, FLOAT32, INT32, INT64, DataType
from .node import Node, attr, binder, child, derived, meta
from .op import Fact
from .span import SequentialSpan, Span
from .type import PointerType, PrimType, Type

if TYPE_CHECKING:
    import numpy as np


ExprLike: TypeAlias = "ExprOp | int | float | np.generic"
"""What may stand for an expression: a number, Python's or NumPy's, or an object with `__prim_expr__`."""


class ExprOp:
    """Python's operators over expressions; a mixin for everything that can become one."""

    __slots__ = ()

    def __prim_expr__(self) -> PrimExpr:
        """The expression that this object stands for."""
        raise NotImplementedError

    def __add__(self, other: Any) -> PrimExpr:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> PrimExpr:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> PrimExpr:
        return ops.subtract(self, other)

    def __rsub__(self, other: Any) -> PrimExpr:
        return ops.subtract(other, self)

    def __mul__(self, other: Any) -> PrimExpr:
        return ops.multiply(self, other)

    def __rmul__(self, other: Any) -> PrimExpr:
        return ops.multiply(other, self)

    def __truediv__(self, other: Any) -> PrimExpr:
        return ops.divide(self, other)

    def __rtruediv__(self, other: Any) -> PrimExpr:
        return ops.divide(other, self)

    def __floordiv__(self, other: Any) -> PrimExpr:
        return ops.floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> PrimExpr:
        return ops.floordiv(other, self)

    def __mod__(self, other: Any) -> PrimExpr:
        return ops.floormod(self, other)

    def __rmod__(self, other: Any) -> PrimExpr:
        return ops.floormod(other, self)

    def __neg__(self) -> PrimExpr:
        return ops.negative(self)

    def __pos__(self) -> PrimExpr:
        return as_expr(self)

    def __abs__(self) -> PrimExpr:
        return ops.absolute(self)

    def __pow__(self, other: Any) -> PrimExpr:
        return ops.call_op("tir.pow", self, other)

    def __rpow__(self, other: Any) -> PrimExpr:
        return ops.call_op("tir.pow", other, self)

    def __lshift__(self, other: Any) -> PrimExpr:
        return ops.shift_left(self, other)

    def __rlshift__(self, other: Any) -> PrimExpr:
        return ops.shift_left(other, self)

    def __rshift__(self, other: Any) -> PrimExpr:
        return ops.shift_right(self, other)

    def __rrshift__(self, other: Any) -> PrimExpr:
        return ops.shift_right(other, self)

    def __and__(self, other: Any) -> PrimExpr:
        return ops.bitwise_and(self, other)

    def __rand__(self, other: Any) -> PrimExpr:
        return ops.bitwise_and(other, self)

    def __or__(self, other: Any) -> PrimExpr:
        return ops.bitwise_or(self, other)

    def __ror__(self, other: Any) -> PrimExpr:
        return ops.bitwise_or(other, self)

    def __xor__(self, other: Any) -> PrimExpr:
        return ops.bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> PrimExpr:
        return ops.bitwise_xor(other, self)

    def __invert__(self) -> PrimExpr:
        expr = as_expr(self)
        return ops.logical_not(expr) if expr.dtype.is_bool else ops.bitwise_not(expr)

    def __lt__(self, other: Any) -> PrimExpr:
        return ops.less(self, other)

    def __le__(self, other: Any) -> PrimExpr:
        return ops.less_equal(self, other)

    def __gt__(self, other: Any) -> PrimExpr:
        return ops.greater(self, other)

    def __ge__(self, other: Any) -> PrimExpr:
        return ops.greater_equal(self, other)

    def __eq__(self, other: object) -> Any:
        return EqualOp(self, other)

    def __ne__(self, other: object) -> Any:
        return NotEqualOp(self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise InvalidValue(
            f"the truth value of the expression `{self}` is not known while the program is written: "
            "write T.And, T.Or, T.Not or T.if_then_else instead of and, or, not or if"
        )

    def astype(self, dtype: str) -> PrimExpr:
        """The value converted to another dtype."""
        return ops.cast(dtype, self)

    def equal(self, other: Any) -> PrimExpr:
        """`self == other` as an expression."""
        return ops.equal(self, other)

    def not_equal(self, other: Any) -> PrimExpr:
        """`self != other` as an expression."""
        return ops.not_equal(self, other)

    def __iter__(self) -> Any:
        raise TypeMismatch(f"the expression `{self}` cannot be iterated over")


class EqualOp(ExprOp, ObjectConvertible):
    """`a == b`, not yet decided to be a truth value (are both one expression?) or an expression (`EQ`)."""

    __slots__ = ("a", "b")

    def __init__(self, a: Any, b: Any):
        self.a, self.b = a, b

    def __prim_expr__(self) -> PrimExpr:
        return ops.equal(self.a, self.b)

    asobject = __prim_expr__

    def __bool__(self) -> bool:
        if self.a is self.b:
            return True
        try:
            a, b = as_expr(self.a), as_expr(self.b)
        except OneIRError:
            return False
        if isinstance(a, ConstExpr) and isinstance(b, ConstExpr):
            return a.value == b.value
        return ops.same_expr(a, b)


class NotEqualOp(ExprOp, ObjectConvertible):
    """`a != b`, not yet decided to be a truth value or an expression (`NE`)."""

    __slots__ = ("a", "b")

    def __init__(self, a: Any, b: Any):
        self.a, self.b = a, b

    def __prim_expr__(self) -> PrimExpr:
        return ops.not_equal(self.a, self.b)

    asobject = __prim_expr__

    def __bool__(self) -> bool:
        return not bool(EqualOp(self.a, self.b))


class BaseExpr(Node):
    """Base of all expressions, of graphs and of loops."""

    span: Span | SequentialSpan | None = meta(default=None)


class PrimExpr(ExprOp, BaseExpr):
    """An expression whose value is a number, a vector of numbers or a pointer."""

    dtype: DataType = derived()

    def __prim_expr__(self) -> PrimExpr:
        return self


PrimExprWithOp = PrimExpr


class RelaxExpr(BaseExpr):
    """Base of graph expressions.

    What is known about the value of one while compiling is its struct info. It is worked out once the expression
    becomes part of a program; `struct_info_` is None until then.
    """

    struct_info_: Any = derived(saved=True)

    @property
    def struct_info(self) -> Any:
        """What is known about the value; an `InvalidValue` as long as that has not been worked out."""
        info = getattr(self, "struct_info_", None)
        if info is None:
            raise InvalidValue(
                f"the struct info of the {type(self).__name__} `{self}` is not known yet: "
                "normalize it first, with `BlockBuilder.normalize` or by emitting it"
            )
        return info

    def set_struct_info(self, struct_info: Any) -> Self:
        """States what is known about the value, and returns the expression itself.

        Normalization does so, and passes that make an expression whose struct info they know already. Variables of a
        graph take it in their constructor.
        """
        self.struct_info_ = struct_info
        return self


def as_expr(value: ExprLike) -> PrimExpr:
    """A Python number, or anything that stands for an expression, as an expression: int is int32, float is float32."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, ExprOp):
        return value.__prim_expr__()
    return const(value)


def const(value: ExprLike | str, dtype: str | None = None, span: Span | None = None) -> PrimExpr:
    """A constant of the given dtype (vectors are broadcast).

    Without a dtype: bool for a bool, int32 for an int that fits, else int64, float32 for a float, the array's own for a
    NumPy scalar.
    """
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and isinstance(dtype, DataType)
        and dtype.is_int
        and dtype.is_scalar
    ):
        return IntImm(dtype, value, span=span)
    if isinstance(value, ExprOp):
        value = value.__prim_expr__()
        return value if dtype is None or value.dtype == dtype else ops.cast(dtype, value)
    if isinstance(value, str):
        return StringImm(value, span=span)
    if dtype is None:
        if isinstance(value, bool):
            return IntImm(BOOL, int(value), span=span)
        if isinstance(value, int):
            return IntImm(INT32 if -(1 << 31) <= value < (1 << 31) else INT64, value, span=span)
        if isinstance(value, float):
            return FloatImm(FLOAT32, value, span=span)
        if getattr(value, "dtype", None) is None or getattr(value, "ndim", 0) != 0:
            if isinstance(value, ObjectConvertible):
                return const(value.asobject(), None, span)
            raise TypeMismatch(f"expected a number or an expression, found {value!r} of type {type(value).__name__}")
        dtype = str(value.dtype)
    wanted = DataType(dtype)
    number: Any = value
    if not isinstance(value, (bool, int, float)) and hasattr(value, "item"):
        number = value.item()
    if not wanted.is_scalar:
        return Broadcast(const(number, wanted.element, span), wanted.lanes, span=span)
    if wanted.is_float:
        return FloatImm(wanted, float(number), span=span)
    if wanted.is_int or wanted.is_bool:
        if isinstance(number, float) and not math.isfinite(number):
            raise InvalidValue(f"{number} cannot be a constant of dtype {wanted}")
        return IntImm(wanted, int(number), span=span)
    if wanted.is_handle and number == 0:
        return ops.cast(wanted, IntImm(DataType("uint64"), 0, span=span))
    raise InvalidValue(f"cannot make a constant of dtype {wanted} from {number!r}")


def as_int(value: object) -> int | None:
    """The value of an integer constant, or of an integer of Python or NumPy; None for anything else."""
    if isinstance(value, IntImm):
        return value.value
    index: Any = getattr(value, "__index__", None)
    return None if index is None else index()


def _as_type(value: Type | str) -> Type:
    return value if isinstance(value, Type) else PrimType(value)


def _dtype_of_type(annotation: Type) -> DataType:
    return annotation.dtype if isinstance(annotation, PrimType) else DataType("handle")


class Var(PrimExpr, shared=True):
    """A variable: an object of its own, whatever its name. `dtype` may be a type, such as a pointer's.

    Equality of structures maps variables at the places that define them, so names do not matter.
    """

    name: str
    type_annotation: Type = attr(default="int32", converter=_as_type, alias="dtype")
    is_variable: ClassVar[bool] = True

    def _derive(self) -> None:
        self.dtype = _dtype_of_type(self.type_annotation)

    @property
    def name_hint(self) -> str:
        """The variable's name."""
        return self.name

    def copy_with_name(self, name: str) -> Var:
        """A new variable of the same type."""
        return type(self)(name, self.type_annotation)

    def copy_with_dtype(self, dtype: str) -> Var:
        """A new variable of the same name."""
        return type(self)(self.name, dtype)


class SizeVar(Var, shared=True):
    """A variable that is never negative, such as a shape's."""


class ConstExpr(PrimExpr):
    """Base of constants."""

    value: Any = attr()


class IntImm(ConstExpr):
    """An integer or bool constant; must fit its dtype."""

    dtype: DataType = attr(converter=DataType)
    value: int = attr()

    def _derive(self) -> None:
        dtype, value = self.dtype, self.value
        if type(value) is not int:
            value = self.value = int(value)
        if dtype.code == "int":
            low, high = -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
        elif dtype.code in ("uint", "bool"):
            low, high = 0, (1 << dtype.bits) - 1
        else:
            raise TypeMismatch(f"expected an integer dtype for the constant {value}, found {dtype}")
        if not low <= value <= high:
            raise InvalidValue(f"{value} does not fit {dtype}, whose values run from {low} to {high}")

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)


class FloatImm(ConstExpr):
    """A floating-point constant. `value` is kept as written and rounded to the dtype where it is used."""

    dtype: DataType = attr(converter=DataType)
    value: float = attr(converter=float)

    def _derive(self) -> None:
        if not self.dtype.is_float:
            raise TypeMismatch(f"expected a floating-point dtype for the constant {self.value}, found {self.dtype}")

    def __float__(self) -> float:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0


class StringImm(ConstExpr):
    """A string constant."""

    value: str = attr()

    def _derive(self) -> None:
        self.dtype = DataType("handle")

    def __eq__(self, other: object) -> Any:
        if isinstance(other, str):
            return self.value == other
        return isinstance(other, StringImm) and self.value == other.value

    def __ne__(self, other: object) -> Any:
        return not self.__eq__(other)

    def __hash__(self) -> int:
        return hash(self.value)


class IntImmEnum(ExprOp):
    """An integer constant whose meaning is an enumerator's."""

    __slots__ = ("value",)

    def __init__(self, value: int):
        self.value = int(value)

    def __prim_expr__(self) -> PrimExpr:
        return IntImm("int32", self.value)


class Cast(PrimExpr):
    """`value` converted to `dtype`: float to integer truncates and saturates, NaN gives 0; integers wrap."""

    dtype: DataType = attr(converter=DataType)
    value: PrimExpr = child(converter=as_expr)

    def _derive(self) -> None:
        if self.dtype.lanes != self.value.dtype.lanes:
            raise TypeMismatch(f"cannot cast {self.value.dtype} to {self.dtype}: expected the same number of lanes")


class BinaryOpExpr(PrimExpr):
    """Base of arithmetic and comparisons over two operands of one dtype; a number takes the other operand's."""

    a: PrimExpr = child(converter=as_expr, deferred=True)
    b: PrimExpr = child(converter=as_expr, deferred=True)

    def _derive(self) -> None:
        a, _b = _matched(self)
        self.dtype = a.dtype


def _matched(node: Any) -> tuple[PrimExpr, PrimExpr]:
    """The operands as expressions of one dtype; a Python number takes the other operand's."""
    a, b = node.a, node.b
    if not isinstance(a, PrimExpr):
        a = node.a = const(a, b.dtype) if isinstance(b, PrimExpr) and not isinstance(a, ExprOp) else as_expr(a)
    if not isinstance(b, PrimExpr):
        b = node.b = as_expr(b) if isinstance(b, ExprOp) else const(b, a.dtype)
    if a.dtype is not b.dtype:
        raise TypeMismatch(f"{type(node).__name__} expects operands of one dtype, found {a.dtype} and {b.dtype}")
    return a, b


class Add(BinaryOpExpr):
    """a + b; integers wrap."""


class Sub(BinaryOpExpr):
    """a - b; integers wrap."""


class Mul(BinaryOpExpr):
    """a * b; integers wrap."""


class Div(BinaryOpExpr):
    """a / b; of integers the quotient rounded towards zero, and 0 when b is 0."""


class Mod(BinaryOpExpr):
    """The remainder of `Div`, with the sign of a; of integers a when b is 0."""


class FloorDiv(BinaryOpExpr):
    """The quotient rounded towards minus infinity; 0 when b is an integer 0."""


class FloorMod(BinaryOpExpr):
    """The remainder of `FloorDiv`, with the sign of b; a when b is an integer 0."""


class Min(BinaryOpExpr):
    """The smaller; NaN when either is NaN."""


class Max(BinaryOpExpr):
    """The larger; NaN when either is NaN."""


class CmpExpr(BinaryOpExpr):
    """Base of comparisons; the result is bool."""

    def _derive(self) -> None:
        a, _ = _matched(self)
        self.dtype = BOOL.with_lanes(a.dtype.lanes, a.dtype.scalable)


class EQ(CmpExpr):
    """a == b"""


class NE(CmpExpr):
    """a != b"""


class LT(CmpExpr):
    """a < b"""


class LE(CmpExpr):
    """a <= b"""


class GT(CmpExpr):
    """a > b"""


class GE(CmpExpr):
    """a >= b"""


class LogicalExpr(BinaryOpExpr):
    """Base of logical connectives over bool."""

    def _derive(self) -> None:
        a, _ = _matched(self)
        if not a.dtype.is_bool:
            raise TypeMismatch(f"{type(self).__name__} expects bool operands, found {a.dtype}")
        self.dtype = a.dtype


class And(LogicalExpr):
    """a and b; a scalar b is evaluated only when a holds."""


class Or(LogicalExpr):
    """a or b; a scalar b is evaluated only when a does not hold."""


class Not(PrimExpr):
    """not a"""

    a: PrimExpr = child(converter=as_expr)

    def _derive(self) -> None:
        if not self.a.dtype.is_bool:
            raise TypeMismatch(f"Not expects a bool operand, found {self.a.dtype}")
        self.dtype = self.a.dtype


class Select(PrimExpr):
    """`true_value` where `condition` holds, else `false_value`; both are evaluated."""

    condition: PrimExpr = child(converter=as_expr)
    true_value: PrimExpr = child(converter=as_expr)
    false_value: PrimExpr = child(converter=as_expr)

    def _derive(self) -> None:
        condition, dtype = self.condition.dtype, self.true_value.dtype
        if not condition.is_bool:
            raise TypeMismatch(f"Select expects a bool condition, found {condition}")
        if dtype is not self.false_value.dtype:
            raise TypeMismatch(f"Select expects values of one dtype, found {dtype} and {self.false_value.dtype}")
        if condition.lanes not in (1, dtype.lanes):
            raise TypeMismatch(f"Select expects 1 or {dtype.lanes} conditions, found {condition.lanes}")
        self.dtype = dtype


class Ramp(PrimExpr):
    """The vector base, base + stride, ..., `lanes` long; lanes may be a multiple of vscale."""

    base: PrimExpr = child(converter=as_expr)
    stride: PrimExpr = child(converter=as_expr)
    lanes: Any = attr(converter=lambda lanes: ops.lanes_operand(lanes))

    def _derive(self) -> None:
        if self.base.dtype is not self.stride.dtype:
            stride = self.stride
            if not isinstance(stride, IntImm):
                raise TypeMismatch(f"Ramp expects one dtype, found {self.base.dtype} and {stride.dtype}")
            self.stride = const(stride.value, self.base.dtype)
        if not self.base.dtype.is_scalar:
            raise TypeMismatch(f"Ramp expects a scalar base, found {self.base.dtype}")
        self.dtype = ops.vector_dtype(self.base.dtype, self.lanes)


class Broadcast(PrimExpr):
    """The vector of `lanes` times `value`."""

    value: PrimExpr = child(converter=as_expr)
    lanes: Any = attr(converter=lambda lanes: ops.lanes_operand(lanes))

    def _derive(self) -> None:
        if not self.value.dtype.is_scalar:
            raise TypeMismatch(f"Broadcast expects a scalar, found {self.value.dtype}")
        self.dtype = ops.vector_dtype(self.value.dtype, self.lanes)


class CallEffectKind(IntEnum):
    """What a call may do besides giving its value."""

    ExprAnnotation = 0
    Pure = 1
    ReadState = 2
    UpdateState = 3
    SpecialCallArg = 4
    EmbedInfo = 5
    ControlJump = 6
    Opaque = UpdateState


TCallEffectKind: Fact[CallEffectKind] = Fact("TCallEffectKind")
"""What a call of an operator may do besides giving its value; anything where nothing is stated."""


class Call(PrimExpr):
    """The value of `op` (an `Op`, or a `GlobalVar` of the module) applied to `args`.

    `op` may be given by the name of a registered operator.
    """

    dtype: DataType = attr(converter=DataType)
    op: Any = child(converter=lambda op: ops.as_op(op))
    args: Array[PrimExpr] = child(converter=lambda args: ops.as_expr_array(args))


class Let(PrimExpr):
    """`body` with `var` standing for `value`."""

    var: Var = binder()
    value: PrimExpr = child(converter=as_expr)
    body: PrimExpr = child(converter=as_expr)

    def _derive(self) -> None:
        self.dtype = self.body.dtype


class GlobalVar(RelaxExpr, shared=True):
    """The name of a function of a module; within one module each function has one such object."""

    name_hint: str

    def __call__(self, *args: Any) -> Any:
        """A call of the function: of expressions, a `tir` call; of graph expressions, a graph call."""
        if all(isinstance(a, (ExprOp, int, float)) for a in args):
            return Call("void", self, [as_expr(a) for a in args])
        return ops.call_global(self, args)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.name_hint


class Range(Node):
    """The integers from `min` up to, not including, `min + extent`.

    Written as Python's range: `Range(end)` or `Range(begin, end)`; `Range.from_min_extent` takes the extent.
    """

    min: PrimExpr
    extent: PrimExpr
    span: Span | None = meta(default=None)

    def __init__(
        self, begin: Any = None, end: Any = None, span: Span | None = None, *, min: Any = None, extent: Any = None
    ):
        if extent is not None:
            self.min, self.extent = as_expr(begin if min is None else min), as_expr(extent)
        elif end is None:
            self.extent = as_expr(begin)
            self.min = const(0, self.extent.dtype)
        else:
            self.min = (
                const(begin, end.dtype) if isinstance(begin, int) and isinstance(end, PrimExpr) else as_expr(begin)
            )
            self.extent = ops.difference(end, self.min)
        self.span = span

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: Span | None = None) -> Range:
        """The integers from `min_value` on, `extent` of them."""
        return Range(min_value, None, span, extent=extent)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Range) and ops.same_expr(self.min, other.min) and ops.same_expr(self.extent, other.extent)
        )

    def __hash__(self) -> int:
        return id(self) >> 4


def pointer_to(dtype: str, scope: str = "") -> PointerType:
    """The type of a buffer's data pointer."""
    return PointerType(PrimType(dtype), scope)
