"""Tensors by the names that older programs use: `nd.array(x, device=cpu())`, `nd.NDArray`."""

from __future__ import annotations

from .runtime.device import cpu, cuda, device, ext_dev, hexagon, metal, opencl, rocm, vpi, vulkan, webgpu
from .runtime.tensor import NDArray, empty, from_dlpack
from .runtime.tensor import tensor as array

__all__ = [
    "NDArray",
    "array",
    "cpu",
    "cuda",
    "device",
    "empty",
    "ext_dev",
    "from_dlpack",
    "hexagon",
    "metal",
    "opencl",
    "rocm",
    "vpi",
    "vulkan",
    "webgpu",
]
