"""Products of matrices, and embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..... import te
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..dtypes import unified
from ..importer import Importer, as_shape
from ..registry import converter, find_converter

if TYPE_CHECKING:
    import torch


@converter("linear")
def linear(g: Importer, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """x @ weight.T + bias"""
    return g.emit(op.linear(x, weight, bias, g.dtype(x)))


@converter("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner")
def matmul(g: Importer, x: Expr, other: Expr) -> Expr:
    """The product of matrices, vectors, or batches of matrices."""
    return g.emit(op.matmul(x, other, out_dtype=g.dtype(x)))


def _scaled(g: Importer, x: Expr, factor: Any) -> Expr:
    return x if factor == 1 else g.emit(op.multiply(x, const(factor, g.dtype(x))))


@converter("addmm", "addmv")
def addmm(g: Importer, x: Expr, mat1: Expr, mat2: Expr, *, beta: Any = 1, alpha: Any = 1) -> Expr:
    """beta * x + alpha * (mat1 @ mat2)"""
    product = _scaled(g, matmul(g, mat1, mat2), alpha)
    return product if beta == 0 else g.emit(op.add(_scaled(g, x, beta), product))


@converter("baddbmm")
def baddbmm(g: Importer, x: Expr, batch1: Expr, batch2: Expr, *, beta: Any = 1, alpha: Any = 1) -> Expr:
    """beta * x + alpha * (batch1 @ batch2)"""
    product = _scaled(g, g.emit(op.matmul(batch1, batch2)), alpha)
    return product if beta == 0 else g.emit(op.add(product, _scaled(g, x, beta)))


@converter("addbmm")
def addbmm(g: Importer, x: Expr, batch1: Expr, batch2: Expr, *, beta: Any = 1, alpha: Any = 1) -> Expr:
    """beta * x + alpha * (the sum of batch1 @ batch2 over the batch)"""
    product = _scaled(g, g.emit(op.sum(matmul(g, batch1, batch2), 0)), alpha)
    return product if beta == 0 else g.emit(op.add(_scaled(g, x, beta), product))


@converter("_grouped_mm", "transformers::grouped_mm_fallback")
def grouped_mm(
    g: Importer,
    x: Expr,
    weight: Expr,
    offs: Expr | None = None,
    bias: Expr | None = None,
    out_dtype: torch.dtype | None = None,
) -> Expr:
    """The rows of x times the matrix of their group: `offs[i]` is where the rows of group i end."""
    if offs is None:
        return matmul(g, x, weight)
    if g.ndim(x) != 2 or g.ndim(weight) != 3:
        raise UnsupportedError(
            "grouped_mm of groups that are not rows of the first argument; use one product for each group"
        )
    if bias is not None:
        raise UnsupportedError("grouped_mm with a bias; add it afterwards")
    return g.emit(g.block_builder.call_te(_grouped_product, x, weight, offs))


def _grouped_product(x: te.Tensor, weight: te.Tensor, ends: te.Tensor) -> te.Tensor:
    (rows, inner), (groups, _, columns) = x.shape, weight.shape
    # Rows after the end of the last group may be anything.
    before = te.reduce_axis((0, groups - 1), name="g")
    k = te.reduce_axis((0, inner), name="k")
    group = te.compute((rows,), lambda i: te.sum((ends[before] <= i).astype("int32"), before), name="group")
    return te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * weight[group[i], k, j], k), name="grouped_product")


@converter("einsum")
def einsum(g: Importer, equation: str, *operands: Any, path: Any = None) -> Expr:
    """Sums of products by Einstein's convention."""
    values = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    return g.emit(op.einsum(tuple(unified(*values)), equation))


@converter("bilinear")
def bilinear(g: Importer, x1: Expr, x2: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """x1 @ weight[k] @ x2 for each k, plus the bias."""
    out = g.emit(op.einsum((x1, weight, x2), "...i,kij,...j->...k"))
    return out if bias is None else g.emit(op.add(out, bias))


@converter("embedding.default")
def embedding(
    g: Importer,
    weight: Expr,
    indices: Expr,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Expr:
    """A row of the weight for each index. What remains of the arguments is for training."""
    return rows_of(g, weight, indices)


@converter("embedding")
def functional_embedding(
    g: Importer,
    input: Expr,
    weight: Expr,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Expr:
    """The same, with the arguments of `torch.nn.functional.embedding`."""
    if max_norm is not None:
        raise UnsupportedError("max_norm rewrites the weights while they are looked up; leave it out")
    return rows_of(g, weight, input)


@converter("embedding_renorm")
def embedding_renorm(g: Importer, weight: Expr, indices: Expr, max_norm: float, norm_type: float) -> Expr:
    """The weight, in which rows at indices that are longer than a norm are shortened to it."""
    dtype, rows = g.dtype(weight), g.shape(weight)[0]
    flat = g.emit(op.reshape(indices, [-1]))
    ones = op.ones(as_shape(g.shape(flat)), "int32")
    taken = op.scatter_elements(op.zeros(as_shape([rows]), "int32"), flat, ones, axis=0)
    length = _norm(g, weight, norm_type)
    too_long = op.logical_and(op.astype(taken, "bool"), op.greater(length, const(max_norm, dtype)))
    shorter = op.divide(const(max_norm, dtype), op.add(length, const(1e-7, dtype)))
    return g.emit(op.multiply(weight, op.expand_dims(op.where(too_long, shorter, const(1, dtype)), 1)))


def rows_of(g: Importer, weight: Expr, indices: Expr) -> Expr:
    """The rows of a matrix at indices of any shape."""
    places = g.emit(op.astype(indices, "int32")) if g.dtype(indices) != "int32" else indices
    if g.ndim(indices) == 1:
        return g.emit(op.take(weight, places, axis=0))
    flat = g.emit(op.reshape(places, [-1]))
    rows = g.emit(op.take(weight, flat, axis=0))
    return g.emit(op.reshape(rows, as_shape([*g.shape(indices), g.shape(weight)[-1]])))


@converter("embedding_bag.default", "embedding_bag.padding_idx", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    g: Importer,
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Expr | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of rows of the weight over bags: bag i starts at offsets[i]. The rest is for training."""
    rows, dtype = rows_of(g, weight, indices), g.dtype(weight)
    bags, count = g.shape(offsets)[0], g.shape(indices)[0]
    if include_last_offset:
        bags = bags - 1
        offsets = g.emit(op.strided_slice(offsets, [0], [0], [bags]))
    started = op.less_equal(op.expand_dims(offsets, 1), op.arange(0, count, 1, g.dtype(offsets)))
    bag = g.emit(op.subtract(op.sum(op.astype(started, "int64"), [0]), const(1, "int64")))
    member = op.equal(op.expand_dims(op.arange(0, bags, 1, "int64"), 1), op.expand_dims(bag, 0))
    if padding_idx is not None and padding_idx >= 0:
        member = op.logical_and(member, op.expand_dims(op.not_equal(indices, const(padding_idx, g.dtype(indices))), 0))
    member = g.emit(member)
    sizes = g.emit(op.sum(op.astype(member, dtype), [1], True))
    if mode == 2:
        apart = op.where(op.expand_dims(member, 2), op.expand_dims(rows, 0), const(-math.inf, dtype))
        return g.emit(op.where(op.equal(sizes, const(0, dtype)), const(0, dtype), op.max(apart, [1]))), None, None, None
    share = op.astype(member, dtype)
    if per_sample_weights is not None:
        share = op.multiply(share, op.expand_dims(per_sample_weights, 0))
    total = g.emit(op.matmul(g.emit(share), rows))
    return g.emit(op.divide(total, op.maximum(sizes, const(1, dtype)))) if mode == 1 else total, None, None, None


@converter("_cdist_forward", "cdist", "_euclidean_dist")
def cdist(g: Importer, x1: Expr, x2: Expr, p: float = 2.0, compute_mode: Any = None) -> Expr:
    """The distances between each row of one tensor and each of the other."""
    return _norm(g, g.emit(op.subtract(op.expand_dims(x1, -2), op.expand_dims(x2, -3))), p)


@converter("_pdist_forward", "pdist")
def pdist(g: Importer, x: Expr, p: float = 2.0) -> Expr:
    """The distances between each row and those after it."""
    count = g.static(g.shape(x)[0], "the number of rows")
    first, second = (const(index, "int64") for index in np.triu_indices(count, 1))
    return _norm(g, g.emit(op.subtract(op.take(x, first, 0), op.take(x, second, 0))), p)


def _norm(g: Importer, x: Expr, p: float) -> Expr:
    norm = find_converter("linalg_vector_norm")
    assert norm is not None
    return norm(g, x, p, -1)


@converter("cosine_similarity")
def cosine_similarity(g: Importer, x1: Expr, x2: Expr, dim: int = 1, eps: float = 1e-8) -> Expr:
    """The product of two vectors over the product of their lengths."""
    x1, x2 = unified(x1, x2, at_least_float=True)
    bound = const(eps, g.dtype(g.emit(x1)))
    lengths = [op.maximum(op.sqrt(op.sum(op.multiply(x, x), dim)), bound) for x in (x1, x2)]
    return g.emit(op.divide(op.sum(op.multiply(x1, x2), dim), op.multiply(*lengths)))


@converter("_trilinear")
def trilinear(
    g: Importer,
    x1: Expr,
    x2: Expr,
    x3: Expr,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Expr:
    """The product of three tensors, each with new dimensions, summed over some."""
    values = [op.expand_dims(x, list(new)) if new else x for x, new in ((x1, expand1), (x2, expand2), (x3, expand3))]
    return g.emit(op.sum(op.multiply(op.multiply(values[0], values[1]), values[2]), list(sumdim)))
