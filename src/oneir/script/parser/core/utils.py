"""What functions and classes see of the names around them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def inspect_function_capture(func: Callable[..., Any]) -> dict[str, Any]:
    """The names of a function's module, and those of functions around it that it uses."""
    return {**getattr(func, "__globals__", {}), **inspect.getclosurevars(func).nonlocals}


def inspect_class_capture(cls: type) -> dict[str, Any]:
    """What the functions of a class see."""
    seen: dict[str, Any] = {}
    for member in vars(cls).values():
        if inspect.isfunction(member):
            seen.update(inspect_function_capture(member))
    return seen
