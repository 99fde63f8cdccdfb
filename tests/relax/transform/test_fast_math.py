"""FastMathTransform: functions that have a fast form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneir import IRModule, cpu, relax, topi
from oneir.ir.structural import assert_structural_equal
from oneir.relax.struct_info import TensorStructInfo
from oneir.relax.transform import FastMathTransform
from oneir.runtime import tensor
from oneir.script import relax as R


def module(make: Any, shape: Any = ("n", 8)) -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor(shape, "float32") if "n" not in shape else TensorStructInfo((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(make(builder, x))
        builder.emit_func_output(output)
    return builder.finalize()


@pytest.mark.parametrize(
    ("slow", "fast", "reference"),
    [
        (R.exp, topi.fast_exp, np.exp),
        (R.tanh, topi.fast_tanh, np.tanh),
        (R.erf, topi.fast_erf, None),
        (R.nn.softmax, lambda x: topi.nn.fast_softmax(x, -1), None),
    ],
)
def test_a_function_becomes_fast_loops(slow: Any, fast: Any, reference: Any) -> None:
    before = module(lambda builder, x: slow(x))
    name = getattr(fast, "__name__", "")
    expected = module(
        lambda builder, x: builder.call_te(fast, x, primfunc_name_hint="fast_softmax" if "lambda" in name else name)
    )
    after = FastMathTransform()(before)
    assert_structural_equal(after, expected)
    if reference is not None:
        value = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
        found = relax.VirtualMachine(relax.build(after, "llvm"), cpu())["main"](tensor(value)).numpy()
        np.testing.assert_allclose(found, reference(value), rtol=1e-5, atol=1e-6)


def test_powers() -> None:
    half = FastMathTransform()(module(lambda builder, x: R.power(x, R.const(0.5, "float32"))))
    value = np.random.default_rng(0).random((4, 8), np.float32) + 0.1
    found = relax.VirtualMachine(relax.build(half, "llvm"), cpu())["main"](tensor(value)).numpy()
    np.testing.assert_allclose(found, np.sqrt(value), rtol=1e-5)
    assert [v.name_hint for v in half.functions if v.name_hint != "main"] == ["te_fast_power_const"]
    for exponent in (lambda x: R.const(2.0, "float32"), lambda x: x, lambda x: R.const([0.5] * 8, "float32")):
        mod = module(lambda builder, x, exponent=exponent: R.power(x, exponent(x)))
        assert FastMathTransform()(mod) is mod


def test_everything_else_stays() -> None:
    mod = module(lambda builder, x: R.sqrt(R.add(x, x)))
    assert FastMathTransform()(mod) is mod
