"""Elementwise operators of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import topi
from ...runtime.error import TypeMismatch
from ...te import Tensor
from ..expr import Call, Expr
from ..operator_facts import OpPattern
from ..struct_info import PrimStructInfo, StructInfo
from . import reference as numerics
from .arguments import number_value
from .infer_layout import keep_layout
from .inference import elementwise, fail, only, same_as_input
from .registry import Operator, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _unary(
    name: str,
    doc: str,
    reference: Callable[..., Any],
    te_function: Callable[..., Any],
    *,
    hint: str | None = None,
    dtype: str | None = None,
    floats_only: bool = False,
    of: str | None = None,
) -> Operator[[Expr], Call]:
    """An operator of one tensor whose result has its shape, and its dtype unless `dtype` is given. `of`: see `only`."""

    def function(x: Expr) -> Call:
        return unary.call(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    unary = operator(f"relax.{name}", pattern=OpPattern.ELEMENTWISE)(function)
    unary.follow_precision()
    unary.infer_layout(keep_layout)
    unary.struct_info(elementwise(dtype, floats_only=floats_only))
    unary.reference(reference)
    # The prefix keeps the kernel apart from the C library's function of that name.
    unary.legalize(te_function, hint or f"tir_{name}", check=only(of) if of else None)
    return unary


def _float_unary(
    name: str, doc: str, reference: Callable[..., Any], te_function: Callable[..., Any], hint: str | None = None
) -> Operator[[Expr], Call]:
    """An operator of floats; short ones are computed in float32."""
    computed = numerics.in_float32(reference)
    return _unary(name, doc, computed, te_function, hint=hint, floats_only=True)


abs = _unary("abs", "|x|", np.abs, topi.abs, of="numbers")
negative = _unary("negative", "-x", np.negative, topi.negative, of="numbers")
sign = _unary("sign", "-1, 0 or 1, as x is; 0 for NaN.", numerics.sign, topi.sign, of="numbers")
square = _unary("square", "x * x", np.square, lambda x: topi.multiply(x, x), of="numbers")
ceil = _unary("ceil", "x rounded up.", numerics.of_floats(np.ceil), topi.ceil)
floor = _unary("floor", "x rounded down.", numerics.of_floats(np.floor), topi.floor)
round = _unary("round", "The nearest whole number; of two, the even one.", numerics.of_floats(np.rint), topi.round)
trunc = _unary("trunc", "x rounded towards zero.", numerics.of_floats(np.trunc), topi.trunc)
bitwise_not = _unary("bitwise_not", "~x, of integers and bools.", np.invert, topi.bitwise_not, of="bits")
logical_not = _unary("logical_not", "not x, of bools.", np.logical_not, topi.logical_not, of="bools")

acos = _float_unary("acos", "The angle in [0, pi] whose cosine is x.", np.arccos, topi.acos)
acosh = _float_unary("acosh", "The inverse of the hyperbolic cosine.", np.arccosh, topi.acosh)
asin = _float_unary("asin", "The angle in [-pi/2, pi/2] whose sine is x.", np.arcsin, topi.asin)
asinh = _float_unary("asinh", "The inverse of the hyperbolic sine.", np.arcsinh, topi.asinh)
atan = _float_unary("atan", "The angle in [-pi/2, pi/2] whose tangent is x.", np.arctan, topi.atan)
atanh = _float_unary("atanh", "The inverse of the hyperbolic tangent.", np.arctanh, topi.atanh)
cos = _float_unary("cos", "The cosine of x.", np.cos, topi.cos)
cosh = _float_unary("cosh", "The hyperbolic cosine of x.", np.cosh, topi.cosh)
exp = _float_unary("exp", "e to the power of x.", np.exp, topi.exp)
log = _float_unary("log", "The natural logarithm of x.", np.log, topi.log)
rsqrt = _float_unary("rsqrt", "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), topi.rsqrt)
sigmoid = _float_unary("sigmoid", "1 / (1 + exp(-x))", numerics.sigmoid, topi.sigmoid)
sin = _float_unary("sin", "The sine of x.", np.sin, topi.sin)
sinh = _float_unary("sinh", "The hyperbolic sine of x.", np.sinh, topi.sinh)
sqrt = _float_unary("sqrt", "The square root of x.", np.sqrt, topi.sqrt)
tan = _float_unary("tan", "The tangent of x.", np.tan, topi.tan)
tanh = _float_unary("tanh", "The hyperbolic tangent of x.", np.tanh, topi.tanh)

exp.fast_math(topi.fast_exp)
tanh.fast_math(topi.fast_tanh)


def te_erf(x: Tensor) -> Tensor:
    """The error function; of float16, in float32."""
    return topi.cast(topi.erf(topi.cast(x, "float32")), "float16") if x.dtype == "float16" else topi.erf(x)


erf = _float_unary("erf", "The error function of x.", numerics.erf, te_erf, "erf")
erf.fast_math(topi.fast_erf)

isfinite = _unary("isfinite", "Whether x is neither infinite nor NaN.", np.isfinite, topi.isfinite, dtype="bool")
isinf = _unary("isinf", "Whether x is infinite.", np.isinf, topi.isinf, dtype="bool")
isnan = _unary("isnan", "Whether x is NaN.", np.isnan, topi.isnan, dtype="bool")


@operator("relax.clip", pattern=OpPattern.ELEMENTWISE)
def clip(x: Expr, min: Any, max: Any) -> Expr:
    """x limited to [min, max], which are numbers; min where that is larger."""
    return clip.call(x, number_value(min), number_value(max))


clip.infer_layout(keep_layout)


@clip.struct_info
def _clip_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    for name, bound in zip(("min", "max"), call.args[1:], strict=True):
        if not isinstance(bound.struct_info, PrimStructInfo):
            raise fail(call, f"argument {name} must be a number, found `{bound}`: {bound.struct_info}", TypeMismatch)
    return same_as_input(call, builder)


@clip.reference
def _clip_reference(x: np.ndarray, min: Any, max: Any) -> np.ndarray:
    return np.maximum(np.minimum(x, numerics.nearest(max, x.dtype)), numerics.nearest(min, x.dtype))


clip.legalize(topi.clip, "tir_clip")
