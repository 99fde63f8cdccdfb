"""The forms that the rewrite rules alone leave, which programs print: the text before, and what must come out.

Each line was compared with what TVM's simplifier answers. What holds of the values is tested in `test_rules.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from arith_oracle import evaluate, points
from arith_text import build, show

from oneir import arith, tir
from oneir.arith.const_int_bound import NEG_INF, POS_INF, floordiv_bounds, truncdiv_bounds
from oneir.ir import expr as e
from oneir.ir.structural import structural_equal

x, y, z, w = (e.Var(name, "int32") for name in "xyzw")
a, b, d = (e.Var(name, "int32") for name in "abd")
i = e.Var("i", "int32")
p, q, r = (e.Var(name, "bool") for name in "pqr")
NAMES = {name: value for name, value in globals().items() if isinstance(value, e.Var)}


def analyzer() -> arith.Analyzer:
    """a, b, d in [0, 1000]; i in [0, 8); the others are anything."""
    result = arith.Analyzer()
    for variable in (a, b, d):
        result.update(variable, arith.ConstIntBound(0, 1000))
    result.bind(i, e.Range(0, 8))
    return result


FORMS = """
x - 3 -> x + (-3)
x - y * 5 -> x + y * (-5)
(x + 3) - y -> x - y + 3
x + (4 - y) -> x - y + 4
x + (y + 5) -> x + y + 5
(5 - x) - (3 - y) -> y - x + 2
x * y + x -> (y + 1) * x
x * y - x * z -> (y - z) * x
y + min(x, z) -> min(x, z) + y
x % 4 + y * 4 -> y * 4 + x % 4
min(x - z, y) + z -> min(x, y + z)
min(x, y + 3) + (-3) -> min(x + (-3), y)
max(y + z * 2, x) + z * (-2) -> max(x + z * (-2), y)
x - max(x, y) -> min(0, x - y)
x - max(y, x) -> min(x - y, 0)
x - min(z, x + y) -> max(x - z, 0 - y)
min(x + 5, y) - min(x, y - 5) -> 5
min(x, y) - min(y, x) -> 0
x - truncdiv(x, 3) * 3 -> truncmod(x, 3)
x * 4 - truncdiv(x + y, 5) * 20 -> (truncmod(x + y, 5) - y) * 4
x - (x + y) // 8 * 8 -> (x + y) % 8 - y
x * 4 - x // 4 * 16 -> x % 4 * 4
(x + 1) % 2 + x % 2 -> 1
(x % 8 + 1) // 8 + x // 8 -> (x + 1) // 8
i * 33 // 16 -> i * 2
(i * 33 + 8) // 16 -> i * 2
(i * 33 + 24) // 16 -> i * 2 + 1
(i * 33 + 9) // 16 -> (i * 33 + 9) // 16
i * 35 // 16 -> i * 35 // 16
(x + 5) // 2 - (x + 4) // 2 -> x % 2
(x + 1) // 2 - x % 2 -> x // 2
(x - x % 8) // (-8) * (-8) -> x - x % 8
truncdiv(truncdiv(a, 2) + 3, 10) -> truncdiv(a + 6, 20)
truncdiv(x * 8, 40) -> truncdiv(x, 5)
truncdiv(b + a * 64, 8) -> truncdiv(b, 8) + a * 8
truncdiv(min(b, a * 15), 3) -> min(truncdiv(b, 3), a * 5)
truncdiv(a * 15 + b + d, 5) -> a * 3 + truncdiv(b + d, 5)
truncmod(x, -3) -> truncmod(x, 3)
truncmod(a * 12 + b, 3) -> truncmod(b, 3)
(x % 2 + 1) // 2 -> x % 2
min(y, x * 80) // 10 -> min(y // 10, x * 8)
(x * 10 + y + z) // 5 -> x * 2 + (y + z) // 5
(x * 8 - y + z) // 2 -> x * 4 + (z - y) // 2
(x - x % 3) // 3 -> x // 3
(x - x % y) % y -> 0
(y + (0 - y) % x) % x -> 0
min(truncdiv(x, 8), truncdiv(y, 8)) -> truncdiv(min(x, y), 8)
min(x // (-4), y // (-4)) -> max(x, y) // (-4)
min(truncdiv(x + 4, 5) * 5, x) -> x
i <= 0 -> i == 0
i >= 7 -> i == 7
i != 0 -> 0 < i
i != 7 -> i < 7
x + 4 < y + 3 -> x + 1 < y
x - 4 < y -> x < y + 4
x * 4 < y * 8 -> x < y * 2
truncdiv(x, 3) < 0 -> x < (-2)
4 < truncdiv(x, 8) -> 39 < x
truncdiv(x, 4) * 4 < x + y -> 0 < truncmod(x, 4) + y
x // 4 == 8 and x % 4 == 2 -> x == 34
x // 4 == 1 and x % 4 < 3 -> 4 <= x and x < 7
0 <= x - y * 3 and x - y * 3 < 3 -> y == x // 3
x < 8 and x % 4 < 2 -> x < 6 and x % 4 < 2
x <= 10 and x % 4 < 1 -> x < 9 and x % 4 < 1
p and (q and r) -> p and q and r
select(p, x, y) + select(p, z, w) -> select(p, x + z, y + w)
select(p, x, y) - y -> select(p, x - y, 0)
min(select(p, x, y), select(p, z, w)) -> select(p, min(x, z), min(y, w))
if_then_else(p, if_then_else(q, x, 0), 0) -> if_then_else(p and q, x, 0)
broadcast(x, 4) - ramp(y, 4, 4) -> ramp(x - y, -4, 4)
"""

KEPT = """
x // x -> x // x
truncdiv(x * 8, x) -> truncdiv(x * 8, x)
(a + y) // a -> (a + y) // a
x // 4 == 1 and x % 4 < 6 -> x // 4 == 1
x < 8 and x % 4 < 5 -> x < 8
"""
"""A divisor that may be zero (quotients by zero are 0), a limit on remainders that says nothing."""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def check(text: str) -> tuple[Any, Any]:
    before, after = (build(side, NAMES) for side in text.split(" -> "))
    result = analyzer().rewrite_simplify(before)
    assert structural_equal(result, after), f"expected {show(after)}\nfound    {show(result)}"
    return before, result


@pytest.mark.parametrize("text", lines(FORMS) + lines(KEPT))
def test_form(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", [t for t in lines(FORMS) if " and x % 4" in t or "truncdiv(x, " in t])
def test_form_has_the_value(text: str) -> None:
    before, after = (build(side, NAMES) for side in text.split(" -> "))
    for values in points({x: (-45, 45), y: (-2, 2)}):
        assert evaluate(before, values) == evaluate(after, values), values


def test_ramps_are_divided_where_all_lanes_have_one_quotient() -> None:
    def divided(cls: type, ramp: e.Ramp, by: int) -> Any:
        return analyzer().rewrite_simplify(cls(ramp, e.Broadcast(e.const(by), 4)))

    one_block = e.Ramp(x * 4, 1, 4)
    assert structural_equal(divided(e.FloorDiv, one_block, 64), e.Broadcast(x // 16, 4))
    assert structural_equal(divided(e.FloorMod, one_block, 64), e.Ramp((x * 4) % 64, 1, 4))
    assert structural_equal(divided(e.FloorMod, e.Ramp(x * 8 + 2, 1, 4), 4).a, e.Ramp(2, 1, 4))
    # The last lane may be in the next block.
    two_blocks = e.Ramp(x * 4 + 1, 1, 4)
    assert isinstance(divided(e.FloorDiv, two_blocks, 64), e.FloorDiv)
    # Rounded towards zero, lanes around zero have one quotient more often; so nothing is said of them.
    assert isinstance(divided(e.Div, e.Ramp(x, 4, 4), 2), e.Div)
    assert structural_equal(divided(e.Div, e.Ramp(a, 4, 4), 2), e.Ramp(tir.truncdiv(a, 2), 2, 4))


def test_numbers_are_counted_and_rounded() -> None:
    rewrite = analyzer().rewrite_simplify
    for value, zeros in ((0, 32), (1, 31), (8, 28), (-1, 0)):
        assert structural_equal(rewrite(e.Call("int32", "tir.clz", [e.const(value)])), e.const(zeros))
    assert structural_equal(rewrite(e.Call("int32", "tir.clz", [e.IntImm("int64", 1)])), e.const(63))
    assert structural_equal(rewrite(tir.ceil(tir.log2(e.FloatImm("float64", 5.0)))), e.FloatImm("float64", 3.0))
    # Of a logarithm that is no number, nothing is said.
    assert isinstance(rewrite(tir.ceil(tir.log2(e.FloatImm("float64", -1.0)))), e.Call)


def quotient(first: int, second: int, down: bool) -> int:
    if second == 0:
        return 0
    return first // second if down or (first < 0) == (second < 0) else -(abs(first) // abs(second))


@pytest.mark.parametrize("down", [True, False])
def test_bounds_of_quotients_are_those_of_all_quotients(down: bool) -> None:
    bounds = floordiv_bounds if down else truncdiv_bounds
    ends = range(-4, 5)
    for low in ends:
        for high in range(low, 5):
            for first in ends:
                for last in range(first, 5):
                    values = [quotient(n, k, down) for n in range(low, high + 1) for k in range(first, last + 1)]
                    assert bounds((low, high), (first, last)) == (min(values), max(values))


def test_bounds_of_quotients_of_what_has_no_limit() -> None:
    assert floordiv_bounds((NEG_INF, -1), (1, POS_INF)) == (NEG_INF, -1)
    assert truncdiv_bounds((NEG_INF, -1), (1, POS_INF)) == (NEG_INF, 0)
    assert floordiv_bounds((3, POS_INF), (-2, -1)) == (NEG_INF, -2)
    assert floordiv_bounds((3, 9), (NEG_INF, POS_INF)) == (-9, 9)


def test_shifts_to_the_right_are_bounded_by_both_operands() -> None:
    known = arith.Analyzer()
    known.update(x, arith.ConstIntBound(-9, 11))
    known.update(y, arith.ConstIntBound(1, 3))
    bound = known.const_int_bound(x >> y)
    values = [n >> k for n in range(-9, 12) for k in range(1, 4)]
    assert (bound.min_value, bound.max_value) == (min(values), max(values))


def test_integers_come_back_from_floats_that_hold_them() -> None:
    small, wide = e.Var("small", "int8"), e.Var("wide", "int32")

    def back(value: e.PrimExpr, through: str) -> arith.ConstIntBound:
        return arith.Analyzer().const_int_bound(e.Cast("int64", e.Cast(through, value)))

    assert (back(small, "float16").min_value, back(small, "float16").max_value) == (-128, 127)
    assert back(wide, "float64").max_value == (1 << 31) - 1
    # 2 ** 31 - 1 is rounded up to 2 ** 31.
    assert back(wide, "float32").max_value > (1 << 31) - 1


def test_remainders_are_known_behind_shifts_masks_and_truncated_quotients() -> None:
    def known(expr: e.PrimExpr) -> tuple[int, int]:
        found = analyzer().modular_set(expr)
        return found.coeff, found.base

    assert known((x * 4 + 2) >> 1) == (2, 1)
    assert known((x * 16 + y * 4) & 31) == (4, 0)
    assert known((x * 16 + y * 4) & 17) == (1, 0)
    assert known(tir.truncdiv(x * 4 + 2, 2)) == (2, 1)
    assert known(tir.truncdiv(a * 4 + 3, 2)) == (2, 1)
    # -3 / 2 is -1, and 1 / 2 is 0.
    assert known(tir.truncdiv(x * 4 + 1, 2)) == (1, 0)


def test_a_truncated_remainder_says_what_the_other_one_says() -> None:
    known = arith.Analyzer()
    with known.constraint_scope(tir.truncmod(x, 4).equal(2)), known.constraint_scope(tir.truncmod(x, 3).equal(-1)):
        found = known.modular_set(x)
    assert (found.coeff, found.base) == (12, 2)


def test_sets_of_remainders() -> None:
    known = arith.Analyzer()
    known.update(y, arith.ConstIntBound(1, 100))

    def ends(expr: e.PrimExpr, low: int, high: int) -> list[str]:
        found = known.int_set(expr, {x: arith.IntervalSet(low, high)})
        assert isinstance(found, arith.IntervalSet)
        return [str(found.min_value), str(found.max_value)]

    assert ends(tir.truncmod(x, y), 0, 10) == ["0", "y - 1"]
    assert ends(tir.truncmod(x, y), -10, 10) == ["1 - y", "y - 1"]
    assert ends(tir.floormod(x * 16, 56), 0, 100) == ["0", "48"]
    assert ends(e.Ramp(x, 2, tir.vscale() * 4), 3, 5) == ["3", "pos_inf"]
    assert ends(e.Ramp(x, -2, tir.vscale() * 4), 3, 5) == ["neg_inf", "5"]


def test_a_quotient_by_a_negative_number_is_solved() -> None:
    for condition, low, high in ((x // -8 > 3, None, -32), (x // -8 <= 3, -31, None)):
        found = arith.deduce_bound(x, condition, {}, {})
        assert [None if str(v).endswith("inf") else v.value for v in (found.min_value, found.max_value)] == [low, high]
        for value in range(-80, 80):
            inside = (low is None or low <= value) and (high is None or value <= high)
            assert inside == bool(evaluate(condition, {x: value}))
