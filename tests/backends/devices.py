"""Devices that tests run on where the machine has them."""

from __future__ import annotations

import pytest

import oneir

needs_opencl = pytest.mark.skipif(
    not oneir.opencl().exist,
    reason="no OpenCL device; PoCL is one for any processor: apt-get install pocl-opencl-icd ocl-icd-libopencl1",
)
