"""Every operator of graphs on devices, scheduled by default: the cases that processors pass.

On OpenCL a few cases of each operator, spread over its dtypes and shapes, and on Vulkan one of each eighth; all of them, WebGPU, and CUDA
and Metal on the host, in the long tests, since a device's driver takes a quarter of a second to compile a kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import pytest
import test_matrix_elementwise as elementwise
import test_matrix_layers as layers
import test_matrix_manipulate as manipulate
import test_matrix_nn as nn
import test_matrix_products as products
import test_matrix_reduction as reduction
from devices import needs_compiler, needs_opencl, needs_vulkan, needs_webgpu
from op_cases import check_cases

from oneir.runtime.error import CompileError
from oneir.testing.cuda_host import cuda_on_host
from oneir.testing.metal_host import metal_on_host

ROWS = {
    name: cases
    for module in (elementwise, layers, manipulate, nn, products, reduction)
    for name, cases in module.ROWS.items()
}
CASES = 2
LONG = bool(os.environ.get("ONEIR_TEST_LONG"))


@needs_opencl
@pytest.mark.parametrize("name", ROWS)
def test_on_opencl(name: str) -> None:
    cases = list(ROWS[name]())
    check_cases(cases if LONG else cases[:: -(-len(cases) // CASES)], target="opencl")


@needs_vulkan
@pytest.mark.parametrize("name", ROWS if LONG else list(ROWS)[::8])
def test_on_vulkan(name: str) -> None:
    cases = list(ROWS[name]())
    check_or_refuse(cases if LONG else cases[len(cases) // 2 :][:1], "vulkan")


@pytest.mark.skipif(not LONG, reason="compilers of devices take long: ONEIR_TEST_LONG=1 runs CUDA on the host")
@needs_compiler
@pytest.mark.parametrize("name", ROWS)
def test_on_cuda(name: str) -> None:
    with cuda_on_host("backward"):
        check_cases(list(ROWS[name]()), target="cuda")


def check_or_refuse(cases: Iterable[Any], target: str) -> None:
    """Each case is computed as on processors, or refused since the language lacks a dtype."""
    for case in cases:
        try:
            check_cases([case], target=target)
        except CompileError as error:
            assert re.search("has the dtype|needs 64 bits|of float64 cannot be written", str(error)), error


@pytest.mark.skipif(not LONG, reason="compilers of devices take long: ONEIR_TEST_LONG=1 runs Metal on the host")
@needs_compiler
@pytest.mark.parametrize("name", ROWS)
def test_on_metal(name: str) -> None:
    with metal_on_host("backward"):
        check_or_refuse(ROWS[name](), "metal")


INEXACT = ("relax.sin", "relax.cos", "relax.tan", "relax.power", "relax.log_add_exp")
"""Their digits are the device's affair: the first three beyond 65536, powers of denormals, and sums that are reassociated."""


@needs_webgpu
@pytest.mark.skipif(not LONG, reason="compilers of devices take long: ONEIR_TEST_LONG=1 runs WebGPU")
@pytest.mark.parametrize("name", [name for name in ROWS if name not in INEXACT])
def test_on_webgpu(name: str) -> None:
    check_or_refuse(ROWS[name](), "webgpu")
