"""Operators of two tensors, broadcast against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ..expr import Call, Constant, Expr
from ..operator_facts import Commutative, FFastMath, OpPattern, SupportsInplace
from . import reference as numerics
from .infer_layout import broadcast_layouts
from .inference import broadcast, only
from .registry import Operator, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _binary(
    name: str,
    doc: str,
    reference: Callable[..., Any],
    te_function: Callable[..., Any],
    dtype: str | None = None,
    *,
    of: str | None = None,
) -> Operator[[Any, Any], Call]:
    """An operator of two tensors of one dtype, which the result has unless `dtype` is given. `of`: see `only`."""

    def function(x1: Any, x2: Any) -> Call:
        return binary.call(x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    binary = operator(f"relax.{name}", pattern=OpPattern.BROADCAST)(function)
    binary.follow_precision()
    binary.infer_layout(broadcast_layouts)
    binary.struct_info(broadcast(dtype))
    binary.reference(reference)
    binary.legalize(te_function, inline_scalars=True, check=only(of) if of else None)
    return binary


add = _binary("add", "x1 + x2, elementwise, broadcast as NumPy does; of bools, x1 or x2.", np.add, topi.add)
subtract = _binary("subtract", "x1 - x2", np.subtract, topi.subtract, of="numbers")
multiply = _binary("multiply", "x1 * x2", np.multiply, topi.multiply)
divide = _binary("divide", "x1 / x2; of integers, truncated towards zero.", numerics.divide, topi.divide, of="numbers")
floor_divide = _binary("floor_divide", "x1 / x2 rounded down.", numerics.floor_divide, topi.floor_divide, of="numbers")
mod = _binary(
    "mod", "The remainder of x1 / x2 with the sign of x1.", numerics.truncated_remainder, topi.mod, of="numbers"
)
floor_mod = _binary(
    "floor_mod",
    "The remainder of x1 / x2 rounded down, with the sign of x2.",
    numerics.floor_remainder,
    topi.floor_mod,
    of="numbers",
)
power = _binary("power", "x1 to the power x2.", numerics.power, topi.power, of="numbers")
log_add_exp = _binary(
    "log_add_exp", "log(exp(x1) + exp(x2)), without overflow.", np.logaddexp, topi.log_add_exp, of="floats"
)
maximum = _binary("maximum", "The larger of x1 and x2; NaN if either is NaN.", np.maximum, topi.maximum)
minimum = _binary("minimum", "The smaller of x1 and x2; NaN if either is NaN.", np.minimum, topi.minimum)

for _commutative in (add, multiply):
    Commutative.set(_commutative.op, True)

for _elementwise in (add, subtract, multiply, divide):
    SupportsInplace.set(_elementwise.op, True)


def te_fast_power_const(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """x**y as exp(y log x), for x above 0."""
    return topi.fast_exp(topi.multiply(topi.log(x), y))


def _fast_power(builder: BlockBuilder, call: Call) -> Expr:
    """One exponent for all that is no whole number: of others, negative numbers and 0 have to be told apart."""
    exponent = call.args[1]
    if not isinstance(exponent, Constant) or exponent.data.shape or float(exponent.data.numpy()).is_integer():
        return call
    return builder.call_te(te_fast_power_const, *call.args)


FFastMath.set(power.op, _fast_power)

equal = _binary("equal", "x1 == x2", np.equal, topi.equal, "bool")
not_equal = _binary("not_equal", "x1 != x2", np.not_equal, topi.not_equal, "bool")
less = _binary("less", "x1 < x2", np.less, topi.less, "bool")
less_equal = _binary("less_equal", "x1 <= x2", np.less_equal, topi.less_equal, "bool")
greater = _binary("greater", "x1 > x2", np.greater, topi.greater, "bool")
greater_equal = _binary("greater_equal", "x1 >= x2", np.greater_equal, topi.greater_equal, "bool")

logical_and = _binary("logical_and", "x1 and x2, of bools.", np.logical_and, topi.logical_and, of="bools")
logical_or = _binary("logical_or", "x1 or x2, of bools.", np.logical_or, topi.logical_or, of="bools")
logical_xor = _binary(
    "logical_xor", "Whether x1 and x2 differ, of bools.", np.logical_xor, topi.logical_xor, of="bools"
)
bitwise_and = _binary("bitwise_and", "x1 & x2, of integers and bools.", np.bitwise_and, topi.bitwise_and, of="bits")
bitwise_or = _binary("bitwise_or", "x1 | x2, of integers and bools.", np.bitwise_or, topi.bitwise_or, of="bits")
bitwise_xor = _binary("bitwise_xor", "x1 ^ x2, of integers and bools.", np.bitwise_xor, topi.bitwise_xor, of="bits")
left_shift = _binary("left_shift", "x1 << x2, of integers.", numerics.shift_left, topi.left_shift, of="integers")
right_shift = _binary(
    "right_shift", "x1 >> x2, of integers; keeps the sign.", numerics.shift_right, topi.right_shift, of="integers"
)
