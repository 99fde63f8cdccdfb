"""Random expressions: whatever the analyzer says of them holds at every point of the variables' ranges."""

from __future__ import annotations

from typing import Any

from arith_oracle import ARITHMETIC, conditions_over, evaluate, expressions, points
from hypothesis import given
from hypothesis import strategies as st

from oneir import arith
from oneir.ir import expr as e

i, j, k = (e.Var(name, "int32") for name in "ijk")
RANGES = {i: (0, 7), j: (-3, 4), k: (0, 3)}
POINTS = list(points(RANGES))
CONSTANTS = [-8, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 16]
integers = expressions([i, j, k], "int32", CONSTANTS)
conditions = conditions_over(integers)


def analyzer_of(ranges: dict[e.Var, tuple[int, int]]) -> arith.Analyzer:
    analyzer = arith.Analyzer()
    for variable, (low, high) in ranges.items():
        analyzer.bind(variable, e.Range(low, high + 1))
    return analyzer


def assert_equal_everywhere(before: Any, after: Any, where: Any = None) -> None:
    for values in POINTS:
        if where is None or evaluate(where, values):
            assert evaluate(after, values) == evaluate(before, values), f"at {values}:\n{before}\n{after}"


@given(integers | conditions)
def test_simplify_keeps_the_value(expr: Any) -> None:
    assert_equal_everywhere(expr, analyzer_of(RANGES).simplify(expr))


@given(integers | conditions)
def test_rewrite_simplify_keeps_the_value(expr: Any) -> None:
    assert_equal_everywhere(expr, analyzer_of(RANGES).rewrite_simplify(expr))


@given(integers | conditions)
def test_canonical_simplify_keeps_the_value(expr: Any) -> None:
    assert_equal_everywhere(expr, analyzer_of(RANGES).canonical_simplify(expr))


@given(integers | conditions, conditions)
def test_simplify_keeps_the_value_where_a_condition_holds(expr: Any, condition: Any) -> None:
    analyzer = analyzer_of(RANGES)
    with analyzer.constraint_scope(condition):
        result = analyzer.simplify(expr)
    assert_equal_everywhere(expr, result, condition)


@given(integers | conditions)
def test_extensions_keep_the_value(expr: Any) -> None:
    analyzer = analyzer_of(RANGES)
    analyzer.enabled_extensions = arith.Extension(15)
    assert_equal_everywhere(expr, analyzer.simplify(expr))


@given(integers)
def test_bounds_hold(expr: Any) -> None:
    bound = analyzer_of(RANGES).const_int_bound(expr)
    values = [evaluate(expr, p) for p in POINTS]
    assert bound.min_value <= min(values)
    assert bound.max_value >= max(values)


@given(integers)
def test_remainders_hold(expr: Any) -> None:
    known = analyzer_of(RANGES).modular_set(expr)
    for values in POINTS:
        difference = evaluate(expr, values) - known.base
        assert difference % known.coeff == 0 if known.coeff else difference == 0


@given(integers)
def test_interval_holds_every_value(expr: Any) -> None:
    domains = {v: arith.IntervalSet(low, high) for v, (low, high) in RANGES.items()}
    found = arith.Analyzer().int_set(expr, domains)
    assert isinstance(found, arith.IntervalSet)
    values = [evaluate(expr, p) for p in POINTS]
    if found.min_value is not arith.neg_inf():
        assert evaluate(found.min_value, {}) <= min(values)
    if found.max_value is not arith.pos_inf():
        assert evaluate(found.max_value, {}) >= max(values)


@given(integers)
def test_interval_with_symbolic_ends_holds_every_value(expr: Any) -> None:
    found = arith.Analyzer().int_set(expr, {i: arith.IntervalSet(0, k)})
    assert isinstance(found, arith.IntervalSet)
    for values in POINTS:
        if values[i] <= values[k]:
            value = evaluate(expr, values)
            assert found.min_value is arith.neg_inf() or evaluate(found.min_value, values) <= value
            assert found.max_value is arith.pos_inf() or evaluate(found.max_value, values) >= value


@given(conditions)
def test_what_is_proved_holds(condition: Any) -> None:
    if analyzer_of(RANGES).can_prove(condition):
        assert all(evaluate(condition, p) for p in POINTS)


@given(conditions, conditions, st.integers(0, 15))
def test_what_is_proved_under_a_condition_holds_where_it_does(goal: Any, condition: Any, extensions: int) -> None:
    analyzer = analyzer_of(RANGES)
    analyzer.enabled_extensions = arith.Extension(extensions)
    with analyzer.constraint_scope(condition):
        proved = analyzer.can_prove(goal)
    if proved:
        assert all(evaluate(goal, p) for p in POINTS if evaluate(condition, p))


@given(conditions)
def test_symbolic_ranges_are_used_soundly(condition: Any) -> None:
    analyzer = analyzer_of({j: RANGES[j], k: (1, 3)})
    analyzer.bind(i, e.Range(e.IntImm("int32", 0), k))
    result = analyzer.simplify(condition)
    for values in POINTS:
        if values[k] >= 1 and values[i] < values[k]:
            assert evaluate(result, values) == evaluate(condition, values), f"{condition} at {values}"


NARROW = {"int8": [-128, -5, -1, 0, 1, 2, 3, 7, 100, 127], "uint8": [0, 1, 2, 3, 8, 128, 200, 255]}


def check_wrapping(dtype: str, data: Any) -> None:
    x, y = e.Var("x", dtype), e.Var("y", dtype)
    samples = [dict(zip((x, y), pair, strict=True)) for pair in [(a, b) for a in NARROW[dtype] for b in NARROW[dtype]]]
    inner = expressions([x, y], dtype, NARROW[dtype])
    expr = data.draw(inner | conditions_over(inner))
    analyzer = arith.Analyzer()
    result = analyzer.simplify(expr)
    bound, known = analyzer.const_int_bound(expr), analyzer.modular_set(expr)
    for values in samples:
        value = evaluate(expr, values)
        assert evaluate(result, values) == value, f"at {values}:\n{expr}\n{result}"
        assert bound.min_value <= value <= bound.max_value
        assert (value - known.base) % known.coeff == 0 if known.coeff else value == known.base


@given(st.data())
def test_signed_bytes_wrap(data: Any) -> None:
    check_wrapping("int8", data)


@given(st.data())
def test_unsigned_bytes_wrap(data: Any) -> None:
    check_wrapping("uint8", data)


def vectors(inner: Any) -> Any:
    """Random vectors of four lanes and what is computed from them."""
    leaves = st.builds(lambda base, stride: e.Ramp(base, e.IntImm("int32", stride), 4), inner, st.integers(-4, 8))
    leaves |= st.builds(lambda value: e.Broadcast(value, 4), inner)
    operators = st.sampled_from([*ARITHMETIC[:5], e.Min, e.Max, e.LT, e.LE, e.EQ])
    return st.builds(lambda cls, a, b: cls(a, b), operators, leaves, leaves)


@given(vectors(expressions([i, j], "int32", CONSTANTS)))
def test_vectors_keep_their_lanes(expr: Any) -> None:
    assert_equal_everywhere(expr, analyzer_of(RANGES).simplify(expr))


@given(integers | conditions)
def test_simplifying_twice_changes_nothing_more_in_value_and_keeps_the_object(expr: Any) -> None:
    analyzer = analyzer_of(RANGES)
    result = analyzer.simplify(expr)
    assert analyzer.simplify(result) is analyzer.simplify(result)
    assert_equal_everywhere(result, analyzer.simplify(result))
