"""Convolutions of two dimensions compute what PyTorch computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(15)
F = torch.nn.functional


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def reference(x, w, stride=1, padding=(0, 0, 0, 0), dilation=1, groups=1):
    top, left, bottom, right = padding
    padded = F.pad(torch.tensor(x.astype("float64")), (left, right, top, bottom))
    return F.conv2d(padded, torch.tensor(w.astype("float64")), None, stride, 0, dilation, groups).numpy()


def check(found, expected, limit=1e-4):
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "full"),
    [
        (1, 0, 1, (0, 0, 0, 0)),
        (2, 1, 1, (1, 1, 1, 1)),
        ((1, 3), (2, 0), (2, 1), (2, 0, 2, 0)),
        ([3, 2], [0, 1, 2, 3], 2, (0, 1, 2, 3)),
        (1, "VALID", 1, (0, 0, 0, 0)),
        (1, "SAME", 1, (1, 1, 1, 0)),
    ],
    ids=str,
)
def test_strides_padding_and_dilation(stride, padding, dilation, full):
    x, w = array(2, 3, 7, 6), array(4, 3, 3, 2)
    found = run(lambda x, w: topi.nn.conv2d_nchw(x, w, stride, padding, dilation), x, w)
    check(found, reference(x, w, stride, full, dilation))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups(groups):
    x, w = array(2, 4, 5, 5), array(8, 4 // groups, 3, 3)
    expected = reference(x, w, 1, (1, 1, 1, 1), 1, groups)
    check(run(lambda x, w: topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, groups), x, w), expected)
    found = run(
        lambda x, w: topi.nn.group_conv2d_nhwc(x, w, 1, 1, 1, groups), x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    )
    check(found.transpose(0, 3, 1, 2), expected)


def test_layouts():
    x, w = array(2, 3, 6, 5), array(4, 3, 3, 3)
    expected = reference(x, w, 2, (1, 1, 1, 1))
    x_nhwc, x_hwcn, w_hwio = x.transpose(0, 2, 3, 1), x.transpose(2, 3, 1, 0), w.transpose(2, 3, 1, 0)
    check(run(lambda x, w: topi.nn.conv2d_nhwc(x, w, 2, 1, 1), x_nhwc, w_hwio).transpose(0, 3, 1, 2), expected)
    check(run(lambda x, w: topi.nn.conv2d_hwcn(x, w, 2, 1, 1), x_hwcn, w_hwio).transpose(3, 2, 0, 1), expected)
    found = run(lambda x, w: topi.nn.conv2d(x, w, 2, 1, 1, "NHWC", "OHWI"), x_nhwc, w.transpose(0, 2, 3, 1))
    check(found.transpose(0, 3, 1, 2), expected)


@pytest.mark.parametrize(("dtype", "limit"), [("float16", 2e-2), (ml_dtypes.bfloat16, 2e-1), ("float64", 1e-9)])
def test_dtypes(dtype, limit):
    x, w = array(1, 2, 5, 5, dtype=dtype), array(3, 2, 3, 3, dtype=dtype)
    found = run(lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 0, 1), x, w)
    assert found.dtype == dtype
    check(found, reference(x, w), limit)


def test_integers_in_a_wider_dtype():
    x, w = (rng.integers(-128, 128, s).astype("int8") for s in ((1, 4, 5, 5), (2, 4, 3, 3)))
    found = run(lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1, "int32"), x, w)
    np.testing.assert_array_equal(found, reference(x, w, 1, (1, 1, 1, 1)).astype("int32"))


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (1, 2, 3, 3), (3, 1, 3, 9)])
def test_odd_shapes(shape):
    x, w = array(*shape), array(2, shape[1], 3, 3)
    check(run(lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 0, 1), x, w), reference(x, w))


def test_unknown_batch_and_extents():
    x, w = array(2, 3, 7, 6), array(4, 3, 3, 3)
    found = run(lambda x, w: topi.nn.conv2d_nchw(x, w, 2, 1, 1), x, w, shapes={0: ("n", 3, "h", "w")})
    check(found, reference(x, w, 2, (1, 1, 1, 1)))


def test_stages_and_axes_are_named_as_legalized_modules_show_them():
    x, w = te.placeholder((2, 3, 7, 6), name="x"), te.placeholder((4, 3, 3, 3), name="w")
    text = te.create_prim_func([x, w, topi.nn.conv2d_nchw(x, w, 2, 1, 1)]).script()
    assert "pad_temp = T.alloc_buffer((2, 3, 9, 8))" in text
    assert "for nn, ff, yy, xx, rc, ry, rx in T.grid(2, 4, 4, 3, 3, 3, 3):" in text
    assert "pad_temp[v_nn, v_rc, v_yy * 2 + v_ry, v_xx * 2 + v_rx] * w[v_ff, v_rc, v_ry, v_rx]" in text
    x, w = te.placeholder((2, 7, 6, 3), name="x"), te.placeholder((3, 3, 3, 4), name="w")
    text = te.create_prim_func([x, w, topi.nn.conv2d_nhwc(x, w, 1, 0, 1)]).script()
    assert "for nn, yy, xx, ff, ry, rx, rc in T.grid(2, 5, 4, 4, 3, 3, 3):" in text
    assert '"layout_free_buffers": [1]' in text


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), ((2, 1), "SAME", 1), (1, (0, 1, 2, 1), (1, 2))])
def test_depthwise(stride, padding, dilation, multiplier):
    x, w = array(2, 3, 6, 7), array(3, multiplier, 3, 3)
    full = {1: (1, 1, 1, 1), "SAME": (1, 1, 1, 1)}.get(padding, padding)
    expected = reference(x, w.reshape(-1, 1, 3, 3), stride, full, dilation, 3)
    check(run(lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, stride, padding, dilation), x, w), expected)
    found = run(
        lambda x, w: topi.nn.depthwise_conv2d_nhwc(x, w, stride, padding, dilation),
        x.transpose(0, 2, 3, 1),
        w.transpose(2, 3, 0, 1),
    )
    check(found.transpose(0, 3, 1, 2), expected)


def conv(x=(1, 4, 5, 5), w=(2, 4, 3, 3), stride=1, padding=0, dilation=1, groups=1, layout="NCHW", kernel_layout=""):
    return topi.nn.conv(te.placeholder(x), te.placeholder(w), stride, padding, dilation, groups, layout, kernel_layout)


@pytest.mark.parametrize(
    ("error", "arguments", "message"),
    [
        (
            ShapeMismatch,
            {"x": (1, 3, 5, 5)},
            r"data of shape \(1, 3, 5, 5\) has 3 channels, the filter of shape \(2, 4, 3, 3\) in 1 groups takes 4",
        ),
        (
            ShapeMismatch,
            {"x": (1, 4, 5)},
            r"expected inp in the layout NCHW of 4 dimensions, found the shape \(1, 4, 5\)",
        ),
        (ShapeMismatch, {"x": (1, 12, 5, 5), "groups": 3}, "2 output channels do not divide into 3 groups"),
        (ShapeMismatch, {"dilation": 4}, "a window of 9 does not fit into 5 elements padded by 0 and 0"),
        (InvalidValue, {"stride": (1, 2, 3)}, "topi.nn.conv: expected one stride or 2, found 3"),
        (InvalidValue, {"stride": 0}, "expected strides of at least 1, found 0"),
        (InvalidValue, {"padding": (1, 2, 3)}, "expected padding by 1, 2 or 4 numbers, found 3"),
        (InvalidValue, {"padding": "FULL"}, 'expected the padding "VALID" or "SAME", found \'FULL\''),
        (InvalidValue, {"groups": 0}, "expected at least 1 group, found 0"),
        (
            InvalidValue,
            {"layout": "NHW"},
            "expected a data_layout of N, C and one to three spatial dimensions, found 'NHW'",
        ),
        (
            InvalidValue,
            {"kernel_layout": "OIHH"},
            "expected a kernel_layout of O, I and one to three spatial dimensions",
        ),
    ],
)
def test_refusals(error, arguments, message):
    with pytest.raises(error, match=message):
        conv(**arguments)


def test_depthwise_refuses_other_channels():
    with pytest.raises(ShapeMismatch, match=r"depthwise_conv2d_nchw: the data of shape \(1, 3, 5, 5\) has 3 channels"):
        topi.nn.depthwise_conv2d_nchw(te.placeholder((1, 3, 5, 5)), te.placeholder((4, 1, 3, 3)), 1, 0, 1)
