"""Plain values: numbers, strings and containers of anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ...ir.container import Array
from ...ir.dtype import DataType
from .core import Printer, prints


def quoted(text: str) -> str:
    """A string literal in double quotes; what cannot be seen is escaped."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    characters = []
    for char in text:
        if char in '"\\':
            characters.append("\\" + char)
        elif char.isprintable():
            characters.append(char)
        else:
            characters.append(char.encode("unicode_escape").decode("ascii"))
    return '"' + "".join(characters) + '"'


def float_text(value: float) -> str:
    """A float with the digits that tell it from every other one; in quotes when it is infinite or not a number."""
    if not math.isfinite(value):
        return f'"{value}"'
    text = format(value, ".17g")
    return text if "." in text or "e" in text else text + ".0"


@prints(str, DataType)
def _str(p: Printer, value: str) -> str:
    return quoted(value)


@prints(bool, type(None))
def _constant(p: Printer, value: Any) -> str:
    return str(value)


@prints(int)
def _int(p: Printer, value: int) -> str:
    return str(int(value))


@prints(float)
def _float(p: Printer, value: float) -> str:
    return float_text(value) if math.isfinite(value) else f"float({float_text(value)})"


@prints(np.generic)
def _numpy_scalar(p: Printer, value: Any) -> str:
    return p.expr(value.item())


@prints(list, tuple, Array)
def _sequence(p: Printer, values: Any) -> str:
    return f"[{p.exprs(values)}]"


@prints(dict, MappingProxyType, Mapping)
def _mapping(p: Printer, values: Mapping[Any, Any]) -> str:
    items = list(values.items())
    if all(isinstance(key, str) for key, _ in items):
        items.sort(key=lambda item: item[0])
    return "{" + ", ".join([f"{p.expr(key)}: {p.expr(value)}" for key, value in items]) + "}"
