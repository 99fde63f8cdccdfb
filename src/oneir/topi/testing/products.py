"""Products of matrices, attention, recurrent layers and losses in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.error import InvalidValue
from .normalization import softmax_python


def batch_matmul(
    x: np.ndarray, y: np.ndarray, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> np.ndarray:
    """Products of matrices, one by one or one with all; `y` is transposed unless told otherwise."""
    dtype = out_dtype or x.dtype
    a = x.astype(dtype).swapaxes(1, 2) if trans_x else x.astype(dtype)
    b = y.astype(dtype).swapaxes(1, 2) if trans_y else y.astype(dtype)
    return (a @ b).astype(dtype)


def dense(
    x: np.ndarray,
    y: np.ndarray,
    bias: np.ndarray | None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: str | None = None,
) -> np.ndarray:
    """x times the transposed y, perhaps with a bias, of which negative elements may become 0."""
    dtype = out_dtype or x.dtype
    out = x.astype(dtype) @ y.astype(dtype).T
    if use_bias and bias is not None:
        out = out + bias
    return (np.maximum(out, 0) if use_relu else out).astype(dtype)


def attention_python(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None,
    qk_scale: float,
    causal: str,
    window_size: int | None = None,
    layout: str = "BSNH",
) -> tuple[np.ndarray, np.ndarray]:
    """Attention, and the scores' softmax. `causal` is "none", "TopLeft" or "BottomRight"; BSNH or BNSH.

    Heads of keys serve as many heads of queries as there are more of them. A query sees `window_size` keys at most.
    """
    if layout not in ("BSNH", "BNSH"):
        raise InvalidValue(f'expected the layout "BSNH" or "BNSH", found {layout!r}')
    if layout == "BSNH":
        q, k, v = (part.transpose(0, 2, 1, 3) for part in (q, k, v))
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
    scores = (q @ k.swapaxes(2, 3)) * qk_scale
    if bias is not None:
        scores = scores + bias
    queries, keys = scores.shape[2:]
    if causal != "none":
        shift = {"TopLeft": 0, "BottomRight": keys - queries}.get(causal)
        if shift is None:
            raise InvalidValue(f'expected causal to be "none", "TopLeft" or "BottomRight", found {causal!r}')
        distance = np.arange(queries)[:, None] + shift - np.arange(keys)[None, :]
        seen = (distance >= 0) & (distance < (window_size or keys + queries))
        scores = np.where(seen, scores, -np.inf)
    weights = softmax_python(scores, -1)
    out = weights @ v
    return (out.transpose(0, 2, 1, 3) if layout == "BSNH" else out), weights


def nll_loss(
    predictions: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    """Minus the predictions of the targets' classes, (N, C, ...), times weights; the mean is over those weights."""
    if predictions.ndim == targets.ndim + 1 and targets.ndim == 0:
        predictions, targets = predictions[None], targets[None]
    counted = targets != ignore_index
    classes = np.where(counted, targets, 0)
    weight = np.where(counted, weights[classes], 0).astype(predictions.dtype)
    losses = -np.take_along_axis(predictions, classes[:, None], 1)[:, 0] * weight
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / weight.sum()


def _activation(name: str) -> Any:
    return {
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
    }[name]


def lstm_python(
    Xs: np.ndarray,
    Wi: np.ndarray,
    Wh: np.ndarray,
    Bi: np.ndarray | None = None,
    Bh: np.ndarray | None = None,
    h_init: np.ndarray | None = None,
    c_init: np.ndarray | None = None,
    proj: np.ndarray | None = None,
    p_i: np.ndarray | None = None,
    p_f: np.ndarray | None = None,
    p_o: np.ndarray | None = None,
    f_act: str = "sigmoid",
    g_act: str = "tanh",
    h_act: str = "tanh",
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> list[np.ndarray]:
    """The hidden states and cells of a long short-term memory, (time, batch, units), for (time, batch, inputs).

    Weights have the gates in the order of `weight_layout`, one below the other; `p_i`, `p_f` and `p_o` are peepholes,
    `proj` projects the hidden state.
    """
    batch, units = Xs.shape[1], Wh.shape[0] // 4
    hidden = np.zeros((batch, units if proj is None else proj.shape[0]), Xs.dtype) if h_init is None else h_init
    cell = np.zeros((batch, units), Xs.dtype) if c_init is None else c_init
    f, g, h = _activation(f_act), _activation(g_act), _activation(h_act)
    hiddens, cells = np.zeros((len(Xs), *hidden.shape), Xs.dtype), np.zeros((len(Xs), *cell.shape), Xs.dtype)
    biases = [b for b in (Bi, Bh) if b is not None]

    def peep(weight: np.ndarray | None, state: np.ndarray) -> Any:
        return 0 if weight is None else weight * state

    steps: Sequence[int] = range(len(Xs) - 1, -1, -1) if reverse else range(len(Xs))
    for t in steps:
        sums = Xs[t] @ Wi.T + hidden @ Wh.T + (np.sum(biases, 0) if biases else 0)
        gate = dict(zip(weight_layout, np.split(sums, 4, 1), strict=True))
        kept = f(gate["F"] + peep(p_f, cell)) * cell
        cell = kept + f(gate["I"] + peep(p_i, cell)) * g(gate["G"])
        hidden = f(gate["O"] + peep(p_o, cell)) * h(cell)
        hidden = hidden if proj is None else hidden @ proj.T
        hiddens[t], cells[t] = hidden, cell
    return [hiddens, cells]
