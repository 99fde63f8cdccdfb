"""Document 001: a network of three loops as a script of the oldest spelling; loops and registered functions mixed."""

from __future__ import annotations

import pickle
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from published import as_printed_here

from oneir.runtime.error import WellFormedError

FOLDER = Path(__file__).parent


def set_up(names: dict[str, Any]) -> None:
    """An image and weights in the place of those that are downloaded; `IPython.display.Code` keeps its text."""
    import torch

    rng = np.random.default_rng(7)
    shapes = {"w0": (128, 784), "b0": (128,), "w1": (10, 128), "b1": (10,)}
    weights = {name: rng.standard_normal(shape, dtype="float32") / 8 for name, shape in shapes.items()}
    Path("fasionmnist_mlp_params.pkl").write_bytes(pickle.dumps(weights))
    ipython: Any = ModuleType("IPython")
    ipython.display = SimpleNamespace(Code=displayed)
    # matplotlib asks these of it.
    ipython.get_ipython, ipython.version_info = lambda: None, (9, 0)
    sys.modules["IPython"] = ipython
    names.update(
        torch=torch,
        img=rng.random((1, 28, 28), dtype="float32"),
        label=torch.tensor([8]),
        class_names=[f"class {i}" for i in range(10)],
    )


def displayed(text: str, language: str) -> None:
    assert language == "python"
    print(text)


def wanted(names) -> np.ndarray:
    return names["numpy_mlp"](names["img"].reshape(1, 784), **names["mlp_params"])


def document_004(cell: str) -> str:
    return (FOLDER.parent / "004" / f"{cell}.py").read_text(encoding="utf-8")


def check_08_the_old_spelling(names, printed):
    """`T.Buffer[...]`, bare `Tensor(...)`, functions by bare name and a shape with `dtype=` mean what they do today."""
    assert isinstance(names["MyModule"], names["IRModule"])
    assert names["MyModule"].script() == as_printed_here(document_004("07"))


def with_two_blocks(names, change: Callable[[str], str] = lambda text: text) -> Any:
    """The module of cell 08 with the `main` of the fragment 15, which has two dataflow blocks."""
    loops = (FOLDER / "08.py").read_text(encoding="utf-8").partition("    @R.function")[0]
    main = change((FOLDER / "15.fragment.py").read_text(encoding="utf-8"))
    known = {name: names[name] for name in ("tvm", "R", "T")}
    return names["tvm"].script.from_source(loops + textwrap.indent(main, "    "), known, check_well_formed=False)


def check_08_a_weight_of_another_shape_is_refused(names, printed):
    """The fragment passes `gv1`, (1, 128), as the weight of `linear1`, which is (10, 128)."""
    mod = with_two_blocks(names)
    assert "R.builtin.alloc_tensor(R.shape([1, 128])" in mod.script()
    kinds = [type(block) for block in mod["main"].body.blocks]
    assert kinds == [names["relax"].DataflowBlock, names["relax"].BindingBlock, names["relax"].DataflowBlock]
    with pytest.raises(WellFormedError, match=r"`W`"):
        names["relax"].build(mod, "llvm")


def check_08_two_blocks_with_the_right_shapes_run(names, printed):
    """The fragment's allocation with weights of the right shapes: the memory is handed on, and read nowhere."""

    def right(text: str) -> str:
        return text.replace("(gv0, gv1, b0), (1, 128)", "(gv0, w1, b1), (1, 10)")

    tvm, relax = names["tvm"], names["relax"]
    machine = relax.VirtualMachine(relax.build(with_two_blocks(names, right), "llvm"), tvm.cpu())
    result = machine["main"](names["img"].reshape(1, 784), *names["mlp_params"].values())
    np.testing.assert_allclose(result.numpy(), wanted(names), rtol=1e-4, atol=1e-4)


def check_16_the_module_is_shown(names, printed):
    assert printed == names["MyModule"].script() + "\n"


def check_17_the_type_of_what_is_built(names, printed):
    assert type(names["ex"]) is names["relax"].vm.Executable is names["relax"].Executable


def check_20_the_result_is_that_of_numpy(names, printed):
    np.testing.assert_allclose(names["nd_res"].numpy(), wanted(names), rtol=1e-4, atol=1e-4)
    assert printed.strip() == str(names["nd_res"].numpy())


def check_22_a_text_means_a_packed_function(names, printed):
    text = names["MyModuleWithExternCall"].script()
    call = 'R.call_dps_packed("env.linear", (x, w0, b0), out_sinfo=R.Tensor((1, 128), dtype="float32"))'
    assert f"lv0 = {call}" in text and "R.call_tir" not in text


def check_24_a_name_that_is_taken(names, printed):
    """Without `override=True` the second function of a name is refused."""
    with pytest.raises(names["tvm"].error.OneIRError, match=r"env\.relu"):
        names["tvm"].register_func("env.relu", lambda x, out: None)


def check_25_registered_functions_are_called(names, printed):
    np.testing.assert_allclose(names["nd_res"].numpy(), wanted(names), rtol=1e-4, atol=1e-4)


def check_27_loops_and_registered_functions(names, printed):
    np.testing.assert_allclose(names["nd_res"].numpy(), wanted(names), rtol=1e-4, atol=1e-4)


def check_28_bound_parameters_are_constants(names, printed):
    func = names["MyModuleWithParams"]["main"]
    assert [p.name_hint for p in func.params] == ["x"]
    assert (
        'R.call_tir(cls.linear0, (x, metadata["relax.expr.Constant"][0], metadata["relax.expr.Constant"][1])' in printed
    )


def check_28_parameters_may_be_arrays(names, printed):
    from oneir.ir import assert_structural_equal

    bind = names["relax"].transform.BindParams
    by_variable = dict(zip(names["MyModuleMixture"]["main"].params[1:], names["nd_params"].values(), strict=True))
    for params in (names["mlp_params"], by_variable):
        assert_structural_equal(bind("main", params)(names["MyModuleMixture"]), names["MyModuleWithParams"])


def check_28_an_unknown_parameter_is_refused(names, printed):
    with pytest.raises(names["tvm"].error.OneIRError, match="w7"):
        names["relax"].transform.BindParams("main", {"w7": names["mlp_params"]["w0"]})(names["MyModuleMixture"])


def check_29_bound_parameters_need_not_be_passed(names, printed):
    np.testing.assert_allclose(names["nd_res"].numpy(), wanted(names), rtol=1e-4, atol=1e-4)
