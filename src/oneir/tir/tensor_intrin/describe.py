"""What descriptions of tensor intrinsics are made of: a function of one block, and loops around a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.expr import IntImm, Range, Var, const
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, Stmt


def function_of(params: Sequence[Buffer], reads: Sequence[Buffer], write: Buffer, body: Stmt) -> PrimFunc:
    """A function of one block, which reads and writes its buffers whole."""
    block = Block([], [BufferRegion.full(b) for b in reads], [BufferRegion.full(write)], "root", body)
    return PrimFunc(list(params), BlockRealize([], IntImm("bool", 1), block))


def loops_around(
    name: str, kinds: str, extents: Sequence[int], statement: Callable[..., tuple[BufferStore, Sequence[BufferLoad]]]
) -> Stmt:
    """Loops over a block with an axis for each: "S" is spatial, "R" reduces. `statement` gives what the block stores
    and loads for its variables.
    """
    types = {"S": IterVar.DataPar, "R": IterVar.CommReduce}
    iters = [
        IterVar(Range(0, extent), Var(f"v{i}", "int32"), types[kind])
        for i, (kind, extent) in enumerate(zip(kinds, extents, strict=True))
    ]
    store, loads = statement(*(v.var for v in iters))
    reads = [BufferRegion.from_point(load.buffer, load.indices) for load in loads]
    block = Block(iters, reads, [BufferRegion.from_point(store.buffer, store.indices)], name, store)
    loops = [Var(f"i{i}", "int32") for i in range(len(extents))]
    stmt: Stmt = BlockRealize(loops, IntImm("bool", 1), block)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        stmt = For(loop, const(0), const(extent), ForKind.SERIAL, stmt)
    return stmt
