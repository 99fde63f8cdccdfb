"""Devices that tests run on where the machine has them."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

import oneir
from oneir import dlight as dl
from oneir.contrib import nvcc
from oneir.target import Target
from oneir.testing import cuda_host

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

needs_vulkan = pytest.mark.skipif(
    not oneir.vulkan().exist,
    reason="no Vulkan device; lavapipe is one for any processor: apt-get install mesa-vulkan-drivers libvulkan1",
)

needs_spirv_tools = pytest.mark.skipif(
    not shutil.which("spirv-val") or not shutil.which("spirv-as"),
    reason="the tools of SPIR-V are missing: apt-get install spirv-tools",
)

needs_compiler = pytest.mark.skipif(
    not cuda_host.compiler_exists(), reason="g++ is missing, which compiles the text of kernels for the host"
)

needs_nvrtc = pytest.mark.skipif(not nvcc.nvrtc_exists(), reason="NVRTC is missing: pip install nvidia-cuda-nvrtc")


def built(func, kind, name="main"):
    """A function of plain loops as a program of one kernel for a kind of device."""
    target = Target(kind, host="llvm")
    with target:
        mod = dl.ApplyDefaultSchedule(dl.gpu.Fallback())(oneir.ir.IRModule({name: func}))
    return oneir.build(mod, target=target)
