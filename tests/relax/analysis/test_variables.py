"""Variables that an expression uses and defines, and the order in which expressions are visited."""

from __future__ import annotations

import pytest

from oneir import relax, tir
from oneir.ir.expr import GlobalVar
from oneir.relax import BlockBuilder, TensorStructInfo
from oneir.relax.analysis import all_global_vars, all_vars, bound_vars, free_vars, post_order_visit
from oneir.runtime.error import TypeMismatch


def tensor(name, shape=(2, 3)):
    return relax.Var(name, TensorStructInfo(shape, "float32"))


def names(variables):
    return [v.name_hint for v in variables]


def two_steps():
    """main(x): y = exp(x); z = add(y, x) in a dataflow block; returns z."""
    x, builder = tensor("x"), BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.exp(x), "y")
            z = builder.emit_output(relax.op.add(y, x), "z")
        builder.emit_func_output(z)
    return builder.finalize()["main"]


def test_a_function_binds_parameters_and_bindings():
    func = two_steps()
    assert names(bound_vars(func)) == ["x", "y", "z"]
    assert names(all_vars(func)) == ["x", "y", "z"]
    assert not free_vars(func)


def test_a_body_alone_leaves_the_parameters_free():
    func = two_steps()
    assert free_vars(func.body)[0] is func.params[0]
    assert names(free_vars(func.body)) == ["x"]
    assert names(bound_vars(func.body)) == ["y", "z"]


def test_free_variables_come_in_the_order_of_their_first_use():
    a, b, c = tensor("a"), tensor("b"), tensor("c")
    assert names(free_vars(relax.op.add(relax.op.add(b, a), relax.op.add(c, b)))) == ["b", "a", "c"]


def test_variables_of_one_name_are_different():
    first, second = tensor("x"), tensor("x")
    found = free_vars(relax.op.add(first, second))
    assert len(found) == 2 and found[0] is first and found[1] is second


def test_a_variable_that_holds_a_shape_is_used_by_struct_info():
    shape = relax.Var("shape", relax.ShapeStructInfo(ndim=2))
    call = relax.Call(relax.extern("make"), [], sinfo_args=[TensorStructInfo(shape, "float32")])
    assert names(free_vars(call)) == ["shape"]
    param = relax.Var("x", TensorStructInfo(shape, "float32"))
    assert names(free_vars(relax.Function([param], param))) == ["shape"]


def test_a_local_function_hides_its_parameters():
    outer, inner = tensor("outer"), tensor("inner")
    func = relax.Function([inner], relax.op.add(inner, outer), TensorStructInfo((2, 3), "float32"))
    assert names(free_vars(func)) == ["outer"]
    assert names(bound_vars(func)) == ["inner"]


def test_global_variables_are_found_once_each():
    f, g, x = GlobalVar("f"), GlobalVar("g"), tensor("x")
    call = relax.Call(g, [relax.Call(f, [x]), relax.Call(g, [x])])
    assert names(all_global_vars(call)) == ["g", "f"]


def test_post_order_visits_parts_first():
    x, y = tensor("x"), tensor("y")
    product = relax.op.add(x, y)
    total = relax.Tuple([product, x])
    visited = []
    post_order_visit(total, visited.append)
    assert [v for v in visited if v is product or v is total] == [product, total]
    assert visited.index(x) < visited.index(product) < visited.index(total)
    assert sum(v is x for v in visited) == 2


def test_a_deep_expression_is_walked():
    x = tensor("x")
    expr = x
    for _ in range(5_000):
        expr = relax.op.exp(expr)
    assert names(free_vars(expr)) == ["x"]


def test_loops_are_no_graph():
    loops = tir.PrimFunc([], tir.Evaluate(0))
    with pytest.raises(TypeMismatch, match="a PrimFunc is no part of a graph"):
        free_vars(loops)
