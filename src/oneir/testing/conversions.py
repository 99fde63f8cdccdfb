"""Functions of the registry with which tools test how arguments reach a function: each converts its argument to a type
and gives it back.

get_global_func("testing.AcceptsPrimExpr")(1)  # IntImm("int32", 1)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.container import Array
from ..ir.expr import PrimExpr, as_expr
from ..runtime.error import TypeMismatch
from ..runtime.registry import register_func


def _checked(value: Any, expected: type | tuple[type, ...], name: str) -> Any:
    if not isinstance(value, expected):
        raise TypeMismatch(f"{name} expects {expected}, found {value!r} of type {type(value).__name__}")
    return value


def _array(value: Sequence[Any]) -> Sequence[Any]:
    return _checked(value, Sequence, "an argument that is an array")


def _map(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return _checked(value, Mapping, "an argument that is a map")


def _first(values: Sequence[Any]) -> Any:
    return _array(values)[0]


def _value(values: Mapping[str, Any], key: str) -> Any:
    return _map(values)[key]


def _expressions(values: Sequence[Any]) -> Array[PrimExpr]:
    return Array([as_expr(value) for value in _array(values)])


def _map_of_expressions(values: Mapping[str, Any]) -> dict[str, PrimExpr]:
    return {key: as_expr(value) for key, value in _map(values).items()}


def _accepts_bool(value: Any) -> bool:
    return bool(_checked(value, int, "testing.AcceptsBool"))


def _accepts_int(value: Any) -> int:
    return int(_checked(value, int, "testing.AcceptsInt"))


_FUNCTIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("testing.AcceptsBool", _accepts_bool),
    ("testing.AcceptsInt", _accepts_int),
    ("testing.AcceptsObjectRefArray", _first),
    ("testing.AcceptsMapReturnsValue", _value),
    ("testing.AcceptsMapReturnsMap", _map),
    ("testing.AcceptsPrimExpr", as_expr),
    ("testing.AcceptsArrayOfPrimExpr", _expressions),
    ("testing.AcceptsMapOfPrimExpr", _map_of_expressions),
    ("testing.GetShapeSize", len),
    ("testing.GetShapeElem", operator.getitem),
)
for _name, _function in _FUNCTIONS:
    register_func(_name, _function, override=True)
