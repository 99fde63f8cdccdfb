"""Classes of errors by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...runtime import entry

E = TypeVar("E", bound=type[Exception])

__all__ = ["register_error"]


def register_error(name_or_cls: str | E | None = None, cls: E | None = None) -> Any:
    """Raises a class of errors for native failures of its name, or of the name given; also a decorator."""
    if isinstance(name_or_cls, type):
        return register_error(name_or_cls.__name__, name_or_cls)

    def register(error: E) -> E:
        entry.register_error(name_or_cls or error.__name__, error)
        return error

    decorate: Callable[[E], E] = register
    return decorate if cls is None else register(cls)
