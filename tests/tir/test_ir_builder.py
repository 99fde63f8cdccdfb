"""Loops built by calls compute what the same loops in a script do."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import tir
from oneir.ir import assert_structural_equal
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir import ir_builder


def test_loops_conditions_and_memory():
    A = tir.decl_buffer((4, 6), "float32", name="A")
    B = tir.decl_buffer((4, 6), "float32", name="B")
    ib = ir_builder.create()
    a, b = ib.buffer_ptr(A), ib.buffer_ptr(B)
    with ib.for_range(0, 4) as i:
        row = ib.allocate("float32", (6,), name="row", scope="global")
        with ib.for_range(1, 6) as j:
            with ib.if_scope(ib.likely(j % 2 == 0)):
                row[j] = a[i, j] * 2.0
            with ib.else_scope():
                row[j] = a[i * 6 + j]
            b[i, j] = row[j]
    a_param, b_param = tir.Var("a", "handle"), tir.Var("b", "handle")
    func = tir.PrimFunc([a_param, b_param], ib.get(), buffer_map={a_param: A, b_param: B})
    x, out = np.random.rand(4, 6).astype("float32"), np.zeros((4, 6), "float32")
    interpret(func, x, out)
    expected = np.where(np.arange(6) % 2 == 0, x * 2, x)
    expected[:, 0] = 0
    np.testing.assert_allclose(out, expected)
    assert [func.body.loop_var.name, func.body.body.body.loop_var.name] == ["i", "j"]


def test_the_statements_are_those_of_a_script():
    n = tir.Var("n", "int32")
    A = tir.decl_buffer((16,), "float32", name="A")
    handle = tir.Var("A_handle", "handle")
    ib = ir_builder.create()
    thread = tir.Var("tx", "int32")
    iter_var = tir.IterVar(None, thread, tir.IterVar.ThreadIndex, "threadIdx.x")
    with ib.new_scope():
        ib.scope_attr(iter_var, "thread_extent", n)
        m = ib.let("m", n + 1)
        ib.emit(tir.call_extern("int32", "f", m))
    counter = ib.allocate("int32", 1, name="counter", scope="local")
    with ib.while_loop(counter[0] < n):
        counter[0] = counter[0] + 1
    with ib.for_range(0, 16, name="v", kind="vectorize") as v:
        ib.buffer_ptr(A)[v] = 0.0

    @T.prim_func(private=True)
    def expected(n: T.int32, A: T.Buffer((16,), "float32")):
        tx = T.env_thread("threadIdx.x")
        thread = T.meta_var(T.iter_var(tx, None, "ThreadIndex", "threadIdx.x"))
        with T.attr(thread, "thread_extent", T.max(1, n)), T.LetStmt(n + 1) as m:
            T.call_extern("int32", "f", m)
        pointer = T.allocate([1], "int32", "local")
        counter = T.Buffer((1,), "int32", data=pointer, scope="local")
        while counter[0] < n:
            counter[0] = counter[0] + 1
        for v in T.vectorized(16):
            A[v] = T.float32(0)

    func = tir.PrimFunc([n, handle], ib.get(), buffer_map={handle: A})
    assert_structural_equal(func, expected, map_free_vars=True)


def test_refusals():
    ib = ir_builder.create()
    A = ib.pointer("float32", name="A")
    with pytest.raises(TypeMismatch, match="`A` holds elements of dtype float32, found int32"):
        A[0] = 1
    with pytest.raises(InvalidValue, match="an else_scope follows an if_scope"):
        ib.else_scope()
    with pytest.raises(InvalidValue, match=r"expected a kind of loop among serial, .*, found 'fast'"):
        ib.for_range(0, 4, kind="fast")
    with ib.for_range(0, 4), pytest.raises(InvalidValue, match=r"call get\(\) after the outermost `with`"):
        ib.get()
    assert isinstance(ir_builder.create().get(), tir.Evaluate)
