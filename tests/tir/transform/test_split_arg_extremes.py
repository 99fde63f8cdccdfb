"""SplitArgExtremes: the index of a largest or smallest element is looked for once that element is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import oneir
from oneir import te, tir, topi
from oneir.ir.visitor import Visitor
from oneir.testing import interpret
from oneir.tir.transform import ExactExtremes, SplitArgExtremes

ARG = {"argmax": topi.argmax, "argmin": topi.argmin}


class Blocks(Visitor):
    """The names of a function's blocks that reduce."""

    def __init__(self, func: tir.PrimFunc):
        super().__init__()
        self.found: list[str] = []
        self(func.body)

    def visit_Block(self, block: tir.Block) -> None:
        self.found += [block.name_hint] * (block.init is not None)
        self.generic_visit(block)


def arg_extreme(shape: tuple[object, ...], dtype: str, axis: int | None, name: str, **options: object) -> tir.PrimFunc:
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, ARG[name](x, axis, **options)])


def split(func: tir.PrimFunc) -> tir.PrimFunc:
    return ExactExtremes()(SplitArgExtremes()(oneir.IRModule({"main": func})))["main"]


def elements(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different values, so that many are equal."""
    return np.random.default_rng(0).integers(0, 5, shape).astype(dtype)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "uint8"])
@pytest.mark.parametrize("axis", [-1, None])
def test_the_first_of_equal_elements(name: str, dtype: str, axis: int | None) -> None:
    func = split(arg_extreme((3, 4, 17), dtype, axis, name))
    assert len(Blocks(func).found) == 2
    x = elements((3, 4, 17), dtype)
    expected = getattr(np, name)(x, axis)
    for run in (lambda *arrays: interpret(func, *arrays), oneir.build(func, "llvm")["main"]):
        found = np.full(expected.shape, -7, "int32")
        run(x, found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("name", "best"), [("argmax", np.argmax), ("argmin", np.argmin)], ids=["argmax", "argmin"])
def test_the_last_of_equal_elements(name: str, best: Callable[..., np.ndarray]) -> None:
    func = split(arg_extreme((5, 33), "float32", -1, name, select_last_index=True))
    assert len(Blocks(func).found) == 2
    x = elements((5, 33), "float32")
    found = np.zeros(5, "int32")
    oneir.build(func, "llvm")["main"](x, found)
    np.testing.assert_array_equal(found, 32 - best(x[:, ::-1], -1))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_infinities_and_the_first_nan(name: str) -> None:
    x = np.array(
        [[np.nan, 1, np.nan, 2], [1, 2, np.nan, np.nan], [np.inf] * 4, [-np.inf] * 4, [-np.inf, np.inf, np.inf, 0]],
        "float32",
    )
    func = split(arg_extreme(x.shape, "float32", -1, name))
    for run in (lambda *arrays: interpret(func, *arrays), oneir.build(func, "llvm")["main"]):
        found = np.zeros(len(x), "int32")
        run(x, found)
        np.testing.assert_array_equal(found, getattr(np, name)(x, -1))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("last", [False, True])
def test_elements_of_unknown_number_and_none_at_all(name: str, last: bool) -> None:
    rows, columns = te.var("rows"), te.var("columns")
    func = arg_extreme((rows, columns), "float32", -1, name, select_last_index=last)
    parts, whole = split(func), ExactExtremes()(oneir.IRModule({"main": func}))["main"]
    assert (len(Blocks(parts).found), len(Blocks(whole).found)) == (2, 1)
    built, before = (oneir.build(each, "llvm")["main"] for each in (parts, whole))
    for shape in ((3, 17), (1, 1), (4, 100), (2, 0), (0, 5)):
        x = elements(shape, "float32")
        expected = np.full(shape[0], -7, "int32")
        before(x, expected)
        for run in (built, *([lambda *arrays: interpret(parts, *arrays)] if x.size else [])):
            found = np.full(shape[0], -7, "int32")
            run(x, found)
            np.testing.assert_array_equal(found, expected)


def test_elements_far_apart_stay_one_reduction() -> None:
    func = arg_extreme((3, 17), "float32", 0, "argmax")
    assert SplitArgExtremes()(oneir.IRModule({"main": func}))["main"] is func
