"""HoistFirstIteration: what a loop begins its first iteration with moves before the loop.

    for k in range(64):            C[0] = 0.0
        if k == 0:           ->    for k in range(64):
            C[0] = 0.0                 C[0] = C[0] + A[k]
        C[0] = C[0] + A[k]

So reductions begin that nobody has decomposed. Without the condition, the element stays in a register while it adds up.
"""

from __future__ import annotations

import functools

from ...arith.constraint import conjuncts
from ...ir import operators as ops
from ...ir.expr import EQ, IntImm, PrimExpr
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext
from ..function import PrimFunc
from ..stmt import For, ForKind, IfThenElse, SeqStmt, Stmt, flat_seq
from ..stmt_functor import StmtMapper, substitute
from .pass_base import PrimFuncPass


class HoistFirstIteration(PrimFuncPass):
    """Moves conditional statements that only the first iteration of a serial loop runs, as its first, before it."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Hoist()(func.body))


class _Hoist(StmtMapper):
    def visit_For(self, loop: For) -> Stmt:
        loop = self.generic_visit(loop)
        if loop.kind != ForKind.SERIAL or not isinstance(loop.body, SeqStmt):
            return loop
        first, *rest = loop.body.seq
        if not isinstance(first, IfThenElse) or first.else_case is not None:
            return loop
        conditions = list(conjuncts(first.condition))
        others = [condition for condition in conditions if not _is_first(condition, loop)]
        if len(others) == len(conditions):
            return loop
        condition = functools.reduce(ops.logical_and, others, ops.greater(loop.extent, 0))
        begin = substitute(first.then_case, {loop.loop_var: loop.min})
        if not isinstance(condition, IntImm):
            begin = IfThenElse(substitute(condition, {loop.loop_var: loop.min}), begin)
        elif not condition.value:
            return loop
        return flat_seq([begin, loop.replace(body=flat_seq(rest))])


def _is_first(condition: PrimExpr, loop: For) -> bool:
    """Whether a condition holds in the first iteration of a loop, and in no other."""
    return isinstance(condition, EQ) and condition.a is loop.loop_var and structural_equal(condition.b, loop.min)
