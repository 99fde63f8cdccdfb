"""Which stream of a device each thread works in; native code (`stream.ll`) asks at every launch.

A thread that has chosen none works in the device's default stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from .error import InternalError, InvalidValue
from .llvm import LoadedObject, add_symbol
from .once import once
from .resident import resident

_Current = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
_Choose = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
MOST_DEVICES = 16
"""Devices whose streams one thread may choose."""


@once
def _code() -> LoadedObject:
    text = Path(__file__).with_name("stream.ll").read_text()
    code = resident("the streams of threads", lambda: text, text)
    if ctypes.CFUNCTYPE(ctypes.c_int32)(code.symbol("oneir_make_streams"))():
        raise InternalError("the system has no thread-specific key left for the streams of threads")
    return code


def stream_address() -> int:
    """The address of `oneir_current_stream`."""
    return _code().symbol("oneir_current_stream")


add_symbol("oneir_current_stream", stream_address)


@once
def _functions() -> tuple[Callable[[int, int], int | None], Callable[[int, int, int], int]]:
    code = _code()
    return _Current(code.symbol("oneir_current_stream")), _Choose(code.symbol("oneir_choose_stream"))


def current_stream(device_type: int, device_id: int) -> int:
    """The stream that this thread has chosen for a device; 0 where it has not."""
    return _functions()[0](device_type, device_id) or 0


def choose_stream(device_type: int, device_id: int, stream: int) -> None:
    """Makes this thread work in a stream of a device from now on; 0 is the default stream."""
    if _functions()[1](device_type, device_id, stream):
        raise InvalidValue(f"a thread chooses streams of at most {MOST_DEVICES} devices")
