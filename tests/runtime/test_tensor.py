"""Tensors against NumPy: construction, values, copies, views, printing, and what they refuse."""

from __future__ import annotations

import copy
import gc
import pickle
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import oneir.nd
from oneir.runtime import NDArray, Tensor, cpu, empty, from_dlpack, metal, tensor
from oneir.runtime.entry import make_entry
from oneir.runtime.error import DeviceError, InvalidValue, OneIRError, ShapeMismatch, TypeMismatch
from oneir.runtime.signature import Signature
from oneir.runtime.tensor import copy_arrays_with

tensor_module = sys.modules[Tensor.__module__]


@pytest.fixture(scope="module", autouse=True, params=["Python", "machine code"])
def copies(request):
    """Arrays are made in Python until there is machine code; all must hold in both ways."""
    make_entry(0, Signature("f", ()), None)
    native = tensor_module._copy
    assert native is not None
    copy_arrays_with(native if request.param == "machine code" else None)
    yield
    copy_arrays_with(native)


NUMPY_DTYPES = ["bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)), "float16", "float32", "float64"]
ML_DTYPES = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3",
    "float8_e3m4",
    "float8_e8m0fnu",
    "int4",
    "uint4",
    "float4_e2m1fn",
]


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if name in ML_DTYPES else name)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES + ML_DTYPES)
def test_values_and_dtype_survive_a_round_trip(dtype):
    source = np.array([[0, 1, 2], [1, 0, 1]]).astype(numpy_dtype(dtype))
    t = tensor(source)
    assert t.dtype == dtype and t.shape == (2, 3) and t.ndim == 2 and t.size == 6 and t.strides == (3, 1)
    back = t.numpy()
    assert back.dtype == source.dtype
    assert back.tobytes() == source.tobytes()


@pytest.mark.parametrize("count", [3, (1 << 18) + 1])
def test_arrays_are_copies(count):
    t = tensor(np.arange(count, dtype="float32"))
    part = t[1:]
    array = t.numpy()
    array[0] = 7
    assert array.flags.owndata and array.flags.writeable and array.flags.c_contiguous
    assert t.numpy()[0] == 0 and part.numpy()[0] == 1 and t._create_view((2,), "int16", 4).numpy()[1] == 16256
    np.testing.assert_array_equal(t[::2].numpy(), np.arange(0, count, 2, dtype="float32"))


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)), st.data())
def test_any_basic_view_of_an_array_becomes_an_equal_tensor(array, data):
    view = array[data.draw(hnp.basic_indices(array.shape))] if array.ndim else array
    for t in (tensor(view), from_dlpack(np.asarray(view))):
        assert t.shape == np.shape(view)
        np.testing.assert_array_equal(t.numpy(), view)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7, 5)])
def test_memory_is_aligned_and_compact(shape):
    t = empty(shape, "float64")
    assert t.address % 64 == 0
    assert t.numpy().shape == shape and t.is_contiguous()
    assert t.strides == tuple(s // 8 for s in np.zeros(shape).strides) or 0 in shape


@pytest.mark.parametrize(
    "value", [3, 2.5, True, [1, 2], [[1.0], [2.0]], np.float16(2), (1, 2, 3), range(4)], ids=lambda v: repr(v)
)
def test_tensor_of_numbers_and_lists_takes_numpys_dtype(value):
    expected = np.array(value)
    t = tensor(value)
    assert t.dtype == expected.dtype.name
    np.testing.assert_array_equal(t.numpy(), expected)


def test_tensor_copies_and_from_dlpack_shares():
    array = np.arange(4.0)
    copied, shared = tensor(array), from_dlpack(array)
    array[0] = 9
    assert copied.numpy()[0] == 0 and shared.numpy()[0] == 9
    assert tensor(copied).address != copied.address


def test_numpy_is_a_copy_and_asarray_is_not():
    t = tensor(np.zeros(3))
    t.numpy()[0] = 5
    assert t.numpy()[0] == 0
    np.asarray(t)[0] = 5
    assert t.numpy()[0] == 5
    assert np.asarray(t, dtype="float32").dtype == np.float32
    assert not np.shares_memory(np.array(t, copy=True), np.asarray(t))
    with pytest.raises(ValueError, match=r"cannot become float32 without a copy"):
        np.asarray(t, dtype="float32", copy=False)


def test_arrays_keep_the_memory_of_a_tensor_alive():
    views = []
    for value in range(20):
        t = tensor(np.full(1000, value))
        views.append(np.asarray(t))
        del t
    gc.collect()
    for value, view in enumerate(views):
        assert (view == value).all()


def test_foreign_byte_order_is_converted_when_copying_and_refused_when_sharing():
    array = np.arange(3, dtype=">i4")
    np.testing.assert_array_equal(tensor(array).numpy(), [0, 1, 2])
    with pytest.raises(InvalidValue, match=r"foreign byte order; convert it with .astype\('int32'\)"):
        from_dlpack(array)


def test_strides_that_are_no_multiple_of_the_item_are_refused_when_sharing():
    packed = np.zeros(4, dtype=[("tag", "u1"), ("value", "f4")])
    np.testing.assert_array_equal(tensor(packed["value"]).numpy(), np.zeros(4, "f4"))
    with pytest.raises(InvalidValue, match=r"no multiples of its items' 4 bytes; copy it with numpy.ascontiguousarray"):
        from_dlpack(packed["value"])


@pytest.mark.parametrize("source", [np.zeros(2, "complex64"), np.array(["a"]), np.zeros(2, "M8[s]")])
def test_dtypes_that_are_no_numbers_are_refused(source):
    with pytest.raises(TypeError, match=r"dtype '.*' is not supported"):
        tensor(source)


def test_ragged_and_foreign_objects_are_refused():
    with pytest.raises(TypeMismatch, match=r"to make a tensor of; found <object"):
        tensor(object())
    with pytest.raises(TypeMismatch, match=r"cannot be exchanged through DLPack: it has no __dlpack__"):
        from_dlpack([1, 2])


@pytest.mark.parametrize(
    ("shape", "kind", "message"),
    [
        ((2, -1), ShapeMismatch, r"without negative extents, found \(2, -1\)"),
        ((2, 0.5), TypeMismatch, r"Expected a shape, such as \(2, 3\), found \(2, 0.5\)"),
        ("ab", TypeMismatch, "Expected a shape"),
    ],
)
def test_bad_shapes_are_refused(shape, kind, message):
    with pytest.raises(kind, match=message):
        empty(shape)


@pytest.mark.parametrize("dtype", ["float31x", "flot32", "", "handle"])
def test_bad_dtypes_are_refused(dtype):
    with pytest.raises(TypeMismatch, match=rf"{dtype!r}"):
        empty((2,), dtype)


def test_empty_takes_dtypes_of_numpy_and_torch():
    assert [empty(2, d).dtype for d in (np.float32, np.dtype("int8"), torch.bfloat16, bool, ml_dtypes.bfloat16)] == [
        "float32",
        "int8",
        "bfloat16",
        "bool",
        "bfloat16",
    ]


def test_unreachable_devices_and_scopes_are_refused():
    with pytest.raises(DeviceError, match=r"metal:1 cannot be used: there is no driver for devices of this kind"):
        empty((2,), device=metal(1))
    with pytest.raises(DeviceError, match=r"cpu:0 has no memory of the scope 'texture'"):
        tensor([1], cpu(), "texture")
    on_gpu = Tensor(64, (2,), "float32", owner=None, device=metal())
    with pytest.raises(DeviceError, match=r"metal:0 cannot be used: there is no driver for devices of this kind"):
        on_gpu.numpy()
    with pytest.raises(DeviceError, match=r"on metal:0 cannot be read from here; copy it to the CPU"):
        on_gpu[0]
    assert repr(on_gpu) == "Tensor(shape=(2,), dtype=float32, device=metal:0)"


def test_copyto_and_copyfrom():
    a, b = tensor(np.arange(6.0).reshape(2, 3)), empty((2, 3), "float64")
    assert a.copyto(b) is b
    np.testing.assert_array_equal(b.numpy(), a.numpy())
    on_cpu = a.copyto(cpu())
    assert on_cpu.address != a.address and on_cpu.device == cpu(0)
    b.copyfrom([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(b.numpy(), [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(TypeMismatch, match=r"expected a target of dtype float64, found int8"):
        a.copyto(empty((2, 3), "int8"))
    with pytest.raises(ShapeMismatch, match=r"expected an array of shape \(2, 3\), found \(3, 2\)"):
        empty((3, 2), "float64").copyto(b)
    with pytest.raises(TypeMismatch, match=r"expected a Tensor or a Device, found ndarray"):
        a.copyto(np.zeros((2, 3)))


def test_indexing_reads_writes_and_shares():
    t = tensor(np.arange(6).reshape(2, 3))
    t[:] = np.ones((2, 3))
    t[1, 2] = 7
    t[0] = tensor([4, 5, 6])
    np.testing.assert_array_equal(t.numpy(), [[4, 5, 6], [1, 1, 7]])
    column = t[:, 1]
    assert isinstance(column, Tensor) and column.strides == (3,) and not column.is_contiguous()
    column[0] = 0
    assert t[0, 1] == 0 and len(t) == 2 and len(list(t)) == 2
    with pytest.raises(IndexError):
        t[2]
    with pytest.raises(TypeMismatch, match=r"without dimensions has no length"):
        len(tensor(1))


def test_read_only_memory_is_not_written():
    array = np.zeros(3)
    array.flags.writeable = False
    t = from_dlpack(array)
    assert not t.writable and not np.asarray(t).flags.writeable
    with pytest.raises(InvalidValue, match=r"assignment: the memory of this tensor is read-only"):
        t[:] = 1
    with pytest.raises(InvalidValue, match=r"copyfrom: the memory of this tensor is read-only"):
        t.copyfrom(np.ones(3))
    assert tensor(t).writable


def test_create_view_reinterprets_memory_within_its_bounds():
    t = tensor(np.arange(8, dtype="uint8"))
    np.testing.assert_array_equal(
        t._create_view((2, 2), "uint16").numpy(), np.arange(8, dtype="u1").view("u2").reshape(2, 2)
    )
    assert t._create_view((2,), "int8", 6).numpy().tolist() == [6, 7]
    with pytest.raises(ShapeMismatch, match=r"i_byte < 12, but the Tensor being viewed only contains 8 bytes"):
        t._create_view((3,), "float32")
    with pytest.raises(ShapeMismatch, match=r"needs a contiguous tensor"):
        t[::2]._create_view((4,))


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3) / 3, np.zeros((0, 2)), np.array(True), np.arange(2000)])
def test_str_is_numpys(array):
    assert str(tensor(array)) == str(array)


def test_repr_says_what_it_is():
    assert repr(tensor([1, 2])) == "Tensor(shape=(2,), dtype=int64, device=cpu:0)\n[1 2]"


def test_pickling_and_copying_keep_values_not_addresses():
    t = tensor(np.arange(3).astype(ml_dtypes.bfloat16))
    for other in (pickle.loads(pickle.dumps(t)), copy.copy(t), copy.deepcopy(t)):
        assert other.dtype == "bfloat16" and other.address != t.address
        np.testing.assert_array_equal(other.numpy(), t.numpy())


def test_tensors_compare_by_identity():
    t = tensor([1])
    assert t.same_as(t) and not t.same_as(tensor([1])) and len({t, tensor([1])}) == 2


def test_attributes_are_read_only_and_errors_share_a_base():
    with pytest.raises(AttributeError):
        tensor([1]).shape = (2,)
    assert all(issubclass(e, OneIRError) for e in (InvalidValue, ShapeMismatch, TypeMismatch, DeviceError))


def test_the_older_names():
    assert oneir.nd.array is tensor and oneir.nd.NDArray is NDArray is Tensor
    assert oneir.nd.array(np.zeros(2), device=oneir.nd.cpu()).shape == (2,)


def test_vectors_have_their_lanes_as_one_more_axis():
    values = np.arange(24, dtype="float32").reshape(2, 3, 4)
    vectors = empty((2, 3), "float32x4").copyfrom(values)
    assert (vectors.shape, vectors.dtype, vectors.nbytes) == ((2, 3), "float32x4", 96)
    np.testing.assert_array_equal(vectors.numpy(), values)
    np.testing.assert_array_equal(empty((2, 3), "float32x4").copyfrom(vectors).numpy(), values)
    with pytest.raises(ShapeMismatch, match=r"expected an array of shape \(2, 3, 4\), found \(2, 3\)"):
        vectors.copyfrom(np.zeros((2, 3), "float32"))
