"""Document 000: an MLP as a script, built with `relax.testing.nn`, and with tensor expressions; compiled for the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

# The flow is written for a GPU.
REPLACED = {"05": {'"cuda"': '"llvm"', "tvm.cuda()": "tvm.cpu()"}}


def set_up(names: dict[str, Any]) -> None:
    """The document imports all that it uses."""


def before_05(names):
    """The document calls the module of the cell before by another name."""
    names["MLPModule"] = names["Module"]


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape, dtype="float32") for shape in shapes]


MLP_INPUTS = [(1, 784), (128, 784), (1, 128), (10, 128), (1, 10)]


def run_main(names, mod, inputs):
    tvm, relax = names["tvm"], names["relax"]
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    return machine["main"](*(tvm.nd.array(array) for array in inputs)).numpy()


def mlp(x, w1, b1, w2, b2):
    return np.maximum(x @ w1.T + b1, 0) @ w2.T + b2


def check_05_the_pipeline_is_zero_and_a_cpu_needs_no_schedule(names, printed):
    from oneir.ir import assert_structural_equal

    tvm, relax, mod = names["tvm"], names["relax"], names["mod"]
    fused = relax.pipeline.get_pipeline()(mod)
    assert_structural_equal(fused, relax.get_pipeline("zero")(mod))
    assert {var.name_hint for var in fused.get_global_vars()} == {
        "fused_matmul1_add1",
        "fused_matmul_add_relu",
        "main",
        "transpose",
        "transpose1",
    }
    with tvm.target.Target("llvm"):
        assert tvm.tir.transform.DefaultGPUSchedule()(fused) is fused


def check_05_an_unknown_pipeline_is_refused(names, printed):
    with pytest.raises(names["tvm"].error.OneIRError, match="no pipeline 'fast' is registered; there are"):
        names["relax"].pipeline.get_pipeline("fast")


def check_07_parameters_are_a_list(names, printed):
    layer = names["RelaxLinear"](4, 3, "float32")
    assert type(layer.parameters()) is list
    assert [p.name_hint for p in layer.parameters()] == ["linear_weight", "linear_bias"]
    assert names["relax"].Expr in type(layer.weight).__mro__


def check_09_two_parameters_of_one_name_are_two(names, printed):
    mod = names["build_relax"](names["RelaxMLP"])
    inputs = arrays(*MLP_INPUTS)
    np.testing.assert_allclose(run_main(names, mod, inputs), mlp(*inputs), rtol=1e-4, atol=1e-4)


def check_09_an_argument_is_missing(names, printed):
    with pytest.raises(
        names["tvm"].error.OneIRError, match=r"`main` expects 5 arguments, found 4: missing `linear_bias"
    ):
        run_main(names, names["build_relax"](names["RelaxMLP"]), arrays(*MLP_INPUTS[:4]))


def check_10_the_function_runs(names, printed):
    x, w = arrays((1, 784), (784, 128))
    out = np.zeros((1, 128), "float32")
    names["tvm"].compile(names["matmul"], target="llvm")["matmul"](x, w, out)
    np.testing.assert_allclose(out, x @ w, rtol=1e-4, atol=1e-4)


def check_12_arguments_of_call_tir_as_a_list(names, printed):
    mod = names["Module"]
    call = mod["main"].body.blocks[0].bindings[1].value
    assert [arg.name_hint for arg in call.args[1].fields] == ["inp_0", "lv"]
    assert "R.call_tir(cls.tir_matmul, (inp_0, lv), out_sinfo=" in mod.script()
    inputs = arrays(*MLP_INPUTS)
    np.testing.assert_allclose(run_main(names, mod, inputs), mlp(*inputs), rtol=1e-4, atol=1e-4)


def check_17_the_layers_compute_what_they_say(names, printed):
    """`my_linear` sums over as many elements as it has outputs, and takes a bias that it does not add."""
    mod = names["build_relax"](names["RelaxMLPwithEmitTE"])
    x, w1, _, w2, _ = inputs = arrays(*MLP_INPUTS)
    hidden = np.maximum(x[:, :128] @ w1[:, :128].T, 0)
    np.testing.assert_allclose(run_main(names, mod, inputs), hidden[:, :10] @ w2[:, :10].T, rtol=1e-4, atol=1e-4)


def check_17_modules_need_not_call_the_base(names, printed):
    model = names["RelaxMLPwithEmitTE"](784, 128, 10)
    assert [p.name_hint for p in model.parameters()] == ["linear_weight", "linear_bias"] * 2
