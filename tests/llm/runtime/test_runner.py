"""The memory of keys and values: zeros that take only what was written, however far apart."""

import sys
from pathlib import Path

import numpy as np
import pytest

from oneir.llm.runtime.runner import reserved


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_what_was_written_takes_memory():
    pages = reserved((32, 2 << 20), "int8")
    before = resident()
    pages[:, 0] = 1
    assert resident() - before < 4 << 20
    assert pages.sum() == 32


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_zeros_of_a_shape_which_can_be_written(dtype: str):
    pages = reserved((2, 3, 5), dtype)
    assert pages.shape == (2, 3, 5)
    assert pages.dtype == np.dtype(dtype)
    assert not pages.any()
    pages[1, 2, 4] = 7
    assert pages.sum() == 7


def test_no_elements_take_an_array_all_the_same():
    assert reserved((0, 4), "float32").shape == (0, 4)


def resident() -> int:
    """The bytes of memory that this process has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))
