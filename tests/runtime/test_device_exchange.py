"""DLPack of device memory: whose stream waits for whose, and what cannot be shared."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_stub import Stub, needs_stub, stubbed
from devices import needs_opencl

import oneir
from oneir.runtime.dlpack import DLTensor, Managed
from oneir.runtime.driver import find_driver
from oneir.runtime.error import InvalidValue
from oneir.runtime.tensor import from_dlpack

VALUES = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stubbed() as found:
        yield found


class Producer:
    """Another library's array, which notes the stream for which it is asked."""

    def __init__(self, tensor: Any, version: bool) -> None:
        self.tensor, self.version, self.streams = tensor, version, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        if "max_version" in options and not self.version:
            raise TypeError("max_version is not known")
        self.streams.append(options.get("stream"))
        return self.tensor.__dlpack__(stream=-1)


@needs_stub
@pytest.mark.parametrize("version", [True, False])
def test_a_producer_is_asked_for_this_threads_stream(stub, version):
    device = oneir.cuda(1)
    producer = Producer(oneir.runtime.tensor(VALUES, device), version)
    shared = from_dlpack(producer)
    assert shared.device == device and shared.address == producer.tensor.address
    np.testing.assert_array_equal(shared.numpy(), VALUES)
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    from_dlpack(producer)
    device.set_raw_stream(0)
    assert producer.streams == [1, stream]  # 1 is the default stream
    device.free_raw_stream(stream)


def seen(tensor):
    """The memory as it is: the stub's is the host's."""
    return np.ctypeslib.as_array((ctypes.c_float * 6).from_address(tensor.address)).reshape(2, 3)


@needs_stub
@pytest.mark.parametrize("which", ["none", "default", "other", "own", "no waiting"])
def test_a_consumers_stream_waits(stub, which):
    """A copy into `y` waits in this thread's stream; the consumer sees it if its own stream waits for that."""
    device, x = oneir.cuda(), oneir.runtime.tensor(VALUES, oneir.cuda())
    mine, other = device.create_raw_stream(), device.create_raw_stream()
    y = oneir.runtime.empty((2, 3), "float32", device)
    device.set_raw_stream(mine)
    with find_driver(2).inside(0):
        stub.library.cuMemcpyAsync(*map(ctypes.c_uint64, (y.address, x.address, 24)), ctypes.c_void_p(mine))
    y.__dlpack__(stream={"none": None, "default": 1, "other": other, "own": mine, "no waiting": -1}[which])
    device.sync({"none": 0, "default": 0, "other": other, "own": other, "no waiting": other}[which])
    assert (seen(y) == VALUES).all() == (which in ("none", "default", "other"))
    device.sync(mine)
    np.testing.assert_array_equal(seen(y), VALUES)
    device.set_raw_stream(0)
    for stream in (mine, other):
        device.free_raw_stream(stream)


@needs_stub
@pytest.mark.parametrize("stream", [0, -2, "1"])
def test_streams_that_are_none(stub, stream):
    with pytest.raises(BufferError, match="Expected None, -1 or the number of a stream of cuda:0, found"):
        oneir.runtime.tensor(VALUES, oneir.cuda()).__dlpack__(stream=stream)


@needs_stub
def test_to_the_processor_values_are_copied(stub):
    x = oneir.runtime.tensor(VALUES, oneir.cuda())
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), VALUES)
    with pytest.raises(BufferError, match="A tensor on cuda:0 cannot be exported to cpu:0"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="A tensor on cuda:0 cannot be exported to cuda:1"):
        x.__dlpack__(dl_device=(2, 1))


@needs_opencl
def test_memory_of_opencl_is_not_shared():
    x = oneir.runtime.tensor(VALUES, oneir.opencl())
    with pytest.raises(
        BufferError, match=r"A tensor on opencl:0 cannot be exported: DLPack means cl_mem objects there"
    ):
        x.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), VALUES)


@needs_opencl
def test_memory_of_anothers_opencl_is_not_taken():
    capsule = oneir.runtime.tensor(VALUES).__dlpack__()
    new = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    where = new(capsule, b"dltensor") + Managed.tensor.offset + DLTensor.device_type.offset
    ctypes.c_int32.from_address(where).value = 4
    with pytest.raises(InvalidValue, match=r"found a tensor on opencl:0 whose memory cannot be shared: DLPack means"):
        from_dlpack(capsule)
