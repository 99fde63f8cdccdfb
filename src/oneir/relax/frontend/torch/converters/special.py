"""Special functions: loops of `topi.special`, since graphs have no operators for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....runtime.error import UnsupportedError
from .....topi import special
from .... import op
from ....expr import Expr, const
from ..importer import Importer
from ..registry import converter
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
_loops("i0 special_i0 prims::bessel_i0", special.bessel_i, 0, False)
_loops("special_i0e prims::bessel_i0e", special.bessel_i, 0, True)
_loops("special_i1 prims::bessel_i1", special.bessel_i, 1, False)
_loops("special_i1e prims::bessel_i1e", special.bessel_i, 1, True)


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
