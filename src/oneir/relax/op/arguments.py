"""What users may pass to an operator, brought into the form that its call holds: shapes, numbers, dtypes, texts."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ...runtime.error import TypeMismatch
from ..expr import DataTypeImm, Expr, PrimValue, ShapeExpr, StringImm


def shape_value(shape: Any) -> Expr:
    """A shape: an expression as it is, extents as a `ShapeExpr`."""
    if isinstance(shape, Expr):
        return shape
    if isinstance(shape, Sequence) and not isinstance(shape, str):
        return ShapeExpr(shape)
    raise TypeMismatch(f"expected a shape or a list of extents, found {shape!r}")


def integer(value: Any) -> int:
    """An integer of Python, of NumPy or as a constant; anything else, a float as well, is an error."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeMismatch(f"expected an integer, found {value!r}") from None


def integers(values: Any) -> list[int]:
    """One integer or several as a list."""
    several = isinstance(values, Sequence) and not isinstance(values, str)
    return [integer(v) for v in values] if several else [integer(values)]


def number_value(value: Any) -> Expr:
    """A number outside of tensors; an expression as it is."""
    return value if isinstance(value, Expr) else PrimValue(value)


def dtype_value(dtype: Any) -> Expr:
    """A dtype as a value."""
    return dtype if isinstance(dtype, Expr) else DataTypeImm(dtype)


def text_value(text: Any) -> Expr:
    """A text as a value."""
    if not isinstance(text, (Expr, str)):
        raise TypeMismatch(f"expected a text, found {text!r}")
    return text if isinstance(text, Expr) else StringImm(text)
