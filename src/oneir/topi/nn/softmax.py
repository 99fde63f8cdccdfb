"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from ... import te
from ...te.tensor import Tensor
from ...tir import op as tir_op
from ..index import require_axis
from ..math import fast_exp


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) divided by its sum over `axis`."""
    return _softmax(x, axis, False, "softmax_output")


def fast_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """As `softmax`, with an exponential that is a short polynomial."""
    return _softmax(x, axis, True, "fast_softmax_output")


def softmax_common(x: Tensor, axis: int, use_fast_exp: bool) -> Tensor:
    """The stages of both, without a tag."""
    return _softmax(x, axis, use_fast_exp, "")


def _softmax(x: Tensor, axis: int, use_fast_exp: bool, tag: str) -> Tensor:
    """The largest elements, which are subtracted against overflow, exponentials, their sums, quotients."""
    shape = x.shape
    axis = require_axis(axis, len(shape), "nn.softmax")
    rest = shape[:axis] + shape[axis + 1 :]

    def reduced(reducer: Any, tensor: Tensor, name: str) -> Tensor:
        k = te.reduce_axis((0, shape[axis]), name="k")
        return te.compute(rest, lambda *i: reducer(tensor(*i[:axis], k, *i[axis:]), axis=k), name=name, tag=tag)

    def of_row(tensor: Tensor, i: tuple[Any, ...]) -> Any:
        return tensor(*i[:axis], *i[axis + 1 :])

    largest = reduced(te.max, x, "T_softmax_maxelem")
    if use_fast_exp:
        delta = te.compute(shape, lambda *i: x(*i) - of_row(largest, i), name="T_softmax_delta", tag=tag)
        exponential = fast_exp(delta)
    else:
        exponential = te.compute(
            shape, lambda *i: tir_op.exp(x(*i) - of_row(largest, i)), name="T_softmax_exp", tag=tag
        )
    total = reduced(te.sum, exponential, "T_softmax_expsum")
    return te.compute(
        shape,
        lambda *i: exponential(*i) / of_row(total, i),
        name="T_softmax_norm",
        tag=tag,
        attrs={"axis": axis},
    )


@te.tag_scope(tag="log_softmax_output")
def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of the softmax over an axis."""
    shape = x.shape
    axis = require_axis(axis, len(shape), "nn.log_softmax")
    rest = shape[:axis] + shape[axis + 1 :]
    k1 = te.reduce_axis((0, shape[axis]), name="k")
    k2 = te.reduce_axis((0, shape[axis]), name="k")

    def of_row(tensor: Tensor, i: tuple[Any, ...]) -> Any:
        return tensor(*i[:axis], *i[axis + 1 :])

    largest = te.compute(rest, lambda *i: te.max(x(*i[:axis], k1, *i[axis:]), axis=k1), name="T_softmax_maxelem")
    total = te.compute(
        rest, lambda *i: te.sum(tir_op.exp(x(*i[:axis], k2, *i[axis:]) - largest(*i)), axis=k2), name="compute"
    )
    return te.compute(
        shape,
        lambda *i: x(*i) - of_row(largest, i) - tir_op.log(of_row(total, i)),
        name="compute",
        attrs={"axis": axis},
    )
