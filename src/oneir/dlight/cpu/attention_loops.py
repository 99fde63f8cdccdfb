"""The loops of attention on processors: what `attention.py` decides about, for some rows and some keys at a time.

A row is a query of one head; heads that share keys are rows one after the other: row `r` is query `r // group` of the
head `r % group` of a group. All numbers of a block are in memory of its own, float32:

- `query` (rows, depth), `weight` (rows, keys): scores, and then exponentials; `sums` (rows, width);
- for many rows, `key` (panels of keys, depth, panel) and `value` (keys, width), which are copied for each block. A tile
  of products is in registers: rows times vectors, along neighbouring keys, or along a value;
- for few rows, keys and values are read where they lie, once. A score is then summed in a vector along its key, and
  as many of these as a vector has lanes are added up together, as the halves of two make one (`added_up`).

Where a query sees the first keys only (causal masks), blocks of keys past those that its rows see are left out, and
tiles within a block as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...ir import operators as ops
from ...ir.expr import PrimExpr, Ramp, Var, as_int, const
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, Select
from ...tir.intrin_rules.exponential import EXP, LN_SMALLEST, LOG2_E
from ...tir.intrin_rules.formula import ROUNDER, horner
from ...tir.op import if_then_else, reinterpret
from ...tir.stmt import BufferStore, ForKind, IfThenElse, LetStmt, Stmt, flat_seq
from ...topi.index import size_of, unravel
from ...topi.loops import allocate, let, loop, store
from ..analysis.attention import Parts
from .added_lanes import added_up
from .transposition import transposed, vectors

_LEAST = -3.4028234663852886e38
"""What largest scores begin with: finite, so that nothing is infinity less infinity where all keys are masked."""


@dataclass(frozen=True)
class Sizes:
    """What a block is, and its tiles. Rows are whole tiles, keys whole panels."""

    rows: int
    keys: int
    panel: int
    """Neighbouring keys of a tile of scores."""
    lanes: int
    """Elements of a vector."""
    score_rows: int
    value_rows: int
    """The rows of a tile of scores, and of a tile of sums."""
    value_lanes: int
    """Elements of values of a tile."""


class Loops:
    """Writes the loops; with `copied`, for many rows."""

    def __init__(self, parts: Parts, group: int, depth: int, width: int, sizes: Sizes, *, copied: bool, parallel: bool):
        self.parts, self.group, self.depth, self.width, self.sizes = parts, group, depth, width, sizes
        self.copied, self.parallel = copied, parallel
        self.dtype = parts.queries.dtype
        self.padded = -(-width // sizes.value_lanes) * sizes.value_lanes
        self.query = self.made("query", sizes.rows, depth)
        self.weight = self.made("weight", sizes.rows, sizes.keys)
        self.sums = self.made("sums", sizes.rows, self.padded)
        self.key = self.made("key", sizes.keys // sizes.panel, depth, sizes.panel)
        self.value = self.made("value", sizes.keys, self.padded)
        self.top, self.total, self.factor = (self.made(name, sizes.rows) for name in ("top", "total", "factor"))

    def body(self) -> Stmt:
        """All blocks of rows."""
        *outer, last = self.parts.batch
        batch = [*outer, last // self.group]
        rows = self.parts.queries * self.group
        blocks = (rows + (self.sizes.rows - 1)) // self.sizes.rows

        def block(task: Var) -> Stmt:
            # Where extents are unknown, a name for the quotient keeps the division out of each index.
            return let("head", task // blocks, lambda head: of_head(head, task % blocks * self.sizes.rows))

        def of_head(head: Var, first: PrimExpr) -> Stmt:
            # The outermost index needs no remainder.
            *at, inner = [head // size_of(batch[1:]), *unravel(head, batch[1:])]

            def place(row: PrimExpr) -> tuple[list[PrimExpr], PrimExpr]:
                if self.group == 1:
                    return [*at, inner], row
                return [*at, inner * self.group + row % self.group], row // self.group

            return let(
                "first",
                first,
                lambda first: let(
                    "count", ops.minimum(rows - first, self.sizes.rows), lambda n: _Block(self, place, first, n).body()
                ),
            )

        kind = ForKind.PARALLEL if self.parallel else ForKind.SERIAL
        return loop(const(0, self.dtype), size_of(batch) * blocks, block, "block", kind)

    def made(self, name: str, *shape: int, scope: str = "global") -> Buffer:
        """A buffer of float32."""
        return decl_buffer([const(extent, self.dtype) for extent in shape], "float32", name, scope=scope)


class _Block:
    """The rows from `first` on, `count` of them; `place` gives the batch and query of a row."""

    def __init__(
        self,
        loops: Loops,
        place: Callable[[PrimExpr], tuple[list[PrimExpr], PrimExpr]],
        first: PrimExpr,
        count: PrimExpr,
    ):
        self.loops, self.parts, self.sizes = loops, loops.parts, loops.sizes
        self.place, self.first, self.count = place, first, count
        self.at = place(first)[0]
        """Of the first row: all of them have the same keys and values."""
        self.vector = range(self.sizes.lanes)

    def body(self) -> Stmt:
        """Sums over all keys that a row of the block sees, and what is stored of them."""
        own, sizes = self.loops, self.sizes
        buffers = [own.query, own.weight, own.sums, own.top, own.total, own.factor]
        if own.copied:
            buffers += [own.key, own.value]
        keys = self.reach(self.count - 1)
        blocks = (keys + (sizes.keys - 1)) // sizes.keys
        steps = [
            self.tiles(self.count, sizes.score_rows, lambda tile: self.each_row(tile, sizes.score_rows, self.begun)),
            loop(const(0, own.dtype), blocks, lambda b: self.keys(b * sizes.keys, keys), "keys"),
            loop(const(0, own.dtype), self.count, self.stored, "row"),
        ]
        return allocate(buffers, *steps)

    def reach(self, row: PrimExpr) -> PrimExpr:
        """How many keys a row of the block sees."""
        if self.parts.reach is None:
            return self.parts.keys
        at, i = self.place(self.first + row)
        return ops.maximum(ops.minimum(self.parts.reach(at, i), self.parts.keys), const(0, self.loops.dtype))

    def begun(self, row: PrimExpr) -> Stmt:
        """A row before its first key. Rows past the last one repeat it."""
        own = self.loops
        at, i = self.place(self.first + ops.minimum(row, self.count - 1))
        return flat_seq(
            [
                store(own.top, [row], const(_LEAST, "float32")),
                store(own.total, [row], 0),
                loop(0, own.depth, lambda k: store(own.query, [row, k], self.parts.query(at, i, k)), "k"),
                loop(0, own.padded, lambda d: store(own.sums, [row, d], 0), "d"),
            ]
        )

    def stored(self, row: Var) -> Stmt:
        """The results of a row."""
        own, zero = self.loops, const(0, "float32")
        at, i = self.place(self.first + row)

        def element(d: PrimExpr) -> Stmt:
            value: PrimExpr = own.sums[row, d] / own.total[row]
            if self.parts.safe:
                value = Select(own.total[row] > zero, value, zero)
            if as_int(self.parts.keys) is None:
                value = Select(self.parts.keys > 0, value, zero)
            return self.parts.store(at, i, d, value)

        return loop(const(0, own.dtype), const(own.width, own.dtype), element, "d")

    def keys(self, first: PrimExpr, end: PrimExpr) -> Stmt:
        """The keys from `first` on, of all up to `end`."""
        own, sizes = self.loops, self.sizes

        def rows_of(count: int, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
            """Tiles of rows, and how many keys of the block their last row sees."""

            def tile(row: PrimExpr) -> Stmt:
                if self.parts.reach is None:
                    return body(row, here)
                last = ops.minimum(row + (count - 1), self.count - 1)
                return let("seen", self.within(self.reach(last) - first, here), lambda seen: body(row, seen))

            return self.tiles(self.count, count, tile)

        def scores(panel: PrimExpr) -> Stmt:
            def some(row: PrimExpr, seen: PrimExpr) -> Stmt:
                tile = self.scores(row, panel) if own.copied else self.direct_scores(first, panel)
                return tile if self.parts.reach is None else IfThenElse(panel * sizes.panel < seen, tile)

            return rows_of(sizes.score_rows, some)

        def sums(row: PrimExpr, seen: PrimExpr) -> Stmt:
            return loop(0, own.padded // sizes.value_lanes, lambda w: self.weighted(row, w, first, seen), "w")

        here = Var("here", own.dtype)
        panels = (here + (sizes.panel - 1)) // sizes.panel
        steps = [
            loop(const(0, own.dtype), panels, scores, "panel"),
            rows_of(
                sizes.value_rows,
                lambda tile, seen: self.each_row(
                    tile, sizes.value_rows, lambda row: self.softmax(row, first, here, seen)
                ),
            ),
            rows_of(sizes.value_rows, sums),
        ]
        if own.copied:
            steps.insert(0, loop(const(0, own.dtype), panels, lambda p: self.copied_keys(first, p), "panel"))
            steps.insert(1, loop(const(0, own.dtype), here, lambda j: self.copied_value(first, j), "j"))
        return LetStmt(here, ops.minimum(end - first, sizes.keys), flat_seq(steps))

    # -- what is copied --

    def copied_keys(self, first: PrimExpr, panel: PrimExpr) -> Stmt:
        """A panel of keys; past the last one are copies of it, which nothing reads the scores of."""
        own, sizes = self.loops, self.sizes
        lanes = self.sizes.lanes
        last = self.parts.keys - 1

        def source(p: PrimExpr, k: PrimExpr) -> PrimExpr:
            return self.parts.key(self.at, ops.minimum(first + panel * sizes.panel + p, last), k)

        k = Var("k", own.dtype)
        if lanes == 1 or own.depth % lanes or not lies_along(self.parts.key(self.at, first, k), k):
            return loop(
                0, sizes.panel, lambda p: loop(0, own.depth, lambda k: store(own.key, [panel, k, p], source(p, k)))
            )
        rows, spare = (own.made(name, lanes, lanes, scope="local") for name in ("rows", "spare"))
        exchanged, result = transposed(rows, spare)
        columns = vectors(result, lanes, own.dtype)

        def square(p: Var, k: Var) -> Stmt:
            return allocate(
                [rows, spare],
                _unrolled(
                    lanes,
                    lambda j: self.over(
                        lanes, lambda lane: store(rows, [j, lane], source(p * lanes + j, k * lanes + lane))
                    ),
                ),
                exchanged,
                _unrolled(
                    lanes,
                    lambda i: BufferStore(
                        own.key, columns[i], [panel, k * lanes + i, Ramp(p * lanes, const(1, own.dtype), lanes)]
                    ),
                ),
            )

        return loop(
            const(0, own.dtype),
            const(sizes.panel // lanes, own.dtype),
            lambda p: loop(const(0, own.dtype), const(own.depth // lanes, own.dtype), lambda k: square(p, k), "k"),
            "p",
        )

    def copied_value(self, first: PrimExpr, j: PrimExpr) -> Stmt:
        """A value; elements past its end are 0."""
        own = self.loops
        steps = [loop(0, own.width, lambda d: store(own.value, [j, d], self.parts.value(self.at, first + j, d)), "d")]
        if own.padded > own.width:
            steps.append(loop(own.width, own.padded, lambda d: store(own.value, [j, d], 0), "d"))
        return flat_seq(steps)

    # -- products of queries and keys --

    def scores(self, row: PrimExpr, panel: PrimExpr) -> Stmt:
        """A tile of products of rows and keys."""
        own, sizes = self.loops, self.sizes
        products = own.made("products", sizes.score_rows, sizes.panel, scope="local")

        def added(k: Var) -> Stmt:
            return self.each(
                products,
                lambda r, p: store(products, [r, p], products[r, p] + own.query[row + r, k] * own.key[panel, k, p]),
            )

        return allocate(
            [products],
            self.each(products, lambda r, p: store(products, [r, p], 0)),
            loop(const(0, own.dtype), const(own.depth, own.dtype), added, "k"),
            self.each(products, lambda r, p: store(own.weight, [row + r, panel * sizes.panel + p], products[r, p])),
        )

    def direct_scores(self, first: PrimExpr, panel: PrimExpr) -> Stmt:
        """The products of all rows and a vector of keys."""
        own, sizes, lanes = self.loops, self.sizes, self.sizes.lanes
        last = self.parts.keys - 1
        products = [own.made(f"products{r}", lanes, lanes, scope="local") for r in range(sizes.rows)]
        chunks = own.depth // lanes
        steps = []
        for j in range(lanes):
            at = ops.minimum(first + panel * lanes + j, last)
            for chunk in range(chunks):

                def of_row(lane: PrimExpr, r: int, j: int = j, chunk: int = chunk, at: PrimExpr = at) -> Stmt:
                    k = lane + chunk * lanes
                    key = ops.cast("float32", self.parts.key(self.at, at, k))
                    product = own.query[const(r, own.dtype), k] * key
                    old = products[r][const(j, own.dtype), lane]
                    return store(products[r], [const(j, own.dtype), lane], old + product if chunk else product)

                steps += [self.over(lanes, lambda lane, r=r: of_row(lane, r)) for r in range(sizes.rows)]
        for r in range(sizes.rows):
            place = [const(r, own.dtype), Ramp(panel * lanes, const(1, own.dtype), lanes)]
            steps += [added_up(products[r]), BufferStore(own.weight, vectors(products[r], lanes, own.dtype)[0], place)]
        return allocate(products, *steps)

    # -- softmax --

    def softmax(self, row: PrimExpr, first: PrimExpr, here: PrimExpr, seen: PrimExpr) -> Stmt:
        """A row's exponentials, their sum and the largest score so far; `seen` are the keys that its tile computes."""
        own, lanes = self.loops, self.sizes.lanes
        zero = const(0, own.dtype)
        at, i = self.place(self.first + ops.minimum(row, self.count - 1))
        largest, added = own.made("largest", lanes, scope="local"), own.made("added", lanes, scope="local")

        def scored(vector: PrimExpr, limit: PrimExpr | None) -> Stmt:
            def lane(v: PrimExpr) -> Stmt:
                j = vector * lanes + v
                value = ops.cast("float32", self.parts.score(at, i, first + j, own.weight[row, j]))
                if limit is not None:
                    value = if_then_else(j < limit, value, const(float("-inf"), "float32"))
                return flat_seq([store(own.weight, [row, j], value)])

            def compared(v: PrimExpr) -> Stmt:
                new = own.weight[row, vector * lanes + v]
                return store(largest, [v], Select(largest[v] > new, largest[v], new))

            return flat_seq([self.over(lanes, lane), self.over(lanes, compared)])

        def exponential(vector: PrimExpr, top: PrimExpr) -> Stmt:
            def lane(v: PrimExpr) -> Stmt:
                j = vector * lanes + v
                return _exponential(own.weight[row, j] - top, lambda weight: store(own.weight, [row, j], weight))

            def counted(v: PrimExpr) -> Stmt:
                return store(added, [v], added[v] + own.weight[row, vector * lanes + v])

            return flat_seq([self.over(lanes, lane), self.over(lanes, counted)])

        def nothing(vector: PrimExpr) -> Stmt:
            return self.over(lanes, lambda v: store(own.weight, [row, vector * lanes + v], 0))

        def of_keys(limit: PrimExpr) -> Stmt:
            whole, some = limit // lanes, (limit + (lanes - 1)) // lanes

            def with_top(top: Var) -> Stmt:
                return flat_seq(
                    [
                        loop(zero, some, lambda vector: exponential(vector, top), "vector"),
                        loop(some, (seen + (lanes - 1)) // lanes, nothing, "vector"),
                        _halved(added, lanes, lambda a, b: a + b, self.over),
                        _exponential(own.top[row] - top, lambda factor: store(own.factor, [row], factor)),
                        store(own.total, [row], own.total[row] * own.factor[row] + added[zero]),
                        store(own.top, [row], top),
                    ]
                )

            steps: list[Stmt] = [
                self.over(lanes, lambda v: store(largest, [v], const(_LEAST, "float32"))),
                self.over(lanes, lambda v: store(added, [v], 0)),
                loop(zero, whole, lambda vector: scored(vector, None), "vector"),
                loop(whole, some, lambda vector: scored(vector, limit), "vector"),
                _halved(largest, lanes, lambda a, b: Select(a > b, a, b), self.over),
                let("top", Select(own.top[row] > largest[zero], own.top[row], largest[zero]), with_top),
            ]
            return allocate([largest, added], *steps)

        if self.parts.reach is None:
            return of_keys(here)
        own_reach = self.within(self.reach(ops.minimum(row, self.count - 1)) - first, here)
        return let("limit", own_reach, of_keys)

    # -- sums of values --

    def weighted(self, row: PrimExpr, w: PrimExpr, first: PrimExpr, seen: PrimExpr) -> Stmt:
        """A tile of sums of values: what it was, rescaled, and what the block's keys add."""
        own, sizes = self.loops, self.sizes
        products = own.made("products", sizes.value_rows, sizes.value_lanes, scope="local")

        def value(j: PrimExpr, d: PrimExpr) -> PrimExpr:
            column = w * sizes.value_lanes + d
            if own.copied:
                return own.value[j, column]
            return ops.cast("float32", self.parts.value(self.at, first + j, column))

        def added(j: Var) -> Stmt:
            return self.each(
                products, lambda r, d: store(products, [r, d], products[r, d] + own.weight[row + r, j] * value(j, d))
            )

        def place(r: PrimExpr, d: PrimExpr) -> list[PrimExpr]:
            return [row + r, w * sizes.value_lanes + d]

        return allocate(
            [products],
            self.each(
                products, lambda r, d: store(products, [r, d], BufferLoad(own.sums, place(r, d)) * own.factor[row + r])
            ),
            loop(const(0, own.dtype), seen, added, "j"),
            self.each(products, lambda r, d: store(own.sums, place(r, d), products[r, d])),
        )

    # -- loops --

    def within(self, value: PrimExpr, end: PrimExpr) -> PrimExpr:
        """A number of keys, at least 0 and at most `end`."""
        return ops.maximum(ops.minimum(value, end), const(0, self.loops.dtype))

    def tiles(self, rows: PrimExpr, count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Whole tiles of rows; `body` gets the first row of each."""
        return loop(const(0, self.loops.dtype), (rows + (count - 1)) // count, lambda tile: body(tile * count), "tile")

    def each_row(self, first: PrimExpr, count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """The rows of a tile."""
        return loop(const(0, self.loops.dtype), const(count, self.loops.dtype), lambda r: body(first + r), "row")

    def each(self, tile: Buffer, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        """The elements of a tile in registers, which have numbers: of each row, vector by vector."""
        rows, elements = (as_int(extent) or 1 for extent in tile.shape)
        dtype = self.loops.dtype
        # Of elements of values that are read as they lie, there may be no whole vectors.
        lanes = self.sizes.lanes if elements % self.sizes.lanes == 0 else elements

        def row(r: PrimExpr) -> Stmt:
            return loop(
                const(0, dtype),
                const(elements // lanes, dtype),
                lambda v: self.over(lanes, lambda lane: body(r, v * lanes + lane)),
                "v",
                ForKind.UNROLLED,
            )

        return loop(const(0, dtype), const(rows, dtype), row, "r", ForKind.UNROLLED)

    def over(self, lanes: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """The lanes of a vector."""
        if lanes == 1:
            return body(const(0, self.loops.dtype))
        dtype = self.loops.dtype
        return loop(const(0, dtype), const(lanes, dtype), body, "lane", ForKind.VECTORIZED)


def _exponential(x: PrimExpr, use: Callable[[PrimExpr], Stmt]) -> Stmt:
    """What uses e^x, for x up to 0, which is 0 where it would be subnormal.

    Keys whose scores are as far below the largest have no weight. Masks of -100 would give subnormal weights, and those
    of minus infinity come by way of such: 384 windows of 49 queries, half of whose keys were masked, took 61 and 12 ms
    on an Emerald Rapids, and take 5.5 and 5.0.

    2^k * e^r with k = round(x / ln 2), as `exp` computes it. Within these bounds 2^k is one factor, and k ln 2 one
    product, whose error grows with k: results are exact to 6e-8 near 1 and to 3e-7 near the smallest.
    """

    def with_rounded(rounded: Var) -> Stmt:
        # Its lowest bits are k, and those above move out.
        power = (reinterpret("uint32", rounded) << const(23, "uint32")) + const(0x3F800000, "uint32")

        def with_rest(r: Var) -> Stmt:
            value = horner(r, (1.0, 1.0, *EXP)) * reinterpret("float32", power)
            return use(Select(x < LN_SMALLEST, const(0.0, "float32"), value))

        return let("r", x - (rounded - ROUNDER) * math.log(2), with_rest)

    return let("rounded", x * LOG2_E + ROUNDER, with_rounded)


def _unrolled(count: int, body: Callable[[int], Stmt]) -> Stmt:
    return flat_seq([body(i) for i in range(count)])


def lies_along(load: BufferLoad, axis: Var) -> bool:
    """Whether neighbours along an axis are neighbours in memory: it is the last index, and in no other."""
    *others, last = load.indices
    return last is axis and not load.buffer.strides and all(axis not in variables(index) for index in others)


def _halved(
    vector: Buffer,
    lanes: int,
    combine: Callable[[PrimExpr, PrimExpr], PrimExpr],
    over: Callable[[int, Callable[[PrimExpr], Stmt]], Stmt],
) -> Stmt:
    """Combines the elements of a vector into its first one."""
    steps = []
    while lanes > 1:
        lanes //= 2
        steps.append(over(lanes, lambda v, half=lanes: store(vector, [v], combine(vector[v], vector[v + half]))))
    return flat_seq(steps)
