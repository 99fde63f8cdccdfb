"""The CUDA driver's interface, by ctypes: `libcuda.so.1`, which comes with the driver of every GPU of NVIDIA's.

Nothing else of CUDA is needed to run programs; NVRTC compiles them (`contrib/nvcc.py`).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar

SUCCESS = 0
OUT_OF_MEMORY = 2
LOST = frozenset([46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999])
"""Errors after which nothing more can be done with a device in this process: a kernel accessed memory that is not its
own or failed otherwise, the device is gone, or its memory is damaged."""

_pointer, _number, _size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
_uint, _address = ctypes.c_uint32, ctypes.c_uint64

_FUNCTIONS: dict[str, list[Any]] = {
    "cuInit": [_uint],
    "cuDriverGetVersion": [_pointer],
    "cuGetErrorName": [_number, _pointer],
    "cuGetErrorString": [_number, _pointer],
    "cuDeviceGetCount": [_pointer],
    "cuDeviceGet": [_pointer, _number],
    "cuDeviceGetName": [_pointer, _number, _number],
    "cuDeviceTotalMem_v2": [_pointer, _number],
    "cuDeviceGetAttribute": [_pointer, _number, _number],
    "cuDevicePrimaryCtxRetain": [_pointer, _number],
    "cuCtxGetCurrent": [_pointer],
    "cuCtxSetCurrent": [_pointer],
    "cuModuleLoadData": [_pointer, _pointer],
    "cuModuleUnload": [_pointer],
    "cuModuleGetFunction": [_pointer, _pointer, ctypes.c_char_p],
    "cuFuncGetAttribute": [_pointer, _number, _pointer],
    "cuFuncSetAttribute": [_pointer, _number, _number],
    "cuMemGetInfo_v2": [_pointer, _pointer],
    "cuMemAlloc_v2": [_pointer, _size],
    "cuMemFree_v2": [_address],
    "cuMemcpyAsync": [_address, _address, _size, _pointer],
    "cuCtxSynchronize": [],
    "cuStreamCreate": [_pointer, _uint],
    "cuStreamDestroy_v2": [_pointer],
    "cuStreamSynchronize": [_pointer],
    "cuStreamWaitEvent": [_pointer, _pointer, _uint],
    "cuEventCreate": [_pointer, _uint],
    "cuEventDestroy_v2": [_pointer],
    "cuEventRecord": [_pointer, _pointer],
    "cuEventSynchronize": [_pointer],
    "cuEventElapsedTime": [_pointer, _pointer, _pointer],
    "cuLaunchKernel": [],  # called by native code
}
_SINCE_11_2: dict[str, list[Any]] = {
    "cuDeviceGetDefaultMemPool": [_pointer, _number],
    "cuMemPoolSetAttribute": [_pointer, _number, _pointer],
    "cuMemPoolTrimTo": [_pointer, _size],
    "cuMemAllocAsync": [_pointer, _size, _pointer],
    "cuMemFreeAsync": [_address, _pointer],
}
"""Memory in the order of streams."""
_SINCE_11_4: dict[str, list[Any]] = {
    "cuStreamBeginCapture_v2": [_pointer, _number],
    "cuStreamEndCapture": [_pointer, _pointer],
    "cuGraphInstantiateWithFlags": [_pointer, _pointer, ctypes.c_ulonglong],
    "cuGraphDestroy": [_pointer],
    "cuGraphLaunch": [_pointer, _pointer],
    "cuGraphExecDestroy": [_pointer],
}
"""Graphs of launches."""
_SINCE_12_0 = "cuTensorMapEncodeTiled"
"""Called by native code."""


@dataclass(frozen=True, slots=True)
class AttributeNumbers:
    """The numbers by which a driver knows facts of devices."""

    threads: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared: int
    warp: int
    clock: int
    processors: int
    l2_cache: int
    major: int
    minor: int
    shared_optin: int
    pools: int


class CudaApi:
    """The functions of a driver's library, by their names in CUDA.

    Raises `OSError` where there is no such library, or one that lacks some.
    """

    what: ClassVar[str] = "CUDA"
    attributes: ClassVar[AttributeNumbers] = AttributeNumbers(
        threads=1,
        block=(2, 3, 4),
        grid=(5, 6, 7),
        shared=8,
        warp=10,
        clock=13,
        processors=16,
        l2_cache=38,
        major=75,
        minor=76,
        shared_optin=97,
        pools=115,
    )

    def __init__(self, name: str):
        self.library = ctypes.CDLL(name)
        self.has_tensor_maps = self._has(_SINCE_12_0)
        self.has_pools = self._has("cuMemAllocAsync")
        self.has_graphs = self._has("cuGraphInstantiateWithFlags")
        newer = {**(_SINCE_11_2 if self.has_pools else {}), **(_SINCE_11_4 if self.has_graphs else {})}
        try:
            for function, arguments in {**_FUNCTIONS, **newer}.items():
                getattr(self.library, self.symbol_of(function)).argtypes = self.arguments_of(function, arguments)
        except AttributeError as error:
            raise OSError(f"{name} is no driver of {self.what}: {error}") from None

    @staticmethod
    def symbol_of(function: str) -> str:
        """The library's name of a function of CUDA's."""
        return function

    @staticmethod
    def arguments_of(function: str, arguments: list[Any]) -> list[Any]:
        """The types of the library's arguments, by those of CUDA's function."""
        return arguments

    def _has(self, function: str) -> bool:
        return hasattr(self.library, self.symbol_of(function))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, self.symbol_of(name))

    def address(self, name: str) -> int:
        """The address of a function."""
        return ctypes.cast(getattr(self, name), ctypes.c_void_p).value or 0

    def describe(self, code: int) -> str:
        """What an error code means."""
        texts = []
        for function in (self.cuGetErrorString, self.cuGetErrorName):
            text = ctypes.c_char_p()
            if function(code, ctypes.byref(text)) != SUCCESS or text.value is None:
                return f"{self.what} error {code}"
            texts.append(text.value.decode())
        return f"{texts[0]} ({texts[1]})"


class FunctionAttribute:
    """The numbers by which the driver knows facts of kernels."""

    THREADS = 0
    STATIC_SHARED = 1
    MOST_DYNAMIC_SHARED = 8


POOL_RELEASE_THRESHOLD = 4
RELAXED = 2
"""Of a capture: other work of the process, and of the thread in other streams, goes on."""
NON_BLOCKING = 1
"""Of a stream: it does not wait for the default one, nor that for it."""
