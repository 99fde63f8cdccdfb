"""Random choices: what they may be, that seeds and records repeat them, and what is refused."""

from __future__ import annotations

import math

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, diamond, matmul, symbolic

from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.tir import Schedule
from oneir.tir.schedule import Trace


def test_sample_categorical():
    sch = Schedule(matmul, seed=1)
    found = {sch.get(sch.sample_categorical([1, 2, 3], [0.5, 0.5, 0.0])) for _ in range(30)}
    assert found == {1, 2}
    assert sch.get(sch.sample_categorical([1, 2, 3], [0.5, 0.5, 0.0], decision=2)) == 3
    with pytest.raises(InvalidValue, match="found 1 candidates and 2 probabilities"):
        sch.sample_categorical([1], [0.5, 0.5])
    with pytest.raises(InvalidValue, match="the decision 5 is not the position of one of 2 candidates"):
        sch.sample_categorical([1, 2], [0.5, 0.5], decision=5)


def test_sample_perfect_tile():
    sch = Schedule(matmul, seed=3)
    k = sch.get_loops("C")[2]
    for _ in range(20):
        factors = [sch.get(f) for f in sch.sample_perfect_tile(k, 3, 4)]
        assert math.prod(factors) == 12 and factors[-1] <= 4
    # A decision made for another extent is adapted.
    assert [sch.get(f) for f in sch.sample_perfect_tile(k, 3, decision=[1, 3, 2])] == [2, 3, 2]
    assert [sch.get(f) for f in sch.sample_perfect_tile(k, 3, decision=[1, 5, 2])] == [1, 6, 2]
    with pytest.raises(InvalidValue, match="a loop is tiled into one or more parts, found n = 0"):
        sch.sample_perfect_tile(k, 0)


def test_sample_partitioned_tile():
    sch = Schedule(chain, seed=3)
    i = sch.get_loops("B")[0]
    for _ in range(20):
        factors = [sch.get(f) for f in sch.sample_partitioned_tile(i, 4, 2, 8)]
        assert math.prod(factors) == 16 and math.prod(factors[2:]) % 8 == 0
    with pytest.raises(InvalidValue, match="partition_pos is one of the 4 parts, found 4"):
        sch.sample_partitioned_tile(i, 4, 4, 8)


def test_symbolic_extents_are_left_to_be_worked_out():
    def transform(sch):
        factors = sch.sample_perfect_tile(sch.get_loops("B")[0], 2)
        assert [sch.get(f) for f in factors] == [-1, 1]
        sch.split(sch.get_loops("B")[0], factors)

    check_schedule(symbolic, None, transform)


def test_sample_compute_location():
    sch = Schedule(diamond, seed=0)
    assert {sch.trace.decisions[sch.trace.insts[-1]] for _ in range(30) if sch.sample_compute_location("C1")} == {
        -2,
        -1,
        0,
        1,
    }
    for decision, expected in ((-2, 3), (-1, 4), (0, 4), (1, 4), (7, 4)):
        other = Schedule(diamond)
        loop = other.sample_compute_location("C1", decision)
        other.compute_at("C1", loop)
        assert len(other.get_child_blocks(other.get_block("root"))) == expected


def tune(sch):
    i, _j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2))
    k0, k1 = sch.split(k, sch.sample_perfect_tile(k, 2))
    sch.reorder(i0, k0, i1, k1)
    sch.annotate(i0, "unroll", sch.sample_categorical([0, 16, 64], [0.3, 0.3, 0.4]))
    sch.enter_postproc()
    sch.parallel(i0)


def test_seeds_and_records_repeat_choices():
    assert_structural_equal(*[(tune(s := Schedule(matmul, seed=7)), s.mod)[1] for _ in range(2)])
    sch = check_schedule(matmul, None, tune)
    without = Schedule(matmul)
    sch.trace.apply_to_schedule(without, remove_postproc=True)
    assert "T.parallel" in sch.mod.script() and "T.parallel" not in without.mod.script()
    tile = next(inst for inst in sch.trace.insts if inst.kind.name == "SamplePerfectTile")
    changed = sch.trace.with_decision(tile, [1, 8], remove_postproc=True)
    other = Schedule(matmul)
    changed.apply_to_schedule(other, remove_postproc=False)
    assert next(other.get(loop).extent.value for loop in other.get_loops("C")) == 1
    seen = []
    sch.trace.apply_to_schedule(
        Schedule(matmul), False, lambda inst, inputs, attrs, decision: seen.append(inst.kind.name) or decision
    )
    assert seen == [inst.kind.name for inst in sch.trace.insts]
    assert isinstance(sch.trace.simplified(True), Trace)
