"""Convolutions in blocks of channels, and by Winograd's algorithm, compute what plain ones compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(23)


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def reference(x, w, stride=1, padding=0, dilation=1, groups=1):
    x, w = torch.tensor(x.astype("float64")), torch.tensor(w.astype("float64"))
    return torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups).numpy()


def blocked(x, block):
    n, c, h, w = x.shape
    return x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)


def unblocked(x):
    n, chunk, h, w, block = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, chunk * block, h, w)


def packed(w, ic_block, oc_block):
    o, i, h, k = w.shape
    return w.reshape(o // oc_block, oc_block, i // ic_block, ic_block, h, k).transpose(0, 2, 4, 5, 3, 1)


@pytest.mark.parametrize(
    ("groups", "stride", "padding", "dilation"), [(1, 1, 0, 1), (1, (2, 1), 1, (1, 2)), (2, 2, (1, 0), 1)]
)
def test_blocks_of_channels(groups, stride, padding, dilation):
    x, w = array(2, 8, 6, 7), array(6, 8 // groups, 3, 3)
    found = run(
        lambda x, w: topi.nn.conv2d_NCHWc(x, w, stride, padding, dilation, "NCHW4c", "NCHW3c"),
        blocked(x, 4),
        packed(w, 4, 3),
    )
    np.testing.assert_allclose(
        unblocked(found), reference(x, w, stride, padding, dilation, groups), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_blocks_of_bytes(groups):
    x = rng.integers(0, 256, (1, 16, 5, 5)).astype("uint8")
    w = rng.integers(-128, 128, (8, 16 // groups, 3, 3)).astype("int8")
    bytes_last = packed(w, 8, 4).reshape(2, 2 // groups, 3, 3, 2, 4, 4).transpose(0, 1, 2, 3, 4, 6, 5)
    found = run(lambda x, w: topi.nn.conv2d_NCHWc_int8(x, w, 1, 1, 1, "NCHW8c", "NCHW4c"), blocked(x, 8), bytes_last)
    np.testing.assert_array_equal(unblocked(found), reference(x, w, 1, 1, 1, groups).astype("int32"))


@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_in_blocks(multiplier):
    x, w = array(1, 8, 5, 6), array(8 * multiplier, 1, 3, 3)
    found = run(
        lambda x, w: topi.nn.depthwise_conv2d_NCHWc(x, w, (1, 2), 1, 1, "NCHW4c", "NCHW4c"),
        blocked(x, 4),
        packed(w, 1, 4),
    )
    np.testing.assert_allclose(unblocked(found), reference(x, w, (1, 2), 1, 1, 8), rtol=1e-4, atol=1e-4)


def test_unpacking():
    x = array(2, 6, 3, 4)
    found = run(lambda t: topi.nn.unpack_NCHWc_to_nchw(t, "float64"), blocked(x, 3), shapes={0: ("n", 2, 3, 4, 3)})
    np.testing.assert_array_equal(found, x.astype("float64"))


def test_blocks_that_do_not_fit_are_refused():
    data = te.placeholder((1, 3, 5, 5, 4))
    with pytest.raises(ShapeMismatch, match=r"conv2d_NCHWc: 12 channels of the data .* are no multiple of the 8"):
        topi.nn.conv2d_NCHWc(data, te.placeholder((2, 2, 3, 3, 4, 4)), 1, 0, 1, "NCHW4c", "NCHW4c")
    with pytest.raises(ShapeMismatch, match=r"depthwise_conv2d_NCHWc: 16 output channels .* no multiple of the 12"):
        topi.nn.depthwise_conv2d_NCHWc(data, te.placeholder((4, 1, 3, 3, 1, 4)), 1, 0, 1, "NCHW4c", "NCHW4c")
    with pytest.raises(ShapeMismatch, match="expected kernel of 7 dimensions"):
        topi.nn.conv2d_NCHWc_int8(data, te.placeholder((4, 1, 3, 3, 1, 4)), 1, 0, 1, "NCHW4c", "NCHW4c")


@pytest.mark.parametrize(("m", "r"), [(2, 3), (4, 3), (6, 3), (3, 5), (8, 7), (2, 7)])
def test_the_matrices_compute_a_convolution(m, r):
    a, b, g = run(lambda *_: topi.nn.winograd_transform_matrices(m, r, "float64"))
    data, kernel = rng.standard_normal(m + r - 1), rng.standard_normal(r)
    found = a.T @ ((g @ kernel) * (b.T @ data))
    np.testing.assert_allclose(found, np.correlate(data, kernel, "valid"), rtol=1e-6, atol=1e-6)


def test_the_matrices_for_two_by_three_are_those_of_the_paper():
    a, b, g = run(lambda *_: topi.nn.winograd_transform_matrices(2, 3, "float32"))
    np.testing.assert_array_equal(np.abs(a.T), [[1, 1, 1, 0], [0, 1, 1, 1]])
    np.testing.assert_array_equal(np.abs(g), [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 1]])
    np.testing.assert_array_equal(np.abs(b.T), [[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]])


@pytest.mark.parametrize(
    ("extents", "padding", "layout", "pre_computed"),
    [
        ((8, 8), 1, "NCHW", False),
        ((8, 8), 1, "NHWC", True),
        ((5, 9), 0, "NHWC", False),
        ((4, 7), 2, "NCHW", True),
        ((4, 7), 2, "NHWC", False),
    ],
)
def test_winograd(extents, padding, layout, pre_computed):
    x, w = array(2, 3, *extents), array(4, 3, 3, 3)
    expected = reference(x, w, 1, padding)
    if pre_computed:
        kernel = run(lambda t: topi.nn.conv2d_winograd_weight_transform(t, 4), w)
    else:
        kernel = w if layout == "NCHW" else w.transpose(2, 3, 1, 0)
    name = f"conv2d_winograd_{layout.lower()}" + ("_without_weight_transform" if pre_computed else "")
    data = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    if pre_computed and layout == "NCHW":
        kernel = kernel.transpose(0, 1, 3, 2)
    found = run(lambda x, w: getattr(topi.nn, name)(x, w, 1, padding, 1, "float32"), data, kernel)
    found = found if layout == "NCHW" else found.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_winograd_of_an_unknown_batch():
    x, w = array(3, 2, 8, 8), array(4, 2, 3, 3)
    found = run(lambda x, w: topi.nn.conv2d_winograd_nchw(x, w, 1, 1, 1, "float32"), x, w, shapes={0: ("n", 2, 8, 8)})
    np.testing.assert_allclose(found, reference(x, w, 1, 1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("depth", [3, 1])
def test_the_transform_of_kernels_of_three_dimensions(depth):
    w = array(2, 3, depth, 3, 3)
    _, _, g = run(lambda *_: topi.nn.winograd_transform_matrices(2, 3, "float32"))
    found = run(lambda t: topi.nn.conv3d_winograd_weight_transform(t, 2), w)
    if depth == 3:
        expected = np.einsum("ad,bh,cw,oidhw->abcoi", g, g, g, w)
    else:
        expected = np.einsum("bh,cw,oidhw->bcdoi", g, g, w)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("error", "make", "message"),
    [
        (
            InvalidValue,
            lambda x, w: topi.nn.winograd_transform_matrices(1, 3, "float32"),
            "expected a tile size from 2 to 8, found 1",
        ),
        (
            InvalidValue,
            lambda x, w: topi.nn.winograd_transform_matrices(2, 2, "float32"),
            "expected a kernel size from 3 to 7, found 2",
        ),
        (
            InvalidValue,
            lambda x, w: topi.nn.conv2d_winograd_nchw(x, w, 2, 1, 1, "float32"),
            r"expected a stride of 1, found \[2, 2\]",
        ),
        (
            InvalidValue,
            lambda x, w: topi.nn.conv2d_winograd_nchw(x, w, 1, 1, (1, 2), "float32"),
            r"expected a dilation of 1, found \[1, 2\]",
        ),
        (
            ShapeMismatch,
            lambda x, w: topi.nn.conv2d_winograd_nhwc(x, w, 1, 1, 1, "float32"),
            r"expected a weight of 3 x 3, found the shape \(4, 2, 3, 3\)",
        ),
        (
            ShapeMismatch,
            lambda x, w: topi.nn.conv2d_winograd_weight_transform(te.placeholder((4, 2, 3, 5)), 4),
            "expected a square kernel",
        ),
    ],
)
def test_refusals(error, make, message):
    with pytest.raises(error, match=message):
        make(te.placeholder((1, 2, 8, 8)), te.placeholder((4, 2, 3, 3)))
