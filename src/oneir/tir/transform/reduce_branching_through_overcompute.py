"""ReduceBranchingThroughOvercompute: removes a branch where computing always does no harm.

    for i in range(16):                           for i in range(16):
        if i < 14:                                    B[i] = A[i] * 2.0
            B[i] = A[i] * 2.0          ->         for i in range(16):
    for i in range(16):                               if i >= 14:
        if i >= 14:                                       B[i] = 0.0
            B[i] = 0.0

The additional iterations must do what the other side of the branch does, write back the values that are there, or, with
dataflow analysis, be overwritten before anything reads it; and its accesses must be known to lie within their buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array, map_array
from ...ir.expr import PrimExpr, Var, const
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext, register_config_option
from ..analysis.variables import variables
from ..function import PrimFunc
from ..stmt import IfThenElse, SeqStmt, Stmt, is_no_op
from ..stmt_functor import renew_stmt, substitute
from .analyzed import AnalyzedMapper, analyzer_for, in_bounds, reads
from .overwritten import Nest, overwriting
from .pass_base import PrimFuncPass, config_option
from .simplify import StmtSimplifier


class ReduceBranchingThroughOvercompute(PrimFuncPass):
    """Removes branches around what may as well always be computed.

    Options are those of `ReduceBranchingThroughOvercomputeConfig`, under "tir.ReduceBranchingThroughOvercompute".
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        config = config_option(ctx, "tir.ReduceBranchingThroughOvercompute", ReduceBranchingThroughOvercomputeConfig)
        return func.with_body(_Overcompute(analyzer_for(func), config)(func.body))


@dataclass(frozen=True)
class ReduceBranchingThroughOvercomputeConfig:
    """use_dataflow_analysis: also compute what later stores overwrite."""

    use_dataflow_analysis: bool = False


register_config_option("tir.ReduceBranchingThroughOvercompute", ReduceBranchingThroughOvercomputeConfig)


class _Overcompute(AnalyzedMapper):
    def __init__(self, analyzer: Analyzer, config: ReduceBranchingThroughOvercomputeConfig):
        super().__init__(analyzer)
        self.config = config

    def visit(self, node: Any) -> Any:
        return node if isinstance(node, PrimExpr) else super().visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        new: IfThenElse = super().visit_IfThenElse(node)
        if reads(new.condition):
            return new
        then_case, else_case = new.then_case, new.else_case
        if self.serves(then_case, ops.logical_not(new.condition), else_case):
            return then_case
        if else_case is not None and self.serves(else_case, new.condition, then_case):
            return else_case
        return new

    def serves(self, general: Stmt, condition: PrimExpr, special: Stmt | None) -> bool:
        """Whether a statement does, where a condition holds, what another one (None: nothing) does there."""
        if not in_bounds(general, self.analyzer):
            return False
        with self.analyzer.constraint_scope(condition):
            does = self.there(general, condition)
            return is_no_op(does) if special is None else structural_equal(does, self.there(special, condition))

    def there(self, stmt: Stmt, condition: PrimExpr) -> Stmt:
        """What a statement does where a condition holds, which is known: it may leave one value of a variable."""
        values: dict[Var, PrimExpr] = {}
        for var in variables(condition):
            bound = self.analyzer.const_int_bound(var) if var.dtype.is_index else None
            if bound is not None and bound.min_value == bound.max_value:
                values[var] = const(bound.min_value, var.dtype)
        return StmtSimplifier(self.analyzer).visit(renew_stmt(substitute(stmt, values)))

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        seq = map_array(node.seq, self.visit)
        if self.config.use_dataflow_analysis:
            statements = list(seq)
            for i in range(len(statements) - 2, -1, -1):
                statements[i] = self.without_branch(statements, i)
            if any(new is not old for new, old in zip(statements, seq, strict=True)):
                seq = Array(statements)
        return node if seq is node.seq else SeqStmt(seq)

    def without_branch(self, seq: list[Stmt], index: int) -> Stmt:
        """The nest at `index` without its condition, if what that adds is overwritten later."""
        nest = Nest.of(seq[index])
        if nest is None:
            return seq[index]
        nest.bind(self.analyzer)
        condition = ops.logical_not(nest.condition)
        if not in_bounds(nest.store, self.analyzer) or not overwriting(seq, index, condition, self.analyzer):
            return seq[index]
        body: Stmt = nest.store
        for loop in reversed(nest.loops):
            body = loop.replace(body=body)
        return body
