"""Operators in terms of simpler ones: the facts FDecompose, for inference, and FDecomposeForTraining.

Each is a rule `rule(call, builder) -> expr`, which may emit bindings; the call itself where it stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.expr import Var as TirVar
from ..expr import Call, Constant, Expr, MatchCast, ShapeExpr, Tuple, TupleGetItem, Var, const
from ..operator_facts import FDecompose, FDecomposeForTraining
from ..struct_info import ShapeStructInfo
from .base import call_pure_packed, tensor_to_shape
from .binary import add, divide, multiply, subtract
from .create import ones_like
from .inference import tensor_argument
from .manipulate import expand_dims
from .nn.normalization import batch_norm, dropout, layer_norm
from .statistical import mean, variance
from .unary import sqrt

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _scalar(call: Call, value: float) -> Constant:
    """A number of the dtype of the call's data."""
    return const(value, tensor_argument(call, 0).dtype)


def _normalized(call: Call, center: Expr, spread: Expr, gamma: Expr, beta: Expr) -> Expr:
    """(data - mean) / sqrt(variance + epsilon), scaled and moved as the call's attributes say."""
    root = sqrt(add(spread, _scalar(call, call.attrs["epsilon"])))
    out = divide(subtract(call.args[0], center), root)
    if call.attrs["scale"]:
        out = multiply(out, gamma)
    return add(out, beta) if call.attrs["center"] else out


def _batch_norm(call: Call, builder: BlockBuilder) -> Expr:
    _, gamma, beta, moving_mean, moving_var = call.args
    ndim = tensor_argument(call, 0).ndim
    if ndim < 0:
        return call
    others = [i for i in range(ndim) if i != call.attrs["axis"] % ndim]
    vectors = [expand_dims(v, others) for v in (moving_mean, moving_var, gamma, beta)]
    return Tuple([_normalized(call, *vectors), moving_mean, moving_var])


def _batch_norm_for_training(call: Call, builder: BlockBuilder) -> Expr:
    """Normalization by the moments of the data, with the moving ones following them."""
    data, gamma, beta, *moving = call.args
    ndim = tensor_argument(call, 0).ndim
    if ndim < 0:
        return call
    others = [i for i in range(ndim) if i != call.attrs["axis"] % ndim]
    moments = [mean(data, others, False), variance(data, others, False)]
    momentum = call.attrs["momentum"]
    new, old = _scalar(call, momentum), _scalar(call, 1 - momentum)
    updated = [add(multiply(old, m), multiply(new, d)) for m, d in zip(moving, moments, strict=True)]
    normalized = Call(call.op, [data, gamma, beta, *moments], call.attrs, span=call.span)
    return Tuple([TupleGetItem(normalized, 0), *updated])


def _layer_norm(call: Call, builder: BlockBuilder) -> Expr:
    data, gamma, beta = call.args
    axes = call.attrs["axes"]
    return _normalized(call, mean(data, axes, True), variance(data, axes, True), gamma, beta)


def _tensor_to_shape(call: Call, builder: BlockBuilder) -> Expr:
    """The shape that a function of the runtime reads, with a symbolic variable for each extent."""
    info = call.struct_info
    if info.ndim < 0:
        return call
    shape = builder.emit(call_pure_packed("vm.builtin.tensor_to_shape", call.args[0], sinfo_args=info))
    extents = [TirVar("x", "int64") for _ in range(info.ndim)]
    builder.emit_normalized(MatchCast(Var("y", ShapeStructInfo(extents)), shape, ShapeStructInfo(extents)))
    return ShapeExpr(extents)


def _dropout(call: Call, builder: BlockBuilder) -> Expr:
    """The data, of which nothing is dropped."""
    return Tuple([call.args[0], ones_like(call.args[0])])


FDecompose.set(batch_norm.op, _batch_norm)
FDecompose.set(dropout.op, _dropout)
FDecomposeForTraining.set(batch_norm.op, _batch_norm_for_training)
FDecomposeForTraining.set(layer_norm.op, _layer_norm)
FDecompose.set(tensor_to_shape.op, _tensor_to_shape)
