"""Masking."""

from __future__ import annotations

from typing import Any

from ..expr import Expr, const
from .create import full_like
from .search import where


def masked_fill(x: Expr, mask: Expr, value: Any) -> Expr:
    """The tensor with `value`, a number or a tensor without dimensions, wherever the mask holds."""
    filling = value if isinstance(value, Expr) else const(value, x.struct_info.dtype)
    return where(mask, full_like(x, filling), x)
