"""Products of float rows with weights in any form, and rows of these weights: against the package gguf and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from weight_forms import random_weight

import oneir
from oneir.dlight.cpu import FloatPanels
from oneir.ir.expr import const
from oneir.llm.kernels import float_panels
from oneir.llm.kernels.forms import FORMS
from oneir.runtime.dtype import numpy_dtype
from oneir.runtime.error import ShapeMismatch
from oneir.target import Target
from oneir.target.cpu import enabled_features
from oneir.testing import interpret
from oneir.tir import PrimFunc, decl_buffer

N, K = 96, 256
RNG = np.random.default_rng(9)


def run(func: PrimFunc, target: Target, arguments: list[np.ndarray]) -> np.ndarray:
    tensors = [oneir.nd.array(x) for x in arguments]
    oneir.build(func.with_attr("global_symbol", "f"), target)["f"](*tensors)
    return tensors[-1].numpy()


def packed(name: str, words: bool, n: int = N, k: int = K) -> tuple[list[np.ndarray], np.ndarray]:
    """The arrays of a weight, and its values."""
    stored, values = random_weight(name, n, k)
    arrays = FORMS[name].pack(stored, n, k)
    if words and arrays["weight"].dtype == np.uint8:
        arrays["weight"] = arrays["weight"].view(np.uint32)
    return [*arrays.values()], values


@pytest.mark.parametrize("name", FORMS)
def test_products_in_every_form(name: str) -> None:
    arrays, values = packed(name, True)
    target, func = Target("llvm"), float_panels.product(FORMS[name], N, K)
    schedule = FloatPanels().apply(func, target)
    assert schedule is not None
    for m in (1, 9):
        x = RNG.standard_normal((m, K)).astype("float32")
        found = run(schedule.mod["main"], target, [x, *arrays, np.zeros((m, N), "float32")])
        expected = x.astype("float64") @ values.T.astype("float64")
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("processor", ["-mcpu=x86-64", "-mcpu=haswell"])
def test_processors_with_shorter_vectors(processor: str) -> None:
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu {processor}")
    for name in ("Q4_0", "BF16"):
        arrays, values = packed(name, True)
        schedule = FloatPanels().apply(float_panels.product(FORMS[name], N, K), target)
        assert schedule is not None
        x = RNG.standard_normal((4, K)).astype("float32")
        found = run(schedule.mod["main"], target, [x, *arrays, np.zeros((4, N), "float32")])
        expected = x.astype("float64") @ values.T.astype("float64")
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("processor", "with_dots"),
    [("-mcpu=znver4", True), ("-mcpu=haswell", False), ("-mcpu=znver4 -vector-width=256", False)],
)
@pytest.mark.parametrize("m", [None, 1])
def test_rows_of_bfloat16(processor: str, with_dots: bool, m: int | None) -> None:
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu {processor}")
    arrays, values = packed("BF16", True)
    func = float_panels.product(FORMS["BF16"], N, K, "bfloat16")
    if m is not None:
        func = func.specialize({func.params[0]: decl_buffer([const(m, "int64"), const(K, "int64")], "bfloat16")})
    schedule = FloatPanels().apply(func, target)
    assert schedule is not None
    assert ("dpbf16ps" in schedule.mod["main"].script()) == with_dots
    if "znver4" in processor and not enabled_features(Target("llvm"), ["avx512bf16"]):
        pytest.skip("the processor lacks AVX-512 BF16")
    for rows in [1, 19] if m is None else [m]:
        x = RNG.standard_normal((rows, K)).astype(numpy_dtype("bfloat16"))
        found = run(schedule.mod["main"], target, [x, *arrays, np.zeros((rows, N), "float32")])
        expected = x.astype("float64") @ values.T.astype("float64")
        assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize(("name", "dtype"), [("Q8_0", "float32"), ("BF16", "bfloat16")])
def test_the_loops_interpreted(name: str, dtype: str) -> None:
    arrays, values = packed(name, True, 32, 64)
    x, found = RNG.standard_normal((2, 64)).astype(numpy_dtype(dtype)), np.zeros((2, 32), "float32")
    interpret(float_panels.product(FORMS[name], 32, 64, dtype), x, *arrays, found)
    expected = x.astype("float64") @ values.T.astype("float64")
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("words", [False, True])
def test_rows_of_weights_are_those_of_gguf(words: bool) -> None:
    numbers = np.array([0, 95, 17, 17], "int32")
    for name in FORMS:
        arrays, values = packed(name, words)
        func = float_panels.take_rows(FORMS[name], N, K, words)
        found = run(func, Target("llvm"), [numbers, *arrays, np.zeros((4, K), "float32")])
        # An offset may be added in the same step as the product with the scale.
        np.testing.assert_allclose(found, values[numbers], rtol=1e-6, atol=1e-7)


def test_products_whose_weights_lie_otherwise_are_left_to_other_rules() -> None:
    a, b = oneir.te.placeholder((8, 64), "float32", "a"), oneir.te.placeholder((32, 64), "float16", "b")
    wide = oneir.te.compute((32, 64), lambda i, j: b[i, j].astype("float32"))
    k = oneir.te.reduce_axis((0, 64), "k")
    product = oneir.te.compute((8, 32), lambda i, j: oneir.te.sum(a[i, k] * wide[j, k], k))
    assert FloatPanels().apply(oneir.te.create_prim_func([a, b, product]), Target("llvm")) is None


@pytest.mark.parametrize(("n", "k", "message"), [(48, 64, "the outputs .* of 32"), (64, 40, "the sum .* of 16")])
def test_parts_of_panels_are_refused(n: int, k: int, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        float_panels.product(FORMS["BF16"], n, k)
