"""Attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import te, topi
from ....ir import operators as ops
from ....ir.expr import as_int, const
from ....runtime.error import InvalidValue, UnsupportedError
from ....te import Tensor
from ....tir import op as tir_op
from ....tir.expr import Select
from ...expr import Call, Constant, Expr
from ...operator_facts import OpPattern, ScriptArguments
from ...struct_info import StructInfo, TensorStructInfo
from .. import reference as numerics
from ..arguments import integer
from ..inference import common_dtype, fail, tensor_argument
from ..op_attrs import AttentionAttrs
from ..registry import Operator, operator
from .activation import check_floats, softmax_of

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder


def _attributes(scale: Any, causal_mask: str | None, window_size: Any) -> dict[str, Any]:
    if causal_mask not in (None, "TopLeft", "BottomRight"):
        raise InvalidValue(
            f'relax.nn.attention: expected the mask "TopLeft" or "BottomRight" or None, found {causal_mask!r}'
        )
    return {
        "scale": None if scale is None else float(getattr(scale, "value", scale)),
        "causal_mask": causal_mask,
        "window_size": None if window_size is None else integer(window_size),
    }


def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """softmax(query @ key.T * scale + bias) @ value, over each head.

    `query` is (batch, queries, heads, width), `key` and `value` likewise with keys in the place of queries; heads of
    the query may share one of key and value. `scale` is 1 / sqrt(width) unless given. With the mask "TopLeft", query i
    sees the keys up to i; with "BottomRight", |queries - keys| more.
    """
    attrs = _attributes(scale, causal_mask, window_size)
    if bias is not None:
        return attention_with_bias.call(query, key, value, bias, **attrs)
    return attention_without_bias.call(query, key, value, **attrs)


def attention_bias(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """As `attention`."""
    return attention(query, key, value, bias, scale, causal_mask, window_size)


def safe_attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """As `attention`, but weights that are NaN are 0: those of a query that the bias hides all keys from.

    Exporters write attention like this, as a replacement of NaNs after the softmax.
    """
    arguments = [query, key, value] if bias is None else [query, key, value, bias]
    return attention_without_nan.call(*arguments, **_attributes(scale, causal_mask, window_size))


def _check_equal(call: Call, builder: BlockBuilder, what: str, values: dict[str, Any]) -> None:
    (first, x), *others = values.items()
    for name, y in others:
        if builder.analyzer.can_prove(ops.not_equal(x, y)):
            raise fail(call, f"{first} and {name} must have the same {what}, found {x} and {y}")


def _attention_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    names = ("query", "key", "value", "bias") if len(call.args) == 4 else ("query", "key", "value")
    infos = [tensor_argument(call, i, name) for i, name in enumerate(names)]
    for name, info in zip(names, infos, strict=True):
        if info.ndim not in (4, -1):
            raise fail(call, f"argument {name} must have four dimensions, found {info.ndim}")
    query = infos[0]
    check_floats(call, query, "query")
    common_dtype(call, infos[:3])
    q, k, v = (i.extents for i in infos[:3])
    if q is None or k is None or v is None:
        return TensorStructInfo(None, query.dtype, query.vdevice, 4)
    _check_equal(call, builder, "batch size", {"query": q[0], "key": k[0], "value": v[0]})
    _check_equal(call, builder, "sequence length", {"key": k[1], "value": v[1]})
    _check_equal(call, builder, "width of heads", {"query": q[3], "key": k[3]})
    for name, heads in (("key", k[2]), ("value", v[2])):
        if builder.analyzer.can_prove(ops.not_equal(ops.floormod(q[2], heads), 0)):
            raise fail(call, f"the number of heads of query must be a multiple of {name}'s, found {q[2]} and {heads}")
    if len(infos) == 4 and infos[3].extents is not None:
        scores = (("batch size", q[0]), ("number of heads", q[2]), ("number of queries", q[1]))
        for (what, x), y in zip(scores, infos[3].extents, strict=False):
            if as_int(y) != 1:
                _check_equal(call, builder, what, {"query": x, "bias": y})
        _check_equal(call, builder, "sequence length", {"key": k[1], "bias": infos[3].extents[3]})
    return TensorStructInfo([q[0], q[1], q[2], v[3]], query.dtype, query.vdevice)


def _mask(queries: int, keys: int, causal_mask: str | None) -> np.ndarray:
    """Which keys a query sees."""
    if causal_mask is None:
        return np.ones((queries, keys), bool)
    return np.tri(queries, keys, 0 if causal_mask == "TopLeft" else abs(queries - keys), dtype=bool)


def _reference(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    scale: float | None,
    causal_mask: str | None,
    window_size: int | None,
    safe: bool = False,
) -> np.ndarray:
    _refuse_window(window_size)
    q, k, v = (np.transpose(numerics.wide(a), (0, 2, 1, 3)) for a in (query, key, value))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], 1) for a in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores if bias is None else scores + numerics.wide(bias)
    scores = np.where(_mask(scores.shape[-2], scores.shape[-1], causal_mask), scores, -np.inf)
    weights = softmax_of(scores, -1)
    if safe:
        weights = np.where(np.isnan(weights), 0, weights)
    return np.transpose(weights @ v, (0, 2, 1, 3)).astype(query.dtype)


def _reference_without_nan(*args: np.ndarray, **attrs: Any) -> np.ndarray:
    return _reference(*args, **attrs, safe=True)


def _refuse_window(window_size: int | None) -> None:
    if window_size is not None:
        raise UnsupportedError(
            f"relax.nn.attention: window_size={window_size} has no loops; pass a bias that is -inf outside of it"
        )


def te_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    scale: float | None,
    causal_mask: str | None,
    safe: bool = False,
) -> Tensor:
    """Attention as batched products of matrices, one for each batch and head; `safe`: weights that are NaN are 0."""
    scores, values = _scores(q, k, v, scale)
    (batch, queries, heads, _), keys = q.shape, v.shape[1]
    if bias is not None:
        scores = topi.add(topi.reshape(scores, [batch, heads, queries, keys]), bias)
        scores = topi.reshape(scores, [batch * heads, queries, keys])
    if causal_mask is None:
        weights = topi.nn.softmax(scores)
    else:
        weights = _masked_softmax(scores, _offset(queries, keys, causal_mask))
    return _weighted(_without_nan(weights) if safe else weights, values, q, v)


def _scores(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """The scaled products of queries and keys for each batch and head, and the values in that order."""
    batch, queries, heads, width = q.shape
    keys, value_width = v.shape[1], v.shape[3]
    flat = []
    for tensor, length, size in ((q, queries, width), (k, keys, width), (v, keys, value_width)):
        own = as_int(tensor.shape[2])
        if own is not None and own != as_int(heads):
            tensor = topi.repeat(tensor, (as_int(heads) or 0) // own, 2)
        flat.append(topi.reshape(topi.transpose(tensor, [0, 2, 1, 3]), [batch * heads, length, size]))
    scores = topi.nn.batch_matmul(flat[0], flat[1])
    if scale is None:
        return topi.divide(scores, tir_op.sqrt(ops.cast(scores.dtype, width))), flat[2]
    return topi.multiply(scores, const(scale, scores.dtype)), flat[2]


def _weighted(weights: Tensor, values: Tensor, q: Tensor, v: Tensor) -> Tensor:
    """The sums of values by weights, in the layout of the query."""
    result = topi.nn.batch_matmul(weights, values, transpose_b=False)
    batch, queries, heads, _ = q.shape
    return topi.transpose(topi.reshape(result, [batch, heads, queries, v.shape[3]]), [0, 2, 1, 3])


def _offset(queries: Any, keys: Any, causal_mask: str) -> Any:
    return const(0, "int32") if causal_mask == "TopLeft" else ops.cast("int32", tir_op.abs(queries - keys))


def _masked_softmax(scores: Tensor, offset: Any) -> Tensor:
    """The softmax over the keys that a query sees."""
    seen = topi.trilu(scores, offset, upper=False)
    shifted = topi.subtract(seen, topi.max(seen, axis=-1, keepdims=True))
    exponential = topi.trilu(topi.exp(shifted), offset, upper=False)
    return topi.divide(exponential, topi.sum(exponential, axis=-1, keepdims=True))


def _without_nan(weights: Tensor) -> Tensor:
    def element(*i: Any) -> Any:
        return Select(tir_op.isnan(weights(*i)), const(0, weights.dtype), weights(*i))

    return te.compute(weights.shape, element, name="without_nan")


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    attrs = call.attrs
    _refuse_window(attrs["window_size"])
    query, key, value, *bias = call.args
    hint = call.op.name.removeprefix("relax.nn.")
    return builder.call_te(
        te_attention,
        query,
        key,
        value,
        bias[0] if bias else None,
        attrs["scale"],
        attrs["causal_mask"],
        call.op is attention_without_nan.op,
        primfunc_name_hint=hint,
    )


def _register(name: str, function: Callable[..., Call], reference: Callable[..., np.ndarray]) -> Operator[..., Any]:
    made: Operator[..., Any] = operator(f"relax.nn.{name}", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=AttentionAttrs)(
        function
    )
    made.compute_in_short_floats(lambda call, dtype: call)
    made.struct_info(_attention_struct_info)
    made.reference(reference)
    made.legalize_as(_legalize)
    return made


attention_without_bias = _register("attention", attention, _reference)
attention_with_bias = _register("attention_bias", attention, _reference)
attention_without_nan = _register("safe_attention", safe_attention, _reference_without_nan)


@attention_with_bias.simplify
def _without_zero_bias(builder: BlockBuilder, call: Call) -> Expr:
    """Exporters make masks of what they are computed from, also where they hide nothing."""
    *tensors, bias = call.args
    if not isinstance(bias, Constant) or np.any(np.asarray(bias.data)):
        return call
    return attention_without_bias.call(*tensors, **call.attrs.values_by_name)


# -- sequences of different lengths --


@operator("relax.nn.attention_var_len", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=AttentionAttrs)
def attention_var_len(
    queries: Expr,
    keys: Expr,
    values: Expr,
    seqstart_q: Expr,
    max_seqlen_q: Expr,
    seqstart_k: Expr | None = None,
    max_seqlen_k: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """As `attention`, of several sequences one after the other in the second dimension; the batch is 1.

    `seqstart_q` and `seqstart_k` say where each sequence begins and the last one ends, by default alike.
    """
    starts_k = seqstart_q if seqstart_k is None else seqstart_k
    longest_k = max_seqlen_q if max_seqlen_k is None else max_seqlen_k
    attrs = _attributes(scale, causal_mask, window_size)
    return attention_var_len.call(queries, keys, values, seqstart_q, starts_k, max_seqlen_q, longest_k, **attrs)


attention_var_len.compute_in_short_floats(lambda call, dtype: call)
attention_var_len.struct_info(_attention_struct_info)
# The call holds its arguments in another order than the function takes them.
_VAR_LEN_ARGUMENTS = "queries", "keys", "values", "seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k"
ScriptArguments.set(attention_var_len.op, _VAR_LEN_ARGUMENTS)


@attention_var_len.reference
def _var_len_reference(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    seqstart_q: np.ndarray,
    seqstart_k: np.ndarray,
    max_seqlen_q: np.ndarray,
    max_seqlen_k: np.ndarray,
    **attrs: Any,
) -> np.ndarray:
    parts = []
    for i in range(len(seqstart_q) - 1):
        rows, columns = slice(seqstart_q[i], seqstart_q[i + 1]), slice(seqstart_k[i], seqstart_k[i + 1])
        parts.append(_reference(queries[:, rows], keys[:, columns], values[:, columns], **attrs))
    return np.concatenate(parts, 1)


def te_attention_var_len(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    scale: float | None,
    causal_mask: str | None,
) -> Tensor:
    """Attention over all pairs, in which a query sees the keys of its own sequence."""
    scores, values = _scores(q, k, v, scale)
    queries, keys = (_sequence_of(starts, tensor.shape[1]) for starts, tensor in ((starts_q, q), (starts_k, k)))

    def seen(i: Any, j: Any) -> Any:
        same = ops.equal(queries(i), keys(j))
        if causal_mask is None:
            return same
        sequence = queries(i)
        places = [ops.subtract(x, ops.cast(x.dtype, s(sequence))) for x, s in ((i, starts_q), (j, starts_k))]
        reach = ops.cast(i.dtype, const(0, "int32"))
        if causal_mask == "BottomRight":
            lengths = (ops.subtract(s(sequence + 1), s(sequence)) for s in (starts_q, starts_k))
            reach = ops.cast(i.dtype, tir_op.abs(ops.subtract(*lengths)))
        return ops.logical_and(same, ops.less_equal(places[1], ops.add(places[0], reach)))

    masked = te.compute(
        scores.shape,
        lambda h, i, j: tir_op.if_then_else(seen(i, j), scores(h, i, j), tir_op.min_value(scores.dtype)),
        name="seen",
    )
    return _weighted(topi.nn.softmax(masked), values, q, v)


def _sequence_of(starts: Tensor, length: Any) -> Tensor:
    """Which sequence each place belongs to: how many begin at it or before, less one."""
    b = te.reduce_axis((0, starts.shape[0]), name="b")

    def element(i: Any) -> Any:
        return te.sum(ops.cast("int32", ops.less_equal(ops.cast(i.dtype, starts(b)), i)), axis=b)

    begun = te.compute((length,), element, name="begun")
    return te.compute((length,), lambda i: begun(i) - 1, name="sequence")


@attention_var_len.legalize_as
def _legalize_var_len(builder: BlockBuilder, call: Call) -> Expr:
    attrs = call.attrs
    _refuse_window(attrs["window_size"])
    return builder.call_te(
        te_attention_var_len,
        *call.args[:5],
        attrs["scale"],
        attrs["causal_mask"],
        primfunc_name_hint="attention_var_len",
    )
