"""The CUDA driver's interface, by ctypes: `libcuda.so.1`, which comes with the driver of every GPU of NVIDIA's.

Nothing else of CUDA is needed to run programs; NVRTC compiles them (`contrib/nvcc.py`).
"""

from __future__ import annotations

import ctypes
from typing import Any

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


class CudaApi:
    """The functions of a driver's library. Raises `OSError` where there is no such library, or one that lacks some."""

    def __init__(self, name: str):
        self.library = ctypes.CDLL(name)
        self.has_tensor_maps = hasattr(self.library, _SINCE_12_0)
        self.has_pools = hasattr(self.library, "cuMemAllocAsync")
        self.has_graphs = hasattr(self.library, "cuGraphInstantiateWithFlags")
        newer = {**(_SINCE_11_2 if self.has_pools else {}), **(_SINCE_11_4 if self.has_graphs else {})}
        try:
            for function, arguments in {**_FUNCTIONS, **newer}.items():
                getattr(self.library, function).argtypes = arguments
        except AttributeError as error:
            raise OSError(f"{name} is no driver of CUDA: {error}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def address(self, name: str) -> int:
        """The address of a function."""
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0

    def describe(self, code: int) -> str:
        """What an error code means."""
        texts = []
        for function in (self.library.cuGetErrorString, self.library.cuGetErrorName):
            text = ctypes.c_char_p()
            if function(code, ctypes.byref(text)) != SUCCESS or text.value is None:
                return f"CUDA error {code}"
            texts.append(text.value.decode())
        return f"{texts[0]} ({texts[1]})"


class Attribute:
    """The numbers by which the driver knows facts of devices."""

    THREADS = 1
    BLOCK = (2, 3, 4)
    GRID = (5, 6, 7)
    SHARED = 8
    WARP = 10
    CLOCK = 13
    PROCESSORS = 16
    L2_CACHE = 38
    MAJOR, MINOR = 75, 76
    SHARED_OPTIN = 97
    POOLS = 115


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
