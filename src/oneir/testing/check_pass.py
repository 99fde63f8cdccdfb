"""What every test of a pass checks."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.structural import assert_structural_equal, structural_equal
from ..ir.transform import Pass
from ..relax.analysis import verify_well_formed as verify_graphs
from ..relax.expr import Function
from ..runtime.error import AssertionFailure
from ..script import from_source
from ..tir.analysis import verify_well_formed as verify_loops
from ..tir.function import PrimFunc
from .numerics import VerifyNumerics


def check_pass(
    transform: Pass,
    before: PrimFunc | Function | IRModule,
    expected: PrimFunc | Function | IRModule,
    *,
    idempotent: bool = True,
    numbers: bool = True,
) -> IRModule:
    """Runs a pass and checks everything that holds of every pass. Returns the module after it.

    - the result is structurally equal to `expected`; the failure names the first difference
    - both are well formed
    - what is printed of both can be parsed, and gives the same module
    - a module that the pass has nothing to do in comes back as the identical object
    - a second run changes nothing (unless not `idempotent`)
    - before and after compute the same numbers in the interpreter (unless not `numbers`), on random inputs

    Raises `AssertionFailure`, or what the pass, the parser or the interpreter raises.
    """
    before, expected = as_module(before), as_module(expected)
    after = transform(before)
    assert_structural_equal(after, expected)
    for stage, mod in (("before", before), ("after", after)):
        verify_loops(mod)
        verify_graphs(mod)
        _check_round_trip(stage, mod)
    if structural_equal(before, expected):
        _check_identical(transform, before, after, "a module in which it has nothing to do")
    if idempotent:
        _check_identical(transform, after, transform(after), "its own result")
    if numbers:
        verify = VerifyNumerics()
        verify.run_before_pass(before, transform.info)
        verify.run_after_pass(after, transform.info)
    return after


def as_module(program: PrimFunc | Function | IRModule) -> IRModule:
    """A lone function as the module whose `main` it is."""
    return program if isinstance(program, IRModule) else IRModule({"main": program})


def _check_identical(transform: Any, mod: IRModule, result: IRModule, what: str) -> None:
    if result is not mod:
        changed = "" if structural_equal(mod, result) else ", and changes it"
        raise AssertionFailure(
            f"the pass {transform.info.name} builds a new module out of {what}{changed}:\n{result.script()}"
        )


def _check_round_trip(stage: str, mod: IRModule) -> None:
    text = mod.script(show_meta=True)
    try:
        assert_structural_equal(from_source(text), mod)
    except Exception as error:
        raise AssertionFailure(
            f"the module {stage} the pass does not survive printing and parsing: {error}\n{text}"
        ) from error
