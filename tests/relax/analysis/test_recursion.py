"""Groups of functions that call one another."""

from __future__ import annotations

from oneir import IRModule, relax
from oneir.ir.expr import GlobalVar
from oneir.relax import TensorStructInfo
from oneir.relax.analysis import detect_recursion

INFO = TensorStructInfo((2,), "float32")


def module(**calls):
    """A function for each name, which calls those listed, one after the other."""
    variables = {name: GlobalVar(name) for name in calls}
    functions = {}
    for name, callees in calls.items():
        x = relax.Var("x", INFO)
        value = x
        for callee in callees:
            value = relax.Call(variables[callee], [value])
        functions[variables[name]] = relax.Function([x], value, INFO)
    return IRModule(functions)


def groups(mod):
    return [[v.name_hint for v in group] for group in detect_recursion(mod)]


def test_calls_in_one_direction_are_no_recursion():
    assert groups(module(a=["b", "c"], b=["c"], c=[])) == []


def test_a_function_that_calls_itself():
    assert groups(module(a=["a"], b=["a"])) == [["a"]]


def test_functions_that_call_one_another():
    assert groups(module(a=["b"], b=["c"], c=["a"], d=["a"])) == [["a", "b", "c"]]


def test_cycles_that_share_a_function_are_one_group():
    assert groups(module(a=["b", "c"], b=["a"], c=["a"])) == [["a", "b", "c"]]


def test_separate_cycles_are_separate_groups():
    assert groups(module(a=["b"], b=["a", "c"], c=["d"], d=["c"])) == [["a", "b"], ["c", "d"]]


def test_a_long_chain_is_no_problem():
    count = 3_000
    calls = {f"f{i}": [f"f{(i + 1) % count}"] for i in range(count)}
    (group,) = groups(module(**calls))
    assert len(group) == count
