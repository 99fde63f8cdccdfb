"""The machine code behind every compiled function's Python entry: entry.ll, and graph_entry.ll for graphs, completed,
compiled and linked.

It depends on the process in three ways: offsets of fields in objects of Python, ctypes and NumPy are written into its
text; Python's C API and type objects are linked by name; other Python objects, and tables, are in `table`.
"""

from __future__ import annotations

import ctypes
import os
import re
import string
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import llvm
from .dtype import dlpack_dtype
from .error import OneIRError, UnsupportedError
from .once import once
from .packed import Code
from .resident import resident
from .tensor import ALIGNMENT, Record, Tensor, empty

if TYPE_CHECKING:
    from .llvm import LoadedObject
    from .signature import Signature

MAX_EXCHANGES = 16
"""The number of types with DLPack's C exchange table that native code can convert by itself."""

_FIXED_COUNT = 16  # calls of up to so many arguments allocate no memory
_FIXED_OBJECTS = 32  # nor do calls of graphs with so many arguments and results
_FIXED_NDIM = 8  # NumPy arrays of more dimensions take the slow way
_LARGE_BYTES = 1 << 20  # from which on NumPy's memory is better: it asks for large pages
_DTYPE_COUNT = 24  # of NumPy's built-in dtypes


class Method(ctypes.Structure):
    """A PyMethodDef, which the `self` of a function that Python calls begins with.

    Python allows it to live there; so both die together.
    """

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )

    def __reduce__(self) -> tuple[object, ...]:
        """Raises `UnsupportedError`, as pickling the function asks for it: its module can be pickled."""
        raise UnsupportedError(
            f"`{self.name.decode()}` is a compiled function, whose code belongs to this process, and cannot be "
            "pickled: pickle the module or the executable that it is a function of, and take it from what is read"
        )


class NativeFunction(Method):
    """The `self` of a compiled function: how Python calls it, then what to run."""

    _fields_ = (("function", ctypes.c_void_p), ("context", ctypes.c_void_p))
    signature: Signature
    keep_alive: object


class Model(ctypes.Structure):
    """How a graph makes a tensor for each call: like `tensor`, in new memory of `nbytes`; large ones by `make`, and all
    of them if `tensor` is null.
    """

    _fields_ = (("tensor", ctypes.py_object), ("nbytes", ctypes.c_int64), ("make", ctypes.py_object))


class Frame(ctypes.Structure):
    """What a graph makes and runs where its plan computes certain numbers. Models are those of its results, then that
    of its arena.
    """

    _fields_ = (
        ("numbers", ctypes.c_void_p),
        ("models", ctypes.c_void_p),
        ("run", ctypes.py_object),  # a NativeFunction
        ("calls", ctypes.c_int64),  # how many more until `GraphFunction.often` is called
    )
    keep_alive: object


class GraphFunction(Method):
    """The `self` of the function that runs a graph: how Python calls it, then what graph_entry.ll reads."""

    _fields_ = (
        ("params", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("single", ctypes.c_int64),  # which output the result is; -1: `compose` makes the result of all
        ("plan", ctypes.py_object),  # a NativeFunction; null where sizes are known
        ("numbers", Model),
        ("numbers_size", ctypes.c_int64),
        ("frame", ctypes.c_void_p),  # where the last call's Frame is kept
        ("table", ctypes.c_void_p),  # where the table of constants is kept, or None
        ("arenas", ctypes.py_object),  # a list of those that no call uses
        ("make_frame", ctypes.py_object),
        ("make_table", ctypes.py_object),
        ("often", ctypes.py_object),  # hears of numbers that many calls had
        ("compose", ctypes.py_object),
        ("recover", ctypes.py_object),  # raises what is wrong with the arguments
        ("by_name", ctypes.py_object),  # calls the function with arguments that have names
    )
    keep_alive: object


class _Table(ctypes.Structure):
    """Python objects that native code compares with or calls (null until they are known), and its look-up tables."""

    _fields_ = (
        ("Tensor", ctypes.py_object),
        ("Record", ctypes.py_object),
        ("ndarray", ctypes.py_object),
        ("c_void_p", ctypes.py_object),
        ("OneIRError", ctypes.py_object),
        ("new_array", ctypes.c_void_p),
        ("slow", ctypes.py_object),
        ("fail", ctypes.py_object),
        ("numpy_dtypes", ctypes.c_uint32 * _DTYPE_COUNT),  # DLDataType by NumPy's type number; 0: none
        ("exchanges", ctypes.c_void_p * (3 * (MAX_EXCHANGES + 1))),  # type, function, name of an attribute; ends with 0
    )


table = _Table()

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@once
def library() -> LoadedObject:
    """The code, linked into this process."""
    files = [Path(__file__).with_name(name) for name in ("entry.ll", "graph_entry.ll")]
    template, numbers = b"\n".join(file.read_bytes() for file in files), _numbers()
    _fill_table()
    llvm.add_symbol("oneir_entry_table", ctypes.addressof(table))
    # The text itself, which takes a while to expand, is made only when it must be compiled.
    state = f"{sorted(numbers.items())} {os.stat(__file__).st_mtime_ns}"
    return resident("the entry of compiled functions", lambda: _text(template.decode(), numbers), template, state)


def _fill_table() -> None:
    table.Tensor, table.Record = Tensor, Record
    table.c_void_p, table.OneIRError = ctypes.c_void_p, OneIRError
    if _array_layout_is_known():
        table.ndarray = np.ndarray
        table.new_array = _array_maker()
    for character in "?bBhHiIlLqQefd":
        dtype = np.dtype(character)
        code, bits, lanes = dlpack_dtype(dtype.name)
        table.numpy_dtypes[dtype.num] = code | bits << 8 | lanes << 16


def _array_maker() -> int | None:
    """The address of PyArray_NewFromDescr in the table that NumPy has for extensions, or None."""
    api = getattr(sys.modules.get("numpy._core._multiarray_umath"), "_ARRAY_API", None)
    if api is None:
        return None
    functions = (ctypes.c_void_p * 95).from_address(_capsule_pointer(api, None))
    return functions[94] if functions[2] == id(np.ndarray) else None


def _text(template: str, numbers: dict[str, int]) -> str:
    """entry.ll with its abbreviations and names expanded."""
    text = string.Template(template).substitute(numbers)
    text = re.sub(
        r"(%[\w.]+) = table (\w+)$",
        lambda m: (
            f"{m[1]} = load ptr, ptr getelementptr (i8, ptr @oneir_entry_table, i64 {getattr(_Table, m[2]).offset})"
        ),
        text,
        flags=re.MULTILINE,
    )
    lines = []
    for number, line in enumerate(text.splitlines()):
        place = re.fullmatch(r"( +(?:%[\w.]+ = load \w+|store \w+ \S+), )(%[\w.]+) \+ (\d+)", line)
        if place:
            lines.append(f"  %at.{number} = getelementptr i8, ptr {place[2]}, i64 {place[3]}")
            line = f"{place[1]}ptr %at.{number}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _numbers() -> dict[str, int]:
    """The values of the names in entry.ll and graph_entry.ll."""
    cell = ctypes.c_int64()
    sample = empty((0,))
    numbers = {
        "type_offset": _offset_of(id(object), object()),
        "data_offset": _offset_of(ctypes.addressof(cell), cell),
        "tensor_slot": _offset_of(id(sample._record), sample),
        "tensor_owner": _offset_of(id(sample._owner), sample),
        "tensor_layout": _offset_of(id(sample._layout), sample),
        "tensor_dtype_name": _offset_of(id(sample._dtype), sample),
        "tensor_device_object": _offset_of(id(sample._device), sample),
        "tensor_dtype": Record.dtype_code.offset,
        "record_size": ctypes.sizeof(Record),
        "alignment": ALIGNMENT,
        "below_alignment": ALIGNMENT - 1,
        "alignment_mask": -ALIGNMENT,
        "large_bytes": _LARGE_BYTES,
        "model_size": ctypes.sizeof(Model),
        "slot_shape": ctypes.sizeof(Record),
        "slot_strides": ctypes.sizeof(Record) + 8 * _FIXED_NDIM,
        "slot_size": ctypes.sizeof(Record) + 16 * _FIXED_NDIM,
        "fixed_count": _FIXED_COUNT,
        "fixed_values": _FIXED_COUNT + 2,  # so that three more pointers fit in place of the values
        "fixed_objects": _FIXED_OBJECTS,
        "fixed_ndim": _FIXED_NDIM,
        "dtype_count": _DTYPE_COUNT,
        "device_cpu": 1,
        "exception_code": int(Code.EXCEPTION),
        "foreign_order": ord(">" if sys.byteorder == "little" else "<"),
        "record_function": NativeFunction.function.offset,
        "record_context": NativeFunction.context.offset,
        "table_numpy_dtypes": _Table.numpy_dtypes.offset,
        "table_exchanges": _Table.exchanges.offset,
    }
    for kind, structure in (("model", Model), ("frame", Frame), ("graph", GraphFunction)):
        numbers |= {f"{kind}_{name}": getattr(structure, name).offset for name, *_ in structure._fields_}
    for name in ("data", "device_type", "device_id", "ndim", "shape", "strides", "byte_offset", "flags"):
        numbers[f"tensor_{name}"] = getattr(Record, name).offset
    return numbers | _array_numbers()


def _offset_of(word: int, obj: object) -> int:
    """The offset in a Python object of the field that holds the address `word`."""
    count = type(obj).__basicsize__ // 8
    return 8 * list((ctypes.c_uint64 * count).from_address(id(obj))).index(word)


def _array_numbers() -> dict[str, int]:
    """Offsets in PyArrayObject and PyArray_Descr, as NumPy's ndarraytypes.h declares them since release 1.7."""
    head = object.__basicsize__
    return {
        "array_data": head,
        "array_ndim": head + 8,
        "array_shape": head + 16,
        "array_strides": head + 24,
        "array_descr": head + 40,
        "array_flags": head + 48,
        "array_writeable": 0x0400,
        "descr_byteorder": head + 10,
        "descr_number": head + 12,
    }


def _array_layout_is_known() -> bool:
    """Whether the fields of an array are where `_array_numbers` says. If not, Python converts arrays (`slow`)."""
    at = _array_numbers()
    array = np.zeros((2, 3, 5), ">i2")[:, ::2]
    writeable = array.copy()
    array.flags.writeable = False

    def word(place: str, kind: type[ctypes._SimpleCData[int]] = ctypes.c_uint64, base: int = id(array)) -> int:
        return kind.from_address(base + at[place]).value

    descr = id(array.dtype)
    if word("array_descr") != descr or word("array_ndim", ctypes.c_int32) != array.ndim:
        return False
    extents = ctypes.c_int64 * array.ndim
    return (
        word("array_data") == array.__array_interface__["data"][0]
        and tuple(extents.from_address(word("array_shape"))) == array.shape
        and tuple(extents.from_address(word("array_strides"))) == array.strides
        and not word("array_flags", ctypes.c_int32) & at["array_writeable"]
        and bool(word("array_flags", ctypes.c_int32, id(writeable)) & at["array_writeable"])
        and word("descr_byteorder", ctypes.c_int8, descr) == ord(array.dtype.byteorder)
        and word("descr_number", ctypes.c_int32, descr) == array.dtype.num
    )
