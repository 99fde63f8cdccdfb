"""Normalizations: elements less their mean, divided by their standard deviation; and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import topi
from ....ir import operators as ops
from ....ir.expr import as_int
from ....te import Tensor
from ...expr import Call, Expr
from ...operator_facts import OpPattern
from ...struct_info import VOID, StructInfo, TensorStructInfo, TupleStructInfo
from .. import reference as numerics
from ..arguments import integer
from ..infer_layout import initial_of, move_axes
from ..inference import common_dtype, fail, normalize_axes, normalize_axis, same_extent, tensor_argument
from ..manipulate import axis_list
from ..op_attrs import BatchNormAttrs, DropoutAttrs, GroupNormAttrs, InstanceNormAttrs, LayerNormAttrs, RMSNormAttrs
from ..registry import operator
from .activation import check_floats

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder


def _data_like(info: TensorStructInfo) -> TensorStructInfo:
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


def _parameters(call: Call, names: Sequence[str]) -> tuple[TensorStructInfo, list[TensorStructInfo]]:
    """The data, of floats, and the other tensors, of its dtype."""
    data = tensor_argument(call, 0, "data")
    others = [tensor_argument(call, i, name) for i, name in enumerate(names, 1)]
    check_floats(call, data)
    common_dtype(call, [i for i in (data, *others) if i.dtype != VOID])
    return data, others


def _agree(
    call: Call, names: Sequence[str], axes: Sequence[int], builder: BlockBuilder
) -> tuple[TensorStructInfo, bool]:
    """The data, and whether the parameters are known to have its extents along some axes; they must not differ."""
    data, others = _parameters(call, names)
    order = list(axes) if data.ndim == -1 else normalize_axes(call, axes, data.ndim)
    for name, info in zip(names, others, strict=True):
        if info.ndim not in (-1, len(axes)):
            raise fail(call, f"argument {name} must have {len(axes)} dimensions, as many as axes, found {info.ndim}")
    shapes = [("data", None if data.extents is None else [data.extents[a] for a in order])]
    shapes += [(name, None if i.extents is None else list(i.extents)) for name, i in zip(names, others, strict=True)]
    known = [(name, shape) for name, shape in shapes if shape is not None]
    agree = True
    for name, shape in known[1:]:
        first = known[0][1]
        for x, y in zip(first, shape, strict=True):
            if builder.analyzer.can_prove(ops.not_equal(x, y)):
                raise fail(call, f"argument {name} must have the extents {list(first)}, found {list(shape)}")
            agree &= same_extent(x, y, builder.analyzer)
    return data, agree


# -- batch_norm --


@operator("relax.nn.batch_norm", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=BatchNormAttrs)
def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> Call:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta for each index of `axis`; and the moving moments.

    The moments are those of the data, from which the moving ones are updated, or (not `training`) the moving ones.
    Without `scale` there is no gamma, without `center` no beta.
    """
    return batch_norm.call(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        axis=integer(axis),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
        momentum=float(momentum),
        training=bool(training),
    )


def _batch_norm_outputs(layout: str, call: Call) -> tuple[str, ...]:
    return layout, initial_of(call.args[3].struct_info), initial_of(call.args[4].struct_info)


batch_norm.infer_layout(move_axes("axis", outputs=_batch_norm_outputs))


@batch_norm.struct_info
def _batch_norm_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    names = ("gamma", "beta", "moving_mean", "moving_var")
    data, agree = _agree(call, names, [call.attrs["axis"]], builder)
    if not agree:
        vector = TensorStructInfo(None, data.dtype, data.vdevice, 1)
        return TupleStructInfo([TensorStructInfo(None, data.dtype, data.vdevice, data.ndim), vector, vector])
    return TupleStructInfo([_data_like(data), *(_data_like(tensor_argument(call, i)) for i in (3, 4))])


@batch_norm.reference
def _batch_norm_reference(
    data: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    moving_mean: np.ndarray,
    moving_var: np.ndarray,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    momentum: float,
    training: bool,
) -> list[np.ndarray]:
    x = numerics.wide(data)
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    mean, variance = numerics.wide(moving_mean), numerics.wide(moving_var)
    if training:
        mean, variance = x.mean(others), x.var(others)
        moving_mean = (1 - momentum) * moving_mean + momentum * mean
        moving_var = (1 - momentum) * moving_var + momentum * variance
    out = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
    out = out * gamma.reshape(shape) if scale else out
    out = out + beta.reshape(shape) if center else out
    return [a.astype(data.dtype) for a in (out, moving_mean, moving_var)]


@batch_norm.legalize_as
def _legalize_batch_norm(builder: BlockBuilder, call: Call) -> Expr:
    names = ("axis", "epsilon", "center", "scale", "training", "momentum")
    return builder.call_te(topi.nn.batch_norm, *call.args, **{name: call.attrs[name] for name in names})


# -- layer_norm, rms_norm --


@operator("relax.nn.layer_norm", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=LayerNormAttrs)
def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axes: int | list[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken over `axes`.

    `gamma` and `beta` have the extents of those axes. Without `scale` there is no gamma, without `center` no beta.
    """
    return layer_norm.call(
        data, gamma, beta, axes=axis_list(axes), epsilon=float(epsilon), center=bool(center), scale=bool(scale)
    )


layer_norm.follow_precision()
layer_norm.infer_layout(move_axes("axes"))


@layer_norm.struct_info
def _layer_norm_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    data, agree = _agree(call, ("gamma", "beta"), call.attrs["axes"], builder)
    return _data_like(data) if agree else TensorStructInfo(None, data.dtype, data.vdevice, data.ndim)


def _normalized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def _along(parameter: np.ndarray, axes: Sequence[int], ndim: int) -> np.ndarray:
    """A parameter of the extents of some axes as an array that broadcasts over all."""
    order = [a % ndim for a in axes]
    arranged = np.transpose(parameter, np.argsort(order))
    extents = iter(arranged.shape)
    return arranged.reshape([next(extents) if i in order else 1 for i in range(ndim)])


@layer_norm.reference
def _layer_norm_reference(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axes: Any, epsilon: float, center: bool, scale: bool
) -> np.ndarray:
    out = _normalized(numerics.wide(data), tuple(axes), epsilon)
    out = out * _along(gamma, axes, data.ndim) if scale else out
    return (out + _along(beta, axes, data.ndim) if center else out).astype(data.dtype)


def _factor(gamma: Tensor, scale: bool) -> Tensor:
    return gamma if scale else topi.full(gamma.shape, gamma.dtype, 1.0)


def te_layer_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, axes: Any, epsilon: float, center: bool, scale: bool
) -> Tensor:
    """The normalization; what is switched off is left out."""
    return topi.nn.layer_norm(data, _factor(gamma, scale), beta if center else None, axes, epsilon)


layer_norm.legalize(te_layer_norm, "layer_norm")


@operator("relax.nn.rms_norm", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=RMSNormAttrs)
def rms_norm(data: Expr, weight: Expr, axes: int | list[int] = -1, epsilon: float = 1e-5) -> Call:
    """data / sqrt(mean of its squares + epsilon) * weight, the mean taken over `axes`."""
    return rms_norm.call(data, weight, axes=axis_list(axes), epsilon=float(epsilon))


rms_norm.follow_precision()
rms_norm.infer_layout(move_axes("axes"))


@rms_norm.struct_info
def _rms_norm_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    data, agree = _agree(call, ("weight",), call.attrs["axes"], builder)
    return _data_like(data) if agree else TensorStructInfo(None, data.dtype, data.vdevice, data.ndim)


@rms_norm.reference
def _rms_norm_reference(data: np.ndarray, weight: np.ndarray, axes: Any, epsilon: float) -> np.ndarray:
    x = numerics.wide(data)
    out = x / np.sqrt((x * x).mean(tuple(axes), keepdims=True) + epsilon)
    return (out * _along(weight, axes, data.ndim)).astype(data.dtype)


rms_norm.legalize(topi.nn.rms_norm)


# -- group_norm, instance_norm --


def _check_channels(call: Call, builder: BlockBuilder) -> tuple[TensorStructInfo, int | None]:
    """The data, and the axis of its channels, of which gamma and beta have one element each."""
    data, others = _parameters(call, ("gamma", "beta"))
    channel = None
    if data.ndim != -1:
        channel = normalize_axis(call, call.attrs["channel_axis"], data.ndim, "channel_axis")
        if channel in normalize_axes(call, call.attrs["axes"], data.ndim):
            raise fail(call, f"the axes {list(call.attrs['axes'])} must not contain the channel axis {channel}")
    for name, info in zip(("gamma", "beta"), others, strict=True):
        if info.ndim not in (1, -1):
            raise fail(call, f"argument {name} must be a vector, found a tensor of {info.ndim} dimensions")
        if channel is None or data.extents is None or info.extents is None:
            continue
        have, want = info.extents[0], data.extents[channel]
        if builder.analyzer.can_prove(ops.not_equal(have, want)):
            raise fail(call, f"argument {name} must have {want} elements, one for each channel, found {have}")
    return data, channel


@operator("relax.nn.group_norm", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=GroupNormAttrs)
def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    channel_axis: int,
    axes: int | list[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """As `layer_norm`, the moments taken over each group of channels and over `axes`."""
    return group_norm.call(
        data,
        gamma,
        beta,
        num_groups=integer(num_groups),
        channel_axis=integer(channel_axis),
        axes=axis_list(axes),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


group_norm.follow_precision()
group_norm.infer_layout(move_axes("channel_axis", "axes"))


@group_norm.struct_info
def _group_norm_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    data, channel = _check_channels(call, builder)
    groups = call.attrs["num_groups"]
    if channel is not None and data.extents is not None:
        count = as_int(data.extents[channel])
        if groups < 1 or (count is not None and count % groups):
            raise fail(call, f"{data.extents[channel]} channels do not divide into {groups} groups")
    return _data_like(data)


@group_norm.reference
def _group_norm_reference(
    data: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float,
    center: bool,
    scale: bool,
) -> np.ndarray:
    channel = channel_axis % data.ndim
    size = data.shape[channel] // num_groups
    grouped = numerics.wide(data).reshape(*data.shape[:channel], num_groups, size, *data.shape[channel + 1 :])
    over = [a % data.ndim for a in axes]
    out = _normalized(grouped, (channel + 1, *(a + (a > channel) for a in over)), epsilon).reshape(data.shape)
    out = out * _along(gamma, [channel], data.ndim) if scale else out
    return (out + _along(beta, [channel], data.ndim) if center else out).astype(data.dtype)


def te_group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float,
    center: bool,
    scale: bool,
) -> Tensor:
    """The normalization; what is switched off is left out."""
    factor, shift = gamma if scale else None, beta if center else None
    return topi.nn.group_norm(data, factor, shift, num_groups, channel_axis, axes, epsilon)


group_norm.legalize(te_group_norm, "group_norm")


@operator("relax.nn.instance_norm", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=InstanceNormAttrs)
def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    channel_axis: int,
    axes: int | list[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """As `layer_norm`, the moments taken over `axes`, with one gamma and beta for each channel."""
    return instance_norm.call(
        data,
        gamma,
        beta,
        channel_axis=integer(channel_axis),
        axes=axis_list(axes),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


instance_norm.follow_precision()
instance_norm.infer_layout(move_axes("channel_axis", "axes"))
instance_norm.struct_info(lambda call, builder: _data_like(_check_channels(call, builder)[0]))


@instance_norm.reference
def _instance_norm_reference(
    data: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    channel_axis: int,
    axes: Any,
    epsilon: float,
    center: bool,
    scale: bool,
) -> np.ndarray:
    out = _normalized(numerics.wide(data), tuple(axes), epsilon)
    out = out * _along(gamma, [channel_axis], data.ndim) if scale else out
    return (out + _along(beta, [channel_axis], data.ndim) if center else out).astype(data.dtype)


def te_instance_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, channel_axis: int, axes: Any, epsilon: float, center: bool, scale: bool
) -> Tensor:
    """The normalization; what is switched off is left out."""
    shift = beta if center else None
    return topi.nn.instance_norm(data, _factor(gamma, scale), shift, channel_axis, axes, epsilon)


instance_norm.legalize(te_instance_norm, "instance_norm")


# -- dropout --


@operator("relax.nn.dropout", attrs=DropoutAttrs)
def dropout(data: Expr, rate: float = 0.5) -> Call:
    """In training, the data with a share `rate` of its elements set to 0 and the others scaled, and the mask.

    It is not legalized: `DecomposeOpsForInference` replaces it by the data itself.
    """
    return dropout.call(data, rate=float(rate))


dropout.follow_precision()
dropout.infer_layout(move_axes(outputs=lambda layout, call: (layout, layout)))


@dropout.struct_info
def _dropout_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    return TupleStructInfo([_data_like(info), _data_like(info)])


dropout.reference(lambda data, rate: [data, np.ones_like(data)])
dropout.legalize_as(lambda builder, call: call)
