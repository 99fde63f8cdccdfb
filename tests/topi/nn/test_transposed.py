"""Transposed convolutions compute what PyTorch computes; dilation puts values between elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(22)
F = torch.nn.functional
PLAIN = {1: topi.nn.conv1d_transpose_ncw, 2: topi.nn.conv2d_transpose_nchw, 3: topi.nn.conv3d_transpose_ncdhw}
GROUPS = {
    1: topi.nn.group_conv1d_transpose_ncw,
    2: topi.nn.group_conv2d_transpose_nchw,
    3: topi.nn.group_conv3d_transpose_ncdhw,
}
EXTENTS, WINDOW = (4, 3, 2), (3, 2, 3)


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def reference(x, w, stride, padding, extra, groups=1):
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.ndim - 3]
    arguments = (torch.tensor(a.astype("float64")) for a in (x, w))
    return function(*arguments, None, stride, padding, extra, groups).numpy()


@pytest.mark.parametrize(
    ("stride", "padding", "extra"),
    [((1, 1, 1), (0, 0, 0), (0, 0, 0)), ((2, 3, 2), (1, 0, 1), (1, 2, 0)), ((1, 2, 3), (1, 1, 2), (0, 1, 1))],
    ids=str,
)
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_strides_padding_and_output_padding(dim, stride, padding, extra):
    x, w = array(2, 3, *EXTENTS[:dim]), array(3, 2, *WINDOW[:dim])
    sizes = stride[:dim], padding[:dim], extra[:dim]
    found = run(lambda x, w: PLAIN[dim](x, w, sizes[0], sizes[1], "float32", sizes[2]), x, w)
    np.testing.assert_allclose(found, reference(x, w, *sizes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_groups(dim, groups):
    x, w = array(1, 4, *EXTENTS[:dim]), array(4, 2, *WINDOW[:dim])
    sizes = (2,) * dim, (1,) * dim, (1,) * dim
    found = run(lambda x, w: GROUPS[dim](x, w, sizes[0], sizes[1], None, sizes[2], groups), x, w)
    np.testing.assert_allclose(found, reference(x, w, *sizes, groups), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim", [2, 3])
def test_the_plain_convolution_behind_it(dim):
    x, w = array(1, 3, *EXTENTS[:dim]), array(3, 2, *WINDOW[:dim])
    sizes = (2, 1, 2)[:dim], (1, 0, 1)[:dim], None, (1, 0, 1)[:dim]
    preprocess, declare = (
        (topi.nn.conv2d_transpose_nchw_preprocess, topi.nn.declaration_conv2d_transpose_impl)
        if dim == 2
        else (topi.nn.conv3d_transpose_ncdhw_preprocess, topi.nn.declaration_conv3d_transpose_impl)
    )
    expected = reference(x, w, sizes[0], sizes[1], sizes[3])
    np.testing.assert_allclose(run(lambda x, w: declare(x, w, *sizes), x, w), expected, rtol=1e-4, atol=1e-4)
    padded, turned = run(lambda x, w: list(preprocess(x, w, *sizes)), x, w)
    found = (F.conv2d if dim == 2 else F.conv3d)(torch.from_numpy(padded), torch.from_numpy(turned)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_uneven_padding_and_a_wider_dtype():
    x, w = array(1, 2, 4, 4, dtype="float16"), array(2, 3, 3, 3, dtype="float16")
    found = run(lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (0, 1, 1, 0), "float32", (0, 0)), x, w)
    full = reference(x, w, 2, 0, 0)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, full[:, :, 0:-1, 1:], rtol=1e-3, atol=1e-3)


def test_an_unknown_batch_and_extent():
    x, w = array(2, 3, 5), array(3, 2, 3)
    found = run(lambda x, w: topi.nn.conv1d_transpose_ncw(x, w, 2, 1, None, 1), x, w, shapes={0: ("n", 3, "w")})
    np.testing.assert_allclose(found, reference(x, w, 2, 1, 1), rtol=1e-4, atol=1e-4)


def test_stages_and_axes_are_named():
    x, w = te.placeholder((1, 2, 4, 4), name="x"), te.placeholder((2, 3, 3, 3), name="w")
    text = te.create_prim_func(
        [x, w, topi.nn.group_conv2d_transpose_nchw(x, w, (2, 2), (1, 1), None, (0, 0), 1)]
    ).script()
    stages = [line.split('"')[1] for line in text.splitlines() if "with T.block" in line and "root" not in line]
    assert stages == ["data_dilate", "data_pad", "kernel_transform", "compute"]
    assert "for o, i, h, w_1 in T.grid(3, 2, 3, 3):" in text or "for o, i, h, w in T.grid(3, 2, 3, 3):" in text
    assert "dc, dh, dw in T.grid(1, 3, 7, 7, 2, 3, 3):" in text


def test_the_parts_of_it():
    x, w = array(1, 2, 3, 3), array(2, 4, 3, 2)
    data, kernel = run(lambda x, w: topi.nn.conv2d_transpose_nchw_preprocess(x, w, (2, 1), (1, 0), None, (1, 0)), x, w)
    spread = np.zeros((1, 2, 5, 3), "float32")
    spread[:, :, ::2] = x
    np.testing.assert_array_equal(data, np.pad(spread, ((0, 0), (0, 0), (1, 2), (1, 1))))
    np.testing.assert_array_equal(kernel, w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])


@pytest.mark.parametrize(
    ("error", "x", "w", "options", "message"),
    [
        (
            ShapeMismatch,
            (1, 3, 4, 4),
            (2, 3, 3, 3),
            (2, 1, None, 0, 1),
            r"shape \(1, 3, 4, 4\) has 3 channels, the kernel of shape \(2, 3, 3, 3\) takes 2",
        ),
        (ShapeMismatch, (1, 3, 4, 4), (3, 3, 3, 3), (2, 1, None, 0, 2), "3 input channels do not divide into 2 groups"),
        (
            InvalidValue,
            (1, 2, 4, 4),
            (2, 3, 3, 3),
            (2, 1, None, 2, 1),
            "expected output padding below the stride 2, found 2",
        ),
        (
            ShapeMismatch,
            (1, 2, 4),
            (2, 3, 3, 3),
            (2, 1, None, 0, 1),
            "conv2d_transpose_nchw: expected data of 4 dimensions",
        ),
    ],
)
def test_refusals(error, x, w, options, message):
    with pytest.raises(error, match=message):
        topi.nn.group_conv2d_transpose_nchw(te.placeholder(x), te.placeholder(w), *options)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (1, 4)])
def test_dilate(strides):
    x = array(3, 2)
    expected = np.full([(e - 1) * s + 1 for e, s in zip(x.shape, strides, strict=True)], 0.5, "float32")
    expected[:: strides[0], :: strides[1]] = x
    np.testing.assert_array_equal(run(lambda t: topi.nn.dilate(t, strides, 0.5), x), expected)


def test_dilate_nothing_and_a_wrong_number_of_strides():
    assert run(lambda t: topi.nn.dilate(t, (2, 2)), array(0, 3)).shape == (0, 5)
    with pytest.raises(
        InvalidValue, match=r"topi.nn.dilate: expected a stride for each of the 2 dimensions .* found 1"
    ):
        topi.nn.dilate(te.placeholder((2, 3)), (2,))
