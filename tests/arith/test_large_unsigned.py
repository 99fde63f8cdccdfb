"""Values of uint64 that no int64 holds: nothing may be concluded from where int64 ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oneir import tir
from oneir.arith import Analyzer, ConstIntBound
from oneir.ir import operators as ops
from oneir.ir.expr import const

HALF, LAST = 1 << 63, (1 << 64) - 1
X = tir.Var("x", "uint64")


def number(value: int) -> Any:
    return const(value, "uint64")


@pytest.mark.parametrize("value", [HALF - 1, HALF, HALF + 5, LAST - 1])
@pytest.mark.parametrize(
    "make", [ops.minimum, ops.maximum, ops.less_equal, ops.less, ops.floordiv, ops.floormod, ops.equal]
)
def test_a_value_may_be_on_either_side_of_a_large_number(make: Callable[..., Any], value: int) -> None:
    expr = make(X, number(value))
    for simplified in (
        Analyzer().simplify(expr),
        Analyzer().rewrite_simplify(expr),
        Analyzer().canonical_simplify(expr),
    ):
        for x in (0, 1, HALF - 1, HALF, HALF + 5, HALF + 6, LAST):
            values = {X: number(x)}
            found, wanted = (Analyzer().simplify(tir.stmt_functor.substitute(e, values)) for e in (simplified, expr))
            assert found.value == wanted.value, (simplified, x)


def test_what_bounds_say_of_large_numbers() -> None:
    analyzer = Analyzer()
    assert analyzer.can_prove(ops.less_equal(X, number(LAST)))
    assert analyzer.can_prove(ops.less(ops.floormod(X, number(7)), number(HALF)))
    assert not analyzer.can_prove(ops.less(ops.add(ops.maximum(X, number(HALF)), number(HALF)), number(5)))
    assert not analyzer.can_prove(ops.greater(ops.multiply(ops.maximum(X, number(HALF)), number(2)), number(5)))
    for expr, low in ((X, 0), (number(LAST), ConstIntBound.POS_INF)):
        found = analyzer.const_int_bound(expr)
        assert (found.min_value, found.max_value) == (low, ConstIntBound.POS_INF)
