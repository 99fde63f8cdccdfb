"""Arguments become graph expressions by the converters' decorators."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.relax import Expr, args_converter


def classes(value):
    return [type(item).__name__ for item in value]


def test_named_parameters_are_converted():
    @args_converter.to_expr("first", "rest", "named")
    def single(first, *rest, **named):
        return [first, *rest, *named.values()]

    assert classes(single(1, (2, 3), x="text")) == ["PrimValue", "Tuple", "StringImm"]
    assert single(None) == [None]

    @args_converter.to_list_expr("parts")
    def several(parts, axis):
        return parts, axis

    parts, axis = several((1, relax.const(2.0)), axis=0)
    assert classes(parts) == ["PrimValue", "Constant"] and axis == 0
    with pytest.raises(TypeError, match="expected a list or tuple of graph expressions, found 1"):
        several(1, 0)


def test_annotations_say_what_is_converted():
    @args_converter.auto
    def mixed(a: Expr, b: Expr | None, c: list[Expr], d: list[Expr] | None, e: int, *rest: Expr) -> Expr:
        return [a, b, *c, d, e, *rest]

    found = mixed(1, None, ["x"], None, 5, (1, 2))
    assert classes(found) == ["PrimValue", "NoneType", "StringImm", "NoneType", "int", "Tuple"]
