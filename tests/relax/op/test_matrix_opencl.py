"""Every operator of graphs on an OpenCL device, scheduled by default: the cases that processors pass.

A few cases of each operator, spread over its dtypes and shapes; all of them in the long tests, since a device's driver
takes a quarter of a second to compile a kernel.
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

ROWS = {
    name: cases
    for module in (elementwise, layers, manipulate, nn, products, reduction)
    for name, cases in module.ROWS.items()
}
CASES = 2


@needs_opencl
@pytest.mark.parametrize("name", ROWS)
def test_cases(name: str) -> None:
    cases = list(ROWS[name]())
    if not os.environ.get("ONEIR_TEST_LONG"):
        cases = cases[:: -(-len(cases) // CASES)]
    check_cases(cases, target="opencl")
