"""Operators of two tensors: what is known of their results, what they compute, what they refuse."""

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
from oneir.relax.struct_info import PrimStructInfo
from oneir.runtime.error import InvalidValue, TypeMismatch

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": lambda a, b: torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "mod": torch.fmod,
    "floor_mod": torch.remainder,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
}
BITS = {"bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor}
LOGIC = {"logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor}
N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (tensor((2, 3)), tensor((2, 3)), tensor((2, 3))),
        (tensor((2, 3)), tensor((1, 3)), tensor((2, 3))),
        (tensor((2, 1, 3)), tensor((4, 1)), tensor((2, 4, 3))),
        (tensor((N, 3)), tensor((N, 1)), tensor((N, 3))),
        (tensor((N, 3)), tensor((1, 3)), tensor((N, 3))),
        (tensor((N, 3)), tensor((M, 3)), tensor(ndim=2)),
        (tensor((2, 3)), tensor(ndim=3), tensor(ndim=3)),
        (tensor((2, 3)), tensor(), tensor()),
        (tensor((2, 3)), tensor((2, 3), None), tensor((2, 3), None)),
        (tensor((2, 3)), PrimStructInfo("float32"), tensor((2, 3))),
    ],
)
def test_shapes_are_broadcast(a: Any, b: Any, expected: Any) -> None:
    x, y = relax.Var("x", a), relax.Var("y", b)
    for name in (*ARITHMETIC, "power", "log_add_exp"):
        assert infer(getattr(op, name)(x, y)) == expected
    for name in COMPARISONS:
        compared = infer(getattr(op, name)(x, y))
        assert compared == tensor(expected.shape, "bool", expected.ndim)


def values(dtype: str, seed: int, nonzero: bool = False) -> np.ndarray:
    made = random((3, 5), dtype, -9, 9, seed)
    return np.where(made == 0, np.ones_like(made), made) if nonzero else made


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str, dtype: str) -> None:
    if (name, dtype) in (("mod", "float16"), ("floor_mod", "float16"), ("floor_divide", "float16")):
        # A quotient rounded to float16 may round down to another whole number; powers of two divide exactly.
        a, b = values(dtype, 0), np.full((3, 5), 2, dtype)
    else:
        a, b = values(dtype, 0), values(dtype, 1, nonzero=True)
    check(getattr(op, name), a, b, torch_function=ARITHMETIC[name])


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str, dtype: str) -> None:
    check(getattr(op, name), values(dtype, 0), values(dtype, 1), torch_function=COMPARISONS[name])


@pytest.mark.parametrize("name", BITS)
def test_bits(name: str) -> None:
    for dtype in ("int32", "uint8", "bool"):
        check(getattr(op, name), values(dtype, 0), values(dtype, 1), torch_function=BITS[name])


@pytest.mark.parametrize("name", LOGIC)
def test_logic(name: str) -> None:
    check(getattr(op, name), values("bool", 0), values("bool", 1), torch_function=LOGIC[name])


def test_shifts() -> None:
    numbers, counts = values("int32", 0), random((3, 5), "int32", 0, 8)
    check(op.left_shift, numbers, counts, torch_function=torch.bitwise_left_shift)
    check(op.right_shift, numbers, counts, torch_function=torch.bitwise_right_shift)
    run = check(op.left_shift, np.array([1, 1], "int32"), np.array([32, -1], "int32"))
    np.testing.assert_array_equal(run.native, [0, 0])


def test_powers() -> None:
    base, exponent = random((3, 5), "float32", 0.2, 3), random((3, 5), "float32", -2, 2, 1)
    check(op.power, base, exponent, torch_function=torch.pow)
    check(op.power, random((3, 5), "int32", -4, 4), random((3, 5), "int32", 0, 4, 1), torch_function=torch.pow)


def test_the_logarithm_of_a_sum_of_exponentials_does_not_overflow() -> None:
    large = np.array([100.0, 1000.0, -1000.0], "float32")
    run = check(op.log_add_exp, large, large, torch_function=torch.logaddexp)
    np.testing.assert_allclose(run.native, large + np.log(2), rtol=1e-6)


def test_division_of_integers_by_zero_is_zero() -> None:
    a, zero = np.array([7, -7, 0], "int32"), np.zeros(3, "int32")
    np.testing.assert_array_equal(check(op.divide, a, zero).native, [0, 0, 0])
    np.testing.assert_array_equal(check(op.floor_divide, a, zero).native, [0, 0, 0])
    np.testing.assert_array_equal(check(op.mod, a, zero).native, a)


def test_not_a_number_wins_over_the_larger_and_the_smaller() -> None:
    a, b = np.array([np.nan, 1], "float32"), np.array([1, np.nan], "float32")
    for function, expected in ((op.maximum, torch.maximum), (op.minimum, torch.minimum)):
        assert np.isnan(check(function, a, b, torch_function=expected).native).all()


@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((0, 3), (1, 3)), ((1,), (2, 0, 1))])
def test_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (np.asarray(random(s, seed=i)) for i, s in enumerate(shapes))
    check(op.add, a, b, torch_function=torch.add)


def test_symbolic_extents() -> None:
    check(lambda a, b, n: op.multiply(a, b), random((4, 3)), random((4, 1)), shapes={0: ("n", 3), 1: ("n", 1)})


def test_constants_without_dimensions_become_numbers_in_the_loops() -> None:
    run = check(lambda x: op.add(x, relax.const(2.0)), random((2, 3)), torch_function=lambda x: x + 2)
    assert len(run.legalized.args[1].fields) == 1 and "T.float32(2.0)" in str(run.module)
    run = check(lambda x: op.subtract(relax.const(1.0), x), random((2, 3)), torch_function=lambda x: 1 - x)
    assert len(run.legalized.args[1].fields) == 1
    # Two constants: one remains a tensor, from which the loops' function gets its shape.
    run = check(lambda x: op.add(relax.const(1.0), relax.const(2.0)), random((2,)))
    assert run.native == 3 and len(run.legalized.args[1].fields) == 1


def test_operators_of_python() -> None:
    x = random((2, 3), low=0.5)
    check(lambda a: a + relax.const(1.0), x, torch_function=lambda a: a + 1)
    check(lambda a: -a, x, torch_function=lambda a: -a)
    check(lambda a: relax.const(1.0) / a, x, torch_function=lambda a: 1 / a)
    check(lambda a: a // relax.const(0.3), x, torch_function=lambda a: a // 0.3)


def test_extents_that_differ_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"relax.add: shapes .* cannot be broadcast: extents .*3.* and .*4"):
        infer(op.add(var((2, 3)), var((2, 4))))


def test_dtypes_that_differ_are_refused() -> None:
    message = "relax.multiply: expected arguments of one dtype, found float32 and int32; convert one with astype"
    with pytest.raises(TypeMismatch, match=re.escape(message)):
        infer(op.multiply(var((2, 3)), var((2, 3), "int32")))


def test_two_numbers_are_refused() -> None:
    with pytest.raises(TypeMismatch, match=re.escape("relax.add: expected at least one tensor, found two numbers")):
        infer(op.add(relax.PrimValue(1), relax.PrimValue(2)))


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeMismatch, match=re.escape("relax.add: argument 1 must be a tensor, found")):
        infer(op.add(var((2,)), relax.Var("s", relax.ShapeStructInfo((2,)))))
