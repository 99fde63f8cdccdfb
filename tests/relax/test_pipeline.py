"""Pipelines: what each of them does, and that all of them keep the numbers."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir.transform import PassContext, Sequential
from oneir.runtime.error import NotRegistered
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.target import Target
from oneir.testing import VerifyNumerics


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((4, 8), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            wt = R.permute_dims(w)
            a = R.matmul(x, wt)
            b = R.add(a, R.const(1, "float32"))
            gv = R.nn.relu(b)
            R.output(gv)
        return gv


def functions(mod: oneir.IRModule) -> set[str]:
    return {v.name_hint for v in mod.functions}


def operators(mod: oneir.IRModule, name: str = "main") -> set[str]:
    found = set()
    for block in mod[name].body.blocks:
        for binding in block.bindings:
            op = getattr(binding.value, "op", None)
            found.add(getattr(op, "name", getattr(op, "global_symbol", getattr(op, "name_hint", ""))))
    return found


def test_zero_makes_fused_loops_and_leaves_a_graph() -> None:
    after = relax.get_pipeline("zero")(Model)
    assert functions(after) == {"main", "transpose", "fused_matmul_add_relu"}
    assert operators(after) == {"relax.call_tir"}
    assert relax.get_pipeline()(Model).script() == after.script()


def test_default_reads_the_matrix_as_it_lies_and_leaves_a_program() -> None:
    with Target("llvm"):
        after = relax.get_pipeline("default")(Model)
    assert functions(after) == {"main", "fused_NT_matmul_add_relu", "shape_func"}
    assert operators(after) >= {"vm.builtin.match_shape", "relax.vm.alloc_tensor", "fused_NT_matmul_add_relu"}
    assert "relax.call_tir" not in operators(after)


def test_default_build_fuses_nothing() -> None:
    after = relax.get_pipeline("default_build")(Model)
    assert functions(after) >= {"main", "transpose", "matmul", "add", "relu", "shape_func"}
    assert not any(name.startswith("fused") for name in functions(after))


def test_static_shape_tuning_decomposes_and_fuses() -> None:
    static = relax.transform.BindSymbolicVars({"n": 2})(Model)
    after = relax.get_pipeline("static_shape_tuning")(static)
    assert functions(after) == {"main", "transpose", "fused_matmul_add_relu"}
    assert functions(relax.get_pipeline("static_shape_tuning", total_trials=0)(static)) == functions(after)
    with pytest.raises(NotRegistered, match="call it with total_trials=0"):
        relax.get_pipeline("static_shape_tuning", total_trials=8)


def test_pipelines_by_their_functions() -> None:
    static = relax.transform.BindSymbolicVars({"n": 2})(Model)
    made = {
        "zero": relax.pipeline.zero_pipeline(),
        "default_build": relax.pipeline.default_build_pipeline(),
        "static_shape_tuning": relax.pipeline.static_shape_tuning_pipeline(0, Target("llvm"), "logs"),
    }
    for name, pipeline in made.items():
        oneir.ir.assert_structural_equal(pipeline(static), relax.get_pipeline(name)(static))


@pytest.mark.parametrize("name", ["zero", "default", "default_build", "static_shape_tuning"])
def test_every_pass_keeps_the_numbers(name: str) -> None:
    with PassContext(instruments=[VerifyNumerics()]), Target("llvm"):
        relax.get_pipeline(name)(Model)


@pytest.mark.parametrize("name", ["default", "default_build"])
def test_every_pipeline_that_ends_in_a_program_can_be_run(name: str) -> None:
    vm = relax.VirtualMachine(relax.build(Model, relax_pipeline=name), oneir.cpu())
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 8)).astype("float32"), rng.standard_normal((4, 8)).astype("float32")
    for call in (vm["main"], lambda *args: vm.interpret("main", *args)):
        np.testing.assert_allclose(call(x, w).numpy(), np.maximum(x @ w.T + 1, 0), rtol=1e-5)


def test_graphs_that_are_fused_already_are_built_too() -> None:
    vm = relax.VirtualMachine(relax.build(relax.get_pipeline("zero")(Model)), oneir.cpu())
    x, w = np.ones((3, 8), "float32"), np.ones((4, 8), "float32")
    np.testing.assert_array_equal(vm["main"](x, w).numpy(), np.full((3, 4), 9, "float32"))


def test_parts_of_the_default_pipeline_compose() -> None:
    target = Target("llvm")
    from oneir.relax.pipeline import dataflow_lower_passes, finalize_passes, legalize_passes, library_dispatch_passes

    passes = [
        part
        for make in (library_dispatch_passes, legalize_passes, dataflow_lower_passes, finalize_passes)
        for part in make(target)
    ]
    with target:
        oneir.ir.assert_structural_equal(Sequential(passes)(Model), relax.get_default_pipeline(target)(Model))


def test_pipelines_can_be_registered_under_a_name_that_is_free() -> None:
    @relax.register_pipeline("test.only_legalize")
    def only_legalize(warn: bool = False) -> oneir.ir.transform.Pass:
        return relax.transform.LegalizeOps(enable_warning=warn)

    assert functions(relax.get_pipeline("test.only_legalize", warn=True)(Model)) == {
        "main",
        "transpose",
        "matmul",
        "add",
        "relu",
    }
    with pytest.raises(NotRegistered, match=r"'test\.only_legalize' is registered already"):
        relax.register_pipeline("test.only_legalize")


def test_an_unknown_pipeline_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(NotRegistered, match="no pipeline 'one' is registered; there are default, default_build"):
        relax.get_pipeline("one")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        relax.get_pipeline("zero", speed="high")


def test_a_module_that_is_not_lowered_is_refused_by_its_operator() -> None:
    with pytest.raises(oneir.runtime.error.OneIRError, match=r"in `main`: the operator relax\.\w+ is not lowered"):
        relax.build(Model, relax_pipeline=None)


def test_local_functions_that_nobody_lifted_are_refused() -> None:
    @I.ir_module
    class Local:
        @R.function(pure=False)
        def main(x: R.Object) -> R.Object:
            @R.function(pure=False)
            def inner(z: R.Object) -> R.Object:
                return z

            return inner(x)

    with pytest.raises(oneir.runtime.error.OneIRError, match="a local function is not lowered; run LambdaLift first"):
        relax.build(Local, relax_pipeline=None)
