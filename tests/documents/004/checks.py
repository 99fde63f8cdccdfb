"""Document 004: the network of document 001 in today's spelling, with `cls`, `R.call_dps_packed` and bound parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def set_up(names: dict[str, Any]) -> None:
    """What the document imports and loads in cells that it does not show."""
    import torch
    import tvm
    from tvm import relax
    from tvm.script import ir as I
    from tvm.script import relax as R
    from tvm.script import tir as T

    rng = np.random.default_rng(9)
    shapes = {"w0": (128, 784), "b0": (128,), "w1": (10, 128), "b1": (10,)}
    weights = {name: rng.standard_normal(shape, dtype="float32") / 8 for name, shape in shapes.items()}
    image = rng.random((1, 784), dtype="float32")
    names.update(torch=torch, np=np, tvm=tvm, relax=relax, I=I, R=R, T=T, mlp_params=weights)
    names.update(image=image, data_nd=tvm.nd.array(image), nd_params={k: tvm.nd.array(v) for k, v in weights.items()})


def wanted(names) -> np.ndarray:
    return names["numpy_mlp"](names["image"], **names["mlp_params"])


def assert_right(names, result) -> None:
    np.testing.assert_allclose(result.numpy(), wanted(names), rtol=1e-4, atol=1e-4)


def check_05_the_loops_of_numpy_agree(names, printed):
    image, params = names["image"], names["mlp_params"]
    np.testing.assert_allclose(names["lnumpy_mlp_with_call_tir"](image, **params), wanted(names), rtol=1e-4, atol=1e-4)


def check_07_the_hand_written_and_the_printed_module_are_one(names, printed):
    from oneir.ir import assert_structural_equal

    assert_structural_equal(names["MyModule"], names["Module"])


def check_08_the_result_is_that_of_numpy(names, printed):
    assert type(names["ex"]) is names["relax"].Executable
    assert_right(names, names["nd_res"])


def check_11_registered_functions_are_called(names, printed):
    assert_right(names, names["vm"]["main"](names["data_nd"], *names["nd_params"].values()))


def check_11_a_function_that_is_not_registered(names, printed):
    tvm, relax = names["tvm"], names["relax"]
    text = names["MyModuleWithExternCall"].script().replace("env.relu", "env.nowhere")
    executable = relax.build(tvm.script.from_source(text), "llvm")
    with pytest.raises(
        tvm.error.OneIRError, match=r"calls 'env\.nowhere', which is neither .* nor a registered function"
    ):
        relax.VirtualMachine(executable, tvm.cpu())


def check_12_loops_and_registered_functions(names, printed):
    tvm, relax = names["tvm"], names["relax"]
    machine = relax.VirtualMachine(relax.build(names["MyModuleMixture"], target="llvm"), tvm.cpu())
    assert_right(names, machine["main"](names["data_nd"], *names["nd_params"].values()))


def check_12_the_three_forms_of_arguments(names, printed):
    """A tuple, a list and a single tensor mean the same; a list of struct infos means that a tuple comes back."""
    from oneir.ir import assert_structural_equal

    tvm, R = names["tvm"], names["R"]
    text = names["MyModuleWithExternCall"].script()
    for other in ('("env.relu", [lv0], ', '("env.relu", lv0, '):
        assert_structural_equal(
            tvm.script.from_source(text.replace('("env.relu", (lv0,), ', other)), names["MyModuleWithExternCall"]
        )
    relax = names["relax"]
    x = relax.Var("x", R.Tensor((4,), "float32"))
    several = relax.op.call_dps_packed("env.split", x, out_sinfo=[R.Tensor((2,), "float32"), R.Tensor((2,), "float32")])
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        result = bb.emit(several)
        bb.emit_func_output(result)
    assert isinstance(result.struct_info, relax.TupleStructInfo) and len(result.struct_info.fields) == 2


def check_13_bound_parameters_need_not_be_passed(names, printed):
    tvm, relax = names["tvm"], names["relax"]
    machine = relax.VirtualMachine(relax.build(names["MyModuleWithParams"], target="llvm"), tvm.cpu())
    assert_right(names, machine["main"](names["data_nd"]))
