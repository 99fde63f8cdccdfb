"""FoldBatchnormToConv2D: weights that contain their normalization."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import relax
from oneir.ir.module import IRModule
from oneir.relax import op
from oneir.relax.transform import FoldBatchnormToConv2D
from oneir.testing.interpreter import interpret

rng = np.random.default_rng(0)


def network(layout: str = "OIHW", groups: int = 1, constant: bool = True, **attrs) -> IRModule:
    data = rng.standard_normal
    weight = data((3, 2, 3, 3) if layout == "OIHW" else (2, 3, 3, 3)).astype("float32")
    gamma, beta, mean = (data(3).astype("float32") for _ in range(3))
    var = np.abs(data(3)).astype("float32") + 0.5
    x = relax.Var("x", relax.TensorStructInfo((1, 2 * groups, 5, 5), "float32"))
    w = relax.Var("w", relax.TensorStructInfo(weight.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant else [x, w]):
        with builder.dataflow():
            conv = builder.emit(
                op.nn.conv2d(x, relax.const(weight) if constant else w, kernel_layout=layout, groups=groups)
            )
            norm = builder.emit(
                op.nn.batch_norm(conv, *map(relax.const, (gamma, beta, mean, var)), axis=1, training=False, **attrs)
            )
            out = builder.emit_output(relax.TupleGetItem(norm, 0))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("layout", ["OIHW", "IOHW"])
def test_the_convolution_of_scaled_weights_gives_the_same(layout: str) -> None:
    before = network(layout)
    after = FoldBatchnormToConv2D()(before)
    relax.analysis.verify_well_formed(after)
    calls = [b.value for b in after["main"].body.blocks[0].bindings if isinstance(b.value, relax.Call)]
    assert [c.op.name.rsplit(".", 1)[1] for c in calls] == [
        *("add", "sqrt", "divide", "reshape", "multiply", "conv2d"),
        *("multiply", "subtract", "reshape", "add"),
    ]
    assert FoldBatchnormToConv2D()(after) is after
    x = rng.standard_normal((1, 2, 5, 5)).astype("float32")
    np.testing.assert_allclose(interpret(after, x), interpret(before, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("difference", [{"constant": False}, {"scale": False}, {"center": False}])
def test_other_normalizations_stay(difference: dict) -> None:
    mod = network(**difference)
    assert FoldBatchnormToConv2D()(mod) is mod


def test_primitive_functions_stay() -> None:
    mod = network()
    mod["main"] = mod["main"].with_attr("Primitive", 1)
    assert FoldBatchnormToConv2D()(mod) is mod
