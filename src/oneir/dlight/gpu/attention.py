"""Attention on a GPU: a block of threads has some queries, and meets the keys and values a tile at a time.

    scores[i, j] += Q[i, k] * K[j, k]            for each tile of keys:
    top[i] = max(top[i], scores[i, j])               scores of the block's queries, in shared memory
    e[i, j] = exp(scores[i, j] - top[i])     ->      their largest so far; what was summed before is rescaled
    total[i] += e[i, j]                              sums of exponentials, and of values times exponentials
    out[i, d] += e[i, j] / total[i] * V[j, d]    out = sums of values / sum of exponentials

So no score leaves the chip, and memory does not depend on the number of keys (FlashAttention; Dao et al., 2022).
Several threads share a query: each has some of its scores, and some columns of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...ir import operators as ops
from ...ir.expr import Max, PrimExpr, Range, Var, as_int, const
from ...target.target import Target
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, IterVar, Select
from ...tir.function import PrimFunc
from ...tir.op import exp, if_then_else
from ...tir.schedule import Schedule
from ...tir.stmt import BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from ..analysis.attention import Parts, parts_of
from ..analysis.leaves import leaves, plain_schedule
from ..analysis.values import root_block
from ..base.sizes import max_threads_per_block
from .base import GPUScheduleRule

_TILES = ((32, 32), (16, 32), (16, 16), (8, 16), (8, 8))
"""The queries of a block of threads, and the keys of a tile; the first that fits into shared memory is taken."""
THREADS = 128
SHARED_BYTES = 48 << 10
"""Shared memory that any device has."""
_DTYPES = ("float32", "float16", "bfloat16")
"""The dtypes of queries, keys and values; all is computed in float32."""
_LONGEST = 256
"""The longest head."""


class Attention(GPUScheduleRule):
    """Products of queries and keys, softmax, and products with values, in one kernel."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = plain_schedule(func)
        if leaves(sch) is None:
            return None
        parts = parts_of(sch)
        if parts is None or max_threads_per_block(target) < THREADS:
            return None
        depth, width = as_int(parts.depth), as_int(parts.width)
        if depth is None or width is None or max(depth, width) > _LONGEST:
            return None
        zero = const(0, parts.queries.dtype)
        at = [zero] * len(parts.batch)
        if any(part(at, zero, zero).dtype not in _DTYPES for part in (parts.query, parts.key, parts.value)):
            return None
        limit = int(target.attrs.get("max_shared_memory_per_block") or SHARED_BYTES)
        queries = as_int(parts.queries)
        for rows, keys in _TILES:
            while rows > 1 and queries is not None and queries <= rows // 2:
                rows //= 2
            if _shared_bytes(rows, keys, depth, width) <= limit:
                return Schedule(func.replace(body=root_block(_Kernel(parts, depth, width, rows, keys).body())))
        return None


def _shared_bytes(rows: int, keys: int, depth: int, width: int) -> int:
    return 4 * ((rows + keys) * (depth + 1) + keys * (width + 1) + 2 * rows * (keys + 1))


# -- the kernel --


class _Tile:
    """A matrix in shared memory, whose rows are one element apart: threads that read a column meet different banks."""

    def __init__(self, buffer: Buffer, columns: int):
        self.buffer, self.columns = buffer, columns

    def place(self, indices: tuple[PrimExpr, PrimExpr]) -> list[PrimExpr]:
        """The index of an element."""
        return [indices[0] * (self.columns + 1) + indices[1]]

    def __getitem__(self, indices: tuple[PrimExpr, PrimExpr]) -> PrimExpr:
        return BufferLoad(self.buffer, self.place(indices))

    def store(self, row: PrimExpr, column: PrimExpr, value: PrimExpr) -> Stmt:
        """Stores an element."""
        return BufferStore(self.buffer, value, self.place((row, column)))


class _Kernel:
    """Writes the loops; `rows` queries are a block's, of which `group` threads share one, and `keys` a tile's."""

    def __init__(self, parts: Parts, depth: int, width: int, rows: int, keys: int):
        self.depth, self.width = depth, width
        self.parts, self.rows, self.keys, self.group = parts, rows, keys, THREADS // rows
        self.dtype = parts.queries.dtype
        self.buffers: list[Buffer] = []
        self.query = self.shared("query", rows, self.depth)
        self.key = self.shared("key", keys, self.depth)
        self.value = self.shared("value", keys, self.width)
        self.score = self.shared("score", rows, keys)
        self.weight = self.shared("weight", rows, keys)
        self.columns = -(-self.width // self.group)
        self.sums = self.local("sums", self.columns)
        self.product, self.top, self.new_top = self.local("product"), self.local("top"), self.local("new_top")
        self.total, self.scale = self.local("total"), self.local("scale")

    def body(self) -> Stmt:
        """The root block."""
        parts = self.parts
        block, batch, thread = (Var(name, self.dtype) for name in ("queries", "batch", "thread"))
        at: list[PrimExpr] = []
        rest: PrimExpr = batch
        for extent in reversed(parts.batch):
            at.insert(0, rest % extent)
            rest = rest // extent
        first = block * self.rows
        row, lane = thread // self.group, thread % self.group
        i = first + row
        body = SeqStmt(
            [
                self.copied(self.query, self.rows, self.depth, thread, first, parts.queries, partial(parts.query, at)),
                self.set(self.top, const(float("-inf"), "float32")),
                self.set(self.total, const(0.0, "float32")),
                self.each(self.columns, lambda x: BufferStore(self.sums, const(0.0, "float32"), [x])),
                self.tiles(at, i, row, lane, thread),
                self.each(self.columns, lambda x: self.stored(at, i, lane, x)),
            ]
        )
        batches = const(1, self.dtype)
        for extent in parts.batch:
            batches = batches * extent
        tiles = (parts.queries + (self.rows - 1)) // self.rows
        for var, extent, tag in (
            (thread, const(THREADS, self.dtype), "threadIdx.x"),
            (block, tiles, "blockIdx.x"),
            (batch, batches, "blockIdx.y"),
        ):
            axis = IterVar(Range(0, extent), Var(tag, self.dtype), IterVar.ThreadIndex, tag)
            body = For(var, const(0, self.dtype), extent, ForKind.THREAD_BINDING, body, thread_binding=axis)
        return root_block(body, self.buffers)

    def tiles(self, at: Sequence[PrimExpr], i: PrimExpr, row: PrimExpr, lane: PrimExpr, thread: PrimExpr) -> Stmt:
        """The loop over tiles of keys."""
        parts, keys = self.parts, self.parts.keys
        tile = Var("tile", self.dtype)
        first = tile * self.keys
        top, new_top, total, scale = self.top[0], self.new_top[0], self.total[0], self.scale[0]
        infinite = const(float("-inf"), "float32")
        # Where all scores so far are -inf there is nothing to rescale, and -inf - -inf is no number.
        shift = Select(new_top == infinite, const(0.0, "float32"), new_top)

        def scored(y: PrimExpr) -> Stmt:
            column = y * self.group + lane
            j = first + column
            argument = ops.cast("float32", parts.score(at, i, j, self.product[0]))
            inside = ops.logical_and(i < parts.queries, j < keys)
            if parts.reach is not None:
                inside = ops.logical_and(inside, j < parts.reach(at, i))
            depth = self.loop(
                self.depth,
                lambda k: self.set(self.product, self.product[0] + self.query[row, k] * self.key[column, k]),
            )
            store = self.score.store(row, column, if_then_else(inside, argument, infinite))
            return self.within(
                column, self.keys, self.group, SeqStmt([self.set(self.product, const(0.0, "float32")), depth, store])
            )

        def weighted(y: PrimExpr) -> Stmt:
            column = y * self.group + lane
            value = exp(self.score[row, column] - shift)
            return self.within(column, self.keys, self.group, self.weight.store(row, column, value))

        def added(j: PrimExpr) -> Stmt:
            weight = self.weight[row, j]

            def add(x: PrimExpr) -> Stmt:
                column = x * self.group + lane
                value = self.sums[x] + weight * self.value[j, column]
                return self.within(column, self.width, self.group, BufferStore(self.sums, value, [x]))

            return SeqStmt([self.set(self.total, total + weight), self.each(self.columns, add)])

        share = -(-self.keys // self.group)
        steps: list[Stmt] = [
            self.copied(self.key, self.keys, self.depth, thread, first, keys, partial(parts.key, at)),
            self.copied(self.value, self.keys, self.width, thread, first, keys, partial(parts.value, at)),
            self.loop(share, scored),
            self.set(self.new_top, top),
            self.loop(self.keys, lambda j: self.set(self.new_top, Max(new_top, self.score[row, j]))),
            self.set(self.scale, exp(top - shift)),
            self.set(self.top, new_top),
            self.loop(share, weighted),
            self.set(self.total, total * scale),
            self.each(self.columns, lambda x: BufferStore(self.sums, self.sums[x] * scale, [x])),
            self.loop(self.keys, added),
        ]
        count = (keys + (self.keys - 1)) // self.keys
        return For(tile, const(0, self.dtype), count, ForKind.SERIAL, SeqStmt(steps))

    def copied(
        self,
        tile: _Tile,
        rows: int,
        columns: int,
        thread: PrimExpr,
        first: PrimExpr,
        end: PrimExpr,
        source: Callable[[PrimExpr, PrimExpr], PrimExpr],
    ) -> Stmt:
        """Copies rows from `first` on into shared memory, neighbouring elements by neighbouring threads.

        Rows from `end` on are zero.
        """

        def copy(n: PrimExpr) -> Stmt:
            place = n * THREADS + thread
            row, column = place // columns, place % columns
            value = if_then_else(
                first + row < end, ops.cast("float32", source(first + row, column)), const(0.0, "float32")
            )
            return self.within(place, rows * columns, THREADS, tile.store(row, column, value))

        return self.loop(-(-rows * columns // THREADS), copy)

    def stored(self, at: Sequence[PrimExpr], i: PrimExpr, lane: PrimExpr, x: PrimExpr) -> Stmt:
        """Stores an element of the result, if it is one."""
        column = x * self.group + lane
        value: PrimExpr = self.sums[x] / self.total[0]
        if self.parts.safe:
            value = Select(self.total[0] > const(0.0, "float32"), value, const(0.0, "float32"))
        store = self.parts.store(at, i, column, value)
        return IfThenElse(i < self.parts.queries, self.within(column, self.width, self.group, store))

    def within(self, place: PrimExpr, extent: int, step: int, stmt: Stmt) -> Stmt:
        """A statement for places that there are, where threads have one of each `step`."""
        return stmt if extent % step == 0 else IfThenElse(place < extent, stmt)

    def shared(self, name: str, rows: int, columns: int) -> _Tile:
        """A matrix that all threads of a block see."""
        return _Tile(self._made(name, rows * (columns + 1), "shared"), columns)

    def local(self, name: str, size: int = 1) -> Buffer:
        """Elements of each thread's own."""
        return self._made(name, size, "local")

    def _made(self, name: str, size: int, scope: str) -> Buffer:
        self.buffers.append(decl_buffer([const(size, self.dtype)], "float32", name, scope=scope))
        return self.buffers[-1]

    def set(self, buffer: Buffer, value: PrimExpr) -> Stmt:
        """Stores to the one element of a buffer."""
        return BufferStore(buffer, value, [const(0, self.dtype)])

    def loop(self, extent: int, body: Callable[[PrimExpr], Stmt], kind: ForKind = ForKind.SERIAL) -> Stmt:
        """A loop over a known extent."""
        var = Var("n", self.dtype)
        return For(var, const(0, self.dtype), const(extent, self.dtype), kind, body(var))

    def each(self, extent: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """A loop that is unrolled, so that what it indexes may be in registers."""
        return self.loop(extent, body, ForKind.UNROLLED)
