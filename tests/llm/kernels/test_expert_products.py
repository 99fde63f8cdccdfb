"""Products with the weights of chosen experts: against NumPy, with values that the package gguf gives."""

from __future__ import annotations

import numpy as np
import pytest
from weight_forms import random_weight

import oneir
from oneir.llm.kernels.expert_products import expert_products
from oneir.llm.kernels.forms import FORMS
from oneir.runtime.error import ShapeMismatch
from oneir.testing import interpret

COUNT, N, K = 3, 64, 256
RNG = np.random.default_rng(5)


def given(name: str, experts: np.ndarray, n: int = N, k: int = K) -> tuple[list[np.ndarray], np.ndarray]:
    """The arguments of a product, and what comes out."""
    stored, values = random_weight(name, COUNT * n, k)
    arrays = FORMS[name].pack(stored, COUNT * n, k)
    if arrays["weight"].dtype == np.uint8:
        arrays["weight"] = arrays["weight"].view(np.uint32)
    x = RNG.standard_normal((len(experts), k)).astype("float32")
    chosen = values.reshape(COUNT, n, k)[experts.clip(0, COUNT - 1)].astype("float64")
    expected = np.einsum("mk,mcnk->mcn", x.astype("float64"), chosen)
    return [x, experts, *arrays.values(), np.zeros(expected.shape, "float32")], expected


@pytest.mark.parametrize("name", FORMS)
def test_every_form(name: str) -> None:
    run = oneir.build(expert_products(FORMS[name], COUNT, N, K).with_attr("global_symbol", "f"), "llvm")["f"]
    for experts in ([[2]], [[0, 2], [1, 0], [2, 1]], [[-1, 7]]):  # the last are not there
        arguments, expected = given(name, np.int32(experts))
        tensors = [oneir.nd.array(x) for x in arguments]
        run(*tensors)
        assert np.abs(tensors[-1].numpy() - expected).max() <= 1e-6 * np.abs(expected).max()


def test_loops_are_what_the_interpreter_computes() -> None:
    arguments, expected = given("MXFP4", np.int32([[1, 0]]), 32, 64)
    interpret(expert_products(FORMS["MXFP4"], COUNT, 32, 64), *arguments)
    assert np.abs(arguments[-1] - expected).max() <= 1e-6 * np.abs(expected).max()


def test_outputs_of_an_expert_are_whole_panels() -> None:
    with pytest.raises(ShapeMismatch, match="the outputs of a product with weights in panels to be a multiple of 32"):
        expert_products(FORMS["Q4_0"], 4, 48, 64)
