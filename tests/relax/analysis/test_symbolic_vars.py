"""Symbolic variables that get a value inside of a function, and those that do not."""

from __future__ import annotations

from oneir import relax, tir
from oneir.relax import BlockBuilder, ShapeStructInfo, TensorStructInfo
from oneir.relax.analysis import defined_symbolic_vars, free_symbolic_vars


def symbols(*names):
    return [tir.Var(name, "int64") for name in names]


def names(variables):
    return [v.name for v in variables]


def test_parameters_define_extents_that_stand_alone():
    n, m = symbols("n", "m")
    x = relax.Var("x", TensorStructInfo((n, m + 1), "float32"))
    y = relax.Var("y", ShapeStructInfo([m]))
    func = relax.Function([x, y], x, TensorStructInfo((n, m + 1), "float32"))
    assert names(defined_symbolic_vars(func)) == ["n", "m"]
    assert not free_symbolic_vars(func)


def test_an_extent_inside_of_an_expression_defines_nothing():
    (n,) = symbols("n")
    x = relax.Var("x", TensorStructInfo((n * 2,), "float32"))
    func = relax.Function([x], x, TensorStructInfo((n * 2,), "float32"))
    assert not defined_symbolic_vars(func)
    assert names(free_symbolic_vars(func)) == ["n"]


def test_a_cast_defines():
    n, m = symbols("n", "m")
    x = relax.Var("x", TensorStructInfo(dtype="float32", ndim=1))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        y = builder.match_cast(x, TensorStructInfo((n,), "float32"))
        shape = builder.emit(relax.ShapeExpr([n, m]))
        builder.emit_func_output(relax.Tuple([y, shape]))
    func = builder.finalize()["main"]
    assert names(defined_symbolic_vars(func)) == ["n"]
    assert names(free_symbolic_vars(func)) == ["m"]


def test_a_number_uses_its_variable():
    n, _ = symbols("n", "m")
    assert names(free_symbolic_vars(relax.PrimValue(n + 1))) == ["n"]


def test_the_declared_result_uses():
    n, m = symbols("n", "m")
    x = relax.Var("x", TensorStructInfo((n,), "float32"))
    func = relax.Function([x], x, TensorStructInfo((m,), "float32"))
    assert names(free_symbolic_vars(func)) == ["m"]


def test_what_a_call_is_said_to_give_uses():
    (n,) = symbols("n")
    call = relax.Call(relax.extern("make"), [], sinfo_args=[TensorStructInfo((n,), "float32")])
    assert names(free_symbolic_vars(call)) == ["n"]
