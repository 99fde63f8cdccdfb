"""Handles by which users name blocks, loops and numbers of a schedule. They are valid only within one schedule."""

from __future__ import annotations

from ...ir.expr import PrimExpr
from ...runtime.object import Object


class BlockRV(Object):
    """A block of a schedule."""

    __slots__ = ()


class LoopRV(Object):
    """A loop of a schedule."""

    __slots__ = ()


ExprRV = PrimExpr
"""A number that a schedule chose: a variable, or an expression of such."""
