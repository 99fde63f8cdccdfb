"""What a user sees: the message, the file, line and column, the line of the script and carets below the culprit."""

from __future__ import annotations

import textwrap

import pytest

from oneir.runtime.error import OneIRError, ParseError
from oneir.script import from_source
from oneir.script import ir as I
from oneir.script import tir as T


def message_of(text: str) -> list[str]:
    """The lines of the error that a text causes, without the name of the text."""
    with pytest.raises(ParseError) as caught:
        from_source(textwrap.dedent(text), check_well_formed=False)
    first, place, *rest = str(caught.value).splitlines()
    return [first, place.split(">", 2)[-1], *rest]


def test_an_undefined_name():
    assert message_of(
        """\
        @T.prim_func
        def f(Alpha: T.Buffer((4,), "float32")):
            Alpha[0] = Alpa[1] + T.float32(0)
        """
    ) == [
        "error: undefined name `Alpa`; did you mean `Alpha`?",
        ":3:16",
        "3 |     Alpha[0] = Alpa[1] + T.float32(0)",
        "  |                ^^^^",
    ]


def test_a_wrong_number_of_indices():
    assert message_of(
        """\
        @T.prim_func
        def f(A: T.Buffer((4, 4), "float32")):
            A[0, 1] = A[2] * T.float32(3)
        """
    ) == [
        "error: buffer `A` has 2 dimensions, found 1 indices: [2]",
        ":3:15",
        "3 |     A[0, 1] = A[2] * T.float32(3)",
        "  |               ^^^^",
    ]


def test_operands_that_do_not_match():
    lines = message_of(
        """\
        @T.prim_func
        def f(v: T.float32x4, w: T.float32x8):
            T.evaluate((v + w) + v)
        """
    )
    assert lines[0].startswith("error: cannot combine vectors of 4 and 8 lanes")
    assert lines[2:] == ["3 |     T.evaluate((v + w) + v)", "  |                 ^^^^^"]


def test_a_statement_that_scripts_do_not_have():
    assert message_of(
        """\
        @T.prim_func
        def f():
            try:
                T.evaluate(0)
            except ValueError:
                pass
        """
    ) == ["error: `try` cannot stand in a prim_func", ":3:5", "3 |     try:", "  |     ^^^^"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("class C:\n        pass", "a class cannot stand in a prim_func"),
        ("import math", "`import` cannot stand in a prim_func"),
        ("del A", "`del` cannot stand in a prim_func"),
        ("yield 1", "`yield` cannot be used in a script"),
        ("match 1:\n        case 1:\n            pass", "`match` cannot stand in a prim_func"),
        ("async def g():\n        pass", "`async` cannot stand in a prim_func"),
        ("await A", "`await` cannot be used in a script"),
    ],
)
def test_unsupported_syntax(statement: str, message: str):
    head, place, *_ = message_of(f"@T.prim_func\ndef f():\n    {statement}\n")
    assert head == f"error: {message}" and place == ":3:5"


def test_wrong_arguments_of_a_member():
    head, *rest = message_of(
        """\
        @T.prim_func
        def f():
            for i in T.serial(4, annotation={}):
                T.evaluate(i)
        """
    )
    assert head.startswith("error: serial() got an unexpected keyword argument 'annotation'")
    assert rest == [
        ":3:14",
        "3 |     for i in T.serial(4, annotation={}):",
        "  |              ^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ]


def test_wide_characters_take_two_columns():
    assert message_of(
        """\
        @T.prim_func
        def f():
            T.evaluate(T.StringImm("宽字符é") + 缺失)
        """
    ) == [
        "error: undefined name `缺失`",
        ":3:38",
        '3 |     T.evaluate(T.StringImm("宽字符é") + 缺失)',
        "  | " + " " * 40 + "^^^^",
    ]


def test_combining_characters_take_none():
    text = '@T.prim_func\ndef f():\n    T.evaluate("e\u0301", x)\n'
    *_, line, carets = message_of(text)
    assert line == '3 |     T.evaluate("e\u0301", x)' and carets == "  |                     ^"


def test_tabs_stay_tabs_below_the_line():
    text = "@T.prim_func\ndef f():\n\tfor i in range(4):\n\t\tT.evaluate(i +\tx)\n"
    assert message_of(text) == [
        "error: undefined name `x`",
        ":4:18",
        "4 | \t\tT.evaluate(i +\tx)",
        "  | \t\t              \t^",
    ]


def test_an_expression_over_several_lines_is_underlined_to_the_end_of_the_first():
    assert message_of(
        """\
        @T.prim_func
        def f(x: T.float32, i: T.int32):
            T.evaluate(
                T.Select(i,
                         x, x))
        """
    ) == [
        "error: Select expects a bool condition, found int32",
        ":4:9",
        "4 |         T.Select(i,",
        "  |         ^^^^^^^^^^^",
    ]


def test_syntax_errors_of_python_are_shown_the_same_way():
    lines = message_of("@T.prim_func\ndef f():\n    x = = 1\n")
    assert lines == ["error: this is not Python: invalid syntax", ":3:9", "3 |     x = = 1", "  |         ^"]


def test_errors_in_string_annotations_point_to_the_string():
    lines = message_of("@T.prim_func\ndef f(A: 'T.Bufer((4,))'):\n    pass\n")
    assert lines[0] == "error: `T` has no attribute `Bufer`; did you mean `Buffer`?"
    assert lines[3] == "  |          ^^^^^^^^^^^^^^^"


def test_decorated_functions_name_their_file():
    with pytest.raises(ParseError) as caught:

        @T.prim_func
        def func(A: T.Buffer((4,), "float32")):
            A[0] = B[0]

    text = str(caught.value)
    assert "error: undefined name `B`" in text and "test_errors.py:" in text
    assert text.splitlines()[-1].endswith("^") and "A[0] = B[0]" in text


def test_a_parse_error_is_a_oneir_error_and_a_syntax_error():
    assert issubclass(ParseError, OneIRError) and issubclass(ParseError, SyntaxError)


def test_text_that_is_nested_too_deeply_is_refused():
    with pytest.raises(ParseError, match=r"this is not Python: too many nested parentheses|is nested too deeply"):
        from_source("@T.prim_func\ndef f():\n    T.evaluate(" + "(" * 500 + "1" + ")" * 500 + ")\n")


def test_long_chains_are_no_problem():
    chain = " + ".join(["n"] * 900)
    func = from_source(f"@T.prim_func\ndef f(n: T.int32):\n    T.evaluate({chain})\n", check_well_formed=False)
    depth, node = 0, func.body.value
    while hasattr(node, "a"):
        depth, node = depth + 1, node.a
    assert depth == 899


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: T.prim_func(3), "a script is a function defined with `def`, found 3"),
        (lambda: T.prim_func(print), "a script is a function defined with `def`, found <built-in function print>"),
        (lambda: T.prim_func(lambda a: a), "the source of `.*<lambda>` was not found .*: it is a lambda"),
        (lambda: I.ir_module(3), "a module is a class of functions, found 3"),
    ],
)
def test_what_is_no_script(define, message):
    with pytest.raises(ParseError, match=message):
        define()
