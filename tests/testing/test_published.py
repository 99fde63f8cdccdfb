"""What tests written for the published API import beside pytest."""

from __future__ import annotations

import pytest

import oneir
from oneir import ir, tir
from oneir.runtime.error import AssertionFailure
from oneir.testing import (
    TestAttrs,
    assert_prim_expr_equal,
    check_bool_expr_is_true,
    device_enabled,
    enabled_targets,
)

x, y = tir.Var("x", "int32"), tir.Var("y", "int32")


def test_expressions_are_proved_equal():
    assert_prim_expr_equal((x + y) * 2, y * 2 + x * 2)
    with pytest.raises(AssertionFailure, match=r"`x \+ y` and `x - y` are not provably equal"):
        assert_prim_expr_equal(x + y, x - y)


def test_conditions_are_tried_out():
    ranges = {x: ir.Range(0, 4), y: ir.Range(1, 4)}
    check_bool_expr_is_true(x // y <= x, ranges)
    check_bool_expr_is_true(x < y, ranges, cond=x + 1 < y + 1)
    check_bool_expr_is_true(x < y, ranges, cond=lambda a, b: a < b)
    with pytest.raises(AssertionFailure, match=r"`x < y` is .* for x = 1, y = 1"):
        check_bool_expr_is_true(x < y, ranges)


def test_attributes_by_type_key():
    made = ir.make_node("attrs.TestAttrs", name="one", padding=(3, 4))
    assert isinstance(made, TestAttrs) and made.axis == 10 and [p.value for p in made.padding] == [3, 4]
    assert ir.structural_equal(made, ir.load_json(ir.save_json(made)))
    with pytest.raises(TypeError, match="unknown_key"):
        ir.make_node("attrs.TestAttrs", unknown_key=1)


def test_processors_are_there():
    assert device_enabled("llvm") and ("llvm", oneir.cpu()) in enabled_targets()
    assert not device_enabled("hexagon")
