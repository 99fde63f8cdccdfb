"""UpdateParamStructInfo: other parameters, and what follows from them."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.relax.transform import UpdateParamStructInfo
from oneir.runtime.error import TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor(("n", 4), "float32"):
        y = R.exp(x)
        return y

    @R.function(private=True)
    def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.exp(x)
        return y


def test_results_follow_the_parameters() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float16"), w: R.Tensor((4,), "float32")) -> R.Tensor(("n", 4), "float16"):
            y = R.exp(x)
            return y

        @R.function(private=True)
        def other(x: R.Tensor((4,), "float16")) -> R.Tensor((4,), "float16"):
            y = R.exp(x)
            return y

    def halves(var: relax.Var) -> relax.StructInfo | None:
        info = var.struct_info
        return relax.TensorStructInfo(info.shape, "float16") if var.name == "x" else None

    check_pass(UpdateParamStructInfo(halves), Model, Expected, numbers=False)


def test_a_shape_becomes_known() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((7, 4), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((7, 4), "float32"):
            y = R.exp(x)
            return y

        @R.function(private=True)
        def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    def seven(var: relax.Var) -> relax.StructInfo | None:
        return relax.TensorStructInfo((7, 4), "float32") if var.struct_info.ndim == 2 else None

    check_pass(UpdateParamStructInfo(seven), Model, Expected, numbers=False)


def test_the_same_struct_info_changes_nothing() -> None:
    assert UpdateParamStructInfo(lambda var: None)(Model) is Model
    assert UpdateParamStructInfo(lambda var: var.struct_info)(Model) is Model


def test_what_is_no_struct_info_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="returned 'float16' for the parameter `x`"):
        UpdateParamStructInfo(lambda var: "float16")(Model)


def test_what_no_longer_fits_is_refused() -> None:
    @I.ir_module
    class Sum:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.add(x, w)
            return y

    with pytest.raises(TypeMismatch, match="expected arguments of one dtype, found float16 and float32"):
        UpdateParamStructInfo(lambda v: relax.TensorStructInfo((4,), "float16") if v.name == "x" else None)(Sum)
