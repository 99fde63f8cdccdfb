"""The native entry: what compiled code receives for each kind of argument, what becomes of its answers, and refusals.

The "compiled code" here is mostly a Python function behind a C function pointer, which reads the packed values with
ctypes definitions of its own.
"""

from __future__ import annotations

import array as arrays
import ctypes
import enum
import gc
import sys
import threading
import warnings
import weakref
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oneir.runtime import Tensor, empty, from_dlpack, tensor
from oneir.runtime.entry import make_entry
from oneir.runtime.entry_code import library, table
from oneir.runtime.error import (
    AssertionFailure,
    ExecutionError,
    InternalError,
    InvalidValue,
    OneIRError,
    ShapeMismatch,
    TypeMismatch,
)
from oneir.runtime.signature import Param, Signature


class Packed(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("flags", ctypes.c_int32), ("bits", ctypes.c_int64)]


class DL(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Seen(NamedTuple):
    """A tensor as native code saw it."""

    data: int
    dtype: tuple[int, int]
    shape: list[int]
    strides: list[int]
    read_only: bool


PackedFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Packed), ctypes.c_int32, ctypes.POINTER(Packed)
)


def native(body, *params, name="probe"):
    """A Python callable that runs `body(args, count, result)` behind the native entry."""
    function = PackedFunction(lambda context, args, count, result: body(args, count, result) or 0)
    address = ctypes.cast(function, ctypes.c_void_p).value
    return make_entry(address, Signature(name, tuple(params)), keep_alive=function)


def read(value: Packed):
    if value.code == 7:
        dl = DL.from_address(value.bits)
        assert (dl.device_type, dl.device_id, dl.byte_offset, dl.dtype[2], dl.dtype[3]) == (1, 0, 0, 1, 0)
        return Seen(
            dl.data or 0, tuple(dl.dtype[:2]), dl.shape[: dl.ndim], dl.strides[: dl.ndim], bool(value.flags & 1)
        )
    assert value.flags == 0
    if value.code == 3:
        return ctypes.c_double.from_buffer(value, 8).value
    if value.code == 8:
        return ctypes.string_at(value.bits)
    return {0: None, 1: value.bits, 2: bool(value.bits), 4: ctypes.c_void_p(value.bits)}[value.code]


def received(*arguments):
    """What native code receives for these arguments."""
    seen = []
    native(lambda args, count, result: seen.extend(read(args[i]) for i in range(count)))(*arguments)
    return seen


class Number(enum.IntEnum):
    SEVEN = 7


class Text(str):
    pass


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (None, None),
        (0, 0),
        (-1, -1),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (True, True),
        (False, False),
        (1.5, 1.5),
        ("grüß", "grüß".encode()),
        ("", b""),
        (Number.SEVEN, 7),
        (Text("abc"), b"abc"),
        (np.int8(-3), -3),
        (np.uint64(5), 5),
        (np.float32(0.5), 0.5),
        (np.float64(0.25), 0.25),
        (np.float16(2), 2.0),
        (ml_dtypes.bfloat16(3), 3.0),
        (ml_dtypes.int4(-3), -3),
        (np.bool_(True), True),
    ],
    ids=repr,
)
def test_numbers_and_text(argument, expected):
    (value,) = received(argument)
    assert value == expected and type(value) is type(expected)


def test_pointers():
    (value,) = received(ctypes.c_void_p(1234))
    assert value.value == 1234
    assert received(ctypes.c_void_p())[0].value is None


def check_seen(seen, source: np.ndarray, dtype):
    assert seen.dtype == dtype
    assert seen.shape == list(source.shape)
    assert seen.strides == [stride // source.itemsize for stride in source.strides]
    assert seen.data == source.__array_interface__["data"][0]
    assert seen.read_only == (not source.flags.writeable)


NUMPY = {
    "?": (6, 8),
    "b": (0, 8),
    "B": (1, 8),
    "h": (0, 16),
    "H": (1, 16),
    "i": (0, 32),
    "I": (1, 32),
    "l": (0, 64),
    "L": (1, 64),
    "q": (0, 64),
    "Q": (1, 64),
    "e": (2, 16),
    "f": (2, 32),
    "d": (2, 64),
}


@pytest.mark.parametrize(("dtype", "expected"), NUMPY.items())
def test_numpy_arrays_of_each_dtype(dtype, expected):
    source = np.zeros((2, 3), dtype)
    assert source.dtype.itemsize * 8 == expected[1]
    check_seen(received(source)[0], source, expected)


BASE = np.arange(120, dtype="i2").reshape(2, 3, 4, 5)
BASE_READ_ONLY = BASE.copy()
BASE_READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "view",
    [
        BASE.T,
        BASE[::-1, :, ::2],
        BASE[1, 2, 3, 4:5].reshape(()),
        BASE[:, :0],
        BASE_READ_ONLY,
        np.broadcast_to(BASE[0], (4, 3, 4, 5)),
        np.zeros((1,) * 8, "i2"),
        np.zeros((2,) * 9, "i2"),  # too many dimensions for the fast way
        BASE.view(np.recarray),  # a subclass
    ],
    ids=lambda v: f"{type(v).__name__}{v.shape}",
)
def test_numpy_arrays_of_any_layout(view):
    check_seen(received(view)[0], view, (0, 16))
    check_seen(received(from_dlpack(view))[0], view, (0, 16))


@pytest.mark.parametrize(("name", "code"), [("bfloat16", 4), ("float8_e4m3fn", 10), ("float8_e5m2", 12)])
def test_arrays_of_ml_dtypes(name, code):
    source = np.zeros((2, 3), getattr(ml_dtypes, name))
    check_seen(received(source)[0], source, (code, source.itemsize * 8))


def test_buffers():
    source = arrays.array("f", [1, 2, 3])
    for buffer, dtype in ((bytearray(4), (1, 8)), (memoryview(source), (2, 32)), (b"xyz", (1, 8))):
        check_seen(received(buffer)[0], np.asarray(memoryview(buffer)), dtype)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float32, (2, 32)), (torch.bfloat16, (4, 16)), (torch.bool, (6, 8)), (torch.int64, (0, 64))],
    ids=str,
)
def test_torch_tensors(dtype, expected):
    base = torch.zeros(4, 6, dtype=dtype)
    for source in (base, base.T, base[1:, ::2], base[0, 0], torch.nn.Parameter(base, requires_grad=False)):
        for _ in range(2):  # the first call of a type goes another way than those after it
            (seen,) = received(source)
            assert seen == Seen(source.data_ptr(), expected, list(source.shape), list(source.stride()), False)


def test_other_producers_of_dlpack():
    class Producer:
        array = np.arange(3.0)

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return 1, 0

    check_seen(received(Producer())[0], Producer.array, (2, 64))


def test_a_subclass_of_tensor():
    class Named(Tensor):
        pass

    source = np.arange(3.0)
    (seen,) = received(Named(source.ctypes.data, (3,), "float64", owner=source))
    check_seen(seen, source, (2, 64))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40, 300])
def test_any_number_of_arguments(count):
    sources = [np.full((i % 4,), i, "f4") for i in range(count)]
    mixed = [(s, from_dlpack(s), torch.from_numpy(s), i)[i % 4] for i, s in enumerate(sources)]
    for i, (seen, source) in enumerate(zip(received(*mixed), sources, strict=True)):
        if i % 4 == 3:
            assert seen == i
        else:
            assert seen.shape == [i % 4] and (seen.data == source.ctypes.data or not i % 4)


def answer(code, bits):
    def body(args, count, result):
        result[0].code, result[0].bits = code, bits

    return native(body)()


TEXT = ctypes.create_string_buffer("grün".encode())


@pytest.mark.parametrize(
    ("code", "bits", "expected"),
    [
        (0, 5, None),
        (1, -7, -7),
        (2, 1, True),
        (2, 0, False),
        (3, int.from_bytes(np.float64(1.5).tobytes(), "little"), 1.5),
        pytest.param(8, ctypes.addressof(TEXT), "grün", id="text"),
    ],
)
def test_results(code, bits, expected):
    result = answer(code, bits)
    assert result == expected and type(result) is type(expected)


def test_pointer_results():
    assert isinstance(answer(4, 99), ctypes.c_void_p) and answer(4, 99).value == 99


def test_results_that_do_not_exist():
    with pytest.raises(InternalError, match=r"`probe` returned a packed value with the code 7"):
        answer(7, 0)


class Failure(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_char_p), ("message", ctypes.c_char_p)]


def failing(kind: str, *params, message="native words"):
    failure = Failure(kind.encode(), message.encode())

    def body(args, count, result):
        result[0].code, result[0].bits = 64, ctypes.addressof(failure)
        return -1

    return native(body, *params, name="matmul")


@pytest.mark.parametrize(
    ("kind", "ours", "builtin"),
    [
        ("ValueError", InvalidValue, ValueError),
        ("TypeError", TypeMismatch, TypeError),
        ("AssertionError", AssertionFailure, AssertionError),
        ("RuntimeError", ExecutionError, RuntimeError),
        ("SomethingElse", ExecutionError, RuntimeError),
    ],
)
def test_failures_become_exceptions_of_their_kind(kind, ours, builtin):
    for raised in (ours, builtin, OneIRError):
        with pytest.raises(raised, match=r"(?m)^native words$"):
            failing(kind)()


MATRIX = Param("B", dtype="float32", shape=(128, "n"), alignment=4)
GOOD = np.zeros((128, 4), "float32")
LOCKED = np.zeros((128, 4), "float32")
LOCKED.flags.writeable = False
TORCH = torch.zeros(128, 4)


@pytest.mark.parametrize(
    ("params", "args", "kind", "message"),
    [
        ([MATRIX], [np.zeros((128, 4))], TypeMismatch,
         r"argument 0 `B` of `matmul`: expected dtype float32, found float64; convert it with \.astype\('float32'\)"),
        ([MATRIX], [TORCH.double()], TypeMismatch, r"found float64; convert it with \.to\(torch\.float32\)"),
        ([MATRIX], [empty((128, 4), "int8")], TypeMismatch,
         r"found int8; convert it with tensor\(numpy\.asarray\(x\)\.astype"),
        ([MATRIX, MATRIX], [GOOD, GOOD[:, :2].copy()], ShapeMismatch,
         r"argument 1 `B` of `matmul`: expected shape \(128, n\) with n = 4, found \(128, 2\)"),
        ([MATRIX], [GOOD[:64]], ShapeMismatch, r"expected shape \(128, n\) with n = 4, found \(64, 4\)"),
        ([MATRIX], [GOOD[0]], ShapeMismatch, r"expected 2 dimensions, shape \(128, n\), found 1, shape \(4,\)"),
        ([MATRIX], [np.zeros((4, 128), "f4").T], ShapeMismatch,
         r"expected a contiguous tensor with strides \(4, 1\), found strides \(1, 128\) \(in items\); copy it with "
         r"numpy\.ascontiguousarray"),
        ([MATRIX], [torch.zeros(4, 128).T], ShapeMismatch, r"copy it with its \.contiguous\(\)"),
        ([Param("A", shape=(2, "n"), strides=("s", 1))], [np.zeros((2, 6))[:, ::2]], ShapeMismatch,
         r"expected strides \(s, 1\) with s = 6 \(in items\), found \(6, 2\)"),
        ([Param("A", shape=("n",)), Param("C", shape=("n * 2 + 1",))], [np.zeros(3), np.zeros(6)], ShapeMismatch,
         r"argument 1 `C` of `matmul`: expected shape \(n \* 2 \+ 1,\) with n = 3, found \(6,\)"),
        ([Param("C", shape=("n * 2",)), Param("A", shape=("n",))], [np.zeros(6), np.zeros(4)], ShapeMismatch,
         r"argument 0 `C` of `matmul`: expected shape \(n \* 2,\) with n = 4, found \(6,\)"),
        ([Param("A", shape=("n",)), Param("n", "int", "int32")], [np.zeros(6), 4], ShapeMismatch,
         r"argument 0 `A` of `matmul`: expected shape \(n,\) with n = 4, found \(6,\)"),
        ([Param("n", "int", "int8")], [200], InvalidValue,
         "argument 0 `n` of `matmul`: expected a value of int8, from -128 to 127, found 200"),
        ([Param("C", writable=True)], [LOCKED], InvalidValue, "is written to, and the memory given is read-only"),
        ([Param("A", alignment=64)], [tensor(np.zeros(8))[1:]], InvalidValue, "expected memory aligned to 64 bytes"),
        ([Param("A", device_type=2)], [GOOD], RuntimeError, "expected a tensor on cuda, found one on cpu:0; copy it"),
        ([MATRIX], [3], TypeMismatch, "argument 0 `B` of `matmul`: expected a tensor, found int"),
        ([MATRIX], [None], TypeMismatch, "expected a tensor, found None"),
        ([Param("n", "int")], [2.5], TypeMismatch, "argument 0 `n` of `matmul`: expected an integer, found float"),
        ([Param("x", "float")], ["a"], TypeMismatch, "expected a number, found str"),
        ([Param("x", "bool")], [GOOD], TypeMismatch, "expected a bool, found ndarray"),
        ([MATRIX, Param("C"), Param("n", "int")], [GOOD], TypeMismatch,
         "`matmul` expects 3 arguments, found 1: missing `C`, `n`"),
        ([MATRIX], [GOOD, 1], TypeMismatch,
         r"`matmul` expects 1 argument, found 2; it is matmul\(B: float32\[128, n\]\)"),
    ],
)  # fmt: skip
def test_a_refused_call_is_explained(params, args, kind, message):
    with pytest.raises(kind, match=message) as caught:
        failing("ValueError", *params)(*args)
    assert isinstance(caught.value, OneIRError)


@pytest.mark.parametrize(
    ("params", "args"),
    [
        ([MATRIX, MATRIX], [GOOD, TORCH]),
        ([Param("A", shape=("n + unknown", "min(n, 3)"))], [GOOD]),  # cannot be judged
        ([Param("A", shape=("n", 4), strides=("s", 1))], [np.zeros((1, 8))[:, :4]]),
        ([Param("A"), Param("h", "handle"), Param("x", "float"), Param("b", "bool")], [TORCH.T, "any", 1, True]),
    ],
)
def test_native_words_stand_where_the_arguments_are_right(params, args):
    with pytest.raises(InvalidValue, match=r"(?m)^native words$"):
        failing("ValueError", *params)(*args)


@pytest.mark.parametrize(
    ("argument", "kind", "message"),
    [
        (2**63, InvalidValue, "expected an integer of 64 bits, found 9223372036854775808"),
        (-(2**63) - 1, InvalidValue, "expected an integer of 64 bits"),
        ([1, 2], TypeMismatch, "expected a tensor, a number, a string or None, found list; make an array of it"),
        (object(), TypeMismatch, "found object"),
        ("\ud800", InvalidValue, "expected text that UTF-8 can encode"),
        (
            "half\0lost",
            InvalidValue,
            r"expected text without zero characters, which would end it, found 'half\\x00lost'",
        ),
        (Text("\0"), InvalidValue, "expected text without zero characters"),
        (1j, TypeMismatch, "found complex"),
        (np.complex64(1), TypeMismatch, "dtype 'complex64' is not supported"),
        (np.zeros(2, complex), TypeMismatch, "dtype 'complex128' is not supported"),
        (np.zeros(2, ">f4"), InvalidValue, r"foreign byte order; convert it with \.astype\('float32'\)"),
        (np.zeros(2, "u1,f4")["f1"], InvalidValue, "no multiples of its items' 4 bytes"),
        (torch.ones(2, requires_grad=True), InvalidValue, r"requires a gradient.*pass tensor\.detach\(\)"),
        (torch.nn.Parameter(torch.ones(2)), InvalidValue, r"pass tensor\.detach\(\)"),
        (torch.ones(2, 2).to_sparse(), InvalidValue, "cannot be exported"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_unfit_arguments_are_named_before_native_code_runs(argument, kind, message):
    calls = []
    function = native(lambda args, count, result: calls.append(1), Param("A"), Param("B"))
    for _ in range(2):
        with pytest.raises(kind, match=rf"^argument 1 `B` of `probe`: .*{message}"):
            function(torch.ones(1), argument)
    assert not calls


def test_fake_tensors_are_refused():
    with FakeTensorMode():
        fake = torch.zeros(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about the same
        for _ in range(2):
            with pytest.raises(InvalidValue, match=r"argument 0 .*found a tensor that has no memory"):
                received(fake)
    assert received(torch.zeros(0))[0].shape == [0]


def test_numpy_arrays_go_the_fast_way():
    library()
    assert table.ndarray is np.ndarray


def test_no_grad_does_not_change_what_is_refused():
    with torch.no_grad(), pytest.raises(InvalidValue, match=r"requires a gradient"):
        received(torch.ones(2, requires_grad=True))


def test_references_are_neither_lost_nor_kept():
    arguments = [
        np.zeros(3),
        tensor(np.zeros(3)),
        torch.zeros(3),
        10**10,
        0.25,
        "text" * 3,
        np.float32(1),
        bytearray(2),
    ]

    class Big(np.ndarray):
        pass

    arguments.append(np.zeros(2).view(Big))
    good = native(lambda args, count, result: None)
    bad = failing("ValueError")
    unfit = [*arguments, object()]
    good(*arguments)
    before = [sys.getrefcount(a) for a in arguments]
    for _ in range(50):
        good(*arguments)
        for function, args in ((bad, arguments), (good, unfit)):
            with pytest.raises(OneIRError):
                function(*args)
    gc.collect()
    assert [sys.getrefcount(a) for a in arguments] == before


def test_the_function_keeps_alive_what_it_needs_and_no_longer():
    class Library:
        pass

    library = Library()
    gone = weakref.ref(library)
    address = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value
    function = make_entry(address, Signature("f", (Param("A", dtype="float32", shape=(2, "n")),)), library)
    del library
    gc.collect()
    assert gone() is not None
    assert function.__name__ == "f" and function.__doc__ == "f(A: float32[2, n])"
    del function
    gc.collect()
    assert gone() is None


def test_the_context_is_passed():
    contexts = []
    function = PackedFunction(lambda context, args, count, result: contexts.append(context) or 0)
    make_entry(ctypes.cast(function, ctypes.c_void_p).value, Signature("f", ()), function, context=77)()
    assert contexts == [77]


def test_keywords_are_refused():
    with pytest.raises(TypeError, match=r"takes no keyword arguments"):
        native(lambda args, count, result: None)(a=1)


def test_eight_threads_are_inside_of_native_code_at_once():
    together = threading.Barrier(8, timeout=30)
    function = native(lambda args, count, result: (together.wait(), None)[1])
    sources = [np.full(3, i) for i in range(8)]
    failures = []

    def work(source):
        try:
            for _ in range(5):
                function(source, torch.from_numpy(source), tensor(source))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
