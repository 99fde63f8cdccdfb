"""Recurrent layers: a loop over time around products of the hidden state, any number of steps in one function.

    for d, tile in T.parallel(directions, batch // ROWS):    for d, t in T.grid(directions, steps):
        for t in range(steps):                                   for block in T.parallel(blocks):
            for block in range(units // lanes):                      for tile in range(batch // ROWS):
                        sums[row, gate, lane] += weights[d, block, k, gate, lane] * hidden[row, k]
                        hidden'[row, lane], ... = cell(sums, gates[t, row, d, block], hidden[row, lane], ...)

Sequences of a batch do not depend on each other, so where a core keeps all weights (left), each tile of sequences runs
through time alone. Where it does not (right), threads share the units of a step, so that each reads only its part of
the weights, once for the whole batch; it may keep its part of one direction, so the other begins after that. All gates
of some neighbouring units are computed together: their sums stay in registers, and weights are read in the order in
which they lie. `lanes_of` and the shapes below say how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Var, as_int, const
from ...te.tensor import Tensor
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import Select
from ...tir.stmt import ForKind, IfThenElse, LetStmt, Stmt, flat_seq
from ..loops import allocate, loop, store

ROWS = 4
"""Sequences of a batch that are computed together; fewer are as fast one by one."""
MOST_KEPT = 512 << 10
"""Bytes of weights for which threads do not meet at each step: a meeting takes about as long as one of them reads half
of these. Twice as many, still a second-level cache, where several tiles or directions have work for other threads."""
_REGISTER = 16
"""Floats of the widest vector register."""

Values = Sequence[PrimExpr]


@dataclass(frozen=True)
class Product:
    """The gates from `first` to `last`, as products of weights and a vector, and what follows from them.

    `follow(sums, gates, vectors, parameters)` gives new elements of vectors, by number: `sums` are the products,
    `gates` what the input makes of these gates, `vectors` the elements of all vectors, `parameters` those of the unit.
    """

    first: int
    last: int
    source: int
    follow: Callable[[Values, Values, Values, Values], Mapping[int, PrimExpr]]


@dataclass(frozen=True)
class Cell:
    """One step of a layer: products, one after the other, over vectors with an element for each unit.

    Vector 0 is the hidden state. The first `states` vectors are carried from step to step; others are for within one.
    """

    gates: int
    states: int
    vectors: int
    products: Sequence[Product]


def lanes_of(gates: int, units: int) -> int:
    """How many neighbouring units are computed together: with one gate, enough of them to fill some registers."""
    blocks = -(-units // _REGISTER)
    return _REGISTER * min(max(1, 4 // gates), blocks)


def recurrent(
    cell: Cell,
    gates: Tensor,
    weights: Sequence[Tensor],
    initial: Sequence[Tensor],
    backward: Sequence[bool],
    parameters: Tensor | None = None,
    lengths: Tensor | None = None,
) -> list[Tensor]:
    """The hidden states of all steps, (steps, directions, batch, units), and the last states, (directions, batch,
    units) each.

    `gates` is what the input makes of the gates, (steps, batch, directions, blocks, gates, lanes), with `lanes_of`
    units to a block and zeros past the last unit. `weights` are those of each product, (directions, blocks, units,
    gates, lanes), `parameters` are (directions, blocks, parameters, lanes), and `initial` states are as the last ones.
    `backward` says of each direction whether it runs from the last step to the first. With `lengths`, int32 (batch,),
    a sequence keeps its states after its end, and its outputs are 0 there; backwards, it begins at its own end.
    """
    inputs = [gates, *weights, *initial, *(x for x in (parameters, lengths) if x is not None)]
    steps, batch = gates.shape[:2]
    units = initial[0].shape[2]
    shapes = [[steps, len(backward), batch, units], *[list(s.shape) for s in initial]]

    def body(ins: Any, outs: Any) -> Stmt:
        rest = iter(ins)
        own = _Buffers(
            next(rest),
            [next(rest) for _ in weights],
            [next(rest) for _ in initial],
            None if parameters is None else next(rest),
            None if lengths is None else next(rest),
            outs[0],
            list(outs[1:]),
        )
        known = as_int(batch)
        few, many = (_Layer(cell, own, backward, rows) for rows in (1, ROWS))
        if known is not None:
            return few.body() if known < ROWS else many.body()
        return IfThenElse(batch < ROWS, few.body(), many.body())

    return te.extern(
        shapes,
        inputs,
        body,
        name="recurrent",
        dtype=[gates.dtype] * len(shapes),
        out_buffers=[decl_buffer(s, gates.dtype, name) for s, name in zip(shapes, ("y", "y_h", "y_c"), strict=False)],
        tag="recurrent",
    )


@dataclass(frozen=True)
class _Buffers:
    gates: Buffer
    weights: list[Buffer]
    initial: list[Buffer]
    parameters: Buffer | None
    lengths: Buffer | None
    outputs: Buffer
    last: list[Buffer]


@dataclass(frozen=True)
class _Tile:
    """Some sequences in one direction: the first of them, and where vectors have their elements."""

    direction: PrimExpr
    first: PrimExpr
    held_first: PrimExpr


class _Layer:
    """The statements of a layer, so many sequences of the batch at a time."""

    def __init__(self, cell: Cell, own: _Buffers, backward: Sequence[bool], rows: int):
        self.cell, self.own, self.backward = cell, own, backward
        self.steps, self.batch, _, self.blocks, _, lanes = own.gates.shape
        self.lanes = as_int(lanes) or 1
        self.units = own.initial[0].shape[2]
        self.dtype = own.gates.dtype
        self.rows = rows
        self.tiles = (self.batch + (rows - 1)) // rows
        units, batch = as_int(self.units) or 0, as_int(self.batch) or 1
        most = MOST_KEPT if len(backward) == 1 and batch <= rows else 2 * MOST_KEPT
        self.apart = units * units * cell.gates * self.dtype.itemsize <= most
        held = rows if self.apart else self.tiles * rows
        self.vectors = [
            # What a product reads must not change while it runs.
            decl_buffer((2 if i == 0 else 1, held, self.blocks * self.lanes), self.dtype, f"vector{i}")
            for i in range(cell.vectors)
        ]

    def body(self) -> Stmt:
        return self.tile_by_tile() if self.apart else self.step_by_step()

    def tile_by_tile(self) -> Stmt:
        """All steps of some sequences, and of others beside them."""

        def whole(index: Var) -> Stmt:
            tile = _Tile(index // self.tiles, index % self.tiles * self.rows, const(0, index.dtype))

            def units(number: int, t: Var) -> Stmt:
                return loop(0, self.blocks, lambda b: self.block(number, t, tile, b), "block")

            def step(t: Var) -> Stmt:
                return flat_seq([units(number, t) for number in range(len(self.cell.products))])

            return allocate(self.vectors, self.begin(tile), loop(0, self.steps, step, "t"), self.end(tile))

        return loop(0, self.tiles * len(self.backward), whole, "tile", ForKind.PARALLEL)

    def step_by_step(self) -> Stmt:
        """All sequences of one step after the other, some units beside others; one direction after the other."""

        def direction(d: Var) -> Stmt:
            def tiles(body: Callable[[_Tile], Stmt]) -> Stmt:
                def of_tile(i: Var) -> Stmt:
                    first = i * self.rows
                    return body(_Tile(d, first, first))

                return loop(0, self.tiles, of_tile, "tile")

            def units(number: int, t: Var) -> Stmt:
                def some(block: Var) -> Stmt:
                    return tiles(lambda tile: self.block(number, t, tile, block))

                return loop(0, self.blocks, some, "block", ForKind.PARALLEL)

            def step(t: Var) -> Stmt:
                return flat_seq([units(number, t) for number in range(len(self.cell.products))])

            return flat_seq([tiles(self.begin), loop(0, self.steps, step, "t"), tiles(self.end)])

        return allocate(self.vectors, loop(0, len(self.backward), direction, "direction"))

    def begin(self, tile: _Tile) -> Stmt:
        """The first states, with zeros past the last unit."""

        def of_state(i: int) -> Stmt:
            def element(r: Var, u: Var) -> Stmt:
                inside = self.own.initial[i][tile.direction, self.row(tile, r), ops.minimum(u, self.units - 1)]
                value = Select(u < self.units, inside, const(0, self.dtype))
                return store(self.vectors[i], self.place(tile, 0, r, u), value)

            return self.for_rows(self.blocks * self.lanes, element)

        return flat_seq([of_state(i) for i in range(self.cell.states)])

    def end(self, tile: _Tile) -> Stmt:
        """The last states."""

        def of_state(i: int) -> Stmt:
            slot = ops.truncmod(self.steps, 2) if i == 0 else 0

            def element(r: Var, u: Var) -> Stmt:
                value = self.vectors[i][tuple(self.place(tile, slot, r, u))]
                return store(self.own.last[i], [tile.direction, self.row(tile, r), u], value)

            return self.for_rows(self.units, element)

        return flat_seq([of_state(i) for i in range(self.cell.states)])

    def row(self, tile: _Tile, r: PrimExpr) -> PrimExpr:
        """The sequence of a row: past the last one, that one again."""
        return ops.minimum(tile.first + r, self.batch - 1)

    def place(self, tile: _Tile, slot: Any, r: PrimExpr, unit: PrimExpr) -> list[Any]:
        """Where vectors have the element of a row and a unit."""
        return [slot, tile.held_first + r, unit]

    def time(self, t: Var, tile: _Tile, row: PrimExpr) -> tuple[PrimExpr, PrimExpr | None]:
        """Where a sequence is in time at step `t`, and whether it has not ended, where lengths are given."""
        last, running = self.steps - 1, None
        if self.own.lengths is not None:
            length = ops.cast(self.steps.dtype, self.own.lengths[row])
            last, running = length - 1, t < ops.cast(t.dtype, length)
        if not any(self.backward):
            return t, running
        # A sequence that has ended is at the place of the step: its output is 0.
        turned = Select(t <= last, last - t, t)
        if not all(self.backward):
            # Of two directions, the second runs backwards.
            turned = Select(ops.equal(tile.direction, const(1, tile.direction.dtype)), turned, t)
        return turned, running

    def block(self, number: int, t: Var, tile: _Tile, block: PrimExpr) -> Stmt:
        """A product, and what follows from it, for the units of a block; the last one gives the step's outputs."""
        product, weights = self.cell.products[number], self.own.weights[number]
        count = product.last - product.first
        shape = (self.rows, count, self.lanes)
        # Registers have numbers: an array that is indexed by a variable lies in memory.
        registers = decl_buffer(shape, self.dtype, "registers", scope="local")
        sums = decl_buffer(shape, self.dtype, "sums", scope="local")
        source = self.vectors[product.source]
        slot = t % 2 if product.source == 0 else 0

        def elements(make: Callable[[Any, Any, Any], Stmt]) -> Stmt:
            def of_gate(r: PrimExpr) -> Stmt:
                return loop(0, count, lambda g: self.over_lanes(lambda v: make(r, g, v)), "g", ForKind.UNROLLED)

            return loop(0, self.rows, of_gate, "r", ForKind.UNROLLED)

        def added(k: Var) -> Stmt:
            def element(r: Any, g: Any, v: Any) -> Stmt:
                factor = source[tuple(self.place(tile, slot, r, k))]
                value = registers[r, g, v] + weights[tile.direction, block, k, g, v] * factor
                return store(registers, [r, g, v], value)

            return elements(element)

        def follow(r: Var) -> Stmt:
            made = self.followed(product, sums, t, tile, block, r)
            return flat_seq([made, self.shown(t, tile, block, r)]) if number + 1 == len(self.cell.products) else made

        return allocate(
            [registers, sums],
            elements(lambda r, g, v: store(registers, [r, g, v], 0)),
            loop(0, self.units, added, "k"),
            elements(lambda r, g, v: store(sums, [r, g, v], registers[r, g, v])),
            loop(0, self.rows, follow, "r"),
        )

    def followed(self, product: Product, sums: Buffer, t: Var, tile: _Tile, block: PrimExpr, r: Var) -> Stmt:
        """The new elements of vectors for the units of a block."""
        row = self.row(tile, r)
        place, running = self.time(t, tile, row)

        def lane(v: Any) -> Stmt:
            unit = block * self.lanes + v
            old = [
                vector[tuple(self.place(tile, t % 2 if i == 0 else 0, r, unit))]
                for i, vector in enumerate(self.vectors)
            ]
            gates = range(product.first, product.last)
            given = [self.own.gates[place, row, tile.direction, block, g, v] for g in gates]
            more = self.own.parameters
            count = 0 if more is None else as_int(more.shape[2]) or 0
            own = [] if more is None else [more[tile.direction, block, p, v] for p in range(count)]
            made = product.follow([sums[r, g, v] for g in range(len(given))], given, old, own)

            def kept(i: int, value: PrimExpr) -> PrimExpr:
                return value if running is None or i >= self.cell.states else Select(running, value, old[i])

            def stores(values: list[Var]) -> Stmt:
                return flat_seq(
                    [
                        store(self.vectors[i], self.place(tile, (t + 1) % 2 if i == 0 else 0, r, unit), kept(i, value))
                        for i, value in zip(made, values, strict=True)
                    ]
                )

            return named(list(made.values()), stores)

        return self.over_lanes(lane)

    def shown(self, t: Var, tile: _Tile, block: PrimExpr, r: Var) -> Stmt:
        """The outputs of a step for the units of a block."""
        row = self.row(tile, r)
        place, running = self.time(t, tile, row)

        def lane(v: Any) -> Stmt:
            unit = block * self.lanes + v
            value = self.vectors[0][tuple(self.place(tile, (t + 1) % 2, r, unit))]
            if running is not None:
                value = Select(running, value, const(0, self.dtype))
            return store(self.own.outputs, [place, tile.direction, row, unit], value)

        if (as_int(self.units) or 1) % self.lanes == 0:
            return self.over_lanes(lane)
        return loop(0, ops.minimum(self.units - block * self.lanes, self.lanes), lane, "v")

    def over_lanes(self, body: Callable[[Any], Stmt]) -> Stmt:
        return loop(0, self.lanes, body, "v", ForKind.VECTORIZED)

    def for_rows(self, extent: PrimExpr, body: Callable[[Var, Var], Stmt]) -> Stmt:
        """Loops over the rows of a tile and over units."""
        return loop(0, self.rows, lambda r: loop(0, extent, lambda u: body(r, u), "u"), "r")


def named(values: Sequence[PrimExpr], body: Callable[[list[Var]], Stmt]) -> Stmt:
    """Names for values, which are computed before anything is stored."""
    variables = [Var(f"new{i}", value.dtype) for i, value in enumerate(values)]
    stmt = body(variables)
    for variable, value in reversed(list(zip(variables, values, strict=True))):
        stmt = LetStmt(variable, value, stmt)
    return stmt
