"""`topi.cpp`: the functions of `topi` with the positional parameters of the published native library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oneir import te, topi
from oneir.ir import assert_structural_equal
from oneir.runtime.error import InvalidValue

A = te.placeholder((1, 3, 8, 8), "float32", "A")
LINE, CUBE = te.placeholder((1, 3, 8), "float32", "A"), te.placeholder((1, 3, 4, 4, 4), "float32", "A")
GRADS = te.placeholder((1, 3, 4, 4), "float32", "G")
INDICES = te.placeholder((2,), "int32", "I")

CASES: dict[str, tuple[list[te.Tensor], Callable[..., Any], Callable[..., Any]]] = {
    "add": ([A], lambda a: topi.cpp.add(a, a), lambda a: topi.add(a, a)),
    "sum": ([A], lambda a: topi.cpp.sum(a, [1], True), lambda a: topi.sum(a, axis=[1], keepdims=True)),
    "take": (
        [A, INDICES],
        lambda a, i: topi.cpp.take(a, i, 0, 2, "clip"),
        lambda a, i: topi.take(a, i, axis=2, mode="clip"),
    ),
    "take of a vector": (
        [A, INDICES],
        lambda a, i: topi.cpp.take(a, i, 0, "wrap"),
        lambda a, i: topi.take(a, i, mode="wrap"),
    ),
    "pool1d": (
        [LINE],
        lambda a: topi.cpp.nn.pool1d(a, [2], [2], [1], [0, 0], 0, False, "NCW", True),
        lambda a: topi.nn.pool1d(a, [2], [2], [1], [0, 0], "avg", False, "NCW", True),
    ),
    "pool2d": (
        [A],
        lambda a: topi.cpp.nn.pool2d(a, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], 1, True, "NCHW", False),
        lambda a: topi.nn.pool2d(a, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", True, "NCHW", False),
    ),
    "pool3d": (
        [CUBE],
        lambda a: topi.cpp.nn.pool3d(a, [2] * 3, [2] * 3, [1] * 3, [0] * 6, 1, False, "NCDHW", True),
        lambda a: topi.nn.pool3d(a, [2] * 3, [2] * 3, [1] * 3, [0] * 6, "max", False, "NCDHW", True),
    ),
    "pool_grad": (
        [GRADS, A],
        lambda g, a: topi.cpp.nn.pool_grad(g, a, [2, 2], [2, 2], [0] * 4, 0, False, "NCHW", False),
        lambda g, a: topi.nn.pool_grad(g, a, [2, 2], [2, 2], [0] * 4, "avg", False, False, "NCHW"),
    ),
    "global_pool": (
        [A],
        lambda a: topi.cpp.nn.global_pool(a, 0, "NCHW"),
        lambda a: topi.nn.global_pool(a, "avg", "NCHW"),
    ),
    "adaptive_pool1d": (
        [LINE],
        lambda a: topi.cpp.nn.adaptive_pool1d(a, [2], 1, "NCW"),
        lambda a: topi.nn.adaptive_pool1d(a, [2], "max", "NCW"),
    ),
    "adaptive_pool": (
        [A],
        lambda a: topi.cpp.nn.adaptive_pool(a, [2, 3], 0, "NCHW"),
        lambda a: topi.nn.adaptive_pool(a, [2, 3], "avg", "NCHW"),
    ),
    "adaptive_pool3d": (
        [CUBE],
        lambda a: topi.cpp.nn.adaptive_pool3d(a, [2] * 3, 0, "NCDHW"),
        lambda a: topi.nn.adaptive_pool3d(a, [2] * 3, "avg", "NCDHW"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_positional_functions_are_those_of_topi(name: str) -> None:
    inputs, positional, named = CASES[name]
    found, expected = (te.create_prim_func([*inputs, f(*inputs)]) for f in (positional, named))
    assert_structural_equal(found, expected)


def test_what_takes_the_same_arguments_is_the_function_of_topi() -> None:
    assert topi.cpp.exp is topi.exp and topi.cpp.nn.softmax is topi.nn.softmax
    assert topi.cpp.utils.is_empty_shape((3, 0)) and topi.cpp.vision.nms is topi.vision.nms


def test_kinds_of_pools_are_two_numbers() -> None:
    with pytest.raises(InvalidValue, match=r"expected 0 \(average\) or 1 \(maximum\) as the kind of a pool, found 2"):
        topi.cpp.nn.global_pool(A, 2, "NCHW")
    with pytest.raises(InvalidValue, match="found 'max'"):
        topi.cpp.nn.global_pool(A, "max", "NCHW")
    with pytest.raises(AttributeError, match="no attribute 'no_such_function'"):
        _ = topi.cpp.no_such_function
