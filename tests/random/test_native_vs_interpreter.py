"""Random programs give the same numbers natively, in the interpreter, and after every pass of the pipeline."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import Program, programs, random_program

import oneir
from oneir.ir.transform import PassContext
from oneir.target import Target
from oneir.testing import VerifyNumerics, interpret, tolerances
from oneir.testing.numerics import compare_arguments, copies
from oneir.tir.pipeline import get_tir_pipeline

LONG = os.environ.get("ONEIR_TEST_LONG") == "1"
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
SETTINGS = {"deadline": None, "suppress_health_check": CHECKS, "derandomize": not LONG}


def check_native_code(program: Program) -> None:
    inputs = program.inputs()
    interpret(program.func, *copies(inputs))  # with all checks
    expected, found = copies(inputs), copies(inputs)
    allowed = tolerances(program.func, *expected)
    oneir.build(program.func, target="llvm")["main"](*found)
    compare_arguments(program.func, found, expected, allowed)


@settings(max_examples=1000 if LONG else 100, **SETTINGS)
@given(programs())
def test_native_code_agrees_with_the_interpreter(program: Program):
    check_native_code(program)


@settings(max_examples=1000 if LONG else 100, **SETTINGS)
@given(st.integers(0, 1 << 32))
def test_native_code_of_larger_programs_agrees_with_the_interpreter(seed: int):
    check_native_code(random_program(seed))


@settings(max_examples=200 if LONG else 25, **SETTINGS)
@given(st.integers(0, 1 << 32))
def test_every_pass_of_the_pipeline_keeps_the_numbers(seed: int):
    program = random_program(seed)
    with PassContext(instruments=[VerifyNumerics()]), Target("llvm"):
        get_tir_pipeline("default")(oneir.IRModule({"main": program.func}))
