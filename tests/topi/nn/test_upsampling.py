"""Scaled images are those of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue

rng = np.random.default_rng(29)
F = torch.nn.functional


def array(*shape):
    return rng.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("scales", [(2, 3), (2.0, 1.5), (1, 1)])
def test_nearest_neighbors(scales, layout):
    x = array(2, 3, 4, 6)
    expected = F.interpolate(torch.tensor(x), scale_factor=[float(s) for s in scales], mode="nearest").numpy()
    data = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    found = run(lambda t: topi.nn.upsampling(t, *scales, layout=layout), data)
    np.testing.assert_array_equal(found if layout == "NCHW" else found.transpose(0, 3, 1, 2), expected)


def test_bilinear_with_aligned_corners():
    x = array(1, 2, 4, 5)
    found = run(lambda t: topi.nn.upsampling(t, 2, 3, method="bilinear", align_corners=True), x)
    expected = F.interpolate(torch.tensor(x), size=(8, 15), mode="bilinear", align_corners=True)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_volumes():
    x = array(1, 2, 2, 3, 2)
    found = run(lambda t: topi.nn.upsampling3d(t, 2, 2, 3, method="trilinear"), x)
    expected = F.interpolate(torch.tensor(x), size=(4, 6, 6), mode="trilinear")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    found = run(
        lambda t: topi.nn.upsampling3d(t, 2, 1, 2, "NDHWC", coordinate_transformation_mode="asymmetric"),
        x.transpose(0, 2, 3, 4, 1),
    )
    expected = F.interpolate(torch.tensor(x), size=(4, 3, 4), mode="nearest").numpy()
    np.testing.assert_array_equal(found.transpose(0, 4, 1, 2, 3), expected)


def test_blocks_of_channels_and_a_given_shape():
    x = array(1, 1, 2, 3, 4)
    found = run(lambda t: topi.nn.upsampling(t, 2, 2, "NCHW4c"), x)
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(2, 3))
    x = array(1, 2, 2, 3)
    found = run(lambda t: topi.nn.upsampling(t, 2, 2, output_shape=[1, 2, 4, 6]), x)
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(2, 3))


def test_an_unknown_batch():
    x = array(2, 2, 2, 3)
    found = run(lambda t: topi.nn.upsampling(t, 2, 2), x, shapes={0: ("n", 2, 2, 3)})
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(2, 3))


def test_refusals():
    with pytest.raises(InvalidValue, match=r"topi.nn.upsampling: expected the layout NCHW or NHWC, found 'HWCN'"):
        topi.nn.upsampling(te.placeholder((1, 2, 3, 4)), 2, 2, "HWCN")
    with pytest.raises(InvalidValue, match=r"expected scales above 0, found \[2, 0, 1\]"):
        topi.nn.upsampling3d(te.placeholder((1, 2, 3, 4, 5)), 2, 0, 1)
