"""Conditions that several primitives share, and the errors that say which one failed."""

from __future__ import annotations

from collections.abc import Collection

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import IntImm, PrimExpr, Range, Var
from ..analysis import undefined_vars
from ..analysis.variables import variables
from ..block_scope import StmtSRef
from ..expr import IterVar, IterVarType
from ..stmt import Block, For
from .domain import domain_of, loops_above, uses
from .error import PrimitiveError
from .state import ScheduleState

COMPLETE = """Definition of a complete block:
1) All block vars are data parallel
2) Dominant: the block is the only writer of its output, dominating the reader of its output buffers
3) No overlap between the buffers the block reads and writes"""
REDUCTION = """Definition of a reduction block:
1) The block has the `init` statement
2) All the block bindings are quasi-affine expressions
3) All block vars are either data parallel block vars or reduction block vars
4) Dominant: the block is the only writer of its output, dominating the reader of its output buffers
5) The reduction block vars are not used to index the output buffers"""
PIPELINE = """Definition of a scope that is a stage pipeline:
- The region cover property holds for every of its child blocks
- No write-after-read dependency or opaque dependency,
- only read-after-write and write-after-write are allowed
- All the statements in the scope are schedulable statements, i.e. Block and For"""


Blocks = Collection[StmtSRef] | None


def scope_root_of(state: ScheduleState, sref: StmtSRef, stage_pipeline: bool = False) -> StmtSRef:
    """The block around a statement. Raises `PrimitiveError` for the root block and, with `stage_pipeline`, for a block
    around it that is no stage pipeline.
    """
    if sref.parent is None:
        raise PrimitiveError(state.mod, "The primitive does not operate on the root block")
    scope = state.scope_of(sref.parent)
    if stage_pipeline and state.enable_check and not state.is_stage_pipeline(scope):
        raise PrimitiveError(state.mod, f"The scope {{0}} is not a stage pipeline.\n{PIPELINE}", scope.stmt)
    return scope


def is_dominant(state: ScheduleState, block: StmtSRef, scope: StmtSRef, among: Blocks = None) -> bool:
    """Whether a block alone writes what it writes, in its scope or `among` some blocks of it."""
    writers = state.get_block_scope(scope).buffer_writers
    return all(
        sum(among is None or writer in among for writer in writers.get(region.buffer, (block,))) == 1
        for region in block.stmt.writes
    )


def complete_violation(state: ScheduleState, block: StmtSRef, scope: StmtSRef, among: Blocks = None) -> int:
    """The number of the first condition of complete blocks that a block breaks; 0 if it breaks none."""
    stmt: Block = block.stmt
    if any(v.iter_type != IterVar.DataPar for v in stmt.iter_vars):
        return 1
    if not is_dominant(state, block, scope, among):
        return 2
    written = {region.buffer for region in stmt.writes}
    return 3 if any(region.buffer in written for region in stmt.reads) else 0


def reduction_violation(state: ScheduleState, block: StmtSRef, scope: StmtSRef, among: Blocks = None) -> int:
    """The number of the first condition of reduction blocks that a block breaks; 0 if it breaks none."""
    stmt: Block = block.stmt
    if stmt.init is None:
        return 1
    if not state.block_info[block].affine_binding:
        return 2
    if not only_spatial_and_reduction(stmt):
        return 3
    if not is_dominant(state, block, scope, among):
        return 4
    reduced = {v.var for v in stmt.iter_vars if v.iter_type == IterVar.CommReduce}
    indexes = any(uses(e, reduced) is not None for w in stmt.writes for r in w.region for e in (r.min, r.extent))
    return 5 if indexes else 0


def is_complete(state: ScheduleState, block: StmtSRef, scope: StmtSRef) -> bool:
    """Whether a block is complete: data parallel, the only writer, and no reader of what it writes."""
    return complete_violation(state, block, scope) == 0


def is_reduction(state: ScheduleState, block: StmtSRef, scope: StmtSRef) -> bool:
    """Whether a block is a reduction with an init that alone writes its result."""
    return reduction_violation(state, block, scope) == 0


def check_complete(state: ScheduleState, block: StmtSRef, scope: StmtSRef) -> None:
    """Raises `PrimitiveError` for a block that is not complete."""
    number = complete_violation(state, block, scope)
    if number:
        message = f"The block {{0}} is not a complete block - it violates condition #{number}.\n{COMPLETE}"
        raise PrimitiveError(state.mod, message, block.stmt)


def check_reduction(state: ScheduleState, block: StmtSRef, scope: StmtSRef) -> None:
    """Raises `PrimitiveError` for a block that is not a reduction."""
    number = reduction_violation(state, block, scope)
    if number:
        message = f"The block {{0}} is not a reduction block - it violates condition #{number}.\n{REDUCTION}"
        raise PrimitiveError(state.mod, message, block.stmt)


def check_complete_or_reduction(state: ScheduleState, block: StmtSRef, scope: StmtSRef) -> None:
    """Raises `PrimitiveError` for a block that is neither complete nor a reduction."""
    complete = complete_violation(state, block, scope)
    reduction = reduction_violation(state, block, scope) if complete else 0
    if complete and reduction:
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} is not a complete block - it violates condition #{complete}.\n{COMPLETE}\n"
            f"And it is not a reduction block - it violates condition #{reduction}.\n{REDUCTION}",
            block.stmt,
        )


def check_subtree_compact_dataflow(
    state: ScheduleState, sref: StmtSRef, scope: StmtSRef, writers_below: bool = False
) -> None:
    """Raises `PrimitiveError` if a block below a loop is neither complete nor a reduction in its scope.

    With `writers_below`, what blocks write must not be written by others below the loop, and may be elsewhere.
    """
    blocks = state.child_blocks(sref)
    among = blocks if writers_below else None
    for block in blocks:
        complete = complete_violation(state, block, scope, among)
        reduction = reduction_violation(state, block, scope, among) if complete else 0
        if complete and reduction:
            raise PrimitiveError(
                state.mod,
                "The queried subtree {0} in SRef tree does not have compact dataflow, because its child block {1} on "
                "SRef tree is neither a complete block nor a reduction block.\n"
                f"It violates condition #{complete} as a complete block.\n{COMPLETE}\n"
                f"It violates condition #{reduction} as a reduction block.\n{REDUCTION}",
                sref.stmt,
                block.stmt,
            )


def check_affine_binding(state: ScheduleState, block: Block) -> None:
    """Raises `PrimitiveError` for a block whose variables are not independent digits of loops."""
    if state.enable_check and not state.block_info[state.stmt2ref[block]].affine_binding:
        raise PrimitiveError(state.mod, "The block {0} is required to have an affine binding", block)


def only_spatial_and_reduction(block: Block) -> bool:
    """Whether all variables of a block are data parallel or reductions."""
    return all(v.iter_type in (IterVarType.DataPar, IterVarType.CommReduce) for v in block.iter_vars)


def check_self_contained(state: ScheduleState, sref: StmtSRef) -> None:
    """Raises `PrimitiveError` for a block that uses loop variables other than in the values of its own variables, or
    those of loops outside of its scope. Both occur around blocks without variables.
    """
    block: Block = sref.stmt
    inside = {loop.stmt.loop_var for loop in loops_above(sref.parent)}
    outside: set[Var] = set()
    above = state.scope_of(sref.parent).parent if sref.parent is not None else None
    while above is not None:
        if isinstance(above.stmt, For):
            outside.add(above.stmt.loop_var)
        above = above.parent
    used = set[Var]() if block.iter_vars else (inside | outside).intersection(undefined_vars(block))
    if outside and not used:
        realize = state.realize_of(sref)
        used = variables(*realize.iter_values, realize.predicate) & outside
    if used:
        names = ", ".join(sorted(var.name for var in used))
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} follows the loops {names} otherwise than by values of its variables from loops of its "
            "own scope",
            block,
        )


def check_runs_everywhere(state: ScheduleState, sref: StmtSRef) -> None:
    """Raises `PrimitiveError` for a block whose predicate excludes some values of its variables."""
    realize = state.realize_of(sref)
    analyzer = Analyzer()
    for loop in loops_above(sref.parent):
        analyzer.bind(loop.stmt.loop_var, Range.from_min_extent(loop.stmt.min, loop.stmt.extent))
    known: PrimExpr = IntImm("bool", 1)
    for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        domain = domain_of(v)
        known = ops.logical_and(known, ops.less(value, domain.min + domain.extent))
    with analyzer.constraint_scope(known):
        if not analyzer.can_prove(realize.predicate):
            raise PrimitiveError(
                state.mod, f"The block {{0}} runs only where {realize.predicate}, not everywhere", realize.block
            )


def as_loop(state: ScheduleState, sref: StmtSRef) -> For:
    """The loop that a handle stands for; raises `PrimitiveError` for that of a block."""
    if not isinstance(sref.stmt, For):
        raise PrimitiveError(state.mod, "The primitive expects a loop, found the block {0}", sref.stmt)
    return sref.stmt


def as_block(state: ScheduleState, sref: StmtSRef) -> Block:
    """The block that a handle stands for; raises `PrimitiveError` for that of a loop."""
    if not isinstance(sref.stmt, Block):
        raise PrimitiveError(state.mod, "The primitive expects a block, found the loop {0}", sref.stmt)
    return sref.stmt


def is_higher(a: StmtSRef, b: StmtSRef) -> bool:
    """Whether a statement is around another one."""
    above: StmtSRef | None = b.parent
    while above is not None and above is not a:
        above = above.parent
    return above is a


def loop_variables(state: ScheduleState, block: StmtSRef, kinds: tuple[IterVarType, ...]) -> set[Var]:
    """The loop variables in the values of a block's variables of some kinds."""
    realize = state.realize_of(block)
    found: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iter_var.iter_type in kinds:
            found |= variables(value)
    return found
