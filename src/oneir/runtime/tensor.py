"""Tensors: the arrays that compiled programs read and write.

a = tensor(np.arange(6.0).reshape(2, 3))      # a copy, aligned
b = from_dlpack(torch_tensor)                 # the same memory
c = empty((2, 3), "bfloat16")
a.numpy(), np.from_dlpack(a), torch.from_dlpack(a)
"""

from __future__ import annotations

import ctypes
import functools
import html
import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from .device import Device, device
from .dlpack import READ_ONLY, SUBBYTE_PADDED, DLTensor, make_capsule, request_capsule, take_capsule
from .driver import driver_of, find_driver
from .dtype import dlpack_dtype, dtype_name, name_of_dlpack, numpy_dtype
from .error import DeviceError, InvalidValue, ShapeMismatch, TypeMismatch
from .object import Object

ALIGNMENT = 128
"""Bytes to which the memory of every tensor made here is aligned."""

Copy = Callable[["Tensor", np.dtype], "np.ndarray | None"]
"""Copies a tensor to an array; returns None for one that is on a device, strided, or large."""

_copy: Copy | None = None

_CPU = Device("cpu", 0)
# Memory of these devices can be read by the processor: CPU, pinned CUDA and ROCm memory, managed CUDA memory.
_HOST_TYPES = frozenset([1, 3, 11, 13])


class Record(DLTensor):
    """The DLTensor of a `Tensor`, and the flags of its packed value."""

    _fields_ = (("flags", ctypes.c_int32),)


def copy_arrays_with(copy: Copy | None) -> None:
    """Sets the machine code that copies simple tensors to arrays."""
    global _copy
    _copy = copy


class TensorMemory:
    """The array interface of a tensor's memory; arrays over it keep the tensor alive."""

    __slots__ = ("__array_interface__", "tensor")


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in items, of a row-major tensor without gaps."""
    strides = []
    stride = 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


class _Layout:
    """A shape and strides as tuples, and as the arrays that a DLTensor points to; shared, and so never written."""

    __slots__ = ("extents", "shape", "shape_address", "strides", "strides_address")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.shape = shape
        self.strides = strides
        self.extents = (ctypes.c_int64 * (2 * len(shape)))(*shape, *strides)
        self.shape_address = ctypes.addressof(self.extents)
        self.strides_address = self.shape_address + 8 * len(shape)


@functools.lru_cache(maxsize=1024)
def _layout(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> _Layout:
    return _Layout(shape, compact_strides(shape) if strides is None else strides)


class Tensor(Object):
    """A dense array of one dtype on one device. Made by `tensor`, `empty` and `from_dlpack`."""

    # The entry of compiled functions finds `_record` by its offset: see entry_code.py.
    __slots__ = ("__weakref__", "_device", "_dtype", "_layout", "_owner", "_record")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: str,
        *,
        owner: object,
        device: Device = _CPU,
        strides: tuple[int, ...] | None = None,
        read_only: bool = False,
        byte_offset: int = 0,
    ) -> None:
        """A tensor over memory that exists already and lives as long as `owner`. Strides count items."""
        layout = _layout(shape, strides)
        self._record = Record(
            address,
            device.device_type,
            device.device_id,
            len(shape),
            *dlpack_dtype(dtype),
            layout.shape_address,
            layout.strides_address,
            byte_offset,
            READ_ONLY if read_only else 0,
        )
        self._layout = layout
        self._owner = owner
        self._dtype = dtype
        self._device = device

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the dimensions."""
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances between neighbours along each dimension, in items."""
        return self._layout.strides

    @property
    def dtype(self) -> str:
        """The name of the dtype, such as `float32`."""
        return self._dtype

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._layout.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self._layout.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the items take, without gaps between them."""
        return self.size * numpy_dtype(self._dtype).itemsize

    @property
    def address(self) -> int:
        """The address (or handle, on a device that has handles) of the first item; 0 if there is no memory."""
        return (self._record.data or 0) + self._record.byte_offset

    @property
    def byte_offset(self) -> int:
        """The bytes from the beginning of the memory to the first item."""
        return self._record.byte_offset

    @property
    def writable(self) -> bool:
        """Whether the memory may be written."""
        return not self._record.flags & READ_ONLY

    def is_contiguous(self) -> bool:
        """Whether the items lie in row-major order without gaps."""
        if 0 in self._layout.shape:
            return True
        expected = 1
        for extent, stride in zip(reversed(self._layout.shape), reversed(self._layout.strides), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True

    def same_as(self, other: object) -> bool:
        """Whether `other` is this very tensor."""
        return self is other

    def numpy(self) -> np.ndarray:
        """A copy of the values as a NumPy array; ml_dtypes has the dtypes that NumPy lacks, lanes are one more axis.

        Waits for the device that has them.
        """
        if self._device.device_type not in _HOST_TYPES:
            return _from_device(self)
        dtype = numpy_dtype(self._dtype)
        array = None if _copy is None or dtype.shape else _copy(self, dtype)
        return np.array(self._view()) if array is None else array

    asnumpy = numpy

    def _view(self) -> np.ndarray:
        """The memory itself as a NumPy array."""
        if self._device.device_type not in _HOST_TYPES:
            raise DeviceError(f"The memory of a tensor on {self._device} cannot be read from here; copy it to the CPU.")
        dtype = numpy_dtype(self._dtype)
        if not self.address:
            return np.empty(self._layout.shape, dtype)
        memory = TensorMemory()
        memory.tensor = self
        memory.__array_interface__ = {
            "version": 3,
            "data": (self.address, not self.writable),
            "shape": self._layout.shape,
            "strides": tuple(stride * dtype.itemsize for stride in self._layout.strides),
            "typestr": dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}",
        }
        array = np.asarray(memory)
        return array if dtype.isbuiltin == 1 else array.view(dtype)

    def copyto(self, target: Tensor | Device, mem_scope: str | None = None) -> Tensor:
        """Copy the values to `target`: a tensor of the same shape and dtype, or a device, on which one is made."""
        if isinstance(target, Device):
            target = empty(self._layout.shape, self._dtype, target, mem_scope)
        elif not isinstance(target, Tensor):
            raise TypeMismatch(f"copyto: expected a Tensor or a Device, found {type(target).__name__}.")
        if target.dtype != self._dtype:
            raise TypeMismatch(f"copyto: expected a target of dtype {self._dtype}, found {target.dtype}.")
        target.copyfrom(self)
        return target

    def copyfrom(self, source: object) -> Tensor:
        """Copy the values of an array of the same shape, converting them to the dtype of this tensor."""
        array = source._readable() if isinstance(source, Tensor) else as_array(source)
        shape = (*self._layout.shape, *numpy_dtype(self._dtype).shape)
        if array.shape != shape:
            raise ShapeMismatch(f"copyfrom: expected an array of shape {shape}, found {array.shape}.")
        if self._device.device_type in _HOST_TYPES:
            self._writable_view("copyfrom")[...] = array
        else:
            _to_device(array, self)
        return self

    def _readable(self) -> np.ndarray:
        """The memory itself where the processor can read it, else a copy of it."""
        return self._view() if self._device.device_type in _HOST_TYPES else _from_device(self)

    def _writable_view(self, what: str) -> np.ndarray:
        if not self.writable:
            raise InvalidValue(f"{what}: the memory of this tensor is read-only; copy it with tensor(x).")
        return self._view()

    def _create_view(
        self, shape: Sequence[int] | int, dtype: str | None = None, relative_byte_offset: int = 0
    ) -> Tensor:
        """The same memory, from `relative_byte_offset` on, seen with another shape and dtype; it must be large enough.

        Raises `ShapeMismatch` if it is not, or if this tensor is not contiguous.
        """
        shape = _checked_shape(shape)
        dtype = self._dtype if dtype is None else dtype_name(dtype)
        if not self.is_contiguous():
            raise ShapeMismatch(f"A view needs a contiguous tensor; this one has strides {self._layout.strides}.")
        end = relative_byte_offset + math.prod(shape) * numpy_dtype(dtype).itemsize
        if relative_byte_offset < 0 or end > self.nbytes:
            raise ShapeMismatch(
                f"A view of shape {shape} and dtype {dtype} would occupy bytes {relative_byte_offset} <= i_byte < "
                f"{end}, but the Tensor being viewed only contains {self.nbytes} bytes."
            )
        return Tensor(
            self._record.data or 0,
            shape,
            dtype,
            owner=self,
            device=self._device,
            read_only=not self.writable,
            byte_offset=self._record.byte_offset + relative_byte_offset,
        )

    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeMismatch("A tensor without dimensions has no length.")
        return self._layout.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """The part of the tensor that NumPy's indexing selects, sharing memory where NumPy's would; or one value."""
        part = self._view()[index]
        return wrap_array(part) if isinstance(part, np.ndarray) else part

    def __setitem__(self, index: Any, value: Any) -> None:
        self._writable_view("assignment")[index] = value._view() if isinstance(value, Tensor) else as_array(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = self._view()
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                raise InvalidValue(f"A tensor of dtype {self._dtype} cannot become {np.dtype(dtype)} without a copy.")
            return view.astype(dtype)
        return np.array(view) if copy else view

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device.device_type, self._device.device_id

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule that shares the memory. Raises `BufferError` for what DLPack cannot say, as it demands.

        `stream` is that in which the consumer reads a tensor of a device: it is made to wait for this thread's. None is
        the default one, -1 asks for no waiting. To the CPU (`dl_device`) the values are copied.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            if tuple(dl_device) != (_CPU.device_type, 0) or self._device.device_type in _HOST_TYPES or copy is False:
                raise BufferError(f"A tensor on {self._device} cannot be exported to {Device(*dl_device)}.")
            return tensor(self).__dlpack__(max_version=max_version)
        source = tensor(self, self._device) if copy else self
        if self._device.device_type not in _HOST_TYPES:
            self._show_to(stream)
        versioned = max_version is not None and max_version[0] >= 1
        if not versioned and not source.writable:
            raise BufferError("A read-only tensor can be exported only to a consumer that knows DLPack 1.0.")
        padded = source._record.dtype_bits < 8
        if padded and not versioned:
            raise BufferError(f"A tensor of dtype {self._dtype} can be exported only to a consumer of DLPack 1.0.")
        flags = (0 if source.writable else READ_ONLY) | (SUBBYTE_PADDED if padded else 0)
        return make_capsule(source, source._record, flags, versioned)

    def _show_to(self, stream: object) -> None:
        """Makes a stream of this tensor's device, as DLPack numbers it, wait for this thread's."""
        where = self._device
        driver = driver_of(where.device_type, where.device_id, str(where))
        if driver.not_shared:
            raise BufferError(
                f"A tensor on {where} cannot be exported: {driver.not_shared}. "
                'Copy it to the CPU: x.numpy(), or x.copyto(device("cpu"))'
            )
        if stream is not None and (not isinstance(stream, int) or stream < -1 or stream == 0):
            raise BufferError(f"Expected None, -1 or the number of a stream of {where}, found {stream!r}.")
        current = driver.current_stream(where.device_id)
        target = 0 if stream is None or stream == driver.default_stream else stream
        if target != -1 and target != current:
            driver.sync_streams(where.device_id, current, target)

    def __reduce__(self) -> tuple[object, ...]:
        return tensor, (self.numpy(),)

    def __str__(self) -> str:
        return str(self._readable())

    def _repr_html_(self) -> str:
        """Shape, dtype, device, and values, for notebooks; of many values, the first and the last."""
        about = f"{self._dtype}[{', '.join(map(str, self._layout.shape))}] on {self._device}"
        values = f"<pre>{html.escape(str(self))}</pre>" if self._device.device_type in _HOST_TYPES else ""
        return f"<b>Tensor</b> {html.escape(about)}{values}"

    def __repr__(self) -> str:
        text = f"Tensor(shape={self._layout.shape}, dtype={self._dtype}, device={self._device})"
        return f"{text}\n{self}" if self._device.device_type in _HOST_TYPES else text


NDArray = Tensor


class DeviceMemory:
    """Memory of a device that has a driver; given back when nothing refers to it any more."""

    __slots__ = ("_driver", "address", "device")

    def __init__(self, device: Device, nbytes: int) -> None:
        self._driver = driver_of(device.device_type, device.device_id, str(device))
        self.device = device
        self.address = self._driver.allocate(device.device_id, nbytes)

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address is not None:
            self._driver.release(self.device.device_id, address)


def _from_device(source: Tensor) -> np.ndarray:
    """The values of a tensor in a device's memory."""
    if not source.is_contiguous():
        raise DeviceError(
            f"A tensor on {source.device} with strides {source.strides} cannot be copied; make it compact."
        )
    array = np.empty(source.shape, numpy_dtype(source.dtype))
    where = source.device
    if array.nbytes:
        driver = driver_of(where.device_type, where.device_id, str(where))
        driver.copy(where.device_id, array.__array_interface__["data"][0], source.address, array.nbytes)
    return array


def _to_device(array: np.ndarray, target: Tensor) -> None:
    """Puts values into a device's memory."""
    if not target.writable or not target.is_contiguous():
        raise InvalidValue(f"copyfrom: a tensor on {target.device} must be writable and contiguous.")
    values = np.ascontiguousarray(array, numpy_dtype(target.dtype).base)
    where = target.device
    if values.nbytes:
        driver = driver_of(where.device_type, where.device_id, str(where))
        driver.copy(where.device_id, target.address, values.__array_interface__["data"][0], values.nbytes)


def empty(
    shape: Sequence[int] | int,
    dtype: object = "float32",
    device: Device | str | None = None,
    mem_scope: str | None = None,
) -> Tensor:
    """An uninitialized tensor, whose memory is aligned to `ALIGNMENT` bytes.

    Raises `TypeMismatch` for an unknown dtype or for no shape, `ShapeMismatch` for a negative extent, `DeviceError` if
    this process has no access to the device or `mem_scope` is not "global".
    """
    shape = _checked_shape(shape)
    dtype = dtype_name(dtype)
    where = _checked_device(device, mem_scope)
    nbytes = math.prod(shape) * numpy_dtype(dtype).itemsize
    if where.device_type not in _HOST_TYPES:
        memory = DeviceMemory(where, nbytes)
        return Tensor(memory.address, shape, dtype, owner=memory, device=where)
    # malloc's alignment is too small, so the tensor begins inside of the block.
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = block.__array_interface__["data"][0]
    return Tensor(-(-start // ALIGNMENT) * ALIGNMENT, shape, dtype, owner=block, device=where)


def tensor(arr: object, device: Device | str | None = None, mem_scope: str | None = None) -> Tensor:
    """A new tensor with the values, shape and dtype of `arr`: an array or tensor of any library, a list, a number.

    Raises `TypeMismatch` for what is no array of a known dtype, and as `empty` does for the device.
    """
    array = arr._readable() if isinstance(arr, Tensor) else as_array(arr)
    return empty(array.shape, dtype_name(array.dtype), device, mem_scope).copyfrom(array)


def compact(source: Tensor) -> Tensor:
    """The tensor itself if its items lie in row-major order without gaps, else a copy in which they do."""
    return source if source.is_contiguous() else tensor(source)


def from_dlpack(ext_tensor: object, *, require_alignment: int = 0, require_contiguous: bool = False) -> Tensor:
    """A tensor that shares the memory of `ext_tensor`, an array of any library that speaks DLPack, or a DLPack capsule.

    Raises `TypeMismatch` for anything else, `InvalidValue` for memory that cannot be shared, whose address is no
    multiple of `require_alignment` bytes, or that has gaps or another order than row-major and should not.
    """
    found = _shared(ext_tensor)
    if require_alignment and found.address % require_alignment:
        raise InvalidValue(
            f"expected memory at a multiple of {require_alignment} bytes, found it at {found.address:#x}"
        )
    if require_contiguous and not found.is_contiguous():
        raise InvalidValue(f"expected items in row-major order without gaps, found the strides {found.strides}")
    return found


def _shared(ext_tensor: object) -> Tensor:
    if isinstance(ext_tensor, np.ndarray):
        return wrap_array(ext_tensor)  # which knows more dtypes than NumPy's DLPack does
    capsule = ext_tensor if type(ext_tensor).__name__ == "PyCapsule" else request_capsule(ext_tensor)
    address, read_only, loan = take_capsule(capsule)
    where = DLTensor.from_address(address)
    driver = find_driver(where.device_type)
    if driver is not None and driver.not_shared:
        raise InvalidValue(
            f"found a tensor on {Device(where.device_type, where.device_id)} whose memory cannot be shared: "
            f"{driver.not_shared}; copy it through the CPU"
        )
    return borrow(address, owner=loan, read_only=read_only)


def borrow(address: int, *, owner: object, read_only: bool) -> Tensor:
    """A tensor over the memory of the DLTensor at `address`, which lives as long as `owner`.

    Raises `InvalidValue` if there are items and no memory, `TypeMismatch` for a dtype that tensors cannot have.
    """
    described = DLTensor.from_address(address)
    ndim = described.ndim
    shape = tuple((ctypes.c_int64 * ndim).from_address(described.shape)) if ndim else ()
    strides = tuple((ctypes.c_int64 * ndim).from_address(described.strides)) if ndim and described.strides else None
    if not described.data and 0 not in shape:
        raise InvalidValue("found a tensor that has no memory")
    return Tensor(
        described.data or 0,
        shape,
        name_of_dlpack(described.dtype_code, described.dtype_bits, described.dtype_lanes),
        owner=owner,
        device=Device(described.device_type, described.device_id),
        strides=strides,
        read_only=read_only,
        byte_offset=described.byte_offset,
    )


def wrap_array(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of a NumPy array.

    Raises `TypeMismatch` for a dtype that tensors cannot have, `InvalidValue` for a foreign byte order or odd strides.
    """
    dtype = dtype_name(array.dtype)
    if not array.dtype.isnative:
        raise InvalidValue(f"found an array of foreign byte order; convert it with .astype({dtype!r})")
    itemsize = array.dtype.itemsize
    if any(stride % itemsize for stride in array.strides):
        raise InvalidValue(
            f"found an array whose strides, {array.strides} bytes, are no multiples of its items' {itemsize} bytes; "
            "copy it with numpy.ascontiguousarray"
        )
    return Tensor(
        array.__array_interface__["data"][0],
        array.shape,
        dtype,
        owner=array,
        strides=tuple(stride // itemsize for stride in array.strides),
        read_only=not array.flags.writeable,
    )


def as_array(value: object) -> np.ndarray:
    """`value` as a NumPy array, sharing memory where that is possible."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return from_dlpack(value)._view()
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeMismatch(
            f"Expected numbers, or lists of numbers of one shape, to make a tensor of; found {value!r:.80}."
        )
    return array


def _checked_shape(shape: Sequence[int] | SupportsIndex) -> tuple[int, ...]:
    try:
        extents = tuple(int(e.__index__()) for e in (shape if isinstance(shape, Sequence) else (shape,)))
    except (AttributeError, TypeError):
        raise TypeMismatch(f"Expected a shape, such as (2, 3), found {shape!r}.") from None
    if any(extent < 0 for extent in extents):
        raise ShapeMismatch(f"Expected a shape without negative extents, found {extents}.")
    return extents


def _checked_device(where: Device | str | None, mem_scope: str | None) -> Device:
    chosen = _CPU if where is None else device(where)
    if chosen.device_type not in _HOST_TYPES:
        driver_of(chosen.device_type, chosen.device_id, str(chosen))
    elif not chosen.exist:
        raise DeviceError(f"No tensor can be made on {chosen}: this process has no access to that device.")
    if mem_scope not in (None, "global"):
        raise DeviceError(f"{chosen} has no memory of the scope {mem_scope!r}; expected 'global'.")
    return chosen
