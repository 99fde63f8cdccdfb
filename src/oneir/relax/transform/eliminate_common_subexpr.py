"""EliminateCommonSubexpr: what is computed a second time becomes another name for the first.

a = R.add(x, y)        a = R.add(x, y)
b = R.add(x, y)   ->   b = a
c = R.exp(b)           c = R.exp(a)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.module import IRModule
from ...ir.structural import structural_equal, structural_hash
from ...ir.transform import PassContext
from ..analysis import contains_impure_call
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..operator_facts import TAllocator
from ..struct_info import StructInfo
from .pass_base import FunctionPass


class EliminateCommonSubexpr(FunctionPass, opt_level=1):
    """Computes each value once. With `call_only`, it looks at calls only.

    Calls with side effects stay, and so do those that allocate.
    """

    call_only: bool = False

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return eliminate_common_subexpr(func, self.call_only)


def eliminate_common_subexpr(func: Function, call_only: bool = False) -> Function:
    """A function that computes each value once; the identical one if it does."""
    return _Eliminator(call_only).visit_expr(func)


class _Computed:
    """A value that was computed, and the variables that hold it."""

    def __init__(self, value: Expr, cast: StructInfo | None, var: Var):
        self.value, self.cast = value, cast
        self.variables = [var]

    def is_same(self, value: Expr, cast: StructInfo | None) -> bool:
        return structural_equal(self.value, value) and structural_equal(self.cast, cast)


class _Eliminator(PyExprMutator):
    def __init__(self, call_only: bool):
        self.call_only = call_only
        self.computed: dict[Hashable, list[_Computed]] = {}
        # What was noted since a scope began, to be forgotten at its end.
        self.noted: list[tuple[_Computed, Var]] = []
        self.remapped: list[Var] = []

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        noted, remapped = len(self.noted), len(self.remapped)
        new = super().visit_dataflow_block_(block)
        outputs = [entry for entry in self.noted[noted:] if not isinstance(entry[1], DataflowVar)]
        self._forget(noted, remapped)
        for entry, var in outputs:
            entry.variables.append(var)
            self.noted.append((entry, var))
        return new

    def visit_with_new_scope(self, expr: Expr, params: Sequence[Var] = ()) -> Expr:
        noted, remapped = len(self.noted), len(self.remapped)
        new = super().visit_with_new_scope(expr, params)
        self._forget(noted, remapped)
        return new

    def _forget(self, noted: int, remapped: int) -> None:
        for entry, _ in reversed(self.noted[noted:]):
            entry.variables.pop()
        for var in self.remapped[remapped:]:
            del self._variables[var]
        del self.noted[noted:], self.remapped[remapped:]

    def visit_function_(self, op: Function) -> Expr:
        if not self.noted and not self.remapped:
            return super().visit_function_(op)
        # A local function must not use what is computed outside of it, nor the other way round.
        return _Eliminator(self.call_only).visit_expr(op)

    def visit_binding(self, binding: Binding) -> None:
        value = self.visit_expr(binding.value)
        if value is not binding.value:
            binding = binding.replace(value=self.builder_.normalize(value))
            value = binding.value
        if self._may_be_shared(value):
            cast = binding.struct_info if isinstance(binding, MatchCast) else None
            entries = self.computed.setdefault(_key(value), [])
            known = next((e for e in entries if e.variables and e.is_same(value, cast)), None)
            if known is None:
                known = _Computed(value, cast, binding.var)
                entries.append(known)
            else:
                first = known.variables[0]
                known.variables.append(binding.var)
                self.set_var_remap(binding.var, first)
                self.remapped.append(binding.var)
                binding = VarBinding(binding.var, first)
            self.noted.append((known, binding.var))
        self.builder_.emit_normalized(binding)

    def _may_be_shared(self, value: Expr) -> bool:
        if self.call_only and not isinstance(value, Call):
            return False
        allocates = isinstance(value, Call) and TAllocator.of(value.op)
        return not allocates and not contains_impure_call(value)


def _key(expr: Any) -> Hashable:
    """What equal expressions have in common, cheap to find out."""
    if isinstance(expr, Call):
        return (_key(expr.op), *_keys(expr.args))
    if isinstance(expr, Tuple):
        return _keys(expr.fields)
    if isinstance(expr, TupleGetItem):
        return (_key(expr.tuple_value), expr.index)
    if isinstance(expr, Constant):
        return _constant_key(expr)
    if isinstance(expr, (ShapeExpr, PrimValue)):
        return structural_hash(expr)
    if isinstance(expr, (Function, If)):
        return type(expr)
    if isinstance(expr, ExternFunc):
        return expr.global_symbol
    return expr.value if isinstance(expr, (StringImm, DataTypeImm)) else expr


def _keys(exprs: Iterable[Expr]) -> tuple[Hashable, ...]:
    return tuple([_key(e) for e in exprs])


def _constant_key(expr: Constant) -> Hashable:
    data = expr.data
    values = np.asarray(data).reshape(-1)
    step = max(1, values.size // 64)
    return (str(data.dtype), tuple(data.shape), values[::step].tobytes())
