"""Regions that loops touch, compared with what going through all iterations touches."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from arith_oracle import evaluate
from arith_text import build
from hypothesis import given
from hypothesis import strategies as st
from iter_map_oracle import domains, iterations

from oneir import arith
from oneir.ir import expr as e

i, j = (e.Var(name, "int32") for name in "ij")
n = e.SizeVar("n", "int32")
NAMES = {"i": i, "j": j, "n": n}
LOOPS = {i: (0, 7), j: (0, 3)}


def touched(region: list[e.Range], loops: dict[e.Var, tuple[int, int]], predicate: Any = True) -> set[tuple[int, ...]]:
    """The elements that a region covers over all iterations."""
    result: set[tuple[int, ...]] = set()
    for point in iterations(loops, predicate):
        starts = [evaluate(dimension.min, point) for dimension in region]
        widths = [evaluate(dimension.extent, point) for dimension in region]
        result |= set(itertools.product(*(range(a, a + w) for a, w in zip(starts, widths, strict=True))))
    return result


def elements(box: Any) -> set[tuple[int, ...]]:
    """The elements of a box with constant bounds."""
    return set(itertools.product(*(range(s.min_value.value, s.max_value.value + 1) for s in box)))


EXACT = """
i * 4 : 4 -> 0, 31
i * 4 + j : 1 -> 0, 31
i * 2 : 3 -> 0, 16
7 - i : 1 -> 0, 7
i + 3 : 2 ; j : 1 -> 3, 11 ; 0, 3
i // 4 : 1 ; i % 4 : 1 -> 0, 1 ; 0, 3
5 : 2 -> 5, 6
i : n -> 0, n + 6
"""


def region_of(text: str) -> list[e.Range]:
    return [e.Range(build(a, NAMES), extent=build(b, NAMES)) for a, b in (d.split(" : ") for d in text.split(" ; "))]


@pytest.mark.parametrize("line", [line for line in EXACT.splitlines() if line])
def test_strict_bounds(line: str) -> None:
    text, _, expected = line.partition(" -> ")
    found = arith.estimate_region_strict_bound(region_of(text), domains(LOOPS))
    if "n" in text:
        # That an extent of i : n leaves no gaps needs n >= 1, which is not known.
        assert found is None
        return
    assert found is not None
    for box, bounds in zip(found, expected.split(" ; "), strict=True):
        low, high = bounds.split(", ")
        assert arith.Analyzer().can_prove_equal(box.min_value, build(low, NAMES))
        assert arith.Analyzer().can_prove_equal(box.max_value, build(high, NAMES))


@pytest.mark.parametrize("text", ["i * 4 : 2", "i : 1 ; i : 1", "i * j : 1", "i // 3 : 1 ; i % 3 : 1"])
def test_what_is_no_box_has_no_strict_bound(text: str) -> None:
    assert arith.estimate_region_strict_bound(region_of(text), domains(LOOPS)) is None
    assert arith.estimate_region_lower_bound(region_of(text), domains(LOOPS)) is None


def test_predicates_narrow_regions() -> None:
    (found,) = arith.estimate_region_strict_bound(region_of("i * 4 + j : 1"), domains(LOOPS), i * 4 + j < 30) or ()
    assert (found.min_value.value, found.max_value.value) == (0, 29)


@st.composite
def regions(draw: Any) -> Any:
    """Regions of one or two dimensions whose starts are sums over i and j; perhaps a predicate."""
    dimensions = []
    for _ in range(draw(st.integers(1, 2))):
        start: Any = draw(st.sampled_from([i, j, i * 4 + j, i + j, i * 2, i // 2, i % 3, 9 - i, e.Min(i, j), i * j]))
        dimensions.append(e.Range(e.as_expr(start + draw(st.integers(-2, 3))), extent=draw(st.integers(1, 4))))
    return dimensions, draw(st.sampled_from([True, i < 5, i * 4 + j < 30, i + j < 4, e.And(i >= 2, j < 3)]))


@given(regions())
def test_strict_and_lower_bounds_are_what_is_touched(case: Any) -> None:
    region, predicate = case
    found = arith.estimate_region_strict_bound(region, domains(LOOPS), predicate)
    if found is not None:
        assert elements(found) == touched(region, LOOPS, predicate)
    lower = arith.estimate_region_lower_bound(region, domains(LOOPS), predicate)
    assert lower is None or elements(lower) <= touched(region, LOOPS, predicate)


@given(regions())
def test_upper_bounds_hold_what_is_touched(case: Any) -> None:
    region, predicate = case
    found = arith.estimate_region_upper_bound(region, domains(LOOPS), predicate)
    assert touched(region, LOOPS, predicate) <= elements(found)


def interval(low: int, high: int) -> arith.IntervalSet:
    return arith.IntervalSet(low, high)


UNIONS = [
    ([(0, 3), (4, 7)], (0, 7)),
    ([(0, 3), (2, 9), (-1, 0)], (-1, 9)),
    ([(0, 3), (5, 7)], (0, 3)),
    ([(5, 7)], (5, 7)),
]


@pytest.mark.parametrize(("sets", "expected"), UNIONS)
def test_union_lower_bound(sets: Any, expected: Any) -> None:
    found = arith.union_lower_bound([interval(*bounds) for bounds in sets])
    assert isinstance(found, arith.IntervalSet)
    assert (found.min_value.value, found.max_value.value) == expected


def test_union_lower_bound_of_nothing() -> None:
    assert arith.union_lower_bound([]).is_nothing()


def test_union_lower_bound_without_limits() -> None:
    found = arith.union_lower_bound([arith.IntervalSet(arith.neg_inf(), 3), arith.IntervalSet(2, arith.pos_inf())])
    assert found.is_everything()


def test_boxes_unite_and_intersect() -> None:
    first, second = [interval(0, 3), interval(2, 5)], [interval(2, 9), interval(7, 8)]
    assert elements(arith.union_region([first, second])) == set(itertools.product(range(10), range(2, 9)))
    common = arith.intersect_region([first, second])
    assert (common[0].min_value.value, common[0].max_value.value) == (2, 3)
    assert common[1].is_nothing()
