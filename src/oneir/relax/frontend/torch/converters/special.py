"""Special functions: loops of `topi.special`, since graphs have no operators for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .....runtime.error import UnsupportedError
from .....topi import bessel, elementwise_loops, special
from .... import op
from ....expr import Expr, const
from ..dtypes import as_operand, default_float, is_float, result_dtype, unified
from ..importer import Importer, as_shape
from ..registry import converter
from .shape import broadcast_shape
from .unary import as_float


def _loops(names: str, function: Callable[..., Any], *args: Any) -> None:
    def convert(g: Importer, x: Expr) -> Expr:
        return _emit(g, function, x, *args)

    converter(*names.split())(convert)


def _emit(g: Importer, function: Callable[..., Any], x: Expr, *args: Any) -> Expr:
    return g.block_builder.emit_te(function, g.emit(as_float(g, x)), *args)


_loops("lgamma special_gammaln prims::lgamma", special.lgamma)
_loops("digamma special_digamma special_psi prims::digamma", special.digamma)
_loops("erfinv special_erfinv prims::erf_inv", special.erfinv)
_loops("special_ndtri prims::ndtri", special.ndtri)
_loops("special_erfcx prims::erfcx", special.erfcx)
_loops("i0 special_i0 prims::bessel_i0 special_modified_bessel_i0", special.bessel_i, 0, False)
_loops("special_i0e prims::bessel_i0e", special.bessel_i, 0, True)
_loops("special_i1 prims::bessel_i1 special_modified_bessel_i1", special.bessel_i, 1, False)
_loops("special_i1e prims::bessel_i1e", special.bessel_i, 1, True)
_loops("special_airy_ai", bessel.airy_ai)
for _order in (0, 1):
    _loops(f"special_bessel_j{_order} prims::bessel_j{_order}", bessel.bessel_j, _order)
    _loops(f"special_bessel_y{_order}", bessel.bessel_y, _order)
    _loops(f"special_modified_bessel_k{_order}", bessel.bessel_k, _order, False)
    _loops(f"special_scaled_modified_bessel_k{_order}", bessel.bessel_k, _order, True)


def _of_two(g: Importer, function: Callable[..., Any], x: Any, other: Any, *args: Any) -> Expr:
    """A function of two tensors of float64 of one shape, in the dtype that PyTorch's result has."""
    dtype = result_dtype(x, other)
    operands = [op.astype(as_operand(v, dtype), "float64") for v in (x, other)]
    found = g.block_builder.emit_te(function, *_of_one_shape(g, operands), *args)
    return g.emit(op.astype(found, dtype if is_float(dtype) else default_float()))


def _of_one_shape(g: Importer, given: Sequence[Expr]) -> list[Expr]:
    operands = [g.emit(v) for v in given]
    shape = as_shape(broadcast_shape([g.shape(v) for v in operands]))
    return [g.emit(op.broadcast_to(v, shape)) for v in operands]


def _polynomial(family: str) -> None:
    def convert(g: Importer, x: Any, n: Any) -> Expr:
        # Degrees are whole numbers, also where they come as floats.
        if not isinstance(n, Expr):
            degree = math.trunc(n)
        else:
            degree = g.emit(op.trunc(n)) if is_float(g.dtype(n)) else n
        return _of_two(g, elementwise_loops.orthogonal_polynomial, x, degree, family)

    def convert_shifted(g: Importer, x: Any, n: Any) -> Expr:
        if not isinstance(x, Expr):
            return convert(g, 2 * x - 1, n)
        x = g.emit(as_float(g, x))
        return convert(g, g.emit(op.subtract(op.add(x, x), const(1, g.dtype(x)))), n)

    kind, _, letter = family.rpartition("_")
    converter(f"special_{kind}_polynomial_{letter}")(convert)
    if kind == "chebyshev":
        converter(f"special_shifted_{kind}_polynomial_{letter}")(convert_shifted)


for _family in elementwise_loops.POLYNOMIALS:
    _polynomial(_family)


@converter("special_zeta", "prims::zeta")
def zeta(g: Importer, x: Any, q: Any) -> Expr:
    """The zeta function of Hurwitz."""
    return _of_two(g, elementwise_loops.zeta, x, q)


@converter("igamma", "special_gammainc", "prims::igamma")
def igamma(g: Importer, a: Expr, x: Expr) -> Expr:
    """The regularized lower incomplete Gamma function."""
    return _of_two(g, elementwise_loops.gamma_p, a, x, False)


@converter("igammac", "special_gammaincc", "prims::igammac")
def igammac(g: Importer, a: Expr, x: Expr) -> Expr:
    """The regularized upper incomplete Gamma function."""
    return _of_two(g, elementwise_loops.gamma_p, a, x, True)


@converter("gcd")
def gcd(g: Importer, x: Any, other: Any) -> Expr:
    """The greatest common divisor."""
    operands = _of_one_shape(g, unified(x, other))
    return g.block_builder.emit_te(elementwise_loops.gcd, *operands)


@converter("lcm")
def lcm(g: Importer, x: Any, other: Any) -> Expr:
    """The least common multiple; 0 where one of both is 0."""
    a, b = _of_one_shape(g, unified(x, other))
    divisor = g.block_builder.emit_te(elementwise_loops.gcd, a, b)
    zero, one = (const(v, g.dtype(a)) for v in (0, 1))
    divisor = op.where(op.equal(divisor, zero), one, divisor)
    return g.emit(op.abs(op.multiply(op.floor_divide(a, divisor), b)))


@converter("nextafter")
def nextafter(g: Importer, x: Any, other: Any) -> Expr:
    """The number next to `x` in the direction of another."""
    return g.block_builder.emit_te(special.nextafter, *_of_one_shape(g, unified(x, other)))


@converter("frexp")
def frexp(g: Importer, x: Expr) -> tuple[Expr, Expr]:
    """A fraction of at least 1/2 and below 1, and the power of 2 that it is multiplied by."""
    return g.block_builder.emit_te(special.fraction, x), g.block_builder.emit_te(special.exponent, x)


@converter("polygamma", "special_polygamma")
def polygamma(g: Importer, *args: Any) -> Expr:
    """A derivative of the digamma function, of a given order."""
    # The operator has the order first, the method last.
    order, x = args if isinstance(args[0], int) else reversed(args)
    if not isinstance(order, int) or order < 0:
        raise UnsupportedError(f"polygamma of order {order}; expected an integer that is at least 0")
    return _emit(g, special.polygamma, x, order) if order else _emit(g, special.digamma, x)


@converter("special_spherical_bessel_j0", "prims::spherical_bessel_j0")
def spherical_bessel_j0(g: Importer, x: Expr) -> Expr:
    """sin(x) / x"""
    x = g.emit(as_float(g, x))
    zero, one = const(0, g.dtype(x)), const(1, g.dtype(x))
    found = op.where(op.isinf(x), zero, op.divide(op.sin(x), x))
    return g.emit(op.where(op.equal(x, zero), one, found))
