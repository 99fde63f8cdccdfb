"""Analyses of modules of graphs and loops."""

from __future__ import annotations

from oneir.ir import IRModule
from oneir.ir.analysis import collect_call_map
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


@I.ir_module
class Calls:
    @T.prim_func(private=True)
    def increment(x: T.int32) -> T.int32:
        return x + 1

    @T.prim_func(private=True)
    def twice(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            B[i] = Calls.increment(A[i]) + Calls.increment(i)

    @R.function
    def main(x: R.Tensor((4,), "int32")) -> R.Tensor((4,), "int32"):
        cls = Calls
        y = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((4,), "int32"))
        return cls.again(cls.same(y))

    @R.function
    def again(x: R.Tensor((4,), "int32")) -> R.Tensor((4,), "int32"):
        return Calls.again(x)

    @R.function
    def same(x: R.Tensor((4,), "int32")) -> R.Tensor((4,), "int32"):
        return x


def test_calls_of_graphs_and_of_loops_are_collected():
    found = {
        var.name_hint: [callee.name_hint for callee in callees] for var, callees in collect_call_map(Calls).items()
    }
    assert found == {
        "increment": [],
        "twice": ["increment"],
        "main": ["twice", "same", "again"],
        "again": ["again"],
        "same": [],
    }


def test_what_is_collected_are_the_variables_of_the_module():
    calls = collect_call_map(Calls)
    assert all(callee in Calls.functions for callees in calls.values() for callee in callees)
    assert collect_call_map(IRModule({})) == {}
