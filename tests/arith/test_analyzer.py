"""What an analyzer is told and asked: bounds, remainders, sets, conditions, scopes; and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from arith_text import build, show

from oneir import arith, tir
from oneir.ir import expr as e
from oneir.ir import operators as ops
from oneir.ir.structural import structural_equal
from oneir.runtime.error import InvalidValue, TypeMismatch, UnsupportedError

x, y, z = (e.Var(name, "int32") for name in "xyz")
i, j = e.Var("i", "int32"), e.Var("j", "int32")
n, m = e.SizeVar("n", "int32"), e.SizeVar("m", "int32")
u = e.Var("u", "uint8")
w = e.Var("w", "int64")
NAMES = {name: value for name, value in globals().items() if isinstance(value, e.Var)}
INF = arith.ConstIntBound.POS_INF


def analyzer() -> arith.Analyzer:
    result = arith.Analyzer()
    result.bind(i, e.Range(0, 8))
    result.bind(j, e.Range(0, 4))
    return result


UNPROVABLE = """
x < y
x < 2147483647
x * x >= 0
x // y * y <= x
n > 0
n // n == 1
i < 7
i * 4 + j < 31
(n + 2) // 4 * 4 >= n
n // 4 * 4 == n
min(x, y) < x
x % 4 != 3
u + 1 > u
u * 2 >= u
x + y > x
i * n < 8 * n
x % n < n
x // 2 * 2 == x
truncdiv(x, 2) <= x
truncmod(x, 4) >= 0
select(x < 3, 1, 2) == 1
shift_right(x, y) <= x
int64(int32(w)) == w
int32(w) == int32(w + 1)
"""


@pytest.mark.parametrize("text", UNPROVABLE.split("\n")[1:-1])
def test_what_does_not_hold_is_not_proved(text: str) -> None:
    assert not analyzer().can_prove(build(text, NAMES))


BOUNDS = [
    ("i * 4 + j", 0, 31),
    ("i - j", -3, 7),
    ("j - i * 2", -14, 3),
    ("i // 3", 0, 2),
    ("i % 3", 0, 2),
    ("(i * 4 + 1) % 8", 1, 5),
    ("x % 8", 0, 7),
    ("x % n", -(1 << 31), (1 << 31) - 1),
    ("n", 0, (1 << 31) - 1),
    ("w", -INF, INF),
    ("min(x, 5)", -(1 << 31), 5),
    ("max(i, 5)", 5, 7),
    ("truncdiv(i - 7, 2)", -3, 0),
    ("truncmod(i - 7, 4)", -3, 0),
    ("i // (j + 1)", 0, 7),
    ("i // j", 0, 7),
    ("i * (0 - j)", -21, 0),
    ("select(x < y, i, j + 10)", 0, 13),
    ("u", 0, 255),
    ("u + 1", 0, 255),
    ("u % 16 + 1", 1, 16),
    ("x < y", 0, 1),
    ("shift_right(i, 1)", 0, 3),
    ("bitwise_and(x, 15)", 0, 15),
    ("int64(i)", 0, 7),
    ("ramp(i, 2, 4)", 0, 13),
]


@pytest.mark.parametrize(("text", "low", "high"), BOUNDS)
def test_constant_bounds(text: str, low: int, high: int) -> None:
    bound = analyzer().const_int_bound(build(text, NAMES))
    assert (bound.min_value, bound.max_value) == (low, high)


REMAINDERS = [
    ("x * 4 + 1", 4, 1),
    ("x * 4 + y * 6 + 3", 2, 1),
    ("(x * 8 + 4) // 4", 2, 1),
    ("(x * 8 + 5) % 4", 0, 1),
    ("(x * 6 + 1) % 4", 2, 1),
    ("min(x * 4, y * 6 + 2)", 2, 0),
    ("x", 1, 0),
    ("shift_left(x, 3)", 8, 0),
    ("u * 6", 2, 0),
    ("int64(x * 4)", 4, 0),
]


@pytest.mark.parametrize(("text", "coeff", "base"), REMAINDERS)
def test_remainders(text: str, coeff: int, base: int) -> None:
    known = analyzer().modular_set(build(text, NAMES))
    assert (known.coeff, known.base) == (coeff, base)


SETS = [
    ("i * 4 + j", "0", "n * 4 - 1"),
    ("i + m", "m", "n + m - 1"),
    ("0 - i", "1 - n", "0"),
    ("m - i", "m - n + 1", "m"),
    ("j // 2", "0", "1"),
    ("j % 4", "0", "3"),
    ("m", "m", "m"),
    ("m * 2 + 1", "m * 2 + 1", "m * 2 + 1"),
    ("select(m < 3, j, j + 4)", "0", "7"),
    ("max(j, 2)", "2", "3"),
]


@pytest.mark.parametrize(("text", "low", "high"), SETS)
def test_interval_with_symbolic_ends(text: str, low: str, high: str) -> None:
    domains = {i: arith.IntervalSet(0, n - 1), j: arith.IntervalSet(0, 3)}
    found = arith.Analyzer().int_set(build(text, NAMES), domains)
    assert isinstance(found, arith.IntervalSet)
    for end, expected in ((found.min_value, low), (found.max_value, high)):
        known = arith.Analyzer()
        assert known.can_prove_equal(end, build(expected, NAMES)), f"expected {expected}, found {show(end)}"


def test_interval_of_what_is_unknown() -> None:
    everything = arith.Analyzer().int_set(x * y, {x: arith.IntervalSet(arith.neg_inf(), arith.pos_inf())})
    assert everything.is_everything() and not everything.is_nothing()
    assert arith.IntervalSet(arith.pos_inf(), arith.neg_inf()).is_nothing()


def test_interval_of_a_vector_and_of_a_point() -> None:
    lanes = arith.IntSet.vector(e.Ramp(e.IntImm("int32", 2), e.IntImm("int32", 3), 4))
    assert (int(lanes.min_value), int(lanes.max_value)) == (2, 11)
    point = arith.IntSet.single_point(n)
    assert point.min_value is n and point.is_single_point()


def test_presburger_sets_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Presburger"):
        arith.PresburgerSet()


def test_interval_of_bound_variables_needs_no_map() -> None:
    found = analyzer().int_set(i * 4 + j)
    assert isinstance(found, arith.IntervalSet)
    assert (int(found.min_value), int(found.max_value)) == (0, 31)


def test_bound_expression_is_put_in() -> None:
    known = arith.Analyzer()
    known.bind(x, y + 1)
    assert structural_equal(known.simplify(x - 1), y)


def test_range_of_one_is_its_value() -> None:
    known = arith.Analyzer()
    known.bind(x, e.Range.from_min_extent(5, 1))
    assert structural_equal(known.simplify(x + y), y + 5)


def test_binding_to_something_else_is_refused() -> None:
    known = analyzer()
    known.bind(i, e.Range(0, 8))
    with pytest.raises(InvalidValue, match=r"i is already bound to \[0, 7\]; pass allow_override=True"):
        known.bind(i, e.Range(0, 9))
    known.bind(i, e.Range(0, 9), allow_override=True)
    assert known.const_int_bound(i).max_value == 8


def test_binding_an_expression_to_another_one_is_refused() -> None:
    known = arith.Analyzer()
    known.bind(x, y)
    with pytest.raises(InvalidValue, match="x is already bound to"):
        known.bind(x, z)


def test_only_variables_can_be_bound() -> None:
    with pytest.raises(TypeMismatch, match="expected a variable to bind"):
        arith.Analyzer().bind(x + 1, e.Range(0, 4))


def test_bounds_of_a_float_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="expected an integer expression"):
        arith.Analyzer().const_int_bound(e.Var("f", "float32"))


def test_a_number_is_not_a_condition() -> None:
    with pytest.raises(TypeMismatch, match="expected a bool expression"):
        arith.Analyzer().can_prove(x + 1)


def test_updates() -> None:
    known = arith.Analyzer()
    assert not known.const_int_bound_is_bound(x)
    known.update(x, arith.ConstIntBound(0, 9))
    assert known.const_int_bound_is_bound(x) and known.can_prove(x < 10)
    known.update(x, arith.ModularSet(4, 1))
    assert structural_equal(known.simplify(x % 2), e.IntImm("int32", 1))
    with pytest.raises(InvalidValue, match="already known as 4"):
        known.update(x, arith.ModularSet(3, 1))
    known.update(x, arith.ModularSet(3, 1), override=True)
    with pytest.raises(TypeMismatch, match="expected a ConstIntBound"):
        number: Any = 3
        known.update(x, number)


UNDER = [
    ("x < 8", "x < 9"),
    ("3 <= x and x < 8", "x // 8 == 0"),
    ("x % 4 == 1", "x % 2 == 1"),
    ("x < y", "x + 1 <= y"),
    ("x < y", "not (y <= x)"),
    ("x * 4 + y < n", "x * 4 + y < n + 1"),
    ("x == y", "x <= y"),
    ("x == y", "y - x == 0"),
    ("likely(x < 8)", "x < 8"),
    ("x + y < 10", "x + y < 12"),
    ("n > 0", "n // n == 1"),
    ("n != 0", "x * n // n == x"),
    ("i < n", "n > 0"),
    ("not (x < 4 or 8 <= x)", "x // 4 == 1"),
    ("u < 10", "u + 5 > u % 4"),
]


@pytest.mark.parametrize(("condition", "goal"), UNDER)
def test_conditions_count_inside_their_scope_and_not_after(condition: str, goal: str) -> None:
    known = analyzer()
    assert not known.can_prove(build(goal, NAMES))
    with known.constraint_scope(build(condition, NAMES)):
        assert known.can_prove(build(goal, NAMES))
    assert not known.can_prove(build(goal, NAMES))


def test_scopes_nest() -> None:
    known = arith.Analyzer()
    scope = known.constraint_scope(x < 8)
    assert isinstance(scope, arith.ConstraintScope) and not known.can_prove(x < 8)
    with scope:
        with arith.ConstraintScope(known, x >= 4):
            assert known.can_prove(ops.equal(x // 4, 1))
        assert not known.can_prove(x >= 4) and known.can_prove(x < 8)


def test_what_a_condition_says_does_not_stay_because_something_is_bound() -> None:
    known, n, m, i = arith.Analyzer(), *(e.Var(name, "int32") for name in "nmi")
    with known.constraint_scope(ops.logical_and(ops.equal(n % 3, 0), m < 4)):
        known.bind(i, e.Range(0, 4))
        assert known.can_prove(ops.equal(n % 3, 0)) and known.can_prove(m < 5)
    assert not known.can_prove(ops.equal(n % 3, 0)) and not known.can_prove(m < 5) and known.can_prove(i < 4)


def test_what_is_bound_in_a_scope_stays_bound() -> None:
    known = arith.Analyzer()
    with known.constraint_scope(x < 8):
        known.bind(y, e.Range(0, 4))
    assert known.can_prove(y < 4)


def test_what_is_loaded_is_not_known_to_stay() -> None:
    buffer = tir.decl_buffer((8,), "int32")
    known = arith.Analyzer()
    with known.constraint_scope(ops.logical_and(buffer[0] < 4, x < 3)):
        assert known.can_prove(x < 3)
        assert not known.can_prove(buffer[0] < 4)


def test_proofs_by_name() -> None:
    known = analyzer()
    assert known.can_prove_equal(i * 2, i + i)
    assert known.can_prove_greater_equal(i, 0) and not known.can_prove_greater_equal(i, 1)
    assert known.can_prove_less(i, 8) and not known.can_prove_less(i, 7)
    assert known.can_prove(i < 8, arith.ProofStrength.SYMBOLIC_BOUND)


EXTENSIONS: list[tuple[arith.Extension, str, str]] = [
    (arith.Extension.TransitivelyProveInequalities, "x < y and y < z and z < m", "x + 3 <= m"),
    (arith.Extension.ComparisonOfProductAndSum, "4 <= x and 4 <= y", "(x + y) * 32 < x * y * 65"),
]


@pytest.mark.parametrize(("extension", "condition", "goal"), EXTENSIONS)
def test_extension_proves_more(extension: arith.Extension, condition: str, goal: str) -> None:
    known = arith.Analyzer()
    known.enabled_extensions = extension
    assert known.enabled_extensions == extension
    with known.constraint_scope(build(condition, NAMES)):
        assert known.can_prove(build(goal, NAMES))
        assert not known.can_prove(build(goal.replace("65", "15").replace("3", "4"), NAMES))


def check_extension(extension: arith.Extension, before: str, after: str) -> None:
    known = arith.Analyzer()
    before_expr, expected = build(before, NAMES), build(after, NAMES)
    assert not structural_equal(known.simplify(before_expr), expected)
    known.enabled_extensions = extension
    result = known.simplify(before_expr)
    assert structural_equal(result, expected), show(result)


def test_branches_know_what_the_other_branch_says() -> None:
    flag = arith.Extension.ApplyConstraintsToBooleanBranches
    check_extension(flag, "x == 5 and x // 5 == y", "x == 5 and y == 1")


def test_conditions_become_and_of_ors() -> None:
    flag = arith.Extension.ConvertBooleanToAndOfOrs
    check_extension(flag, "(x < 3 and y < 4) or z < 5", "(x < 3 or z < 5) and (y < 4 or z < 5)")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(x < 3 or y < 4) and (y < 4 or z < 5 or x < 3)", "x < 3 or y < 4"),  # the second follows from the first
        ("(x == 3 or y == 2) and (y == 2 or x != 7)", "y == 2 or x == 3"),  # alike but for one part
        ("x == 3 and (y < 4 or z < 5) and x != 7", "(y < 4 or z < 5) and x == 3"),
        ("x == 3 or y < 4 or x != 7", "y < 4 or x != 7"),
    ],
)
def test_disjunctions_that_are_alike_are_merged(before: str, after: str) -> None:
    check_extension(arith.Extension.ConvertBooleanToAndOfOrs, before, after)


def test_what_is_known_to_differ_makes_comparisons_strict() -> None:
    known = arith.Analyzer()
    with known.constraint_scope(build("x != y", NAMES)):
        assert structural_equal(known.rewrite_simplify(build("x <= y", NAMES)), build("x < y", NAMES))
        assert structural_equal(known.rewrite_simplify(build("x <= z", NAMES)), build("x <= z", NAMES))


def test_equal_expressions_differ_from_what_either_differs_from() -> None:
    known = arith.Analyzer()
    known.enabled_extensions = arith.Extension.TransitivelyProveInequalities
    with known.constraint_scope(build("x == y and y != z", NAMES)):
        assert known.can_prove(build("x != z", NAMES))
        assert not known.can_prove(build("x != 3", NAMES))


def test_a_choice_is_made_where_its_condition_is_known_not_to_hold() -> None:
    known = arith.Analyzer()
    with known.constraint_scope(e.Not(build("x == 1 and 6 <= y", NAMES))):
        assert structural_equal(known.simplify(build("x == 1 and 6 <= y", NAMES)), e.const(False, "bool"))
        assert not known.can_prove(build("x == 1", NAMES))


def test_rules_add_negative_constants_and_sums_subtract_positive_ones() -> None:
    known = arith.Analyzer()
    for text in ("x - 1", "x + (-1)"):
        assert structural_equal(known.rewrite_simplify(build(text, NAMES)), build("x + (-1)", NAMES))
        assert structural_equal(known.simplify(build(text, NAMES)), build("x - 1", NAMES))
    # Both forms are one to what is known.
    with known.constraint_scope(build("(x + (-1)) // 2 < 3", NAMES)):
        assert known.can_prove(build("(x - 1) // 2 < 3", NAMES))


@pytest.mark.parametrize("text", ["i * 32 + j", "x < y", "x // 4", "min(x, y)", "(x + 3) // 4 * 4", "x and y"])
def test_simplest_form_comes_back_as_the_same_object(text: str) -> None:
    names: dict[str, Any] = {**NAMES, "x": e.Var("x", "bool"), "y": e.Var("y", "bool")} if "and" in text else NAMES
    expr = build(text, names)
    assert analyzer().simplify(expr) is expr
    assert analyzer().rewrite_simplify(expr) is expr


def test_statistics() -> None:
    known = analyzer()
    known.rewrite_simplify(i * 4 // 4)
    assert known.rewrite_simplify_stats.rewrites_performed > 0
    known.reset_rewrite_simplify_stats()
    assert known.rewrite_simplify_stats.rewrites_performed == 0


@pytest.mark.parametrize("cls", [e.Add, e.Min, e.FloorDiv])
def test_deep_expressions(cls: Any) -> None:
    expr: Any = x
    for _ in range(20_000):
        expr = cls(expr, y)
    known = arith.Analyzer()
    known.bind(y, e.Range(1, 4))
    known.simplify(expr)
    known.const_int_bound(expr)
    known.modular_set(expr)
    known.int_set(expr, {x: arith.IntervalSet(0, 3)})


def test_what_is_taken_off_stays_in_a_truncated_quotient() -> None:
    known = arith.Analyzer()
    known.bind(x, e.Range(4, 96))
    assert structural_equal(known.simplify(e.Div(x - 4, e.const(2))), e.Div(x - 4, e.const(2)))
    assert structural_equal(known.simplify(e.Div(x - 4, e.const(128))), e.const(0))


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ("x * (y * n)", "x * y * n"),
        ("x * y * n", "n * x * y"),
        ("(x * 3) * (y * n)", "n * (y * (x * 3))"),
        ("x * (y * n) // 7 + i", "(n * y * x) // 7 + i"),
    ],
)
def test_products_are_the_same_in_any_order(same: str, other: str) -> None:
    found = analyzer()
    assert found.can_prove_equal(build(same, NAMES), build(other, NAMES))
    assert structural_equal(found.simplify(build(f"{same} - ({other})", NAMES)), e.const(0))
    assert not found.can_prove_equal(build(same, NAMES), build(f"({other}) * x", NAMES))


def test_quotients_and_remainders_by_a_positive_symbol_are_bounded():
    found = analyzer()
    a, b, c, d = (e.Var(name, "int32") for name in "abcd")
    found.bind(a, e.Range(0, c * d))
    found.bind(b, e.Range(0, c * 32))
    for condition in (a // c < d, a % c < c, b // c < 32):
        assert not found.can_prove(condition)
    with found.constraint_scope(c > 0):
        for condition in (a // c < d, a % c < c, b // c < 32, b % c < c):
            assert found.can_prove(condition)
        assert not found.can_prove(a // c < d - 1)
        assert not found.can_prove(b // c < 31)


def test_quotients_by_a_number_are_bounded_by_symbols():
    found = analyzer()
    a = e.Var("a", "int32")
    found.bind(a, e.Range(0, n * 12))
    for condition in (a // 12 < n, a // 12 * 3 + 2 < n * 3, a // 5 * 5 < n * 12, a // 24 * 2 < n):
        assert found.can_prove(condition)
    for condition in (a // 12 < n - 1, a // 12 * 3 + 3 < n * 3, a // 11 < n):
        assert not found.can_prove(condition)
    assert structural_equal(found.simplify(a // 12 % n), a // 12)
