"""AMD's GPUs, through HIP's library: `rocm(0)`. HIP has CUDA's interface under other names and with other numbers.

So the driver is CUDA's (`cuda.py`), over a table of names. Programs are compiled by HIPRTC (`contrib/hipcc.py`).
"""

from __future__ import annotations

import ctypes
import re
from typing import Any, ClassVar

from .cuda import Cuda
from .cuda_api import AttributeNumbers, CudaApi
from .driver import register_driver
from .error import DeviceError
from .hook import Hook

compile_for: Hook[[str, str], bytes] = Hook("compile_for", "oneir.contrib.hipcc")
"""The code object of a HIP program, by its text, for a device of an architecture such as "gfx90a:sramecc+:xnack-"."""

_NAMES = {
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuDeviceTotalMem_v2": "hipDeviceTotalMem",
    "cuMemGetInfo_v2": "hipMemGetInfo",
    "cuMemAlloc_v2": "hipMalloc",
    "cuMemFree_v2": "hipFree",
    "cuMemAllocAsync": "hipMallocAsync",
    "cuMemFreeAsync": "hipFreeAsync",
    "cuCtxSynchronize": "hipDeviceSynchronize",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuStreamDestroy_v2": "hipStreamDestroy",
    "cuEventCreate": "hipEventCreateWithFlags",
    "cuEventDestroy_v2": "hipEventDestroy",
    "cuLaunchKernel": "hipModuleLaunchKernel",
    "cuStreamBeginCapture_v2": "hipStreamBeginCapture",
    "cuGetErrorName": "hipDrvGetErrorName",
    "cuGetErrorString": "hipDrvGetErrorString",
}
"""All other functions have the same name after `hip`."""
_COPY_BY_ADDRESS = 4
"""The kind of a copy whose direction follows from the addresses."""
_PROPERTY_BYTES = 8192
"""More than the properties of a device take in any version."""


class HipApi(CudaApi):
    """The functions of HIP's library, by their names in CUDA."""

    what: ClassVar[str] = "HIP"
    attributes: ClassVar[AttributeNumbers] = AttributeNumbers(
        threads=56,
        block=(26, 27, 28),
        grid=(29, 30, 31),
        shared=74,
        warp=87,
        clock=5,
        processors=63,
        l2_cache=19,
        major=23,
        minor=61,
        shared_optin=75,
        pools=88,
    )

    @staticmethod
    def symbol_of(function: str) -> str:
        return _NAMES.get(function) or "hip" + function.removeprefix("cu")

    @staticmethod
    def arguments_of(function: str, arguments: list[Any]) -> list[Any]:
        if function == "cuMemcpyAsync":  # which has the kind of the copy before the stream
            return [*arguments[:-1], ctypes.c_int32, arguments[-1]]
        return arguments

    def cuMemcpyAsync(self, target: int, source: int, nbytes: int, stream: int | None) -> int:
        """CUDA's function, whose direction follows from the addresses."""
        return self.library.hipMemcpyAsync(target, source, nbytes, _COPY_BY_ADDRESS, stream)

    def architecture(self, device_id: int) -> str | None:
        """What programs for a device are compiled for, such as `gfx90a:sramecc+:xnack-`; None where it is not told.

        Only the properties have it, whose layout differs between versions: so it is looked for by how it looks, after
        the first of them, the device's name.
        """
        name = "hipGetDevicePropertiesR0600"
        properties = ctypes.create_string_buffer(_PROPERTY_BYTES)
        get = getattr(self.library, name if hasattr(self.library, name) else "hipGetDeviceProperties", None)
        if get is None or get(properties, ctypes.c_int32(device_id)):
            return None
        found = re.search(rb"gfx[0-9a-f]{3,}[0-9a-z:+-]*", properties.raw[256:])
        return found[0].decode() if found else None


class Rocm(Cuda):
    """All GPUs that HIP's library shows, in its order (HIP_VISIBLE_DEVICES chooses)."""

    device_type: ClassVar[int] = 10
    name: ClassVar[str] = "rocm"
    default_stream: ClassVar[int] = 0
    api_class: ClassVar[type[CudaApi]] = HipApi
    grants_shared: ClassVar[bool] = False  # a block may have all there is
    mixes_devices: ClassVar[bool] = True  # every thread begins with device 0 as its own
    requirement: ClassVar[str] = (
        "no GPU of AMD's was found; install ROCm, whose library is libamdhip64.so, and see that rocminfo lists the GPU"
    )

    def __init__(
        self,
        libraries: tuple[str, ...] = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "amdhip64.dll"),
    ) -> None:
        super().__init__(libraries)

    @staticmethod
    def version_text(number: int) -> str:
        return f"{number // 10_000_000}.{number // 100_000 % 100}"

    def compiled(self, device_id: int, source: str) -> bytes:
        return compile_for(source, self._architecture(device_id))

    def described(self, device_id: int) -> str:
        return self._architecture(device_id)

    def _architecture(self, device_id: int) -> str:
        api = self.api
        assert isinstance(api, HipApi)
        found = api.architecture(device_id)
        if found is None:
            raise DeviceError(f"{self.name}:{device_id} does not tell its architecture; expected one such as gfx90a")
        return found


register_driver(Rocm())
