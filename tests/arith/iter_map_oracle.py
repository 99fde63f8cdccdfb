"""What an iteration map claims, checked by going through all iterations."""

from __future__ import annotations

import itertools
from typing import Any

from arith_oracle import evaluate, points

from oneir import arith
from oneir.ir import expr as e
from oneir.ir.structural import structural_equal

Ranges = dict[e.Var, tuple[int, int]]
Level = arith.IterMapLevel


def domains(ranges: Ranges) -> dict[e.Var, e.Range]:
    """Inclusive ranges as IR ranges."""
    return {var: e.Range(low, high + 1) for var, (low, high) in ranges.items()}


def iterations(ranges: Ranges, predicate: Any) -> list[dict[e.Var, int]]:
    """The iterations for which the predicate holds."""
    return [p for p in points(ranges) if predicate is True or evaluate(predicate, p)]


def values_of(total: Any) -> list[int]:
    """The values that a sum of at most one split promises."""
    if not total.args:
        return [total.base.value]
    (split,) = total.args
    return [total.base.value + split.scale.value * step for step in range(split.extent.value)]


def assert_claim_holds(indices: list[Any], ranges: Ranges, predicate: Any, level: Level, result: Any) -> None:
    """Each index equals its sum; the reached tuples are all those of the box, once each if the map is bijective."""
    inside = iterations(ranges, predicate)
    normalized = [arith.normalize_iter_map_to_expr(total) for total in result.indices]
    for point in inside:
        for index, written in zip(indices, normalized, strict=True):
            assert evaluate(index, point) == evaluate(written, point), f"at {point}: {index} is not {written}"
    if level == Level.NoCheck:
        return
    reached = [tuple(evaluate(index, point) for index in indices) for point in inside]
    box = set(itertools.product(*(values_of(total) for total in result.indices)))
    assert set(reached) <= box
    assert set(reached) == box
    if level == Level.Bijective:
        assert len(reached) == len(box)
        assert structural_equal(result.padding_predicate, e.IntImm("bool", 0))
