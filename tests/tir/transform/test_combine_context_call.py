"""CombineContextCall: one question for equal contexts in each thread."""

from __future__ import annotations

from pass_checks import apply, check, unchanged

from oneir.ir.expr import Call, const
from oneir.script import tir as T
from oneir.tir import Evaluate, For, ForKind, PrimFunc, SeqStmt, Var
from oneir.tir.transform import CombineContextCall


def ask(name):
    return Call("handle", "tir.tvm_thread_context", [Call("handle", "tir.call_extern", [name])])


def use(name):
    return Evaluate(Call("int32", "tir.call_extern", ["use", ask(name)]))


def test_equal_contexts_are_asked_for_once():
    before = PrimFunc([], SeqStmt([use("a"), use("b"), use("a")]))

    @T.prim_func
    def expected():
        a: T.handle = T.call_extern("handle", "a")
        b: T.handle = T.call_extern("handle", "b")
        T.call_extern("int32", "use", a)
        T.call_extern("int32", "use", b)
        T.call_extern("int32", "use", a)

    check(CombineContextCall(), before, expected, numbers=False)


def test_each_thread_asks_for_itself():
    body = SeqStmt([use("a"), use("a")])
    before = PrimFunc([], SeqStmt([use("a"), For(Var("i", "int32"), 0, 8, ForKind.PARALLEL, body)]))
    text = apply(CombineContextCall(), before).script()
    assert text.count('T.call_extern("handle", "a")') == 2
    assert text.index("T.parallel") < text.rindex('T.call_extern("handle", "a")')


def test_functions_without_contexts_stay():
    unchanged(CombineContextCall(), PrimFunc([], Evaluate(Call("int32", "tir.call_extern", ["use", const(1)]))))
