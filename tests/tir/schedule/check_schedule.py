"""What every test of a primitive checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oneir.ir.structural import assert_structural_equal
from oneir.testing import assert_same_numbers
from oneir.tir import PrimFunc, Schedule
from oneir.tir.analysis import verify_well_formed
from oneir.tir.schedule.testing import verify_trace_roundtrip


def check_schedule(
    before: PrimFunc, expected: PrimFunc | None, transform: Callable[[Schedule], Any], *, numbers: bool = True
) -> Schedule:
    """Applies primitives to a function and checks everything that holds of every primitive. Returns the schedule.

    - the result is structurally equal to `expected`, if it is given
    - it is well formed, and computes the same numbers in the interpreter
    - the handles are in order (the schedule checks that after each change)
    - the trace gives the same result on the function again, also after a trip through JSON, and as Python
    """
    if expected is not None:
        expected = expected.with_attr("global_symbol", "main")
    before = before.with_attr("global_symbol", "main")
    sch = Schedule(before, seed=0, debug_mask="all")
    transform(sch)
    after = sch.mod["main"]
    if expected is not None:
        assert_structural_equal(after, expected)
    verify_well_formed(after)
    if numbers:
        assert_same_numbers(before, after)
    replayed = Schedule(before)
    sch.trace.apply_to_schedule(replayed, remove_postproc=False)
    assert_structural_equal(replayed.mod["main"], after)
    verify_trace_roundtrip(sch, before)
    return sch
