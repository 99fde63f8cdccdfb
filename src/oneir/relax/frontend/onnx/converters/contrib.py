"""Operators of ONNX Runtime's own domain that its optimizer, and exporters of transformers, put into models."""

from __future__ import annotations

import math
from typing import Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..context import Context
from ..registry import converter

_DOMAIN = "com.microsoft"


@converter("Gelu", domain=_DOMAIN)
def gelu(g: Context, x: Expr) -> Expr:
    """x * P(X <= x), X a normal variable."""
    return g.emit(op.nn.gelu(x))


@converter("BiasGelu", domain=_DOMAIN)
def bias_gelu(g: Context, x: Expr, bias: Expr) -> Expr:
    """GELU of a sum."""
    return g.emit(op.nn.gelu(op.add(x, bias)))


@converter("FastGelu", domain=_DOMAIN)
def fast_gelu(g: Context, x: Expr, bias: Expr | None = None) -> Expr:
    """GELU, approximated by tanh, of a sum."""
    return g.emit(op.nn.gelu_tanh(x if bias is None else op.add(x, bias)))


@converter("QuickGelu", domain=_DOMAIN)
def quick_gelu(g: Context, x: Expr, *, alpha: float = 1.702) -> Expr:
    """x * sigmoid(alpha * x)"""
    return g.emit(op.multiply(x, op.sigmoid(op.multiply(x, g.like(alpha, x)))))


@converter("FusedMatMul", domain=_DOMAIN)
def fused_matmul(
    g: Context,
    a: Expr,
    b: Expr,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Expr:
    """alpha * a @ b, matrices transposed before if that is asked for."""
    if transBatchA or transBatchB:
        raise UnsupportedError("products with transBatchA or transBatchB")
    left, right = (_transposed(g, x) if t else x for x, t in ((a, transA), (b, transB)))
    out = op.matmul(left, right)
    return g.emit(out if alpha == 1.0 else op.multiply(out, g.like(alpha, a)))


def _transposed(g: Context, x: Expr) -> Expr:
    ndim = g.ndim(x)
    return x if ndim < 2 else op.permute_dims(x, [*range(ndim - 2), ndim - 1, ndim - 2])


def _normalized(g: Context, x: Expr, scale: Expr, shift: Expr | None, epsilon: float) -> Expr:
    bias = g.broadcast(const(0, g.dtype(x)), g.shape(scale)) if shift is None else shift
    return g.emit(op.nn.layer_norm(x, scale, bias, [-1], epsilon))


def _outputs(g: Context, y: Expr, total: Expr) -> tuple[Expr | None, ...]:
    """The result and, as the fourth output, what was normalized; means and deviations are for training."""
    return y, None, None, total


@converter("SkipLayerNormalization", domain=_DOMAIN)
def skip_layer_normalization(
    g: Context,
    x: Expr,
    skip: Expr,
    scale: Expr,
    shift: Expr | None = None,
    bias: Expr | None = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """The layer normalization of a sum."""
    total = g.emit(op.add(x, skip) if bias is None else op.add(op.add(x, skip), bias))
    return _outputs(g, _normalized(g, total, scale, shift, epsilon), total)


@converter("SimplifiedLayerNormalization")
@converter("SimplifiedLayerNormalization", domain=_DOMAIN)
def simplified_layer_normalization(
    g: Context, x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    """Each row divided by its root mean square."""
    return g.emit(op.nn.rms_norm(x, scale, [axis], epsilon))


@converter("SkipSimplifiedLayerNormalization", domain=_DOMAIN)
def skip_simplified_layer_normalization(
    g: Context, x: Expr, skip: Expr, scale: Expr, bias: Expr | None = None, *, epsilon: float = 1e-12
) -> Any:
    """A sum divided by the root mean square of its rows."""
    total = g.emit(op.add(x, skip) if bias is None else op.add(op.add(x, skip), bias))
    return _outputs(g, g.emit(op.nn.rms_norm(total, scale, [-1], epsilon)), total)


@converter("EmbedLayerNormalization", domain=_DOMAIN)
def embed_layer_normalization(
    g: Context,
    ids: Expr,
    segments: Expr | None,
    words: Expr,
    places: Expr,
    kinds: Expr | None = None,
    scale: Expr | None = None,
    shift: Expr | None = None,
    mask: Expr | None = None,
    position: Expr | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Any:
    """The normalized sum of embeddings of words, positions and segments; the number of set mask elements; the sum."""
    if scale is None or shift is None:
        raise UnsupportedError("embeddings without a normalization")
    batch, length = g.shape(ids)
    if position is None:
        index = g.emit(op.arange(0, length, 1, "int64"))
        total = op.add(op.take(words, ids, 0), op.expand_dims(op.take(places, index, 0), 0))
    else:
        total = op.add(op.take(words, ids, 0), op.take(places, position, 0))
    if segments is not None and kinds is not None:
        total = op.add(total, op.take(kinds, segments, 0))
    total = g.emit(total)
    counts = g.broadcast(const(0, "int32"), [batch]) if mask is None else g.emit(op.sum(g.cast(mask, "int32"), 1))
    return _normalized(g, total, scale, shift, epsilon), counts, total


@converter("Attention", domain=_DOMAIN)
def attention(
    g: Context,
    x: Expr,
    weights: Expr,
    bias: Expr | None = None,
    mask: Expr | None = None,
    past: Expr | None = None,
    more: Expr | None = None,
    past_length: Expr | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    qkv_hidden_sizes: Any = None,
    scale: float = 0.0,
    unidirectional: int = 0,
    **others: Any,
) -> Expr:
    """Attention of several heads; queries, keys and values are one product of the input."""
    if past is not None or past_length is not None or unidirectional or others:
        raise UnsupportedError(
            "attention with past keys and values, a direction or rotations; give the parts as operators"
        )
    batch, length, _ = g.shape(x)
    total = g.static(g.shape(weights)[1], "the size of queries, keys and values together")
    sizes = list(qkv_hidden_sizes or [total // 3] * 3)
    product = op.matmul(x, weights)
    product = g.emit(product if bias is None else op.add(product, bias))
    heads = []
    begin = 0
    for size in sizes:
        part = g.emit(op.strided_slice(product, [2], [begin], [begin + size], assume_inbound=True))
        heads.append(g.reshaped(part, [batch, length, num_heads, size // num_heads]))
        begin += size
    added = None if mask is None else _mask(g, mask, [batch, num_heads, length, length], mask_filter_value, x)
    if more is not None:
        given = g.broadcast(more, [batch, num_heads, length, length])
        added = given if added is None else g.emit(op.add(added, given))
    query, key, value = heads
    factor = scale or 1 / math.sqrt(sizes[0] // num_heads)
    out = g.emit(op.nn.attention(query, key, value, added, factor))
    return g.reshaped(out, [batch, length, sizes[2]])


@converter("MultiHeadAttention", domain=_DOMAIN)
def multi_head_attention(
    g: Context,
    query: Expr,
    key: Expr | None = None,
    value: Expr | None = None,
    bias: Expr | None = None,
    mask: Expr | None = None,
    more: Expr | None = None,
    *past: Expr | None,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Expr:
    """Attention of several heads; queries, keys and values are (batch, length, heads * width)."""
    if key is None or value is None or g.ndim(query) != 3 or g.ndim(key) != 3 or g.ndim(value) != 3:
        raise UnsupportedError(
            "attention whose queries, keys and values are packed in one tensor, or come with their heads apart"
        )
    if any(x is not None for x in past) or g.num_outputs > 1:
        raise UnsupportedError("attention with past keys and values; give the parts as operators")
    tensors = [query, key, value]
    if bias is not None:
        begin = 0
        for i, x in enumerate(tensors):
            size = g.static(g.shape(x)[2], "the size of queries, keys and values")
            own = g.emit(op.strided_slice(bias, [0], [begin], [begin + size]))
            tensors[i], begin = g.emit(op.add(x, own)), begin + size
    heads = []
    for x in tensors:
        batch, length, total = g.shape(x)
        heads.append(g.reshaped(x, [batch, length, num_heads, total // num_heads]))
    batch, length, _, width = g.shape(heads[0])
    scores = [batch, num_heads, length, g.shape(key)[1]]
    added = None if mask is None else _mask(g, mask, scores, mask_filter_value, query)
    if more is not None:
        given = g.broadcast(more, scores)
        added = given if added is None else g.emit(op.add(added, given))
    causal = "TopLeft" if unidirectional else None
    factor = scale or 1 / math.sqrt(width)
    out = g.emit(op.nn.attention(heads[0], heads[1], heads[2], added, factor, causal))
    return g.reshaped(out, [batch, length, g.shape(value)[2]])


def _mask(g: Context, mask: Expr, extents: list[Any], low: float, x: Expr) -> Expr:
    """What is added to scores: a low number where a mask of keys is 0."""
    if g.ndim(mask) == 1:
        raise UnsupportedError("a mask of attention given as lengths; give it as 0 and 1 for each key")
    shape = g.shape(mask)
    wide = g.reshaped(mask, [shape[0], 1, *([1] if len(shape) == 2 else []), *shape[1:]]) if len(shape) < 4 else mask
    hidden = op.multiply(op.subtract(g.like(1, x), op.astype(wide, g.dtype(x))), g.like(low, x))
    return g.broadcast(g.emit(hidden), extents)
