"""Linear forms, clips and repeated parts of expressions; bounds deduced from conditions."""

from __future__ import annotations

from typing import Any

import pytest
from arith_oracle import evaluate, points
from arith_text import build
from hypothesis import given
from hypothesis import strategies as st

from oneir import arith, tir
from oneir.ir import expr as e
from oneir.ir.structural import structural_equal

x, y, z = (e.Var(name, "int32") for name in "xyz")
n = e.SizeVar("n", "int32")
NAMES = {"x": x, "y": y, "z": z, "n": n}

LINEAR = """
x * 4 + y + n -> 4, 1, n
x - y * 3 -> 1, -3, 0
(x + y) * n -> n, n, 0
(x + 2) * 3 - x -> 2, 0, 6
7 -> 0, 0, 7
z // 2 + y -> 0, 1, z // 2
"""


@pytest.mark.parametrize("line", [line for line in LINEAR.splitlines() if line])
def test_linear_equations(line: str) -> None:
    text, _, parts = line.partition(" -> ")
    found = arith.detect_linear_equation(build(text, NAMES), [x, y])
    for part, expected in zip(found, parts.split(", "), strict=True):
        assert structural_equal(part, build(expected, NAMES))


@pytest.mark.parametrize("text", ["x * y", "x // 2", "y % 4 + x", "min(x, 3)"])
def test_what_is_not_linear(text: str) -> None:
    assert arith.detect_linear_equation(build(text, NAMES), [x, y]) == []


CLIPS = """
x < 10 -> None, 9, None, None
x >= n and y <= 4 -> n, None, None, 4
x < n and x > 2 and x < 8 -> 3, min(n - 1; 7), None, None
3 - x >= 0 -> None, 3, None, None
x == 4 -> 4, 4, None, None
likely(y + 1 > z) -> None, None, z, None
"""


@pytest.mark.parametrize("line", [line for line in CLIPS.splitlines() if line])
def test_clip_bounds(line: str) -> None:
    text, _, parts = line.partition(" -> ")
    found = arith.detect_clip_bound(build(text, NAMES), [x, y])
    for bound, expected in zip(found, parts.split(", "), strict=True):
        if expected == "None":
            assert bound is None
        else:
            assert arith.Analyzer().can_prove_equal(bound, build(expected.replace(";", ","), NAMES))


@pytest.mark.parametrize("text", ["x * 2 < 8", "x < y", "x < 4 or y < 2", "n < 4", "x * y < 3"])
def test_what_clips_no_variable(text: str) -> None:
    assert arith.detect_clip_bound(build(text, NAMES), [x, y]) == []


def test_common_subexpressions() -> None:
    expr = build("(x + y) * (x + y) + (x + y) // 2 * z + z * 3", NAMES)
    found = arith.detect_common_subexpr(expr, 2)
    assert [(str(part), times) for part, times in found.items()] == [("x + y", 3)]
    assert len(arith.detect_common_subexpr(expr, 1)) == 7


def test_loads_are_no_common_subexpressions() -> None:
    buffer = tir.decl_buffer((8,), "int32")
    assert arith.detect_common_subexpr((buffer[x] + 1) * (buffer[x] + 1), 2) == {}


# -- bounds --

DEDUCED = """
x + 3 <= y -> -inf, y - 3
x * 4 >= n -> (n + 3) // 4, inf
0 - x * 2 < 5 -> -2, inf
x * 3 == 9 -> 3, 3
x // 4 <= 2 -> -inf, 11
x // 4 > n -> n * 4 + 4, inf
10 - (x + 1) // 2 >= y -> -inf, 20 - y * 2
x * 3 + y > x * 2 -> 1 - y, inf
x >= 2 and x < 9 -> 2, 8
"""


@pytest.mark.parametrize("line", [line for line in DEDUCED.splitlines() if line])
def test_deduce_bound(line: str) -> None:
    text, _, parts = line.partition(" -> ")
    found = arith.deduce_bound(x, build(text, NAMES), {}, {})
    infinities = {"-inf": arith.neg_inf(), "inf": arith.pos_inf()}
    for bound, expected in zip((found.min_value, found.max_value), parts.split(", "), strict=True):
        if expected in infinities:
            assert bound is infinities[expected]
        else:
            assert arith.Analyzer().can_prove_equal(bound, build(expected, NAMES))


@pytest.mark.parametrize("text", ["x % 4 < 2", "x * z < 3", "x * x > 4", "x != 2", "x // z < 3", "x < 2 or x > 5"])
def test_conditions_that_cannot_be_solved(text: str) -> None:
    assert arith.deduce_bound(x, build(text, NAMES), {}, {}).is_nothing()


def test_signs_come_from_hints() -> None:
    found = arith.deduce_bound(x, build("x * y < 10", NAMES), {y: arith.IntervalSet(1, 4)}, {})
    assert found.max_value is not arith.pos_inf()
    for value in range(1, 5):
        assert evaluate(found.max_value, {y: value}) == 9 // value


def test_quotients_by_hints_are_short() -> None:
    hints = {y: arith.IntervalSet(2, 3), z: arith.IntervalSet(10, 15)}
    relaxed = {y: hints[y]}
    # z divides none of 1, 2 and 3, and does so with y.
    for text, expected in (("x * z >= y", "3 // z + 1"), ("x * z <= y", "2 // z"), ("x * z == z * y", None)):
        found = arith.deduce_bound(x, build(text, NAMES), hints, relaxed)
        if expected is None:
            assert found.is_nothing()
            continue
        bound = found.min_value if found.max_value is arith.pos_inf() else found.max_value
        assert structural_equal(bound, build(expected, NAMES)), bound
    found = arith.deduce_bound(x, build("x * z == z * y", NAMES), hints, {})
    assert found.min_value is found.max_value is y
    # No multiple of four is 2 or 3.
    assert arith.deduce_bound(x, build("x * 4 == y", NAMES), hints, {}).is_nothing()


def test_a_condition_that_never_holds_has_no_bound() -> None:
    assert arith.deduce_bound(x, build("x < 2 and x > 5", NAMES), {}, {}).is_nothing()


def test_relaxed_variables_without_limits_have_no_bound() -> None:
    assert arith.deduce_bound(x, build("x > y", NAMES), {}, {y: arith.IntervalSet(0, arith.pos_inf())}).is_nothing()


SETS = {x: (-20, 20), y: (-2, 3), z: (1, 4)}


@st.composite
def solvable(draw: Any) -> Any:
    """Comparisons in which x stands once, below sums, products and quotients."""
    expr: Any = x
    for _ in range(draw(st.integers(0, 4))):
        other = draw(st.sampled_from([y, z, e.const(2, "int32"), e.const(-3, "int32"), e.Add(y, z)]))
        step = draw(st.sampled_from(["add", "minus", "from", "times", "over"]))
        if step == "add":
            expr = e.Add(other, expr)
        elif step == "minus":
            expr = e.Sub(expr, other)
        elif step == "from":
            expr = e.Sub(other, expr)
        elif step == "times":
            expr = e.Mul(expr, draw(st.sampled_from([z, e.const(-2, "int32"), e.const(3, "int32")])))
        else:
            expr = e.FloorDiv(expr, draw(st.sampled_from([z, e.const(2, "int32"), e.const(3, "int32")])))
    bound = draw(st.sampled_from([y, e.const(5, "int32"), e.Mul(z, e.const(2, "int32"))]))
    sides = (expr, bound) if draw(st.booleans()) else (bound, expr)
    return draw(st.sampled_from([e.LT, e.LE, e.GT, e.GE, e.EQ]))(*sides)


@given(solvable(), st.sets(st.sampled_from([y, z])))
def test_deduced_bounds_hold_for_all_relaxed_values(condition: Any, relaxed: set[e.Var]) -> None:
    sets = {var: arith.IntervalSet(*SETS[var]) for var in (y, z)}
    hints = {var: values for var, values in sets.items() if var not in relaxed}
    found = arith.deduce_bound(x, condition, hints, {var: sets[var] for var in relaxed})
    if found.is_nothing():
        return
    for point in points(SETS):
        low = point[x] if found.min_value is arith.neg_inf() else evaluate(found.min_value, point)
        high = point[x] if found.max_value is arith.pos_inf() else evaluate(found.max_value, point)
        if low <= point[x] <= high:
            assert evaluate(condition, point)
        elif not relaxed:
            # Without relaxed variables nothing is given away.
            assert not evaluate(condition, point)
