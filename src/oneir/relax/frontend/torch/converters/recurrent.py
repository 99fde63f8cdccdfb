"""Recurrent layers, unrolled over time.

Weights come as one list, for each layer and direction: input weights, hidden weights, biases if there are any, and
what projects the hidden state of an LSTM, if that is projected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .... import op
from ....expr import Expr, const
from ..importer import Importer, as_shape, fields_of
from ..registry import Refused, converter

State = tuple[Expr, ...]


class Hidden(NamedTuple):
    """The weights of the hidden state of a layer in one direction."""

    weight: Expr
    bias: Expr | None
    projection: Expr | None


Cell = Callable[[Importer, Expr, State, Hidden], State]
"""One step: `cell(g, gates of the input, state, hidden weights)` gives the next state, its output first."""


def _hidden_gates(g: Importer, state: Expr, weights: Hidden) -> Expr:
    return op.linear(state, weights.weight, weights.bias, g.dtype(state))


def _lstm_cell(g: Importer, gates: Expr, state: State, weights: Hidden) -> State:
    hidden, cell = state
    entering, forgetting, candidate, leaving = fields_of(
        g.emit(op.split(op.add(gates, _hidden_gates(g, hidden, weights)), 4, -1))
    )
    kept = op.multiply(op.sigmoid(forgetting), cell)
    cell = g.emit(op.add(kept, op.multiply(op.sigmoid(entering), op.tanh(candidate))))
    hidden = op.multiply(op.sigmoid(leaving), op.tanh(cell))
    if weights.projection is not None:
        hidden = op.linear(hidden, weights.projection, None, g.dtype(cell))
    return g.emit(hidden), cell


def _gru_cell(g: Importer, gates: Expr, state: State, weights: Hidden) -> State:
    (hidden,) = state
    reset, update, candidate = fields_of(g.emit(op.split(gates, 3, -1)))
    own = fields_of(g.emit(op.split(_hidden_gates(g, hidden, weights), 3, -1)))
    update = g.emit(op.sigmoid(op.add(update, own[1])))
    new = op.tanh(op.add(candidate, op.multiply(op.sigmoid(op.add(reset, own[0])), own[2])))
    keep = op.subtract(const(1, g.dtype(hidden)), update)
    return (g.emit(op.add(op.multiply(keep, new), op.multiply(update, hidden))),)


def _plain_cell(activation: Callable[[Expr], Expr]) -> Cell:
    def cell(g: Importer, gates: Expr, state: State, weights: Hidden) -> State:
        return (g.emit(activation(op.add(gates, _hidden_gates(g, state[0], weights)))),)

    return cell


def _layer(
    g: Importer, x: Expr, state: State, weights: Sequence[Expr], cell: Cell, backward: bool
) -> tuple[list[Expr], State]:
    """The outputs of one layer in one direction, in the order of time, and the last state; `x` is (time, batch, n)."""
    steps = g.static(g.shape(x)[0], "the number of steps, which a recurrent layer is unrolled over,")
    biases = weights[2:4] if len(weights) > 3 else (None, None)
    hidden = Hidden(weights[1], biases[1], weights[-1] if len(weights) % 2 else None)
    gates = g.emit(op.linear(x, weights[0], biases[0], g.dtype(x)))
    pieces = [gates] if steps == 1 else fields_of(g.emit(op.split(gates, steps, 0)))
    outputs: list[Expr] = []
    for piece in reversed(pieces) if backward else pieces:
        state = cell(g, op.squeeze(piece, [0]), state, hidden)
        outputs.append(state[0])
    return (outputs[::-1] if backward else outputs), state


def _recurrent(
    g: Importer,
    x: Expr,
    states: Sequence[Expr],
    params: Sequence[Expr],
    cell: Cell,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Expr, Sequence[Expr]]:
    """All layers; gives the outputs, and for each kind of state that of all layers and directions."""
    single = g.ndim(x) == 2
    if single:
        x, states, batch_first = op.expand_dims(x, 1), [op.expand_dims(s, 1) for s in states], False
    if batch_first:
        x = op.permute_dims(x, [1, 0, 2])
    x, directions = g.emit(x), 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    initial = [_slices(g, g.emit(s), num_layers * directions) for s in states]
    last: list[State] = []
    for layer in range(num_layers):
        made: list[list[Expr]] = []
        for direction in range(directions):
            place = layer * directions + direction
            weights = params[place * each : (place + 1) * each]
            outputs, state = _layer(g, x, tuple(s[place] for s in initial), weights, cell, direction == 1)
            made.append(outputs)
            last.append(state)
        steps = [g.emit(op.concat(list(both), -1)) if directions == 2 else both[0] for both in zip(*made, strict=True)]
        x = g.emit(op.stack(steps, 0))
    final = [g.emit(op.stack([state[kind] for state in last], 0)) for kind in range(len(states))]
    if single:
        return g.emit(op.squeeze(x, [1])), [g.emit(op.squeeze(s, [1])) for s in final]
    return (g.emit(op.permute_dims(x, [1, 0, 2])) if batch_first else x), final


def _slices(g: Importer, x: Expr, count: int) -> list[Expr]:
    pieces = [x] if count == 1 else fields_of(g.emit(op.split(x, count, 0)))
    return [g.emit(op.reshape(piece, as_shape(g.shape(x)[1:]))) for piece in pieces]


def _check(train: bool, dropout: float) -> None:
    if train and dropout:
        raise Refused("dropout between recurrent layers is random; call model.eval() before the model is exported")


@converter("lstm.input")
def lstm(
    g: Importer,
    x: Expr,
    hx: Sequence[Expr],
    params: Sequence[Expr],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """Outputs, last hidden states, last cells."""
    _check(train, dropout)
    out, final = _recurrent(g, x, hx, params, _lstm_cell, num_layers, bidirectional, batch_first)
    return (out, *final)


def _register(name: str, cell: Cell) -> None:
    def convert(
        g: Importer,
        x: Expr,
        hx: Expr,
        params: Sequence[Expr],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        _check(train, dropout)
        out, final = _recurrent(g, x, [hx], params, cell, num_layers, bidirectional, batch_first)
        return (out, *final)

    converter(name)(convert)


_register("gru.input", _gru_cell)
_register("rnn_tanh.input", _plain_cell(op.tanh))
_register("rnn_relu.input", _plain_cell(op.nn.relu))


def call_recurrent(g: Importer, module: Any, x: Expr, hx: Any = None) -> Any:
    """What a recurrent layer of a traced module gives: outputs and last states; the first states are 0 if not given."""
    _check(module.training, module.dropout)
    weights = [g.parameter(weight) for weight in module._flat_weights]
    if hx is None:
        count = module.num_layers * (2 if module.bidirectional else 1)
        batch = [] if g.ndim(x) == 2 else [g.shape(x)[0 if module.batch_first else 1]]
        sizes = [module.proj_size or module.hidden_size, module.hidden_size]
        states = [g.emit(op.zeros(as_shape([count, *batch, size]), g.dtype(x))) for size in sizes]
        hx = states if module.mode == "LSTM" else states[0]
    states = list(hx) if module.mode == "LSTM" else [hx]
    cell = _CELLS[module.mode]
    out, last = _recurrent(g, x, states, weights, cell, module.num_layers, module.bidirectional, module.batch_first)
    return out, tuple(last) if module.mode == "LSTM" else last[0]


def call_cell(g: Importer, module: Any, x: Expr, hx: Any = None) -> Any:
    """One step of a recurrent layer in a traced module: the next state, for an LSTM a pair."""
    kind = type(module).__name__.removesuffix("Cell")
    mode = kind if kind != "RNN" else f"RNN_{module.nonlinearity.upper()}"
    biases = (module.bias_ih, module.bias_hh) if module.bias else (None, None)
    own, hidden = (None if b is None else g.parameter(b) for b in biases)
    if hx is None:
        zeros = g.emit(op.zeros(as_shape([*g.shape(x)[:-1], module.hidden_size]), g.dtype(x)))
        hx = (zeros, zeros) if mode == "LSTM" else zeros
    gates = g.emit(op.linear(x, g.parameter(module.weight_ih), own, g.dtype(x)))
    states = tuple(hx) if mode == "LSTM" else (hx,)
    made = _CELLS[mode](g, gates, states, Hidden(g.parameter(module.weight_hh), hidden, None))
    return made if mode == "LSTM" else made[0]


_CELLS = {
    "LSTM": _lstm_cell,
    "GRU": _gru_cell,
    "RNN_TANH": _plain_cell(op.tanh),
    "RNN_RELU": _plain_cell(op.nn.relu),
}
