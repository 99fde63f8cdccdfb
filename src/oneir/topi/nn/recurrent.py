"""Recurrent layers: a loop over time around products of the hidden state, any number of steps in one function.

    for d, tile in T.parallel(directions, batch // ROWS):
        for t in range(steps):
            for block in range(units // lanes):
                sums[row, gate, lane] += weights[d, block, k, gate, lane] * hidden[row, k]
                hidden'[row, lane], ... = cell(sums, gates[t, row, d, block], hidden[row, lane], ...)

Sequences of a batch do not depend on each other, so each tile of them runs through time alone. All gates of some
neighbouring units are computed together: their sums stay in registers, and weights are read in the order in which they
lie. `lanes_of` and the shapes below say how.
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


class _Layer:
    """The statements of a layer, so many sequences of the batch at a time."""

    def __init__(self, cell: Cell, own: _Buffers, backward: Sequence[bool], rows: int):
        self.cell, self.own, self.backward = cell, own, backward
        self.steps, self.batch, _, self.blocks, _, lanes = own.gates.shape
        self.lanes = as_int(lanes) or 1
        self.units = own.initial[0].shape[2]
        self.dtype = own.gates.dtype
        self.rows = rows
        padded = self.blocks * self.lanes
        self.vectors = [
            # What a product reads must not change while it runs.
            decl_buffer((2 if i == 0 else 1, self.rows, padded), self.dtype, f"vector{i}")
            for i in range(cell.vectors)
        ]

    def body(self) -> Stmt:
        tiles = (self.batch + (self.rows - 1)) // self.rows
        count = len(self.backward)

        def whole(index: Var) -> Stmt:
            return self.tile(index // tiles, index % tiles)

        return loop(0, tiles * count, whole, "tile", ForKind.PARALLEL)

    def tile(self, direction: PrimExpr, tile: PrimExpr) -> Stmt:
        """All steps of some sequences in one direction."""

        def row(r: PrimExpr) -> PrimExpr:
            return ops.minimum(tile * self.rows + r, self.batch - 1)

        def begin(i: int) -> Stmt:
            def element(r: Var, u: Var) -> Stmt:
                inside = self.own.initial[i][direction, row(r), ops.minimum(u, self.units - 1)]
                return store(self.vectors[i], [0, r, u], Select(u < self.units, inside, const(0, self.dtype)))

            return self.for_rows(self.blocks * self.lanes, element)

        def end(i: int) -> Stmt:
            slot = ops.truncmod(self.steps, 2) if i == 0 else 0
            return self.for_rows(
                self.units,
                lambda r, u: store(self.own.last[i], [direction, row(r), u], self.vectors[i][slot, r, u]),
            )

        states = range(self.cell.states)
        time = loop(0, self.steps, lambda t: self.step(t, direction, row), "t")
        return allocate(self.vectors, *map(begin, states), time, *map(end, states))

    def step(self, t: Var, direction: PrimExpr, row: Callable[[Any], PrimExpr]) -> Stmt:
        """One step of some sequences."""

        def place(r: PrimExpr) -> PrimExpr:
            """Where a row is in time."""
            last = self.steps - 1
            if self.own.lengths is not None:
                last = ops.cast(self.steps.dtype, self.own.lengths[row(r)]) - 1
            if not any(self.backward):
                return t
            # A sequence that has ended is at the place of the step: its output is 0.
            turned = Select(t <= last, last - t, t)
            return turned if all(self.backward) else Select(self.turns(direction), turned, t)

        def running(r: PrimExpr) -> PrimExpr | None:
            lengths = self.own.lengths
            return None if lengths is None else t < ops.cast(t.dtype, lengths[row(r)])

        def shown(r: Var, u: Var) -> Stmt:
            value, holds = self.vectors[0][(t + 1) % 2, r, u], running(r)
            if holds is not None:
                value = Select(holds, value, const(0, self.dtype))
            return store(self.own.outputs, [place(r), direction, row(r), u], value)

        products = [
            self.product(product, weights, t, direction, lambda r: (place(r), row(r), running(r)))
            for product, weights in zip(self.cell.products, self.own.weights, strict=True)
        ]
        return flat_seq([*products, self.for_rows(self.units, shown)])

    def turns(self, direction: PrimExpr) -> PrimExpr:
        """Whether a direction runs backwards; the first of two does not."""
        return ops.equal(direction, const(1, direction.dtype))

    def product(
        self,
        product: Product,
        weights: Buffer,
        t: Var,
        direction: PrimExpr,
        of_row: Callable[[Any], tuple[PrimExpr, PrimExpr, PrimExpr | None]],
    ) -> Stmt:
        """Some gates of all units, and what follows from them."""
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

        def block(b: Var) -> Stmt:
            def added(k: Var) -> Stmt:
                return elements(
                    lambda r, g, v: store(
                        registers,
                        [r, g, v],
                        registers[r, g, v] + weights[direction, b, k, g, v] * source[slot, r, k],
                    )
                )

            return allocate(
                [registers, sums],
                elements(lambda r, g, v: store(registers, [r, g, v], 0)),
                loop(0, self.units, added, "k"),
                elements(lambda r, g, v: store(sums, [r, g, v], registers[r, g, v])),
                loop(0, self.rows, lambda r: self.followed(product, sums, b, r, t, direction, *of_row(r)), "r"),
            )

        return loop(0, self.blocks, block, "block")

    def followed(
        self,
        product: Product,
        sums: Buffer,
        block: Var,
        row: Var,
        t: Var,
        direction: PrimExpr,
        place: PrimExpr,
        batch: PrimExpr,
        running: PrimExpr | None,
    ) -> Stmt:
        """The new elements of vectors for the units of a block."""

        def lane(v: Any) -> Stmt:
            unit = block * self.lanes + v
            places = [[t % 2 if i == 0 else 0, row, unit] for i in range(len(self.vectors))]
            old = [vector[tuple(p)] for vector, p in zip(self.vectors, places, strict=True)]
            given = [self.own.gates[place, batch, direction, block, g, v] for g in range(product.first, product.last)]
            more = self.own.parameters
            own = [] if more is None else [more[direction, block, p, v] for p in range(as_int(more.shape[2]) or 0)]
            made = product.follow([sums[row, g, v] for g in range(len(given))], given, old, own)

            def kept(i: int, value: PrimExpr) -> PrimExpr:
                return value if running is None or i >= self.cell.states else Select(running, value, old[i])

            def stores(values: list[Var]) -> Stmt:
                return flat_seq(
                    [
                        store(self.vectors[i], [(t + 1) % 2 if i == 0 else 0, row, unit], kept(i, value))
                        for i, value in zip(made, values, strict=True)
                    ]
                )

            return named(list(made.values()), stores)

        return self.over_lanes(lane)

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
