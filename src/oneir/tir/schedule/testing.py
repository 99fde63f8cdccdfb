"""Assertions for tests of schedules.

verify_trace_roundtrip(sch, mod)  # the trace of `sch`, also as JSON and as Python, transforms `mod` into the same
program
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...ir.module import IRModule
from ...ir.structural import assert_structural_equal
from ...runtime.error import AssertionFailure, InvalidValue
from ..function import PrimFunc
from .schedule import Schedule
from .trace import Trace


def assert_structural_equal_ignore_global_symbol(func1: PrimFunc, func2: PrimFunc, *args: Any, **kwargs: Any) -> None:
    """Raises a `StructuralMismatch` unless two functions are the same but for the names that linkers see."""
    names = [func.with_attr("global_symbol", "main") for func in (func1, func2)]
    assert_structural_equal(*names, *args, **kwargs)


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | IRModule,
    *,
    debug_mask: str | int = "all",
    text_format: str | Sequence[str] = ("python", "json"),
) -> Schedule:
    """Applies the trace of a schedule, as text, to the program that the schedule began with.

    Returns the new schedule. Raises `StructuralMismatch` if the programs differ, `AssertionFailure` if the traces
    differ.
    """
    formats = [text_format] if isinstance(text_format, str) else list(text_format)
    assert sch.trace is not None, "the schedule records nothing"
    lines = sch.trace.as_python()
    again = Schedule(mod, debug_mask=debug_mask)
    for name in formats:
        again = Schedule(mod, debug_mask=debug_mask)
        if name == "json":
            Trace.apply_json_to_schedule(json.loads(json.dumps(sch.trace.as_json())), again)
        elif name == "python":
            from ... import tir

            exec("\n".join(lines), {**vars(tir), "T": tir, "tir": tir}, {"sch": again})
        else:
            raise InvalidValue(f"a trace is written as 'python' or 'json', found {name!r}")
        assert_structural_equal(again.mod, sch.mod)
        assert again.trace is not None
        if again.trace.as_python() != lines:
            raise AssertionFailure(f"as {name}, the trace\n{sch.trace}\ncomes back as\n{again.trace}")
    return again
