"""Random sequences of primitives keep the meaning of a program.

A primitive may refuse; what it accepts must leave a well-formed program with the same numbers, interpreted and native.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_programs import chain, diamond, matmul, pooling, softmax

import oneir
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.testing import interpret, random_inputs, tolerances
from oneir.testing.numerics import compare_arguments, copies
from oneir.tir import Schedule, ScheduleError
from oneir.tir.analysis import verify_well_formed

LONG = os.environ.get("ONEIR_TEST_LONG") == "1"
Step = Callable[[Schedule, random.Random], Any]


def blocks(sch: Schedule) -> list[Any]:
    """All blocks, those inside of others too."""
    found, pending = [], [sch.get_block("root")]
    while pending:
        children = sch.get_child_blocks(pending.pop())
        found += children
        pending += children
    return found


def a_block(sch: Schedule, rng: random.Random) -> Any:
    return rng.choice(blocks(sch))


def loops(sch: Schedule, rng: random.Random) -> list[Any]:
    return sch.get_loops(a_block(sch, rng))


def a_loop(sch: Schedule, rng: random.Random) -> Any:
    return rng.choice(loops(sch, rng))


def split(sch: Schedule, rng: random.Random) -> None:
    factors = rng.choice([[None, 2], [None, 3], [2, None], [None, 5], [2, None, 2]])
    sch.split(a_loop(sch, rng), factors, preserve_unit_iters=rng.random() < 0.5)


def fuse(sch: Schedule, rng: random.Random) -> None:
    found = loops(sch, rng)
    first = rng.randrange(len(found) or 1)
    if found:
        sch.fuse(*found[first : first + rng.randint(2, 3)])


def reorder(sch: Schedule, rng: random.Random) -> None:
    found = loops(sch, rng)
    sch.reorder(*rng.sample(found, rng.randrange(len(found) + 1)))


def read(sch: Schedule, rng: random.Random, block: Any) -> int:
    return rng.randrange(len(sch.get(block).reads) or 1)


STEPS: dict[str, Step] = {
    "split": split,
    "fuse": fuse,
    "reorder": reorder,
    "parallel": lambda sch, rng: sch.parallel(a_loop(sch, rng)),
    "vectorize": lambda sch, rng: sch.vectorize(loops(sch, rng)[-1]),
    "unroll": lambda sch, rng: sch.unroll(a_loop(sch, rng)),
    "compute_inline": lambda sch, rng: sch.compute_inline(a_block(sch, rng)),
    "reverse_compute_inline": lambda sch, rng: sch.reverse_compute_inline(a_block(sch, rng)),
    "compute_at": lambda sch, rng: sch.compute_at(a_block(sch, rng), a_loop(sch, rng), rng.random() < 0.5),
    "reverse_compute_at": lambda sch, rng: sch.reverse_compute_at(a_block(sch, rng), a_loop(sch, rng)),
    "cache_read": lambda sch, rng: sch.cache_read(b := a_block(sch, rng), read(sch, rng, b), "global"),
    "cache_write": lambda sch, rng: sch.cache_write(a_block(sch, rng), 0, "global"),
    "decompose_reduction": lambda sch, rng: sch.decompose_reduction(
        b := a_block(sch, rng), rng.choice(sch.get_loops(b))
    ),
    "rfactor": lambda sch, rng: sch.rfactor(a_loop(sch, rng), rng.choice([0, -1])),
    "blockize": lambda sch, rng: sch.blockize(a_loop(sch, rng)),
    "add_unit_loop": lambda sch, rng: sch.add_unit_loop(a_block(sch, rng)),
    "merge": lambda sch, rng: sch.merge(a_loop(sch, rng), a_loop(sch, rng)),
    "reindex": lambda sch, rng: sch.reindex(b := a_block(sch, rng), ("read", read(sch, rng, b))),
    "sample_compute_location": lambda sch, rng: sch.compute_at(b := a_block(sch, rng), sch.sample_compute_location(b)),
}


def apply_at_random(func: Any, seed: int, steps: int) -> tuple[Schedule, list[str]]:
    """Applies primitives until some were accepted; returns the schedule and their names."""
    rng = random.Random(seed)
    sch = Schedule(func.with_attr("global_symbol", "main"), seed=seed, debug_mask="all", error_render_level="fast")
    accepted: list[str] = []
    for _ in range(4 * steps):
        if len(accepted) == steps:
            break
        name = rng.choice(list(STEPS))
        before = sch.mod
        try:
            STEPS[name](sch, rng)
        except ScheduleError:
            assert sch.mod is before, f"{name} was refused but changed the program"
        except (IndexError, InvalidValue):  # a block without loops, one loop twice
            continue
        else:
            accepted.append(name)
    return sch, accepted


@pytest.mark.parametrize("func", [matmul, chain, diamond, softmax, pooling], ids=lambda f: f.attrs["global_symbol"])
@settings(
    max_examples=300 if LONG else 20,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 8))
def test_random_schedules_keep_the_numbers(func: Any, seed: int, steps: int):
    sch, accepted = apply_at_random(func, seed, steps)
    after = sch.mod["main"]
    verify_well_formed(after)
    inputs = random_inputs(func, np.random.default_rng(0))
    expected, found, native = copies(inputs), copies(inputs), copies(inputs)
    allowed = tolerances(func, *expected)
    try:
        # Iterations that run at once may each compute what one of them needs; lowering gives each its own memory.
        interpret(after, *found, check=not {"parallel", "vectorize"} & set(accepted))
        compare_arguments(after, found, expected, allowed)
        oneir.build(sch.mod, target="llvm")["main"](*native)
        compare_arguments(after, native, expected, allowed)
    except Exception as error:
        error.add_note(f"after {', '.join(accepted)}:\n{after.script()}")
        raise
    replayed = Schedule(func.with_attr("global_symbol", "main"))
    sch.trace.apply_to_schedule(replayed, remove_postproc=False)
    assert_structural_equal(replayed.mod, sch.mod)
