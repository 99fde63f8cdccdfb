"""Attention."""

from __future__ import annotations

import math
from typing import Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..dtypes import is_float
from ..importer import Importer, as_shape
from ..registry import converter


@converter("scaled_dot_product_attention")
def scaled_dot_product_attention(
    g: Importer,
    query: Expr,
    key: Expr,
    value: Expr,
    attn_mask: Expr | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """softmax(query @ key.T * scale + mask) @ value, over (..., length, head size)."""
    if dropout_p != 0.0:
        raise UnsupportedError("dropout in attention is random; call model.eval() before the model is exported")
    shape, dtype = g.shape(query), g.dtype(query)
    if enable_gqa:
        key, value = (_repeated_heads(g, x, shape[-3]) for x in (key, value))
    query, key, value = (_four_dimensions(g, x) for x in (query, key, value))
    bias = None if attn_mask is None else _bias(g, attn_mask, dtype, shape[:-2], g.shape(key)[-2])
    heads_last = [0, 2, 1, 3]
    out = op.nn.attention(
        op.permute_dims(query, heads_last),
        op.permute_dims(key, heads_last),
        op.permute_dims(value, heads_last),
        bias=bias,
        scale=scale,
        causal_mask="TopLeft" if is_causal else None,
    )
    if bias is not None and attn_mask is not None and not is_float(g.dtype(attn_mask)):
        # Where a mask hides all keys, weights would be NaN: PyTorch gives 0.
        hidden = op.equal(op.max(bias, -1, keepdims=True), const(-math.inf, dtype))
        out = op.where(op.permute_dims(hidden, heads_last), const(0, dtype), out)
    result = g.emit(op.permute_dims(out, heads_last))
    if len(shape) == 4:
        return result
    return g.emit(op.reshape(result, as_shape([*shape[:-1], g.shape(value)[-1]])))


@converter("_scaled_dot_product_flash_attention_for_cpu")
def attention_on_processors(
    g: Importer,
    query: Expr,
    key: Expr,
    value: Expr,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Expr | None = None,
    scale: float | None = None,
) -> Any:
    """The same, as PyTorch computes it on processors; its second result is for training."""
    out = scaled_dot_product_attention(g, query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    return out, None


def _four_dimensions(g: Importer, x: Expr) -> Expr:
    """(..., length, size) as (batch, heads, length, size)."""
    shape = g.shape(x)
    if len(shape) == 4:
        return x
    batch: Any = 1
    for extent in shape[:-2]:
        batch = batch * extent
    return g.emit(op.reshape(x, as_shape([batch, 1, *shape[-2:]])))


def _bias(g: Importer, mask: Expr, dtype: str, batch: list[Any], keys: Any) -> Expr:
    """A mask as the bias of attention scores, for leading extents `batch` and a number of keys; False becomes -inf."""
    own = g.shape(mask)
    if own[-1] == 1 and keys != 1:
        mask = g.emit(op.broadcast_to(mask, as_shape([*own[:-1], keys])))
    if not is_float(g.dtype(mask)):
        zero, lowest = const(0, dtype), const(-math.inf, dtype)
        mask = g.emit(op.where(op.astype(mask, "bool") if g.dtype(mask) != "bool" else mask, zero, lowest))
    missing = 4 - g.ndim(mask)
    if len(batch) != 2 and g.ndim(mask) > 2:
        mask = g.emit(op.broadcast_to(mask, as_shape([*batch, *g.shape(mask)[-2:]])))
        return _four_dimensions(g, mask)
    if missing > 0:
        mask = g.emit(op.reshape(mask, as_shape([*[1] * missing, *g.shape(mask)])))
    return mask


def _repeated_heads(g: Importer, x: Expr, heads: Any) -> Expr:
    """Each head of keys or values as often as queries have heads for it."""
    own = g.static(g.shape(x)[-3], "the number of heads")
    times = g.static(heads, "the number of heads") // own
    return x if times == 1 else g.emit(op.repeat(x, times, g.axis(x, -3)))
