"""Simplification of arithmetic on ramps and broadcasts to operations on scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir import expr as e
from .const_int_bound import is_index_like
from .pattern import same

if TYPE_CHECKING:
    from .rewrite_simplify import RewriteSimplifier


def vector_binary(simplifier: RewriteSimplifier, cls: type, a: Any, b: Any) -> Any:
    """A node over two vectors as one ramp or broadcast; None where it is neither."""
    if type(a) is e.Broadcast and type(b) is e.Broadcast:
        return e.Broadcast(simplifier.binary(cls, a.value, b.value), a.lanes)
    if cls in (e.Min, e.Max) and isinstance(b, e.Broadcast):
        return _limited_again(simplifier, cls, a, b)
    if not (a.dtype.is_int and type(a) in (e.Ramp, e.Broadcast) and type(b) in (e.Ramp, e.Broadcast)):
        return None
    base_a, stride_a = (a.base, a.stride) if type(a) is e.Ramp else (a.value, e.const(0, a.dtype.element))
    base_b, stride_b = (b.base, b.stride) if type(b) is e.Ramp else (b.value, e.const(0, b.dtype.element))
    lanes = a.lanes
    if cls is e.Add or cls is e.Sub:
        return _ramp(simplifier.binary(cls, base_a, base_b), simplifier.binary(cls, stride_a, stride_b), lanes)
    if cls is e.Mul:
        if type(a) is e.Ramp and type(b) is e.Ramp:
            return None
        factor, base, stride = (base_b, base_a, stride_a) if type(b) is e.Broadcast else (base_a, base_b, stride_b)
        return _ramp(simplifier.binary(cls, base, factor), simplifier.binary(cls, stride, factor), lanes)
    if cls in (e.FloorDiv, e.FloorMod, e.Div, e.Mod) and type(a) is e.Ramp and type(b) is e.Broadcast:
        return _divided_ramp(simplifier, cls, a, b)
    if cls is e.LT and same(stride_a, stride_b) and is_index_like(a.dtype):
        return e.Broadcast(simplifier.binary(cls, base_a, base_b), lanes)
    return None


def _limited_again(simplifier: RewriteSimplifier, cls: type, a: Any, b: e.Broadcast) -> Any:
    """min(min(x, broadcast), broadcast) with one limit, and so for max."""
    if type(a) is not cls or type(a.b) is not e.Broadcast:
        return None
    return cls(a.a, e.Broadcast(simplifier.binary(cls, a.b.value, b.value), b.lanes))


def _ramp(base: Any, stride: Any, lanes: Any) -> Any:
    """A ramp; a broadcast when its stride is 0."""
    if isinstance(stride, e.IntImm) and stride.value == 0:
        return e.Broadcast(base, lanes)
    return e.Ramp(base, stride, lanes)


_FLOOR = {e.Div: e.FloorDiv, e.Mod: e.FloorMod}


def _divided_ramp(simplifier: RewriteSimplifier, cls: type, a: Any, b: Any) -> Any:
    """A ramp divided by the same positive number in all lanes, and what remains."""
    stride, divisor = a.stride, b.value
    if not (is_index_like(a.dtype) and isinstance(stride, e.IntImm) and isinstance(divisor, e.IntImm)):
        return None
    step, by = stride.value, divisor.value
    if by <= 0:
        return None
    if cls in _FLOOR and not (simplifier.lo(a.base) >= 0 and step >= 0):
        # Rounding towards zero is rounding down only where no lane is negative.
        return None
    remainder = _FLOOR.get(cls, cls) is e.FloorMod
    if step % by == 0:
        if remainder:
            return e.Broadcast(simplifier.binary(cls, a.base, divisor), a.lanes)
        return _ramp(simplifier.binary(cls, a.base, divisor), e.const(step // by, stride.dtype), a.lanes)
    # The first lane is a multiple of `coeff` and `base` more.
    coeff, base = simplifier.analyzer.modular(a.base)
    if isinstance(a.lanes, int) and coeff > 0:
        last = base + step * (a.lanes - 1)
        if by % coeff == 0 and 0 <= last < coeff:
            # No lane reaches the next multiple of `coeff`, so none reaches another quotient.
            if not remainder:
                return e.Broadcast(simplifier.binary(cls, a.base, divisor), a.lanes)
            return _ramp(simplifier.binary(cls, a.base, divisor), stride, a.lanes)
        if coeff % by == 0 and 0 <= base % by + step * (a.lanes - 1) < by:
            if not remainder:
                return e.Broadcast(simplifier.binary(cls, a.base, divisor), a.lanes)
            return e.Ramp(e.const(base % by, stride.dtype), stride, a.lanes)
    if remainder and coeff > 0 and coeff % by == 0 and not same(a.base, rest := e.const(base % by, stride.dtype)):
        return simplifier.binary(cls, e.Ramp(rest, stride, a.lanes), b)
    return None
