"""SplitArgExtremes: the index of a largest or smallest element is looked for once that element is known.

    for i, k in T.grid(n, 200):               for i, k in T.grid(n, 200):
        index[i], best[i] = the better   ->       best[i] = T.max(best[i], x[i, k])
            of them and k, x[i, k]            for i, k in T.grid(n, 200):
                                                  index[i] = T.min(index[i], T.Select(x[i, k] == best[i], k, none))

Both are reductions that vectors compute, where a pair is compared element by element. That pays for elements that lie
next to each other, which are read again from the cache.
"""

from __future__ import annotations

from ...ir import operators as ops
from ...ir.expr import GT, LT, Max, Min, PrimExpr, Select, as_int, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..analysis import get_block_read_write_region
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..op import isnan, max_value
from ..stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt
from ..stmt_functor import StmtMapper, renew_stmt
from .exact_extremes import ArgExtreme
from .pass_base import PrimFuncPass


class SplitArgExtremes(PrimFuncPass):
    """Computes argmax and argmin along neighbouring elements as an extreme, and then its place.

    The place is the first or the last of equal elements, as before, and of no elements what it was. It runs before
    `ExactExtremes`.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Split()(func.body))


class _Split(StmtMapper):
    def visit_For(self, loop: For) -> Stmt:
        extents, stmt = [as_int(loop.extent)], loop.body
        while isinstance(stmt, For):
            extents.append(as_int(stmt.extent))
            stmt = stmt.body
        if not isinstance(stmt, BlockRealize) or len(extents) != len(stmt.block.iter_vars):
            return self.generic_visit(loop)
        blocks = _parts(stmt.block)
        if blocks is None:
            return self.generic_visit(loop)
        return SeqStmt([renew_stmt(_Inside(block)(loop)) for block in blocks])


class _Inside(StmtMapper):
    """Puts another block into a loop nest."""

    def __init__(self, block: Block):
        super().__init__()
        self.block = block

    def visit_BlockRealize(self, realize: BlockRealize) -> BlockRealize:
        return realize.replace(block=self.block)


def _parts(block: Block) -> tuple[Block, Block] | None:
    """The blocks that compute the extreme, and its index; None for one that is not such a reduction."""
    found, init = ArgExtreme.of(block.body), block.init
    if found is None or not isinstance(init, SeqStmt) or len(init.seq) != 2:
        return None
    better, nearer = found.best.condition, found.keep.condition.b.b
    so_far, element, (place, value) = better.a, better.b, found.stores
    sums = [iv for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce]
    together = isinstance(element, BufferLoad) and sums and element.indices[-1] is sums[-1].var
    if not together or not isinstance(nearer, (LT, GT)) or not isinstance(better, (LT, GT)):
        return None
    largest, first = isinstance(better, GT), isinstance(nearer, LT)
    begin_place, begin = init.seq
    if not isinstance(begin_place, BufferStore):
        return None
    # No element has this index, and all are nearer.
    none = max_value(place.buffer.dtype) if first else const(-1, place.buffer.dtype)
    extreme = value.replace(value=(Max if largest else Min)(so_far, element))
    is_it = ops.equal(element, so_far)
    if element.dtype.is_float:
        # The extreme of elements with NaN is NaN.
        is_it = ops.logical_or(is_it, isnan(element))
    index = Select(is_it, found.keep.false_value, none)
    nowhere: PrimExpr = none
    for extent in (iv.dom.extent for iv in sums if iv.dom is not None):
        if not as_int(extent):
            of_none = const(0, none.dtype) if first else begin_place.value  # as `ExactExtremes` has it
            nowhere = Select(ops.equal(extent, 0), of_none, nowhere)
    nearest = (Min if first else Max)(BufferLoad(place.buffer, place.indices), index)
    return (
        _block(block, f"{block.name_hint}_value", begin, extreme),
        _block(block, block.name_hint, place.replace(value=nowhere), place.replace(value=nearest)),
    )


def _block(block: Block, name: str, init: Stmt, body: BufferStore) -> Block:
    """The block with another body, and what that reads and writes."""
    buffers: list[Buffer] = [region.buffer for region in (*block.reads, *block.writes)]
    new = block.replace(name_hint=name, init=init, body=body)
    reads, writes = get_block_read_write_region(new, {buffer.data: buffer for buffer in buffers})
    return new.replace(reads=[region for region in reads if region.buffer is not body.buffer], writes=writes)
