"""undefined_vars: what a piece of a program uses from outside."""

from __future__ import annotations

from oneir.script import tir as T
from oneir.tir import BufferStore, Evaluate, For, ForKind, Let, LetStmt, SeqStmt, Var, const, decl_buffer
from oneir.tir.analysis import undefined_vars

A = decl_buffer((8,), "float32", name="A")
i, j, n = (Var(name, "int32") for name in "ijn")


def test_variables_of_an_expression_in_order():
    assert list(undefined_vars(i + j * n)) == [i, j, n]
    assert list(undefined_vars(i + j * n, [j])) == [i, n]
    assert list(undefined_vars(Let(i, n + 1, i * j))) == [n, j]


def test_a_loop_defines_its_variable():
    loop = For(i, 0, n, ForKind.SERIAL, BufferStore(A, const(0.0), [i + j]))
    assert list(undefined_vars(loop)) == [n, A.data, j]


def test_a_definition_ends_with_its_scope():
    stmt = SeqStmt([LetStmt(i, const(1), Evaluate(i)), Evaluate(i + 1)])
    assert list(undefined_vars(stmt)) == [i]


def test_a_whole_function_leaves_nothing_undefined():
    @T.prim_func
    def func(a: T.handle, b: T.handle):
        m = T.int32()
        X = T.match_buffer(a, (m,), "float32")
        Y = T.match_buffer(b, (m * 2,), "float32")
        tmp = T.alloc_buffer((m,))
        for k in range(m):
            with T.block("copy"):
                vk = T.axis.spatial(m, k)
                tmp[vk] = X[vk]
                Y[vk * 2] = tmp[vk]

    assert list(undefined_vars(func)) == []
