"""LowerIntrin: lowers calls, and divisions, to the arithmetic that code generation emits.

The lowering rule of a call is a fact of its operator, registered for the target's kind or for all:
"llvm.FLowerIntrinsic", "default.FLowerIntrinsic". The rules for mathematics are in `tir.intrin_rules`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Broadcast, Call, Div, FloorDiv, FloorMod, IntImm, Mod, PrimExpr, Ramp, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...runtime.error import InvalidValue
from .. import intrin_rules as intrin_rules  # registers the rules
from ..function import PrimFunc
from .analyzed import AnalyzedMapper
from .pass_base import PrimFuncPass


class LowerIntrin(PrimFuncPass):
    """Lowers calls by the target's rules, and divisions of known sign to shifts, masks and truncating divisions.

    Raises `InvalidValue` for a function without a target.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target: Any = func.get_attr("target")
        if target is None:
            raise InvalidValue(
                "LowerIntrin expects a function with a target, but "
                f"{func.get_attr('global_symbol', 'the function')!r} has none: run BindTarget first"
            )
        return func.with_body(_Lower(target.kind.name)(func.body))


class _Lower(AnalyzedMapper):
    """Tells the analyzer what is known only when a division asks: the checks of arguments are many, divisions few."""

    def __init__(self, target_kind: str):
        super().__init__()
        self.keys = (f"{target_kind}.FLowerIntrinsic", "default.FLowerIntrinsic")
        self.untold: list[Callable[[], None]] = []

    @contextmanager
    def holding(self, condition: PrimExpr) -> Generator[None]:
        scope = super().holding(condition)
        place, enter = len(self.untold), scope.__enter__
        self.untold.append(enter)
        try:
            yield
        finally:
            if place < len(self.untold) and self.untold[place] is enter:
                del self.untold[place]
            else:
                scope.__exit__(None, None, None)

    def bind(self, var: Var, value: Any) -> None:
        if var.dtype.is_index:
            self.untold.append(functools.partial(super().bind, var, value))

    def tell(self) -> None:
        """Tells the analyzer, in the order in which it was found, what it does not know yet."""
        untold, self.untold = self.untold, []
        for learn in untold:
            learn()

    def rule_of(self, call: Call) -> Callable[[Call], PrimExpr] | None:
        if isinstance(call.op, Op):
            for key in self.keys:
                rule = call.op.attrs.get(key)
                if rule is not None:
                    return rule
        return None

    def visit_Call(self, node: Call) -> Any:
        rule = self.rule_of(node)
        lowered = node if rule is None else rule(node)
        if lowered is node:
            return super().visit_Call(node)
        # A rule may use calls that have rules themselves. Its operands are lowered here too, and only here.
        return self.visit(lowered)

    def visit_FloorDiv(self, node: FloorDiv) -> Any:
        node = self.generic_visit(node)
        shift = _shift_of(node.b)
        if shift is not None:
            return ops.shift_right(node.a, shift)  # a // 2^s -> a >> s
        return Div(node.a, node.b) if self.both_non_negative(node) else node  # a, b >= 0: a // b -> truncdiv(a, b)

    def visit_FloorMod(self, node: FloorMod) -> Any:
        node = self.generic_visit(node)
        shift = _shift_of(node.b)
        if shift is not None:
            return ops.bitwise_and(node.a, (1 << shift) - 1)  # a % 2^s -> a & (2^s - 1)
        return Mod(node.a, node.b) if self.both_non_negative(node) else node  # a, b >= 0: a % b -> truncmod(a, b)

    def both_non_negative(self, node: Any) -> bool:
        return node.dtype.is_uint or (self.non_negative(node.b) and self.non_negative(node.a))

    def non_negative(self, x: PrimExpr) -> bool:
        if isinstance(x, Ramp):
            return self.non_negative(x.base) and self.non_negative(x.stride)
        if isinstance(x, Broadcast):
            return self.non_negative(x.value)
        self.tell()
        return self.analyzer.const_int_bound(x).min_value >= 0


def _shift_of(divisor: PrimExpr) -> int | None:
    """s of a divisor 2^s."""
    if isinstance(divisor, Broadcast):
        divisor = divisor.value
    if isinstance(divisor, IntImm) and divisor.value > 0 and divisor.value & (divisor.value - 1) == 0:
        return divisor.value.bit_length() - 1
    return None
