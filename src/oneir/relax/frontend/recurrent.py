"""Recurrent layers of importers: one product computes what the input makes of gates, a loop over time the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.expr import const as number
from ...topi.nn.recurrent import Cell, Product, Values, lanes_of
from ...topi.nn.recurrent import recurrent as te_recurrent
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, ShapeExpr, TupleGetItem, const
from ..struct_info import TensorStructInfo

Activation = Callable[[PrimExpr], PrimExpr]


def rnn_cell(activation: Activation) -> Cell:
    """One step of a plain recurrent layer."""

    def follow(sums: Values, gates: Values, vectors: Values, parameters: Values) -> dict[int, PrimExpr]:
        return {0: activation(gates[0] + sums[0])}

    return Cell(1, 1, 1, [Product(0, 1, 0, follow)])


def gru_cell(gate: Activation, candidate: Activation, order: str, reset_after_product: bool = True) -> Cell:
    """One step of gated recurrent units: `order` is that of the gates, "r" (reset), "u" (update) and "n" (new state).

    The reset multiplies the product of the hidden state, or the hidden state before it is multiplied. Vectors: the
    hidden state; for the latter also the update, and what is multiplied, whose gate must be the last.
    """
    update_at, reset_at, new_at = (order.index(letter) for letter in "urn")

    def kept(update: PrimExpr, new: PrimExpr, hidden: PrimExpr) -> PrimExpr:
        return (number(1, new.dtype) - update) * new + update * hidden

    def whole(sums: Values, gates: Values, vectors: Values, parameters: Values) -> dict[int, PrimExpr]:
        update, reset = (gate(gates[i] + sums[i]) for i in (update_at, reset_at))
        new = candidate(gates[new_at] + reset * (sums[new_at] + parameters[0] if parameters else sums[new_at]))
        return {0: kept(update, new, vectors[0])}

    def first(sums: Values, gates: Values, vectors: Values, parameters: Values) -> dict[int, PrimExpr]:
        update, reset = (gate(gates[i] + sums[i]) for i in (update_at, reset_at))
        return {1: update, 2: reset * vectors[0]}

    def last(sums: Values, gates: Values, vectors: Values, parameters: Values) -> dict[int, PrimExpr]:
        return {0: kept(vectors[1], candidate(gates[0] + sums[0]), vectors[0])}

    if reset_after_product:
        return Cell(3, 1, 1, [Product(0, 3, 0, whole)])
    return Cell(3, 1, 3, [Product(0, 2, 0, first), Product(2, 3, 2, last)])


def lstm_cell(
    gate: Activation,
    candidate: Activation,
    output: Activation,
    order: str,
    *,
    coupled: bool = False,
    peepholes: bool = False,
) -> Cell:
    """One step of long short-term memory: `order` is that of the gates, "i" (input), "f" (forget), "c" (cell) and "o".

    Vectors are the hidden state and the cell. With `coupled` gates, what enters is forgotten; with `peepholes`, input,
    output and forget gate also see the cell, by a parameter each, in this order.
    """

    def follow(sums: Values, gates: Values, vectors: Values, parameters: Values) -> dict[int, PrimExpr]:
        entering, forgetting, new, leaving = (gates[i] + sums[i] for i in map(order.index, "ifco"))
        cell = vectors[1]
        if peepholes:
            entering, forgetting = entering + parameters[0] * cell, forgetting + parameters[2] * cell
        entering = gate(entering)
        forgetting = number(1, cell.dtype) - entering if coupled else gate(forgetting)
        cell = forgetting * cell + entering * candidate(new)
        if peepholes:
            leaving = leaving + parameters[1] * cell
        return {1: cell, 0: gate(leaving) * output(cell)}

    return Cell(4, 2, 2, [Product(0, 4, 0, follow)])


def recurrent_layer(
    builder: BlockBuilder,
    cell: Cell,
    x: Expr,
    weights: Expr,
    recurrent: Expr,
    bias: Expr | None,
    parameters: Expr | None,
    states: Sequence[Expr],
    backward: Sequence[bool],
    lengths: Expr | None = None,
) -> list[Expr]:
    """Emits a layer: the outputs, (steps, directions, batch, units), and the last states, (directions, batch, units).

    `x` is (steps, batch, size), `weights` (directions, gates * units, size), `recurrent` (directions, gates * units,
    units), `bias` (directions, 2 * gates * units), that of the input first, and `parameters` (directions, n * units).
    The number of units is known. For `states`, `backward` and `lengths` see `topi.nn.recurrent`.
    """

    def shape(value: Expr) -> list[Any]:
        info = value.struct_info
        assert isinstance(info, TensorStructInfo) and info.extents is not None
        return [getattr(extent, "value", extent) for extent in info.extents]

    def reshaped(value: Expr, extents: Sequence[Any]) -> Expr:
        return builder.emit(op.reshape(value, ShapeExpr(list(extents))))

    def zeros(*extents: Any) -> Expr:
        return builder.emit(op.broadcast_to(const(0, dtype), ShapeExpr(list(extents))))

    def columns(value: Expr, first: int, last: int) -> Expr:
        return builder.emit(op.strided_slice(value, [1], [first], [last]))

    steps, batch, size = shape(x)
    units, count, directions = shape(recurrent)[2], cell.gates, len(backward)
    assert isinstance(x.struct_info, TensorStructInfo)
    dtype = x.struct_info.dtype
    lanes = lanes_of(count, units)
    blocks = -(-units // lanes)

    def blocked(vectors: Expr) -> Expr:
        """(directions, n * units, ...) as (directions, n, blocks, lanes, ...), with zeros past the last unit."""
        first, rows, *rest = shape(vectors)
        n, more = rows // units, blocks * lanes - units
        split = reshaped(vectors, [first, n, units, *rest])
        if more:
            split = builder.emit(op.concat([split, zeros(first, n, more, *rest)], 2))
        return reshaped(split, [first, n, blocks, lanes, *rest])

    # One product for all steps. Columns are as the loop reads gates: directions, blocks, gates, lanes.
    panel = builder.emit(op.permute_dims(blocked(weights), [4, 0, 2, 1, 3]))
    total = directions * blocks * count * lanes
    gates = builder.emit(op.matmul(reshaped(x, [steps * batch, size]), reshaped(panel, [size, total])))
    if bias is not None:
        whole = count * units
        of_input, of_hidden = columns(bias, 0, whole), columns(bias, whole, 2 * whole)
        if count == 3 and len(cell.products) == 1:
            # The bias of what a reset multiplies.
            parameters = columns(of_hidden, 2 * units, whole)
            of_hidden = builder.emit(op.concat([columns(of_hidden, 0, 2 * units), zeros(directions, units)], 1))
        added = builder.emit(op.permute_dims(blocked(builder.emit(op.add(of_input, of_hidden))), [0, 2, 1, 3]))
        gates = builder.emit(op.add(gates, reshaped(added, [total])))
    gates = reshaped(gates, [steps, batch, directions, blocks, count, lanes])
    panels = [
        builder.emit(op.permute_dims(blocked(columns(recurrent, p.first * units, p.last * units)), [0, 2, 4, 1, 3]))
        for p in cell.products
    ]
    if parameters is not None:
        parameters = builder.emit(op.permute_dims(blocked(parameters), [0, 2, 1, 3]))
    found = builder.emit_te(
        te_recurrent,
        cell,
        gates,
        panels,
        list(states),
        list(backward),
        parameters,
        lengths,
        primfunc_name_hint="recurrent",
    )
    return [builder.emit(TupleGetItem(found, i)) for i in range(1 + len(states))]
