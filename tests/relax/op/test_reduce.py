"""Reductions, running sums, choosing, searching, sorting."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from op_testing import check, infer, random, tensor, var

from oneir import relax, tir
from oneir.relax import op
from oneir.relax.struct_info import TupleStructInfo
from oneir.runtime.error import OneIRError

N = tir.Var("n", "int64")
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum,
    "prod": lambda a, dim, keepdim: torch.prod(a, dim[0], keepdim),
    "max": torch.amax,
    "min": torch.amin,
    "mean": torch.mean,
    "variance": lambda a, dim, keepdim: torch.var(a, dim, correction=0, keepdim=keepdim),
    "std": lambda a, dim, keepdim: torch.std(a, dim, correction=0, keepdim=keepdim),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_shapes_of_reductions(name: str) -> None:
    function = getattr(op, name)
    assert infer(function(var((2, 3, 4)))) == tensor(())
    assert infer(function(var((2, 3, 4)), keepdims=True)) == tensor((1, 1, 1))
    assert infer(function(var((2, N, 4)), [0, -1])) == tensor((N,))
    assert infer(function(var((2, N, 4)), 1, keepdims=True)) == tensor((2, 1, 4))
    assert infer(function(var(ndim=3), 1)) == tensor(ndim=2)
    assert infer(function(var(ndim=3), keepdims=True)) == tensor((1, 1, 1))
    assert infer(function(var(), 1)) == tensor()
    assert infer(function(var(None, None))) == tensor((), None)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_shapes_of_indices(name: str) -> None:
    function = getattr(op, name)
    assert infer(function(var((2, N)))) == tensor((), "int64")
    assert infer(function(var((2, N)), -1)) == tensor((2,), "int64")
    assert infer(function(var((2, N)), 0, keepdims=True)) == tensor((1, N), "int64")
    assert infer(function(var(ndim=3), 0)) == tensor(None, "int64", 2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, dtype: str) -> None:
    x = random((2, 3, 4), dtype, -2, 2)
    expected = None if dtype == "int32" and name in ("mean", "variance", "std") else REDUCTIONS[name]
    loose = 2e-2 if dtype == "float16" else None
    if name == "std" and dtype == "int32":
        return
    for axes, keepdims in (([1], False), ([-1], True)):
        check(
            lambda a, axes=axes, keepdims=keepdims: getattr(op, name)(a, axes, keepdims),
            x,
            torch_function=expected and (lambda a, axes=axes, keepdims=keepdims: expected(a, axes, keepdim=keepdims)),
            tolerance=loose,
        )
    check(lambda a: getattr(op, name)(a, [0, 2]), x, tolerance=loose)
    check(lambda a: getattr(op, name)(a), x, tolerance=loose)


def test_reductions_of_symbolic_extents() -> None:
    check(lambda a, n: op.mean(a, 0), random((5, 3)), shapes={0: ("n", 3)}, torch_function=lambda a: a.mean(0))
    check(lambda a, n: op.sum(a), random((5, 3)), shapes={0: ("n", 3)}, torch_function=torch.sum)


def test_reductions_of_nothing() -> None:
    run = check(lambda a: op.sum(a, 1), np.zeros((2, 0), "float32"), torch_function=lambda a: a.sum(1))
    np.testing.assert_array_equal(run.native, [0, 0])
    check(lambda a: op.sum(a), np.asarray(np.float32(3)), torch_function=torch.sum)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_indices(name: str) -> None:
    expected = getattr(torch, name)
    for dtype in ("float32", "int8"):
        x = random((3, 5), dtype, -9, 9)
        check(lambda a: getattr(op, name)(a, -1), x, torch_function=lambda a: expected(a, -1))
        check(lambda a: getattr(op, name)(a, 0, True), x, torch_function=lambda a: expected(a, 0, True))
        check(lambda a: getattr(op, name)(a), x, torch_function=expected)
    equal = check(lambda a: getattr(op, name)(a), np.ones(4, "float32"))
    assert equal.native == 0


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans(name: str) -> None:
    function, expected = getattr(op, name), getattr(torch, name)
    x = random((2, 3, 4))
    check(lambda a: function(a, 1), x, torch_function=lambda a: expected(a, 1))
    check(lambda a: function(a), x, torch_function=lambda a: expected(a.flatten(), 0))
    check(lambda a: function(a, -1, exclusive=True), x)
    check(lambda a: function(a, 0, "int64"), random((4,), "int8", 0, 3), torch_function=lambda a: expected(a, 0))
    assert infer(function(var((2, N)))) == tensor((N * 2,))
    assert infer(function(var(ndim=2), 1, "float16")) == tensor(None, "float16", 2)
    assert infer(function(var(ndim=2))) == tensor(ndim=1)


def test_where() -> None:
    condition, x, y = random((3, 1), "bool"), random((1, 4)), random((2, 1, 1), seed=1)
    check(op.where, condition, x, y, torch_function=torch.where)
    assert infer(op.where(var((N, 1), "bool"), var((3,)), var(()))) == tensor((N, 3))
    assert infer(op.where(var(None, "bool"), var((3,)), var(()))) == tensor()


def test_masks() -> None:
    x, mask = random((2, 3)), random((2, 3), "bool")
    builder = relax.BlockBuilder()
    a = relax.Var("a", tensor((2, 3)))
    masked: Any = op.masked_fill(a, relax.const(mask), 7.0)
    assert masked.op.name == "relax.where"
    assert masked.args[1].op.name == "relax.full_like" and masked.args[2] is a
    check(lambda m, v: op.where(m, v, v), mask, x, torch_function=lambda m, v: v)


def test_bucketize() -> None:
    x, bounds = random((2, 5), low=0, high=9), np.array([1, 3, 5, 7], "float32")
    check(op.bucketize, x, bounds, torch_function=torch.bucketize)
    check(
        lambda a, b: op.bucketize(a, b, True, True),
        np.array([1, 3, 4], "float32"),
        bounds,
        torch_function=lambda a, b: torch.bucketize(a, b, out_int32=True, right=True),
    )
    assert infer(op.bucketize(var((N, 2)), var((4,)), True)) == tensor((N, 2), "int32")


def test_fma() -> None:
    a, b, c = (random((2, 3), seed=i) for i in range(3))
    check(op.ewise_fma, a, b, c, torch_function=lambda a, b, c: a * b + c)
    assert infer(op.ewise_fma(var((N, 2)), var((N, 2)), var(ndim=2))) == tensor(ndim=2)
    assert infer(op.ewise_fma(var((N, 2)), var((N, 2)), var((N, 2)))) == tensor((N, 2))


@pytest.mark.parametrize("descending", [True, False])
def test_sorting(descending: bool) -> None:
    for dtype in ("float32", "int8"):
        x = random((3, 7), dtype, -9, 9)
        check(
            lambda a: op.sort(a, 0, descending), x, torch_function=lambda a: torch.sort(a, 0, descending=descending)[0]
        )
        check(
            lambda a: op.argsort(a, -1, descending, "int64"),
            x,
            torch_function=lambda a: torch.sort(a, stable=True, dim=-1, descending=descending)[1],
        )
        run = check(lambda a: op.topk(a, 3, 1, largest=descending), x)
        assert run.native[1].dtype == np.int32
        expected = torch.topk(torch.from_numpy(x), 3, 1, largest=descending)
        np.testing.assert_array_equal(run.native[0], expected.values.numpy())
        check(lambda a: op.topk(a, 0, 0, "indices", descending, "int64"), x)


def test_shapes_of_sorted() -> None:
    assert infer(op.sort(var((N, 3)))) == tensor((N, 3))
    assert infer(op.argsort(var(ndim=2), dtype="int64")) == tensor(None, "int64", 2)
    pair = TupleStructInfo([tensor((N, 2)), tensor((N, 2), "int32")])
    assert infer(op.topk(var((N, 3)), 2)) == pair
    assert infer(op.topk(var((N, 3)), 2, 0, "values")) == tensor((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.sum(var((2, 3)), 2), "relax.sum: axis 2 is outside of a tensor of 2 dimensions"),
        (lambda: op.mean(var((2, 3)), [0, -2]), "relax.mean: axes [0, -2] name a dimension of the 2 twice"),
        (lambda: op.argmax(var((2, 3)), -3), "relax.argmax: axis -3 is outside"),
        (lambda: op.cumsum(var((2, 3)), 2), "relax.cumsum: axis 2 is outside"),
        (lambda: op.where(var((2,)), var((2,)), var((2,))), "the condition must be a tensor of bools, found dtype"),
        (lambda: op.where(var((2,), "bool"), var((2,)), var((2,), "int8")), "expected arguments of one dtype"),
        (lambda: op.bucketize(var((2,)), var((2, 2))), "argument boundaries must have one dimension, found 2"),
        (lambda: op.ewise_fma(var((2,)), var((2,)), var((3,))), "expected three tensors of one shape"),
        (lambda: op.ewise_fma(var((2,)), var((2,)), var(())), "expected three tensors of as many dimensions"),
        (lambda: op.topk(var((2, 3)), 4), "relax.topk: k=4 is more than the 3 elements along axis 1"),
        (lambda: op.topk(var((2, 3)), 1, ret_type="all"), "relax.topk: expected ret_type"),
        (lambda: op.sort(var((2, 3)), 2), "relax.sort: axis 2 is outside"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())
