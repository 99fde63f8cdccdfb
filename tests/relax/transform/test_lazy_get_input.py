"""LazyGetInput: weights are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.transform import LazyGetInput
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32"), b: R.Tensor((3,), "float32")
    ) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"num_input": 1})
        y = R.matmul(x, w)
        z = R.add(y, b)
        out = R.add(z, b)
        return out


@I.ir_module
class Expected:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), fget_param: R.Callable((R.Prim("int64"), R.Object), R.Object, True)
    ) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"num_input": 2})
        w_untyped = fget_param(R.prim_value(0), R.str("w"))
        w = R.match_cast(w_untyped, R.Tensor((4, 3), "float32"))
        y = R.matmul(x, w)
        b_untyped = fget_param(R.prim_value(1), R.str("b"))
        b = R.match_cast(b_untyped, R.Tensor((3,), "float32"))
        z = R.add(y, b)
        out = R.add(z, b)
        return out


def test_each_weight_is_asked_for_once_where_it_is_first_used() -> None:
    after = check_pass(LazyGetInput(), Before, Expected, numbers=False, idempotent=False)
    assert [p.name for p in after["main"].params] == ["x", "fget_param"]


def test_the_machine_asks_a_python_function() -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype("float32") for shape in ((2, 4), (4, 3), (3,)))
    asked = []

    def get(index: int, name: str) -> oneir.runtime.Tensor:
        asked.append((index, name))
        return oneir.runtime.tensor((w, b)[index])

    vm = relax.VirtualMachine(relax.build(LazyGetInput()(Before), "llvm"), oneir.cpu())
    result = vm["main"](oneir.runtime.tensor(x), get)
    np.testing.assert_allclose(result.numpy(), x @ w + b + b, rtol=1e-5)
    assert asked == [(0, "w"), (1, "b")]


def test_without_num_input_all_parameters_are_asked_for() -> None:
    @I.ir_module
    class All:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    @I.ir_module
    class AllLazy:
        @R.function
        def main(
            fget_param: R.Callable((R.Prim("int64"), R.Object), R.Object, True),
        ) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            x_untyped = fget_param(R.prim_value(0), R.str("x"))
            x = R.match_cast(x_untyped, R.Tensor((4,), "float32"))
            y = R.exp(x)
            return y

    check_pass(LazyGetInput(), All, AllLazy, numbers=False, idempotent=False)


def test_private_functions_stay() -> None:
    @I.ir_module
    class Private:
        @R.function(private=True)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    check_pass(LazyGetInput(), Private, Private)


def test_more_inputs_than_parameters_are_an_error() -> None:
    mod = oneir.IRModule({"main": Before["main"].with_attr("num_input", 9)})
    with pytest.raises(InvalidValue, match="num_input of `main` is 9, but it has 3 parameters"):
        LazyGetInput()(mod)
