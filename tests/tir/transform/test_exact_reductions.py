"""Reductions that compiled graphs run are exact where published loops are not: infinities, NaN, sums of short floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from oneir import IRModule, te, tir, topi
from oneir.ir.structural import structural_equal
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir.transform import ExactExtremes, WideAccumulators


def module_of(func: tir.PrimFunc) -> Any:
    return IRModule({"main": func})


def loops(function: Any, shape: tuple[Any, ...], dtype: str) -> tir.PrimFunc:
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, function(x)])


def run(func: tir.PrimFunc, x: np.ndarray, dtype: Any) -> np.ndarray:
    out = np.zeros(x.shape[:1], dtype)
    interpret(func, x, out)
    return out


def test_a_maximum_starts_from_the_infinity() -> None:
    @T.prim_func
    def before(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2,), "float32")):
        for i, k in T.grid(2, 3):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(-3.4028234663852886e38)
                y[vi] = T.max(y[vi], x[vi, vk])

    @T.prim_func
    def expected(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2,), "float32")):
        for i, k in T.grid(2, 3):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32("-inf")
                y[vi] = T.max(y[vi], x[vi, vk])

    after = ExactExtremes()(module_of(before))["main"]
    assert structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_infinities_and_nan(name: str) -> None:
    sign = 1 if name == "argmax" else -1
    x = sign * np.array(
        [[-math.inf] * 3, [1, math.nan, math.nan], [math.nan, 2, 3], [-math.inf, 1, 1], [5, 6, math.nan]], "float32"
    )
    func = loops(lambda t: getattr(topi, name)(t, 1), (5, 3), "float32")
    exact = ExactExtremes()(module_of(func))["main"]
    np.testing.assert_array_equal(run(exact, x, "int32"), [0, 1, 0, 1, 2])
    # As published, the place of infinities is none, and a NaN is forgotten.
    assert run(func, x, "int32")[0] == -1


def test_the_place_of_the_least_integers_is_the_first() -> None:
    func = loops(lambda t: topi.argmax(t, 1), (1, 3), "int8")
    exact = ExactExtremes()(module_of(func))["main"]
    assert run(exact, np.full((1, 3), -128, "int8"), "int32") == 0


def test_other_starts_stay() -> None:
    @T.prim_func
    def zero(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2,), "float32")):
        for i, k in T.grid(2, 3):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = T.max(y[vi], x[vi, vk])

    module = module_of(zero)
    assert structural_equal(ExactExtremes()(module), module)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_are_added_up_in_float32(dtype: str) -> None:
    func = loops(lambda t: topi.sum(t, 1), (2, 3000), dtype)
    wide = WideAccumulators()(module_of(func))["main"]
    ones = np.ones((2, 3000), tir.const(0, dtype).dtype.to_numpy())
    np.testing.assert_array_equal(
        run(wide, ones, ones.dtype).astype(float), np.full(2, 3000, "float32").astype(ones.dtype).astype(float)
    )
    assert run(func, ones, ones.dtype)[0] < 3000
    assert "x_red_wide" in str(wide)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("reduce", "numpy_reduce"), [(topi.max, np.max), (topi.min, np.min)])
def test_extremes_of_short_floats_are_compared_in_float32(dtype: str, reduce, numpy_reduce) -> None:
    func = loops(lambda t: reduce(t, 1), (3, 50), dtype)
    wide = WideAccumulators()(ExactExtremes()(module_of(func)))["main"]
    assert "x_red_wide" in str(wide)
    data = np.random.default_rng(0).standard_normal((3, 50)).astype(tir.const(0, dtype).dtype.to_numpy())
    data[1, 7], data[2] = np.nan, np.inf if reduce is topi.min else -np.inf
    found = run(wide, data, data.dtype).astype(float)
    np.testing.assert_array_equal(found, numpy_reduce(data.astype(float), axis=1))


def test_sums_of_float32_and_of_several_writers_stay() -> None:
    module = module_of(loops(lambda t: topi.sum(t, 1), (2, 3), "float32"))
    assert WideAccumulators()(module)["main"] is module["main"]

    @T.prim_func
    def twice(x: T.Buffer((2, 3), "float16"), y: T.Buffer((2,), "float16")):
        for r, i, k in T.grid(1, 2, 3):
            with T.block("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = T.float16(0)
                y[vi] = y[vi] + x[vi, vk]
        for i in range(2):
            with T.block("more"):
                vi = T.axis.spatial(2, i)
                y[vi] = y[vi] * T.float16(2)

    module = module_of(twice)
    assert structural_equal(WideAccumulators()(module), module)
