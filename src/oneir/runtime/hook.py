"""Hooks: functions that a package calls and a package above it in the layers provides.

same_expr: Hook[[Any, Any], bool] = Hook("same_expr", "oneir.ir.structural")

same_expr(a, b)          # the earlier package calls it,

@same_expr.provide       # and the later one, when it is imported, says what it does
def _same_expr(a, b): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from .error import InternalError

P = ParamSpec("P")
T = TypeVar("T")


class Hook(Generic[P, T]):
    """A function named `name` that the module `provider` provides.

    Before then, `default` is called; without one that raises `InternalError`.
    """

    __slots__ = ("_function", "name", "provider")

    def __init__(self, name: str, provider: str, default: Callable[P, T] | None = None) -> None:
        self.name, self.provider = name, provider
        self._function = default

    def provide(self, function: Callable[P, T]) -> Callable[P, T]:
        """A decorator: sets the function that the hook calls."""
        self._function = function
        return function

    @property
    def is_provided(self) -> bool:
        """Whether there is a function to call."""
        return self._function is not None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._function is None:
            raise InternalError(f"`{self.name}` is provided by {self.provider}, which is not imported: import oneir")
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Hook({self.name}, provided by {self.provider})"
