"""Gradients of tensor operators: the fact FGradient.

A rule `rule(orig_var, orig_call, output_grad, builder)` gives, for each argument of a call, the gradient of the target
with respect to it, from that with respect to the result; `no_grad(argument)` where there is none. Rules for neural
networks are in `nn/gradient_rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.expr import IntImm, PrimExpr
from ...runtime.error import ShapeMismatch, TypeMismatch
from ..expr import Call, Constant, Expr, ShapeExpr, Tuple, TupleGetItem, Var, const
from ..operator_facts import FGradient, GradientRule
from ..struct_info import TensorStructInfo, TupleStructInfo
from .binary import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    not_equal,
    power,
    subtract,
)
from .create import full, full_like, ones, ones_like, tril, triu, zeros, zeros_like
from .datatype import astype
from .grad import no_grad, take_backward
from .index import take
from .linear_algebra import matmul
from .manipulate import (
    broadcast_to,
    collapse_sum_to,
    concat,
    expand_dims,
    flatten,
    flip,
    permute_dims,
    reshape,
    split,
    squeeze,
    stack,
)
from .registry import Operator
from .search import argmax, argmin, where
from .statistical import cumsum, max, mean, min, sum, variance
from .unary import (
    abs,
    ceil,
    clip,
    cos,
    cosh,
    erf,
    exp,
    floor,
    isfinite,
    isinf,
    isnan,
    log,
    negative,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def gradient(op: Operator[..., Any]) -> Callable[[GradientRule], GradientRule]:
    """Registers the gradient of an operator; a decorator."""

    def register(rule: GradientRule) -> GradientRule:
        FGradient.set(op.op, rule)
        return rule

    return register


# -- what rules are made of --


def tensor_of(expr: Expr) -> TensorStructInfo:
    """What is known of a tensor. Raises `TypeMismatch` for anything else."""
    info = expr.struct_info
    if not isinstance(info, TensorStructInfo):
        raise TypeMismatch(f"gradients are those of tensors, found `{expr}`: {info}")
    return info


def operands(call: Call) -> list[Any]:
    """The arguments of a call, of which Python's operators make expressions."""
    return list(call.args)


def number(value: float, like: Expr) -> Constant:
    """A number of the dtype of a tensor."""
    return const(value, tensor_of(like).dtype)


def shape_of(expr: Expr) -> ShapeExpr:
    """The shape of a tensor. Raises `ShapeMismatch` where it is not known."""
    info = tensor_of(expr)
    if not isinstance(info.shape, ShapeExpr):
        raise ShapeMismatch(f"the gradient needs the shape of `{expr}`, found {info}: add a match_cast before")
    return info.shape


def count_of(extents: Sequence[PrimExpr], like: Expr) -> Expr:
    """The product of extents, in the dtype of a tensor."""
    known = [e.value for e in extents if isinstance(e, IntImm)]
    if len(known) == len(extents):
        return number(math.prod(known), like)
    return sum(ones(ShapeExpr(extents), tensor_of(like).dtype))


def summed(builder: BlockBuilder, grad: Expr, like: Expr) -> Expr:
    """A gradient, summed over the dimensions along which the tensor `like` was broadcast."""
    grad = builder.normalize(grad)
    have, want = shape_of(grad).values, shape_of(like).values
    if len(have) == len(want) and all(builder.analyzer.can_prove_equal(a, b) for a, b in zip(have, want, strict=True)):
        return grad
    return collapse_sum_to(grad, shape_of(like))


def reduced_extents(x: Expr, axis: Sequence[int] | None) -> list[PrimExpr]:
    """The extents of the dimensions that a reduction sums over."""
    extents = shape_of(x).values
    return list(extents) if axis is None else [extents[a] for a in axis]


def spread(call: Call, value: Expr) -> Expr:
    """What a reduction gave, with the dimensions that it took back as dimensions of extent 1, so that it broadcasts."""
    axis = call.attrs["axis"]
    return expand_dims(value, axis) if axis and not call.attrs["keepdims"] else value


# -- operators without a gradient --


def _no_gradient(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [no_grad(argument) for argument in orig_call.args]


for _operator in (
    *(equal, not_equal, less, less_equal, greater, greater_equal, isfinite, isinf, isnan, argmax, argmin),
    *(zeros, zeros_like, ones, ones_like, full, full_like, floor, ceil, round, trunc, sign, no_grad),
):
    gradient(_operator)(_no_gradient)


# -- elementwise --

Elementwise = Callable[[Any, Any, Any], Expr]
"""`(x, y, grad)`: the gradient with respect to x, where the operator gave y."""


def _elementwise(rule: Elementwise) -> GradientRule:
    def gradients(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
        x, *numbers = operands(orig_call)
        return [rule(x, orig_var, output_grad), *(no_grad(n) for n in numbers)]

    return gradients


_ELEMENTWISE: dict[Operator[..., Any], Elementwise] = {
    abs: lambda x, y, grad: grad * where(less(x, number(0, x)), -number(1, x), number(1, x)),
    negative: lambda x, y, grad: -grad,
    square: lambda x, y, grad: grad * (number(2, x) * x),
    sqrt: lambda x, y, grad: number(0.5, x) * grad / y,
    rsqrt: lambda x, y, grad: number(-0.5, x) * grad * y / x,
    exp: lambda x, y, grad: grad * y,
    log: lambda x, y, grad: grad / x,
    sin: lambda x, y, grad: grad * cos(x),
    cos: lambda x, y, grad: -grad * sin(x),
    tan: lambda x, y, grad: grad * (number(1, x) + y * y),
    sinh: lambda x, y, grad: grad * cosh(x),
    cosh: lambda x, y, grad: grad * sinh(x),
    tanh: lambda x, y, grad: grad * (number(1, x) - y * y),
    sigmoid: lambda x, y, grad: grad * y * (number(1, x) - y),
    erf: lambda x, y, grad: grad * (number(2 / math.sqrt(math.pi), x) * exp(-(x * x))),
    # Where x lies inside of the bounds, it is what comes out.
    clip: lambda x, y, grad: where(equal(x, y), grad, number(0, x)),
}
for _operator, _rule in _ELEMENTWISE.items():
    gradient(_operator)(_elementwise(_rule))


@gradient(triu)
def _triu(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [Call(orig_call.op, [output_grad, orig_call.args[1]], orig_call.attrs), no_grad(orig_call.args[1])]


gradient(tril)(_triu)


@gradient(astype)
def _astype(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    dtype = tensor_of(x).dtype
    return [astype(output_grad, dtype) if dtype.is_float else no_grad(x)]


# -- two tensors --


@gradient(add)
def _add(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [summed(builder, output_grad, argument) for argument in orig_call.args]


@gradient(subtract)
def _subtract(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, y = operands(orig_call)
    return [summed(builder, output_grad, x), summed(builder, -output_grad, y)]


@gradient(multiply)
def _multiply(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, y = operands(orig_call)
    return [summed(builder, output_grad * y, x), summed(builder, output_grad * x, y)]


@gradient(divide)
def _divide(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, y = operands(orig_call)
    return [summed(builder, output_grad / y, x), summed(builder, -output_grad * orig_var / y, y)]


@gradient(power)
def _power(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    # The gradient with respect to the exponent is that of a positive base.
    x, y = operands(orig_call)
    to_base = output_grad * y * power(x, y - number(1, y))
    return [summed(builder, to_base, x), summed(builder, output_grad * orig_var * log(x), y)]


def _selecting(op: Operator[..., Any], first: Operator[..., Any], second: Operator[..., Any]) -> None:
    """The gradient of one of two tensors, which is 0 for an argument where its comparison holds."""

    @gradient(op)
    def rule(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
        x, y = operands(orig_call)
        zero = number(0, x)
        lost = [first(x, y), second(x, y)]
        return [summed(builder, where(loses, zero, output_grad), a) for loses, a in zip(lost, (x, y), strict=True)]


_selecting(maximum, less, greater_equal)
_selecting(minimum, greater_equal, less)


@gradient(where)
def _where(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    condition, x, y = operands(orig_call)
    to_x, to_y = where(condition, output_grad, number(0, x)), where(condition, number(0, y), output_grad)
    return [no_grad(condition), summed(builder, to_x, x), summed(builder, to_y, y)]


@gradient(matmul)
def _matmul(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    a, b = operands(orig_call)
    a_ndim, b_ndim = len(shape_of(a).values), len(shape_of(b).values)

    def transposed(tensor: Expr, ndim: int) -> Expr:
        return permute_dims(tensor, [*range(ndim - 2), ndim - 1, ndim - 2])

    if a_ndim == b_ndim == 1:
        grads = [output_grad * b, output_grad * a]
    elif a_ndim == 1:
        grad = expand_dims(output_grad, -2)
        grads = [matmul(grad, transposed(b, b_ndim)), matmul(expand_dims(a, 1), grad)]
    elif b_ndim == 1:
        grad = expand_dims(output_grad, -1)
        grads = [matmul(grad, expand_dims(b, 0)), squeeze(matmul(transposed(a, a_ndim), grad), -1)]
    else:
        grads = [matmul(output_grad, transposed(b, b_ndim)), matmul(transposed(a, a_ndim), output_grad)]
    return [summed(builder, grad, argument) for grad, argument in zip(grads, (a, b), strict=True)]


# -- reductions --


@gradient(sum)
def _sum(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    return [broadcast_to(spread(orig_call, output_grad), shape_of(x))]


@gradient(mean)
def _mean(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    share = output_grad / count_of(reduced_extents(x, orig_call.attrs["axis"]), output_grad)
    return [broadcast_to(spread(orig_call, share), shape_of(x))]


@gradient(variance)
def _variance(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    axis = orig_call.attrs["axis"]
    centered = x - mean(x, axis, keepdims=True)
    share = number(2, x) / count_of(reduced_extents(x, axis), x)
    return [spread(orig_call, output_grad) * (centered * share)]


def _extreme(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    # Of equal elements, each gets the same share.
    (x,) = operands(orig_call)
    chosen = astype(equal(x, spread(orig_call, orig_var)), tensor_of(x).dtype)
    shares = divide(spread(orig_call, output_grad), sum(chosen, orig_call.attrs["axis"], keepdims=True))
    return [multiply(chosen, shares)]


gradient(max)(_extreme)
gradient(min)(_extreme)


@gradient(cumsum)
def _cumsum(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    (x,) = operands(orig_call)
    axis, dtype = orig_call.attrs["axis"], tensor_of(x).dtype
    grad, along = (reshape(output_grad, [-1]), 0) if axis is None else (output_grad, axis)
    total = flip(cumsum(flip(grad, along), along, exclusive=orig_call.attrs["exclusive"]), along)
    total = reshape(total, shape_of(x)) if axis is None else total
    return [total if tensor_of(orig_var).dtype is dtype else astype(total, dtype)]


# -- elements that move --


@gradient(permute_dims)
def _permute_dims(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    axes = orig_call.attrs["axes"]
    if not axes:
        return [permute_dims(output_grad)]
    ndim = len(axes)
    return [permute_dims(output_grad, sorted(range(ndim), key=lambda i: axes[i] % ndim))]


@gradient(reshape)
def _reshape(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, *shape = operands(orig_call)
    return [reshape(output_grad, shape_of(x)), *(no_grad(s) for s in shape)]


gradient(flatten)(_reshape)
gradient(squeeze)(_reshape)


@gradient(expand_dims)
def _expand_dims(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [squeeze(output_grad, orig_call.attrs["axis"])]


@gradient(broadcast_to)
def _broadcast_to(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, shape = operands(orig_call)
    return [collapse_sum_to(output_grad, shape_of(x)), no_grad(shape)]


def _parts(call: Call) -> list[TensorStructInfo]:
    """What is known of the tensors in a tuple that is the argument of a call."""
    info = call.args[0].struct_info
    fields = info.fields if isinstance(info, TupleStructInfo) else []
    parts = [f for f in fields if isinstance(f, TensorStructInfo) and f.extents is not None]
    if not parts or len(parts) != len(fields):
        raise ShapeMismatch(f"the gradient of `{call}` needs the shapes of its parts, found {info}")
    return parts


@gradient(concat)
def _concat(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    axis = orig_call.attrs["axis"] or 0
    ends: list[Any] = []
    for part in _parts(orig_call)[:-1]:
        assert part.extents is not None
        ends.append(part.extents[axis] + (ends[-1] if ends else 0))
    return [split(output_grad, ends, axis)]


@gradient(split)
def _split(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    return [concat(output_grad, orig_call.attrs["axis"])]


@gradient(stack)
def _stack(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    axis, count = orig_call.attrs["axis"], len(_parts(orig_call))
    slices = builder.emit(split(output_grad, count, axis))
    return [Tuple([squeeze(TupleGetItem(slices, i), axis) for i in range(count)])]


@gradient(take)
def _take(orig_var: Var, orig_call: Call, output_grad: Var, builder: BlockBuilder) -> list[Expr]:
    x, indices = operands(orig_call)
    return [take_backward(output_grad, x, indices, orig_call.attrs["axis"]), no_grad(indices)]
