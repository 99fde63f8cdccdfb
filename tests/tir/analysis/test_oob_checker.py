"""OOBChecker: accesses that certainly leave their buffer are refused, all at once; doubtful ones are not."""

from __future__ import annotations

import pytest

from oneir.ir.module import IRModule
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.analysis import OOBChecker


def check(func):
    mod = IRModule({"main": func})
    assert OOBChecker()(mod) is mod


def test_accesses_in_bounds():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = B[7 - vi]

    check(func)


def test_accesses_out_of_bounds_are_all_named():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj + 1] = B[vi - 1]

    message = r"(?s)`main`: dimension 1 of `A` has 8 elements; .* reaches 8.*dimension 0 of `B`.* reaches -1"
    with pytest.raises(InvalidValue, match=message):
        check(func)


def test_symbolic_extents():
    @T.prim_func
    def func(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            A[i + 1] = T.float32(0)

    with pytest.raises(InvalidValue, match="dimension 0 of `A` has n elements; the index i \\+ 1 reaches n"):
        check(func)


def test_what_stands_under_a_condition_may_not_run():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(10):
            if i < 8:
                A[i] = T.if_then_else(i > 0, B[i - 1], T.float32(0))

    check(func)
