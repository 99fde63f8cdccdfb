"""Every operator of graphs on devices, scheduled by default: the cases that processors pass.

On OpenCL a few cases of each operator, spread over its dtypes and shapes; all of them, and CUDA on the host, in the long
tests, since a device's driver takes a quarter of a second to compile a kernel.
"""

from __future__ import annotations

import os

import pytest
import test_matrix_elementwise as elementwise
import test_matrix_layers as layers
import test_matrix_manipulate as manipulate
import test_matrix_nn as nn
import test_matrix_products as products
import test_matrix_reduction as reduction
from devices import needs_opencl
from op_cases import check_cases

from oneir.testing.cuda_host import compiler_exists, cuda_on_host

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


@pytest.mark.skipif(not LONG, reason="compilers of devices take long: ONEIR_TEST_LONG=1 runs CUDA on the host")
@pytest.mark.skipif(not compiler_exists(), reason="g++ is missing")
@pytest.mark.parametrize("name", ROWS)
def test_on_cuda(name: str) -> None:
    with cuda_on_host("backward"):
        check_cases(list(ROWS[name]()), target="cuda")
