"""Graphs of products and of attention that `relax.testing` makes, run against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.testing import (
    get_relax_attention_module,
    get_relax_matmul_module,
    get_relax_stacked_attention_module,
)
from oneir.runtime.error import InvalidValue
from oneir.testing import interpret
from oneir.topi.testing import attention_python

RNG = np.random.default_rng(0)


def some(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def test_products():
    x, y, bias = some(3, 4, 8), some(3, 8, 8), some(8)
    mod = get_relax_matmul_module(
        x.shape,
        y.shape,
        "float32",
        transposed_y=True,
        bias_shape=(8,),
        activation=relax.op.nn.relu,
        residual_bin_op=lambda result, x: relax.op.add(result, x),
        residual_activation=relax.op.tanh,
    )
    expected = np.tanh(np.maximum(x @ y.transpose(0, 2, 1) + bias, 0) + x)
    np.testing.assert_allclose(interpret(mod, x, y, bias), expected, rtol=1e-4, atol=1e-5)


def test_attention():
    q, k, v = some(2, 5, 4, 8), some(2, 6, 4, 8), some(2, 6, 4, 8)
    mod = get_relax_attention_module(
        q.shape, k.shape, v.shape, dtype="float32", bias_shape=(2, 4, 5, 6), qk_scale=0.3, causal_mask="TopLeft"
    )
    bias = some(2, 4, 5, 6)
    expected, _ = attention_python(q, k, v, bias, 0.3, "TopLeft")
    np.testing.assert_allclose(interpret(mod, q, k, v, bias), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["split", "strided_slice"])
@pytest.mark.parametrize("layout", ["BS3NH", "SBN3H"])
def test_stacked_attention(way, layout):
    b, s, n, h = 2, 3, 4, 8
    q, k, v = some(b, s, n, h), some(b, s, n, h), some(b, s, n, h)
    if layout == "BS3NH":
        qkv = np.concatenate([part.reshape(b, s, n * h) for part in (q, k, v)], 2)
    else:
        qkv = np.concatenate([part.transpose(1, 0, 2, 3) for part in (q, k, v)], 3)
    mod = get_relax_stacked_attention_module(qkv, b, s, n, h, h, way, qk_scale=0.5, layout=layout)
    expected, _ = attention_python(q, k, v, None, 0.5, "none")
    expected = expected if layout == "BS3NH" else expected.transpose(1, 0, 2, 3)
    np.testing.assert_allclose(interpret(mod, qkv), expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_stacked():
    with pytest.raises(InvalidValue, match=r"expected the layout .* found 'NHSB'"):
        get_relax_stacked_attention_module(some(1, 1, 3), 1, 1, 1, 1, 1, "split", layout="NHSB")
    with pytest.raises(InvalidValue, match=r'expected "split" or "strided_slice", found \'cut\''):
        get_relax_stacked_attention_module(some(1, 1, 3), 1, 1, 1, 1, 1, "cut")
    assert isinstance(oneir.relax.testing.matmul.get_relax_matmul_module((2, 2), (2, 2), "float32"), oneir.IRModule)
