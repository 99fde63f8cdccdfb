"""The variable that an extent of a parameter tells: solved, bound by callers' tensors, and checked."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir.ir.expr import const
from oneir.runtime.error import InvalidValue, ShapeMismatch
from oneir.script import tir as T
from oneir.script.parser.module import IllFormedScript
from oneir.testing import interpret
from oneir.tir.analysis.symbolic_extents import solve_extent

n, m = oneir.tir.Var("n", "int64"), oneir.tir.Var("m", "int32")


@pytest.mark.parametrize(
    ("declared", "solution"),
    [
        (lambda x: x, 7),
        (lambda x: x * 32, 5),
        (lambda x: 3 + 2 * x, -4),
        (lambda x: (x - 1) * 6 + 2 - 9, 11),
        (lambda x: x * -2 + 40, 3),
    ],
)
def test_the_variable_of_an_equation_that_has_a_solution(declared, solution):
    var, value = solve_extent(declared(n), const(declared(solution), "int64"), ())
    assert var is n and value.value == solution


@pytest.mark.parametrize("declared", [n * n, n + m, n * oneir.tir.const(0, "int64"), 4 - n, oneir.tir.max(n, 1)])
def test_what_is_no_multiple_of_a_variable_tells_nothing(declared):
    assert solve_extent(declared, const(4, "int64"), ()) is None


def test_a_known_variable_is_not_told_again():
    assert solve_extent(n * 4, const(4, "int64"), {n}) is None


@T.prim_func
def numbers(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int32()
    A = T.match_buffer(a, (n * 32 - 1,), "int64")
    B = T.match_buffer(b, (n, 3 + 2 * m), "int32")
    A[0] = n
    B[0, 0] = m


def run_native(*arrays):
    tensors = [oneir.runtime.tensor(array) for array in arrays]
    oneir.compile(numbers)(*tensors)
    for array, value in zip(arrays, tensors, strict=True):
        array[...] = value.numpy()


@pytest.mark.parametrize("run", [run_native, lambda *arrays: interpret(numbers, *arrays)])
def test_calls_find_the_values_in_the_extents(run):
    a, b = np.zeros(63, "int64"), np.zeros((2, 9), "int32")
    run(a, b)
    assert (a[0], b[0, 0]) == (2, 3)
    for shapes in ((62, (2, 9)), (63, (2, 8)), (95, (2, 9))):
        with pytest.raises((ShapeMismatch, InvalidValue), match="expected"):
            run(np.zeros(shapes[0], "int64"), np.zeros(shapes[1], "int32"))


def test_extents_that_tell_nothing_need_another_parameter():
    with pytest.raises(IllFormedScript, match="`n` is used but never defined"):

        @T.prim_func
        def square(a: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n * n,), "float32")
            A[0] = T.float32(0)
