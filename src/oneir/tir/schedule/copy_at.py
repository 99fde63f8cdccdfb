"""Copies of the region that one iteration of a loop accesses, each a single block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer, IntervalSet
from ...arith.constraint import conjuncts
from ...arith.int_set import union
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, const
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, IfThenElse, Stmt
from ..stmt_functor import substitute
from .base import ScheduleBase
from .buffers import Redirect, buffer_index, check_memory, in_memory, nth_region
from .compute_at import relaxed
from .conditions import as_block, as_loop, check_self_contained, scope_root_of
from .cover import covers, written_region
from .domain import domain_of, loop_domains, uses
from .edit import ScopeEdit, as_list
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, LoopRV
from .reduction import in_order
from .state import ScheduleState, children


def read_at(
    state: ScheduleState, loop: StmtSRef, block: StmtSRef, read_buffer_index: int, storage_scope: str
) -> StmtSRef:
    return _copy_at(state, loop, block, read_buffer_index, storage_scope, write=False)


def write_at(
    state: ScheduleState, loop: StmtSRef, block: StmtSRef, write_buffer_index: int, storage_scope: str
) -> StmtSRef:
    return _copy_at(state, loop, block, write_buffer_index, storage_scope, write=True)


def _copy_at(
    state: ScheduleState, loop_sref: StmtSRef, sref: StmtSRef, index: int, memory: str, write: bool
) -> StmtSRef:
    loop = as_loop(state, loop_sref)
    check_memory(memory)
    buffer = nth_region(state, as_block(state, sref), index, write).buffer
    scope = scope_root_of(state, loop_sref, stage_pipeline=True)
    stmts = as_list(loop.body)
    found = [_blocks(state, stmt) for stmt in stmts]
    readers = [i for i, blocks in enumerate(found) if any(_touches(b.stmt.reads, buffer) for b in blocks)]
    writers = [i for i, blocks in enumerate(found) if any(_touches(b.stmt.writes, buffer) for b in blocks)]
    places = writers if write else readers
    others = readers if write else writers
    wrong = [i for i in others if (i > places[-1] if write else i >= places[0])] if places else others
    if not places or wrong:
        kind = "written" if write else "read"
        raise PrimitiveError(
            state.mod,
            f"The buffer {buffer.name} is expected to be {kind} under the loop {{0}}, and "
            + ("not read after the last write" if write else "not written after the first read"),
            loop,
        )
    cache = in_memory(buffer, memory)
    users = [b for i in places for b in found[i]]
    domain = _accessed(state, loop_sref, users, buffer, cache, write)
    if write:
        _check_written(state, loop_sref, users, buffer, cache, domain)
    source, target = (cache, buffer) if write else (buffer, cache)
    outer = loop_domains(loop_sref)
    realize = _copy_block(source, target, f"{buffer.name}_{memory}", outer, domain)
    for user in users:
        check_self_contained(state, user)
        _check_written_before(state, user, buffer, loop, [b for i in places for b in found[i]])
    redirect = Redirect(buffer, cache)
    first, end = (0, places[-1] + 1) if write else (places[0], len(stmts))
    replaced: dict[Stmt, Stmt | None] = {b.stmt: redirect.visit(b.stmt) for i in range(first, end) for b in found[i]}
    inner = ScopeEdit(replaced, {loop: (end if write else first, realize)}).visit(loop)
    old: Block = scope.stmt
    new = ScopeEdit({loop: inner})(old)
    new = new.replace(alloc_buffers=Array([*old.alloc_buffers, cache]))
    state.replace(scope, new, {**redirect.reuse, old: new})
    return state.stmt2ref[realize.block]


def _check_written_before(
    state: ScheduleState, user: StmtSRef, buffer: Buffer, loop: For, users: Sequence[StmtSRef]
) -> None:
    """Raises `PrimitiveError` for a block that updates what a buffer held before the iteration: the copy lacks it.

    What a reduction updates it has initialized, in the copy.
    """
    block: Block = user.stmt
    if not (_touches(block.reads, buffer) and _touches(block.writes, buffer)) or block.init is not None:
        return
    earlier = users[: users.index(user)]
    if not any(_touches(b.stmt.writes, buffer) for b in earlier) or not state.block_info[user].region_cover:
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} reads the buffer {buffer.name} that it writes, and the loop {{1}} does not write "
            "before what it reads",
            block,
            loop,
        )


def _check_written(
    state: ScheduleState,
    loop: StmtSRef,
    users: Sequence[StmtSRef],
    buffer: Buffer,
    cache: Buffer,
    domain: Sequence[Range],
) -> None:
    """Raises `PrimitiveError` for blocks that do not write all of a region: the rest of the copy would be undefined.

    Threads that share the memory of the copy write it together.
    """
    written = [
        written_region(state.realize_of(user), BufferRegion(cache, region.region), user, loop)
        for user in users
        for region in user.stmt.writes
        if region.buffer is buffer
    ]
    conditional = any(
        not is_number(part, 1) and uses(part, loop_domains(user.parent, loop)) is None
        for user in users
        for part in conjuncts(state.realize_of(user).predicate)
    )
    if conditional or not covers(buffer, written, [IntervalSet(r.min, r.min + r.extent - 1) for r in domain]):
        raise PrimitiveError(
            state.mod,
            f"The blocks under the loop {{0}} are not known to write all of the region {list(domain)} of the buffer "
            f"{buffer.name}",
            loop.stmt,
        )


def _blocks(state: ScheduleState, stmt: Stmt) -> list[StmtSRef]:
    found: list[StmtSRef] = []
    pending = [stmt]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Block):
            found.append(state.stmt2ref[stmt])
        else:
            pending += reversed(children(stmt))
    return found


def _touches(regions: Sequence[BufferRegion], buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in regions)


def _accessed(
    state: ScheduleState, loop: StmtSRef, blocks: Sequence[StmtSRef], buffer: Buffer, cache: Buffer, write: bool
) -> list[Range]:
    """The region of a buffer that blocks access in one iteration of a loop."""
    analyzer = Analyzer()
    parts: list[list[IntervalSet]] = []
    for sref in blocks:
        for region in sref.stmt.writes if write else sref.stmt.reads:
            if region.buffer is buffer:
                domains = loop_domains(sref.parent, loop, cache.scope())
                parts.append(relaxed(state.realize_of(sref), region, domains))
    result: list[Range] = []
    for axis in zip(*parts, strict=True):
        values = union(list(axis), analyzer)
        low = analyzer.simplify(values.min_value)
        result.append(Range.from_min_extent(low, analyzer.simplify(values.max_value - low + 1)))
    return result


def _copy_block(
    source: Buffer, target: Buffer, name: str, outer: dict[Var, Range], domain: Sequence[Range]
) -> BlockRealize:
    """A block with variables for the loops that a region depends on, and loops of its own over the region."""
    iters: list[IterVar] = []
    values: list[PrimExpr] = []
    renamed: dict[Var, Any] = {}
    for expr in (end for r in domain for end in (r.min, r.extent)):
        for var in in_order(expr):
            if var in outer and var not in renamed:
                renamed[var] = Var(f"v{len(iters)}", var.dtype)
                iters.append(IterVar(outer[var], renamed[var], IterVar.DataPar))
                values.append(var)
    own = [substitute(r, renamed) for r in domain]
    loops = [Var(f"ax{i}", r.extent.dtype) for i, r in enumerate(own)]
    indices = [r.min + loop for r, loop in zip(own, loops, strict=True)]
    stmt: Stmt = BufferStore(target, BufferLoad(source, indices), indices)
    inside = _inside(indices, source.shape, {v.var: domain_of(v) for v in iters}, dict(zip(loops, own, strict=True)))
    if inside is not None:
        stmt = IfThenElse(inside, stmt)
    for loop, r in reversed(list(zip(loops, own, strict=True))):
        stmt = For(loop, const(0, loop.dtype), r.extent, ForKind.SERIAL, stmt)
    block = Block(
        iters,
        [BufferRegion(source, own)],
        [BufferRegion(target, own)],
        name,
        stmt,
        annotations={"auto_copy": True},
    )
    return BlockRealize(values, IntImm("bool", 1), block)


def _inside(
    indices: Sequence[PrimExpr], shape: Sequence[PrimExpr], variables: dict[Var, Range], loops: dict[Var, Range]
) -> PrimExpr | None:
    """The condition under which an element of an uneven tile, or of padding, exists; None if all do."""
    analyzer = Analyzer()
    for var, domain in variables.items():
        analyzer.bind(var, domain)
    for var, domain in loops.items():
        analyzer.bind(var, Range.from_min_extent(const(0, var.dtype), domain.extent))
    condition: PrimExpr | None = None
    for index, dim in zip(indices, shape, strict=True):
        for part in (ops.less_equal(const(0, index.dtype), index), ops.less(index, dim)):
            if not analyzer.can_prove(part):
                condition = part if condition is None else ops.logical_and(condition, part)
    return condition


READ_AT = InstructionKind("ReadAt", "read_at", read_at, ("loop", "block"), ("read_buffer_index", "storage_scope"))
WRITE_AT = InstructionKind("WriteAt", "write_at", write_at, ("loop", "block"), ("write_buffer_index", "storage_scope"))


class CopyAt(ScheduleBase):
    """The part of a schedule that copies what an iteration accesses."""

    def read_at(
        self, loop: LoopRV, block: BlockRV | str, read_buffer_index: int | str | Buffer, storage_scope: str
    ) -> BlockRV:
        """Copies what blocks read of a buffer in each iteration of a loop, by one block that is annotated "auto_copy".

            for i in range(8):
                with T.block("A_shared"):
                    v0 = T.axis.spatial(8, i)
                    T.reads(A[v0, 0:16])
                    T.writes(A_shared[v0, 0:16])
                    T.block_attr({"auto_copy": True})
                    for ax0, ax1 in T.grid(1, 16):
                        A_shared[v0 + ax0, ax1] = A[v0 + ax0, ax1]
                for j in range(16):
                    with T.block("B"): ...  # reads A_shared

        Returns the copy. The buffer must not be written in the loop after it is first read. Raises `ScheduleError`
        otherwise.
        """
        handle = self._block(block)
        index = buffer_index(self.get(handle), read_buffer_index, write=False)
        return self.apply(READ_AT, [loop, handle], [index, storage_scope])[0]

    def write_at(
        self, loop: LoopRV, block: BlockRV | str, write_buffer_index: int | str | Buffer, storage_scope: str
    ) -> BlockRV:
        """Copies what blocks wrote of a buffer in each iteration of a loop, by one block that is annotated "auto_copy".

            for i in range(8):
                for j in range(16):
                    with T.block("B"): ...  # writes B_local
                with T.block("B_local"):
                    v0 = T.axis.spatial(8, i)
                    T.reads(B_local[v0, 0:16])
                    T.writes(B[v0, 0:16])
                    T.block_attr({"auto_copy": True})
                    for ax0, ax1 in T.grid(1, 16):
                        B[v0 + ax0, ax1] = B_local[v0 + ax0, ax1]

        Returns the copy. The blocks must write all of the region; the buffer must not be read in the loop after it is
        last written, nor what was there before the iteration. Raises `ScheduleError` otherwise.
        """
        handle = self._block(block)
        index = buffer_index(self.get(handle), write_buffer_index, write=True)
        return self.apply(WRITE_AT, [loop, handle], [index, storage_scope])[0]
