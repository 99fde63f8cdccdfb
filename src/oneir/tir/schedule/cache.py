"""Caching: a block that copies a buffer, or a part of one, to another memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer, IntervalSet
from ...arith.int_set import is_infinite
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, const
from ...ir.structural import structural_equal
from ..analysis.variables import variables
from ..block_scope import DepKind, StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, Stmt
from .base import ScheduleBase
from .buffers import Redirect, buffer_index, check_memory, in_memory, nth_region
from .conditions import as_block, scope_root_of
from .cover import consumed_region, unbound_region
from .domain import loop_domains, own_domains
from .edit import ScopeEdit, as_list
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV
from .state import ScheduleState


def cache_read(
    state: ScheduleState, sref: StmtSRef, consumers: list[StmtSRef], read_buffer_index: int, storage_scope: str
) -> StmtSRef:
    block = as_block(state, sref)
    check_memory(storage_scope)
    buffer = nth_region(state, block, read_buffer_index, write=False).buffer
    scope = scope_root_of(state, sref)
    writer = only_writer(state, scope, buffer)
    if writer is not None:
        place, position = place_before_readers(state, scope, writer, consumers or readers_of(state, scope, writer))
        region = relaxed_region(state, writer, buffer, place)
    else:
        place, position = scope, 0
        region = next((r.region for r in scope.stmt.reads if r.buffer is buffer), BufferRegion.full(buffer).region)
    if place is scope and _leaves(scope.stmt, buffer, region):
        region = _clipped(buffer, region)
    # A cache that is filled part by part must have room for all of them.
    whole = place is not scope or _follows_loops(scope, region)
    cache = in_memory(buffer, storage_scope, shape=None if whole else [r.extent for r in region])
    stage, copy = copy_stage(place, buffer, cache, region, f"{buffer.name}_{storage_scope}", whole, from_cache=False)
    redirect = Redirect(buffer, cache, None if whole else [r.min for r in region])
    readers = consumers or [b for b in state.child_blocks(scope) if all(w.buffer is not buffer for w in b.stmt.writes)]
    return add_stage(state, scope, place, position, stage, copy, cache, redirect, readers)


def cache_write(
    state: ScheduleState, sref: StmtSRef, consumers: list[StmtSRef], write_buffer_index: int, storage_scope: str
) -> StmtSRef:
    block = as_block(state, sref)
    check_memory(storage_scope)
    buffer = nth_region(state, block, write_buffer_index, write=True).buffer
    scope = scope_root_of(state, sref)
    only_writer(state, scope, buffer)
    check_overwrites(state, block, buffer)
    readers = [reader for reader in readers_of(state, scope, sref) if reader not in consumers]
    if readers:
        place, position = place_before_readers(state, scope, sref, readers)
    else:
        place, position = scope, len(as_list(_undeclared(scope.stmt.body)))
    region = relaxed_region(state, sref, buffer, place)
    if place is scope and _leaves(scope.stmt, buffer, region):
        region = _clipped(buffer, region)
    # A cache that is filled part by part must have room for all of them.
    whole = place is not scope or _follows_loops(scope, region)
    cache = in_memory(buffer, storage_scope, shape=None if whole else [r.extent for r in region])
    stage, copy = copy_stage(place, cache, buffer, region, f"{buffer.name}_{storage_scope}", whole, from_cache=True)
    redirect = Redirect(buffer, cache, None if whole else [r.min for r in region])
    return add_stage(state, scope, place, position, stage, copy, cache, redirect, [sref, *consumers])


def _follows_loops(scope: StmtSRef, region: Sequence[Range]) -> bool:
    """Whether a region depends on the variables of loops around a block."""
    used = variables(*[end for r in region for end in (r.min, r.extent)])
    above = scope.parent
    while above is not None:
        if isinstance(above.stmt, For) and above.stmt.loop_var in used:
            return True
        above = above.parent
    return False


def _leaves(block: Block, buffer: Buffer, region: Sequence[Range]) -> bool:
    """Whether a region that a block declares is known to be larger than the buffer, as with padding."""
    analyzer, domains = Analyzer(), own_domains(block)
    for r, dim in zip(region, buffer.shape, strict=True):
        low: Any = analyzer.int_set(r.min, domains)
        high: Any = analyzer.int_set(r.min + r.extent - 1, domains)
        if analyzer.can_prove(ops.less(low.min_value, 0)) or analyzer.can_prove(ops.greater_equal(high.max_value, dim)):
            return True
    return False


def _clipped(buffer: Buffer, region: Sequence[Range]) -> Array[Range]:
    """The part of a region that is in the buffer; all of the buffer where that is no constant."""
    analyzer = Analyzer()
    ranges: list[Range] = []
    for r, dim in zip(region, buffer.shape, strict=True):
        low = analyzer.simplify(ops.maximum(r.min, 0))
        extent = analyzer.simplify(ops.subtract(ops.minimum(r.min + r.extent, dim), low))
        constant = isinstance(low, IntImm) and isinstance(extent, IntImm)
        ranges.append(Range.from_min_extent(low, extent) if constant else Range(dim))
    return Array(ranges)


def _undeclared(body: Any) -> Any:
    """A body without the declarations around it."""
    while type(body).__name__ in ("AllocateConst", "DeclBuffer"):
        body = body.body
    return body


def check_overwrites(state: ScheduleState, block: Block, buffer: Buffer) -> None:
    """Raises `PrimitiveError` for a block that updates what a buffer held before, since the cache does not hold it.

    A reduction that starts with its init holds what it reads.
    """
    read, written = ([r for r in regions if r.buffer is buffer] for regions in (block.reads, block.writes))
    accumulates = block.init is not None and all(structural_equal(r, w) for r in read for w in written)
    if read and written and not accumulates:
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} reads the buffer {buffer.name} that it writes: a cache would not hold what it reads",
            block,
        )


def cache_inplace(state: ScheduleState, sref: StmtSRef, read_buffer_index: int, storage_scope: str) -> list[StmtSRef]:
    block = as_block(state, sref)
    check_memory(storage_scope)
    buffer = nth_region(state, block, read_buffer_index, write=False).buffer
    scope = scope_root_of(state, sref)
    written = next((r for r in block.writes if r.buffer is buffer), None)
    if written is None:
        raise PrimitiveError(
            state.mod, f"The target buffer block {{0}} does not both read & write target buffer {buffer.name}.", block
        )
    place, realize = sref.parent, state.realize_of(sref)
    read = unbound_region(realize, nth_region(state, block, read_buffer_index, write=False))
    cache = in_memory(buffer, storage_scope)
    name = f"{buffer.name}_{storage_scope}"
    before, copied_in = copy_stage(place, buffer, cache, read, name, True, from_cache=False)
    after, copied_out = copy_stage(place, cache, buffer, unbound_region(realize, written), name, True, from_cache=True)
    redirect = Redirect(buffer, cache)
    changed = realize.replace(block=redirect.visit(block))
    old: Block = scope.stmt
    stmts: Stmt = SeqStmt([*as_list(before), changed, *as_list(after)])
    new = ScopeEdit({realize: stmts})(old)
    new = new.replace(alloc_buffers=Array([*old.alloc_buffers, cache]))
    state.replace(scope, new, {**redirect.reuse, old: new})
    return [state.stmt2ref[copied_in], state.stmt2ref[copied_out]]


def only_writer(state: ScheduleState, scope: StmtSRef, buffer: Buffer) -> StmtSRef | None:
    """The block of a scope that writes a buffer; raises `PrimitiveError` if several do."""
    writers = state.get_block_scope(scope).buffer_writers.get(buffer, [])
    if len(writers) > 1:
        raise PrimitiveError(
            state.mod,
            f"The buffer {buffer.name} is expected to be written by single block, but got {len(writers)} blocks who "
            f"write it: {', '.join(f'{{{i}}}' for i in range(len(writers)))}",
            *[writer.stmt for writer in writers],
        )
    return writers[0] if writers else None


def readers_of(state: ScheduleState, scope: StmtSRef, writer: StmtSRef) -> list[StmtSRef]:
    dependencies = state.get_block_scope(scope).get_deps_by_src(writer)
    return [d.dst for d in dependencies if d.kind == DepKind.RAW]


def place_before_readers(
    state: ScheduleState, scope: StmtSRef, writer: StmtSRef, readers: Sequence[StmtSRef]
) -> tuple[StmtSRef, int]:
    """The lowest statement around a block and the first of its readers, and the reader's position in there."""
    blocks = state.child_blocks(scope)
    later = [b for b in blocks[blocks.index(writer) + 1 :] if b in readers]
    if not later:
        return scope, len(as_list(_undeclared(scope.stmt.body)))
    above: set[StmtSRef] = set()
    place = writer.parent
    while place is not scope.parent:
        above.add(place)
        place = place.parent
    inner, place = later[0], later[0].parent
    while place not in above:
        inner, place = place, place.parent
    stmts = as_list(_undeclared(place.stmt.body))
    position = next(i for i, stmt in enumerate(stmts) if inner.stmt in (stmt, getattr(stmt, "block", None)))
    return place, position


def relaxed_region(state: ScheduleState, writer: StmtSRef, buffer: Buffer, place: StmtSRef) -> Array[Range]:
    """The region of a buffer that a block writes in one iteration of an outer loop, or one run of an outer block."""
    write = next(r for r in writer.stmt.writes if r.buffer is buffer)
    analyzer = Analyzer()
    ranges: list[Range] = []
    for values, dim in zip(consumed_region(state.realize_of(writer), write, writer, place), buffer.shape, strict=True):
        if not isinstance(values, IntervalSet) or is_infinite(values.min_value) or is_infinite(values.max_value):
            ranges.append(Range(dim))
            continue
        low = analyzer.simplify(values.min_value)
        ranges.append(Range.from_min_extent(low, analyzer.simplify(values.max_value - low + 1)))
    return Array(ranges)


def copy_stage(
    place: StmtSRef,
    source: Buffer,
    target: Buffer,
    region: Sequence[Range],
    name: str,
    whole: bool,
    *,
    from_cache: bool,
) -> tuple[Stmt, Block]:
    """Loops that copy a region from one buffer to another at a place, and the block inside of them.

    Unless `whole`, the cache, which is the source or the target, holds only the region. Where the region leaves the
    buffer, as that of the last of uneven tiles does, the copy is guarded.
    """
    loops = [Var(f"ax{i}", r.extent.dtype) for i, r in enumerate(region)]
    variables = [Var(f"v{i}", r.extent.dtype) for i, r in enumerate(region)]
    full = target if from_cache else source
    inside: list[PrimExpr] = list(variables)
    outside: list[PrimExpr] = inside if whole else [r.min + v for r, v in zip(region, variables, strict=True)]
    read, written = (inside, outside) if from_cache else (outside, inside)
    extents = list(full.shape) if whole else [r.extent for r in region]
    block = Block(
        [
            IterVar(Range.from_min_extent(const(0, v.dtype), _as(v, extent)), v, IterVar.DataPar)
            for v, extent in zip(variables, extents, strict=True)
        ],
        [BufferRegion.from_point(source, read)],
        [BufferRegion.from_point(target, written)],
        name,
        BufferStore(target, BufferLoad(source, read), written),
    )
    values = [r.min + loop if whole else loop for r, loop in zip(region, loops, strict=True)]
    guard: PrimExpr = IntImm("bool", 1)
    if whole:
        analyzer = Analyzer()
        for var, domain in {**loop_domains(place), **dict(zip(loops, map(_from_zero, region), strict=True))}.items():
            analyzer.bind(var, domain)
        for value, dim in zip(values, full.shape, strict=True):
            for inside in (ops.less_equal(const(0, value.dtype), value), ops.less(value, dim)):
                if not analyzer.can_prove(inside):
                    guard = ops.logical_and(guard, inside)
    stmt: Stmt = BlockRealize(values, guard, block)
    for loop, r in reversed(list(zip(loops, region, strict=True))):
        stmt = For(loop, const(0, loop.dtype), r.extent, ForKind.SERIAL, stmt)
    return stmt, block


def _from_zero(r: Range) -> Range:
    return Range.from_min_extent(const(0, r.extent.dtype), r.extent)


def _as(var: Var, extent: PrimExpr) -> PrimExpr:
    return extent if extent.dtype is var.dtype else extent.astype(var.dtype)


def add_stage(
    state: ScheduleState,
    scope: StmtSRef,
    place: StmtSRef,
    position: int,
    stage: Stmt,
    copy: Block,
    cache: Buffer,
    redirect: Redirect,
    users: Sequence[StmtSRef],
) -> StmtSRef:
    """Adds a copy to a scope, which allocates the cache, and makes the users of the buffer use the cache."""
    old: Block = scope.stmt
    replaced: dict[Stmt, Stmt | None] = {user.stmt: redirect.visit(user.stmt) for user in users}
    new = ScopeEdit(replaced, {place.stmt: (position, stage)})(old)
    new = new.replace(alloc_buffers=[*old.alloc_buffers, cache])
    state.replace(scope, new, {**redirect.reuse, old: new})
    return state.stmt2ref[copy]


CACHE_READ = InstructionKind(
    "CacheRead",
    "cache_read",
    cache_read,
    ("block", "*consumer_blocks"),
    ("read_buffer_index", "storage_scope"),
    order=("block", "read_buffer_index", "storage_scope", "consumer_blocks"),
)
CACHE_WRITE = InstructionKind(
    "CacheWrite",
    "cache_write",
    cache_write,
    ("block", "*consumer_blocks"),
    ("write_buffer_index", "storage_scope"),
    order=("block", "write_buffer_index", "storage_scope", "consumer_blocks"),
)
CACHE_INPLACE = InstructionKind(
    "CacheInplace",
    "cache_inplace",
    cache_inplace,
    ("block",),
    ("read_buffer_index", "storage_scope"),
    returns_list=True,
)


class Cache(ScheduleBase):
    """The part of a schedule that caches buffers."""

    def cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        """Copies what a block reads to another memory, from where it, and other readers, take it. Returns the copy.

            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    B[vi] = A[vi] * 2.0

        becomes, with `cache_read("B", 0, "local")`,

            A_local = T.alloc_buffer((128,), scope="local")
            for ax0 in range(128):
                with T.block("A_local"):
                    v0 = T.axis.spatial(128, ax0)
                    A_local[v0] = A[v0]
            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    B[vi] = A_local[vi] * 2.0

        The buffer is given by its position among the reads, by name, or as such. Only `consumer_blocks`, if given, read
        the copy. At most one block of the scope may write the buffer.
        """
        handle = self._block(block)
        index = buffer_index(self.get(handle), read_buffer_index, write=False)
        consumers = [self._block(b) for b in consumer_blocks or ()]
        return self.apply(CACHE_READ, [handle, *consumers], [index, storage_scope])[0]

    def cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        """Makes a block write to another memory, from where a new block copies the result. Returns the copy.

            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    B[vi] = A[vi] * 2.0

        becomes, with `cache_write("B", 0, "local")`,

            B_local = T.alloc_buffer((128,), scope="local")
            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    B_local[vi] = A[vi] * 2.0
            for ax0 in range(128):
                with T.block("B_local"):
                    v0 = T.axis.spatial(128, ax0)
                    B[v0] = B_local[v0]

        The buffer is given as for `cache_read`; `consumer_blocks` read the cache and not the copy of it. The block must
        be the only one of the scope that writes the buffer.
        """
        handle = self._block(block)
        index = buffer_index(self.get(handle), write_buffer_index, write=True)
        consumers = [self._block(b) for b in consumer_blocks or ()]
        return self.apply(CACHE_WRITE, [handle, *consumers], [index, storage_scope])[0]

    def cache_inplace(
        self, block: BlockRV | str, read_buffer_index: int | str | Buffer, storage_scope: str
    ) -> list[BlockRV]:
        """Lets a block that changes a buffer in place work on a copy. Returns the blocks that copy in and out.

            with T.block("B"):  # A[vi] = A[vi] + 1.0

        becomes

            with T.block("A_local"):  # A_local[v0] = A[v0]
            with T.block("B"):  # A_local[vi] = A_local[vi] + 1.0
            with T.block("A_local"):  # A[v0] = A_local[v0]

        The block must read and write the buffer. Raises `ScheduleError` otherwise.
        """
        handle = self._block(block)
        index = buffer_index(self.get(handle), read_buffer_index, write=False)
        return self.apply(CACHE_INPLACE, [handle], [index, storage_scope])
