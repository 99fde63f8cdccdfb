"""Reductions: separating the init from the update, and reducing in two steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...arith.constraint import conjuncts
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, const
from ..analysis.variables import variables
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar, IterVarType
from ..stmt import Block, BlockRealize, BufferRegion, For, ForKind, SeqStmt, Stmt
from ..stmt_functor import StmtMapper, loads, post_order_visit, renew_stmt, substitute
from .base import ScheduleBase
from .buffers import in_memory
from .conditions import as_block, as_loop, check_reduction, scope_root_of
from .domain import loops_above, uses
from .edit import ScopeEdit
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, LoopRV
from .reducer import Reduction, reduction_of
from .state import ScheduleState


def decompose_reduction(state: ScheduleState, sref: StmtSRef, loop_sref: StmtSRef) -> StmtSRef:
    block, loop = as_block(state, sref), as_loop(state, loop_sref)
    loops = list(loops_above(sref.parent))[::-1]
    if loop_sref not in loops:
        raise PrimitiveError(
            state.mod,
            "The input loop {0} of decompose_reduction is required to be an ancestor of block {1}.",
            loop,
            block,
        )
    check_reduction(state, sref, scope_root_of(state, sref))
    realize = state.realize_of(sref)
    place = loops.index(loop_sref)
    _check_above_reduction(state, realize, [outer.stmt for outer in loops[:place]], loop)
    _check_no_repetition(state, realize, [inner.stmt for inner in loops[place:]])
    init_realize, kept = _init_realize(realize, [inner.stmt for inner in loops[place:]])
    stmt: Stmt = init_realize
    renamed: dict[Var, PrimExpr] = {}
    for inner in reversed(kept):
        var = inner.loop_var.copy_with_name(f"{inner.loop_var.name}_init")
        renamed[inner.loop_var] = var
        binding = inner.thread_binding
        if binding is not None:
            binding = binding.replace(var=binding.var.copy_with_name(binding.var.name))
        stmt = inner.replace(loop_var=var, body=stmt, thread_binding=binding)
    stmt = substitute(stmt, renamed)
    written = [region for region in block.writes if all(r.buffer is not region.buffer for r in block.reads)]
    only_init = {load.buffer for load in loads(block.init)} - {load.buffer for load in loads(block.body)}
    reads = [region for region in block.reads if region.buffer not in only_init]
    update = block.replace(name_hint=f"{block.name_hint}_update", init=None, reads=Array([*written, *reads]))
    changed = ScopeEdit({block: update}).visit(loop)
    state.replace(loop_sref, SeqStmt([stmt, changed]), {block: update})
    result = stmt
    while isinstance(result, For):
        result = result.body
    assert isinstance(result, BlockRealize)
    return state.stmt2ref[result.block]


def _check_above_reduction(state: ScheduleState, realize: BlockRealize, outer: Sequence[For], loop: For) -> None:
    """Raises `PrimitiveError` for a loop inside of one that is reduced over: the init would run repeatedly."""
    above = {stmt.loop_var for stmt in outer}
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iter_var.iter_type == IterVar.CommReduce and uses(value, above) is not None:
            raise PrimitiveError(
                state.mod,
                "decompose_reduction expect the loop {0} to be higher than all the loops related to reduce block var "
                "of block {1}",
                loop,
                realize.block,
            )


def _check_no_repetition(state: ScheduleState, realize: BlockRealize, inner: Sequence[For]) -> None:
    """Raises `PrimitiveError` for a loop that repeats the reduction: an init before the loop would run only once."""
    used = variables(*realize.iter_values)
    for loop in inner:
        if loop.loop_var not in used | variables(realize.predicate) and not is_number(loop.extent, 1):
            raise PrimitiveError(
                state.mod,
                "The loop {0} repeats the reduction of the block {1}: its init cannot stand before the loop",
                loop,
                realize.block,
            )


def init_condition(realize: BlockRealize) -> tuple[PrimExpr, set[Var]]:
    """The condition under which a reduction's init runs, and the variables that its values and that depend on."""
    spatial: list[PrimExpr] = []
    reduced: list[PrimExpr] = []
    for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (spatial if v.iter_type == IterVar.DataPar else reduced).append(value)
    used = variables(*spatial)
    only_reduced = variables(*reduced) - used
    predicate: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(realize.predicate):
        # A condition on reduction variables does not concern the init.
        if uses(part, only_reduced) is None:
            predicate = ops.logical_and(predicate, part)
            used |= variables(part)
    return predicate, used


def _init_realize(realize: BlockRealize, loops: Sequence[For]) -> tuple[BlockRealize, list[For]]:
    """The init as a block over the data parallel variables, and the loops that it needs."""
    block = realize.block
    kept = [
        (v, value)
        for v, value in zip(block.iter_vars, realize.iter_values, strict=True)
        if v.iter_type == IterVar.DataPar
    ]
    fresh: dict[Var, Any] = {v.var: v.var.copy_with_name(v.var.name) for v, _ in kept}
    init = Block(
        [v.replace(var=fresh[v.var]) for v, _ in kept],
        [BufferRegion.from_point(load.buffer, load.indices) for load in loads(substitute(block.init, fresh))],
        [substitute(region, fresh) for region in block.writes],
        f"{block.name_hint}_init",
        substitute(block.init, fresh),
        annotations=block.annotations,
    )
    predicate, used = init_condition(realize)
    needed = [loop for loop in loops if loop.loop_var in used]
    return BlockRealize([value for _, value in kept], predicate, init), needed


# -- rfactor --


def rfactor(state: ScheduleState, loop_sref: StmtSRef, factor_axis: int) -> StmtSRef:
    loop = as_loop(state, loop_sref)
    sref = only_block(state, loop_sref)
    block, scope = as_block(state, sref), scope_root_of(state, sref, stage_pipeline=True)
    check_reduction(state, sref, scope)
    if loop.kind != ForKind.SERIAL:
        raise PrimitiveError(
            state.mod,
            "The input loop {0} of rfactor is required to be `Serial`. However, the kind of {0} is "
            f"`{loop.kind.name.capitalize()}`",
            loop,
        )
    realize = state.realize_of(sref)
    loops = list(loops_above(sref.parent))[::-1]
    reduced = _check_loops(state, realize, loops, loop_sref)
    reduction = reduction_of(state, block)
    axis = _factor_axis(state, reduction.buffers[0], factor_axis)
    partial = [_partial_buffer(buffer, axis, loop.extent) for buffer in reduction.buffers]
    first = _first_step(realize, loop, [outer.stmt for outer in loops], reduction, partial, axis)
    second = _second_step(realize, loop, reduction, partial, axis)
    reached = _runs_condition(realize, loop, [outer.stmt for outer in loops], reduced)
    second = second.replace(predicate=ops.logical_and(second.predicate, reached))
    nest = _under_loops(first, [outer.stmt for outer in loops])
    old: Block = scope.stmt
    rest = _Shortened({outer.stmt for outer in loops}, reduced, loop, realize, second).visit(loops[0].stmt)
    new = ScopeEdit({loops[0].stmt: SeqStmt([nest, rest])})(old)
    new = new.replace(alloc_buffers=old.alloc_buffers + partial)
    state.replace(scope, new, {old: new, block: second.block})
    result: Any = nest
    while isinstance(result, For):
        result = result.body
    return state.stmt2ref[result.block]


def only_block(state: ScheduleState, loop: StmtSRef) -> StmtSRef:
    """The only block below a loop; raises `PrimitiveError` if there are several."""
    blocks = state.child_blocks(loop)
    if len(blocks) != 1:
        raise PrimitiveError(
            state.mod,
            f"The {{0}} is required to have only one child block, but it has {len(blocks)}: "
            f"{', '.join(f'{{{i + 1}}}' for i in range(len(blocks)))}",
            loop.stmt,
            *[block.stmt for block in blocks],
        )
    return blocks[0]


def _check_loops(state: ScheduleState, realize: BlockRealize, loops: Sequence[StmtSRef], target: StmtSRef) -> set[Var]:
    """The variables of the loops that are reduced over; raises `PrimitiveError` for what `rfactor` cannot take."""
    spatial: set[Var] = set()
    reduced: set[Var] = set()
    for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (spatial if v.iter_type == IterVar.DataPar else reduced).update(variables(value))
    if state.child_blocks(loops[0])[0].stmt is not realize.block:
        raise PrimitiveError(
            state.mod, "The first child block of the outermost loop {0} is not the reduction block.", loops[0].stmt
        )
    met = False
    for sref in loops:
        loop: For = sref.stmt
        if loop.loop_var in spatial and loop.loop_var in reduced:
            raise PrimitiveError(
                state.mod,
                "It is not allowed that the loop {0} is touched by both some data parallel block iters and some "
                "reduction block iters",
                loop,
            )
        if loop.loop_var in spatial and sref is target:
            raise PrimitiveError(
                state.mod,
                "The loop to be applied rfactor is {0}, which is required not to be touched by any data parallel block "
                "iter of the block below. However, some of the block's data parallel block iters touch this loop",
                loop,
            )
        if loop.loop_var in reduced and not met:
            only_block(state, sref)
            met = True
        elif loop.loop_var not in spatial | reduced and met and not is_number(loop.extent, 1):
            raise PrimitiveError(
                state.mod,
                "The loop {0} has extent greater than one, and is not bound to any block iter. Therefore it shouldn't "
                "appear under a reduction loop",
                loop,
            )
    return reduced


def _runs_condition(realize: BlockRealize, loop: For, loops: Sequence[For], reduced: set[Var]) -> PrimExpr:
    """The condition under which the block runs in an iteration of a loop; parts are left out unless they are known to
    exclude the last iteration.
    """
    analyzer = Analyzer()
    first = {outer.loop_var: outer.min for outer in loops if outer.loop_var in reduced and outer is not loop}
    condition: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(realize.predicate):
        if uses(part, {loop.loop_var}) is not None:
            at_first = analyzer.simplify(substitute(part, first))
            if is_number(analyzer.simplify(substitute(at_first, {loop.loop_var: loop.min + loop.extent - 1})), 0):
                condition = ops.logical_and(condition, at_first)
    return condition


def _factor_axis(state: ScheduleState, buffer: Buffer, axis: int) -> int:
    ndim = len(buffer.shape)
    if not -(ndim + 1) <= axis <= ndim:
        raise PrimitiveError(
            state.mod,
            f"The write buffer {buffer.name} has {ndim} dimension(s), so `factor_axis` is required to be in "
            f"[{-(ndim + 1)}, {ndim}] for rfactor. However, the input `factor_axis` is {axis}, which is out of the "
            "expected range",
        )
    return axis + ndim + 1 if axis < 0 else axis


def _partial_buffer(buffer: Buffer, axis: int, extent: PrimExpr) -> Buffer:
    """A buffer with one more dimension, for the partial result of each iteration of the factored loop."""
    shape = [*buffer.shape[:axis], extent, *buffer.shape[axis:]]
    return in_memory(buffer, buffer.scope(), f"{buffer.name}_rf", shape)


def _with(values: Sequence[Any], axis: int, value: Any) -> list[Any]:
    return [*values[:axis], value, *values[axis:]]


def _first_step(
    realize: BlockRealize,
    loop: For,
    loops: Sequence[For],
    reduction: Reduction,
    partial: list[Buffer],
    axis: int,
) -> BlockRealize:
    """The block that reduces each iteration of the factored loop separately.

    A variable whose value depends on that loop is replaced by one variable for each loop in its value.
    """
    block = realize.block
    by_var = {outer.loop_var: outer for outer in loops}
    factored = _variable_of(loop, IterVar.DataPar)
    iter_vars: list[IterVar] = [factored]
    values: list[PrimExpr] = [loop.loop_var]
    from_loops: dict[Var, PrimExpr] = {loop.loop_var: factored.var}
    renamed: dict[Var, PrimExpr] = {}
    for v, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if v.iter_type == IterVar.DataPar or uses(value, {loop.loop_var}) is None:
            iter_vars.append(v)
            values.append(value)
            continue
        for var in in_order(value):
            if var in by_var and var not in from_loops:
                fresh = _variable_of(by_var[var], IterVar.CommReduce)
                from_loops[var] = fresh.var
                iter_vars.append(fresh)
                values.append(var)
        renamed[v.var] = substitute(value, from_loops)
    indices = _with(reduction.indices, axis, factored.var)
    added = [substitute(expr, renamed) for expr in reduction.added]
    point = Range.from_min_extent(factored.var, const(1, factored.var.dtype))

    def regions(olds: Sequence[BufferRegion]) -> list[BufferRegion]:
        result: list[BufferRegion] = []
        for region in olds:
            ranges = [substitute(r, renamed) for r in region.region]
            if region.buffer in reduction.buffers:
                ranges = _with(ranges, axis, point)
            buffer = partial[reduction.buffers.index(region.buffer)] if region.buffer in reduction.buffers else None
            result.append(BufferRegion(buffer or region.buffer, ranges))
        return result

    new = Block(
        iter_vars,
        regions(block.reads),
        regions(block.writes),
        f"{block.name_hint}_rf",
        reduction.store(partial, indices, added),
        reduction.start(partial, indices),
        annotations=block.annotations,
    )
    # The two blocks must not share variables.
    return realize.replace(iter_values=Array(values), block=renew_stmt(new))


def in_order(expr: PrimExpr) -> list[Var]:
    """The variables of an expression in the order in which they stand in it."""
    found: list[Var] = []
    post_order_visit(expr, lambda node: found.append(node) if isinstance(node, Var) and node not in found else None)
    return found


def _variable_of(loop: For, kind: IterVarType) -> IterVar:
    """A variable of a block whose value is a loop variable."""
    return IterVar(
        Range.from_min_extent(loop.min, loop.extent), Var(f"v{loop.loop_var.name}", loop.loop_var.dtype), kind
    )


def _second_step(
    realize: BlockRealize, loop: For, reduction: Reduction, partial: list[Buffer], axis: int
) -> BlockRealize:
    """The block that reduces the partial results of the factored loop."""
    block = realize.block
    factored = _variable_of(loop, IterVar.CommReduce)
    iter_vars: list[IterVar] = [factored]
    values: list[PrimExpr] = [loop.loop_var]
    renamed: dict[Var, Any] = {}
    for v, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if v.iter_type == IterVar.DataPar:
            fresh = v.replace(var=v.var.copy_with_name(v.var.name))
            renamed[v.var] = fresh.var
            iter_vars.append(fresh)
            values.append(value)
    indices = [substitute(index, renamed) for index in reduction.indices]
    factors = _with(indices, axis, factored.var)
    added = [BufferLoad(buffer, factors) for buffer in partial]
    new = Block(
        iter_vars,
        [BufferRegion.from_point(buffer, factors) for buffer in partial],
        [BufferRegion.from_point(buffer, indices) for buffer in reduction.buffers],
        block.name_hint,
        reduction.store(reduction.buffers, indices, added),
        reduction.start(reduction.buffers, indices),
        annotations=block.annotations,
    )
    return BlockRealize(values, init_condition(realize)[0], new)


def _under_loops(realize: BlockRealize, loops: Sequence[For]) -> Stmt:
    """A block under copies of loops."""
    renamed: dict[Var, Any] = {loop.loop_var: loop.loop_var.copy_with_name(loop.loop_var.name) for loop in loops}
    stmt: Any = realize.replace(
        iter_values=Array(substitute(value, renamed) for value in realize.iter_values),
        predicate=substitute(realize.predicate, renamed),
    )
    for loop in reversed(loops):
        stmt = loop.replace(loop_var=renamed[loop.loop_var], body=stmt)
    return stmt


class _Shortened(StmtMapper):
    """Removes the loops that are reduced over, except the factored one, and replaces the block inside."""

    def __init__(self, path: set[For], reduced: set[Var], kept: For, old: BlockRealize, new: BlockRealize):
        super().__init__()
        self.path, self.reduced, self.kept, self.old, self.new = path, reduced, kept, old, new

    def visit_For(self, loop: For) -> Any:
        if loop not in self.path:
            return loop
        body = self.visit(loop.body)
        return loop.replace(body=body) if loop is self.kept or loop.loop_var not in self.reduced else body

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        return self.new if realize is self.old else realize


DECOMPOSE_REDUCTION = InstructionKind(
    "DecomposeReduction", "decompose_reduction", decompose_reduction, ("block", "loop")
)
RFACTOR = InstructionKind("RFactor", "rfactor", rfactor, ("loop",), ("factor_axis",))


class Reductions(ScheduleBase):
    """The part of a schedule that splits reductions."""

    def decompose_reduction(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Makes a block of a reduction's init, right before a loop around it. Returns that block.

            for i, j, k in T.grid(128, 128, 128):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[vi, vj] = 0.0
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

        becomes, with the loop i,

            for i_init, j_init in T.grid(128, 128):
                with T.block("C_init"):
                    vi, vj = T.axis.remap("SS", [i_init, j_init])
                    C[vi, vj] = 0.0
            for i, j, k in T.grid(128, 128, 128):
                with T.block("C_update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

        The block must be a reduction, the loop around it, and not inside of a loop that is reduced over. Raises
        `ScheduleError` otherwise.
        """
        return self.apply(DECOMPOSE_REDUCTION, [self._block(block), loop])[0]

    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Reduces in two steps: over the other loops for each iteration of one loop, and then over that one.

            for k0, k1 in T.grid(4, 32):
                with T.block("B"):
                    vk = T.axis.reduce(128, k0 * 32 + k1)
                    with T.init():
                        B[()] = 0.0
                    B[()] = B[()] + A[vk]

        becomes, with the loop k0 and axis 0,

            B_rf = T.alloc_buffer((4,))
            for k0, k1 in T.grid(4, 32):
                with T.block("B_rf"):
                    vk0, vk1 = T.axis.remap("SR", [k0, k1])
                    with T.init():
                        B_rf[vk0] = 0.0
                    B_rf[vk0] = B_rf[vk0] + A[vk0 * 32 + vk1]
            for k0 in range(4):
                with T.block("B"):
                    vk0 = T.axis.reduce(4, k0)
                    with T.init():
                        B[()] = 0.0
                    B[()] = B[()] + B_rf[vk0]

        Returns the first block; the handle of the old one is that of the second. `factor_axis` is where the new
        buffer's dimension for the loop stands. The order of additions changes. The block must be a reduction that
        `reduction_of` knows, the loop serial and only reduced over; no loop may be both. Raises `ScheduleError`
        otherwise.
        """
        return self.apply(RFACTOR, [loop], [factor_axis])[0]
