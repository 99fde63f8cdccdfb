"""Packed functions: Python functions that compiled programs, and other Python code, call by name.

@register_func("env.relu", override=True)
def relu(x, out):
    out[:] = np.maximum(x.numpy(), 0)

get_global_func("env.relu")(a, b)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from .error import InvalidValue, NotRegistered, TypeMismatch
from .once import new_lock

_functions: dict[str, Callable[..., Any]] = {}
_lock = new_lock()

F = TypeVar("F", bound=Callable[..., Any])


@overload
def register_func(func_name: F) -> F: ...
@overload
def register_func(func_name: str, f: F, override: bool = False) -> F: ...
@overload
def register_func(func_name: str, f: None = None, override: bool = False) -> Callable[[F], F]: ...
def register_func(func_name: Any, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register a function under a name; without `f`, a decorator that does so.

    Used as a plain decorator, `@register_func`, it takes the function's own name. Returns the function. Raises
    `InvalidValue` if the name is taken and `override` is not set.
    """
    if callable(func_name):
        return register_func(func_name.__name__, func_name, override)
    if not isinstance(func_name, str):
        raise TypeMismatch(f"Expected the name of a function, found {type(func_name).__name__}.")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeMismatch(f"Expected a function to register as {func_name!r}, found {type(function).__name__}.")
        with _lock:
            if func_name in _functions and not override:
                raise InvalidValue(f"A function {func_name!r} is registered already; replace it with override=True.")
            _functions[func_name] = function
        return function

    return register if f is None else register(f)


register_global_func = register_func


@overload
def get_global_func(name: str, allow_missing: Literal[False] = False) -> Callable[..., Any]: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> Callable[..., Any] | None: ...
def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The function registered under `name`. If there is none: None with `allow_missing`, else `NotRegistered`."""
    function = _functions.get(name)
    if function is None and not allow_missing:
        raise NotRegistered(
            f"No function is registered as {name!r}. Register it first: decorate it with @register_func({name!r})."
        )
    return function


def list_global_func_names() -> list[str]:
    """The names of all registered functions, sorted."""
    return sorted(_functions)


def remove_global_func(name: str) -> None:
    """Forget the function registered under `name`; `NotRegistered` if there is none."""
    get_global_func(name)
    _functions.pop(name, None)


def functions_under(prefix: str) -> Callable[[str], Callable[..., Any]]:
    """The `__getattr__` of a module whose attributes are the functions registered as `PREFIX.NAME`."""

    def find(name: str) -> Callable[..., Any]:
        function = get_global_func(f"{prefix}.{name}", allow_missing=True)
        if function is None:
            raise AttributeError(f"no function is registered as '{prefix}.{name}'")
        return function

    return find
