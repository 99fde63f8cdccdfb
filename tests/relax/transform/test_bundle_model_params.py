"""BundleModelParams: weights as one tuple."""

from __future__ import annotations

import pytest

from oneir.relax.transform import BundleModelParams
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_weights_are_fields_of_one_parameter() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def main(
            x: R.Tensor(("n", 16), "float32"), w: R.Tensor((16,), "float32"), b: R.Tensor((16,), "float32")
        ) -> R.Tensor(("n", 16), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.multiply(x, w)
                z = R.add(y, b)
                out = R.add(z, w)
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def main(
            x: R.Tensor(("n", 16), "float32"),
            model_params: R.Tuple(R.Tensor((16,), "float32"), R.Tensor((16,), "float32")),
        ) -> R.Tensor(("n", 16), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                w = model_params[0]
                y = R.multiply(x, w)
                b = model_params[1]
                z = R.add(y, b)
                w1 = model_params[0]
                out = R.add(z, w1)
                R.output(out)
            return out

    after = check_pass(BundleModelParams(), Before, Expected, numbers=False)
    assert [p.name for p in after["main"].params] == ["x", "model_params"]
    assert [p.name for p in BundleModelParams("weights")(Before)["main"].params] == ["x", "weights"]


def test_a_weight_that_is_returned_is_read_at_the_end() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(w: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            R.func_attr({"num_input": 0})
            return w

    @I.ir_module
    class Expected:
        @R.function
        def main(p: R.Tuple(R.Tensor((16,), "float32"))) -> R.Tensor((16,), "float32"):
            R.func_attr({"num_input": 0})
            w = p[0]
            return w

    check_pass(BundleModelParams("p"), Before, Expected, numbers=False)


def test_a_function_that_does_not_say_what_its_inputs_are_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((16,), "float32"), w: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            y = R.add(x, w)
            return y

    check_pass(BundleModelParams(), Before, Before)


def test_more_inputs_than_parameters_are_an_error() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            R.func_attr({"num_input": 2})
            y = R.exp(x)
            return y

    with pytest.raises(InvalidValue, match="num_input of `main` is 2, but it has 1 parameters"):
        BundleModelParams()(Before)
