"""Tags: names that mark what kind of operation a tensor expression is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ..runtime.error import InvalidValue


class TagScope:
    """While it is entered, every operation made carries the tag. Also a decorator. Scopes do not nest."""

    _entered: ContextVar[TagScope | None] = ContextVar("oneir_tag_scope", default=None)

    def __init__(self, tag: str):
        self.tag = tag

    @classmethod
    def get_current(cls) -> TagScope | None:
        """The scope entered, if any."""
        return cls._entered.get()

    def __enter__(self) -> TagScope:
        entered = self._entered.get()
        if entered is not None:
            raise InvalidValue(f"a tag scope ({entered.tag!r}) is entered already; tag scopes do not nest")
        self._entered.set(self)
        return self

    def __exit__(self, *_: Any) -> None:
        self._entered.set(None)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def tagged(*args: Any, **kwargs: Any) -> Any:
            with TagScope(self.tag):
                return function(*args, **kwargs)

        return tagged


def tag_scope(tag: str) -> TagScope:
    """Marks the operations made inside, or by the decorated function, with a tag."""
    return TagScope(tag)


def current_tag(tag: str) -> str:
    """The tag given, or that of the scope. Raises `InvalidValue` for a tag inside of a scope."""
    scope = TagScope.get_current()
    if scope is not None:
        if tag:
            raise InvalidValue(f"the operation has the tag {tag!r} and stands in the tag scope {scope.tag!r}; give one")
        return scope.tag
    return tag
