"""Elementwise operators of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import topi
from ..expr import Call, Expr
from .inference import elementwise
from .registry import Operator, OpPattern, operator


def _unary(
    name: str,
    doc: str,
    reference: Callable[..., Any],
    te_function: Callable[..., Any],
    *,
    dtype: str | None = None,
    floats_only: bool = False,
) -> Operator[[Expr], Call]:
    """An operator of one tensor whose result has its shape, and its dtype unless `dtype` is given."""

    def function(x: Expr) -> Call:
        return unary.call(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    unary = operator(f"relax.{name}", pattern=OpPattern.ELEMENTWISE)(function)
    unary.struct_info(elementwise(dtype, floats_only=floats_only))
    unary.reference(reference)
    # The prefix keeps the loops' function apart from the C library's function of that name.
    unary.legalize(te_function, f"tir_{name}")
    return unary


exp = _unary("exp", "e to the power of x.", np.exp, topi.exp, floats_only=True)
