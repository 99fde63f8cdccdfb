"""The comparison of arguments with what is expected of tensors, in machine code and in C, against NumPy's own view."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess

import numpy as np
import pytest

from oneir.codegen.c_source.host_c import C
from oneir.codegen.llvm.writer import ModuleText, Processor
from oneir.codegen.tensor_check import ExpectedTensor
from oneir.runtime.llvm import compile_ir, link
from oneir.runtime.packed import READ_ONLY, Code, Failure, Value
from oneir.runtime.tensor import Record

FLOAT32 = 2 | 32 << 8 | 1 << 16
ERRORS = ["a tensor$", "dtype", "a tensor on", "read-only", "shape", "row-major", "no memory", "aligned"]
"""Patterns in the messages of the eight errors, each in one of them."""


def machine_code(pointer_bytes: int) -> str:
    """A module with a function `check` that is the comparison, for machines with such pointers."""
    module = ModuleText(Processor(pointer_bytes))
    name = module.tensor_check()
    module.functions.append(
        f"""define i32 @check(ptr %v, ptr %e, ptr %f, ptr %r) optnone noinline {{
  %status = call i32 {name}(ptr %v, ptr %e, ptr %f, ptr %r)
  ret i32 %status
}}"""
    )
    return module.text()


@pytest.fixture(scope="module", params=["machine code", "C"])
def check(request, tmp_path_factory):
    """`check(value, expected)`: None, or which of the errors of `expected` it is."""
    if request.param == "C":
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("there is no C compiler")
        folder = tmp_path_factory.mktemp("check")
        entry = "int32_t check(void* v, void* e, void* f, void* r) { return oneir_check_tensor(v, e, f, r); }"
        (folder / "check.c").write_text(f"{C.header}{entry}\n")
        command = [compiler, "-std=c99", "-shared", "-fPIC", "-o", folder / "check.so", folder / "check.c", "-lm"]
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(folder / "check.so"))
        native = loaded.check
    else:
        loaded = link(compile_ir(machine_code(8), name="check"))
        native = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(loaded.symbol("check"))

    def compare(value: Value, expected: ExpectedTensor, owner: object = loaded) -> int | None:
        numbers = expected.numbers()
        failures = (Failure * 8)(*[Failure(kind.encode(), text.encode()) for kind, text in expected.errors()])
        result = Value()
        pointers = [ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in (value, failures, result)]
        status = native(pointers[0], (ctypes.c_int64 * len(numbers))(*numbers), pointers[1], pointers[2])
        if status == 0:
            assert result.code == 0
            return None
        assert (status, result.code) == (-1, Code.FAILURE)
        message = Failure.from_address(result.p).message.decode()
        assert message.startswith("f: argument 0 `x`: ")
        (which,) = [i for i, pattern in enumerate(ERRORS) if re.search(pattern, message)]
        return which

    return compare


def expected(**changes) -> ExpectedTensor:
    return ExpectedTensor("f: argument 0 `x`", "shape (4, 6)", FLOAT32, 1, -1, 0, 4, 1, (4, 6))._replace(**changes)


def described(array: np.ndarray, **fields) -> tuple[Value, list[object]]:
    """An array as a packed value, with changed fields of the value or of the tensor; and what keeps its memory."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    code, flags = fields.pop("code", Code.TENSOR), fields.pop("flags", 0)
    record = Record()
    values = {"data": array.ctypes.data, "device_type": 1, "device_id": 0, "ndim": array.ndim, "byte_offset": 0}
    values |= {"shape": ctypes.addressof(shape), "strides": ctypes.addressof(strides)}
    for name, field in (values | fields).items():
        setattr(record, name, field)
    ctypes.c_uint32.from_address(ctypes.addressof(record) + Record.dtype_code.offset).value = FLOAT32
    value = Value(int(code), flags)
    value.p = ctypes.addressof(record)
    return value, [array, shape, strides, record]


ARRAY = np.zeros((4, 6), "float32")


@pytest.mark.parametrize(
    ("fields", "changes", "error"),
    [
        ({}, {}, None),
        ({"code": Code.INT}, {}, 0),
        ({"code": Code.NONE}, {}, 0),
        ({}, {"dtype": 1 | 32 << 8 | 1 << 16}, 1),
        ({}, {"dtype": 2 | 32 << 8 | 4 << 16}, 1),
        ({"device_type": 2}, {}, 2),
        ({"device_type": 2}, {"device_type": 2}, None),
        ({"device_id": 3}, {}, None),
        ({"device_id": 3}, {"device_id": 2}, 2),
        ({"device_id": 3}, {"device_id": 3}, None),
        ({"flags": READ_ONLY}, {}, None),
        ({"flags": READ_ONLY}, {"forbidden": READ_ONLY}, 3),
        ({"flags": 2}, {"forbidden": READ_ONLY}, None),
        ({}, {"extents": (4,)}, 4),
        ({}, {"extents": (4, 6, 1)}, 4),
        ({"ndim": -1}, {}, 4),
        ({}, {"extents": (4, 5)}, 4),
        ({}, {"extents": (5, 6)}, 4),
        ({}, {"extents": (-1, 6)}, None),
        ({}, {"extents": (-1, -1)}, None),
        ({"data": None}, {}, 6),
        ({"strides": None}, {}, None),
        ({"byte_offset": 2}, {}, 7),
        ({"byte_offset": 2}, {"alignment": 2}, None),
        ({"byte_offset": 1 << 20}, {}, None),
    ],
)
def test_each_property_alone(check, fields, changes, error):
    value, kept = described(ARRAY, **fields)
    assert check(value, expected(**changes)) == error
    assert kept


def test_no_dimensions(check):
    value, kept = described(np.zeros((), "float32"))
    assert check(value, expected(extents=())) is None
    assert check(value, expected(extents=(-1,))) == 4
    assert kept


def test_no_elements_need_no_memory_order_or_alignment(check):
    value, kept = described(np.zeros((4, 0), "float32"), data=None, byte_offset=1)
    assert check(value, expected(extents=(4, 0))) is None
    assert check(value, expected(extents=(4, 1))) == 4
    assert kept


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 1, 4), (1, 1, 1)])
@pytest.mark.parametrize("step", [slice(None), slice(None, None, 2), slice(None, None, -1)])
def test_row_major_is_what_numpy_says(check, axes, shape, step):
    array = np.zeros(shape, "float32").transpose(axes)[:, step]
    value, kept = described(array)
    any_extents = expected(extents=(-1, -1, -1))
    assert check(value, any_extents) == (None if array.flags.c_contiguous else 5)
    assert check(value, any_extents._replace(compact=0)) is None
    assert kept


def test_machines_with_pointers_of_4_bytes_compile_it():
    assert compile_ir(machine_code(4), name="check", triple="armv7-unknown-linux-gnueabihf")
