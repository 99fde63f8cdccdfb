"""The classes of what functions take and give."""

from __future__ import annotations

from collections.abc import Callable as Function
from enum import IntEnum

from ...ir.container import Array, Map
from ...runtime import Device, Object, ShapeTuple, String, Tensor

Shape = ShapeTuple


class DLDeviceType(IntEnum):
    """Kinds of devices, as DLPack numbers them."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17
    kDLTrn = 18


__all__ = ["Array", "DLDeviceType", "Device", "Function", "Map", "Object", "Shape", "String", "Tensor"]
