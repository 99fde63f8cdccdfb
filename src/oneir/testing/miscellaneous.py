"""What the published package of tests has beside tests."""

from __future__ import annotations

from typing import Any

from ..ir.dtype import DataType
from ..runtime.error import InvalidValue
from ..tir.op import max_value, min_value

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")


def strtobool(val: str) -> int:
    """1 or 0 for what an environment variable says. Raises `InvalidValue` for what is neither yes nor no."""
    if val.lower() in (*_TRUE, *_FALSE):
        return int(val.lower() in _TRUE)
    raise InvalidValue(f"expected one of {', '.join((*_TRUE, *_FALSE))}; found {val!r}")


def get_dtype_range(dtype: str) -> tuple[Any, Any]:
    """The smallest and the largest finite value of a dtype, as Python numbers. Raises `InvalidValue` for handles."""
    if not (DataType(dtype).is_float or DataType(dtype).code in ("int", "uint", "bool")):
        raise InvalidValue(f"expected a dtype of numbers, found {dtype}")
    low, high = min_value(dtype), max_value(dtype)
    return getattr(low, "value", None), getattr(high, "value", None)


def install_request_hook(depth: int) -> None:
    """Does nothing: published tutorials call it, where they are built, to download from a mirror."""
    if depth <= 0:
        raise InvalidValue(f"expected a depth of at least 1, found {depth}")
