"""Operators that gradients are written with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select, const
from ...runtime.error import InvalidValue, TypeMismatch
from ...tir.buffer import decl_buffer
from ...tir.stmt import Stmt, flat_seq
from ...topi.loops import for_each, loop, store
from ..expr import Call, Expr, Var
from ..operator_facts import StructInfoRule
from ..struct_info import StructInfo, TensorStructInfo
from . import reference as numerics
from .arguments import integer
from .gather import check_integers
from .inference import fail, normalize_axis, tensor_argument
from .nn.layout import complete_padding, per_dimension
from .op_attrs import NLLLossAttrs, Pool2DAttrs, TakeAttrs
from .registry import Operator, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _marker(name: str, doc: str, variables_only: bool) -> Operator[[Expr], Expr]:
    """An operator that gives its argument and tells `Gradient` something."""

    def function(input: Expr) -> Expr:
        return made.call(input)

    def struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
        if variables_only and not isinstance(call.args[0], Var):
            raise fail(call, f"the argument must be a variable, found `{call.args[0]}`", TypeMismatch)
        return call.args[0].struct_info

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.grad.{name}")(function)
    made.struct_info(struct_info)
    made.reference(lambda input: input)
    made.legalize_as(lambda builder, call: call.args[0])
    return made


no_grad = _marker("no_grad", "The value itself; no gradient with respect to it is computed.", False)
start_checkpoint = _marker(
    "start_checkpoint",
    "The value itself; what is computed from it up to `end_checkpoint` is computed again for gradients, not kept.",
    True,
)
end_checkpoint = _marker("end_checkpoint", "The value itself, where a piece begun by `start_checkpoint` ends.", True)


def _like(index: int) -> StructInfoRule:
    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        info = tensor_argument(call, index)
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)

    return rule


# -- nll_loss --


@operator("relax.grad.nll_loss_backward", attrs=NLLLossAttrs)
def nll_loss_backward(
    output_grad: Expr,
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Call:
    """The gradient of `nn.nll_loss` with respect to its predictions."""
    if reduction not in ("none", "sum", "mean"):
        raise InvalidValue(
            f'relax.grad.nll_loss_backward: expected the reduction "none", "sum" or "mean", found {reduction!r}'
        )
    args = (output_grad, predictions, targets, weights)
    return nll_loss_backward.call(*args, reduction=reduction, ignore_index=integer(ignore_index))


nll_loss_backward.struct_info(_like(1))


@nll_loss_backward.reference
def _nll_loss_backward_reference(
    output_grad: np.ndarray,
    predictions: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    reduction: str,
    ignore_index: int,
) -> np.ndarray:
    classes = min(predictions.ndim - 1, 1)
    count = predictions.shape[classes]
    w = np.ones(count) if weights is None else numerics.wide(weights)
    counts = targets != ignore_index
    index = np.where(counts, targets, 0)
    used = np.where(counts, w[index], 0)
    upstream = numerics.wide(output_grad) / (used.sum() if reduction == "mean" else 1)
    chosen = np.arange(count) == index[..., None]
    changes = np.where(chosen, -(used * upstream)[..., None], 0)
    return np.moveaxis(changes, -1, classes).astype(predictions.dtype)


def te_nll_loss_backward(
    output_grad: te.Tensor,
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor,
    reduction: str,
    ignore_index: int,
) -> te.Tensor:
    """-weight * output_grad at the target of each prediction, 0 elsewhere."""
    zero = const(0, predictions.dtype)

    def weight(*i: Any) -> PrimExpr:
        counts = ops.not_equal(targets(*i), ignore_index)
        return Select(counts, weights(Select(counts, targets(*i), const(0, targets.dtype))), zero)

    used = te.compute(targets.shape, weight, name="all_weights")
    if reduction != "none":
        output_grad = topi.broadcast_to(output_grad, targets.shape)
    if reduction == "mean":
        output_grad = topi.divide(output_grad, topi.sum(used) if targets.ndim else used)

    def element(*i: Any) -> PrimExpr:
        kind, place = (i[0], ()) if len(i) == 1 else (i[1], (i[0], *i[2:]))
        change = ops.multiply(ops.negative(used(*place)), output_grad(*place))
        return Select(ops.equal(kind, ops.cast(kind.dtype, targets(*place))), change, zero)

    return te.compute(predictions.shape, element, name="pred_grad")


def te_nll_loss_backward_no_weight(
    output_grad: te.Tensor, predictions: te.Tensor, targets: te.Tensor, reduction: str, ignore_index: int
) -> te.Tensor:
    """The gradient with weights of one."""
    classes = predictions.shape[1 if predictions.ndim > 1 else 0]
    weights = topi.full((classes,), predictions.dtype, 1.0)
    return te_nll_loss_backward(output_grad, predictions, targets, weights, reduction, ignore_index)


@nll_loss_backward.legalize_as
def _legalize_nll_loss_backward(builder: BlockBuilder, call: Call) -> Expr:
    attrs = (call.attrs["reduction"], call.attrs["ignore_index"])
    if len(call.args) == 3:
        return builder.call_te(te_nll_loss_backward_no_weight, *call.args, *attrs)
    return builder.call_te(te_nll_loss_backward, *call.args, *attrs, primfunc_name_hint="nll_loss_backward")


# -- pooling --


def _pool_reference(kind: str) -> Callable[..., np.ndarray]:
    def computed(output_grad: np.ndarray, data: np.ndarray, **attrs: Any) -> np.ndarray:
        layout, padding, dilation = attrs["layout"], attrs["padding"], attrs["dilation"]
        order = [layout.index(c) for c in "NCHW"]
        x, upstream = np.transpose(data, order), numerics.wide(np.transpose(output_grad, order))
        result = np.zeros(x.shape, upstream.dtype)
        for n, c, *place in itertools.product(*map(range, upstream.shape)):
            windows, padded = [], 1
            for i, p in enumerate(place):
                start = p * attrs["strides"][i] - padding[i]
                every = np.arange(start, start + attrs["pool_size"][i] * dilation[i], dilation[i])
                windows.append(every[(every >= 0) & (every < x.shape[2 + i])])
                padded *= int((every < x.shape[2 + i] + padding[2 + i]).sum())
            window = np.ix_(*windows)
            if kind == "max":
                best = np.unravel_index(np.argmax(x[n, c][window]), x[n, c][window].shape)
                result[n, c, windows[0][best[0]], windows[1][best[1]]] += upstream[n, c, *place]
            else:
                inside = padded if attrs["count_include_pad"] else len(windows[0]) * len(windows[1])
                result[n, c][window] += upstream[n, c, *place] / max(inside, 1)
        return np.transpose(result, ["NCHW".index(c) for c in layout]).astype(data.dtype)

    return computed


def _pool_backward(kind: str) -> Operator[..., Call]:
    name = f"{kind}_pool2d_backward"

    def function(
        output_grad: Expr,
        data: Expr,
        pool_size: int | tuple[int, ...] = (1, 1),
        strides: int | tuple[int, ...] = (1, 1),
        padding: int | tuple[int, ...] = (0, 0, 0, 0),
        dilation: int | tuple[int, ...] = (1, 1),
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> Call:
        return made.call(
            output_grad,
            data,
            pool_size=per_dimension(name, pool_size, 2, "window extents"),
            strides=per_dimension(name, strides, 2, "strides"),
            dilation=per_dimension(name, dilation, 2, "dilations"),
            padding=complete_padding(name, padding, 2),
            ceil_mode=bool(ceil_mode),
            count_include_pad=bool(count_include_pad),
            layout=layout,
            out_layout=out_layout or layout,
        )

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = call.attrs
        if any(d != 1 for d in attrs["dilation"]):
            return call
        return builder.call_te(
            topi.nn.pool_grad,
            *call.args,
            kernel=attrs["pool_size"],
            stride=attrs["strides"],
            padding=attrs["padding"],
            pool_type=kind,
            ceil_mode=attrs["ceil_mode"],
            count_include_pad=attrs["count_include_pad"],
            layout=attrs["layout"],
            primfunc_name_hint=name,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The gradient of `nn.{kind}_pool2d` with respect to its data."
    made = operator(f"relax.grad.{name}", attrs=Pool2DAttrs)(function)
    made.struct_info(_like(1))
    made.reference(_pool_reference(kind))
    made.legalize_as(legalize)
    return made


max_pool2d_backward = _pool_backward("max")
avg_pool2d_backward = _pool_backward("avg")


# -- take --


@operator("relax.grad.take_backward", attrs=TakeAttrs)
def take_backward(output_grad: Expr, x: Expr, indices: Expr, axis: int | None = None) -> Call:
    """The gradient of `take` with respect to `x`: each element of `output_grad` is added where it was taken."""
    return take_backward.call(output_grad, x, indices, axis=None if axis is None else integer(axis))


@take_backward.struct_info
def _take_backward_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, axis = tensor_argument(call, 1, "x"), call.attrs["axis"]
    check_integers(call, tensor_argument(call, 2, "indices"))
    if axis is not None and info.ndim != -1:
        normalize_axis(call, axis, info.ndim)
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


@take_backward.reference
def _take_backward_reference(
    output_grad: np.ndarray, x: np.ndarray, indices: np.ndarray, axis: int | None
) -> np.ndarray:
    result, along = np.zeros_like(x), 0 if axis is None else axis % x.ndim
    moved = np.moveaxis(result, along, 0)
    count = np.ndim(indices)
    flat = np.moveaxis(output_grad, range(along, along + count), range(count))
    np.add.at(moved, indices, flat)
    return result


def te_take_backward(output_grad: te.Tensor, x: te.Tensor, indices: te.Tensor, axis: int | None) -> te.Tensor:
    """Zeros, to which each element of the gradient is added where it was taken."""
    along = 0 if axis is None else axis % x.ndim
    rest = [*x.shape[:along], *x.shape[along + 1 :]]

    def body(ins: Any, outs: Any) -> Stmt:
        upstream, _, taken = ins
        out = outs[0]

        def lane(place: list[PrimExpr]) -> Stmt:
            before, after = place[:along], place[along:]

            def clear(k: Any) -> Stmt:
                return store(out, (*before, k, *after), const(0, x.dtype))

            def add(at: list[PrimExpr]) -> Stmt:
                target = (*before, ops.cast(x.shape[along].dtype, taken[tuple(at)]), *after)
                return store(out, target, ops.add(out[target], upstream[(*before, *at, *after)]))

            return flat_seq([loop(0, x.shape[along], clear, "k"), for_each(indices.shape, add, "at")])

        return for_each(rest, lane, parallel=True)

    return te.extern(
        [list(x.shape)],
        [output_grad, x, indices],
        body,
        name="take_backward",
        dtype=x.dtype,
        out_buffers=[decl_buffer(x.shape, x.dtype, "out_buf")],
        tag="take_backward",
    )


take_backward.legalize(te_take_backward, "take_backward")
