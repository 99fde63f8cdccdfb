"""Random choices: what they may be, that seeds and records repeat them, and what is refused."""

from __future__ import annotations

import math

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, diamond, matmul, symbolic

from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.tir import Schedule, ScheduleError
from oneir.tir.schedule import InstructionKind, Trace
from oneir.tir.schedule.random_engine import RandomEngine


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
        assert factors[0] is None and sch.get(factors[1]) == 1
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


def choices(sch):
    i, j = sch.get_loops("B")
    sch.sample_perfect_tile(i, 3), sch.sample_partitioned_tile(j, 2), sch.sample_compute_location("B")
    sch.sample_categorical([1, 2, 3, 4], [0.25] * 4)
    return [sch.trace.decisions[inst] for inst in sch.trace.insts if inst in sch.trace.decisions]


def test_the_same_seed_makes_the_same_choices():
    first = [choices(Schedule(chain, seed=n)) for n in range(1, 9)]
    assert first == [choices(Schedule(chain, seed=n)) for n in range(1, 9)]
    assert len({str(found) for found in first}) > 4
    sch = Schedule(chain)
    sch.seed(5)
    assert choices(sch) == first[4]


def test_seeds_for_other_schedules():
    a, b = Schedule(chain, seed=3), Schedule(chain, seed=3)
    seeds = [a.fork_seed() for _ in range(4)]
    assert seeds == [b.fork_seed() for _ in range(4)] and len(set(seeds)) == 4
    assert all(1 <= seed < 1 << 31 for seed in seeds)
    # A copy chooses on its own, the same each time.
    copies = [Schedule(chain, seed=3).copy() for _ in range(2)]
    assert choices(copies[0]) == choices(copies[1])
    # With -1 there is another seed each time.
    for sch in (a, b):
        sch.seed(-1)
    assert a.fork_seed() != b.fork_seed()
    assert Schedule(chain, seed=-1).fork_seed() != Schedule(chain, seed=-1).fork_seed()


def test_numbers_are_those_of_the_standard_generator():
    """The C++ standard says what the ten-thousandth number of `minstd_rand` is, seeded with 1."""
    engine = RandomEngine(1)
    assert [engine.draw() for _ in range(10000)][-1] == 399268537
    counts = [0] * 6
    for _ in range(6000):
        counts[engine.below(6)] += 1
    assert all(850 < count < 1150 for count in counts)
    picked = [engine.position([1.0, 0.0, 3.0]) for _ in range(4000)]
    assert 850 < picked.count(0) < 1150 and 1 not in picked
    assert RandomEngine(0).state == 1 and 0 < RandomEngine().draw() < (1 << 31) - 1


def test_what_samples_refuse():
    sch = Schedule(chain, error_render_level="fast")
    with pytest.raises(ScheduleError, match=r"The primitive expects a loop, found the block tir.Block#0"):
        sch.sample_perfect_tile(sch.get_block("B"), 2)
    with pytest.raises(ScheduleError, match=r"The primitive expects a block, found the loop tir.For#0"):
        sch.apply(InstructionKind.get("SampleComputeLocation"), [sch.get_loops("B")[0]])
    with pytest.raises(InvalidValue, match="a loop is tiled into one or more parts, found n = 0"):
        sch.sample_partitioned_tile(sch.get_loops("B")[0], 0)


def test_postprocessing_is_left_out_of_a_trace():
    sch = Schedule(matmul)
    i, j, _ = sch.get_loops("C")
    sch.parallel(i)
    sch.enter_postproc()
    sch.unroll(j)
    lines = sch.trace.as_python(remove_postproc=True)
    assert lines[-1] == "sch.parallel(loop=l1)" and "sch.enter_postproc()" in sch.trace.as_python()
    assert sch.trace.simplified(remove_postproc=True).as_python() == lines
    assert len(sch.trace.as_json(remove_postproc=True)[0]) == len(lines)
