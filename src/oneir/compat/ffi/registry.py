"""Functions and classes by name."""

from __future__ import annotations

from typing import Any

from ...runtime import get_global_func, list_global_func_names, register_global_func, remove_global_func

__all__ = [
    "get_global_func",
    "list_global_func_names",
    "register_global_func",
    "register_object",
    "remove_global_func",
]


def register_object(type_key: Any = None) -> Any:
    """A decorator of classes of objects, which need no registration: packed functions take any object."""
    return type_key if isinstance(type_key, type) else lambda cls: cls
