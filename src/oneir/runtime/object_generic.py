"""Constants, containers and JSON of the compiler's nodes, under the names that they have in the runtime.

    const(1, "int64")
    LoadJSON(SaveJSON(mod))

The compiler provides them when it is imported; the runtime alone has no nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

from .error import TypeMismatch
from .hook import Hook
from .object import Object, ObjectConvertible

make_const: Hook[[Any, str | None, Any], Any] = Hook("make_const", "oneir.ir")
make_array: Hook[[list[Any]], Any] = Hook("make_array", "oneir.ir")
save_json: Hook[[Any], str] = Hook("save_json", "oneir.ir")
load_json: Hook[[str], Any] = Hook("load_json", "oneir.ir")


def const(value: Any, dtype: str | None = None, span: Any = None) -> Any:
    """The constant expression of a number; int32, float32 or bool unless `dtype` says otherwise."""
    return make_const(value, dtype, span)


def convert(value: Any) -> Any:
    """A value as programs hold it: a list becomes an array, a mapping a dictionary, `a == b` an expression.

    Numbers, strings, functions and objects are held as they are; `TypeMismatch` for anything else.
    """
    if value is None or isinstance(value, (Object, str, bytes, Number)):
        return value
    if isinstance(value, (list, tuple)):
        return make_array([convert(item) for item in value])
    if isinstance(value, Mapping):
        return {convert(key): convert(item) for key, item in value.items()}
    if isinstance(value, ObjectConvertible):
        return value.asobject()
    if callable(value):
        return value
    raise TypeMismatch(
        f"expected a number, a string, a function, an object or a container of these, found {value!r} "
        f"of type {type(value).__name__}"
    )


def SaveJSON(node: Any) -> str:
    """A node as JSON."""
    return save_json(node)


def LoadJSON(json_str: str) -> Any:
    """The node that `SaveJSON` wrote."""
    return load_json(json_str)


def AsRepr(node: Any) -> str:
    """The text of a node."""
    return repr(node)
