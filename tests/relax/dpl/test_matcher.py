"""Which expressions a pattern matches, and what its parts are found to be."""

from __future__ import annotations

from typing import Any

import pytest

from oneir import relax, tir
from oneir.ir.op import Op
from oneir.relax import dpl
from oneir.relax.analysis import get_var2val
from oneir.relax.dpl import is_const, is_expr, is_op, is_tuple, is_var, wildcard
from oneir.relax.struct_info import TensorStructInfo
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

x = relax.Var("x", TensorStructInfo((2, 3), "float32"))
y = relax.Var("y", TensorStructInfo((2, 3), "float32"))
z = relax.Var("z", TensorStructInfo((2, 3), "float32"))


@R.function
def chain(a: R.Tensor((2, 3), "float32"), b: R.Tensor((3,), "float32")) -> R.Tensor((2, 3), "float32"):
    with R.dataflow():
        lv = R.add(a, b)
        lv1 = R.nn.relu(lv)
        lv2 = R.multiply(lv1, R.const(2.0, "float32"))
        gv = R.add(lv2, lv)
        R.output(gv)
    return gv


VALUES = get_var2val(chain)
VAR = {var.name: var for var in VALUES}


@pytest.mark.parametrize(
    ("pattern", "expr", "matches"),
    [
        (wildcard(), x, True),
        (is_expr(x), x, True),
        (is_expr(x), y, False),
        (is_expr(relax.const(1.0)), relax.const(1.0), True),
        (is_expr(relax.const(1.0)), relax.const(2.0), False),
        (is_var(), x, True),
        (is_var("x"), x, True),
        (is_var("x"), y, False),
        (dpl.is_dfv(), x, False),
        (dpl.is_dfv("d"), relax.DataflowVar("d"), True),
        (dpl.is_gv("ain"), relax.expr.GlobalVar("main"), True),
        (dpl.is_gv("other"), relax.expr.GlobalVar("main"), False),
        (dpl.ExternFuncPattern("f"), relax.extern("f"), True),
        (dpl.ExternFuncPattern("g"), relax.extern("f"), False),
        (is_const(), relax.const([1, 2]), True),
        (is_const(), x, False),
        (is_op("relax.add"), Op.get("relax.add"), True),
        (is_op("relax.add"), Op.get("relax.exp"), False),
        (dpl.is_shape((2, 3)), relax.ShapeExpr((2, 3)), True),
        (dpl.is_shape((2, 3)), relax.ShapeExpr((2, 4)), False),
        (dpl.is_shape((2, 3)), x, False),
        (wildcard().has_dtype("float32"), x, True),
        (dpl.has_dtype("float16"), x, False),
        (wildcard().has_shape((2, 3)), x, True),
        (wildcard().has_shape([2, 3, 1]), x, False),
        (is_tuple([is_var("x"), is_var("y")]), relax.Tuple([x, y]), True),
        (is_tuple([is_var("y"), is_var("x")]), relax.Tuple([x, y]), False),
        (is_tuple([is_var("y"), is_var("x")], unordered=True), relax.Tuple([x, y]), True),
        (is_tuple([is_var("y"), is_var("y")], unordered=True), relax.Tuple([x, y]), False),
        (is_tuple([wildcard()]), relax.Tuple([x, y]), False),
        (is_var("x") | is_var("y"), y, True),
        (is_var("x") | is_var("y"), z, False),
        (is_var() & wildcard().has_dtype("float32"), x, True),
        (is_var("x") & is_var("y"), x, False),
        (~is_var("x"), y, True),
        (~is_var("x"), x, False),
        (is_op("relax.add")(is_var("x"), is_var("y")), R.add(x, y), True),
        (is_op("relax.add")(is_var("y"), is_var("x")), R.add(x, y), True),
        (is_op("relax.subtract")(is_var("y"), is_var("x")), R.subtract(x, y), False),
        (is_op("relax.add")(is_var("x")), R.add(x, y), False),
        (wildcard()(is_var("x"), varg_default_wildcard=True), R.add(x, y), True),
        (dpl.is_call_packed("f"), relax.Call(relax.extern("f"), [x, y]), True),
        (dpl.is_call_packed("f", [wildcard()]), relax.Call(relax.extern("f"), [x, y]), False),
        (dpl.is_call_packed("f", [wildcard(), is_var("y")]), relax.Call(relax.extern("f"), [x, y]), True),
        (dpl.has_attr({"axis": 1}), relax.op.concat([x, y], 1), True),
        (dpl.has_attr({"axis": 0}), relax.op.concat([x, y], 1), False),
        (dpl.has_attr({"no": 0}), relax.op.concat([x, y], 1), False),
        (is_op("relax.add").has_attr({"TOpPattern": 1}), Op.get("relax.add"), True),
        (is_op("relax.add").has_attr({"TOpPattern": 0}), Op.get("relax.add"), False),
        (dpl.has_attr({"k": "v"}), chain.with_attr("k", "v"), True),
        (dpl.has_attr({"k": "v"}), chain, False),
    ],
)
def test_one_expression(pattern: dpl.DFPattern, expr: Any, matches: bool) -> None:
    assert pattern.match(expr) is matches
    # The opposite pattern matches everything else, and neither remembers anything.
    assert (~pattern).match(expr) is not matches
    assert pattern.match(expr) is matches


def test_calls_of_loops_and_of_packed_functions() -> None:
    loops = relax.op.call_tir(relax.expr.GlobalVar("mul"), (x, y), TensorStructInfo((2, 3), "float32"))
    packed = relax.op.call_dps_packed("mul", (x, y), TensorStructInfo((2, 3), "float32"))
    assert dpl.is_call_tir("mul").match(loops) and not dpl.is_call_tir("add").match(loops)
    assert dpl.is_call_tir("mul", [is_var("x"), wildcard()]).match(loops)
    assert not dpl.is_call_tir("mul", [is_var("y"), wildcard()]).match(loops)
    assert not dpl.is_call_tir("mul", None, wildcard()).match(loops)
    assert dpl.is_call_dps_packed("mul", [wildcard(), is_var("y")]).match(packed)
    assert not dpl.is_call_dps_packed("other").match(packed)


def test_values_of_variables_are_looked_at_where_they_are_given() -> None:
    relu = is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard()))
    assert not relu.match(VAR["lv1"])
    assert relu.match(VAR["lv1"], VALUES)
    # A variable whose value is known stands for that value.
    assert not is_var("lv1").match(VAR["lv1"], VALUES) and is_var("a").match(chain.params[0], VALUES)


def test_what_is_found_is_the_value_of_each_part() -> None:
    a, relu, scale = wildcard(), is_op("relax.nn.relu")(wildcard()), is_const()
    pattern = is_op("relax.add")(is_op("relax.multiply")(scale, relu), a)
    found = pattern.extract_matched_expr(VAR["gv"], VALUES)
    assert found is not None
    assert found[pattern] is VALUES[VAR["gv"]] and found[relu] is VALUES[VAR["lv1"]] and found[a] is VALUES[VAR["lv"]]
    assert isinstance(found[scale], relax.Constant)
    assert is_op("relax.exp")(a).extract_matched_expr(VAR["gv"], VALUES) is None


def test_one_pattern_in_two_places_is_one_expression() -> None:
    p = wildcard()
    assert is_op("relax.add")(p, p).match(R.add(x, x))
    assert not is_op("relax.add")(p, p).match(R.add(x, y))
    # gv = relu(lv) * 2 + lv
    scaled = is_op("relax.multiply")(is_op("relax.nn.relu")(p), is_const())
    assert is_op("relax.add")(scaled, p).match(VAR["gv"], VALUES)


def test_a_first_choice_is_taken_back() -> None:
    # x * y + y: the product is tried as p * q with p = x first, of which no sum with p can be made.
    p, q = wildcard(), wildcard()
    pattern = is_op("relax.add")(is_op("relax.multiply")(p, q), p)
    found = pattern.extract_matched_expr(R.add(R.multiply(x, y), y))
    assert found is not None and found[p] is y and found[q] is x
    either = (p & is_var("x")) | p
    assert is_op("relax.subtract")(is_tuple([either, wildcard()])[0], p).match(
        R.subtract(relax.TupleGetItem(relax.Tuple([x, y]), 0), x)
    )
    unordered = is_op("relax.concat")(is_tuple([q, p], unordered=True)).has_attr({"axis": 0})
    assert is_op("relax.add")(unordered, p).match(R.add(relax.op.concat([x, y], 0), x))


def test_products_and_quotients_match_in_any_association() -> None:
    a, b, c = is_var("x"), is_var("y"), is_var("z")
    times, by = is_op("relax.multiply"), is_op("relax.divide")
    for expr in (R.divide(R.multiply(x, y), z), R.multiply(x, R.divide(y, z)), R.multiply(R.divide(x, z), y)):
        assert by(times(a, b), c).match(expr), expr
    assert times(a, by(b, c)).match(R.divide(R.multiply(x, y), z))
    assert not by(times(a, b), c).match(R.multiply(x, R.divide(z, y)))
    assert not by(times(a, b), c).match(R.divide(x, R.multiply(y, z)))


def test_functions_match_by_parameters_and_body() -> None:
    func = relax.Function([x, y], R.add(x, y), ret_struct_info=TensorStructInfo((2, 3), "float32"))
    total = is_op("relax.add")(is_var("x"), wildcard())
    assert dpl.FunctionPattern([is_var("x"), wildcard()], total).match(func)
    assert not dpl.FunctionPattern([wildcard()], total).match(func)
    assert not dpl.FunctionPattern([wildcard(), wildcard()], is_op("relax.exp")(wildcard())).match(func)


def test_fields_of_tuples() -> None:
    pair = relax.Var("p", relax.TupleStructInfo([TensorStructInfo((1,), "float32"), TensorStructInfo((2,), "float32")]))
    assert dpl.is_tuple_get_item(wildcard(), 1).match(pair[1])
    assert not dpl.is_tuple_get_item(wildcard(), 0).match(pair[1])
    assert dpl.is_tuple_get_item(is_var("p")).match(pair[1])


def test_struct_info_says_at_least_what_is_asked_for() -> None:
    tensor = wildcard().has_struct_info
    assert tensor(R.Tensor((2, 3), "float32")).match(x) and tensor(R.Tensor(ndim=2)).match(x)
    assert not tensor(R.Tensor((2, 4), "float32")).match(x) and not tensor(R.Tensor((2, 3), "int8")).match(x)
    unknown = relax.Var("u", TensorStructInfo(None, "float32", ndim=2))
    assert not tensor(R.Tensor((2, 3), "float32")).match(unknown)


def test_symbolic_variables_of_struct_info_have_one_value() -> None:
    m, n = tir.Var("m", "int64"), tir.Var("n", "int64")
    square = wildcard().has_struct_info(TensorStructInfo((n, n), "float32"))
    assert not square.match(x)
    assert square.match(relax.Var("s", TensorStructInfo((5, 5), "float32")))
    k = tir.Var("k", "int64")
    assert square.match(relax.Var("s", TensorStructInfo((k + 1, k + 1), "float32")))
    same = wildcard().has_struct_info(TensorStructInfo((m, n), "float32"))
    other = wildcard().has_struct_info(TensorStructInfo((m, n), "float32"))
    assert is_op("relax.add")(same, other).match(R.add(x, y))
    assert not is_op("relax.add")(same, other).match(R.add(x, relax.Var("r", TensorStructInfo((1, 3), "float32"))))


def test_a_static_pattern_does_not_match_what_may_be_another_shape() -> None:
    n = tir.Var("n", "int64")
    dynamic = relax.Var("d", TensorStructInfo((n, 3), "float32"))
    assert not wildcard().has_struct_info(R.Tensor((2, 3), "float32")).match(dynamic)
    assert not wildcard().has_shape((2, 3)).match(dynamic)
    assert wildcard().has_shape((n, 3)).match(dynamic)


def test_graphs_of_loops() -> None:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def twice(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("twice"):
                    vi = T.axis.spatial(4, i)
                    b[vi] = a[vi] * 2.0

        @R.function
        def main(v: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            with R.dataflow():
                lv = R.call_tir(cls.twice, (v,), out_sinfo=R.Tensor((4,), "float32"))
                gv = R.call_tir(cls.twice, (lv,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(gv)
            return gv

    main = Module["main"]
    first = dpl.is_call_tir("twice", [is_var("v")])
    assert dpl.is_call_tir("twice", [first]).match(main.body.body, get_var2val(main))
    assert not dpl.is_call_tir("twice", [dpl.is_call_tir("twice", [first])]).match(main.body.body, get_var2val(main))
