"""The parts of a rewriter that is written as two functions: the pattern and what replaces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import BaseFunc, IRModule
from ...ir.op import Op
from ...ir.structural import structural_equal
from ...runtime.error import InvalidValue, OneIRError, TypeMismatch
from ..copy_function import copy_with_new_vars
from ..expr import (
    BindingBlock,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..struct_info import bind_extents
from ..substitute import bind
from .pattern import (
    CallPattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    WildcardPattern,
)

Found = dict[DFPattern, Expr]
"""The expression that each part of a pattern matches."""


class RewriterParts(NamedTuple):
    """A rewriter written as a module: the pattern, what replaces it, and the functions that replacements may call."""

    pattern: DFPattern
    rewrite: Callable[[Expr, Found], Expr]
    subroutines: Mapping[GlobalVar, BaseFunc]


def rewriter_parts(mod: IRModule) -> RewriterParts:
    """The parts of the rewriter that replaces what the function `pattern` computes by the function `replacement`.

    Raises `InvalidValue` for a further public function and for two functions of different signatures, `NotRegistered`
    where one of the two is missing, `TypeMismatch` for what no pattern can be made of.
    """
    # Not at the top: `relax.transform` imports passes that are written with patterns.
    from ..transform.to_non_dataflow import to_non_dataflow

    pattern, replacement = _function(mod, "pattern"), _function(mod, "replacement")
    subroutines = {}
    for var, func in mod.functions.items():
        if var.name_hint not in ("pattern", "replacement"):
            if "global_symbol" in func.attrs:
                raise InvalidValue(
                    f"a module that is a rewriter has two public functions, `pattern` and `replacement`, but "
                    f"`{var.name_hint}` is publicly exposed as well; make it private"
                )
            subroutines[var] = func
    if not structural_equal(pattern.struct_info_, replacement.struct_info_, map_free_vars=True):
        raise InvalidValue(
            "the functions `pattern` and `replacement` must have the same signature, but the first is "
            f"{pattern.struct_info_} and the second {replacement.struct_info_}"
        )
    wildcards = [WildcardPattern() for _ in pattern.params]
    top = _Patterns(pattern, wildcards).top
    body = to_non_dataflow(replacement)

    def rewrite(expr: Expr, found: Found) -> Expr:
        return _instance(body, [found[w] for w in wildcards])

    return RewriterParts(top, rewrite, subroutines)


class MissingFunction(OneIRError, KeyError):
    """A module that is a rewriter lacks one of its two functions.

    It has a function `pattern` and a function `replacement`, with parameters of the same names.
    """

    __str__ = Exception.__str__  # a KeyError shows the repr of its text


def _function(mod: IRModule, name: str) -> Function:
    var = next((v for v in mod.functions if v.name_hint == name), None)
    if var is None:
        raise MissingFunction(
            f"a module that is a rewriter has the functions `pattern` and `replacement`; no `{name}` here"
        )
    func = mod.functions[var]
    if not isinstance(func, Function):
        raise TypeMismatch(f"the function `{name}` of a rewriter is a graph function, found a {type(func).__name__}")
    return func


def _instance(replacement: Function, arguments: list[Expr]) -> SeqExpr:
    """The body of the replacement with expressions as its parameters."""
    func = copy_with_new_vars(replacement)
    values: dict[Var, Expr] = {}
    symbols: dict[TirVar, PrimExpr] = {}
    bindings: list[VarBinding] = []
    for param, argument in zip(func.params, arguments, strict=True):
        var = Var(param.name, argument.struct_info)
        values[param] = var
        bindings.append(VarBinding(var, argument))
        bind_extents(param.struct_info, argument.struct_info, symbols)
    body = bind(func, values, symbols).body
    return SeqExpr([BindingBlock(bindings), *body.blocks], body.body)


class _Patterns:
    """What the variables of a function stand for, as patterns; `top` is that of its result."""

    def __init__(self, func: Function, wildcards: list[WildcardPattern]):
        self.known: dict[Var, DFPattern] = {}
        for param, wildcard in zip(func.params, wildcards, strict=True):
            self.known[param] = StructInfoPattern(wildcard, param.struct_info)
        for block in func.body.blocks:
            for binding in block.bindings:
                value = self.of(binding.value)
                if isinstance(binding, MatchCast):
                    value = StructInfoPattern(value, binding.struct_info)
                self.known[binding.var] = value
        self.top = self.of(func.body.body)

    def of(self, expr: object) -> DFPattern:
        """The pattern of an expression of the function."""
        if isinstance(expr, Var):
            return self.known[expr]
        if isinstance(expr, Call):
            call = CallPattern(self.of(expr.op), [self.of(a) for a in expr.args], add_constraint=False)
            return call.has_attr(expr.attrs.values_by_name) if len(expr.attrs) else call
        if isinstance(expr, Tuple):
            return TuplePattern([self.of(f) for f in expr.fields])
        if isinstance(expr, TupleGetItem):
            return TupleGetItemPattern(self.of(expr.tuple_value), expr.index)
        if isinstance(expr, (PrimValue, ShapeExpr)):
            return StructInfoPattern(WildcardPattern(), expr.struct_info)
        if isinstance(expr, ExternFunc):
            return ExternFuncPattern(expr.global_symbol)
        if isinstance(expr, (Op, Constant, StringImm, DataTypeImm)):
            return ExprPattern(expr)
        raise TypeMismatch(
            f"the function `pattern` has a {type(expr).__name__}, of which no pattern can be made: {expr}"
        )
