"""Registered patterns, and the helper of their checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oneir import IRModule
from oneir.relax.backend import get_pattern, get_patterns_with_prefix, pattern_registry, register_patterns
from oneir.relax.backend.utils import has_leaking_intermediate_variables
from oneir.relax.dpl import is_op, wildcard
from oneir.relax.transform import FuseOpsByPattern, FusionPattern
from oneir.runtime.error import TypeMismatch
from oneir.script import relax as R

EXP_TANH = is_op("relax.tanh")(is_op("relax.exp")(wildcard()))


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    known = list(pattern_registry._patterns)
    yield
    pattern_registry._patterns[:] = known


def test_later_patterns_have_priority() -> None:
    rule = FusionPattern("test.b", EXP_TANH)
    register_patterns([("test.a", EXP_TANH), rule, ("other.c", EXP_TANH)])
    assert [p.name for p in get_patterns_with_prefix("test")] == ["test.b", "test.a"]
    assert get_pattern("test.b") is rule and get_pattern("test.nothing") is None
    register_patterns([("test.b", EXP_TANH)])
    assert get_pattern("test.b") is not rule


def test_what_is_no_pattern_is_refused_and_nothing_is_added() -> None:
    with pytest.raises(TypeMismatch, match=r"a pattern to register is a FusionPattern or a tuple.*found int"):
        register_patterns([("test.a", EXP_TANH), 3])
    assert get_pattern("test.a") is None


def test_a_check_can_refuse_matches_with_results_in_between() -> None:
    register_patterns([("test.pair", EXP_TANH, {}, lambda context: not has_leaking_intermediate_variables(context))])

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            c = R.exp(b)
            d = R.tanh(c)
            gv = R.add(d, c)
            R.output(gv)
        return gv

    after = FuseOpsByPattern(get_patterns_with_prefix("test"))(IRModule({"main": main}))
    first, *rest = [b.value.op for b in after["main"].body.blocks[0].bindings]
    assert first.name_hint == "fused_relax_exp_relax_tanh"
    assert [op.name for op in rest] == ["relax.exp", "relax.tanh", "relax.add"]
