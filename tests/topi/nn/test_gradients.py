"""Gradients are those of PyTorch's automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(25)
F = torch.nn.functional


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def gradient(function, x):
    """The output's shape, a random gradient over it, and the gradient over the input."""
    x = torch.tensor(x, requires_grad=True)
    y = function(x)
    grads = array(*y.shape)
    y.backward(torch.tensor(grads))
    assert x.grad is not None
    return grads, x.grad.numpy()


@pytest.mark.parametrize(
    ("extents", "kernel", "stride", "pad", "ceil_mode"),
    [
        ((6, 6), (2, 2), (2, 2), (0, 0), False),
        ((7, 5), (3, 2), (2, 1), (1, 0), False),
        ((5, 7), (3, 3), (2, 2), (1, 1), True),
        ((5, 5), (2, 2), (2, 2), (0, 0), False),
        ((6, 4), (1, 3), (3, 1), (0, 1), False),
    ],
)
class TestPooling:
    def test_max(self, extents, kernel, stride, pad, ceil_mode):
        x = array(2, 3, *extents)
        grads, expected = gradient(lambda t: F.max_pool2d(t, kernel, stride, pad, 1, ceil_mode), x)
        found = run(lambda g, x: topi.nn.pool_grad(g, x, kernel, stride, (*pad, *pad), "max", ceil_mode), grads, x)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("count_include_pad", [False, True])
    def test_mean(self, extents, kernel, stride, pad, ceil_mode, count_include_pad):
        x = array(2, 3, *extents)
        grads, expected = gradient(lambda t: F.avg_pool2d(t, kernel, stride, pad, ceil_mode, count_include_pad), x)
        found = run(
            lambda g, x: topi.nn.pool_grad(g, x, kernel, stride, (*pad, *pad), "avg", ceil_mode, count_include_pad),
            grads,
            x,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pooling_of_an_unknown_batch_in_another_layout():
    x = array(2, 3, 6, 6)
    grads, expected = gradient(lambda t: F.max_pool2d(t, 2), x)
    found = run(
        lambda g, x: topi.nn.pool_grad(g, x, 2, 2, 0, "max", layout="NHWC"),
        grads.transpose(0, 2, 3, 1),
        x.transpose(0, 2, 3, 1),
        shapes={0: ("n", 3, 3, 3), 1: ("n", 6, 6, 3)},
    )
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected, rtol=1e-5)


def test_pooling_refusals():
    x, g = te.placeholder((1, 2, 4, 4)), te.placeholder((1, 2, 3, 3))
    with pytest.raises(
        ShapeMismatch, match=r"expected grads of the output's shape \(1, 2, 2, 2\), found \(1, 2, 3, 3\)"
    ):
        topi.nn.pool_grad(g, x, 2, 2, 0, "max")
    with pytest.raises(InvalidValue, match="pool_grad: expected 4 paddings, found 2"):
        topi.nn.pool_grad(g, x, 2, 1, (0, 0), "max")


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), ((2, 1), 1), (2, (0, 1, 1, 0))])
def test_depthwise(stride, padding, multiplier):
    x, w = array(2, 6, 7, 3), array(3, 3, 3, multiplier)
    top, left, bottom, right = padding if isinstance(padding, tuple) else (padding,) * 4
    data = torch.tensor(x.transpose(0, 3, 1, 2).copy(), requires_grad=True)
    weight = torch.tensor(w.transpose(2, 3, 0, 1).reshape(3 * multiplier, 1, 3, 3).copy(), requires_grad=True)
    y = F.conv2d(F.pad(data, (left, right, top, bottom)), weight, None, stride, 0, 1, 3)
    grads = array(*y.shape)
    y.backward(torch.tensor(grads))
    assert data.grad is not None and weight.grad is not None
    out_grad = grads.transpose(0, 2, 3, 1)
    found = run(
        lambda w, g: topi.nn.depthwise_conv2d_backward_input_nhwc(w, g, g.shape, x.shape, stride, padding), w, out_grad
    )
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), data.grad.numpy(), rtol=1e-4, atol=1e-4)
    found = run(
        lambda x, g: topi.nn.depthwise_conv2d_backward_weight_nhwc(x, g, g.shape, w.shape, stride, padding), x, out_grad
    )
    expected = weight.grad.numpy().reshape(3, multiplier, 3, 3).transpose(2, 3, 0, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
