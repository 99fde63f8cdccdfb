"""Constants, containers and JSON of the compiler's nodes, under the names that they have in the runtime.

    const(1, "int64")
    LoadJSON(SaveJSON(mod))

The compiler hangs itself in here when it is imported; the runtime alone has no nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any

from .error import TypeMismatch
from .object import Object

_hooks: dict[str, Callable[..., Any]] = {}


def set_node_hooks(
    const: Callable[..., Any],
    array: Callable[[list[Any]], Any],
    save_json: Callable[[Any], str],
    load_json: Callable[[str], Any],
) -> None:
    """Sets what makes constants and arrays, and what writes and reads nodes as JSON."""
    _hooks.update(const=const, array=array, save_json=save_json, load_json=load_json)


def const(value: Any, dtype: str | None = None, span: Any = None) -> Any:
    """The constant expression of a number; int32, float32 or bool unless `dtype` says otherwise."""
    return _hooks["const"](value, dtype, span)


def convert(value: Any) -> Any:
    """A value as programs hold it: a list becomes an array, a mapping a dictionary, `a == b` an expression.

    Numbers, strings, functions and objects are held as they are; `TypeMismatch` for anything else.
    """
    if value is None or isinstance(value, (Object, str, bytes, Number)):
        return value
    if isinstance(value, (list, tuple)):
        return _hooks["array"]([convert(item) for item in value])
    if isinstance(value, Mapping):
        return {convert(key): convert(item) for key, item in value.items()}
    if hasattr(value, "asobject"):
        return value.asobject()
    if callable(value):
        return value
    raise TypeMismatch(
        f"expected a number, a string, a function, an object or a container of these, found {value!r} "
        f"of type {type(value).__name__}"
    )


def SaveJSON(node: Any) -> str:
    """A node as JSON."""
    return _hooks["save_json"](node)


def LoadJSON(json_str: str) -> Any:
    """The node that `SaveJSON` wrote."""
    return _hooks["load_json"](json_str)


def AsRepr(node: Any) -> str:
    """The text of a node."""
    return repr(node)
