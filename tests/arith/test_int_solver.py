"""Linear systems: solved ones have exactly the solutions that going through a box finds."""

from __future__ import annotations

from typing import Any

import pytest
from arith_oracle import evaluate, points
from arith_text import build
from hypothesis import given
from hypothesis import strategies as st

from oneir import arith
from oneir.ir import expr as e
from oneir.ir.structural import structural_equal
from oneir.runtime.error import TypeMismatch

x, y, z = (e.Var(name, "int32") for name in "xyz")
n = e.SizeVar("n", "int32")
NAMES = {"x": x, "y": y, "z": z, "n": n}
BOX = {x: (-4, 5), y: (-3, 4), z: (0, 5)}
RANGES = {var: e.Range(low, high + 1) for var, (low, high) in BOX.items()}


def conditions(text: str) -> list[Any]:
    return [build(part, NAMES) for part in text.split(", ")]


def holds(relations: Any, point: dict[e.Var, int]) -> bool:
    return all(evaluate(relation, point) for relation in relations)


def in_ranges(ranges: Any, point: dict[e.Var, int]) -> bool:
    for var, domain in ranges.items():
        low = evaluate(domain.min, point)
        if not low <= point[var] < low + evaluate(domain.extent, point):
            return False
    return True


SOLVED = """
x + y == 20, x - y == 10 -> 15, 5
x == 3, y == x + 1 -> 3, 4
x * 2 + y * 3 == 7, x - y == 1 -> 2, 1
x + y == n, x - y == 0 - n -> 0, n
"""


@pytest.mark.parametrize("line", [line for line in SOLVED.splitlines() if line])
def test_equations_with_one_solution(line: str) -> None:
    before, _, after = line.partition(" -> ")
    solution = arith.solve_linear_equations(conditions(before), [x, y])
    assert len(solution.dst.variables) == 0
    for var, expected in zip((x, y), conditions(after), strict=True):
        assert structural_equal(solution.src_to_dst[var], expected)


def test_equations_leave_conditions_on_parameters() -> None:
    solution = arith.solve_linear_equations([e.EQ(x * 2, n), e.EQ(x + y, n)], [x, y])
    assert [str(relation) for relation in solution.dst.relations] == ["n % 2 == 0"]
    assert str(solution.src_to_dst[x]) == "n // 2"


@pytest.mark.parametrize("text", ["x + y == 3, x + y == 4", "x * 2 + y * 4 == 5", "x == 3, x == 4"])
def test_equations_without_solution(text: str) -> None:
    solution = arith.solve_linear_equations(conditions(text), [x, y])
    assert [relation.value for relation in solution.dst.relations] == [0]


def test_equations_that_are_not_linear_stay() -> None:
    solution = arith.solve_linear_equations(conditions("x == 3, x * y == 6"), [x, y])
    assert len(solution.dst.relations) == 1
    (new,) = solution.dst.variables
    assert [v for v in range(-5, 6) if evaluate(solution.dst.relations[0], {new: v})] == [2]


def test_equations_must_be_conditions() -> None:
    with pytest.raises(TypeMismatch, match="expected a bool expression"):
        arith.solve_linear_equations([x + y])


@st.composite
def systems(draw: Any, comparisons: list[type]) -> list[Any]:
    """Up to four comparisons of sums of multiples of x, y, z."""
    result = []
    for _ in range(draw(st.integers(1, 4))):
        sides = []
        for _ in range(2):
            factors = [draw(st.integers(-3, 3)) for _ in (x, y, z)]
            total: Any = e.const(draw(st.integers(-6, 6)), "int32")
            for factor, var in zip(factors, (x, y, z), strict=True):
                total = e.Add(total, e.Mul(var, e.const(factor, "int32")))
            sides.append(total)
        result.append(draw(st.sampled_from(comparisons))(*sides))
    return result


@given(systems([e.EQ]))
def test_equations_have_the_solutions_of_the_box(system: list[Any]) -> None:
    solution = arith.solve_linear_equations(system, [x, y, z], RANGES)
    expected = {tuple(p.values()) for p in points(BOX) if holds(system, p)}
    dst = solution.dst
    if not solution.src_to_dst:
        assert not expected
        return
    # Of every solution the new variables lie in their ranges, and lead back to it.
    for values in expected:
        old = dict(zip(BOX, values, strict=True))
        new = {var: evaluate(solution.dst_to_src[var], old) for var in dst.variables}
        assert in_ranges(dst.ranges, new)
        assert holds(dst.relations, new)
        assert tuple(evaluate(solution.src_to_dst[var], new) for var in BOX) == values
    # And what the new variables say is a solution.
    bounds = {var: (domain.min.value, domain.min.value + domain.extent.value - 1) for var, domain in dst.ranges.items()}
    assert len(bounds) == len(dst.variables)
    if len(bounds) < 3:
        found = {
            tuple(evaluate(solution.src_to_dst[var], p) for var in BOX)
            for p in points(bounds)
            if holds(dst.relations, p)
        }
        assert found == expected


INEQUALITIES = """
x >= 0, x < 10 -> x in 0, 10
x >= y, x <= 7, y >= 0, y < 8 -> x in y, 8 - y ; y in 0, 8
x * 3 >= 4, x * 2 < 11 -> x in 2, 4
x - n < 0, x >= 0 -> x in 0, n
x == 3 -> x in 3, 1
"""


@pytest.mark.parametrize("line", [line for line in INEQUALITIES.splitlines() if line])
def test_inequalities_as_ranges(line: str) -> None:
    before, _, after = line.partition(" -> ")
    parts = [part.split(" in ") for part in after.split(" ; ")]
    solution = arith.solve_linear_inequalities(conditions(before), [NAMES[name] for name, _ in parts])
    assert isinstance(solution, arith.IntConstraints)
    assert not [r for r in solution.relations if "x" in str(r) or "y" in str(r)]
    for name, expected in parts:
        low, extent = conditions(expected)
        domain = solution.ranges[NAMES[name]]
        assert structural_equal(domain.min, low)
        assert structural_equal(domain.extent, extent)


def test_one_sided_bounds_are_relations() -> None:
    solution = arith.solve_linear_inequalities(conditions("x * 2 >= 5"), [x])
    assert not solution.ranges
    assert structural_equal(solution.relations[0], e.GE(x, e.const(3, "int32")))


@pytest.mark.parametrize("text", ["x < 0, x > 0", "x > y, y > z, z > x", "x * 2 > 2, x * 2 < 4"])
def test_inequalities_without_solution(text: str) -> None:
    solution = arith.solve_linear_inequalities(conditions(text), [x, y, z])
    assert [relation.value for relation in solution.relations] == [0]


def test_inequalities_that_are_not_linear_stay() -> None:
    solution = arith.solve_linear_inequalities(conditions("x * y > 3, x != 2"), [x, y])
    assert [str(relation) for relation in solution.relations] == ["x * y > 3", "x != 2"]


@given(systems([e.LT, e.LE, e.GT, e.GE, e.EQ]))
def test_inequalities_have_the_solutions_of_the_box(system: list[Any]) -> None:
    solution = arith.solve_linear_inequalities(system, [x, y, z], RANGES)
    for point in points(BOX):
        found = in_ranges(solution.ranges, point) and holds(solution.relations, point)
        assert found == holds(system, point)


@given(systems([e.LT, e.GE]))
def test_deskewed_ranges_begin_at_zero(system: list[Any]) -> None:
    solution = arith.solve_linear_inequalities(system, [x, y, z], RANGES, deskew_range=True)
    assert isinstance(solution, arith.IntConstraintsTransform)
    dst = solution.dst
    assert all(domain.min.value == 0 for domain in dst.ranges.values())
    for point in points(BOX):
        new = {var: evaluate(solution.dst_to_src[var], point) for var in dst.variables}
        assert (in_ranges(dst.ranges, new) and holds(dst.relations, new)) == holds(system, point)
        assert {var: evaluate(solution.src_to_dst[var], new) for var in BOX} == point


def test_constraints_may_be_given_as_one() -> None:
    problem = arith.IntConstraints([x], {x: e.Range(0, 10)}, [e.GT(x, e.const(3, "int32"))])
    domain = arith.solve_linear_inequalities(problem).ranges[x]
    assert (domain.min.value, domain.extent.value) == (4, 6)


def test_group_bounds() -> None:
    bounds = arith.IntGroupBounds(2, [3, 7], [], [21])
    best = bounds.find_best_range()
    assert best is not None
    assert (best.min.value, best.extent.value) == (4, 7)
    assert arith.IntGroupBounds(1, [3], [], []).find_best_range() is None
    assert arith.IntGroupBounds.from_range(e.Range(2, 7)).find_best_range() == e.Range(2, 7)
    assert arith.IntGroupBounds.from_range(e.Range(2, 3)).equal[0].value == 2
