"""Adding, merging and partitioning loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer, IntervalSet, IterMapLevel, detect_iter_map
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.expr import IntImm, PrimExpr, Range, Var, as_expr, const
from ...runtime.error import InvalidValue
from ..analysis import get_block_read_write_region
from ..block_scope import StmtSRef
from ..expr import BufferLoad, IterVarType
from ..stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt
from ..stmt_functor import RenewDefs, post_order_visit, substitute
from .base import ScheduleBase
from .blockize import lowest_common
from .compute_at import relaxed
from .conditions import as_loop, loop_variables, scope_root_of
from .domain import loop_domains
from .edit import ScopeEdit, SubstituteEdit, as_list
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, ExprRV, LoopRV
from .split_fuse import check_no_annotation, check_starts_at_zero, is_inferred
from .state import ScheduleState


def add_unit_loop(state: ScheduleState, sref: StmtSRef) -> StmtSRef:
    if sref.parent is None:
        raise PrimitiveError(state.mod, "Cannot add loops on top of the root block {0}", sref.stmt)
    inside: Stmt = sref.stmt if isinstance(sref.stmt, For) else state.realize_of(sref)
    loop = For(Var("u", "int32"), const(0, "int32"), const(1, "int32"), ForKind.SERIAL, inside)
    state.replace(sref, loop)
    return state.stmt2ref[loop]


# -- merge --


def merge(state: ScheduleState, srefs: list[StmtSRef]) -> StmtSRef:
    if len(set(srefs)) < 2:
        raise InvalidValue(f"two or more different loops are merged, found {len(set(srefs))}")
    for sref in srefs:
        as_loop(state, sref)
    scope = scope_root_of(state, srefs[0])
    if any(scope_root_of(state, sref) is not scope for sref in srefs):
        raise PrimitiveError(state.mod, "Expected the loops to be under the same block scope.")
    order = {block: i for i, block in enumerate(state.child_blocks(scope))}
    srefs = sorted(srefs, key=lambda sref: order[state.child_blocks(sref)[0]])
    place = lowest_common(srefs)
    if place in srefs:
        raise PrimitiveError(state.mod, "The loops to merge must not be inside of each other: {0}", place.stmt)
    nests = [_nest_below(state, sref, place) for sref in srefs]
    _check_same_nests(state, nests)
    _check_mergeable(state, nests)
    _check_between(state, scope, srefs)
    first = nests[0]
    variables = [loop.loop_var.copy_with_name(f"{loop.loop_var.name}_m") for loop in first]
    reuse: dict[Block, Block] = {}
    bodies: list[Stmt] = []
    for nest in nests:
        edit = SubstituteEdit(dict(zip((loop.loop_var for loop in nest), variables, strict=True)))
        bodies += as_list(edit(nest[-1].body))
        reuse.update(edit.reuse)
    stmt: Stmt = SeqStmt(bodies)
    inner = None
    for loop, var in reversed(list(zip(first, variables, strict=True))):
        stmt = For(var, const(0, var.dtype), loop.extent, ForKind.SERIAL, stmt)
        inner = inner or stmt
    replaced: dict[Stmt, Stmt | None] = {nest[0]: None for nest in nests}
    replaced[nests[-1][0]] = stmt
    old: Block = scope.stmt
    new = ScopeEdit(replaced)(old)
    state.replace(scope, new, {**reuse, old: new})
    return state.stmt2ref[inner] if inner is not None else scope


def _nest_below(state: ScheduleState, sref: StmtSRef, place: StmtSRef) -> list[For]:
    """A loop and those around it below a place, from the outside in.

    Raises `PrimitiveError` unless each is the only statement of the loop around it.
    """
    nest: list[For] = []
    while sref is not place:
        loop = as_loop(state, sref)
        check_no_annotation(state, loop)
        check_starts_at_zero(state, loop)
        if nest and loop.body is not nest[0]:
            raise PrimitiveError(
                state.mod,
                "The loops can't be merged because the inner loop {1} is not the only child of outer loop {0}.",
                loop,
                nest[0],
            )
        nest.insert(0, loop)
        sref = sref.parent
    return nest


def _check_same_nests(state: ScheduleState, nests: Sequence[Sequence[For]]) -> None:
    analyzer = Analyzer()
    for nest in nests[1:]:
        if len(nest) != len(nests[0]):
            raise PrimitiveError(state.mod, "Merge loop's nesting depth must be same, but not.")
        for a, b in zip(nests[0], nest, strict=True):
            if not analyzer.can_prove_equal(a.extent, b.extent):
                raise PrimitiveError(
                    state.mod,
                    f"Merge loop's `extent` must be same, but not: {{0}} has {a.extent}, {{1}} has {b.extent}",
                    a,
                    b,
                )


def _check_between(state: ScheduleState, scope: StmtSRef, srefs: Sequence[StmtSRef]) -> None:
    """Raises `PrimitiveError` if a block between loops uses a buffer of an earlier one, which merging moves past it."""
    members = [set(state.child_blocks(sref)) for sref in srefs]
    blocks = state.child_blocks(scope)
    places = [blocks.index(block) for member in members for block in member]
    used: set[Any] = set()
    for block in blocks[min(places) : max(places) + 1]:
        regions = (*block.stmt.reads, *block.stmt.writes)
        if any(block in member for member in members):
            used.update(r.buffer for r in regions)
        elif any(r.buffer in used for r in regions):
            raise PrimitiveError(
                state.mod,
                "The loops cannot be merged: the block {0} stands between them and uses their buffers",
                block.stmt,
            )


def _check_mergeable(state: ScheduleState, nests: Sequence[Sequence[For]]) -> None:
    """Raises `PrimitiveError` if an iteration of a loop depends on different iterations of an earlier one."""
    written: dict[Any, list[tuple[int, StmtSRef]]] = {}
    for i, nest in enumerate(nests):
        for block in state.child_blocks(state.stmt2ref[nest[0]]):
            for region in block.stmt.writes:
                written.setdefault(region.buffer, []).append((i, block))
    for i, nest in enumerate(nests):
        for block in state.child_blocks(state.stmt2ref[nest[0]]):
            for region in (*block.stmt.reads, *block.stmt.writes):
                for j, other in written.get(region.buffer, ()):
                    if j != i and not _same_iterations(state, nests[j], other, nest, block, region.buffer):
                        raise PrimitiveError(
                            state.mod,
                            f"The loops cannot be merged: an iteration of {{1}} uses what other iterations of {{0}} "
                            f"write to the buffer {region.buffer.name}",
                            other.stmt,
                            block.stmt,
                        )


def _same_iterations(
    state: ScheduleState, nest_a: Sequence[For], a: StmtSRef, nest_b: Sequence[For], b: StmtSRef, buffer: Any
) -> bool:
    """Whether iterations of two nests access the same elements of a buffer only where their loop variables are equal:
    both access the same region, and those of different iterations are disjoint.
    """
    renamed: dict[Var, Any] = {y.loop_var: x.loop_var for x, y in zip(nest_a, nest_b, strict=True)}
    regions: list[list[list[IntervalSet]]] = []
    for sref, nest in ((a, nest_a), (b, nest_b)):
        realize = state.realize_of(sref)
        domains = loop_domains(sref.parent, state.stmt2ref[nest[-1]])
        found = [r for r in (*sref.stmt.reads, *sref.stmt.writes) if r.buffer is buffer]
        regions.append([relaxed(realize, r, domains) for r in found])
    analyzer = Analyzer()
    for one in regions[0]:
        for other in regions[1]:
            for x, y in zip(one, other, strict=True):
                low, high = (substitute(end, renamed) for end in (y.min_value, y.max_value))
                if not analyzer.can_prove_equal(x.min_value, low) or not analyzer.can_prove_equal(x.max_value, high):
                    return False
    domains = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in nest_a}
    return all(_disjoint(part, domains) for part in regions[0])


def _disjoint(part: Sequence[IntervalSet], domains: dict[Var, Range]) -> bool:
    """Whether the regions of a buffer that different iterations of loops access are disjoint."""
    analyzer = Analyzer()
    found = detect_iter_map([axis.min_value for axis in part], domains, check_level=IterMapLevel.Bijective)
    if not found.indices:
        return False
    for total, axis in zip(found.indices, part, strict=True):
        width = axis.max_value - axis.min_value + 1
        if any(not analyzer.can_prove(split.scale >= width) for split in total.args):
            return False
    return True


# -- loop_partition --


def loop_partition(
    state: ScheduleState, sref: StmtSRef, factors: list[Any], preserve_unit_iters: bool
) -> list[StmtSRef]:
    loop = as_loop(state, sref)
    check_no_annotation(state, loop)
    check_starts_at_zero(state, loop)
    blocks = state.child_blocks(sref)
    pending = list(blocks)
    for block in pending:
        pending += state.child_blocks(block)
        if loop.loop_var in loop_variables(state, block, (IterVarType.CommReduce,)):
            # The init runs at the first value of the domain, so it would run once in each part.
            raise PrimitiveError(state.mod, "The block {1} reduces over the loop {0} to partition", loop, block.stmt)
    name = f"{blocks[0].stmt.name_hint}_{loop.loop_var.name}"
    begin = loop.min
    loops: list[For] = []
    parts: list[BlockRealize] = []
    for i, end in enumerate(_partition_ends(state, loop, factors)):
        part = _partition(loop, f"{loop.loop_var.name}{i}", begin, end)
        loops.append(part)
        block = _opaque(f"{name}{i}_partition", part)
        parts.append(BlockRealize((), ops.greater(end, 0), block))
        begin = end
    common = _opaque(f"{name}_common", parts[0] if len(parts) == 1 else SeqStmt(parts))
    state.replace(sref, BlockRealize((), IntImm("bool", 1), common))
    return [state.stmt2ref[part] for part in loops]


def _partition_ends(state: ScheduleState, loop: For, factors: Sequence[Any]) -> list[PrimExpr]:
    """Where the parts end; a factor that is None, or a part after the last one, takes what is left."""
    dtype, analyzer = loop.loop_var.dtype, Analyzer()
    sizes = [None if is_inferred(f) else ops.cast(dtype, as_expr(f)) for f in factors]
    for i, size in enumerate(sizes):
        if isinstance(size, IntImm) and size.value <= 0:
            raise PrimitiveError(
                state.mod, f"All the constant factors are required to be positive. However, the factor {i} is {size}"
            )
    if sum(size is None for size in sizes) > 1:
        raise PrimitiveError(state.mod, "Only one factor can be specified as -1 or none")
    total: PrimExpr = const(0, dtype)
    for size in sizes:
        total = total if size is None else ops.add(total, size)
    if analyzer.can_prove(ops.greater(total, loop.extent)):
        raise PrimitiveError(
            state.mod, f"The sum of factors {total} is larger than the extent {loop.extent} of loop {{0}}", loop
        )
    rest = analyzer.simplify(ops.subtract(loop.extent, total))
    if None not in sizes and not is_number(rest, 0):
        sizes.append(None)
    if None in sizes and analyzer.can_prove(ops.less_equal(rest, 0)):
        raise PrimitiveError(
            state.mod,
            f"The sum of factors {total} leaves nothing of the extent {loop.extent} of loop {{0}} for the part that is "
            "to be inferred",
            loop,
        )
    ends: list[PrimExpr] = []
    for size in sizes:
        end = ops.add(ends[-1] if ends else loop.min, rest if size is None else size)
        ends.append(analyzer.simplify(end))
    return ends


class _Partition(RenewDefs):
    """A copy of a loop's body for a part of its iterations."""

    def __init__(self, var: Var, part: Var, domain: Range):
        super().__init__()
        self.var, self.part, self.domain = var, part, domain
        self.new_vars[var] = part

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        follows = {
            v for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True) if value is self.var
        }
        block = realize.block
        iter_vars = [v.replace(dom=self.domain) if v in follows else v for v in block.iter_vars]
        renamed = self._renamed(block, iter_vars).replace(name_hint=f"{block.name_hint}_{self.part.name}")
        values = [self.visit(value) for value in realize.iter_values]
        return BlockRealize(values, self.visit(realize.predicate), renamed)

    def _renamed(self, block: Block, iter_vars: list[Any]) -> Block:
        changed = block.replace(iter_vars=type(block.iter_vars)(iter_vars))
        return self.visit_Block(changed)


def _partition(loop: For, name: str, begin: PrimExpr, end: PrimExpr) -> For:
    var = loop.loop_var.copy_with_name(name)
    domain = Range.from_min_extent(begin, Analyzer().simplify(ops.subtract(end, begin)))
    body = _Partition(loop.loop_var, var, domain)(loop.body)
    return For(var, domain.min, domain.extent, ForKind.SERIAL, body)


def _opaque(name: str, body: Stmt) -> Block:
    """A block without variables around a statement."""
    block = Block((), (), (), name, body)
    buffers: dict[Var, Any] = {}

    def note(node: Any) -> None:
        if isinstance(node, (BufferLoad, BufferStore)):
            buffers[node.buffer.data] = node.buffer

    post_order_visit(body, note)
    reads, writes = get_block_read_write_region(block, buffers)
    return block.replace(reads=reads, writes=writes)


ADD_UNIT_LOOP = InstructionKind("AddUnitLoop", "add_unit_loop", add_unit_loop, ("block_or_loop",))
MERGE = InstructionKind("Merge", "merge", merge, ("*",))
LOOP_PARTITION = InstructionKind(
    "LoopPartition",
    "loop_partition",
    loop_partition,
    ("loop", "*factors"),
    ("preserve_unit_iters",),
    returns_list=True,
)


class Loops(ScheduleBase):
    """The part of a schedule that adds, merges and partitions loops."""

    def add_unit_loop(self, block_or_loop: LoopRV | BlockRV) -> LoopRV:
        """Adds a loop of one iteration around a loop or a block. Returns it.

        for i in range(8): ...     ->     for u in range(1): for i in range(8): ...

        Raises `ScheduleError` for the root block, which cannot have loops around it.
        """
        return self.apply(ADD_UNIT_LOOP, [block_or_loop])[0]

    def merge(self, *loops: LoopRV) -> LoopRV:
        """Merges loops that stand beside each other, with those around them that they do not share. Returns the
        innermost.

            for i, j in T.grid(8, 8):
                with T.block("B"): ...
            for i, j in T.grid(8, 8):
                with T.block("C"): ...

        becomes, with both loops j,

            for i_m, j_m in T.grid(8, 8):
                with T.block("B"): ...
                with T.block("C"): ...

        The nests must be of the same depth and extents, start at 0, have neither annotations nor threads, and depend on
        one another only within one iteration. Raises `ScheduleError` otherwise.
        """
        return self.apply(MERGE, loops)[0]

    def loop_partition(
        self, loop: LoopRV, factors: Sequence[int | ExprRV | None], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """Partitions a loop into consecutive ones over as many iterations as the factors say, and the rest.

            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)

        becomes, with the factors [2],

            with T.block("B_i_common"):
                with T.block("B_i0_partition"):
                    for i0 in range(2):
                        with T.block("B_i0"):
                            vi = T.axis.spatial(2, i0)
                with T.block("B_i1_partition"):
                    for i1 in range(2, 128):
                        with T.block("B_i1"):
                            vi = T.axis.spatial((2, 128), i1)

        One factor may be None: it takes what the others leave, which must be something. The loop must start at 0, have
        neither annotations nor a thread, and no block may reduce over it. Raises `ScheduleError` otherwise.
        """
        return self.apply(LOOP_PARTITION, [loop, *factors], [preserve_unit_iters])
