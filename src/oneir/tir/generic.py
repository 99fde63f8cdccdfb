"""Arithmetic as functions, which accept tensors as well as expressions."""

from __future__ import annotations

from typing import Any

from ..ir import operators as ops
from ..ir.expr import PrimExpr
from ..ir.operators import add, divide, floordiv, multiply, subtract

__all__ = ["add", "cast", "divide", "floordiv", "multiply", "subtract"]


def cast(src: Any, dtype: str, span: Any = None) -> PrimExpr:
    """`src` converted to `dtype`."""
    return ops.cast(dtype, src, span)
