"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import topi
from ....ir.expr import as_int, const
from ....runtime.error import TypeMismatch
from ....te import Tensor
from ...expr import Call, Expr
from ...operator_facts import OpPattern, SupportsInplace
from ...struct_info import VOID, StructInfo, TensorStructInfo
from .. import reference as numerics
from ..arguments import integer
from ..infer_layout import keep_layout, move_axes
from ..inference import common_dtype, elementwise, fail, normalize_axis, tensor_argument
from ..op_attrs import LeakyReluAttrs, PReluAttrs, SoftmaxAttrs, SoftplusAttrs
from ..registry import Operator, operator
from ..unary import clip, te_erf

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@operator("relax.nn.relu", pattern=OpPattern.ELEMENTWISE)
def relu(data: Expr) -> Call:
    """max(data, 0), elementwise; NaN stays NaN."""
    return relu.call(data)


relu.follow_precision()
SupportsInplace.set(relu.op, True)
relu.infer_layout(keep_layout)
relu.struct_info(elementwise())
relu.reference(lambda data: np.maximum(data, np.zeros((), data.dtype)))
relu.legalize(topi.nn.relu)


def relu6(data: Expr) -> Expr:
    """min(max(data, 0), 6), elementwise."""
    return clip(data, 0, 6)


def _smooth(
    name: str, doc: str, reference: Callable[..., Any], te_function: Callable[..., Any]
) -> Operator[[Expr], Call]:
    """An elementwise function of floats."""

    def function(data: Expr) -> Call:
        return made.call(data)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.nn.{name}", pattern=OpPattern.ELEMENTWISE)(function)
    made.follow_precision()
    made.infer_layout(keep_layout)
    made.struct_info(elementwise(floats_only=True))
    made.reference(numerics.in_float32(reference))
    made.legalize(te_function, name)
    return made


def te_gelu(x: Tensor) -> Tensor:
    """x * (0.5 + 0.5 * erf(x / sqrt(2)))"""
    half = const(0.5, x.dtype)
    error = te_erf(topi.multiply(x, const(0.5**0.5, x.dtype)))
    return topi.multiply(x, topi.add(half, topi.multiply(error, half)))


def te_gelu_tanh(x: Tensor) -> Tensor:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * x * (1 + 0.044715 * x * x)))"""

    def number(value: float) -> Any:
        return const(value, x.dtype)

    cubic = topi.add(number(1), topi.multiply(topi.multiply(number(0.044715), x), x))
    inner = topi.multiply(topi.multiply(number(math.sqrt(2 / math.pi)), x), cubic)
    return topi.multiply(topi.multiply(number(0.5), x), topi.add(number(1), topi.tanh(inner)))


def te_selu(x: Tensor) -> Tensor:
    """scale * (max(x, 0) + min(0, alpha * (exp(x) - 1)))"""
    zero, one = const(0, x.dtype), const(1, x.dtype)
    negative = topi.multiply(const(_SELU_ALPHA, x.dtype), topi.subtract(topi.exp(x), one))
    total = topi.add(topi.maximum(x, zero), topi.minimum(zero, negative))
    return topi.multiply(const(_SELU_SCALE, x.dtype), total)


def te_silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)"""
    return topi.multiply(x, topi.sigmoid(x))


gelu = _smooth(
    "gelu",
    "data times the probability that a standard normal variable is below it.",
    lambda x: x * (0.5 + 0.5 * numerics.erf(x * 0.5**0.5)),
    te_gelu,
)
gelu_tanh = _smooth(
    "gelu_tanh",
    "As `gelu`, with the probability approximated by a hyperbolic tangent.",
    lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x))),
    te_gelu_tanh,
)
selu = _smooth(
    "selu",
    "The scaled exponential linear unit, with the constants that keep mean and variance.",
    lambda x: _SELU_SCALE * (np.maximum(x, 0) + np.minimum(0, _SELU_ALPHA * (np.exp(x) - 1))),
    te_selu,
)
silu = _smooth("silu", "data * sigmoid(data)", lambda x: x * numerics.sigmoid(x), te_silu)
SupportsInplace.set(silu.op, True)


@operator("relax.nn.leakyrelu", pattern=OpPattern.ELEMENTWISE, attrs=LeakyReluAttrs)
def leakyrelu(data: Expr, alpha: float = 0.01) -> Call:
    """data where it is positive, else alpha * data."""
    return leakyrelu.call(data, alpha=float(alpha))


leakyrelu.infer_layout(keep_layout)
leakyrelu.struct_info(elementwise(floats_only=True))
leakyrelu.reference(lambda data, alpha: np.where(data > 0, data, data * np.asarray(alpha, data.dtype)))
leakyrelu.legalize(topi.nn.leaky_relu)


@operator("relax.nn.softplus", pattern=OpPattern.ELEMENTWISE, attrs=SoftplusAttrs)
def softplus(data: Expr, beta: float = 1.0, threshold: float = 20.0) -> Call:
    """log(1 + exp(beta * data)) / beta; data itself where beta * data exceeds the threshold."""
    return softplus.call(data, beta=float(beta), threshold=float(threshold))


softplus.infer_layout(keep_layout)
softplus.struct_info(elementwise(floats_only=True))
softplus.legalize(topi.nn.softplus)


def _softplus(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    return np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta).astype(x.dtype)


softplus.reference(numerics.in_float32(_softplus))


@operator("relax.nn.prelu", pattern=OpPattern.BROADCAST, attrs=PReluAttrs)
def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Call:
    """data where it is positive, else alpha * data; alpha has one element, or one for each index of `axis`."""
    return prelu.call(data, alpha, axis=integer(axis))


def check_floats(call: Call, info: TensorStructInfo, what: str = "data") -> None:
    """An error unless a tensor is of floats, or its dtype is not known."""
    if info.dtype != VOID and not info.dtype.is_float:
        raise fail(call, f"argument {what} must be a tensor of floats, found dtype {info.dtype}", TypeMismatch)


prelu.infer_layout(move_axes("axis"))


@prelu.struct_info
def _prelu_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, alpha = tensor_argument(call, 0, "data"), tensor_argument(call, 1, "alpha")
    check_floats(call, info)
    common_dtype(call, [info, alpha])
    if alpha.ndim not in (1, -1):
        raise fail(call, f"argument alpha must be a vector, found a tensor of {alpha.ndim} dimensions")
    if info.ndim != -1:
        axis = normalize_axis(call, call.attrs["axis"], info.ndim)
        if info.extents is not None and alpha.extents is not None:
            have, want = as_int(alpha.extents[0]), as_int(info.extents[axis])
            if None not in (have, want) and have not in (1, want):
                raise fail(call, f"argument alpha must have 1 or {want} elements, found {have}")
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


@prelu.reference
def _prelu_reference(data: np.ndarray, alpha: np.ndarray, axis: int) -> np.ndarray:
    slopes = alpha.reshape([-1 if i == axis % data.ndim else 1 for i in range(data.ndim)])
    return np.where(data > 0, data, data * slopes)


prelu.legalize(topi.nn.prelu)


def _softmax_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    check_floats(call, info)
    if info.ndim != -1:
        normalize_axis(call, call.attrs["axis"], info.ndim)
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


@operator("relax.nn.softmax", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=SoftmaxAttrs)
def softmax(data: Expr, axis: int = -1) -> Call:
    """exp(data) divided by its sum over an axis."""
    return softmax.call(data, axis=integer(axis))


def softmax_of(x: np.ndarray, axis: int) -> np.ndarray:
    """exp(x) divided by its sum over an axis, without overflow."""
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


softmax.infer_layout(move_axes("axis"))
softmax.struct_info(_softmax_struct_info)
softmax.reference(numerics.in_float32(softmax_of))
softmax.legalize(topi.nn.softmax)
softmax.fast_math(topi.nn.fast_softmax)


@operator("relax.nn.log_softmax", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=SoftmaxAttrs)
def log_softmax(data: Expr, axis: int = -1) -> Call:
    """The logarithm of the softmax."""
    return log_softmax.call(data, axis=integer(axis))


def _log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


log_softmax.infer_layout(move_axes("axis"))
log_softmax.struct_info(_softmax_struct_info)
log_softmax.reference(numerics.in_float32(_log_softmax))
log_softmax.legalize(topi.nn.log_softmax)
