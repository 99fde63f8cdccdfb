"""What tests of pools of processes run there: sums, functions by name, state that an initializer sets."""

from __future__ import annotations

import os
import time
from typing import Any

from ..runtime.registry import get_global_func, register_func
from .packed_functions import echo, identity_cpp, sleep_in_ffi

_state: list[Any] = [0, 0, 0]


def initializer(test_global_state_1: Any, test_global_state_2: Any, test_global_state_3: Any) -> None:
    """Sets what `after_initializer` returns in this process."""
    _state[:] = [test_global_state_1, test_global_state_2, test_global_state_3]


def after_initializer() -> tuple[Any, Any, Any]:
    """What `initializer` set; zeros before."""
    first, second, third = _state
    return first, second, third


@register_func("testing.identity_py")
def identity_py(arg: Any) -> Any:
    """What it is given."""
    return arg


def register_ffi() -> None:
    """Registers `testing.nested_identity_py`, which returns its argument."""
    register_func("testing.nested_identity_py", identity_py, override=True)


def call_py_ffi(arg: Any) -> Any:
    """What `testing.nested_identity_py` returns."""
    return get_global_func("testing.nested_identity_py")(arg)


def call_cpp_ffi(arg: Any) -> Any:
    """What `testing.echo` returns."""
    return echo(arg)


def call_cpp_py_ffi(arg: Any) -> Any:
    """What `testing.identity_cpp` returns."""
    return identity_cpp(arg)


def fast_summation(n: int) -> int:
    """1 + 2 + … + n, at once."""
    return n * (n + 1) // 2


def slow_summation(n: int) -> int:
    """1 + 2 + … + n, one by one."""
    total = 0
    for i in range(n + 1):
        total += i
    return total


def timeout_job(n: float) -> None:
    """Waits half as long again as n seconds."""
    sleep_in_ffi(n * 1.5)


def identity_after(x: Any, sleep: float) -> Any:
    """What it is given, after so many seconds."""
    if sleep:
        time.sleep(sleep)
    return x


def terminate_self() -> None:
    """Ends the process, with status 255."""
    os._exit(-1 & 0xFF)
