"""Gradients of operators for neural networks: the fact FGradient, as in `op/gradient_rules.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....ir import operators as ops
from ....ir.expr import IntImm, PrimExpr
from ....runtime.error import ShapeMismatch, UnsupportedError
from ...expr import Call, Expr, ShapeExpr, Var
from ..binary import greater, less, multiply, subtract
from ..grad import avg_pool2d_backward, max_pool2d_backward, nll_loss_backward, no_grad
from ..gradient_rules import count_of, gradient, number, operands, shape_of, tensor_of
from ..index import strided_slice
from ..manipulate import expand_dims, permute_dims, reshape
from ..search import where
from ..statistical import mean, sum, variance
from ..unary import erf, exp, rsqrt, sigmoid, tanh
from .activation import gelu, gelu_tanh, leakyrelu, log_softmax, relu, silu, softmax, softplus
from .convolution import conv2d, conv2d_transpose
from .loss import cross_entropy_with_logits, nll_loss
from .normalization import layer_norm, rms_norm
from .pooling import avg_pool2d, max_pool2d

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder

# -- activations --


@gradient(relu)
def _relu(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    zero = number(0, x)
    return [where(less(x, zero), zero, output_grad)]


@gradient(leakyrelu)
def _leakyrelu(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    return [where(greater(x, number(0, x)), output_grad, number(orig_call.attrs["alpha"], x) * output_grad)]


@gradient(silu)
def _silu(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    gate = sigmoid(x)
    return [output_grad * (gate + orig_var * (number(1, x) - gate))]


@gradient(softplus)
def _softplus(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    scaled = number(orig_call.attrs["beta"], x) * x
    linear = greater(scaled, number(orig_call.attrs["threshold"], x))
    return [where(linear, output_grad, output_grad * sigmoid(scaled))]


@gradient(gelu)
def _gelu(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    # x times the normal distribution function of x.
    (x,) = operands(orig_call)
    below = number(0.5, x) * (number(1, x) + erf(x * number(math.sqrt(0.5), x)))
    density = number(1 / math.sqrt(2 * math.pi), x) * exp(number(-0.5, x) * (x * x))
    return [output_grad * (below + x * density)]


@gradient(gelu_tanh)
def _gelu_tanh(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    # x * (1 + tanh(a * (x + b * x**3))) / 2
    (x,) = operands(orig_call)
    a, b, half, one = math.sqrt(2 / math.pi), 0.044715, number(0.5, x), number(1, x)
    squared = x * x
    bent = tanh(number(a, x) * x * (one + number(b, x) * squared))
    slope = number(a, x) * (one + number(3 * b, x) * squared)
    return [output_grad * (half * (one + bent) + half * x * (one - bent * bent) * slope)]


@gradient(softmax)
def _softmax(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    along = sum(output_grad * orig_var, orig_call.attrs["axis"], keepdims=True)
    return [multiply(output_grad - along, orig_var)]


@gradient(log_softmax)
def _log_softmax(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [output_grad - multiply(sum(output_grad, orig_call.attrs["axis"], keepdims=True), exp(orig_var))]


# -- normalization --


def _others(axes: Sequence[int], ndim: int) -> list[int]:
    """The dimensions that a normalization does not go over, and that its parameters lack."""
    return [i for i in range(ndim) if i not in {a % ndim for a in axes}]


def _along(parameter: Expr, axes: Sequence[int], ndim: int) -> Expr:
    """A parameter that has the extents of `axes`, so that it broadcasts over all dimensions."""
    others = _others(axes, ndim)
    return expand_dims(parameter, others) if others else parameter


def _to_parameter(grad: Expr, axes: Sequence[int], ndim: int) -> Expr:
    """The gradient with respect to such a parameter, from that with respect to what it broadcast to."""
    others = _others(axes, ndim)
    return sum(grad, others) if others else grad


@gradient(layer_norm)
def _layer_norm(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, gamma, beta = operands(orig_call)
    attrs, ndim = orig_call.attrs, len(shape_of(x).values)
    axes = list(attrs["axes"])
    scale = rsqrt(variance(x, axes, keepdims=True) + number(attrs["epsilon"], x))
    normal = builder.emit((x - mean(x, axes, keepdims=True)) * scale)
    inner: Any = builder.emit(output_grad * _along(gamma, axes, ndim)) if attrs["scale"] else output_grad
    along = normal * mean(inner * normal, axes, keepdims=True)
    centered = inner - mean(inner, axes, keepdims=True)
    to_x = scale * subtract(centered, along)
    to_gamma = _to_parameter(output_grad * normal, axes, ndim) if attrs["scale"] else no_grad(gamma)
    return [to_x, to_gamma, _to_parameter(output_grad, axes, ndim) if attrs["center"] else no_grad(beta)]


@gradient(rms_norm)
def _rms_norm(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, weight = operands(orig_call)
    ndim, axes = len(shape_of(x).values), list(orig_call.attrs["axes"])
    scale = rsqrt(mean(x * x, axes, keepdims=True) + number(orig_call.attrs["epsilon"], x))
    normal = builder.emit(x * scale)
    inner = builder.emit(output_grad * _along(weight, axes, ndim))
    to_x = scale * (inner - normal * mean(inner * normal, axes, keepdims=True))
    return [to_x, _to_parameter(output_grad * normal, axes, ndim)]


# -- losses --


@gradient(cross_entropy_with_logits)
def _cross_entropy(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    predictions, labels = operands(orig_call)
    grad: Any = output_grad
    if tensor_of(predictions).ndim > 1:
        grad = output_grad / count_of(shape_of(predictions).values[:1], output_grad)
    return [-grad * labels, -grad * predictions]


@gradient(nll_loss)
def _nll_loss(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    predictions, targets, *weights = operands(orig_call)
    attrs = orig_call.attrs
    grad = nll_loss_backward(
        output_grad,
        predictions,
        targets,
        weights[0] if weights else None,
        reduction=attrs["reduction"],
        ignore_index=attrs["ignore_index"],
    )
    return [grad, *(no_grad(a) for a in (targets, *weights))]


# -- convolution and pooling --


def _number_of(call: Call, extent: PrimExpr) -> int:
    if not isinstance(extent, IntImm):
        raise ShapeMismatch(f"the gradient of `{call}` needs heights and widths that are numbers, found {extent}")
    return extent.value


@gradient(conv2d)
def _conv2d(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    data, weight = operands(orig_call)
    attrs = orig_call.attrs
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"])
    if layouts != ("NCHW", "OIHW", "NCHW"):
        raise UnsupportedError(
            f"the gradient of relax.nn.conv2d is that of data in NCHW and weights in OIHW, found {layouts}: "
            "take the gradient before ConvertLayout"
        )
    strides, padding, dilation, groups = (attrs[k] for k in ("strides", "padding", "dilation", "groups"))
    batch, channels, *image = shape_of(data).values
    window = [_number_of(orig_call, e) for e in shape_of(weight).values[2:]]
    # What the last window leaves over of the data is where the transposed convolution gives nothing.
    rest: list[int] = []
    for i in range(2):
        reached = (_number_of(orig_call, shape_of(orig_var).values[2 + i]) - 1) * strides[i] + 1
        reached += (window[i] - 1) * dilation[i] - padding[i] - padding[2 + i]
        rest.append(_number_of(orig_call, image[i]) - reached)
    to_data = conv2d_transpose(
        output_grad,
        weight,
        strides,
        padding,
        output_padding=tuple(rest),
        dilation=dilation,
        groups=groups,
        data_layout="NCHW",
        kernel_layout="IOHW",
        out_dtype=attrs["out_dtype"],
    )
    # Each weight is a convolution of the data with the gradients, over the images of the batch in place of channels.
    if groups != 1:
        inner = ops.floordiv(channels, groups)
        data = reshape(data, ShapeExpr([batch, groups, inner, *image]))
        data = reshape(permute_dims(data, [1, 0, 2, 3, 4]), ShapeExpr([batch * groups, inner, *image]))
    to_weight: Expr = builder.normalize(
        conv2d(
            data,
            output_grad,
            strides=dilation,
            padding=padding,
            dilation=strides,
            groups=groups,
            out_dtype=attrs["out_dtype"],
            data_layout="CNHW",
            kernel_layout="IOHW",
            out_layout="CNHW",
        )
    )
    found = [_number_of(orig_call, e) for e in shape_of(to_weight).values[2:]]
    if found != window:
        to_weight = strided_slice(to_weight, [2, 3], [0, 0], window)
    return [to_data, to_weight]


@gradient(max_pool2d)
def _max_pool2d(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [max_pool2d_backward(output_grad, orig_call.args[0], **orig_call.attrs)]


@gradient(avg_pool2d)
def _avg_pool2d(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [avg_pool2d_backward(output_grad, orig_call.args[0], **orig_call.attrs)]
