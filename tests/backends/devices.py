"""Devices that tests run on where the machine has them."""

from __future__ import annotations

import os
import tempfile

import pytest

import oneir

os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without it lavapipe complains on stderr

needs_opencl = pytest.mark.skipif(
    not oneir.opencl().exist,
    reason="no OpenCL device; PoCL is one for any processor: apt-get install pocl-opencl-icd ocl-icd-libopencl1",
)

needs_webgpu = pytest.mark.skipif(
    not oneir.webgpu().exist,
    reason="no WebGPU device; lavapipe is one for any processor: apt-get install mesa-vulkan-drivers libvulkan1, and "
    "pip install wgpu",
)
