"""FoldBatchnorm: normalization by constants as a product and a sum."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import relax
from oneir.ir.module import IRModule
from oneir.relax import op
from oneir.relax.transform import FoldBatchnorm, FoldConstant
from oneir.testing.interpreter import interpret

rng = np.random.default_rng(0)
PARAMETERS = [*rng.standard_normal((3, 3)), np.abs(rng.standard_normal(3)) + 0.5]
"""Gamma, beta, mean and variance of three channels."""
SHAPES = {1: (2, 3, 4, 5), -1: (2, 4, 3)}


def network(dtype: str = "float32", constant: bool = True, axis: int = 1, **attrs) -> IRModule:
    x = relax.Var("x", relax.TensorStructInfo(SHAPES[axis], dtype))
    g = relax.Var("g", relax.TensorStructInfo((3,), dtype))
    gamma, *others = [relax.const(p.astype(dtype)) for p in PARAMETERS]
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant else [x, g]):
        with builder.dataflow():
            norm = builder.emit(
                op.nn.batch_norm(x, gamma if constant else g, *others, axis=axis, training=False, **attrs)
            )
            out = builder.emit_output(relax.TupleGetItem(norm, 0))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod: IRModule) -> list[str]:
    values = [b.value for b in mod["main"].body.blocks[0].bindings]
    return [v.op.name.rsplit(".", 1)[1] for v in values if isinstance(v, relax.Call)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", SHAPES)
@pytest.mark.parametrize("attrs", [{}, {"scale": False}, {"center": False}, {"epsilon": 0.25}])
def test_a_product_and_a_sum_give_the_same(dtype: str, axis: int, attrs: dict) -> None:
    after = FoldConstant()(FoldBatchnorm()(network(dtype, axis=axis, **attrs)))
    relax.analysis.verify_well_formed(after)
    assert operators(after) == ["multiply", "add"]
    x = rng.standard_normal(SHAPES[axis]).astype(dtype)
    shape = [3 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    gamma, beta, mean, var = (p.reshape(shape) for p in PARAMETERS)
    expected = (x - mean) / np.sqrt(var + attrs.get("epsilon", 1e-5))
    expected = expected * gamma if attrs.get("scale", True) else expected
    expected = expected + beta if attrs.get("center", True) else expected
    rtol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(interpret(after, x), expected, rtol, rtol)


@pytest.mark.parametrize("difference", [{"constant": False}, {"dtype": "float16"}])
def test_parameters_that_are_arguments_and_short_floats_stay(difference: dict) -> None:
    mod = network(**difference)
    assert FoldBatchnorm()(mod) is mod


def test_moments_that_are_used_stay_and_so_do_primitive_functions() -> None:
    mod = network()
    mod["main"] = mod["main"].with_attr("Primitive", 1)
    assert FoldBatchnorm()(mod) is mod
    x = relax.Var("x", relax.TensorStructInfo(SHAPES[1], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        norm = builder.emit(op.nn.batch_norm(x, *(relax.const(p.astype("float32")) for p in PARAMETERS), axis=1))
        builder.emit_func_output(relax.TupleGetItem(norm, 1))
    mod = builder.get()
    assert FoldBatchnorm()(mod) is mod
