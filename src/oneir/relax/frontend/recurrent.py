"""Recurrent layers of importers: one product for what the input makes of gates, the rest a loop over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...topi.nn.recurrent import Cell, lanes_of
from ...topi.nn.recurrent import recurrent as te_recurrent
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, ShapeExpr, TupleGetItem, const
from ..struct_info import TensorStructInfo


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
