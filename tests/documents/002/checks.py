"""Document 002: modules from tensor expressions, a builder, and a translator of torch.fx graphs. Its indentation was lost."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def set_up(names: dict[str, Any]) -> None:
    """What the document imports in a cell that it does not show; a plain table in the place of the `tabulate` package."""
    import torch
    import tvm
    from torch import fx, nn
    from tvm import relax, te
    from tvm.script import ir as I
    from tvm.script import relax as R
    from tvm.script import tir as T

    tabulate: Any = ModuleType("tabulate")
    tabulate.tabulate = lambda rows, headers: "\n".join(str(row) for row in [headers, *rows])
    sys.modules["tabulate"] = tabulate
    names.update(torch=torch, tvm=tvm, fx=fx, nn=nn, relax=relax, te=te, I=I, R=R, T=T)


def before_04(names):
    """The inputs of a graph are graph variables; those of cell 01 are tensor expressions."""
    relax = names["relax"]
    names["placeholders"] = names["A"], names["B"]
    for name in "AB":
        names[name] = relax.Var(name, relax.TensorStructInfo((128, 128), "float32"))


def run_main(names, mod, *inputs):
    tvm, relax = names["tvm"], names["relax"]
    return relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())["main"](*map(tvm.nd.array, inputs)).numpy()


def rows(count: int, size: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((count, size), dtype="float32")


def check_04_placeholders_are_refused(names, printed):
    relax = names["relax"]
    bb = relax.BlockBuilder()
    a, b = names["placeholders"]
    with pytest.raises(names["tvm"].error.OneIRError, match=r"relax\.Var"), bb.function("main"), bb.dataflow():
        bb.emit_te(names["te_matmul"], a, b)


def check_04_placeholders_are_no_parameters(names, printed):
    relax = names["relax"]
    bb = relax.BlockBuilder()
    with (
        pytest.raises(names["tvm"].error.OneIRError, match=r"relax\.Var"),
        bb.function("main", params=list(names["placeholders"])),
    ):
        pass


def check_04_parameters_at_the_beginning_or_at_the_end(names, printed):
    """The fragment that follows cell 04 names the parameters when the function begins."""
    from oneir.ir import assert_structural_equal

    relax = names["relax"]
    bb = relax.BlockBuilder()
    with bb.function("main", params=[names["A"], names["B"]]):
        with bb.dataflow():
            product = bb.emit_te(names["te_matmul"], names["A"], names["B"])
            result = bb.emit_output(bb.emit_te(names["te_relu"], product))
        bb.emit_func_output(result)
    assert_structural_equal(bb.get(), names["MyModule"])
    assert isinstance(product, relax.DataflowVar) and not isinstance(result, relax.DataflowVar)


def check_04_the_module_runs(names, printed):
    a, b = rows(128, 128), rows(256, 128)[128:]
    np.testing.assert_allclose(run_main(names, names["MyModule"], a, b), np.maximum(a @ b, 0), rtol=1e-3, atol=1e-3)


def check_10_a_constant_of_a_declared_rank_and_dtype(names, printed):
    relax = names["relax"]
    const = names["map_param"](names["model"].weight)
    assert const.struct_info == relax.TensorStructInfo((128, 128), "float32")
    np.testing.assert_array_equal(const.data.numpy(), names["model"].weight.detach().numpy())


def check_13_an_output_that_is_none_is_resolved(names, printed):
    """The document returns `lv1`, a variable of the dataflow block, and not `gv`, its output."""
    relax, mod, model = names["relax"], names["MyModule"], names["model"]
    assert relax.analysis.well_formed(mod) is False
    x = rows(1, 128)
    expected = model(names["torch"].from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run_main(names, mod, x), expected, rtol=1e-4, atol=1e-4)


def check_13_the_variable_is_named(names, printed):
    from oneir.relax.analysis.well_formed import verify_well_formed

    with pytest.raises(
        names["tvm"].error.OneIRError, match=r"the dataflow variable `lv1` is used outside of its dataflow block"
    ):
        verify_well_formed(names["MyModule"])


def check_14_the_network_is_that_of_torch(names, printed):
    x = rows(1, 784)
    expected = names["mlp_model"](names["torch"].from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run_main(names, names["MLPModule"], x), expected, rtol=1e-4, atol=1e-4)


def check_15_the_network_is_that_of_torch(names, printed):
    x = rows(1, 784)
    expected = names["mlp_model"](names["torch"].from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run_main(names, names["MLPModuleHighLevel"], x), expected, rtol=1e-4, atol=1e-4)
