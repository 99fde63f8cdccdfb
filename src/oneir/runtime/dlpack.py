"""DLPack: sharing memory with other array libraries without copying it.

This module knows the structures and the capsules; `tensor.py` makes tensors of them.
https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import contextlib
import ctypes
import string
from collections.abc import Callable
from pathlib import Path

from .driver import find_driver
from .error import InvalidValue, TypeMismatch
from .llvm import LoadedObject
from .once import once
from .resident import resident

VERSION = (1, 1)
"""The newest version of DLPack whose capsules we make."""

READ_ONLY = 1
SUBBYTE_PADDED = 4


class DLTensor(ctypes.Structure):
    """A tensor as DLPack describes it. Strides count items; null strides mean that it is compact."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """DLManagedTensor: what a capsule named `dltensor` holds."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned: what a capsule named `dltensor_versioned` holds."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Loan:
    """Memory that another library lent us; given back when this object dies."""

    __slots__ = ("_address", "_deleter")

    def __init__(self, address: int, deleter: Callable[[int], None] | None) -> None:
        self._address = address
        self._deleter = deleter

    def __del__(self) -> None:
        if self._deleter is not None:
            self._deleter(self._address)


# Prototypes of our own, since those at `ctypes.pythonapi` are shared by all users of ctypes. Capsules are passed as
# addresses where a reference must not be counted.
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
_capsule_set_destructor = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_SetDestructor", ctypes.pythonapi)
)
_allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("PyMem_RawMalloc", ctypes.pythonapi))
_retain = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))

# Capsules keep the address of their name, not a copy.
_NAME = b"dltensor"
_USED_NAME = b"used_dltensor"
_VERSIONED_NAME = b"dltensor_versioned"
_USED_VERSIONED_NAME = b"used_dltensor_versioned"


def exchange_table(kind: type) -> int:
    """The address of the `DLPackExchangeAPI` that a type of tensors offers, or 0."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None or not _capsule_is_valid(capsule, b"dlpack_exchange_api"):
        return 0
    return _capsule_pointer(capsule, b"dlpack_exchange_api") or 0


def request_capsule(producer: object) -> object:
    """A capsule of `producer`, of the newest kind that it makes.

    Raises `TypeMismatch` if it has no `__dlpack__`, `InvalidValue` if it cannot export its memory.
    """
    export = getattr(producer, "__dlpack__", None)
    if export is None:
        raise TypeMismatch(f"A {type(producer).__name__} cannot be exchanged through DLPack: it has no __dlpack__.")
    if getattr(producer, "requires_grad", False) is True:
        raise InvalidValue(
            "found a tensor that requires a gradient, through which compiled code cannot differentiate; "
            "pass tensor.detach()"
        )
    stream = _stream_for(producer)
    try:
        try:
            return export(max_version=VERSION, **stream)
        except TypeError:  # a producer from before version 1
            return export(**stream)
    except (BufferError, RuntimeError, ValueError) as error:
        raise InvalidValue(f"found a {type(producer).__name__} that cannot be exported: {error}") from error


def _stream_for(producer: object) -> dict[str, int]:
    """The stream that a producer on a device is to make wait for its own: the one that this thread works in."""
    device = getattr(producer, "__dlpack_device__", None)
    device_type, device_id = device() if device is not None else (1, 0)
    driver = find_driver(int(device_type))
    if driver is None or driver.not_shared:
        return {}
    return {"stream": driver.current_stream(int(device_id)) or driver.default_stream}


def take_capsule(capsule: object) -> tuple[int, bool, Loan]:
    """Take what `capsule` holds: the address of its DLTensor, whether it is read-only, and the loan to keep.

    Raises `TypeMismatch` for anything but a fresh DLPack capsule, or one of an incompatible version.
    """
    if _capsule_is_valid(capsule, _VERSIONED_NAME):
        address = _capsule_pointer(capsule, _VERSIONED_NAME) or 0
        versioned = ManagedVersioned.from_address(address)
        if versioned.major != VERSION[0]:
            raise TypeMismatch(
                f"Expected a DLPack capsule of version {VERSION[0]}, found {versioned.major}.{versioned.minor}."
            )
        read_only = bool(versioned.flags & READ_ONLY)
        tensor, deleter, used = address + ManagedVersioned.tensor.offset, versioned.deleter, _USED_VERSIONED_NAME
    elif _capsule_is_valid(capsule, _NAME):
        address = _capsule_pointer(capsule, _NAME) or 0
        read_only = False
        tensor, deleter, used = address + Managed.tensor.offset, Managed.from_address(address).deleter, _USED_NAME
    else:
        raise TypeMismatch(f"Expected a DLPack capsule that nobody has taken yet, found {capsule!r}.")
    _capsule_set_name(capsule, used)
    with contextlib.suppress(ValueError):  # it may have none
        _capsule_set_destructor(capsule, None)
    return tensor, read_only, Loan(address, _Deleter(deleter) if deleter else None)


@once
def _code() -> LoadedObject:
    """The deleters of exported tensors and the destructors of their capsules (dlpack.ll), linked into this process."""
    fields = {
        "managed_context": Managed.context.offset,
        "managed_deleter": Managed.deleter.offset,
        "versioned_context": ManagedVersioned.context.offset,
        "versioned_deleter": ManagedVersioned.deleter.offset,
    }
    template = Path(__file__).with_name("dlpack.ll").read_text(encoding="utf-8")
    text = string.Template(template).substitute(fields)
    return resident("the deleters of exported tensors", lambda: text, text)


def make_capsule(tensor: object, record: DLTensor, flags: int, versioned: bool) -> object:
    """A capsule that shares the memory of `tensor`, described by `record`, and keeps the tensor alive."""
    native = _code()
    kind = ManagedVersioned if versioned else Managed
    address = _allocate(ctypes.sizeof(kind))
    if not address:
        raise MemoryError
    managed = kind.from_address(address)
    if isinstance(managed, ManagedVersioned):
        managed.major, managed.minor = VERSION
        managed.flags = flags
    managed.tensor = DLTensor.from_buffer_copy(record)
    managed.context = id(tensor)
    managed.deleter = native.symbol("delete_managed_versioned" if versioned else "delete_managed")
    _retain(tensor)  # released by the deleter
    destructor = native.symbol("delete_capsule_versioned" if versioned else "delete_capsule")
    return _capsule_new(address, _VERSIONED_NAME if versioned else _NAME, destructor)
