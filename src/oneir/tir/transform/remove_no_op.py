"""RemoveNoOp: removes statements that do nothing.

if n > 0:
    T.evaluate(0)    ->    A[0] = 1.0
A[0] = 1.0
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array, map_array
from ...ir.expr import IntImm, PrimExpr, Range, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import (
    Allocate,
    AllocateConst,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    flat_seq,
    is_no_op,
)
from ..stmt_functor import StmtMapper
from .analyzed import has_effect, reads
from .overwritten import Nest, overwriting
from .pass_base import PrimFuncPass, config_option
from .simplify import stores_what_is_there

_NOTHING = Evaluate(0)


class RemoveNoOp(PrimFuncPass):
    """Removes empty loops, branches and definitions, pure evaluations, and stores that write back a loaded element.

    Options are those of `RemoveNoOpConfig`, under "tir.RemoveNoOp".
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_RemoveNoOp(config_option(ctx, "tir.RemoveNoOp", RemoveNoOpConfig))(func.body))


@dataclass(frozen=True)
class RemoveNoOpConfig:
    """use_dataflow_analysis: also remove stores that later ones overwrite before anything reads them.
    max_simplification_steps: so many statements are looked at for that in one sequence; 0: all.
    """

    use_dataflow_analysis: bool = False
    max_simplification_steps: int = 0


register_config_option("tir.RemoveNoOp", RemoveNoOpConfig)


def _effects_of(*exprs: PrimExpr) -> Stmt:
    """Evaluations of those expressions that have side effects."""
    return flat_seq([Evaluate(e) for e in exprs if has_effect(e)])


class _RemoveNoOp(StmtMapper):
    def __init__(self, config: RemoveNoOpConfig):
        super().__init__()
        self.config = config
        self.around: list[tuple[Var, Range] | PrimExpr] = []
        """The loops and the conditions that hold at the statement at hand, outermost first."""

    def visit_Evaluate(self, node: Evaluate) -> Any:
        return node if is_no_op(node) or has_effect(node.value) else _NOTHING

    def visit_BufferStore(self, node: BufferStore) -> Any:
        return _NOTHING if stores_what_is_there(node) or self.stores_same_element(node) else node

    def stores_same_element(self, store: BufferStore) -> bool:
        """Whether a store writes back what it loads by indices that are only known to be equal here."""
        load = store.value
        if not isinstance(load, BufferLoad) or load.buffer is not store.buffer or load.predicate or store.predicate:
            return False
        if not all(isinstance(known, tuple) or not reads(known) for known in self.around):
            return False  # memory may have changed since
        analyzer = Analyzer()
        with ExitStack() as scopes:
            for known in self.around:
                if isinstance(known, tuple):
                    analyzer.bind(*known, allow_override=True)
                else:
                    scopes.enter_context(analyzer.constraint_scope(known))
            return all(analyzer.can_prove_equal(a, b) for a, b in zip(load.indices, store.indices, strict=True))

    def inside(self, known: tuple[Var, Range] | PrimExpr, stmt: Stmt) -> Stmt:
        """A statement visited in a loop or under a condition."""
        self.around.append(known)
        new = self.visit(stmt)
        self.around.pop()
        return new

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        seq = map_array(node.seq, self.visit)
        if self.config.use_dataflow_analysis:
            seq = self.without_overwritten(seq)
        return node if seq is node.seq and not any(is_no_op(s) for s in seq) else flat_seq(seq)

    def without_overwritten(self, seq: Array[Stmt]) -> Array[Stmt]:
        """The statements without those whose stores a later one overwrites; the last ones are looked at first."""
        kept, analyzer = list(seq), Analyzer()
        steps = self.config.max_simplification_steps or len(kept)
        for i in range(len(kept) - 2, max(len(kept) - 2 - steps, -1), -1):
            nest = Nest.of(kept[i])
            if nest is not None and overwriting(kept, i, nest.condition, analyzer):
                del kept[i]
        return seq if len(kept) == len(seq) else Array(kept)

    def visit_For(self, node: For) -> Any:
        if isinstance(node.extent, IntImm) and node.extent.value <= 0:
            return _effects_of(node.min)
        span = Range.from_min_extent(node.min, node.extent)
        new = node.replace(body=self.inside((node.loop_var, span), node.body))
        return _effects_of(node.min, node.extent) if is_no_op(new.body) else new

    def visit_While(self, node: While) -> Any:
        if isinstance(node.condition, IntImm) and not node.condition.value:
            return _NOTHING
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        if isinstance(node.condition, IntImm):
            case = node.then_case if node.condition.value else node.else_case
            return _NOTHING if case is None else self.visit(case)
        then_case, else_case = self.inside(node.condition, node.then_case), node.else_case
        if else_case is not None:
            else_case = self.inside(ops.logical_not(node.condition), else_case)
        new = node.replace(then_case=then_case, else_case=else_case)
        else_case = None if new.else_case is None or is_no_op(new.else_case) else new.else_case
        if is_no_op(new.then_case) and else_case is None:
            return _effects_of(node.condition)
        return new.replace(else_case=else_case)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        new = self.generic_visit(node)
        return _effects_of(node.value) if is_no_op(new.body) else new

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key == "pragma_debug_skip_region":
            return _NOTHING
        new = self.generic_visit(node)
        return _effects_of(node.value) if is_no_op(new.body) else new

    def visit_allocation(self, node: Allocate | AllocateConst | DeclBuffer) -> Any:
        new = self.generic_visit(node)
        return _NOTHING if is_no_op(new.body) else new

    visit_Allocate = visit_AllocateConst = visit_DeclBuffer = visit_allocation
