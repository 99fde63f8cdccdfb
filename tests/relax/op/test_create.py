"""Operators that make tensors, and that change dtypes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from op_testing import check, infer, random, tensor, var

from oneir import relax, tir
from oneir.relax import op
from oneir.relax.struct_info import ShapeStructInfo
from oneir.runtime.error import OneIRError

N = tir.Var("n", "int64")
SHAPE = relax.Var("s", ShapeStructInfo(ndim=2))
ONE = relax.const(1, "int32")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: op.full((2, 3), ONE), tensor((2, 3), "int32")),
        (lambda: op.full((N, 3), ONE, "float16"), tensor((N, 3), "float16")),
        (lambda: op.full(SHAPE, ONE), tensor(SHAPE, "int32")),
        (lambda: op.full_like(var((N, 3)), ONE), tensor((N, 3))),
        (lambda: op.full_like(var(ndim=2), ONE, "int8"), tensor(None, "int8", 2)),
        (lambda: op.ones((2, 3), "float16"), tensor((2, 3), "float16")),
        (lambda: op.zeros(SHAPE, "float16"), tensor(SHAPE, "float16")),
        (lambda: op.ones_like(var((2, N), None)), tensor((2, N), None)),
        (lambda: op.zeros_like(var(), "int8"), tensor(None, "int8")),
        (lambda: op.eye(3), tensor((3, 3))),
        (lambda: op.eye(N, 4, 1, "int8"), tensor((N, 4), "int8")),
        (lambda: op.eye_like(var((N, 3))), tensor((N, 3))),
        (lambda: op.eye_like(var(), dtype="int8"), tensor(None, "int8", 2)),
        (lambda: op.arange(5), tensor((5,), "int64")),
        (lambda: op.arange(1, 10, 2), tensor((5,), "int64")),
        (lambda: op.arange(5, 0, -2), tensor((3,), "int64")),
        (lambda: op.arange(5, 0), tensor((0,), "int64")),
        (lambda: op.arange(1.0), tensor((1,), "float32")),
        (lambda: op.arange(0, 1, 0.3), tensor((4,), "float32")),
        (lambda: op.arange(N), tensor((N,), "int64")),
        (lambda: op.arange(1, N, 2, "float16"), tensor((N // 2,), "float16")),
        (lambda: op.hamming_window(7, True, 0.54, 0.46, "float32"), tensor((7,))),
        (lambda: op.tril(var((N, 3)), 1), tensor((N, 3))),
        (lambda: op.triu(var(ndim=3)), tensor(ndim=3)),
        (lambda: op.astype(var((N, 3)), "int8"), tensor((N, 3), "int8")),
        (lambda: op.astype(var(None, None), "int8"), tensor(None, "int8")),
        (lambda: op.wrap_param(var((2,), "float16")), tensor((2,))),
    ],
)
def test_struct_info(call: Any, expected: Any) -> None:
    assert infer(call()) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "bool"])
def test_values(dtype: str) -> None:
    x = random((2, 3), dtype)
    check(lambda a: op.zeros_like(a), x, torch_function=torch.zeros_like)
    check(lambda a: op.ones_like(a), x, torch_function=torch.ones_like)
    check(lambda: op.ones((2, 3), dtype))
    check(lambda: op.full((2, 3), ONE, dtype))


def test_values_from_a_tensor() -> None:
    value = np.asarray(7, "int32")
    run = check(lambda v: op.full((2, 3), v, "float32"), value)
    assert (run.native == 7).all()
    check(lambda x, v: op.full_like(x, v), random((2, 0)), value)


def test_symbolic_shapes() -> None:
    check(lambda x, n: op.zeros((n, n), "int8"), random((3,)), shapes={0: ("n",)})
    check(lambda x, n: op.full_like(x, relax.const(2.0)), random((3, 2)), shapes={0: ("n", 2)})
    check(lambda x, n: op.eye_like(x, 1), random((3, 2)), shapes={0: ("n", 2)})
    check(lambda x, n: op.arange(1, n, 2), random((8,)), shapes={0: ("n",)})


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_matrices(k: int) -> None:
    check(lambda: op.eye(3, 4, k))
    for dtype in ("float32", "int8"):
        x = random((2, 3, 4), dtype)
        check(lambda a: op.tril(a, k), x, torch_function=lambda a: torch.tril(a, k))
        check(lambda a: op.triu(a, k), x, torch_function=lambda a: torch.triu(a, k))


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_windows(size: int, periodic: bool) -> None:
    run = check(lambda: op.hamming_window(size, periodic, 0.54, 0.46, "float32"))
    expected = torch.hamming_window(size, periodic, 0.54, 0.46)
    np.testing.assert_allclose(run.native, expected.numpy(), atol=1e-6)


def test_a_known_range_is_a_constant() -> None:
    builder = relax.BlockBuilder()
    call: Any = builder.normalize(op.arange(1, 10, 4, "float32"))
    made: Any = call.op.get_attr("FLegalize")(builder, call)
    assert isinstance(made, relax.Constant)
    np.testing.assert_array_equal(made.data.numpy(), np.array([1, 5, 9], "float32"))


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "int8", "int64", "bool"])
def test_dtypes(source: str) -> None:
    for target in ("float16", "bfloat16", "float64", "int32", "uint8", "bool"):
        x = random((3, 5), source, 0, 9)
        check(lambda a, target=target: op.astype(a, target), x)


def test_floats_outside_of_integers_saturate() -> None:
    x = np.array([1.9, -1.9, 300.0, -300.0, np.nan, np.inf], "float32")
    run = check(lambda a: op.astype(a, "int8"), x)
    np.testing.assert_array_equal(run.native, [1, -1, 127, -128, 0, 127])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.full((2, 3), var((1,))), "relax.full: argument fill_value must be a tensor without dimensions"),
        (lambda: op.full(var((2,)), ONE), "relax.full: argument 0 must be a shape"),
        (lambda: op.full("2", ONE), "expected a shape or a list of extents, found '2'"),
        (lambda: op.ones((2, 3), ""), "relax.ones expects a dtype"),
        (lambda: op.zeros_like(SHAPE), "relax.zeros_like: argument 0 must be a tensor"),
        (lambda: op.eye_like(var((2, 3, 4))), "relax.eye_like: expected a matrix, found a tensor of 3 dimensions"),
        (lambda: op.tril(var((2,))), "relax.tril: expected a tensor of at least two dimensions, found 1"),
        (lambda: op.arange(0, 4, 0), "relax.arange: the step must not be 0"),
        (lambda: op.arange(var((2,))), "relax.arange: argument end must be a number"),
        (lambda: op.hamming_window(7, True, 0.5, 0.5, "int8"), "expected a dtype of floats, found int8"),
        (lambda: op.hamming_window(0, True, 0.5, 0.5, "float32"), "argument window_size must be at least 1"),
        (lambda: op.astype(SHAPE, "int8"), "relax.astype: argument 0 must be a tensor"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())
