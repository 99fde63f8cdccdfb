"""Recurrent layers, unrolled over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .... import op
from ....expr import Expr, const
from ..context import Context
from ..registry import Refused, converter
from .shape import reverse_sequence

Function = Callable[[Expr], Expr]


def _scaled_tanh(g: Context, alpha: float, beta: float) -> Function:
    return lambda x: op.multiply(g.like(alpha, x), op.tanh(op.multiply(g.like(beta, x), x)))


def _elu(g: Context, alpha: float, beta: float) -> Function:
    def function(x: Expr) -> Expr:
        below = op.multiply(g.like(alpha, x), op.subtract(op.exp(op.minimum(x, g.like(0, x))), g.like(1, x)))
        return op.where(op.greater(x, g.like(0, x)), x, below)

    return function


_ACTIVATIONS: dict[str, tuple[float, float, Callable[[Context, float, float], Function]]] = {
    "Affine": (1.0, 0.0, lambda g, a, b: lambda x: op.add(op.multiply(g.like(a, x), x), g.like(b, x))),
    "Elu": (1.0, 0.0, _elu),
    "HardSigmoid": (
        0.2,
        0.5,
        lambda g, a, b: lambda x: op.clip(op.add(op.multiply(g.like(a, x), x), g.like(b, x)), 0, 1),
    ),
    "LeakyRelu": (0.01, 0.0, lambda g, a, b: lambda x: op.nn.leakyrelu(x, a)),
    "Relu": (0.0, 0.0, lambda g, a, b: op.nn.relu),
    "ScaledTanh": (1.0, 1.0, _scaled_tanh),
    "Sigmoid": (0.0, 0.0, lambda g, a, b: op.sigmoid),
    "Softplus": (0.0, 0.0, lambda g, a, b: lambda x: op.log(op.add(op.exp(x), g.like(1, x)))),
    "Softsign": (0.0, 0.0, lambda g, a, b: lambda x: op.divide(x, op.add(op.abs(x), g.like(1, x)))),
    "Tanh": (0.0, 0.0, lambda g, a, b: op.tanh),
    "ThresholdedRelu": (
        1.0,
        0.0,
        lambda g, a, b: lambda x: op.where(op.greater(x, g.like(a, x)), x, g.like(0, x)),
    ),
}
"""Activations with the defaults of their alpha and beta; called with x emitted."""


@dataclass
class Layer:
    """What the directions of a layer have in common."""

    g: Context
    hidden: int
    functions: list[Function]
    clip: float | None
    lengths: Expr | None
    option: int
    """`linear_before_reset` of a GRU, `input_forget` of an LSTM."""

    def apply(self, index: int, x: Expr) -> Expr:
        """One of the activations, of what is clipped before."""
        x = self.g.emit(x)
        if self.clip is not None:
            x = self.g.emit(op.clip(x, -self.clip, self.clip))
        return self.g.emit(self.functions[index](x))


State = tuple[Expr, ...]
Cell = Callable[[Layer, Expr, State, Expr, Expr | None, Expr | None], State]
"""One step: `cell(layer, gates of the input, state, hidden weights, hidden bias, peepholes)` gives the next state."""


def _product(g: Context, x: Expr, weights: Expr, bias: Expr | None = None) -> Expr:
    out = op.matmul(x, op.permute_dims(weights, [1, 0]))
    return g.emit(out if bias is None else op.add(out, bias))


def _parts(g: Context, x: Expr, count: int) -> list[Expr]:
    return g.fields(op.split(x, count, -1)) if count > 1 else [x]


def _rnn_cell(layer: Layer, gates: Expr, state: State, weights: Expr, bias: Expr | None, peep: Expr | None) -> State:
    return (layer.apply(0, op.add(gates, _product(layer.g, state[0], weights, bias))),)


def _gru_cell(layer: Layer, gates: Expr, state: State, weights: Expr, bias: Expr | None, peep: Expr | None) -> State:
    g, (hidden,), h = layer.g, state, layer.hidden
    zx, rx, nx = _parts(g, gates, 3)
    first = g.emit(op.strided_slice(weights, [0], [0], [2 * h]))
    last = g.emit(op.strided_slice(weights, [0], [2 * h], [3 * h]))
    biases = (
        [None, None]
        if bias is None
        else [op.strided_slice(bias, [0], [a], [b]) for a, b in ((0, 2 * h), (2 * h, 3 * h))]
    )
    zh, rh = _parts(g, _product(g, hidden, first, biases[0]), 2)
    update, reset = layer.apply(0, op.add(zx, zh)), layer.apply(0, op.add(rx, rh))
    if layer.option:
        inner = op.multiply(reset, _product(g, hidden, last, biases[1]))
    else:
        inner = _product(g, g.emit(op.multiply(reset, hidden)), last, biases[1])
    new = layer.apply(1, op.add(nx, inner))
    kept = op.multiply(update, hidden)
    return (g.emit(op.add(op.multiply(op.subtract(g.like(1, update), update), new), kept)),)


def _lstm_cell(layer: Layer, gates: Expr, state: State, weights: Expr, bias: Expr | None, peep: Expr | None) -> State:
    g, (hidden, cell) = layer.g, state
    i, o, f, c = _parts(g, g.emit(op.add(gates, _product(g, hidden, weights, bias))), 4)
    look = [None] * 3 if peep is None else _parts(g, peep, 3)

    def seen(x: Expr, weight: Expr | None, of: Expr) -> Expr:
        return x if weight is None else op.add(x, op.multiply(weight, of))

    entering = layer.apply(0, seen(i, look[0], cell))
    forgetting = layer.apply(0, seen(f, look[2], cell))
    if layer.option:
        forgetting = g.emit(op.subtract(g.like(1, entering), entering))
    cell = g.emit(op.add(op.multiply(forgetting, cell), op.multiply(entering, layer.apply(1, c))))
    leaving = layer.apply(0, seen(o, look[1], cell))
    return g.emit(op.multiply(leaving, g.emit(layer.functions[2](cell)))), cell


def _direction(
    layer: Layer, cell: Cell, x: Expr, params: Sequence[Expr | None], state: State, count: int, backward: bool
) -> tuple[list[Expr], State]:
    """The outputs of all steps, in the order of time, and the last state; `x` is (time, batch, n)."""
    g = layer.g
    weights, recurrent, bias, peep = params
    assert weights is not None and recurrent is not None
    if backward and layer.lengths is not None:
        x = reverse_sequence(g, x, layer.lengths, batch_axis=1, time_axis=0)
    own = other = None
    if bias is not None:
        own, other = g.fields(op.split(bias, 2, 0))
    steps = g.static(g.shape(x)[0], "the number of steps, which a recurrent layer is unrolled over,")
    gates = _product(g, x, weights, own)
    pieces = g.fields(op.split(gates, steps, 0)) if steps > 1 else [gates]
    outputs: list[Expr] = []
    order = range(steps - 1, -1, -1) if backward and layer.lengths is None else range(steps)
    for step in order:
        new = cell(layer, g.reshaped(pieces[step], g.shape(pieces[step])[1:]), state, recurrent, other, peep)
        shown = new[0]
        if layer.lengths is not None:
            # Sequences that have ended keep their state, and give zeros.
            runs = op.greater(g.cast(layer.lengths, "int32"), const(step, "int32"))
            mask = g.along(g.emit(runs), 0, 2)
            shown = g.emit(op.where(mask, new[0], g.like(0, new[0])))
            new = tuple(g.emit(op.where(mask, a, b)) for a, b in zip(new, state, strict=True))
        state = new
        outputs.append(shown)
    if backward and layer.lengths is None:
        outputs.reverse()
    return outputs, state


def _recurrent(
    g: Context,
    cell: Cell,
    gates: int,
    x: Expr,
    weights: Expr,
    recurrent: Expr,
    bias: Expr | None,
    lengths: Expr | None,
    states: Sequence[Expr | None],
    peep: Expr | None,
    functions: Sequence[str],
    attributes: dict[str, Any],
) -> tuple[Expr, ...]:
    direction = attributes.get("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    hidden = g.static(g.shape(recurrent)[2], "the size of hidden states")
    batch_first = attributes.get("layout", 0)
    if batch_first:
        x = g.emit(op.permute_dims(x, [1, 0, 2]))
        states = [None if s is None else g.emit(op.permute_dims(s, [1, 0, 2])) for s in states]
    names = attributes.get("activations") or list(functions) * directions
    chosen = _functions(g, names, attributes)
    batch = g.shape(x)[1]
    zero = g.broadcast(const(0, g.dtype(x)), [batch, hidden])
    made, last = [], []
    for i in range(directions):
        own = [None if t is None else _slice(g, t, i) for t in (weights, recurrent, bias, peep)]
        layer = Layer(
            g,
            hidden,
            chosen[i * len(functions) : (i + 1) * len(functions)],
            attributes.get("clip"),
            lengths,
            attributes.get("linear_before_reset", attributes.get("input_forget", 0)),
        )
        initial = tuple(zero if s is None else _slice(g, s, i) for s in states)
        backward = direction == "reverse" or i == 1
        outputs, state = _direction(layer, cell, x, own, initial, gates, backward)
        stacked = g.emit(op.stack(outputs, 0))
        if backward and lengths is not None:
            stacked = reverse_sequence(g, stacked, lengths, batch_axis=1, time_axis=0)
        made.append(stacked)
        last.append(state)
    y = g.emit(op.stack(made, 2 if batch_first else 1))
    final = [g.emit(op.stack([s[k] for s in last], 0)) for k in range(len(states))]
    if batch_first:
        y = g.emit(op.permute_dims(y, [1, 0, 2, 3]))
        final = [g.emit(op.permute_dims(s, [1, 0, 2])) for s in final]
    return (y, *final)


def _slice(g: Context, x: Expr, index: int) -> Expr:
    """One direction's part."""
    shape = g.shape(x)
    if g.is_one(shape[0]):
        return g.reshaped(x, shape[1:])
    return g.reshaped(g.emit(op.strided_slice(x, [0], [index], [index + 1])), shape[1:])


def _functions(g: Context, names: Sequence[str], attributes: dict[str, Any]) -> list[Function]:
    alphas, betas = iter(attributes.get("activation_alpha") or ()), iter(attributes.get("activation_beta") or ())
    functions = []
    for name in names:
        found = next((entry for key, entry in _ACTIVATIONS.items() if key.lower() == name.lower()), None)
        if found is None:
            raise Refused(f"the activation {name}; these are known: {', '.join(_ACTIVATIONS)}")
        alpha, beta, make = found
        takes = name.lower() in ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu")
        functions.append(make(g, next(alphas, alpha) if takes else alpha, next(betas, beta) if takes else beta))
    return functions


@converter("RNN")
def rnn(
    g: Context,
    x: Expr,
    w: Expr,
    r: Expr,
    b: Expr | None = None,
    lengths: Expr | None = None,
    initial: Expr | None = None,
    **attributes: Any,
) -> Any:
    """The outputs and the last state of a plain recurrent layer."""
    return _recurrent(g, _rnn_cell, 1, x, w, r, b, lengths, [initial], None, ["Tanh"], attributes)


@converter("GRU")
def gru(
    g: Context,
    x: Expr,
    w: Expr,
    r: Expr,
    b: Expr | None = None,
    lengths: Expr | None = None,
    initial: Expr | None = None,
    **attributes: Any,
) -> Any:
    """The outputs and the last state of gated recurrent units."""
    return _recurrent(g, _gru_cell, 3, x, w, r, b, lengths, [initial], None, ["Sigmoid", "Tanh"], attributes)


@converter("LSTM")
def lstm(
    g: Context,
    x: Expr,
    w: Expr,
    r: Expr,
    b: Expr | None = None,
    lengths: Expr | None = None,
    initial: Expr | None = None,
    initial_cell: Expr | None = None,
    peepholes: Expr | None = None,
    **attributes: Any,
) -> Any:
    """The outputs, the last state and the last cell of a layer with long short-term memory."""
    functions = ["Sigmoid", "Tanh", "Tanh"]
    states = [initial, initial_cell]
    return _recurrent(g, _lstm_cell, 4, x, w, r, b, lengths, states, peepholes, functions, attributes)
