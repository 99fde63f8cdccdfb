"""Computing indices beforehand, and looking them up where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.container import Array
from ...ir.expr import ConstExpr, IntImm, PrimExpr, Ramp, Range, Var, const
from ...ir.operators import same_expr
from ...ir.visitor import Mapper, post_order_visit
from ..block_scope import StmtSRef
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad, IterVar
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, Stmt
from ..stmt_functor import substitute
from .base import ScheduleBase
from .buffers import check_memory
from .compute_at import top_of
from .conditions import as_block, scope_root_of
from .domain import end_of
from .edit import ScopeEdit, as_list
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV
from .reduction import in_order
from .state import ScheduleState


def cache_index(state: ScheduleState, sref: StmtSRef, storage_scope: str, cse_thresh: int) -> list[StmtSRef]:
    block = as_block(state, sref)
    check_memory(storage_scope)
    scope = scope_root_of(state, sref)
    store = block.body
    if not isinstance(store, BufferStore):
        raise PrimitiveError(state.mod, "The body of the block {0} is expected to be one store", block)
    own = {v.var: v for v in block.iter_vars}
    exprs = [e for e in _computations(store.value, cse_thresh) if all(var in own for var in in_order(e))]
    if not exprs:
        return []
    stages: list[Stmt] = []
    blocks: list[Block] = []
    buffers: list[Buffer] = []
    places: list[tuple[PrimExpr, PrimExpr]] = []
    regions: list[BufferRegion] = []
    for i, expr in enumerate(exprs):
        used = [own[var] for var in in_order(expr)]
        buffer = decl_buffer([end_of(v) for v in used], expr.dtype, f"index_var_{i}", scope=storage_scope)
        stage, copy = _stage(expr, used, buffer, f"index_{i}")
        point = [v.var for v in used]
        stages.append(stage)
        blocks.append(copy)
        buffers.append(buffer)
        places.append((expr, BufferLoad(buffer, point)))
        regions.append(BufferRegion.from_point(buffer, point))
    looked_up = store.replace(value=_LookUp(places)(store.value))
    new_block = block.replace(body=looked_up, reads=Array([*block.reads, *regions]))
    top = top_of(sref, scope).stmt
    old: Block = scope.stmt
    stmts = as_list(old.body)
    position = next(i for i, stmt in enumerate(stmts) if top in (stmt, getattr(stmt, "block", None)))
    new = ScopeEdit({block: new_block}, {old: (position, SeqStmt(stages) if len(stages) > 1 else stages[0])})(old)
    new = new.replace(alloc_buffers=Array([*old.alloc_buffers, *buffers]))
    state.replace(scope, new, {old: new, block: new_block})
    return [state.stmt2ref[copy] for copy in blocks]


def _computations(value: PrimExpr, threshold: int) -> list[PrimExpr]:
    """The largest integer computations in the indices of loads that stand there often enough, the largest first.

    What does not stand there often enough is taken apart.
    """
    found: list[tuple[PrimExpr, int]] = []

    def add(expr: Any, times: int) -> None:
        for i, (known, count) in enumerate(found):
            if same_expr(known, expr):
                found[i] = (known, count + times)
                return
        found.append((expr, times))

    for expr in _largest(value):
        add(expr, 1)
    i = 0
    while i < len(found):
        expr, times = found[i]
        if times < threshold:
            parts: list[Any] = []
            expr.visit_children(parts.append)
            for part in (p for whole in parts for p in _largest(whole)):
                add(part, times)
        i += 1
    kept = [expr for expr, times in found if times >= threshold]
    return sorted(kept, key=_size, reverse=True)


def _largest(value: Any) -> list[PrimExpr]:
    """The largest parts of an expression that are integer computations without loads."""
    if _is_computation(value):
        return [value]
    parts: list[Any] = []
    if not isinstance(value, (Var, ConstExpr, Buffer)):
        value.visit_children(parts.append)
    return [found for part in parts for found in _largest(part)]


def _is_computation(value: Any) -> bool:
    if not isinstance(value, PrimExpr) or isinstance(value, (Var, ConstExpr, Ramp)) or not value.dtype.is_int:
        return False
    loads: list[Any] = []
    post_order_visit(value, lambda node: loads.append(node) if isinstance(node, BufferLoad) else None)
    return not loads and value.dtype.is_scalar and bool(in_order(value))


def _size(expr: PrimExpr) -> int:
    nodes: list[Any] = []
    post_order_visit(expr, nodes.append)
    return len(nodes)


class _LookUp(Mapper):
    """Replaces expressions by loads."""

    def __init__(self, places: Sequence[tuple[PrimExpr, PrimExpr]]):
        super().__init__()
        self.places = places

    def visit(self, node: Any) -> Any:
        if isinstance(node, PrimExpr) and not isinstance(node, (Var, ConstExpr)):
            for expr, load in self.places:
                if same_expr(node, expr):
                    return load
        return super().visit(node)


def _stage(expr: PrimExpr, used: Sequence[IterVar], buffer: Buffer, name: str) -> tuple[Stmt, Block]:
    """Loops that compute an index for all values of its variables."""
    iters = [
        IterVar(
            Range.from_min_extent(const(0, v.dtype), end_of(v)),
            Var(f"v{i}", v.dtype),
            IterVar.DataPar,
        )
        for i, v in enumerate(used)
    ]
    point: list[Any] = [v.var for v in iters]
    renamed: dict[Var, Any] = {old.var: new for old, new in zip(used, point, strict=True)}
    body = BufferStore(buffer, substitute(expr, renamed), point)
    block = Block(iters, (), [BufferRegion.from_point(buffer, point)], name, body)
    loops = [Var(f"ax{i}", v.dtype) for i, v in enumerate(iters)]
    stmt: Stmt = BlockRealize(loops, IntImm("bool", 1), block)
    for loop, v in reversed(list(zip(loops, iters, strict=True))):
        stmt = For(loop, const(0, loop.dtype), end_of(v), ForKind.SERIAL, stmt)
    return stmt, block


CACHE_INDEX = InstructionKind(
    "CacheIndex", "cache_index", cache_index, ("block",), ("storage_scope", "cse_thresh"), returns_list=True
)


class CacheIndex(ScheduleBase):
    """The part of a schedule that computes indices beforehand."""

    def cache_index(self, block: BlockRV | str, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
        """Makes tables of the indices that a block computes. Returns the blocks that fill them, none if it computes
        none.

            for i, j in T.grid(16, 16):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi // 4, vj]

        becomes

            index_var_0 = T.alloc_buffer((16,), "int32")
            for ax0 in range(16):
                with T.block("index_0"):
                    v0 = T.axis.spatial(16, ax0)
                    index_var_0[v0] = v0 // 4
            for i, j in T.grid(16, 16):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[index_var_0[vi], vj]

        What stands there fewer than `cse_thresh` times is computed where it is. The block must not be the root. Raises
        `ScheduleError` otherwise.
        """
        return self.apply(CACHE_INDEX, [self._block(block)], [storage_scope, cse_thresh])
