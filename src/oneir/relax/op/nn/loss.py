"""Losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .... import topi
from ....ir import operators as ops
from ....ir.expr import PrimExpr, const
from ....runtime.error import InvalidValue
from ....te import Tensor
from ...expr import Call, Expr
from ...struct_info import StructInfo, TensorStructInfo
from .. import reference as numerics
from ..arguments import integer
from ..gather import check_integers
from ..inference import common_dtype, common_vdevice, fail, tensor_argument
from ..op_attrs import NLLLossAttrs
from ..registry import operator

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder


@operator("relax.nn.cross_entropy_with_logits")
def cross_entropy_with_logits(predictions: Expr, labels: Expr) -> Call:
    """-sum(predictions * labels), divided by the size of the batch if there is one; of logits and probabilities."""
    return cross_entropy_with_logits.call(predictions, labels)


@cross_entropy_with_logits.struct_info
def _cross_entropy_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = [tensor_argument(call, 0, "predictions"), tensor_argument(call, 1, "labels")]
    predictions, labels = infos
    if -1 not in (predictions.ndim, labels.ndim) and predictions.ndim != labels.ndim:
        raise fail(call, f"expected labels of {predictions.ndim} dimensions as predictions, found {labels.ndim}")
    for i, (x, y) in enumerate(zip(predictions.extents or (), labels.extents or (), strict=False)):
        if builder.analyzer.can_prove(ops.not_equal(x, y)):
            raise fail(call, f"predictions and labels must have one shape, found {x} and {y} at dimension {i}")
    return TensorStructInfo((), common_dtype(call, infos), common_vdevice(infos))


@cross_entropy_with_logits.reference
def _cross_entropy_reference(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    total = -(numerics.wide(predictions) * numerics.wide(labels)).sum()
    return np.asarray(total / len(predictions) if predictions.ndim > 1 else total, predictions.dtype)


def te_cross_entropy_with_logits(x: Tensor, y: Tensor) -> Tensor:
    """-sum(x * y), divided by the size of the batch."""
    total = topi.multiply(topi.sum(topi.multiply(x, y)), const(-1, x.dtype))
    return topi.divide(total, x.shape[0]) if x.ndim > 1 else total


cross_entropy_with_logits.legalize(te_cross_entropy_with_logits, "cross_entropy_with_logits")


@operator("relax.nn.nll_loss", attrs=NLLLossAttrs)
def nll_loss(
    predictions: Expr, targets: Expr, weights: Expr | None = None, reduction: str = "mean", ignore_index: int = -100
) -> Call:
    """-predictions[n, t, ...] * weights[t] for each target t = targets[n, ...], and 0 for ignored targets.

    `predictions` are (N, C, ...) or (C,), `targets` integers (N, ...) or (), `weights` (C,), ones unless given.
    `reduction` is "none", "sum", or "mean": the sum divided by the weights of the targets that count.
    """
    if reduction not in ("none", "sum", "mean"):
        raise InvalidValue(f'relax.nn.nll_loss: expected the reduction "none", "sum" or "mean", found {reduction!r}')
    return nll_loss.call(predictions, targets, weights, reduction=reduction, ignore_index=integer(ignore_index))


@nll_loss.struct_info
def _nll_loss_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    predictions, targets = tensor_argument(call, 0, "predictions"), tensor_argument(call, 1, "targets")
    weights = tensor_argument(call, 2, "weights") if len(call.args) > 2 else None
    floats = [predictions] if weights is None else [predictions, weights]
    dtype, device = common_dtype(call, floats), common_vdevice(floats)
    check_integers(call, targets, "targets")
    if predictions.ndim == 0:
        raise fail(call, "expected predictions of at least one dimension, found a scalar")
    ndim = -1 if predictions.ndim == -1 else predictions.ndim - 1
    if -1 not in (ndim, targets.ndim) and targets.ndim != ndim:
        raise fail(call, f"predictions of {predictions.ndim} dimensions need targets of {ndim}, found {targets.ndim}")
    if weights is not None and weights.ndim not in (1, -1):
        raise fail(call, f"argument weights must be a vector, found a tensor of {weights.ndim} dimensions")
    shape: list[PrimExpr] | None = None
    if predictions.extents is not None:
        place = min(predictions.ndim - 1, 1)
        shape = [e for i, e in enumerate(predictions.extents) if i != place]
        for x, y in zip(shape, targets.extents or (), strict=False):
            if builder.analyzer.can_prove(ops.not_equal(x, y)):
                raise fail(call, f"predictions and targets must agree, found the extents {x} and {y}")
        if weights is not None and weights.extents is not None:
            classes, given = predictions.extents[place], weights.extents[0]
            if builder.analyzer.can_prove(ops.not_equal(classes, given)):
                raise fail(call, f"argument weights must have {classes} elements, one for each class, found {given}")
    if call.attrs["reduction"] != "none":
        return TensorStructInfo((), dtype, device)
    return TensorStructInfo(shape, dtype, device, ndim)


@nll_loss.reference
def _nll_loss_reference(
    predictions: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    reduction: str,
    ignore_index: int,
) -> np.ndarray:
    classes = min(predictions.ndim - 1, 1)
    p = np.moveaxis(numerics.wide(predictions), classes, -1)
    w = np.ones(p.shape[-1]) if weights is None else numerics.wide(weights)
    counts = targets != ignore_index
    index = np.where(counts, targets, 0)
    chosen = np.take_along_axis(p, index[..., None], -1)[..., 0]
    losses, used = np.where(counts, -chosen * w[index], 0), np.where(counts, w[index], 0)
    result = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / used.sum()}[reduction]
    return np.asarray(result, predictions.dtype)


def nll_loss_without_weight(predictions: Tensor, targets: Tensor, reduction: str, ignore_index: int) -> Tensor:
    """The loss with weights of one."""
    classes = predictions.shape[1 if predictions.ndim > 1 else 0]
    weights = topi.full((classes,), predictions.dtype, 1.0)
    return topi.nn.nll_loss(predictions, targets, weights, reduction, ignore_index)


@nll_loss.legalize_as
def _legalize_nll_loss(builder: BlockBuilder, call: Call) -> Expr:
    te_function = nll_loss_without_weight if len(call.args) == 2 else topi.nn.nll_loss
    return builder.call_te(te_function, *call.args, call.attrs["reduction"], call.attrs["ignore_index"])
