"""Operators of two tensors, broadcast against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import topi
from ..expr import Call
from .inference import broadcast
from .registry import Operator, OpPattern, operator


def _binary(
    name: str,
    doc: str,
    reference: Callable[..., Any],
    te_function: Callable[..., Any],
    dtype: str | None = None,
) -> Operator[[Any, Any], Call]:
    """An operator of two tensors of one dtype, which the result has unless `dtype` is given."""

    def function(x1: Any, x2: Any) -> Call:
        return binary.call(x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    binary = operator(f"relax.{name}", pattern=OpPattern.BROADCAST)(function)
    binary.struct_info(broadcast(dtype))
    binary.reference(reference)
    binary.legalize(te_function, inline_scalars=True)
    return binary


add = _binary("add", "x1 + x2, elementwise, broadcast as NumPy does.", np.add, topi.add)
