"""Memory shared through DLPack, in both directions: values, flags, lifetimes, refusals."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
import torch

from oneir.runtime import from_dlpack, tensor
from oneir.runtime.dlpack import DLTensor, Managed, exchange_table
from oneir.runtime.error import InvalidValue, TypeMismatch

TORCH_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_torch_round_trip_shares_memory(dtype):
    source = torch.tensor([[0, 1, 2], [1, 0, 1]]).to(dtype)
    t = from_dlpack(source)
    assert f"torch.{t.dtype}" == str(dtype) and t.address == source.data_ptr() and t.shape == (2, 3)
    back = torch.from_dlpack(t)
    assert back.dtype == dtype and back.data_ptr() == source.data_ptr()
    assert t.numpy().astype("float32").tolist() == source.float().tolist()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64"])
def test_numpy_consumes_our_tensors(dtype):
    t = tensor(np.array([0, 1, 1]).astype(dtype))
    array = np.from_dlpack(t)
    assert array.dtype == np.dtype(dtype)
    array[0] = 1
    assert t.numpy().tolist() == [1, 1, 1]


def test_strided_zero_dimensional_and_empty_tensors():
    base = torch.arange(24).reshape(2, 3, 4)
    for source in (base.transpose(0, 2), base[:, 1:, ::2], base[0, 0, 0], base[:, :0]):
        t = from_dlpack(source)
        assert t.shape == tuple(source.shape)
        np.testing.assert_array_equal(t.numpy(), source.numpy())
        assert torch.equal(torch.from_dlpack(t), source)


def test_a_consumer_keeps_our_memory_alive():
    consumers = []
    for value in range(20):
        t = tensor(np.full(1000, value))
        consumers += [np.from_dlpack(t), torch.from_dlpack(t)]
        del t
    gc.collect()
    for index, consumer in enumerate(consumers):
        assert (consumer == index // 2).all()


def test_our_tensor_is_freed_when_the_last_consumer_is():
    t = tensor(np.zeros(10))
    gone = weakref.ref(t)
    consumers = [np.from_dlpack(t), torch.from_dlpack(t), t.__dlpack__(), t.__dlpack__(max_version=(1, 0))]
    del t
    while consumers:
        assert gone() is not None
        consumers.pop()
    assert gone() is None


def test_we_keep_a_producers_memory_alive_and_free_it_once():
    class Array(np.ndarray):
        """A subclass, so that weak references to it can be made."""

    for make in (lambda s: s.__dlpack__(), lambda s: s.__dlpack__(max_version=(1, 0)), lambda s: s):
        source = np.arange(5.0).view(Array)
        before = sys.getrefcount(source)
        capsule = make(source)
        t = from_dlpack(capsule)
        del capsule
        assert sys.getrefcount(source) > before
        gone = weakref.ref(source)
        del source
        assert t.numpy().tolist() == [0, 1, 2, 3, 4]
        del t
        assert gone() is None


def test_torch_memory_outlives_its_tensor():
    kept = [from_dlpack(torch.full((1000,), value)) for value in range(20)]
    gc.collect()
    assert [t.numpy().max() for t in kept] == list(range(20))


def test_read_only_is_kept_where_it_can_be_said():
    array = np.arange(3.0)
    array.flags.writeable = False
    t = from_dlpack(array)
    assert not np.from_dlpack(t).flags.writeable
    assert not from_dlpack(t).writable
    with pytest.raises(BufferError, match=r"only to a consumer that knows DLPack 1.0"):
        t.__dlpack__()


def test_items_below_a_byte_say_that_they_are_padded():
    t = tensor(np.array([1, 2, 3], ml_dtypes.int4))
    again = from_dlpack(t)
    assert again.dtype == "int4" and again.numpy().tolist() == [1, 2, 3]
    with pytest.raises(BufferError, match=r"dtype int4 can be exported only to a consumer of DLPack 1.0"):
        t.__dlpack__()


def test_copies_and_devices_on_request():
    t = tensor(np.zeros(3))
    assert t.__dlpack_device__() == (1, 0)
    copied = np.from_dlpack(t, copy=True)
    copied[0] = 1
    assert t.numpy()[0] == 0
    with pytest.raises(BufferError, match=r"on cpu:0 cannot be exported to cuda:0"):
        t.__dlpack__(dl_device=(2, 0))


def test_tensors_that_require_gradients_are_refused_with_the_remedy():
    source = torch.ones(3, requires_grad=True)
    with pytest.raises(InvalidValue, match=r"requires a gradient.*pass tensor.detach\(\)"):
        from_dlpack(source)
    assert from_dlpack(source.detach()).numpy().tolist() == [1, 1, 1]


def test_what_a_producer_refuses_is_refused_with_its_words():
    with pytest.raises(InvalidValue, match=r"found a Tensor that cannot be exported: .*layout"):
        from_dlpack(torch.ones(2, 2).to_sparse())


def test_tensors_that_only_pretend_have_no_memory():
    class Pretender:
        """Says that it has three numbers, at address 0."""

        shape = (ctypes.c_int64 * 1)(3)
        managed = Managed(DLTensor(None, 1, 0, 1, 2, 32, 1, ctypes.addressof(shape), None, 0), None, None)

        def __dlpack__(self, **options):
            new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
                ("PyCapsule_New", ctypes.pythonapi)
            )
            return new(ctypes.addressof(self.managed), b"dltensor", None)

    with pytest.raises(InvalidValue, match=r"found a tensor that has no memory"):
        from_dlpack(Pretender())


def test_shared_memory_may_outlive_the_interpreter():
    script = """
import sys, numpy, torch
from oneir.runtime import tensor, from_dlpack
kept = [numpy.from_dlpack(tensor([1, 2])), torch.from_dlpack(tensor([1.0])), tensor([1]).__dlpack__()]
kept += [from_dlpack(numpy.ones(2)), from_dlpack(torch.ones(2)), torch.from_dlpack(from_dlpack(torch.ones(2)))]
sys.modules["kept"] = torch.kept = kept
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_capsule_is_taken_once():
    capsule = torch.ones(2).__dlpack__()
    from_dlpack(capsule)
    with pytest.raises(TypeMismatch, match=r"a DLPack capsule that nobody has taken yet, found <capsule"):
        from_dlpack(capsule)


def test_complex_tensors_are_refused():
    with pytest.raises(TypeMismatch, match=r"DLPack's dtype with code 5, 64 bits"):
        from_dlpack(torch.ones(2, dtype=torch.complex64))


def test_a_newer_major_version_is_refused():
    capsule = np.zeros(2).__dlpack__(max_version=(1, 0))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )(capsule, b"dltensor_versioned")
    major = ctypes.c_uint32.from_address(pointer)
    major.value = 2
    with pytest.raises(TypeMismatch, match=r"capsule of version 1, found 2\."):
        from_dlpack(capsule)
    major.value = 1


def test_a_producer_from_before_version_one_is_understood():
    class Old:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

    assert from_dlpack(Old(np.arange(3))).numpy().tolist() == [0, 1, 2]


def test_the_exchange_table_belongs_to_the_type():
    assert exchange_table(torch.Tensor) and not exchange_table(np.ndarray)


def test_what_memory_must_be_like():
    array = np.zeros((4, 4), "int32")
    assert from_dlpack(array.T, require_alignment=4).strides == (1, 4)
    assert from_dlpack(array, require_contiguous=True).shape == (4, 4)
    with pytest.raises(InvalidValue, match=r"without gaps, found the strides \(1, 4\)"):
        from_dlpack(array.T, require_contiguous=True)
    odd = np.zeros(16, "int8")[1:]
    with pytest.raises(InvalidValue, match="expected memory at a multiple of 2 bytes, found it at 0x"):
        from_dlpack(odd, require_alignment=2)
