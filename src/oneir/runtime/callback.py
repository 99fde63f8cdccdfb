"""Callbacks: how compiled code calls registered packed functions, which are Python.

It calls a C function, whose address the linker knows, and `CALLBACKS`:

    int32_t oneir_call_packed(const char* name, const Value* args, int32_t num_args, Value* result)

from any thread, without the GIL. If the Python function raises, its exception is kept under a token, which the entry
through which Python called the program gets as an error (`Code.EXCEPTION`) and raises. Of the errors of several threads
only one is raised: `void oneir_drop_error(const Value* result)` drops another.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

from .error import InternalError, TypeMismatch
from .llvm import add_symbol
from .packed import READ_ONLY, Code, Value
from .registry import get_global_func, register_global_func
from .tensor import borrow

_CallPacked = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(Value), ctypes.c_int32, ctypes.POINTER(Value)
)

_stashed: dict[int, BaseException] = {}
_tokens = itertools.count(1)


def take_exception(token: int) -> BaseException:
    """Removes and returns the exception that is kept under `token`."""
    return _stashed.pop(token, None) or InternalError(f"No exception waits under the token {token}.")


def from_value(value: Value) -> Any:
    """A packed value as a Python object. The memory of a tensor is valid only until the callback returns."""
    match value.code:
        case Code.NONE:
            return None
        case Code.INT:
            return value.i
        case Code.BOOL:
            return bool(value.i)
        case Code.FLOAT:
            return value.f
        case Code.POINTER:
            return ctypes.c_void_p(value.p)
        case Code.TENSOR:
            return borrow(value.p, owner=None, read_only=bool(value.flags & READ_ONLY))
        case Code.STR:
            return ctypes.string_at(value.p).decode()
        case code:
            raise InternalError(f"A packed value has the unknown code {code}.")


def store_result(name: str, result: object, value: Value) -> None:
    """Stores the result of the packed function `name`. Raises `TypeMismatch` if compiled code cannot take it."""
    value.flags = 0
    match result:
        case None:
            value.code, value.i = Code.NONE, 0
        case bool():
            value.code, value.i = Code.BOOL, int(result)
        case int() if -(1 << 63) <= result < 1 << 63:
            value.code, value.i = Code.INT, result
        case float():
            value.code, value.f = Code.FLOAT, result
        case ctypes.c_void_p():
            value.code, value.p = Code.POINTER, result.value
        case _:
            raise TypeMismatch(
                f"The packed function {name!r} returned {result!r:.80}; compiled code takes None, a bool, a float, "
                "a 64-bit integer or a pointer. Return tensors by writing to an argument."
            )


@_CallPacked
def _call_packed(name: bytes, args: Any, num_args: int, result: Any) -> int:
    try:
        text = name.decode()
        function = get_global_func(text)
        store_result(text, function(*[from_value(args[i]) for i in range(num_args)]), result[0])
    except BaseException as error:  # also KeyboardInterrupt: the entry raises it again, in the caller's thread
        token = next(_tokens)
        _stashed[token] = error
        result[0].code, result[0].flags, result[0].i = Code.EXCEPTION, 0, token
        return -1
    return 0


@register_global_func("tvm.default_trace_action")
def print_trace(*values: object) -> None:
    """What `tir.trace` does with values unless it is told otherwise: it prints them."""
    print(*values)


_DropError = ctypes.CFUNCTYPE(None, ctypes.POINTER(Value))


@_DropError
def _drop_error(result: Any) -> None:
    if result[0].code == Code.EXCEPTION:
        _stashed.pop(result[0].i, None)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


CALLBACKS = {"oneir_call_packed": _address(_call_packed), "oneir_drop_error": _address(_drop_error)}
"""The addresses of what native code calls, by name."""

for _name, _place in CALLBACKS.items():
    add_symbol(_name, _place)
