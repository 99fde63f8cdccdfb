"""verify_ssa: whether each variable has one definition."""

from __future__ import annotations

from oneir.script import tir as T
from oneir.tir import Evaluate, For, ForKind, LetStmt, PrimFunc, SeqStmt, Var, const
from oneir.tir.analysis import verify_ssa


def test_one_definition_each():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(0)
        for i in range(8):
            A[i] = A[i] + T.float32(1)

    assert verify_ssa(func)


def test_two_definitions():
    i = Var("i", "int32")
    loop = For(i, 0, 8, ForKind.SERIAL, Evaluate(i))
    assert verify_ssa(PrimFunc([], loop))
    assert not verify_ssa(PrimFunc([], SeqStmt([loop, loop])))
    assert not verify_ssa(PrimFunc([], For(i, 0, 8, ForKind.SERIAL, LetStmt(i, const(0), Evaluate(i)))))
    assert not verify_ssa(PrimFunc([i], loop))


def test_one_thread_may_be_launched_twice():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        tx = T.env_thread("threadIdx.x")
        with T.launch_thread(tx, 8):
            A[tx] = T.float32(0)
        with T.launch_thread(tx, 8):
            A[tx] = A[tx] + T.float32(1)

    assert verify_ssa(func)
