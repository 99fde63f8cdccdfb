"""Convolutions by cuDNN, NVIDIA's library: `Convolution((1, 1), (0, 0), (1, 1))(data, weight, out, bias)`.

The library is called by ctypes. It computes in the stream that the thread has chosen, and returns at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ..runtime.cuda import Cuda
from ..runtime.driver import driver_of
from ..runtime.error import DeviceError, InvalidValue, ShapeMismatch, TypeMismatch, UnsupportedError
from ..runtime.once import new_lock, once
from ..runtime.tensor import DeviceMemory, Tensor
from .nvidia import find_library

MISSING = (
    "cuDNN is not installed: pip install nvidia-cudnn-cu13 or nvidia-cudnn-cu12, of the CUDA that the GPU's driver is "
    "for, or install cuDNN where the system finds libraries"
)
_VERSIONS = (9, 8)
_SUCCESS = 0
_TYPES = {"float32": 0, "float16": 2}
"""cudnnDataType_t of each dtype."""
_FLOAT = 0
"""The cudnnDataType_t of sums."""
_FORMATS = {"NCHW": 0, "NHWC": 1}
"""cudnnTensorFormat_t"""
_CROSS_CORRELATION = 1
"""cudnnConvolutionMode_t: the window is not flipped."""
_MATH = {"float32": 3, "float16": 1}
"""cudnnMathType_t: float32 by fused multiply-add, as its default rounds factors to TF32; float16 by tensor cores."""
_RELU, _NAN_IS_ZERO = 1, 0
"""cudnnActivationMode_t and cudnnNanPropagation_t; the call that fuses a relu has no other."""
_ALGORITHMS = 8
"""How many algorithms the library may propose: all that it has."""
_PLANS = 64
"""Of how many shapes a convolution remembers its descriptors."""
_ALIGNMENT = 16
DTYPES = tuple(_TYPES)
"""The dtypes of tensors."""

_pointer, _int = ctypes.c_void_p, ctypes.c_int32


class _Proposal(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t"""

    _fields_ = (
        ("algorithm", _int),
        ("status", _int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", _int),
        ("math", _int),
        ("reserved", _int * 3),
    )


_FUNCTIONS: dict[str, list[Any]] = {
    "cudnnCreate": [_pointer],
    "cudnnSetStream": [_pointer] * 2,
    **{
        f"cudnn{verb}{kind}Descriptor": [_pointer]
        for verb in ("Create", "Destroy")
        for kind in ("Tensor", "Filter", "Convolution", "Activation")
    },
    "cudnnSetTensor4dDescriptor": [_pointer, *[_int] * 6],
    "cudnnSetFilter4dDescriptor": [_pointer, *[_int] * 6],
    "cudnnSetConvolution2dDescriptor": [_pointer, *[_int] * 8],
    "cudnnSetConvolutionGroupCount": [_pointer, _int],
    "cudnnSetConvolutionMathType": [_pointer, _int],
    "cudnnSetActivationDescriptor": [_pointer, _int, _int, ctypes.c_double],
    "cudnnGetConvolutionForwardAlgorithm_v7": [*[_pointer] * 5, _int, _pointer, _pointer],
    "cudnnConvolutionForward": [*[_pointer] * 7, _int, _pointer, ctypes.c_size_t, *[_pointer] * 3],
    "cudnnConvolutionBiasActivationForward": [*[_pointer] * 7, _int, _pointer, ctypes.c_size_t, *[_pointer] * 8],
    "cudnnAddTensor": [_pointer] * 7,
    "cudnnGetErrorString": [_int],
}


@once
def _library() -> ctypes.CDLL | None:
    library = find_library("cudnn", _VERSIONS)
    return None if library is None else declared(library)


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library, which knows the types of its functions' arguments."""
    for name, arguments in _FUNCTIONS.items():
        getattr(library, name).argtypes = arguments
    library.cudnnGetErrorString.restype = ctypes.c_char_p
    return library


def exists() -> bool:
    """Whether the library is installed."""
    return _library() is not None


def _checked(library: ctypes.CDLL, code: int, what: str) -> None:
    if code != _SUCCESS:
        raise DeviceError(f"cuDNN, {what}: {(library.cudnnGetErrorString(code) or b'').decode()} ({code})")


_in_use = new_lock()
"""Held while handles and descriptors are used, which threads may not do at once."""
_handles: dict[int, int] = {}
"""The library's handle for each device, made in its context, under the lock."""


def _handle(library: ctypes.CDLL, device_id: int) -> int:
    if device_id not in _handles:
        handle = ctypes.c_void_p()
        _checked(library, library.cudnnCreate(ctypes.byref(handle)), "opening it")
        _handles[device_id] = handle.value or 0
    return _handles[device_id]


class _Plan:
    """The descriptors of a convolution of some shapes, and the algorithm for it; they go with the object."""

    def __init__(self, library: ctypes.CDLL, what: str) -> None:
        self._library, self.what = library, what
        self._made: list[tuple[Callable[[Any], int], ctypes.c_void_p]] = []
        self.data, self.out, self.bias = (self._new("Tensor") for _ in range(3))
        self.weight, self.convolution = self._new("Filter"), self._new("Convolution")
        self.activation = self._new("Activation")
        self.algorithm = self.workspace = 0

    def _new(self, kind: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.check(getattr(self._library, f"cudnnCreate{kind}Descriptor")(ctypes.byref(made)))
        self._made.append((getattr(self._library, f"cudnnDestroy{kind}Descriptor"), made))
        return made

    def check(self, code: int) -> None:
        """Raises the error of a code."""
        _checked(self._library, code, self.what)

    def choose(self, handle: int) -> None:
        """Takes the algorithm that the library expects to be the fastest."""
        count, found = _int(), (_Proposal * _ALGORITHMS)()
        tensors = (self.data, self.weight, self.convolution, self.out)
        self.check(
            self._library.cudnnGetConvolutionForwardAlgorithm_v7(
                handle, *tensors, _ALGORITHMS, ctypes.byref(count), ctypes.byref(found)
            )
        )
        best = next((proposal for proposal in found[: count.value] if proposal.status == _SUCCESS), None)
        if best is None:
            raise DeviceError(f"cuDNN, {self.what}: it has no algorithm for this")
        self.algorithm, self.workspace = best.algorithm, best.memory

    def __del__(self) -> None:
        for destroy, made in self._made:
            destroy(made)


class Convolution:
    """out = activation(convolution of data and weight, + bias), of two spatial dimensions each.

    `strides`, `padding` (the same at both ends) and `dilation` are those of height and width. In the layout "NCHW",
    weights are (outputs, inputs / groups, height, width); in "NHWC", (outputs, height, width, inputs / groups). A bias
    has an element for each output channel, in any shape; `activation` is "", or "relu" where there is a bias, and
    makes zeros of NaNs. Sums are those of float32. Descriptors are made once for each of the last shapes.

    Raises `InvalidValue` for another layout or activation.
    """

    def __init__(
        self,
        strides: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        groups: int = 1,
        layout: str = "NCHW",
        activation: str = "",
    ) -> None:
        if layout not in _FORMATS:
            raise InvalidValue(f"Convolution: expected the layout {' or '.join(_FORMATS)}, found {layout!r}")
        if activation not in ("", "relu"):
            raise InvalidValue(f'Convolution: expected the activation "" or "relu", found {activation!r}')
        self._strides, self._padding, self._dilation, self._groups = strides, padding, dilation, groups
        self._layout, self._activation = layout, activation
        self._plans: dict[tuple[object, ...], _Plan] = {}

    def __call__(self, data: Tensor, weight: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
        """Computes `out` from contiguous tensors of one dtype, float32 or float16, on one CUDA device.

        Raises `UnsupportedError` where cuDNN is not installed, `TypeMismatch` or `ShapeMismatch` for tensors that do
        not fit, and `DeviceError` with the library's name of what went wrong.
        """
        library = _library()
        if library is None:
            raise UnsupportedError(MISSING)
        self._check(data, weight, out, bias)
        if out.size == 0:
            return
        device = out.device
        driver = driver_of(device.device_type, device.index, str(device))
        assert isinstance(driver, Cuda)
        with driver.inside(device.index), _in_use:
            handle = _handle(library, device.index)
            plan = self._plan(library, handle, data, weight, out)
            plan.check(library.cudnnSetStream(handle, driver.current_stream(device.index)))
            # Memory that is given back waits for what was launched before.
            workspace = DeviceMemory(device, plan.workspace) if plan.workspace else None
            one, zero = (ctypes.byref(ctypes.c_float(value)) for value in (1, 0))
            first = (
                *(handle, one, plan.data, data.address, plan.weight, weight.address, plan.convolution),
                *(plan.algorithm, workspace.address if workspace else None, plan.workspace),
                *(zero, plan.out, out.address),
            )
            if bias is not None and self._activation:
                rest = (plan.bias, bias.address, plan.activation, plan.out, out.address)
                plan.check(library.cudnnConvolutionBiasActivationForward(*first, *rest))
                return
            plan.check(library.cudnnConvolutionForward(*first))
            if bias is not None:  # fused without an activation, it would be for one of the algorithms only
                plan.check(library.cudnnAddTensor(handle, one, plan.bias, bias.address, one, plan.out, out.address))

    def _check(self, data: Tensor, weight: Tensor, out: Tensor, bias: Tensor | None) -> None:
        tensors = [tensor for tensor in (data, weight, out, bias) if tensor is not None]
        if any(tensor.dtype != data.dtype or tensor.dtype not in _TYPES for tensor in tensors):
            raise TypeMismatch(
                f"Convolution: expected tensors of one dtype of {', '.join(_TYPES)}, found "
                f"{', '.join(tensor.dtype for tensor in tensors)}"
            )
        if any(t.device != out.device or not t.is_contiguous() for t in tensors) or out.device.device_type != 2:
            raise TypeMismatch("Convolution: expected contiguous tensors on one CUDA device")
        if any(tensor.size and tensor.address % _ALIGNMENT for tensor in tensors):
            raise TypeMismatch(f"Convolution: expected tensors at multiples of {_ALIGNMENT} bytes; copy what is not")
        if bias is None and self._activation:
            raise InvalidValue("Convolution: an activation comes with a bias, found none")
        fits = data.ndim == weight.ndim == out.ndim == 4 and all(weight.shape)
        if fits:
            batch, channels, *image = self._as_nchw(data)
            outputs, inputs, *window = self._as_nchw(weight)
            reach = [(size - 1) * step + 1 for size, step in zip(window, self._dilation, strict=True)]
            room = [size + 2 * pad - r for size, pad, r in zip(image, self._padding, reach, strict=True)]
            expected = [batch, outputs, *(r // stride + 1 for r, stride in zip(room, self._strides, strict=True))]
            fits = channels == inputs * self._groups and outputs % self._groups == 0 and min(room) >= 0
            fits = fits and self._as_nchw(out) == expected and (bias is None or bias.size == outputs)
        if not fits:
            shapes = ", ".join(str(tensor.shape) for tensor in tensors)
            raise ShapeMismatch(f"Convolution: tensors of the shapes {shapes} do not fit in {self._layout}")

    def _as_nchw(self, tensor: Tensor) -> list[int]:
        n, *rest = tensor.shape
        return [n, *rest] if self._layout == "NCHW" else [n, rest[-1], *rest[:-1]]

    def _plan(self, library: ctypes.CDLL, handle: int, data: Tensor, weight: Tensor, out: Tensor) -> _Plan:
        key = (out.device.index, data.dtype, data.shape, weight.shape)
        if key not in self._plans:
            shapes = f"{data.shape} and {weight.shape}"
            plan = _Plan(library, f"a convolution in {self._layout} of {shapes} {data.dtype} tensors")
            dtype, layout, filters = _TYPES[data.dtype], _FORMATS[self._layout], self._as_nchw(weight)
            for made, extents in (
                (plan.data, self._as_nchw(data)),
                (plan.out, self._as_nchw(out)),
                (plan.bias, [1, filters[0], 1, 1]),
            ):
                plan.check(library.cudnnSetTensor4dDescriptor(made, layout, dtype, *extents))
            plan.check(library.cudnnSetFilter4dDescriptor(plan.weight, dtype, layout, *filters))
            steps = (*self._padding, *self._strides, *self._dilation)
            code = library.cudnnSetConvolution2dDescriptor(plan.convolution, *steps, _CROSS_CORRELATION, _FLOAT)
            plan.check(code)
            plan.check(library.cudnnSetConvolutionGroupCount(plan.convolution, self._groups))
            plan.check(library.cudnnSetConvolutionMathType(plan.convolution, _MATH[data.dtype]))
            plan.check(library.cudnnSetActivationDescriptor(plan.activation, _RELU, _NAN_IS_ZERO, 0.0))
            plan.choose(handle)
            if len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return self._plans[key]
