"""Launches of kernels in Python, for devices that are reached through a library of Python.

    launch = launch_in_python(function)     # what `launch.ll` calls, by its address
    function(launch, values)                # is called with that address, and the address of the launch's `Value`s

An exception goes to the caller of the program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .callback import CALLBACKS
from .packed import Code, Value
from .registry import register_func

_CallPacked = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(Value), ctypes.c_int32, ctypes.POINTER(Value)
)
_Run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Value))
_call_packed = _CallPacked(CALLBACKS["oneir_call_packed"])


class PythonLaunch(ctypes.Structure):
    """What host code launches with: the function that it calls."""

    _fields_ = (("run", ctypes.c_void_p),)


@_Run
def _run(launch: int, values: int, result: Any) -> int:
    """Launches through the callback that passes exceptions on to the program's caller."""
    arguments = (Value * 2)()
    for argument, address in zip(arguments, (launch, values), strict=True):
        argument.code, argument.p = Code.POINTER, address
    return _call_packed(b"oneir.runtime.launch_in_python", arguments, 2, result)


_launches: dict[int, tuple[PythonLaunch, Callable[[int, int], None]]] = {}
"""By address: what programs launch with."""


def launch_in_python(function: Callable[[int, int], None]) -> PythonLaunch:
    """What host code launches with so that `function` is called, until it is forgotten."""
    launch = PythonLaunch(ctypes.cast(_run, ctypes.c_void_p).value)
    _launches[ctypes.addressof(launch)] = (launch, function)
    return launch


def forget_launch(launch: ctypes.Structure) -> None:
    """Drops a launch that no program has any more."""
    del _launches[ctypes.addressof(launch)]


@register_func("oneir.runtime.launch_in_python")
def _launch(launch: ctypes.c_void_p, values: ctypes.c_void_p) -> None:
    assert launch.value is not None and values.value is not None
    _launches[launch.value][1](launch.value, values.value)
