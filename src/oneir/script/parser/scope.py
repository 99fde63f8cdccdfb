"""Names: what the parser has bound so far, and below it the Python world in which the script stands."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Mapping
from types import FrameType, FunctionType
from typing import Any

MISSING: Any = object()


class Scope:
    """Names bound in one stretch of a script; what it lacks is looked up in its parent, at last in `outer`."""

    __slots__ = ("names", "outer", "parent", "values")

    def __init__(self, parent: Scope | None = None, outer: tuple[Mapping[str, Any], ...] = ()):
        self.parent = parent
        self.outer = outer if parent is None else parent.outer
        self.names: dict[str, Any] = {}
        self.values: set[str] = set()
        """The names bound to a value by plain assignment: an inner scope cannot update them."""

    def lookup(self, name: str) -> Any:
        """What a name stands for; `MISSING` when it is not defined."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        for names in self.outer:
            if name in names:
                return names[name]
        return MISSING

    def owner(self, name: str) -> Scope | None:
        """The scope that binds a name; None when the parser has not bound it."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope

    def binds(self, value: Any) -> bool:
        """Whether a name that the parser has bound stands for this very object."""
        scope: Scope | None = self
        while scope is not None:
            if any(v is value for v in scope.names.values()):
                return True
            scope = scope.parent
        return False

    def visible(self) -> dict[str, Any]:
        """Every name that can be written here, with what it stands for."""
        found: dict[str, Any] = {}
        for names in reversed(self.outer):
            found.update(names)
        scopes: list[Scope] = [self]
        while scopes[-1].parent is not None:
            scopes.append(scopes[-1].parent)
        for scope in reversed(scopes):
            found.update(scope.names)
        return found

    def all_names(self) -> set[str]:
        """Every name that can be written here, for suggestions."""
        return set(self.visible())


def closure_of(function: Any) -> dict[str, Any]:
    """The variables of enclosing functions that a function uses."""
    found = {}
    if isinstance(function, FunctionType) and function.__closure__:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    return found


def names_around(frame: FrameType, *functions: Any) -> tuple[Mapping[str, Any], ...]:
    """The names that a definition in `frame` sees: of closures, of the function or class around it, of its module."""
    spaces: list[Mapping[str, Any]] = [c for c in map(closure_of, functions) if c]
    here: FrameType | None = frame
    while here is not None and here.f_locals is not here.f_globals:
        spaces.append(dict(here.f_locals))
        if here.f_code.co_flags & inspect.CO_NEWLOCALS:
            break  # a function; what stands around it is in its own closure
        here = here.f_back  # a class body
    return (*spaces, frame.f_globals, vars(builtins))
