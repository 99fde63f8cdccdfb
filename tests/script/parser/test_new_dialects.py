"""Dialects that programs add: methods for statements and operators, by the token of a decorator."""

from __future__ import annotations

import ast

import pytest

from oneir import IRModule
from oneir.ir import assert_structural_equal
from oneir.runtime.error import InvalidValue, ParseError
from oneir.script import ir as I
from oneir.script import tir as ST
from oneir.script.ir_builder import tir as T
from oneir.script.parser.core import diagnostics, dispatch, utils
from oneir.script.parser.core.entry import parse
from oneir.script.parser.core.evaluator import eval_assign, eval_expr
from oneir.script.parser.core.parser import Parser, ScriptMacro, VarTable, VarTableFrame


def pointwise(function):
    """The decorator of a dialect: `out = expression` is a loop over the elements of vectors of 8 floats."""
    return parse(function, utils.inspect_function_capture(function))


pointwise.dispatch_token = "pointwise"


class Vector:
    """A value of the dialect: the element at an index."""

    def __init__(self, element):
        self.element = element


@dispatch.register("pointwise", "FunctionDef")
def read_function(parser: Parser, node: ast.FunctionDef) -> None:
    with parser.with_dispatch_token("pointwise"), parser.var_table.with_frame(), T.prim_func():
        T.func_name(node.name)
        for arg in node.args.args:
            buffer = T.arg(arg.arg, T.Buffer((8,), parser.visit_tvm_annotation(arg.annotation)))
            parser.var_table.add(arg.arg, Vector(lambda i, buffer=buffer: buffer[i]))
            parser.var_table.add(f"{arg.arg}!", buffer)
        parser.visit_body(node.body)


@dispatch.register("pointwise", "Assign")
def read_assign(parser: Parser, node: ast.Assign) -> None:
    value = parser.eval_expr(node.value)
    with T.serial(8) as i:
        T.buffer_store(parser.var_table.get()[f"{node.targets[0].id}!"], value.element(i), [i])


@dispatch.register_op(Vector, ast.Add, 0)
def add(a, b):
    return Vector(lambda i: a.element(i) + b.element(i))


@dispatch.register_op(Vector, ast.USub, 0)
def negate(a):
    return Vector(lambda i: ST.float32(0) - a.element(i))


@dispatch.register_op(Vector, ast.Mult, 1)
def scale(number, a):
    return Vector(lambda i: ST.float32(number) * a.element(i))


@dispatch.register_op(Vector, ast.And, 0)
def smaller(a, b):
    return Vector(lambda i: ST.min(a.element(i), b.element(i)))


@dispatch.register_op(Vector, ast.Lt, 0)
def select_smaller(a, b):
    return Vector(lambda i: ST.if_then_else(a.element(i) < b.element(i), a.element(i), b.element(i)))


FACTOR, FLOAT = 3, "float32"


def written(body):
    @ST.prim_func
    def expected(a: ST.Buffer((8,), "float32"), out: ST.Buffer((8,), "float32")):
        for i in range(8):
            out[i] = body(a, i)

    return expected.with_attr("global_symbol", "f")


def test_statements_and_operators_have_the_meaning_that_was_registered() -> None:
    @pointwise
    def f(a: FLOAT, out: FLOAT):
        out = FACTOR * a + -a

    assert_structural_equal(f, written(lambda a, i: ST.float32(FACTOR) * a[i] + (ST.float32(0) - a[i])))


def test_conditions_have_one_as_well() -> None:
    @pointwise
    def f(a: FLOAT, out: FLOAT):
        out = a and a + a

    assert_structural_equal(f, written(lambda a, i: ST.min(a[i], a[i] + a[i])))

    @pointwise
    def g(a: FLOAT, out: FLOAT):
        out = a < a + a

    expected = written(lambda a, i: ST.if_then_else(a[i] < a[i] + a[i], a[i], a[i] + a[i]))
    assert_structural_equal(g, expected.with_attr("global_symbol", "g"))


def test_functions_of_several_dialects_stand_in_one_module() -> None:
    @I.ir_module
    class Module:
        @ST.prim_func
        def plain(x: ST.int32) -> ST.int32:
            return x

        @pointwise
        def f(a: FLOAT, out: FLOAT):
            out = a + a

    assert isinstance(Module, IRModule) and {v.name_hint for v in Module.functions} == {"plain", "f"}
    assert_structural_equal(Module["f"], written(lambda a, i: a[i] + a[i]))


def test_what_a_dialect_does_not_know_is_underlined() -> None:
    with pytest.raises(ParseError, match=r"`For` cannot be used in the dialect `pointwise`(?s:.*)for i in range"):

        @pointwise
        def f(a: FLOAT, out: FLOAT):
            for i in range(8):
                out = a

    with pytest.raises(ParseError, match="undefined name `missing`"):

        @pointwise
        def g(a: FLOAT, out: FLOAT):
            out = missing

    def unknown(function):
        return parse(function, {"unknown": unknown})

    unknown.dispatch_token = "a dialect without methods"
    with pytest.raises(ParseError, match="to be decorated with"):

        @unknown
        def h(a: FLOAT):
            pass


def test_tokens_have_a_beginning_and_an_end() -> None:
    seen: list[object] = []
    dispatch.register("test.tokens", "enter_token")(lambda parser: seen.append("enter") or "context")
    dispatch.register("test.tokens", "exit_token")(lambda parser, context: seen.append(context))
    dispatch.register("test.tokens", "Expr")(lambda parser, node: seen.append(parser.eval_expr(node.value)))
    parser = Parser(diagnostics.Source("1 + x"))
    with parser.with_dispatch_token("test.tokens"):
        parser.parse({"x": 2})
    assert seen == ["enter", 3, "context"] and parser.dispatch_tokens == ["default"]
    assert dispatch.get("test.tokens", "For") is None and dispatch.get("no", "For", len) is len
    assert dispatch.get_op(int, ast.Add, 0) is None


def test_names_of_assignments() -> None:
    parser = Parser(diagnostics.Source("a, (b, *c) = 1"))
    target = parser.tree.body[0].targets[0]
    assert eval_assign(parser, target, (1, (2, 3, 4))) == {"a": 1, "b": 2, "c": [3, 4]}
    with parser.var_table.with_frame():
        parser.eval_assign(target, (1, (2, 3, 4)), lambda parser, target, name, value: (name, value))
        assert parser.var_table.get() == {"a": ("a", 1), "b": ("b", 2), "c": ("c", [3, 4])}
    with pytest.raises(ParseError, match="expected 2 values to unpack, found 3"):
        eval_assign(parser, target, (1, 2, 3))
    for text, message in (("a, a = 1", "`a` is assigned twice"), ("a.b = 1", "expected a name, or a tuple of names")):
        parser = Parser(diagnostics.Source(text))
        with pytest.raises(ParseError, match=message):
            eval_assign(parser, parser.tree.body[0].targets[0], (1, 2))


def test_values_of_expressions() -> None:
    parser = Parser(diagnostics.Source("len(x) if x else None"))
    expr = parser.tree.body[0].value
    assert eval_expr(parser, expr, {"x": [1, 2]}) == 2 and eval_expr(parser, ast.Expression(expr), {"x": ""}) is None
    with pytest.raises(ParseError, match=r"undefined name `x`(?s:.*)1 \| len\(x\)"):
        eval_expr(parser, expr, None)


def test_variables_lie_in_frames() -> None:
    table, one = VarTable(), object()
    with pytest.raises(InvalidValue, match=r"inside of `with var_table\.with_frame"):
        table.add("x", 1)
    with table.with_frame():
        table.add("x", one)
        table.add("x", one)
        with table.with_frame() as frame:
            table.add("x", 2)
            assert isinstance(frame, VarTableFrame) and frame.vars == {"x"} and table.get() == {"x": 2}
            with pytest.raises(InvalidValue, match="`x` is defined in this scope already"):
                table.add("x", 3)
            table.add("x", 3, allow_shadowing=True)
            assert table.get() == {"x": 3} and table.exist(one)
        assert table.get() == {"x": one}
    assert not table.exist(one) and table.get() == {}


class Macro(ScriptMacro):
    def parse_macro(self, parser: Parser):
        return parser.eval_expr(self.get_macro_def().body[0].value)


OUTSIDE = 10


def sum_of(a, b=1):
    return a + b + OUTSIDE


@pytest.mark.parametrize("hygienic, expected", [(True, 2 + 1 + 10), (False, 2 + 1 + 100)])
def test_macros_see_the_names_of_their_definition_or_of_their_call(hygienic: bool, expected: int) -> None:
    macro = Macro(diagnostics.Source(sum_of), {"OUTSIDE": OUTSIDE}, sum_of, hygienic)
    parser = Parser(diagnostics.Source("sum_of(2)"))
    with parser.var_table.with_frame():
        parser.var_table.add("sum_of", macro)
        parser.var_table.add("OUTSIDE", 100)
        assert parser.eval_expr(parser.tree.body[0].value) == expected
        assert set(parser.var_table.get()) == {"sum_of", "OUTSIDE"}
    assert repr(macro).startswith("def sum_of(a, b=1):")
    with pytest.raises(InvalidValue, match="the macro `sum_of` is called in functions of its dialect only"):
        macro(2)


def test_errors_in_macros_show_their_text() -> None:
    def wrong(a):
        return a + nothing

    macro = Macro(diagnostics.Source(wrong), {}, wrong, True)
    parser = Parser(diagnostics.Source("wrong(2)"))
    line = wrong.__code__.co_firstlineno + 1
    with (
        parser.var_table.with_frame(),
        pytest.raises(ParseError, match=rf"test_new_dialects.py:{line}:20(?s:.*)nothing"),
    ):
        parser.var_table.add("wrong", macro)
        parser.eval_expr(parser.tree.body[0].value)
