"""BindUnboundStatements: nothing for a device is left without threads."""

from __future__ import annotations

import numpy as np
import pytest

from oneir.ir import IRModule
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir.analysis import verify_memory
from oneir.tir.transform import BindUnboundStatements


def bound(func):
    return BindUnboundStatements()(IRModule({"main": func.with_attr("target", Target("opencl", host="llvm"))}))["main"]


@T.prim_func
def rows(A: T.Buffer((1000,), "float32"), B: T.Buffer((10,), "float32")):
    for i in T.parallel(10):
        B[i] = T.float32(0)
        for k in range(100):
            B[i] = B[i] + A[i * 100 + k]


@T.prim_func
def serial(A: T.Buffer((1000,), "float32"), B: T.Buffer((10,), "float32")):
    B[0] = A[0]
    for i in range(1, 10):
        B[i] = B[i - 1] + A[i]


@T.prim_func
def mixed(A: T.Buffer((1000,), "float32"), B: T.Buffer((10,), "float32")):
    for i in T.parallel(10):
        B[i] = A[i]
    B[9] = B[8] * T.float32(3)


@pytest.mark.parametrize(("func", "axes"), [(rows, 2), (serial, 1), (mixed, 3)], ids=["rows", "serial", "mixed"])
def test_bound_functions_compute_the_same(func, axes):
    new = bound(func)
    assert verify_memory(new) and new.script().count("launch_thread") == axes
    a = np.random.default_rng(0).random(1000, dtype="float32")
    found, expected = np.zeros(10, "float32"), np.zeros(10, "float32")
    interpret(new, a, found)
    interpret(func, a, expected)
    np.testing.assert_array_equal(found, expected)


def test_memory_of_unknown_size_is_allocated_for_all_threads():
    @T.prim_func
    def scratch(n: T.int32, B: T.Buffer((10,), "float32")):
        for i in T.parallel(10):
            data = T.allocate([n], "float32", "global")
            S = T.Buffer((n,), "float32", data=data)
            for k in range(n):
                S[k] = T.Cast("float32", i * k)
            B[i] = S[n - 1]

    new = bound(scratch)
    text = new.script()
    assert text.index("allocate") < text.index("launch_thread")
    found = np.zeros(10, "float32")
    interpret(new, 5, found)
    np.testing.assert_array_equal(found, np.arange(10) * 4)


def test_functions_for_processors_are_left_as_they_are():
    mod = IRModule({"main": rows.with_attr("target", Target("llvm"))})
    assert BindUnboundStatements()(mod) is mod
