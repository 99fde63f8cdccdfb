"""Activations compute what PyTorch computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(12)
F = torch.nn.functional


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int8", ml_dtypes.bfloat16])
def test_relu(dtype):
    x = (rng.standard_normal((3, 4)) * 5).astype(dtype)
    np.testing.assert_array_equal(run(topi.nn.relu, x), np.where(x > 0, x, np.zeros_like(x)))


def test_relu_keeps_nan():
    np.testing.assert_array_equal(run(topi.nn.relu, np.float32([np.nan, -1, -0.0])), np.float32([np.nan, 0, 0]))


def test_relu_prints_as_legalized_modules_show_it():
    x = te.placeholder((2, 3), name="x")
    text = te.create_prim_func([x, topi.nn.relu(x)]).script()
    assert "for i0, i1 in T.grid(2, 3):" in text and 'with T.block("compute"):' in text
    assert "compute[v_i0, v_i1] = T.max(x[v_i0, v_i1], T.float32(0.0))" in text


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3, 4)])
def test_leaky_relu(shape):
    x = rng.standard_normal(shape).astype("float32")
    found = run(lambda t: topi.nn.leaky_relu(t, 0.2), x)
    np.testing.assert_allclose(found, F.leaky_relu(torch.tensor(x), 0.2).numpy(), rtol=1e-6)


@pytest.mark.parametrize(("beta", "threshold"), [(1.0, 20.0), (2.5, 4.0)])
def test_softplus(beta, threshold):
    x = np.linspace(-30, 30, 41, dtype="float32")
    found = run(lambda t: topi.nn.softplus(t, beta, threshold), x)
    np.testing.assert_allclose(found, F.softplus(torch.tensor(x), beta, threshold).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_prelu(axis):
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    slope = rng.standard_normal(x.shape[axis]).astype("float32")
    wide = slope.reshape([-1 if d == axis % 3 else 1 for d in range(3)])
    found = run(lambda t, s: topi.nn.prelu(t, s, axis), x, slope)
    np.testing.assert_allclose(found, np.where(x > 0, x, x * wide), rtol=1e-6)


def test_prelu_with_one_slope_for_an_unknown_number_of_channels():
    x, slope = rng.standard_normal((2, 5)).astype("float32"), np.float32([0.3])
    found = run(topi.nn.prelu, x, slope, shapes={0: (2, "c")})
    np.testing.assert_allclose(found, np.where(x > 0, x, x * slope), rtol=1e-6)


def test_prelu_refuses_other_slopes():
    x = te.placeholder((2, 3))
    with pytest.raises(ShapeMismatch, match=r"expected one slope or 3, as axis 1 of the data of shape \(2, 3\) has"):
        topi.nn.prelu(x, te.placeholder((4,)))
    with pytest.raises(ShapeMismatch, match=r"nn.prelu: expected slope of 1 dimensions"):
        topi.nn.prelu(x, te.placeholder((3, 1)))
    with pytest.raises(InvalidValue, match=r"nn.prelu: expected axis in \[-2, 2\), found 2"):
        topi.nn.prelu(x, te.placeholder((3,)), axis=2)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("function", ["softmax", "fast_softmax"])
def test_softmax(function, axis):
    x = (rng.standard_normal((2, 3, 4)) * 10).astype("float32")
    found = run(lambda t: getattr(topi.nn, function)(t, axis), x)
    np.testing.assert_allclose(found, torch.tensor(x).softmax(axis).numpy(), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_softmax_of_large_values_does_not_overflow(dtype):
    x = np.array([[1000.0, 1001.0, 1002.0], [-1000.0, -1000.0, -1000.0]], dtype)
    np.testing.assert_allclose(run(topi.nn.softmax, x), torch.tensor(x).double().softmax(1).numpy(), rtol=2e-3)


def test_softmax_of_an_unknown_length():
    x = rng.standard_normal((2, 7)).astype("float32")
    found = run(topi.nn.softmax, x, shapes={0: ("m", "n")})
    np.testing.assert_allclose(found, torch.tensor(x).softmax(1).numpy(), rtol=1e-5)


def test_softmax_names_its_stages():
    x = te.placeholder((2, 3), name="x")
    text = te.create_prim_func([x, topi.nn.softmax(x)]).script()
    stages = [line.split('"')[1] for line in text.splitlines() if "with T.block" in line and "root" not in line]
    assert stages == ["T_softmax_maxelem", "T_softmax_exp", "T_softmax_expsum", "T_softmax_norm"]
    assert "for i0, k in T.grid(2, 3):" in text and 'T.block_attr({"axis": 1})' in text


@pytest.mark.parametrize("shape", [(2, 5), (1, 1), (0, 3)])
def test_log_softmax(shape):
    x = rng.standard_normal(shape).astype("float32")
    found = run(topi.nn.log_softmax, x)
    np.testing.assert_allclose(found, torch.tensor(x).log_softmax(1).numpy(), rtol=1e-5, atol=1e-6)


def test_axes_that_do_not_exist_are_refused():
    with pytest.raises(InvalidValue, match=r"nn.softmax: expected axis in \[-2, 2\), found 3"):
        topi.nn.softmax(te.placeholder((2, 3)), 3)
    with pytest.raises(InvalidValue, match=r"nn.log_softmax: expected axis in \[-2, 2\), found 2"):
        topi.nn.log_softmax(te.placeholder((2, 3)), 2)
