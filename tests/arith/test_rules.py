"""Every identity of the rule table, tried on all small numbers."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest

from oneir.arith import rules as table
from oneir.arith.pattern import parse_rules, rule_texts
from oneir.ir import expr as e
from oneir.runtime.error import InternalError


class Number:
    """An integer with the division that the language defines, wrapping at `bits` when that is set."""

    bits: int | None = None

    def __init__(self, value: int):
        if self.bits is not None:
            value %= 1 << self.bits
            if value >= 1 << (self.bits - 1):
                value -= 1 << self.bits
        self.value = value

    def _make(self, value: int) -> Number:
        return type(self)(value)

    def __add__(self, other: Any) -> Number:
        return self._make(self.value + number(other))

    def __radd__(self, other: Any) -> Number:
        return self._make(number(other) + self.value)

    def __sub__(self, other: Any) -> Number:
        return self._make(self.value - number(other))

    def __rsub__(self, other: Any) -> Number:
        return self._make(number(other) - self.value)

    def __mul__(self, other: Any) -> Number:
        return self._make(self.value * number(other))

    def __rmul__(self, other: Any) -> Number:
        return self._make(number(other) * self.value)

    def __floordiv__(self, other: Any) -> Number:
        return self._make(self.value // number(other) if number(other) else 0)

    def __rfloordiv__(self, other: Any) -> Number:
        return self._make(number(other)) // self

    def __mod__(self, other: Any) -> Number:
        return self._make(self.value % number(other) if number(other) else self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == self._make(number(other)).value

    def __ne__(self, other: object) -> bool:
        return self.value != number(other)

    def __lt__(self, other: Any) -> bool:
        return self.value < number(other)

    def __le__(self, other: Any) -> bool:
        return self.value <= number(other)

    def __gt__(self, other: Any) -> bool:
        return self.value > number(other)

    def __ge__(self, other: Any) -> bool:
        return self.value >= number(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return self.value != 0


class Wrapping(Number):
    bits = 4


def number(value: Any) -> int:
    return value.value if isinstance(value, Number) else int(value)


def truncated(a: Any, b: Any) -> Any:
    """The quotient rounded towards zero, 0 of a division by zero."""
    quotient = abs(number(a)) // abs(number(b)) if number(b) else 0
    kind = type(a) if isinstance(a, Number) else type(b)
    return kind(quotient if (number(a) < 0) == (number(b) < 0) else -quotient)


QUESTIONS: dict[str, Any] = {
    "lo": lambda x: number(x),
    "hi": lambda x: number(x),
    "nonzero": lambda x: number(x) != 0,
    "less": lambda x, y: number(x) < number(y),
    "less_equal": lambda x, y: number(x) <= number(y),
    "divisible": lambda x, c: number(c) != 0,
    "remainder": lambda x, c: number(x) % number(c),
    "equal": lambda x, y: number(x) == number(y),
    "varies": lambda x: True,
    "whole": lambda x: True,
    "extremum": lambda x: False,
    "index": lambda x: not isinstance(x, Wrapping),
    "select": lambda c, a, b: a if c else b,
    "truncdiv": truncated,
    "truncmod": lambda a, b: a - b * truncated(a, b),
}
LOGICAL = (table.LOGIC, table.NEGATION)


def check(rule: str, kind: type[Number], constant_kind: type[Number], logical: bool) -> None:
    identity, _, condition = rule.partition(" where ")
    left, right = (compile(side.strip(), rule, "eval") for side in re.split("->|=>", identity))
    allowed = compile(condition.strip() or "True", rule, "eval")
    names = sorted(set(re.findall(r"\b[xyzwvc]\d?\b", rule)))
    span = range(-5, 6) if len(names) <= 3 else range(-3, 5) if len(names) == 4 else range(-2, 4)
    if kind is Wrapping:
        span = range(-8, 8)
    choices: Any = itertools.product(*(span for _ in names))
    if kind is Wrapping and len(names) > 3:
        dice = random.Random(rule)
        choices = [[dice.choice(span) for _ in names] for _ in range(4000)]
    applied = 0
    for values in choices:
        # The constants of conditions are plain integers, as they are for the simplifier.
        plain = {n: v for n, v in zip(names, values, strict=True) if n[0] == "c"}
        scope = {n: kind(v) for n, v in zip(names, values, strict=True)} | QUESTIONS
        if not eval(allowed, {**scope, **plain}):
            continue
        if logical and "<" not in rule and "==" not in rule and any(v not in (0, 1) for v in values):
            continue
        applied += 1
        a, b = eval(left, dict(scope)), eval(right, {**scope, **plain})
        same = (
            bool(a) == bool(b) if logical or isinstance(a, bool) else number(kind(number(a))) == number(kind(number(b)))
        )
        assert same, f"{rule}: with {dict(zip(names, values, strict=True))} the sides are {number(a)} and {number(b)}"
    assert applied, f"{rule}: no values meet its condition"


@pytest.mark.parametrize(
    "rule", [r for t in (table.RING, table.LATTICE, table.INDEX, table.CHOICE) for r in rule_texts(t)]
)
def test_identity_holds(rule: str) -> None:
    check(rule, Number, Number, False)


@pytest.mark.parametrize("rule", [r for t in LOGICAL for r in rule_texts(t)])
def test_logical_identity_holds(rule: str) -> None:
    check(rule, Number, Number, True)


@pytest.mark.parametrize("rule", [r for t in (table.RING, table.LATTICE) for r in rule_texts(t)])
def test_identity_holds_where_arithmetic_wraps(rule: str) -> None:
    check(rule, Wrapping, Wrapping, False)


def test_one_rule_stands_for_all_orders() -> None:
    # min is commutative and so is the inner min: four orders, of which all differ.
    assert len(parse_rules("min(min(x, y), y) -> min(x, y)")) == 4


def test_an_order_of_its_own_stands_alone() -> None:
    (rule,) = parse_rules("min(x, y) - x => min(0, y - x)")
    assert rule.root is e.Sub
    assert len(parse_rules("min(x, y) - x -> min(0, y - x)")) == 2


def test_a_long_rule_goes_on_in_indented_lines() -> None:
    assert rule_texts("x + 0 -> x  # nothing\n\nx % c1 -> x\n    where lo(x) >= 0 and hi(x) < c1") == [
        "x + 0 -> x",
        "x % c1 -> x where lo(x) >= 0 and hi(x) < c1",
    ]


def test_sum_with_constant_also_matches_a_difference() -> None:
    patterns = [rule.pattern for rule in parse_rules("(x + c1) * c2 -> x * c2 + c1 * c2")]
    assert len(patterns) == 2


def test_a_rule_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InternalError, match="not part of a rewrite rule"):
        parse_rules("x @ y -> x")
