"""Patterns: what they are made of, how they print, and what is refused."""

from __future__ import annotations

import pytest

from oneir import relax, tir
from oneir.ir import Op
from oneir.relax import dpl
from oneir.relax.dpl import PatternContext, PatternSeq, is_call_tir, is_const, is_op, is_tuple, is_var, wildcard
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch
from oneir.script import relax as R


def test_patterns_print_what_they_match() -> None:
    x = wildcard()
    call = is_op("relax.add")(x, is_var("b"))
    assert str(call) == "Op(relax.add)(*, VarPattern(b))"
    assert str(dpl.ExternFuncPattern("f")(x, varg_default_wildcard=True)) == "ExternFuncPattern(f)(*, ...)"
    assert str(x | is_const()) == "OrPattern(* | ConstantPattern())"
    assert str(x & ~is_const()) == "AndPattern(* & !(ConstantPattern()))"
    assert str(x.has_dtype("float16")) == "DataTypePattern(* has dtype float16)"
    assert str(x.has_shape((2, 3))) == "ShapePattern(* has shape [2, 3])"
    assert str(x.has_attr({"axis": 1})) == 'AttrPattern(* has attributes {"axis": 1})'
    assert str(is_tuple([x, x])) == "TuplePattern([*, *])"
    assert str(is_tuple([x, x], unordered=True)) == "UnorderedTuplePattern([*, *])"
    assert str(is_tuple([x, x])[1]) == "TupleGetItemPattern(TuplePattern([*, *]), 1)"
    assert str(dpl.is_shape([1, 2])) == "PrimArrPattern([1, 2])"
    assert str(dpl.is_gv("main")) == "GlobalVarPattern(main)"
    assert str(dpl.is_dfv()) == "DataflowVarPattern()"
    assert str(dpl.FunctionPattern([x], x)) == "FunctionPattern([*], *)"
    assert str(x.same_shape_as(x)) == "SameShapeConstraint(*, *)"


def test_chains_keep_how_each_is_used() -> None:
    a, b, c = wildcard(), is_const(), is_var("v")
    chain = a ^ b >> c
    # Of Python's operators, >> binds more tightly.
    assert str(chain) == "[* ^ ConstantPattern() >> VarPattern(v)]"
    assert [chain[i] for i in range(3)] == [a, b, c]
    assert str(PatternSeq([a, b], only_use=True)) == "[* >> ConstantPattern()]"
    assert str((a >> b) ^ (b >> c)) == "[* >> ConstantPattern() ^ ConstantPattern() >> VarPattern(v)]"


def test_a_duplicate_has_the_same_parts_but_matches_by_itself() -> None:
    x = wildcard()
    call = is_op("relax.add")(x, x)
    copy = call.dup()
    assert copy is not call and copy.args[0] is x and copy.op is call.op
    seq = (x >> call).dup()
    assert str(seq) == str(x >> call) and seq[0] is not x


def test_fields_have_the_published_names() -> None:
    x = wildcard()
    assert is_var("x").name == is_var("x").name_hint == "x"
    item = dpl.is_tuple_get_item(x)
    assert item.tuple is x and item.index == -1 and is_tuple([x])[-1].index == 0 and is_tuple([x])[None].index == -1
    assert (~x).reject is x and (x | x).left is x and (x & x).right is x
    assert len(is_tuple([x, x])) == 2 and dpl.is_shape((2, 5))[1] == 5 and len(dpl.is_shape((2, 5))) == 2
    info = R.Tensor((2,), "float32")
    assert x.has_struct_info(info).struct_info is info and x.has_attr({"a": 1}).attrs["a"] == 1


def test_the_classes_behind_the_functions_can_be_used_as_well() -> None:
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    y = relax.Var("y", R.Tensor((2, 3), "float16"))
    add = dpl.ExprPattern(Op.get("relax.add"))
    call = dpl.CallPattern(add, [dpl.WildcardPattern(), dpl.ExprPattern(x)])
    made = relax.op.add(y, x)
    assert (
        call.match(made)
        and isinstance(is_op("relax.add"), dpl.ExprPattern)
        and isinstance(wildcard(), dpl.WildcardPattern)
    )
    found = call.extract_matched_expr(relax.op.multiply(y, x))
    assert found is None and call.extract_matched_expr(made)[call.args[0]] is y
    assert isinstance(is_op("relax.exp")(wildcard()), dpl.CallPattern)
    # A call may have more arguments than the pattern where it says so, and fewer never.
    loose = dpl.CallPattern(dpl.ExternFuncPattern("f"), [wildcard()], varg_default_wildcard=True)
    f = relax.extern("f")
    assert [loose.match(relax.Call(f, args)) for args in ([], [x], [x, y])] == [False, True, True]
    not_half = dpl.NotPattern(dpl.DataTypePattern(wildcard(), "float16"))
    assert [not_half.match(v) for v in (x, y)] == [True, False] and isinstance(~wildcard(), dpl.NotPattern)
    info = dpl.StructInfoPattern(wildcard(), relax.TensorStructInfo((2, 3), "float32"))
    assert [info.match(v) for v in (x, y)] == [True, False]
    same = wildcard().same_shape_as(wildcard())
    assert isinstance(same, dpl.SameShapeConstraint) and isinstance(same, dpl.DFConstraint)
    both = [dpl.OrPattern(is_const(), is_var("x")), dpl.AndPattern(is_var(), dpl.ShapePattern(wildcard(), (2, 3)))]
    assert [[p.match(v) for v in (x, y, relax.const(1))] for p in both] == [[True, False, True], [True, True, False]]


def test_a_decorator_names_what_a_class_of_patterns_is_saved_as() -> None:
    @dpl.register_df_node("test.Any")
    class Any(dpl.DFPattern):
        """Matches nothing here."""

    assert dpl.register_df_node(Any) is Any


def test_a_fused_pattern_has_the_parts_that_are_asked_for() -> None:
    make = dpl.make_fused_bias_activation_pattern
    assert str(make("relax.matmul")) == "Op(relax.matmul)(*, *)"
    assert str(make("relax.matmul", activation="relax.exp")) == "Op(relax.exp)(Op(relax.matmul)(*, *))"
    assert str(make("relax.matmul", True, "relax.exp")) == "Op(relax.exp)(Op(relax.add)(Op(relax.matmul)(*, *), *))"


def test_what_is_no_pattern_is_refused() -> None:
    x = relax.Var("x", R.Tensor((2,), "float32"))
    with pytest.raises(TypeMismatch, match=r"the arguments of a call are patterns, found .*is_expr\(expr\)"):
        is_op("relax.exp")(x)
    with pytest.raises(TypeMismatch, match="a pattern is used by a pattern or a PatternSeq, found 3"):
        wildcard().used_by(3)
    with pytest.raises(OneIRError, match=r"operator 'relax.ad' is not registered; did you mean 'relax.add'"):
        is_op("relax.ad")


def test_shapes_and_tuples_are_lists() -> None:
    with pytest.raises(InvalidValue, match="has_shape expects a list or tuple of extents, found 3"):
        wildcard().has_shape(3)
    with pytest.raises(InvalidValue, match="is_shape expects a list or tuple of extents"):
        dpl.is_shape(tir.Var("n", "int64"))
    with pytest.raises(InvalidValue, match="is_tuple expects a list or tuple of patterns"):
        is_tuple(wildcard())
    with pytest.raises(IndexError, match="field 2 of a TuplePattern of 2"):
        is_tuple([wildcard(), wildcard()])[2]


def test_an_incremental_context_stands_in_another_one() -> None:
    with pytest.raises(InvalidValue, match="an incremental PatternContext is made inside of another one's `with`"):
        PatternContext(incremental=True)
    with PatternContext() as outer:
        assert PatternContext.current() is outer
        is_call_tir("f")
        wildcard() ^ wildcard()
        with PatternContext(incremental=True) as inner:
            assert PatternContext.current() is inner
            wildcard() ^ wildcard()
        assert len(outer.edges) == 1 and len(inner.edges) == 2
    assert PatternContext.current() is None
