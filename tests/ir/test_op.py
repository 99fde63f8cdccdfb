"""Operators and the facts that are stated about them."""

from __future__ import annotations

import pytest

from oneir.ir.op import Fact, Op
from oneir.runtime.error import OneIRError

Cost: Fact[int] = Fact("test.Cost")


@pytest.fixture
def op():
    found = Op.register("test.some_operator", num_inputs=2)
    yield found
    found.reset_attr(Cost.key)


def test_a_fact_is_an_attribute_with_a_type(op: Op):
    assert Cost.of(op) is None
    Cost.set(op, 3)
    assert Cost.of(op) == 3 and op.get_attr("test.Cost") == 3
    op.reset_attr("test.Cost")
    assert Cost.of(op) is None


def test_of_several_values_the_one_of_the_highest_level_stays(op: Op):
    Cost.set(op, 3, plevel=15)
    Cost.set(op, 4)
    assert Cost.of(op) == 3
    Cost.set(op, 5, plevel=15)
    assert Cost.of(op) == 5


def test_what_is_no_operator_has_no_facts():
    assert Cost.of(None) is None and Cost.of("test.some_operator") is None


def test_an_operator_that_is_not_registered_is_an_error_with_the_nearest_names(op: Op):
    with pytest.raises(
        OneIRError, match=r"operator 'test.some_operater' is not registered; did you mean '?test.some_op"
    ):
        Op.get("test.some_operater")
