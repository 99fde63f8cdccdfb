"""Caches laid out in the order of the iterations of the block that uses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arith import Analyzer
from ...arith.constraint import conjuncts
from ...arith.int_set import is_infinite
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Var, as_int
from ...ir.operators import same_exprs
from ..analysis.variables import variables
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..index_map import IndexMap
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, LetStmt, Stmt
from ..stmt_functor import post_order_visit, substitute
from .base import ScheduleBase
from .buffers import buffer_index, check_memory, in_memory, nth_region
from .cache import check_overwrites, only_writer, place_before_readers, readers_of
from .conditions import as_block, check_runs_everywhere, check_self_contained, scope_root_of
from .domain import domain_of, end_of, loops_above, own_domains, uses
from .edit import BlockEdit, ScopeEdit, as_list
from .error import PrimitiveError
from .instruction import InstructionKind
from .layout import BufferArgument, buffer_access, default_dtype, render_buffer
from .random_variable import BlockRV
from .state import ScheduleState


class _AtPoint(BlockEdit):
    """Redirects all accesses to a buffer, which are to one element, to an element of another buffer."""

    def __init__(self, old: Buffer, new: Buffer, point: Sequence[PrimExpr]):
        super().__init__()
        self.old, self.new, self.point = old, new, Array(point)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        return self._access(self.generic_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        return self._access(self.generic_visit(store))

    def _access(self, node: Any) -> Any:
        return node.replace(buffer=self.new, indices=self.point) if node.buffer is self.old else node

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return BufferRegion.from_point(self.new, self.point) if region.buffer is self.old else region


def single_access(state: ScheduleState, block: Block, buffer: Buffer) -> Array[PrimExpr]:
    """The indices of a block's only access to a buffer; raises `PrimitiveError` for several, and for uses of its
    pointer.
    """
    found: list[Any] = []

    def note(node: Any) -> None:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is buffer:
            found.append(node.indices)

    for stmt in (block.init, block.body):
        if stmt is not None:
            post_order_visit(stmt, note)
    own = {v.var for v in block.iter_vars}
    inner = variables_defined_in(block) - own
    if found and not inner.isdisjoint(variables(*found[0])):
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} accesses the buffer {buffer.name} under loops or blocks of its own",
            block,
        )
    if not found or any(not same_exprs(indices, found[0]) for indices in found):
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} is expected to access the buffer {buffer.name} at the same indices everywhere, found "
            f"{len(found)} accesses" + (" at different ones" if found else ""),
            block,
        )
    return found[0]


def variables_defined_in(block: Block) -> set[Var]:
    """The variables of a block and of the loops and blocks in it."""
    found: set[Var] = set()

    def note(node: Any) -> None:
        if isinstance(node, (For, LetStmt)):
            found.add(node.loop_var if isinstance(node, For) else node.var)
        elif isinstance(node, Block):
            found.update(v.var for v in node.iter_vars)

    post_order_visit(block, note)
    return found


def reindex(state: ScheduleState, sref: StmtSRef, buffer_index: int, buffer_index_type: int) -> StmtSRef:
    block = as_block(state, sref)
    write = bool(buffer_index_type)
    buffer = nth_region(state, block, buffer_index, write).buffer
    scope = scope_root_of(state, sref, stage_pipeline=True)
    check_overwrites(state, block, buffer)
    check_self_contained(state, sref)
    if write:
        check_runs_everywhere(state, sref)
    analyzer = Analyzer()
    for v in block.iter_vars:
        if as_int(domain_of(v).extent) != 1:  # an axis of one element stays an axis
            analyzer.bind(v.var, domain_of(v))
    indices = [analyzer.simplify(index) for index in single_access(state, block, buffer)]
    _check_in_bounds(state, block, buffer, indices, analyzer)
    used = variables(*indices)
    covered = [v for v in block.iter_vars if v.var in used]
    cache = in_memory(buffer, buffer.scope(), f"{buffer.name}_reindex", [end_of(v) for v in covered])
    source, target = (cache, buffer) if write else (buffer, cache)
    stage, copy = _reindex_stage(covered, indices, source, target, write)
    position = position_of_chain(state, sref, scope) + (1 if write else 0)
    edit = _AtPoint(buffer, cache, [v.var for v in covered])
    return _add(state, scope, scope, position, stage, copy, cache, edit, sref)


def _check_in_bounds(
    state: ScheduleState, block: Block, buffer: Buffer, indices: Sequence[PrimExpr], analyzer: Analyzer
) -> None:
    """Raises `PrimitiveError` for an access that only a condition in the block keeps in bounds: the copy has none."""
    domains = own_domains(block)
    for index, dim in zip(indices, buffer.shape, strict=True):
        values: Any = analyzer.int_set(index, domains)
        # A symbolic index may be unbounded.
        least, most = values.min_value, values.max_value
        below = not is_infinite(least) and analyzer.can_prove(ops.less(least, 0))
        if below or (not is_infinite(most) and analyzer.can_prove(ops.greater_equal(most, dim))):
            raise PrimitiveError(
                state.mod,
                f"The block {{0}} accesses the buffer {buffer.name} at {index}, which is outside of it for some "
                "iterations",
                block,
            )


def position_of_chain(state: ScheduleState, sref: StmtSRef, scope: StmtSRef) -> int:
    """The position in its scope of a block that is alone under its loops."""
    loops = list(loops_above(sref.parent))
    inner: Any = state.realize_of(sref)
    for loop in loops:
        if loop.stmt.body is not inner:
            raise PrimitiveError(
                state.mod, "The block {0} is expected to be the only statement under its loops", sref.stmt
            )
        inner = loop.stmt
    return as_list(scope.stmt.body).index(inner)


def _reindex_stage(
    covered: Sequence[IterVar], indices: Sequence[PrimExpr], source: Buffer, target: Buffer, write: bool
) -> tuple[Stmt, Block]:
    """Loops that copy between a buffer and one with a dimension for each of some variables."""
    fresh = [IterVar(v.dom, Var(f"v{i}", v.dtype), IterVar.DataPar) for i, v in enumerate(covered)]
    renamed: dict[Var, Any] = {old.var: new.var for old, new in zip(covered, fresh, strict=True)}
    outside = [substitute(index, renamed) for index in indices]
    inside: list[PrimExpr] = [v.var for v in fresh]
    read, written = (inside, outside) if write else (outside, inside)
    name = f"{target.name}_reindex"
    block = _copy(fresh, source, read, target, written, name)
    loops = [Var(f"ax{i}", v.dtype) for i, v in enumerate(fresh)]
    stmt: Stmt = BlockRealize(loops, IntImm("bool", 1), block)
    for loop, v in reversed(list(zip(loops, fresh, strict=True))):
        stmt = For(loop, domain_of(v).min, domain_of(v).extent, ForKind.SERIAL, stmt)
    return stmt, block


def _copy(
    iters: Sequence[IterVar],
    source: Buffer,
    read: Sequence[PrimExpr],
    target: Buffer,
    written: Sequence[PrimExpr],
    name: str,
) -> Block:
    return Block(
        iters,
        [BufferRegion.from_point(source, read)],
        [BufferRegion.from_point(target, written)],
        name,
        BufferStore(target, BufferLoad(source, read), written),
    )


def _add(
    state: ScheduleState,
    scope: StmtSRef,
    place: StmtSRef,
    position: int,
    stage: Stmt,
    copy: Block,
    cache: Buffer,
    edit: BlockEdit,
    user: StmtSRef,
) -> StmtSRef:
    """Adds a copy to a scope, and makes one block use the cache."""
    old: Block = scope.stmt
    new = ScopeEdit({user.stmt: edit.visit(user.stmt)}, {place.stmt: (position, stage)})(old)
    new = new.replace(alloc_buffers=Array([*old.alloc_buffers, cache]))
    state.replace(scope, new, {**edit.reuse, old: new})
    return state.stmt2ref[copy]


# -- reindex_cache_read and reindex_cache_write --


def reindex_cache_read(
    state: ScheduleState, sref: StmtSRef, index_map: IndexMap, read_buffer_index: int, storage_scope: str
) -> StmtSRef:
    return _reindex_cache(state, sref, read_buffer_index, storage_scope, index_map, write=False)


def reindex_cache_write(
    state: ScheduleState, sref: StmtSRef, index_map: IndexMap, write_buffer_index: int, storage_scope: str
) -> StmtSRef:
    return _reindex_cache(state, sref, write_buffer_index, storage_scope, index_map, write=True)


def _reindex_cache(
    state: ScheduleState, sref: StmtSRef, index: int, storage_scope: str, index_map: IndexMap, write: bool
) -> StmtSRef:
    block = as_block(state, sref)
    check_memory(storage_scope)
    region = nth_region(state, block, index, write)
    buffer = region.buffer
    scope = scope_root_of(state, sref)
    _check_point(state, block, region, write)
    check_self_contained(state, sref)
    check_overwrites(state, block, buffer)
    writer = only_writer(state, scope, buffer)
    if write:
        place, position = place_before_readers(state, scope, sref, readers_of(state, scope, sref))
    elif writer is not None:
        place, position = place_before_readers(state, scope, writer, [sref])
    else:
        place, position = scope, 0
    variables = [v.var for v in block.iter_vars]
    if len(index_map.initial_indices) != len(variables):
        raise PrimitiveError(
            state.mod,
            f"The index map takes {len(index_map.initial_indices)} indices, but the block {{0}} has {len(variables)} "
            "variables",
            block,
        )
    analyzer = Analyzer()
    for v in block.iter_vars:
        analyzer.bind(v.var, domain_of(v))
    _check_in_bounds(state, block, buffer, [r.min for r in region.region], analyzer)
    point = index_map.map_indices(variables)
    shape = index_map.map_shape([end_of(v) for v in block.iter_vars])
    cache = in_memory(buffer, storage_scope, shape=shape)
    outside = [r.min for r in region.region]
    stage, copy = _loop_stage(state, sref, place, buffer, outside, cache, point, write)
    edit = _AtPoint(buffer, cache, point)
    return _add(state, scope, place, position, stage, copy, cache, edit, sref)


def _check_point(state: ScheduleState, block: Block, region: BufferRegion, write: bool) -> None:
    if not all(is_number(r.extent, 1) for r in region.region):
        name = "reindex_cache_write" if write else "reindex_cache_read"
        raise PrimitiveError(
            state.mod,
            f"The buffer region {region} accessed inside block {{0}} is not a single point, which violates the "
            f"prerequisite of {name} primitive.",
            block,
        )


def _loop_stage(
    state: ScheduleState,
    sref: StmtSRef,
    place: StmtSRef,
    buffer: Buffer,
    outside: Sequence[PrimExpr],
    cache: Buffer,
    inside: Sequence[PrimExpr],
    write: bool,
) -> tuple[Stmt, Block]:
    """A copy under those loops, and with those variables, of a block that the indices depend on."""
    realize = state.realize_of(sref)
    used = variables(*outside, *inside)
    kept = [(v, value) for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True) if v.var in used]
    loops = [loop.stmt for loop in loops_above(sref.parent, place)][::-1]
    needed = variables(*[value for _, value in kept])
    guard: PrimExpr = IntImm("bool", 1)
    for part in conjuncts(realize.predicate):
        if uses(part, needed) is not None:
            guard = ops.logical_and(guard, part)
    needed |= variables(guard)
    loops = [loop for loop in loops if loop.loop_var in needed]
    renamed: dict[Var, Any] = {loop.loop_var: loop.loop_var.copy_with_name(loop.loop_var.name) for loop in loops}
    fresh: list[IterVar] = []
    for v, _ in kept:
        renamed[v.var] = v.var.copy_with_name(v.var.name)
        fresh.append(IterVar(v.dom, renamed[v.var], IterVar.DataPar))
    out = [substitute(i, renamed) for i in outside]
    into = [substitute(i, renamed) for i in inside]
    source, read, target, written = (cache, into, buffer, out) if write else (buffer, out, cache, into)
    memory = cache.scope()
    block = _copy(fresh, source, read, target, written, f"{buffer.name}_{memory}")
    stmt: Stmt = BlockRealize([substitute(value, renamed) for _, value in kept], substitute(guard, renamed), block)
    for loop in reversed(loops):
        stmt = For(renamed[loop.loop_var], loop.min, loop.extent, ForKind.SERIAL, stmt)
    return stmt, block


REINDEX = InstructionKind(
    "ReIndex", "reindex", reindex, ("block",), ("buffer_index", "buffer_index_type"), render=render_buffer
)
REINDEX_CACHE_READ = InstructionKind(
    "ReindexCacheRead",
    "reindex_cache_read",
    reindex_cache_read,
    ("block", "index_map"),
    ("read_buffer_index", "storage_scope"),
    order=("block", "read_buffer_index", "storage_scope", "index_map"),
)
REINDEX_CACHE_WRITE = InstructionKind(
    "ReindexCacheWrite",
    "reindex_cache_write",
    reindex_cache_write,
    ("block", "index_map"),
    ("write_buffer_index", "storage_scope"),
    order=("block", "write_buffer_index", "storage_scope", "index_map"),
)


class Reindex(ScheduleBase):
    """The part of a schedule that makes caches in the order of a block's iterations."""

    def reindex(self, block: BlockRV | str, buffer: BufferArgument) -> BlockRV:
        """Makes a block use a copy of a buffer with a dimension for each of its variables that index the buffer.

            for i, j in T.grid(128, 128):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vj, vi] * 2.0

        becomes, with `reindex("B", ("read", 0))`,

            for ax0, ax1 in T.grid(128, 128):
                with T.block("A_reindex_reindex"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    A_reindex[v0, v1] = A[v1, v0]
            for i, j in T.grid(128, 128):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A_reindex[vi, vj] * 2.0

        Returns the copy, which stands right before the block, or after it for a buffer that it writes. The block must
        be alone under its loops, and access the buffer at one element. The buffer is given as ("read", 0), by name,
        or as such.
        """
        handle = self._block(block)
        index, kind = buffer_access(self.get(handle), buffer)
        return self.apply(REINDEX, [handle], [index, kind])[0]

    def reindex_cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        index_map: IndexMap | Callable[..., Any],
    ) -> BlockRV:
        """Like `cache_read` for one block, with a cache indexed by a function of the block's variables.

        B[vi, vj] = A[vj, vi]     ->     B[vi, vj] = A_shared[vi * 128 + vj], with `lambda i, j: i * 128 + j`

        The block must read one element at a time. Raises `ScheduleError` otherwise.
        """
        handle = self._block(block)
        stmt: Block = self.get(handle)
        index = buffer_index(stmt, read_buffer_index, write=False)
        mapped = self._map_of(stmt, index_map)
        return self.apply(REINDEX_CACHE_READ, [handle, mapped], [index, storage_scope])[0]

    def reindex_cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        index_map: IndexMap | Callable[..., Any],
    ) -> BlockRV:
        """Like `cache_write`, with a cache indexed by a function of the block's variables.

        B[vi, vj] = A[vi, vj]     ->     B_shared[vj, vi] = A[vi, vj], with `lambda i, j: (j, i)`

        The block must write one element at a time. Raises `ScheduleError` otherwise.
        """
        handle = self._block(block)
        stmt: Block = self.get(handle)
        index = buffer_index(stmt, write_buffer_index, write=True)
        mapped = self._map_of(stmt, index_map)
        return self.apply(REINDEX_CACHE_WRITE, [handle, mapped], [index, storage_scope])[0]

    def _map_of(self, block: Block, index_map: IndexMap | Callable[..., Any]) -> IndexMap:
        if isinstance(index_map, IndexMap):
            return index_map
        return IndexMap.from_func(index_map, ndim=len(block.iter_vars), index_dtype=default_dtype(block))
