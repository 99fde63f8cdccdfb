"""Cumulative sums and products by blocks of threads.

    sums[c] = total of chunk c               a block for each chunk
    sums[c] = total of all chunks before c   one block
    out[k]  = sums[chunk of k] + ...         a block for each chunk

One chunk needs the last step only. A block takes its elements a tile at a time: each thread adds up a few neighbours,
then the threads' totals in shared memory (Hillis and Steele, 1986).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, as_int, const
from ...te.tensor import Tensor
from ...tir.buffer import Buffer, decl_buffer
from ...tir.op import if_then_else
from ...tir.stmt import Evaluate, ForKind, IfThenElse, Stmt, flat_seq
from ..index import is_empty, require_axis, size_of, unravel
from ..loops import allocate, loop, scalar, store
from ..scan import add_or_any
from .threads import ceil_div, launch

Binop = Callable[[PrimExpr, PrimExpr], PrimExpr]
_TILES = 8
"""Tiles of a chunk, which one block takes one after the other."""


class BlockScan:
    """The running results of elements that a block of threads meets in order, `items` a thread at a time.

    `threads` is a power of two, at least 2. Shared memory: 2 * threads elements.
    """

    def __init__(self, threads: int, items: int, dtype: str, binop: Binop, identity: Any):
        self.threads, self.items, self.tile = threads, items, threads * items
        self.dtype, self.binop, self.identity = dtype, binop, ops.cast(dtype, identity)
        self.rounds = threads.bit_length() - 1
        self.partial = decl_buffer((2, threads), dtype, "partial", scope="shared")
        self.own = decl_buffer((items,), dtype, "own", scope="local")
        self.carry, self.prefix = scalar("carry", dtype), scalar("prefix", dtype)

    def over(
        self,
        thread: PrimExpr,
        begin: PrimExpr,
        end: PrimExpr,
        initial: PrimExpr,
        load: Callable[[PrimExpr], PrimExpr],
        use: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt] | None,
        then: Callable[[PrimExpr], Stmt] | None = None,
    ) -> Stmt:
        """Meets the elements from `begin` to `end`; `initial` stands before the first.

        `use(place, before, after)` gets the results without and with an element, `then(total)` that of all, which
        every thread knows.
        """
        tiles = ceil_div(ops.subtract(end, begin), self.tile)

        def one_tile(tile: PrimExpr) -> Stmt:
            first = begin + (tile * self.threads + ops.cast(begin.dtype, thread)) * self.items
            return self._tile(thread, first, end, load, use)

        after = [] if then is None else [then(self.carry[0])]
        steps = [store(self.carry, (0,), initial), loop(const(0, tiles.dtype), tiles, one_tile, "tile"), *after]
        return allocate([self.partial, self.own, self.carry, self.prefix], *steps)

    def _tile(
        self,
        thread: PrimExpr,
        first: PrimExpr,
        end: PrimExpr,
        load: Callable[[PrimExpr], PrimExpr],
        use: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt] | None,
    ) -> Stmt:
        """Meets a tile, of which this thread has the elements from `first` on."""

        def collect(k: PrimExpr) -> Stmt:
            element = if_then_else(ops.less(first + k, end), load(first + k), self.identity)
            return flat_seq(
                [
                    store(self.prefix, (0,), self.binop(self.prefix[0], element)),
                    store(self.own, (k,), self.prefix[0]),
                ]
            )

        def double(step: PrimExpr) -> Stmt:
            half, distance = step % 2, ops.shift_left(const(1, step.dtype), step)
            mine = self.partial[half, thread]
            both = self.binop(self.partial[half, thread - distance], mine)
            return store(
                self.partial, (1 - half, thread), if_then_else(ops.greater_equal(thread, distance), both, mine)
            )

        totals = self.rounds % 2
        # The total of the threads before this one, after all that was there before the tile.
        earlier = self.binop(self.carry[0], self.partial[totals, thread - 1])
        steps = [
            store(self.prefix, (0,), self.identity),
            self._each(collect),
            store(self.partial, (0, thread), self.prefix[0]),
            loop(const(0, thread.dtype), const(self.rounds, thread.dtype), double, "step"),
        ]
        if use is not None:

            def give(k: PrimExpr) -> Stmt:
                nearer = if_then_else(ops.greater(k, 0), self.binop(self.prefix[0], self.own[k - 1]), self.prefix[0])
                stmt = use(first + k, nearer, self.binop(self.prefix[0], self.own[k]))
                return IfThenElse(ops.less(first + k, end), stmt)

            steps += [
                store(self.prefix, (0,), if_then_else(ops.greater(thread, 0), earlier, self.carry[0])),
                self._each(give),
            ]
        total = self.binop(self.carry[0], self.partial[totals, self.threads - 1])
        return flat_seq([*steps, store(self.carry, (0,), total)])

    def _each(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        dtype = "int32"
        return loop(const(0, dtype), const(self.items, dtype), body, "k", ForKind.UNROLLED)


def scanop(
    data: Tensor,
    binop: Binop,
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    threads: int = 256,
    items: int = 4,
) -> Tensor:
    """The running results of an associative operation, as `topi.scanop` has them; `identity_value` is its identity.

    `threads` (a power of two, at least 2) of a block, and the `items` of each, say how large a tile is.
    """
    dtype = dtype or data.dtype
    short = DataType(dtype).is_float and DataType(dtype).bits < 32
    working = "float32" if short else dtype
    shape = [size_of(data.shape)] if axis is None else list(data.shape)
    along = 0 if axis is None else require_axis(axis, data.ndim, op_name)
    others, extent = [*shape[:along], *shape[along + 1 :]], shape[along]
    rows = size_of(others) if others else const(1, extent.dtype)
    chunk = threads * items * _TILES
    known = as_int(extent)
    is_one_chunk = known is not None and known <= chunk
    chunks = const(1, extent.dtype) if is_one_chunk else ceil_div(extent, chunk)

    def scan() -> BlockScan:
        return BlockScan(threads, items, working, binop, identity_value)

    def body(ins: Any, outs: Any) -> Stmt:
        if is_empty(data.shape):
            return Evaluate(0)
        source, out = ins[0], outs[0]

        def place(row: PrimExpr, k: PrimExpr) -> list[Any]:
            rest = unravel(row, others) if others else []
            return [*rest[:along], k, *rest[along:]]

        def element(row: PrimExpr, k: PrimExpr) -> PrimExpr:
            at = unravel(k, data.shape) if axis is None else place(row, k)
            return ops.cast(working, source[tuple(at)])

        def in_chunk(use_sums: Callable[[BlockScan, PrimExpr, PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt]) -> Stmt:
            def one(block: PrimExpr, thread: PrimExpr) -> Stmt:
                row, number = (
                    ops.cast(extent.dtype, divide(block, ops.cast("int32", chunks)))
                    for divide in (ops.floordiv, ops.floormod)
                )
                begin = number * chunk
                end = ops.minimum(begin + chunk, extent)
                return use_sums(scan(), row, number, thread, begin, end)

            return launch(ops.multiply(rows, chunks), threads, one)

        sums: Buffer = decl_buffer((rows, chunks), working, "sums")

        def total(s: BlockScan, row: Any, number: Any, thread: Any, begin: Any, end: Any) -> Stmt:
            def keep(value: PrimExpr) -> Stmt:
                return IfThenElse(ops.equal(thread, 0), store(sums, (row, number), value))

            return s.over(thread, begin, end, s.identity, lambda k: element(row, k), None, keep)

        def result(s: BlockScan, row: Any, number: Any, thread: Any, begin: Any, end: Any) -> Stmt:
            def write(k: PrimExpr, before: PrimExpr, after: PrimExpr) -> Stmt:
                return store(out, place(row, k), before if exclusive else after)

            initial = s.identity if is_one_chunk else sums[row, number]
            return s.over(thread, begin, end, initial, lambda k: element(row, k), write)

        def all_before(block: PrimExpr, thread: PrimExpr) -> Stmt:
            s, row = scan(), ops.cast(rows.dtype, block)
            return s.over(
                thread,
                const(0, chunks.dtype),
                chunks,
                s.identity,
                lambda k: sums[row, k],
                lambda k, before, after: store(sums, (row, k), before),
            )

        if is_one_chunk:
            return in_chunk(result)
        return allocate([sums], in_chunk(total), launch(rows, threads, all_before), in_chunk(result))

    return te.extern(
        [shape],
        [data],
        body,
        name=op_name,
        dtype=dtype,
        out_buffers=[decl_buffer(shape, dtype, "out_buf")],
        tag=op_name,
    )


def cumsum(data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """The sum of the elements up to each one along an axis, or (None) in row-major order; see `topi.cumsum`."""
    return scanop(data, add_or_any, 0, "cumsum_gpu", axis, dtype, exclusive)


def cumprod(data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """The product of the elements up to each one along an axis, or (None) in row-major order; see `topi.cumprod`."""
    return scanop(data, ops.multiply, 1, "cumprod_gpu", axis, dtype, exclusive)
