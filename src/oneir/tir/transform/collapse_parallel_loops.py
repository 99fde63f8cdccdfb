"""CollapseParallelLoops: parallel loops in each other become one, whose iterations threads share.

    for i in T.parallel(n):          for i_j in T.parallel(n * m):
        for j in T.parallel(m):  ->      i: T.int64 = i_j // m
            B[i, j] = A[i, j]            j: T.int64 = i_j % m
                                         B[i, j] = A[i, j]

A region of threads does not open another, so of such loops only the outer one's iterations would be shared. Schedules
leave loops of unknown extents apart, since of a quotient by such an extent little can be proven; so this runs when
nothing is left to prove.
"""

from __future__ import annotations

import functools

from ...ir import operators as ops
from ...ir.dtype import INT64
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..analysis.variables import variables
from ..function import PrimFunc
from ..stmt import For, ForKind, LetStmt, Stmt
from ..stmt_functor import StmtMapper
from .pass_base import PrimFuncPass


class CollapseParallelLoops(PrimFuncPass):
    """Makes one of parallel loops of which each begins at 0 and is all that the one around it does in an iteration."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Collapse()(func.body))


class _Collapse(StmtMapper):
    def visit_For(self, loop: For) -> Stmt:
        loops = _nest(loop)
        if len(loops) == 1:
            return self.generic_visit(loop)
        extents = [ops.cast(INT64, each.extent) for each in loops]
        rest: PrimExpr = Var("_".join(each.loop_var.name for each in loops), INT64)
        fused, body = rest, self(loops[-1].body)
        # From the innermost outwards, each loop takes the remainder and leaves the quotient.
        for each, extent in zip(loops[:0:-1], extents[:0:-1], strict=True):
            body = LetStmt(each.loop_var, ops.cast(each.loop_var.dtype, ops.truncmod(rest, extent)), body)
            rest = ops.truncdiv(rest, extent)
        body = LetStmt(loop.loop_var, ops.cast(loop.loop_var.dtype, rest), body)
        # Loops of negative extents have no iterations, but the product of two would be positive.
        counts = [extent if isinstance(extent, IntImm) else ops.maximum(extent, 0) for extent in extents]
        return loop.replace(loop_var=fused, extent=functools.reduce(ops.multiply, counts), body=body)


def _nest(loop: For) -> list[For]:
    """The loop, and the parallel ones that can be made one with it: each is the body of the one before."""
    found, outer = [loop], {loop.loop_var}
    while loop.kind is ForKind.PARALLEL and _begins_at_zero(loop):
        inner = loop.body
        if not (isinstance(inner, For) and inner.kind is ForKind.PARALLEL and _begins_at_zero(inner)):
            break
        if not outer.isdisjoint(variables(inner.extent)):
            break
        found.append(inner)
        outer.add(inner.loop_var)
        loop = inner
    return found


def _begins_at_zero(loop: For) -> bool:
    return isinstance(loop.min, IntImm) and loop.min.value == 0
