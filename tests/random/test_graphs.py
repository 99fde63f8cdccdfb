"""Random graphs give the same numbers natively, as bytecode, in the interpreter, and after every pipeline."""

from __future__ import annotations

import os

from graphs import Graph, graphs
from hypothesis import HealthCheck, given, settings

import oneir
from oneir import relax
from oneir.ir.transform import PassContext
from oneir.target import Target
from oneir.testing import VerifyNumerics, interpret, tolerances
from oneir.testing.numerics import assert_same_numbers, compare_results, copies

LONG = os.environ.get("ONEIR_TEST_LONG") == "1"
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
SETTINGS = {"deadline": None, "suppress_health_check": CHECKS, "derandomize": not LONG}


def plain(result):
    """A result of the machine as the interpreter gives it."""
    return tuple(map(plain, result)) if isinstance(result, tuple) else result.numpy()


@settings(max_examples=500 if LONG else 40, **SETTINGS)
@given(graphs())
def test_native_code_and_bytecode_agree_with_the_interpreter(graph: Graph):
    expected = interpret(graph.mod, *copies(graph.inputs))
    allowed = tolerances(graph.mod, *copies(graph.inputs))
    vm = relax.VirtualMachine(relax.build(graph.mod), oneir.cpu())
    assert "main" in vm.executable.natives
    compare_results("native", plain(vm["main"](*copies(graph.inputs))), expected, allowed)
    compare_results("bytecode", plain(vm.interpret("main", *copies(graph.inputs))), expected, allowed)


@settings(max_examples=500 if LONG else 15, **SETTINGS)
@given(graphs())
def test_every_pipeline_keeps_the_numbers(graph: Graph):
    for name in ("zero", "default_build", "default"):
        with Target("llvm"):
            after = relax.get_pipeline(name)(graph.mod)
        relax.analysis.verify_well_formed(after)
        assert_same_numbers(graph.mod, after, graph.inputs)


@settings(max_examples=100 if LONG else 5, **SETTINGS)
@given(graphs())
def test_every_pass_keeps_the_numbers(graph: Graph):
    with PassContext(instruments=[VerifyNumerics()]), Target("llvm"):
        relax.get_pipeline("default")(graph.mod)
