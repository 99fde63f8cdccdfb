"""InjectVirtualThread: what runs for each thread, what runs once, and who gets memory of its own."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, unchanged

from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir.transform import InjectVirtualThread, Simplify


def expect(before, expected):
    """Compares what becomes of `before` once it is simplified, as pipelines do, and gives what it was before that."""
    injected = apply(InjectVirtualThread(), before)
    after = apply(Simplify(), injected)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))
    return injected


def test_memory_that_differs_is_there_for_each_thread():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        vt = T.env_thread("vthread")
        with T.attr(T.iter_var(vt, None, "ThreadIndex", "vthread"), "virtual_thread", 2):
            B_data = T.allocate([4], "float32", "local")
            B = T.Buffer((4,), data=B_data, scope="local")
            for i in range(4):
                B[i] = A[vt * 4 + i]
            for i in range(4):
                C[vt * 4 + i] = B[3 - i]

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B_data = T.allocate([8], "float32", "local")
        B = T.Buffer((8,), data=B_data, scope="local")
        for i in range(4):
            B[i] = A[i]
            B[i + 4] = A[i + 4]
        for i in range(4):
            C[i] = B[3 - i]
            C[i + 4] = B[7 - i]

    after = expect(before, expected)
    a, c = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    interpret(after, a, c)
    np.testing.assert_array_equal(c, [3, 2, 1, 0, 7, 6, 5, 4])


def test_what_does_not_depend_on_the_thread_runs_once():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        vt = T.env_thread("vthread")
        with T.attr(T.iter_var(vt, None, "ThreadIndex", "vthread"), "virtual_thread", 2):
            B_data = T.allocate([4], "float32", "local")
            B = T.Buffer((4,), data=B_data, scope="local")
            B[0] = A[0]
            if vt < 1:
                C[vt] = B[0]

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B_data = T.allocate([4], "float32", "local")
        B = T.Buffer((4,), data=B_data, scope="local")
        B[0] = A[0]
        C[0] = B[0]

    expect(before, expected)


def test_many_threads_are_a_loop_and_what_a_condition_decides_is_private():
    @T.prim_func
    def before(C: T.Buffer((32,), "int32")):
        vt = T.env_thread("vthread")
        with T.attr(T.iter_var(vt, None, "ThreadIndex", "vthread"), "virtual_thread", 32):
            B_data = T.allocate([1], "int32", "local")
            B = T.Buffer((1,), "int32", data=B_data, scope="local")
            B[0] = 1
            if vt > 15:
                B[0] = 2
            C[vt] = B[0]

    after = apply(InjectVirtualThread(), before)
    c = np.zeros(32, "int32")
    interpret(after, c)
    np.testing.assert_array_equal(c, [1] * 16 + [2] * 16)
    assert "virtual_thread" not in after.script()
    assert "range(32)" in after.script()


def test_a_loop_whose_length_depends_on_the_thread_is_replicated_as_a_whole():
    @T.prim_func
    def before(C: T.Buffer((8,), "int32")):
        vt = T.env_thread("vthread")
        with T.attr(T.iter_var(vt, None, "ThreadIndex", "vthread"), "virtual_thread", 2):
            for i in range(vt + 1):
                C[vt * 4 + i] = 7

    after = apply(InjectVirtualThread(), before)
    c = np.zeros(8, "int32")
    interpret(after, c)
    np.testing.assert_array_equal(c, [7, 0, 0, 0, 7, 7, 0, 0])


def test_functions_without_virtual_threads_stay():
    @T.prim_func
    def func(C: T.Buffer((8,), "int32")):
        for i in range(8):
            C[i] = i

    unchanged(InjectVirtualThread(), func)


def test_the_number_of_threads_must_be_constant():
    @T.prim_func
    def func(C: T.Buffer((8,), "int32"), n: T.int32):
        vt = T.env_thread("vthread")
        with T.attr(T.iter_var(vt, None, "ThreadIndex", "vthread"), "virtual_thread", n):
            C[vt] = 0

    with pytest.raises(InvalidValue, match="virtual threads vt must be a constant, found n"):
        apply(InjectVirtualThread(), func)
