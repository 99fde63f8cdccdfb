"""Graphs of attention, for tests of patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.module import IRModule
from ...runtime.error import InvalidValue
from .. import op as ops
from ..block_builder import BlockBuilder
from ..expr import Expr, TupleGetItem, Var
from ..struct_info import TensorStructInfo


def get_relax_attention_module(
    q_shape: Sequence[Any],
    k_shape: Sequence[Any],
    v_shape: Sequence[Any],
    *,
    dtype: str,
    bias_shape: Sequence[Any] | str | None = None,
    qk_scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> IRModule:
    """A module whose `main` is the attention of `q`, `k`, `v` (batch, sequence, heads, size), perhaps with a bias."""
    shapes = {"q": q_shape, "k": k_shape, "v": v_shape}
    if bias_shape is not None and bias_shape != "none":
        shapes["bias"] = bias_shape
    params = [Var(name, TensorStructInfo(shape, dtype)) for name, shape in shapes.items()]
    bias = params[3] if len(params) == 4 else None
    q, k, v = params[:3]
    return _module(params, lambda builder: ops.nn.attention(q, k, v, bias, qk_scale, causal_mask, window_size))


def get_relax_stacked_attention_module(
    qkv: Any,
    b: int,
    s: int,
    n: int,
    h: int,
    h_v: int,
    op: str,
    bias: Any = None,
    qk_scale: float | None = None,
    single_shape: bool = False,
    layout: str = "BS3NH",
) -> IRModule:
    """A module whose `main` takes queries, keys and values out of one tensor, by "split" or "strided_slice".

    `qkv` and `bias` are arrays, or variables, of which shapes and dtypes count. The layout is BS3NH,
    (b, s, n * (2h + h_v)), or SBN3H, (s, b, n, 2h + h_v).
    """
    if layout not in ("BS3NH", "SBN3H"):
        raise InvalidValue(f'expected the layout "BS3NH" or "SBN3H", found {layout!r}')
    if op not in ("split", "strided_slice"):
        raise InvalidValue(f'expected "split" or "strided_slice", found {op!r}')
    params = [
        Var(name, TensorStructInfo(tuple(value.shape), str(value.dtype)))
        for name, value in (("qkv", qkv), ("bias", bias))
        if value is not None
    ]
    stacked = layout == "BS3NH"
    axis, first = (2, n * h) if stacked else (3, h)

    def body(builder: BlockBuilder) -> Expr:
        parts = _parts(builder, params[0], axis, first, op, int(qkv.shape[axis]))
        if stacked:
            shapes = [(b, s, n, h), (b, s, n, h), (b, s, n, h if single_shape else h_v)]
            parts = [builder.emit(ops.reshape(part, shape)) for part, shape in zip(parts, shapes, strict=True)]
        else:
            parts = [builder.emit(ops.permute_dims(part, [1, 0, 2, 3])) for part in parts]
        q, k, v = parts
        result = ops.nn.attention(q, k, v, params[1] if len(params) == 2 else None, qk_scale)
        return result if stacked else ops.permute_dims(builder.emit(result), [1, 0, 2, 3])

    return _module(params, body)


def _parts(builder: BlockBuilder, qkv: Var, axis: int, first: int, way: str, size: int) -> list[Expr]:
    """Queries, keys and values: the first two of the extent `first` along an axis, the third of the rest."""
    if way == "split":
        split = builder.emit(ops.split(qkv, [first, 2 * first], axis))
        return [builder.emit(TupleGetItem(split, index)) for index in range(3)]
    bounds = [(0, first), (first, 2 * first), (2 * first, size)]
    return [builder.emit(ops.strided_slice(qkv, [axis], [low], [high], [1])) for low, high in bounds]


def _module(params: list[Var], body: Callable[[BlockBuilder], Expr]) -> IRModule:
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder))
        builder.emit_func_output(result)
    return builder.get()
