"""Which kernels a target has, and the sums that fit into its registers."""

from __future__ import annotations

import pickle

import pytest

from oneir.llm.kernels.attention import ROWS, score_rows, value_lanes
from oneir.llm.kernels.forms import FORMS, DigitForm
from oneir.llm.kernels.group_quantized import product
from oneir.llm.kernels.kernel_set import DEVICES, kernels_for
from oneir.target import Target
from oneir.target.cpu import cpu_info


@pytest.mark.parametrize(
    ("target", "lanes"),
    [("llvm -mcpu=znver5", 64), ("llvm -mcpu=znver3", 16), ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon", 16)],
)
def test_sums_of_values_stay_in_registers(target: str, lanes: int) -> None:
    """Twice as many would not: sums, a vector of elements and a weight take more registers than there are."""
    info = cpu_info(Target(target))
    assert value_lanes(info) == lanes
    vectors = lanes // (info.vector_bytes // 4)
    assert ROWS * vectors + vectors + 1 <= info.vector_registers
    twice = 2 * vectors
    assert lanes == 64 or ROWS * twice + twice + 1 > info.vector_registers


@pytest.mark.parametrize(
    ("target", "rows"),
    [("llvm -mcpu=znver5", 8), ("llvm -mcpu=znver3", 4), ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon", 4)],
)
def test_scores_stay_in_registers(target: str, rows: int) -> None:
    """Of a page of 16 positions; twice as many would not, beside a vector of keys and an element of a query."""
    info = cpu_info(Target(target))
    assert score_rows(info) == rows
    vectors = 16 // (info.vector_bytes // 4)
    assert rows * vectors + vectors + 1 <= info.vector_registers
    assert rows == 8 or 2 * rows * vectors + vectors + 1 > info.vector_registers


@pytest.mark.parametrize(("target", "in_pairs"), [("llvm -mcpu=znver5", False), ("llvm -mcpu=znver3", True)])
def test_products_are_added_up_in_pairs_where_the_processor_does_so(target: str, in_pairs: bool) -> None:
    layout = kernels_for(Target(target)).layout(FORMS["Q4_0"], "int8")
    form = FORMS["Q4_0"]
    assert isinstance(form, DigitForm)
    assert layout.product(32, 64) is product(form, 32, 64, in_pairs)


def test_kernels_are_pickled_with_a_model() -> None:
    """A large model is compiled in another process."""
    for target in ("llvm -mcpu=znver3", "opencl"):
        kernels = kernels_for(Target(target))
        copy = pickle.loads(pickle.dumps(kernels))
        assert copy.forms == kernels.forms and copy.activations == kernels.activations
        facts = 8, 2, 64, 0.125
        assert copy.paged_attention(*facts) is kernels.paged_attention(*facts)
    assert kernels_for(Target("cuda")) is DEVICES
