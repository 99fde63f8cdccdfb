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
from dataclasses import dataclass
from functools import partial

from ...ir import operators as ops
from ...ir.expr import Call, Div, Max, PrimExpr, Range, Sub, Var, as_int, const
from ...ir.op import Op
from ...target.target import Target
from ...tir.analysis import get_block_read_write_region
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, IterVar, Select
from ...tir.function import PrimFunc
from ...tir.op import exp, if_then_else
from ...tir.schedule import Schedule
from ...tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from ...tir.stmt_functor import loads
from ..analysis.attention import chain_of, inline_elementwise_blocks
from ..analysis.contraction import operands, without_cast
from ..analysis.leaves import Leaf, extent_of, leaves, variables, with_plain_indices
from ..base.sizes import max_threads_per_block
from .base import GPUScheduleRule, Loaded, at_values, root_block

_TILES = ((32, 32), (16, 32), (16, 16), (8, 16), (8, 8))
"""The queries of a block of threads, and the keys of a tile; the first that fits into shared memory is taken."""
THREADS = 128
SHARED_BYTES = 48 << 10
"""Shared memory that any device has."""
_DTYPES = ("float32", "float16", "bfloat16")
"""The dtypes of queries, keys and values; all is computed in float32."""
_EXP = Op.get("tir.exp")


class Attention(GPUScheduleRule):
    """Products of queries and keys, softmax, and products with values, in one kernel."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(with_plain_indices(func))
        if leaves(sch) is None:
            return None
        inline_elementwise_blocks(sch)
        parts = _parts_of(sch)
        if parts is None or max_threads_per_block(target) < THREADS:
            return None
        limit = int(target.attrs.get("max_shared_memory_per_block") or SHARED_BYTES)
        queries = as_int(parts.queries)
        for rows, keys in _TILES:
            while rows > 1 and queries is not None and queries <= rows // 2:
                rows //= 2
            if _shared_bytes(rows, keys, parts.depth, parts.width) <= limit:
                return Schedule(func.replace(body=root_block(_Kernel(parts, rows, keys).body())))
        return None


def _shared_bytes(rows: int, keys: int, depth: int, width: int) -> int:
    return 4 * ((rows + keys) * (depth + 1) + keys * (width + 1) + 2 * rows * (keys + 1))


# -- what is computed --


@dataclass
class _Parts:
    """An attention as functions of indices. `at` are those of the batch."""

    batch: list[PrimExpr]
    queries: PrimExpr
    keys: PrimExpr
    depth: int
    """The length of queries and keys."""
    width: int
    """The length of values and results."""
    query: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], PrimExpr]
    key: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], PrimExpr]
    value: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr], PrimExpr]
    score: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    """The argument of the softmax, from the product of a query and a key: scaled, masked."""
    store: Callable[[Sequence[PrimExpr], PrimExpr, PrimExpr, PrimExpr], Stmt]
    """Stores an element of the result."""


def _parts_of(sch: Schedule) -> _Parts | None:
    """The parts of an attention; None for other functions."""
    found = leaves(sch) or []
    chain = chain_of(found)
    if chain is None:
        return None
    scores, _, exponentials, _, weights, result = (leaf.block for leaf in found[:6])
    products, sums = operands(scores), operands(result)
    depth, width = _known(scores.iter_vars[-1]), _known(result.iter_vars[-2])
    argument = _argument(scores, exponentials, weights)
    if products is None or sums is None or argument is None or depth is None or width is None:
        return None
    row, column = scores.iter_vars[-3].var, scores.iter_vars[-2].var
    query, key = products if _uses(products[0], row) else products[::-1]
    if _uses(query, column) or _uses(key, row) or not _uses(query, row):
        return None
    of_weights = _writes(weights)
    values = [load for load in sums if load.buffer is not of_weights]
    if len(values) != 1 or any(load.dtype not in _DTYPES for load in (query, key, values[0])):
        return None
    store = _store_of(sch, found)
    if store is None:
        return None
    zero = const(0, row.dtype)
    return _Parts(
        [extent_of(iv) for iv in scores.iter_vars[:-3]],
        extent_of(scores.iter_vars[-3]),
        extent_of(scores.iter_vars[-2]),
        depth,
        width,
        lambda at, i, k: at_values(scores, query, [*at, i, zero, k]),
        lambda at, j, k: at_values(scores, key, [*at, zero, j, k]),
        lambda at, j, d: at_values(result, values[0], [*at, zero, d, j]),
        lambda at, i, j, product: at_values(exponentials, Loaded(_writes(scores), product)(argument), [*at, i, j]),
        store,
    )


def _known(axis: IterVar) -> int | None:
    value = as_int(extent_of(axis))
    return value if value is not None and 0 < value <= 256 else None


def _uses(load: BufferLoad, var: Var) -> bool:
    return any(var in variables(index) for index in load.indices)


def _writes(block: Block) -> Buffer:
    assert isinstance(block.body, BufferStore)
    return block.body.buffer


def _argument(scores: Block, exponentials: Block, weights: Block) -> PrimExpr | None:
    """What softmax is computed of, over the axes of the block of exponentials."""
    exponential, weight = exponentials.body, weights.body
    if not isinstance(exponential, BufferStore) or not isinstance(weight, BufferStore):
        return None
    if not isinstance(weight.value, Div):
        return None
    if not all(isinstance(without_cast(x), BufferLoad) for x in (weight.value.a, weight.value.b)):
        return None
    call, condition = exponential.value, None
    if isinstance(call, Select) and getattr(call.false_value, "value", None) == 0:  # as causal masks are written
        call, condition = call.true_value, call.condition
    difference = call.args[0] if isinstance(call, Call) and call.op is _EXP else None
    if not isinstance(difference, Sub):
        return None
    axes = [iv.var for iv in exponentials.iter_vars]
    argument = difference.a
    found = [load for load in loads(argument) if load.buffer is _writes(scores)]
    plain = list(exponential.indices) == axes and all(list(load.indices) == axes for load in found)
    if not found or not plain or not isinstance(without_cast(difference.b), BufferLoad):
        return None
    return argument if condition is None else Select(condition, argument, const(float("-inf"), argument.dtype))


def _store_of(sch: Schedule, found: list[Leaf]) -> Callable[..., Stmt] | None:
    """How an element of the result is stored: with what the last block does to it, if there is one after it."""
    block = found[5].block
    result = _writes(block)
    axes = block.iter_vars[:-1]
    if len(found) == 6:
        return lambda at, i, d, value: BufferStore(result, ops.cast(result.dtype, value), [*at, i, d])
    # The block that follows is inlined into one that copies from a parameter, which stands for the sums.
    sums = decl_buffer(list(result.shape), result.dtype, "sums")
    new = [Var(f"v{n}", iv.var.dtype) for n, iv in enumerate(axes)]
    iter_vars = [iv.replace(var=var) for iv, var in zip(axes, new, strict=True)]
    copy = BufferStore(result, BufferLoad(sums, new), new)
    loops = [Var(f"i{n}", iv.var.dtype) for n, iv in enumerate(axes)]
    plain = Block(iter_vars, [], [], "copy", copy)
    reads, writes = get_block_read_write_region(plain, {buffer.data: buffer for buffer in (sums, result)})
    body: Stmt = BlockRealize(loops, True, plain.replace(reads=reads, writes=writes))
    for var, iv in reversed(list(zip(loops, axes, strict=True))):
        body = For(var, const(0, var.dtype), extent_of(iv), ForKind.SERIAL, body)
    func = sch.mod["main"]
    handle = Var("sums", "handle")
    last = sch.get(found[6].loops[0])
    small = func.replace(
        params=[*func.params, handle],
        buffer_map={**func.buffer_map, handle: sums},
        body=root_block(SeqStmt([body, last]), [result]),
    )
    inner = Schedule(small)
    inner.reverse_compute_inline(inner.get_block(found[6].block.name_hint))
    merged = inner.get(inner.get_block("copy"))
    stored = merged.body
    if not isinstance(stored, BufferStore):
        return None

    def store(at: Sequence[PrimExpr], i: PrimExpr, d: PrimExpr, value: PrimExpr) -> Stmt:
        return at_values(merged, Loaded(sums, value)(stored), [*at, i, d])

    return store


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

    def __init__(self, parts: _Parts, rows: int, keys: int):
        self.parts, self.rows, self.keys, self.group = parts, rows, keys, THREADS // rows
        self.dtype = parts.queries.dtype
        self.buffers: list[Buffer] = []
        self.query = self.shared("query", rows, parts.depth)
        self.key = self.shared("key", keys, parts.depth)
        self.value = self.shared("value", keys, parts.width)
        self.score = self.shared("score", rows, keys)
        self.weight = self.shared("weight", rows, keys)
        self.columns = -(-parts.width // self.group)
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
                self.copied(self.query, self.rows, parts.depth, thread, first, parts.queries, partial(parts.query, at)),
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
            depth = self.loop(
                parts.depth,
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
                return self.within(column, parts.width, self.group, BufferStore(self.sums, value, [x]))

            return SeqStmt([self.set(self.total, total + weight), self.each(self.columns, add)])

        share = -(-self.keys // self.group)
        steps: list[Stmt] = [
            self.copied(self.key, self.keys, parts.depth, thread, first, keys, partial(parts.key, at)),
            self.copied(self.value, self.keys, parts.width, thread, first, keys, partial(parts.value, at)),
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
        store = self.parts.store(at, i, column, self.sums[x] / self.total[0])
        return IfThenElse(i < self.parts.queries, self.within(column, self.parts.width, self.group, store))

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
