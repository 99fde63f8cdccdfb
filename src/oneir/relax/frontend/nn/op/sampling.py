"""Sampling from distributions over a vocabulary. `n` samples are drawn from `batch` rows of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..... import te
from .....ir.expr import const
from .....runtime.error import ShapeMismatch
from .....tir import op as tir_op
from .... import op as graph_op
from ..tensor import Tensor, wrap_nested
from .calls import tensor_expr_op
from .reduction import cumsum, sum


def _rows(samples: Tensor, rows: Tensor, indices: Tensor | None) -> Tensor:
    """The row that each sample is drawn from, of shape (n, 1): the given ones, or one sample a row."""
    if indices is not None:
        if indices.shape != samples.shape:
            raise ShapeMismatch(
                f"The shape of sample_indices must match the shape of uniform_sample: {indices.shape} and "
                f"{samples.shape}"
            )
        return indices
    if rows.shape[0] != samples.shape[0]:
        raise ShapeMismatch(
            f"Number of samples must match the number of probability distributions: {samples.shape[0]} and "
            f"{rows.shape[0]}; otherwise give sample_indices"
        )
    count = int(samples.shape[0])
    return Tensor.from_const(np.arange(count, dtype="int64").reshape(count, 1))


def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """An index of shape (n, 1) for each uniform number of shape (n, 1), by the probabilities of a row."""
    rows = _rows(uniform_sample, prob, sample_indices)
    drawn = graph_op.multinomial_from_uniform(prob._expr, uniform_sample._expr, rows._expr, dtype)
    return wrap_nested(drawn, name)


def _kept(cumulative: Any, top_p: Any, top_k: Any, row: Any, column: Any) -> Any:
    """Whether the column lies before the last one that filtering keeps."""
    return tir_op.all(cumulative[row, column] < top_p[row, 0], column + 1 < top_k[row, 0])


def _last_kept(values: Any, cumulative: Any, top_p: Any, top_k: Any) -> Any:
    """`values` at the last column of each row that filtering keeps, of shape (batch, 1).

    Cumulative probabilities grow, so the columns before it are as many as there are for which `_kept` holds.
    """
    batch, vocabulary = cumulative.shape
    k = te.reduce_axis((0, vocabulary), name="k")
    zero, one = const(0, "int64"), const(1, "int64")
    count = te.compute(
        (batch, 1),
        lambda i, _: te.sum(tir_op.if_then_else(_kept(cumulative, top_p, top_k, i, k), one, zero), axis=k),
        name="kept",
    )
    return te.compute((batch, 1), lambda i, j: values[i, te.min(count[i, j], vocabulary - 1)], name="last_kept")


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """An index of shape (n, 1) for each uniform number of shape (n, 1), of the most probable ones.

    `sorted_prob` are probabilities in falling order and `sorted_index` what they are of, both of shape (batch,
    vocabulary). Of a row, those count that together reach `top_p`, and at most `top_k`, both of shape (batch, 1).
    """
    rows = _rows(uniform_sample, sorted_prob, sample_indices)
    cumulative = cumsum(sorted_prob, axis=1)
    total = tensor_expr_op(lambda c, p, k: _last_kept(c, c, p, k), "get_renorm_prob", [cumulative, top_p, top_k])

    def draw(cumulative: Any, indices: Any, total: Any, sample: Any, rows: Any) -> Any:
        vocabulary = cumulative.shape[1]
        k = te.reduce_axis((0, vocabulary), name="k")
        zero, one = const(0, "int64"), const(1, "int64")

        def passed(i: Any, _: Any) -> Any:
            row = rows[i, 0]
            return te.sum(tir_op.if_then_else(sample[i, 0] < cumulative[row, k] / total[row, 0], zero, one), axis=k)

        count = te.compute(sample.shape, passed, name="passed")
        return te.compute(
            sample.shape, lambda i, j: indices[rows[i, 0], te.min(count[i, j], vocabulary - 1)], name="drawn"
        )

    return tensor_expr_op(draw, "get_index_from_sorted", [cumulative, sorted_index, total, uniform_sample, rows])


def renormalize_top_p_top_k_prob(prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Probabilities without the least probable ones, as `top_p` and `top_k` of shape (batch, 1) say, scaled to sum 1.

    `prob` and `sorted_prob`, the same in falling order, have the shape (batch, vocabulary).
    """
    cumulative = cumsum(sorted_prob, axis=1)
    cutoff = tensor_expr_op(_last_kept, "get_renorm_cutoff", [sorted_prob, cumulative, top_p, top_k])

    def keep(prob: Any, cutoff: Any) -> Any:
        zero = const(0, prob.dtype)
        return te.compute(
            prob.shape, lambda i, j: tir_op.if_then_else(prob[i, j] >= cutoff[i, 0], prob[i, j], zero), name="kept"
        )

    kept = tensor_expr_op(keep, "filter_with_top_p_top_k", [prob, cutoff])
    return kept / sum(kept, axis=1, keepdims=True)
