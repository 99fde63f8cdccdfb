"""merge_quotients: quotients and remainders that belong together become one number again."""

from __future__ import annotations

import itertools

import pytest

from oneir.arith import Analyzer
from oneir.arith.merge_quotients import merge_quotients
from oneir.ir.expr import Var
from oneir.ir.structural import assert_structural_equal
from oneir.tir.stmt_functor import substitute

i, j, n, m = (Var(name, "int32") for name in "ijnm")
CASES = {
    "one": (i // n * n + i % n, i),
    "scaled": ((i // n) * (n * 4) + (i % n) * 4 + j, i * 4 + j),
    "product": (i // (n * m) * n * m + i % (n * m), i),
    "sum": ((i + j) // n * n + (i + j) % n, i + j),
    "nested": ((i // n * n // m + i % n // m) * m + (i // n * n % m + i % n % m), i),
    "constant": (i // 4 * 4 + i % 4, i),
    "multiples that have gone": ((i * 49 + j) // 14 * 14 + (i * 7 + j) % 14, i * 49 + j),
    "other divisor": (i // n * m + i % n, None),
    "other number": (i // n * n + j % n, None),
}


@pytest.mark.parametrize("case", CASES)
def test_cases(case):
    before, expected = CASES[case]
    after = merge_quotients(before)
    if expected is not None:
        assert_structural_equal(after, Analyzer().simplify(expected))
    for values in itertools.product((0, 5, 17), (1, 4), (3, 6), (2, 7)):
        known = dict(zip((i, j, n, m), values, strict=True))
        simplify = Analyzer().simplify
        assert int(simplify(substitute(after, known))) == int(simplify(substitute(before, known)))
