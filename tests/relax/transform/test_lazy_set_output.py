"""LazySetOutput: results are handed out."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.transform import LazySetOutput
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((4,), "float32")):
        y = R.exp(x)
        z = R.negative(y)
        return (y, w, z, R.prim_value(3))


@I.ir_module
class Expected:
    @R.function(pure=False)
    def main(
        x: R.Tensor(("n",), "float32"),
        w: R.Tensor((4,), "float32"),
        fset_output: R.Callable((R.Prim("int64"), R.Object), R.Tuple, False),
    ) -> R.Tuple:
        _ = fset_output(R.prim_value(1), w)
        y = R.exp(x)
        _1 = fset_output(R.prim_value(0), y)
        z = R.negative(y)
        _2 = fset_output(R.prim_value(2), z)
        _3 = fset_output(R.prim_value(3), R.prim_value(3))
        return R.tuple()


def test_each_result_is_handed_out_once_it_is_known() -> None:
    check_pass(LazySetOutput(), Before, Expected, numbers=False, idempotent=False)


def test_the_machine_calls_a_python_function() -> None:
    got = {}

    def put(index: int, value: object) -> tuple:
        got[index] = value.numpy().copy() if isinstance(value, oneir.runtime.Tensor) else value
        return ()

    vm = relax.VirtualMachine(relax.build(LazySetOutput()(Before), "llvm"), oneir.cpu())
    x, w = np.array([0.0, 1.0], "float32"), np.arange(4, dtype="float32")
    vm["main"](oneir.runtime.tensor(x), oneir.runtime.tensor(w), put)
    assert list(got) == [1, 0, 2, 3]
    np.testing.assert_allclose(got[0], np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(got[1], w)
    np.testing.assert_allclose(got[2], -np.exp(x), rtol=1e-6)
    assert got[3] == 3


def test_the_function_comes_behind_the_inputs() -> None:
    @I.ir_module
    class Inputs:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            y = R.add(x, w)
            return y

    @I.ir_module
    class InputsLazy:
        @R.function(pure=False)
        def main(
            x: R.Tensor((4,), "float32"),
            fset_output: R.Callable((R.Prim("int64"), R.Object), R.Tuple, False),
            w: R.Tensor((4,), "float32"),
        ) -> R.Tuple:
            R.func_attr({"num_input": 2})
            y = R.add(x, w)
            _ = fset_output(R.prim_value(0), y)
            return R.tuple()

    check_pass(LazySetOutput(), Inputs, InputsLazy, numbers=False, idempotent=False)


def test_private_functions_stay() -> None:
    @I.ir_module
    class Private:
        @R.function(private=True)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    check_pass(LazySetOutput(), Private, Private)


def test_a_negative_number_of_inputs_is_an_error() -> None:
    mod = oneir.IRModule({"main": Before["main"].with_attr("num_input", -1)})
    with pytest.raises(InvalidValue, match="num_input of `main` is -1, but it has 2 parameters"):
        LazySetOutput()(mod)
