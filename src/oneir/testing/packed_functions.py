"""Functions that do next to nothing, for tests of calls: values that come back, errors that are raised, callbacks.

They are registered as `testing.echo` and so on, for programs that call them by name.
"""

from __future__ import annotations

import builtins
import sys
import time
from collections.abc import Callable
from typing import Any

from .. import error as errors
from ..runtime.device import Device
from ..runtime.error import AssertionFailure, InternalError, InvalidValue, NotRegistered
from ..runtime.library import Linked
from ..runtime.module import Module
from ..runtime.registry import get_global_func, register_func


def _register(function: Callable[..., Any]) -> Callable[..., Any]:
    return register_func(f"testing.{function.__name__}", function)


@_register
def nop(*args: Any) -> None:
    """Does nothing."""


@_register
def echo(value: Any, *rest: Any) -> Any:
    """The first of what it is given."""
    return value


@_register
def identity_cpp(value: Any) -> Any:
    """What the function registered as `testing.identity_py` returns."""
    return get_global_func("testing.identity_py")(value)


@_register
def device_test(dev: Device, device_type: int, device_id: int) -> Device:
    """The device. Raises `InvalidValue` if its kind or its number is another one."""
    if (dev.device_type, dev.device_id) != (device_type, device_id):
        raise InvalidValue(f"expected device {device_id} of kind {device_type}, found {dev}")
    return dev


@_register
def object_use_count(value: Any) -> int:
    """How many references there are to a value, the caller's included."""
    return sys.getrefcount(value) - 2  # the argument, and that of getrefcount


@_register
def run_check_signal(nsec: int) -> None:
    """Waits so many seconds, and lets signals (Ctrl-C) end it."""
    end = time.monotonic() + nsec
    while time.monotonic() < end:
        time.sleep(0.01)


@_register
def sleep_in_ffi(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


@_register
def test_raise_error(kind: str, message: str) -> None:
    """Raises the error of a name, a built-in one or one of `oneir.error`; `RuntimeError` for others."""
    raise (_error_of(kind) or RuntimeError)(message)


def _error_of(kind: str) -> type[Exception] | None:
    found = getattr(builtins, kind, None) or getattr(errors, kind, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


@_register
def test_wrap_callback(callback: Callable[[], object]) -> Callable[[], None]:
    """A function that calls another one and drops what it returns."""

    def call() -> None:
        callback()

    return call


@_register
def test_check_eq_callback(message: str) -> Callable[[int, int], None]:
    """A function that raises an error when its arguments differ: the one that begins the message, else
    `AssertionFailure`.
    """
    kind, _, rest = message.partition(":")
    error, text = _error_of(kind), rest.strip()

    def check(x: int, y: int) -> None:
        if x != y:
            raise (error or AssertionFailure)(f"{message if error is None else text}: expected {x} == {y}")

    return check


@_register
def ErrorTest(x: int, y: int) -> None:
    """Raises `InvalidValue` when the arguments differ, and `InternalError` when both are 1."""
    if x != y:
        raise InvalidValue(f"expect x and y to be equal, found {x} and {y}")
    if x == 1:
        raise InternalError("cannot reach here")


class FrontendTestModule(Module):
    """A module to which functions are added: `module["__add_function"](name, function)`."""

    def __init__(self) -> None:
        super().__init__(_no_code, {})

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        if name == "__add_function":
            return self._functions.__setitem__
        if name not in self._functions:
            raise NotRegistered(f"the module has no function {name!r}; it has {', '.join(self._functions) or 'none'}")
        return self._functions[name]


def _no_code() -> Linked:
    raise InternalError("a module of Python functions has no code")


for _name in ("test_raise_error", "test_wrap_callback", "test_check_eq_callback"):
    vars(globals()[_name])["__test__"] = False  # they are no tests, though pytest takes their names for some
