"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .....ir import operators as ops
from .....ir.expr import PrimExpr
from .....ir.expr import const as number
from .....runtime.error import ShapeMismatch, UnsupportedError
from .....tir import op as tir_op
from .....tir.expr import Select
from .....topi.nn.recurrent import Cell
from .... import op
from ....expr import Expr, const
from ...recurrent import Activation, gru_cell, lstm_cell, recurrent_layer, rnn_cell
from ..context import Context
from ..registry import converter


def _as(x: PrimExpr, value: float) -> PrimExpr:
    return number(value, x.dtype)


def _softplus(x: PrimExpr) -> PrimExpr:
    # The logarithm of 1 + exp(x), in a form that never overflows.
    return ops.maximum(x, _as(x, 0)) + tir_op.log(tir_op.exp(-tir_op.abs(x)) + 1.0)


_ACTIVATIONS: dict[str, tuple[float, float, Callable[[PrimExpr, float, float], PrimExpr]]] = {
    "Affine": (1.0, 0.0, lambda x, a, b: x * a + b),
    "Elu": (1.0, 0.0, lambda x, a, b: Select(x > 0.0, x, (tir_op.exp(ops.minimum(x, _as(x, 0))) - 1.0) * a)),
    "HardSigmoid": (0.2, 0.5, lambda x, a, b: ops.maximum(ops.minimum(x * a + b, _as(x, 1)), _as(x, 0))),
    "LeakyRelu": (0.01, 0.0, lambda x, a, b: Select(x < 0.0, x * a, x)),
    "Relu": (0.0, 0.0, lambda x, a, b: ops.maximum(x, _as(x, 0))),
    "ScaledTanh": (1.0, 1.0, lambda x, a, b: tir_op.tanh(x * b) * a),
    "Sigmoid": (0.0, 0.0, lambda x, a, b: tir_op.sigmoid(x)),
    "Softplus": (0.0, 0.0, lambda x, a, b: _softplus(x)),
    "Softsign": (0.0, 0.0, lambda x, a, b: x / (tir_op.abs(x) + 1.0)),
    "Tanh": (0.0, 0.0, lambda x, a, b: tir_op.tanh(x)),
    "ThresholdedRelu": (1.0, 0.0, lambda x, a, b: Select(x > a, x, _as(x, 0))),
}
"""Activations with the defaults of their alpha and beta."""


Choice = tuple[str, float, float]


def _recurrent(
    g: Context,
    make: Callable[..., Cell],
    x: Expr,
    weights: Expr,
    recurrent: Expr,
    bias: Expr | None,
    lengths: Expr | None,
    states: Sequence[Expr | None],
    peepholes: Expr | None,
    defaults: Sequence[str],
    *,
    direction: str = "forward",
    layout: int = 0,
    clip: float | None = None,
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    hidden_size: int | None = None,
) -> tuple[Expr, ...]:
    """The outputs of all steps and the last states.

    `make` gives the cell of activations; `defaults` are those of a direction unless given.
    """
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if backward is None:
        raise UnsupportedError(f"the direction {direction!r}; forward, reverse and bidirectional are known")
    if g.ndim(x) != 3:
        raise ShapeMismatch(f"expected sequences of three dimensions, steps, batch and size, found {g.info(x)}")
    if layout:
        x = g.emit(op.permute_dims(x, [1, 0, 2]))
        states = [None if s is None else g.emit(op.permute_dims(s, [1, 0, 2])) for s in states]
    zero = g.broadcast(const(0, g.dtype(x)), [len(backward), g.shape(x)[1], g.shape(recurrent)[2]])
    states = [zero if s is None else s for s in states]
    g.static(g.shape(recurrent)[2], "the size of hidden states")
    lengths = None if lengths is None else g.cast(lengths, "int32")
    chosen = _activations(activations or [*defaults] * len(backward), activation_alpha, activation_beta)
    count = len(chosen) // len(backward)
    if count != len(defaults):
        raise UnsupportedError(f"expected {len(defaults)} activations for each direction, found {len(chosen)}")
    own = [chosen[i * count : (i + 1) * count] for i in range(len(backward))]
    # Directions run side by side, unless they compute something else.
    groups = [range(len(backward))] if all(a == own[0] for a in own) else [[i] for i in range(len(backward))]
    made = []
    for group in groups:
        functions = [_function(*activation, clip if i < 2 else None) for i, activation in enumerate(own[group[0]])]
        cell = make(*functions)
        w, r, b, p = (_directions(g, t, group) for t in (weights, recurrent, bias, peepholes))
        assert w is not None and r is not None
        own_states = [s for s in (_directions(g, s, group) for s in states) if s is not None]
        turned = [backward[i] for i in group]
        made.append(recurrent_layer(g.block_builder, cell, x, w, r, b, p, own_states, turned, lengths))
    y, *last = (_joined(g, parts, 1 if i == 0 else 0) for i, parts in enumerate(zip(*made, strict=True)))
    if layout:
        return g.emit(op.permute_dims(y, [2, 0, 1, 3])), *(g.emit(op.permute_dims(s, [1, 0, 2])) for s in last)
    return y, *last


def _directions(g: Context, x: Expr | None, group: Sequence[int]) -> Expr | None:
    """The parts of a tensor that belong to some directions."""
    if x is None or g.same(g.shape(x)[0], len(group)):
        return x
    return g.emit(op.strided_slice(x, [0], [group[0]], [group[-1] + 1]))


def _joined(g: Context, parts: Sequence[Expr], axis: int) -> Expr:
    return parts[0] if len(parts) == 1 else g.emit(op.concat(list(parts), axis))


def _activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Choice]:
    """Activations with their numbers, of which only some take one from the lists."""
    own_alphas, own_betas = iter(alphas), iter(betas)
    chosen = []
    for name in names:
        found = next((key for key in _ACTIVATIONS if key.lower() == name.lower()), None)
        if found is None:
            raise UnsupportedError(f"the activation {name}; these are known: {', '.join(_ACTIVATIONS)}")
        alpha, beta, _ = _ACTIVATIONS[found]
        takes_alpha = found in ("Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu")
        takes_beta = found in ("Affine", "HardSigmoid", "ScaledTanh")
        chosen.append(
            (found, next(own_alphas, alpha) if takes_alpha else alpha, next(own_betas, beta) if takes_beta else beta)
        )
    return chosen


def _function(name: str, alpha: float, beta: float, clip: float | None) -> Activation:
    """An activation, of what is clipped before."""
    compute = _ACTIVATIONS[name][2]

    def function(x: PrimExpr) -> PrimExpr:
        if clip is not None:
            x = ops.maximum(ops.minimum(x, _as(x, clip)), _as(x, -clip))
        return compute(x, alpha, beta)

    return function


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
    return _recurrent(g, rnn_cell, x, w, r, b, lengths, [initial], None, ["Tanh"], **attributes)


@converter("GRU")
def gru(
    g: Context,
    x: Expr,
    w: Expr,
    r: Expr,
    b: Expr | None = None,
    lengths: Expr | None = None,
    initial: Expr | None = None,
    *,
    linear_before_reset: int = 0,
    **attributes: Any,
) -> Any:
    """The outputs and the last state of gated recurrent units."""
    make = partial(gru_cell, order="urn", reset_after_product=bool(linear_before_reset))
    return _recurrent(g, make, x, w, r, b, lengths, [initial], None, ["Sigmoid", "Tanh"], **attributes)


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
    *,
    input_forget: int = 0,
    **attributes: Any,
) -> Any:
    """The outputs, the last state and the last cell of a layer with long short-term memory."""
    functions = ["Sigmoid", "Tanh", "Tanh"]
    states = [initial, initial_cell]
    make = partial(lstm_cell, order="iofc", coupled=bool(input_forget), peepholes=peepholes is not None)
    return _recurrent(g, make, x, w, r, b, lengths, states, peepholes, functions, **attributes)
