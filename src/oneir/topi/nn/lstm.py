"""Long short-term memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import require_ndim, shape_text
from .window import same_dtype


def lstm(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None = None,
    Bh: Tensor | None = None,
    h_init: Tensor | None = None,
    c_init: Tensor | None = None,
    proj: Tensor | None = None,
    p_i: Tensor | None = None,
    p_f: Tensor | None = None,
    p_o: Tensor | None = None,
    f_act: Callable[[Any], Any] = tir_op.sigmoid,
    g_act: Callable[[Any], Any] = tir_op.tanh,
    h_act: Callable[[Any], Any] = tir_op.tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Tensor, Tensor]:
    """The hidden states (steps, batch, hidden or projected) and the cell states (steps, batch, hidden).

    `Xs` is (steps, batch, in); `Wi` (4 * hidden, in) and `Wh` (4 * hidden, hidden or projected) hold the gates in the
    order of `weight_layout`: input, forget, cell and output. The biases `Bi` and `Bh` are (4 * hidden,), the first
    states (batch, ...), zeros by default. `proj` is (projected, hidden); `p_i`, `p_f` and `p_o` are the weights
    (batch, hidden) by which gates see the cell state.
    """
    _check(Xs, Wi, Wh, weight_layout)
    steps, batch, _ = Xs.shape
    hidden = ops.floordiv(Wi.shape[0], 4)
    # The first state takes a place of its own.
    length = steps + 1
    shape = (length, batch, hidden)
    h_shape = (length, batch, hidden if proj is None else proj.shape[0])
    h_state = te.placeholder(h_shape, Xs.dtype, name="h_state")
    c_state = te.placeholder(shape, Xs.dtype, name="c_state")
    first_h, first_c = _first(h_init, h_shape, Xs.dtype, "h_init"), _first(c_init, shape, Xs.dtype, "c_init")
    gates = _gates(Xs, Wi, Wh, Bi, Bh, h_state, hidden, reverse)

    def gate(letter: str, act: Callable[[Any], Any], weight: Tensor | None, cell: Callable[..., Any]) -> Tensor:
        def element(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> Any:
            value = gates(t, b, same_dtype(weight_layout.index(letter), hidden), j)
            return act(value if weight is None else value + weight(b, j) * cell(t, b, j))

        name = f"{letter.lower()}_gate" if weight is None else f"{letter.lower()}_gate_p"
        return te.compute(shape, element, name=name, tag=tag.INJECTIVE)

    def previous(t: PrimExpr, b: PrimExpr, j: PrimExpr) -> Any:
        return c_state(t - 1, b, j)

    i_gate, f_gate = gate("I", f_act, p_i, previous), gate("F", f_act, p_f, previous)
    g_gate = gate("G", g_act, None, previous)
    next_c = te.compute(
        shape,
        lambda t, b, j: f_gate(t, b, j) * previous(t, b, j) + i_gate(t, b, j) * g_gate(t, b, j),
        name="next_c",
    )
    o_gate = gate("O", f_act, p_o, next_c)
    next_h = te.compute(shape, lambda t, b, j: o_gate(t, b, j) * h_act(next_c(t, b, j)), name="next_h")
    if proj is not None:
        whole, k = next_h, te.reduce_axis((0, hidden), name="kh2p")
        next_h = te.compute(h_shape, lambda t, b, j: te.sum(whole(t, b, k) * proj(j, k), axis=k), name="next_h_proj")
    all_h, all_c = te.scan([first_h, first_c], [next_h, next_c], [h_state, c_state], name="lstm_scan")
    return (
        te.compute((steps, *h_shape[1:]), lambda t, b, j: all_h(t + 1, b, j), name="hidden_states"),
        te.compute((steps, *shape[1:]), lambda t, b, j: all_c(t + 1, b, j), name="cell_states"),
    )


def _check(Xs: Tensor, Wi: Tensor, Wh: Tensor, weight_layout: str) -> None:
    if sorted(weight_layout) != sorted("IFGO"):
        raise InvalidValue(
            f"topi.nn.lstm: expected a weight layout of the letters I, F, G and O, found {weight_layout!r}"
        )
    require_ndim(Xs, 3, "nn.lstm", "Xs")
    require_ndim(Wi, 2, "nn.lstm", "Wi")
    require_ndim(Wh, 2, "nn.lstm", "Wh")
    rows, other = as_int(Wi.shape[0]), as_int(Wh.shape[0])
    if rows is not None and (rows % 4 or (other is not None and rows != other)):
        raise ShapeMismatch(
            f"topi.nn.lstm: expected four times the hidden size as rows of Wi and Wh, found the shapes "
            f"{shape_text(Wi.shape)} and {shape_text(Wh.shape)}"
        )


def _first(given: Tensor | None, shape: tuple[Any, ...], dtype: str, name: str) -> Tensor:
    return te.compute(
        (same_dtype(1, shape[0]), *shape[1:]),
        lambda _, b, i: const(0, dtype) if given is None else given(b, i),
        name=name,
    )


def _gates(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None,
    Bh: Tensor | None,
    h_state: Tensor,
    hidden: Any,
    reverse: bool,
) -> Tensor:
    """The gates before their activations: (steps + 1, batch, 4, hidden)."""
    steps, batch, inputs = Xs.shape
    ki = te.reduce_axis((0, inputs), name="ki2h")
    of_input = te.compute(
        (steps * batch, 4 * hidden),
        lambda tb, ij: te.sum(Xs(ops.floordiv(tb, batch), ops.floormod(tb, batch), ki) * Wi(ij, ki), axis=ki),
        name="Xi2h",
    )
    if Bi is not None:
        plain = of_input
        of_input = te.compute(plain.shape, lambda tb, ij: plain(tb, ij) + Bi(ij), name="Xi2h_bias", tag=tag.INJECTIVE)
    shape = (h_state.shape[0], batch, same_dtype(4, hidden), hidden)
    kh = te.reduce_axis((0, h_state.shape[2]), name="kh2h")
    of_state = te.compute(
        shape,
        lambda t, b, i, j: te.sum(h_state(t - 1, b, kh) * Wh(i * hidden + j, kh), axis=kh),
        name="s_h2h",
    )
    if Bh is not None:
        bare = of_state
        of_state = te.compute(
            shape, lambda t, b, i, j: bare(t, b, i, j) + Bh(i * hidden + j), name="s_h2h_bias", tag=tag.INJECTIVE
        )

    def element(t: PrimExpr, b: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        time = steps - t if reverse else t - 1
        return of_input(time * batch + b, i * hidden + j) + of_state(t, b, i, j)

    return te.compute(shape, element, name="gates", tag=tag.INJECTIVE)
