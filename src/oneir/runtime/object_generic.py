"""Constants and JSON of the compiler's nodes, under the names that they have in the runtime.

    const(1, "int64")
    LoadJSON(SaveJSON(mod))

The compiler hangs itself in here when it is imported; the runtime alone has no nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_hooks: dict[str, Callable[..., Any]] = {}


def set_node_hooks(const: Callable[..., Any], save_json: Callable[[Any], str], load_json: Callable[[str], Any]) -> None:
    """Sets what makes constants, and what writes and reads nodes as JSON."""
    _hooks.update(const=const, save_json=save_json, load_json=load_json)


def const(value: Any, dtype: str | None = None, span: Any = None) -> Any:
    """The constant expression of a number; int32, float32 or bool unless `dtype` says otherwise."""
    return _hooks["const"](value, dtype, span)


def SaveJSON(node: Any) -> str:
    """A node as JSON."""
    return _hooks["save_json"](node)


def LoadJSON(json_str: str) -> Any:
    """The node that `SaveJSON` wrote."""
    return _hooks["load_json"](json_str)


def AsRepr(node: Any) -> str:
    """The text of a node."""
    return repr(node)
