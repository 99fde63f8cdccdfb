"""What a piece of a graph may look like.

    x = wildcard()
    bias_relu = is_op("relax.nn.relu")(is_op("relax.add")(x, is_const()))
    bias_relu.match(expr)
    bias_relu.extract_matched_expr(expr, var2val)[x]

A pattern is matched by identity: where one object stands twice, both places hold the same expression. Inside the `with`
of a `PatternContext`, calling a pattern, and `^`, `>>` and `same_shape_as`, also constrain what a whole block matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

from ...ir.attrs import DictAttrs, as_dict_attrs
from ...ir.container import Array
from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr
from ...ir.node import Node, as_array, attr, child, node_classes
from ...ir.op import Op
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.hook import Hook
from ..expr import Expr, Var, as_struct_info
from ..struct_info import StructInfo, as_extents
from .context import PatternContext, Use

C = TypeVar("C", bound=type)

match_pattern: Hook[[Any, Expr, Mapping[Var, Expr]], dict[Any, Expr] | None] = Hook(
    "match_pattern", "oneir.relax.dpl.matcher"
)
"""The expression that each part of a pattern matches; None if the pattern does not match."""


def register_df_node(type_key: Any = None) -> Any:
    """A decorator for classes of patterns, which may be given the key under which they are saved."""

    def register(cls: C) -> C:
        node_classes[type_key] = cls
        return cls

    return register if isinstance(type_key, str) else type_key


class DFPattern(Node):
    """Base of patterns."""

    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """A call of what this pattern matches; see `CallPattern`."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """What matches and has these attributes."""
        return AttrPattern(self, attrs)

    def has_struct_info(self, struct_info: StructInfo) -> StructInfoPattern:
        """What matches and is known to be as `struct_info` says."""
        return StructInfoPattern(self, struct_info)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """The tensors of a dtype that match."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """The tensors of a shape that match."""
        if not isinstance(shape, (list, tuple)):
            raise InvalidValue(f"has_shape expects a list or tuple of extents, found {shape!r}")
        return ShapePattern(self, shape)

    def match(self, expr: Expr, var2val: Mapping[Var, Expr] | None = None) -> bool:
        """Whether an expression matches. Where a variable is in `var2val`, its value is looked at.

        `oneir.relax.analysis.get_var2val` gives the values of a function's variables.
        """
        return self.extract_matched_expr(expr, var2val) is not None

    def extract_matched_expr(
        self, expr: Expr, var2val: Mapping[Var, Expr] | None = None
    ) -> dict[DFPattern, Expr] | None:
        """The expression that each part of the pattern matches; None if the pattern does not match."""
        return match_pattern(self, expr, var2val or {})

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Asks that `other` uses what matches, as its argument `index` unless that is -1."""
        return PatternSeq([self]).used_by(other, index)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """As `used_by`, and that nothing else uses it."""
        return PatternSeq([self]).only_used_by(other, index)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def fork_to(self, *args: DFPattern | PatternSeq) -> None:
        """Asks that each of `args` uses what matches."""
        for other in args:
            self.used_by(other)

    def same_shape_as(self, *args: DFPattern) -> SameShapeConstraint:
        """Asks that what matches has the shape of what `args` match."""
        return SameShapeConstraint(self, *args)

    def dup(self) -> Self:
        """A pattern of the same parts that is another one, so that it may match something else."""
        copy = object.__new__(type(self))
        for field in self.init_fields:
            setattr(copy, field.name, getattr(self, field.name))
        return copy


class ExprPattern(DFPattern):
    """An expression that is structurally equal to `expr`."""

    expr: Expr | Op = child()

    def __str__(self) -> str:
        return str(self.expr)


class _NamedPattern(DFPattern):
    """Something that has a name; an empty `name` stands for any."""

    name: str = attr(default="", alias="name_hint")

    @property
    def name_hint(self) -> str:
        """The name."""
        return self.name

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class VarPattern(_NamedPattern):
    """A variable of that name; any if the name is empty."""


class DataflowVarPattern(VarPattern):
    """A variable of a dataflow block of that name; any if the name is empty."""


class GlobalVarPattern(_NamedPattern):
    """A function of the module whose name has `name` in it."""


class ExternFuncPattern(DFPattern):
    """A function of the runtime of that name; any if the name is empty."""

    global_symbol: str = attr(default="")

    def __str__(self) -> str:
        return f"ExternFuncPattern({self.global_symbol})"


class ConstantPattern(DFPattern):
    """A constant."""

    def __str__(self) -> str:
        return "ConstantPattern()"


class WildcardPattern(DFPattern):
    """Anything."""

    def __str__(self) -> str:
        return "*"


class CallPattern(DFPattern):
    """A call of what `op` matches with arguments that match `args`.

    With `varg_default_wildcard` there may be more arguments than `args`. With `add_constraint`, each of `args` is used
    by the call, for the enclosing `PatternContext`. The arguments of commutative operators match in either order.
    """

    op: DFPattern = child()
    args: Array[DFPattern] = child(converter=as_array)
    varg_default_wildcard: bool = attr(default=False)

    def __init__(
        self, op: DFPattern, args: Sequence[DFPattern], varg_default_wildcard: bool = False, add_constraint: bool = True
    ):
        self.op, self.args, self.varg_default_wildcard = (
            op,
            _patterns("the arguments of a call", args),
            varg_default_wildcard,
        )
        if add_constraint:
            for index, argument in enumerate(self.args):
                argument.used_by(self, index)

    def __str__(self) -> str:
        return f"{self.op}({', '.join([*map(str, self.args), *(['...'] if self.varg_default_wildcard else [])])})"


def _patterns(what: str, values: Sequence[Any]) -> Array[DFPattern]:
    for value in values:
        if not isinstance(value, DFPattern):
            raise TypeMismatch(f"{what} are patterns, found {value!r}; for one expression, say is_expr(expr)")
    return Array(values)


class FunctionPattern(DFPattern):
    """A function with parameters and a body that match."""

    params: Array[DFPattern] = child(converter=as_array)
    body: DFPattern = child()

    def __str__(self) -> str:
        return f"FunctionPattern({self.params}, {self.body})"


class _TuplePattern(DFPattern):
    fields: Array[DFPattern] = child(converter=lambda fields: _patterns("the fields of a tuple", fields))

    def __len__(self) -> int:
        return len(self.fields)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.fields})"


class TuplePattern(_TuplePattern):
    """A tuple whose fields match, in order. A field of it, as of a tuple, is a pattern as well."""

    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        if index is None:
            return TupleGetItemPattern(self)
        if not -len(self) <= index < len(self):
            raise IndexError(f"field {index} of a TuplePattern of {len(self)}")
        return TupleGetItemPattern(self, index % len(self))


class UnorderedTuplePattern(_TuplePattern):
    """A tuple of as many fields, each of which matches another one of `fields`."""


class TupleGetItemPattern(DFPattern):
    """The field `index` of a tuple that matches; any field if `index` is None."""

    tuple: DFPattern = child()
    index: int = attr(default=-1)

    def __init__(self, tuple_value: DFPattern, index: int | None = None):
        self.tuple, self.index = tuple_value, -1 if index is None else index

    def __str__(self) -> str:
        return f"TupleGetItemPattern({self.tuple}, {self.index})"


class _PairPattern(DFPattern):
    left: DFPattern = child()
    right: DFPattern = child()


class OrPattern(_PairPattern):
    """What matches one of two patterns."""

    def __str__(self) -> str:
        return f"OrPattern({self.left} | {self.right})"


class AndPattern(_PairPattern):
    """What matches both of two patterns."""

    def __str__(self) -> str:
        return f"AndPattern({self.left} & {self.right})"


class NotPattern(DFPattern):
    """What does not match."""

    reject: DFPattern = child(alias="to_reject")

    def __str__(self) -> str:
        return f"!({self.reject})"


class StructInfoPattern(DFPattern):
    """What matches and is known to be as `struct_info` says.

    Symbolic variables in `struct_info` stand for what they match first, the same in all of the pattern.
    """

    pattern: DFPattern = child()
    struct_info: StructInfo = child(converter=as_struct_info)

    def __str__(self) -> str:
        return f"StructInfoPattern({self.pattern} has relax StructInfo {self.struct_info})"


class DataTypePattern(DFPattern):
    """The tensors of a dtype that match."""

    pattern: DFPattern = child()
    dtype: DataType = attr(converter=DataType)

    def __str__(self) -> str:
        return f"DataTypePattern({self.pattern} has dtype {self.dtype})"


class ShapePattern(DFPattern):
    """The tensors of a shape that match."""

    pattern: DFPattern = child()
    shape: Array[PrimExpr] = child(converter=as_extents)

    def __str__(self) -> str:
        return f"ShapePattern({self.pattern} has shape {_text(self.shape)})"


class PrimArrPattern(DFPattern):
    """A shape with these extents."""

    fields: Array[PrimExpr] = child(converter=as_extents, alias="shape")

    def __getitem__(self, index: int) -> PrimExpr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"PrimArrPattern({_text(self.fields)})"


def _text(extents: Sequence[PrimExpr]) -> str:
    return f"[{', '.join(str(e.value if isinstance(e, IntImm) else e) for e in extents)}]"


class AttrPattern(DFPattern):
    """What matches and has these attributes: an operator, a call or a function."""

    pattern: DFPattern = child()
    attrs: DictAttrs = attr(converter=as_dict_attrs)

    def __str__(self) -> str:
        attrs = ", ".join(f'"{key}": {value!r}' for key, value in self.attrs.items())
        return f"AttrPattern({self.pattern} has attributes {{{attrs}}})"


class DFConstraint(Node):
    """Base of constraints between several patterns."""


class SameShapeConstraint(DFConstraint):
    """What all of `args` match has one shape. Known to the `PatternContext` in which it is made."""

    args: Array[DFPattern] = child(converter=as_array)

    def __init__(self, *args: DFPattern):
        self.args = _patterns("the arguments of SameShapeConstraint", args)
        context = PatternContext.current()
        if context is not None:
            context.constraints.append(self)

    def __str__(self) -> str:
        return f"SameShapeConstraint({', '.join(map(str, self.args))})"


class PatternSeq(Node):
    """Patterns each of which is used by the next one, by that one alone if `only_use`."""

    patterns: Array[DFPattern] = child(converter=as_array)
    uses: tuple[Use, ...] = attr(default=())

    def __init__(self, patterns: Sequence[DFPattern], only_use: bool = False):
        self._set(_patterns("the parts of a PatternSeq", patterns), (Use(only_use, -1),) * (len(patterns) - 1))
        for producer, consumer, use in zip(self.patterns, self.patterns[1:], self.uses, strict=False):
            _add_use(producer, consumer, use)

    def _set(self, patterns: Array[DFPattern], uses: tuple[Use, ...]) -> PatternSeq:
        if not patterns:
            raise InvalidValue("a PatternSeq has at least one pattern")
        self.patterns, self.uses = patterns, uses
        return self

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Asks that the first of `other` uses the last of these, as its argument `index` unless that is -1."""
        return self._then(other, Use(False, index))

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """As `used_by`, and that nothing else uses it."""
        return self._then(other, Use(True, index))

    def _then(self, other: DFPattern | PatternSeq, use: Use) -> PatternSeq:
        if not isinstance(other, (DFPattern, PatternSeq)):
            raise TypeMismatch(f"a pattern is used by a pattern or a PatternSeq, found {other!r}")
        rest = other if isinstance(other, PatternSeq) else PatternSeq([other])
        _add_use(self.patterns[-1], rest.patterns[0], use)
        return object.__new__(PatternSeq)._set(self.patterns + rest.patterns, (*self.uses, use, *rest.uses))

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]

    def dup(self) -> PatternSeq:
        """A sequence of other patterns with the same parts, used in the same way."""
        copy = object.__new__(PatternSeq)._set(Array(p.dup() for p in self.patterns), self.uses)
        for producer, consumer, use in zip(copy.patterns, copy.patterns[1:], copy.uses, strict=False):
            _add_use(producer, consumer, use)
        return copy

    def __str__(self) -> str:
        steps = [(" >> " if use.only else " ^ ") + str(p) for use, p in zip(self.uses, self.patterns[1:], strict=True)]
        return f"[{self.patterns[0]}{''.join(steps)}]"


def _add_use(producer: DFPattern, consumer: DFPattern, use: Use) -> None:
    context = PatternContext.current()
    if context is not None:
        context.add_use(producer, consumer, use)


# -- short names --


def is_var(name: str = "") -> VarPattern:
    """A variable of that name; any if the name is empty."""
    return VarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """A function of the module whose name has `name` in it."""
    return GlobalVarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """A variable of a dataflow block of that name; any if the name is empty."""
    return DataflowVarPattern(name)


def is_const() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def is_expr(expr: Expr) -> ExprPattern:
    """An expression that is structurally equal to `expr`."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """The operator of that name."""
    op: Any = Op.get(op_name)
    return ExprPattern(op)


def is_tuple(fields: Sequence[DFPattern], unordered: bool = False) -> TuplePattern | UnorderedTuplePattern:
    """A tuple whose fields match, in order unless `unordered`."""
    if not isinstance(fields, (list, tuple)):
        raise InvalidValue(f"is_tuple expects a list or tuple of patterns, found {fields!r}")
    return UnorderedTuplePattern(fields) if unordered else TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """The field `index` of a tuple that matches; any field if `index` is None."""
    return TupleGetItemPattern(tuple_value, index)


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """The tensors of a dtype that match `pattern`; all if there is none."""
    return DataTypePattern(wildcard() if pattern is None else pattern, dtype)


def is_shape(shape: Sequence[Any]) -> PrimArrPattern:
    """A shape with these extents. `pattern.has_shape(shape)` matches a tensor of that shape."""
    if not isinstance(shape, (list, tuple)):
        raise InvalidValue(f"is_shape expects a list or tuple of extents, found {shape!r}")
    return PrimArrPattern(shape)


def _packed_arguments(args: Sequence[DFPattern] | DFPattern | None) -> DFPattern:
    if args is None:
        return wildcard()
    return args if isinstance(args, DFPattern) else TuplePattern(args)


def is_call_tir(
    func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None, tir_vars: DFPattern | None = None
) -> CallPattern:
    """A `call_tir` of the PrimFunc of that name; with any arguments if `args` is None."""
    rest = () if tir_vars is None else (tir_vars,)
    return is_op("relax.call_tir")(GlobalVarPattern(func_name), _packed_arguments(args), *rest, add_constraint=False)


def is_call_dps_packed(func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None) -> CallPattern:
    """A `call_dps_packed` of the runtime's function of that name; with any arguments if `args` is None."""
    return is_op("relax.call_dps_packed")(ExternFuncPattern(func_name), _packed_arguments(args), add_constraint=False)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """A call of the runtime's function of that name; with any arguments if `args` is None."""
    if args is None:
        return ExternFuncPattern(func_name)(varg_default_wildcard=True, add_constraint=False)
    return ExternFuncPattern(func_name)(*args)


def reject(pattern: DFPattern) -> NotPattern:
    """What does not match."""
    return NotPattern(pattern)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """What matches `pattern`, or anything, and has these attributes."""
    return (wildcard() if pattern is None else pattern).has_attr(attrs)


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> CallPattern:
    """A call of an operator of two tensors, then the sum with a bias, then an activation, where they are asked for."""
    result = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        result = is_op("relax.add")(result, wildcard())
    return is_op(activation)(result) if activation else result
