"""Elementwise operators of one tensor: what is known of their results, what they compute, what they refuse."""

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
from oneir.relax.struct_info import ShapeStructInfo, TensorStructInfo
from oneir.runtime.error import TypeMismatch

UNIT = (-0.9, 0.9)
POSITIVE = (0.1, 3.0)
WIDE = (-3.0, 3.0)

FLOATS: dict[str, tuple[tuple[float, float], Callable[..., Any]]] = {
    "acos": (UNIT, torch.acos),
    "acosh": ((1.1, 4.0), torch.acosh),
    "asin": (UNIT, torch.asin),
    "asinh": (WIDE, torch.asinh),
    "atan": (WIDE, torch.atan),
    "atanh": (UNIT, torch.atanh),
    "cos": (WIDE, torch.cos),
    "cosh": (WIDE, torch.cosh),
    "erf": (WIDE, torch.erf),
    "exp": (WIDE, torch.exp),
    "log": (POSITIVE, torch.log),
    "rsqrt": (POSITIVE, torch.rsqrt),
    "sigmoid": (WIDE, torch.sigmoid),
    "sin": (WIDE, torch.sin),
    "sinh": (WIDE, torch.sinh),
    "sqrt": (POSITIVE, torch.sqrt),
    "tan": ((-1.2, 1.2), torch.tan),
    "tanh": (WIDE, torch.tanh),
}
NUMBERS: dict[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "negative": torch.negative,
    "round": torch.round,
    "sign": torch.sign,
    "square": torch.square,
    "trunc": torch.trunc,
}
CHECKS: dict[str, Callable[..., Any]] = {"isfinite": torch.isfinite, "isinf": torch.isinf, "isnan": torch.isnan}


@pytest.mark.parametrize("name", [*FLOATS, *NUMBERS, "clip"])
def test_the_result_looks_like_the_argument(name: str) -> None:
    function = getattr(op, name) if name != "clip" else lambda x: op.clip(x, 0, 1)
    n = tir.Var("n", "int64")
    shape = relax.Var("s", ShapeStructInfo(ndim=2))
    for info in (
        tensor((2, 3)),
        tensor((n, 3), "float16"),
        tensor(ndim=2),
        tensor(),
        tensor((2, 3), None),
        tensor(shape, "float64"),
    ):
        assert infer(function(relax.Var("x", info))) == info


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_gives_bools(name: str) -> None:
    assert infer(getattr(op, name)(var((2, 3)))) == tensor((2, 3), "bool")
    assert infer(getattr(op, name)(var(ndim=2, dtype=None))) == tensor(None, "bool", ndim=2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", FLOATS)
def test_functions_of_floats(name: str, dtype: str) -> None:
    (low, high), expected = FLOATS[name]
    check(getattr(op, name), random((3, 5), dtype, low, high), torch_function=expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64"])
@pytest.mark.parametrize("name", NUMBERS)
def test_functions_of_numbers(name: str, dtype: str) -> None:
    check(getattr(op, name), random((3, 5), dtype, -9, 9), torch_function=NUMBERS[name])


@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_floats(name: str) -> None:
    values = np.array([0.0, -1.5, np.inf, -np.inf, np.nan, 1e38], "float32")
    check(getattr(op, name), values, torch_function=CHECKS[name])


def test_of_halves_the_even_neighbour_is_the_nearest() -> None:
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4, 2.6], "float32")
    run = check(op.round, halves, torch_function=torch.round)
    np.testing.assert_array_equal(run.native, [0, 2, 2, 0, -2, 2, 3])


def test_the_sign_of_what_is_no_number_is_0() -> None:
    run = check(op.sign, np.array([np.nan, -0.0, np.inf], "float32"), torch_function=torch.sign)
    np.testing.assert_array_equal(run.native, [0, 0, 1])


def test_not() -> None:
    check(op.logical_not, random((2, 3), "bool"), torch_function=torch.logical_not)
    check(op.bitwise_not, random((2, 3), "bool"), torch_function=torch.bitwise_not)
    check(op.bitwise_not, random((2, 3), "int16", -300, 300), torch_function=torch.bitwise_not)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_clip(dtype: str) -> None:
    check(lambda x: op.clip(x, -1, 1), random((3, 5), dtype), torch_function=lambda x: torch.clip(x, -1, 1))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 1, 3)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    check(op.exp, np.asarray(random(shape)), torch_function=torch.exp)


def test_symbolic_shapes() -> None:
    run = check(lambda x, n: op.tanh(x), random((4, 3)), shapes={0: ("n", 3)}, torch_function=torch.tanh)
    assert "T_tanh" not in str(run.module) and [v.name_hint for v in run.module.functions] == ["tir_tanh"]


@pytest.mark.parametrize("name", FLOATS)
def test_functions_of_floats_refuse_integers(name: str) -> None:
    message = f"relax.{name}: expected a tensor of floats, found dtype int32"
    with pytest.raises(TypeMismatch, match=re.escape(message)):
        infer(getattr(op, name)(var((2, 3), "int32")))


def test_what_is_no_tensor_is_refused() -> None:
    shape = relax.Var("s", ShapeStructInfo((2, 3)))
    with pytest.raises(TypeMismatch, match=re.escape("relax.exp: argument 0 must be a tensor, found")):
        infer(op.exp(shape))


def test_clip_refuses_bounds_that_are_no_numbers() -> None:
    with pytest.raises(TypeMismatch, match=re.escape("relax.clip: argument max must be a number, found")):
        infer(op.clip(var((2,)), 0, relax.Var("y", TensorStructInfo((), "float32"))))
