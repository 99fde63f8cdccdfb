"""Normalizations compute what PyTorch computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch

rng = np.random.default_rng(13)
F = torch.nn.functional


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def torch_of(x):
    return torch.tensor(x.astype("float64"))


TOLERANCE = {"float16": 3e-3, "bfloat16": 3e-2, "float32": 1e-4, "float64": 1e-9}


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
@pytest.mark.parametrize("axes", [[-1], [1, 2], [0, 1, 2]], ids=str)
def test_layer_norm(axes, dtype):
    x = array(2, 3, 5, dtype=dtype)
    inner = [x.shape[a] for a in axes]
    gamma, beta = array(*inner, dtype=dtype), array(*inner, dtype=dtype)
    found = run(lambda x, g, b: topi.nn.layer_norm(x, g, b, axes, 1e-5), x, gamma, beta)
    assert found.dtype == x.dtype
    expected = F.layer_norm(torch_of(x), inner, torch_of(gamma), torch_of(beta), 1e-5).numpy()
    limit = TOLERANCE[x.dtype.name]
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=limit, atol=limit)


def test_layer_norm_over_a_leading_axis_without_beta_and_of_unknown_extents():
    x, gamma = array(4, 6), array(4)
    found = run(lambda x, g: topi.nn.layer_norm(x, g, None, [0]), x, gamma, shapes={0: ("m", "n"), 1: ("m",)})
    expected = F.layer_norm(torch_of(x.T), [4], torch_of(gamma), None, 1e-5).numpy().T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_layer_norm_names_its_stages():
    x, g = te.placeholder((2, 3), name="x"), te.placeholder((3,), name="g")
    text = te.create_prim_func([x, g, topi.nn.layer_norm(x, g, g, [1])]).script()
    assert "for ax0, k1 in T.grid(2, 3):" in text
    assert 'with T.block("x_red_temp"):' in text and 'with T.block("T_layer_norm"):' in text
    assert "v_x_red_temp_v1: T.float32 = x_red_temp_v1[v_ax0] + x[v_ax0, v_k1] * x[v_ax0, v_k1]" in text


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
@pytest.mark.parametrize("axes", [[-1], [-2, -1]], ids=str)
def test_rms_norm(axes, dtype):
    x = array(2, 3, 5, dtype=dtype)
    inner = [x.shape[a] for a in axes]
    weight = array(*inner, dtype=dtype)
    found = run(lambda x, w: topi.nn.rms_norm(x, w, axes, 1e-5), x, weight)
    expected = F.rms_norm(torch_of(x), inner, torch_of(weight), 1e-5).numpy()
    limit = TOLERANCE[x.dtype.name]
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=limit, atol=limit)


def test_rms_norm_over_everything():
    x, weight = array(3, 4), array(3, 4)
    found = run(lambda x, w: topi.nn.rms_norm(x, w, [0, 1]), x, weight)
    np.testing.assert_allclose(found, F.rms_norm(torch_of(x), [3, 4], torch_of(weight), 1e-5).numpy(), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("groups", "shape"), [(1, (2, 6, 3)), (3, (2, 6, 3, 2)), (6, (1, 6, 7))])
def test_group_norm(groups, shape, dtype):
    x, gamma, beta = array(*shape, dtype=dtype), array(6, dtype=dtype), array(6, dtype=dtype)
    axes = list(range(2, len(shape)))
    found = run(lambda x, g, b: topi.nn.group_norm(x, g, b, groups, 1, axes), x, gamma, beta)
    expected = F.group_norm(torch_of(x), groups, torch_of(gamma), torch_of(beta)).numpy()
    limit = TOLERANCE[x.dtype.name]
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=limit, atol=limit)


def test_group_norm_with_channels_last_and_an_unknown_batch():
    x = array(2, 3, 4)
    found = run(lambda x: topi.nn.group_norm(x, None, None, 2, -1, [1]), x, shapes={0: ("n", 3, 4)})
    expected = F.group_norm(torch_of(x.transpose(0, 2, 1)), 2).numpy().transpose(0, 2, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_instance_norm(dtype):
    x, gamma, beta = array(2, 3, 4, 5, dtype=dtype), array(3, dtype=dtype), array(3, dtype=dtype)
    found = run(lambda x, g, b: topi.nn.instance_norm(x, g, b, 1, [2, 3]), x, gamma, beta)
    expected = F.instance_norm(torch_of(x), weight=torch_of(gamma), bias=torch_of(beta)).numpy()
    limit = TOLERANCE[dtype]
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("axis", [1, 3])
def test_batch_norm_with_the_moving_moments(axis):
    x = array(2, 3, 4, 3)
    gamma, beta, mean, var = array(3), array(3), array(3), np.abs(array(3)) + 0.1
    found = run(lambda *t: topi.nn.batch_norm(*t, axis=axis, epsilon=1e-3), x, gamma, beta, mean, var)
    moved = torch_of(np.moveaxis(x, axis, 1))
    tensors = [torch_of(a) for a in (mean, var, gamma, beta)]
    expected = np.moveaxis(F.batch_norm(moved, *tensors, eps=1e-3).numpy(), 1, axis)
    for a, b in zip(found, [expected, mean, var], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_batch_norm_without_gamma_and_beta():
    x, one, mean, var = array(2, 3), array(3), array(3), np.abs(array(3)) + 0.1
    found = run(lambda *t: topi.nn.batch_norm(*t, center=False, scale=False)[0], x, one, one, mean, var)
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_updates_the_moments():
    x, gamma, beta, mean, var = array(4, 3, 5), array(3), array(3), array(3), np.abs(array(3))
    found = run(lambda *t: topi.nn.batch_norm(*t, training=True, momentum=0.3), x, gamma, beta, mean, var)
    new_mean, new_var = x.mean((0, 2)), x.var((0, 2))
    wide = [a[:, None] for a in (new_mean, new_var, gamma, beta)]
    expected = (x - wide[0]) / np.sqrt(wide[1] + 1e-5) * wide[2] + wide[3]
    for a, b in zip(found, [expected, 0.7 * mean + 0.3 * new_mean, 0.7 * var + 0.3 * new_var], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def t(*shape, dtype="float32"):
    return te.placeholder(shape, dtype)


@pytest.mark.parametrize(
    ("error", "make", "message"),
    [
        (
            TypeMismatch,
            lambda: topi.nn.layer_norm(t(2, 3), t(3, dtype="float16"), None, [1]),
            "gamma of the data's float32, found float16",
        ),
        (
            TypeMismatch,
            lambda: topi.nn.rms_norm(t(2, 3, dtype="int32"), t(3), [1]),
            "data of a float dtype, found int32",
        ),
        (ShapeMismatch, lambda: topi.nn.layer_norm(t(2, 3), t(2), None, [1]), r"gamma of shape \(3,\), found \(2,\)"),
        (InvalidValue, lambda: topi.nn.layer_norm(t(2, 3), t(3), None, []), "layer_norm: expected at least one axis"),
        (InvalidValue, lambda: topi.nn.layer_norm(t(2, 3), t(3), None, [2]), r"expected axis in \[-2, 2\), found 2"),
        (ShapeMismatch, lambda: topi.nn.group_norm(t(2, 6), None, None, 4, 1, []), "6 channels do not divide into 4"),
        (
            InvalidValue,
            lambda: topi.nn.group_norm(t(2, 6), None, None, 2, 1, [1]),
            "must not contain the channel axis 1",
        ),
        (ShapeMismatch, lambda: topi.nn.instance_norm(t(2, 3, 4), t(4), None, 1, [2]), r"gamma of shape \(3,\)"),
        (
            ShapeMismatch,
            lambda: topi.nn.batch_norm(t(2, 3), *[t(2)] * 4),
            r"batch_norm: expected gamma of shape \(3,\)",
        ),
        (InvalidValue, lambda: topi.nn.batch_norm(t(2, 3), *[t(3)] * 4, momentum=2), r"momentum in \[0, 1\], found 2"),
    ],
)
def test_refusals(error, make, message):
    with pytest.raises(error, match=message):
        make()
