"""Recurrent layers: one loop over time, or, where the hidden state is projected, one step after the other in the graph.

Weights come as one list, for each layer and direction: input weights, hidden weights, biases if there are any, and
what projects the hidden state of an LSTM, if that is projected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .....ir.expr import const as number
from .....ir.operators import maximum
from .....runtime.error import UnsupportedError
from .....tir.op import sigmoid, tanh
from .....topi.nn import recurrent as loops
from .... import op
from ....expr import Expr, const
from ...recurrent import gru_cell, lstm_cell, recurrent_layer, rnn_cell
from ..importer import Importer, as_shape, fields_of
from ..registry import converter

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


_CELLS: dict[str, tuple[Cell, loops.Cell]] = {
    "LSTM": (_lstm_cell, lstm_cell(sigmoid, tanh, tanh, "ifco")),
    "GRU": (_gru_cell, gru_cell(sigmoid, tanh, "run")),
    "RNN_TANH": (_plain_cell(op.tanh), rnn_cell(tanh)),
    "RNN_RELU": (_plain_cell(op.nn.relu), rnn_cell(lambda x: maximum(x, number(0, x.dtype)))),
}
"""Steps in the graph, and in a loop."""


def _looped(
    g: Importer, x: Expr, states: Sequence[State], params: Sequence[Sequence[Expr]], mode: str
) -> tuple[Expr, list[State]]:
    """The outputs of one layer in its directions, (time, batch, n), and the last states of each."""

    def directions(tensors: Sequence[Expr]) -> Expr:
        return g.emit(op.stack(list(tensors), 0))

    weights, hidden = (directions([p[i] for p in params]) for i in (0, 1))
    bias = directions([g.emit(op.concat([p[2], p[3]], 0)) for p in params]) if len(params[0]) > 3 else None
    initial = [directions(kind) for kind in zip(*states, strict=True)]
    backward = [False, True][: len(params)]
    y, *last = recurrent_layer(g.block_builder, _CELLS[mode][1], x, weights, hidden, bias, None, initial, backward)
    steps, count, batch, units = g.shape(y)
    outputs = g.reshaped(g.emit(op.permute_dims(y, [0, 2, 1, 3])), [steps, batch, count * units])
    return outputs, list(zip(*(_slices(g, s, count) for s in last), strict=True))


def _unrolled(
    g: Importer, x: Expr, states: Sequence[State], params: Sequence[Sequence[Expr]], mode: str
) -> tuple[Expr, list[State]]:
    """The same, a step after the other."""
    made = [_steps(g, x, s, p, _CELLS[mode][0], i == 1) for i, (s, p) in enumerate(zip(states, params, strict=True))]
    outputs = [
        g.emit(op.concat(list(both), -1)) if len(both) == 2 else both[0]
        for both in zip(*(outputs for outputs, _ in made), strict=True)
    ]
    return g.emit(op.stack(outputs, 0)), [state for _, state in made]


def _steps(
    g: Importer, x: Expr, state: State, weights: Sequence[Expr], cell: Cell, backward: bool
) -> tuple[list[Expr], State]:
    """The outputs of one layer in one direction, in the order of time, and the last state; `x` is (time, batch, n)."""
    steps = g.static(g.shape(x)[0], "the number of steps of a layer whose hidden state is projected")
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
    mode: str,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Expr, Sequence[Expr]]:
    """Emits all layers; returns the outputs and, for each kind of state, the last ones of all layers and directions."""
    single = g.ndim(x) == 2
    if single:
        x, states, batch_first = op.expand_dims(x, 1), [op.expand_dims(s, 1) for s in states], False
    if batch_first:
        x = op.permute_dims(x, [1, 0, 2])
    x, directions = g.emit(x), 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    initial = [_slices(g, g.emit(s), num_layers * directions) for s in states]
    last: list[State] = []
    # Weights, biases if there are any, and a projection: a number of tensors that is odd with it.
    make = _unrolled if each % 2 else _looped
    for layer in range(num_layers):
        places = range(layer * directions, (layer + 1) * directions)
        weights = [params[place * each : (place + 1) * each] for place in places]
        x, made = make(g, x, [tuple(s[place] for s in initial) for place in places], weights, mode)
        last += made
    final = [g.emit(op.stack([state[kind] for state in last], 0)) for kind in range(len(states))]
    if single:
        return g.emit(op.squeeze(x, [1])), [g.emit(op.squeeze(s, [1])) for s in final]
    return (g.emit(op.permute_dims(x, [1, 0, 2])) if batch_first else x), final


def _slices(g: Importer, x: Expr, count: int) -> list[Expr]:
    pieces = [x] if count == 1 else fields_of(g.emit(op.split(x, count, 0)))
    return [g.emit(op.reshape(piece, as_shape(g.shape(x)[1:]))) for piece in pieces]


def _check(train: bool, dropout: float) -> None:
    if train and dropout:
        raise UnsupportedError(
            "dropout between recurrent layers is random; call model.eval() before the model is exported"
        )


def _register(name: str, mode: str) -> None:
    def convert(
        g: Importer,
        x: Expr,
        hx: Any,
        params: Sequence[Expr],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        """Outputs, last hidden states and, of an LSTM, last cells."""
        _check(train, dropout)
        states = hx if mode == "LSTM" else [hx]
        out, final = _recurrent(g, x, states, params, mode, num_layers, bidirectional, batch_first)
        return (out, *final)

    converter(f"{name}.input")(convert)


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _register(_name, _name.upper())


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
    how = module.num_layers, module.bidirectional, module.batch_first
    out, last = _recurrent(g, x, states, weights, module.mode, *how)
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
    made = _CELLS[mode][0](g, gates, states, Hidden(g.parameter(module.weight_hh), hidden, None))
    return made if mode == "LSTM" else made[0]
