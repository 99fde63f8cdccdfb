"""Calling compiled functions from Python.

    function = make_entry(address, signature, keep_alive=library)
    function(a, b, c)        # tensors of ours, NumPy arrays, PyTorch tensors, numbers, strings, None

The call itself is machine code (entry.ll, which says how it goes), compiled once per process. This module does what
need not be fast: rare kinds of arguments, and errors.
"""

from __future__ import annotations

import ctypes
import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from . import error as errors
from .callback import take_exception
from .dlpack import exchange_table
from .dtype import dtype_name
from .entry_code import MAX_EXCHANGES, GraphFunction, NativeFunction, library, table
from .once import new_lock, once
from .packed import Code, Failure
from .signature import Signature, explain, in_order
from .tensor import Tensor, borrow, copy_arrays_with, from_dlpack, wrap_array

_METH_KEYWORDS, _METH_FASTCALL = 0x0002, 0x0080
_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
_lock = new_lock()
_exchange_types: list[type] = []


def make_entry(address: int, signature: Signature, keep_alive: object, context: int = 0) -> Callable[..., Any]:
    """A Python function that calls the native packed function at `address`, passing `context` as its first argument.

    `keep_alive` lives as long as the Python function does. Arguments are not copied. Raises what `explain` finds
    wrong with the arguments, else what the native code says, else the exception of a Python callback.
    """
    native = NativeFunction(
        signature.name.encode(), library().symbol("call"), _METH_FASTCALL, str(signature).encode(), address, context
    )
    native.signature = signature
    native.keep_alive = keep_alive
    return _bind(native)


def make_graph_entry(graph: GraphFunction, signature: Signature) -> Callable[..., Any]:
    """The Python function that runs a graph, called by position or by name; `graph` is complete but for what Python
    itself reads.
    """

    def by_name(*args: object, **named: object) -> Any:
        function = itself()
        assert function is not None  # it is called
        return function(*in_order(signature, args, named))

    graph.name, graph.entry = signature.name.encode(), library().symbol("call_graph")
    graph.flags, graph.by_name = _METH_FASTCALL | _METH_KEYWORDS, by_name
    graph.doc = str(signature).encode()
    function = _bind(graph)
    itself = weakref.ref(function)
    return function


def _bind(native: NativeFunction | GraphFunction) -> Callable[..., Any]:
    _copy_natively()
    return _new_function(ctypes.addressof(native), native, None)


@once
def _copy_natively() -> None:
    """Has machine code copy tensors to arrays, in a seventh of the time, once there is a compiled function."""
    if table.new_array:
        copy = NativeFunction(b"copy", library().symbol("copy"), _METH_FASTCALL)
        copy_arrays_with(_new_function(ctypes.addressof(copy), copy, None))


# What native code calls in rare cases --------------------------------------------------------------------------------


def _slow(native: NativeFunction, code: int, payload: int, *args: object) -> Any:
    """Calls again, with the arguments converted to kinds that native code takes."""
    return _bind(native)(*_plain_arguments(native.signature, args))


def _plain_arguments(signature: Signature, args: Sequence[object]) -> list[object]:
    plain = []
    for index, arg in enumerate(args):
        try:
            plain.append(_plain(arg))
        except errors.OneIRError as error:
            raise type(error)(f"{signature.place(index)}: {error}") from error.__cause__
    return plain


def _plain(arg: object) -> object:
    """`arg` converted to a kind that native code takes: an exact Tensor, int, float, bool, str, c_void_p, or None.

    Raises `TypeMismatch` or `InvalidValue` for what cannot be converted.
    """
    match arg:
        case None | bool():
            return arg
        case ctypes.c_void_p():
            return ctypes.c_void_p(arg.value)
        case int():
            if not -(1 << 63) <= arg < 1 << 63:
                raise errors.InvalidValue(f"expected an integer of 64 bits, found {arg}")
            return int(arg)
        case float():
            return float(arg)
        case str():
            if "\0" in arg:
                raise errors.InvalidValue(f"expected text without zero characters, which would end it, found {arg!r}")
            try:
                return arg.encode().decode()
            except UnicodeEncodeError as error:
                raise errors.InvalidValue(f"expected text that UTF-8 can encode, found {arg!r}") from error
        case Tensor():
            return borrow(ctypes.addressof(arg._record), owner=arg, read_only=not arg.writable)
        case np.ndarray():
            return wrap_array(arg)
        case np.generic():
            return _plain_scalar(arg)
        case bytes() | bytearray() | memoryview():
            return wrap_array(np.asarray(memoryview(arg)))
    if hasattr(arg, "__dlpack__"):
        return arg if _learn_exchange(type(arg)) else from_dlpack(arg)
    if isinstance(arg, SupportsIndex):
        return _plain(operator.index(arg))
    raise errors.TypeMismatch(
        f"expected a tensor, a number, a string or None, found {type(arg).__name__}; "
        "make an array of it first, as with numpy.array or tensor"
    )


def _plain_scalar(scalar: Any) -> object:
    """A NumPy scalar, perhaps of a dtype of ml_dtypes, as a Python number."""
    name = dtype_name(scalar.dtype)
    if name == "bool":
        return bool(scalar)
    return _plain(int(scalar)) if "int" in name else float(scalar)


def _learn_exchange(kind: type) -> bool:
    """Lets native code convert tensors of this type from now on, through DLPack's C exchange table.

    False if it does so already, if the table is full, or if the type has no such table.
    """
    exchange = exchange_table(kind)
    if not exchange:
        return False
    # DLPackExchangeAPI: version, older table, three functions, then dltensor_from_py_object_no_sync.
    major = ctypes.c_uint32.from_address(exchange).value
    function = ctypes.c_void_p.from_address(exchange + 40).value
    with _lock:
        if major != 1 or not function or kind in _exchange_types or len(_exchange_types) == MAX_EXCHANGES:
            return False
        place = 3 * len(_exchange_types)
        _exchange_types.append(kind)
        table.exchanges[place + 1] = function
        table.exchanges[place + 2] = id(_REQUIRES_GRAD) if hasattr(kind, "requires_grad") else None
        table.exchanges[place] = id(kind)  # last: from now on it is found
        return True


_REQUIRES_GRAD = sys.intern("requires_grad")

_CLASSES: dict[str, type[Exception]] = {
    "ValueError": errors.InvalidValue,
    "TypeError": errors.TypeMismatch,
    "AssertionError": errors.AssertionFailure,
    "RuntimeError": errors.ExecutionError,
}


def register_error(name: str, cls: type[Exception]) -> None:
    """Raises `cls` for a failure of native code whose kind is `name`."""
    _CLASSES[name] = cls


def _fail(native: NativeFunction, code: int, payload: int, *args: object) -> Any:
    """Raises the error that native code returned."""
    if code == Code.EXCEPTION:
        raise take_exception(payload)
    if code != Code.FAILURE:
        raise errors.InternalError(f"`{native.signature.name}` returned a packed value with the code {code}.")
    wrong = explain(native.signature, args)
    if wrong is not None:
        raise wrong
    failure = Failure.from_address(payload)
    kind = (failure.kind or b"RuntimeError").decode()
    message = (failure.message or b"").decode(errors="replace")
    raise _CLASSES.get(kind, errors.ExecutionError)(message)


table.slow = _slow
table.fail = _fail
