"""Losses, local normalization, correlation, deformed windows, buffers and simulated quantization, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch

rng = np.random.default_rng(26)
F = torch.nn.functional


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3), (2, 5, 2, 2)])
def test_nll_loss(shape, reduction):
    predictions, weights = array(*shape), np.abs(array(5))
    targets = rng.integers(0, 5, shape[:1] * (len(shape) > 1) + shape[2:])
    found = run(lambda p, t, w: topi.nn.nll_loss(p, t, w, reduction, 3), predictions, np.asarray(targets), weights)
    expected = F.nll_loss(
        torch.tensor(predictions), torch.tensor(targets), torch.tensor(weights), ignore_index=3, reduction=reduction
    )
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)


def test_nll_loss_of_a_target_that_is_ignored_and_no_class():
    predictions, weights, targets = array(3, 4), np.ones(4, "float32"), np.array([1, -100, 2], "int32")
    found = run(lambda p, t, w: topi.nn.nll_loss(p, t, w, "none", -100), predictions, targets, weights)
    np.testing.assert_array_equal(found, [-predictions[0, 1], 0, -predictions[2, 2]])


def test_nll_loss_refusals():
    p, t, w = te.placeholder((4, 5)), te.placeholder((4,), "int64"), te.placeholder((5,))
    with pytest.raises(InvalidValue, match='"none", "sum" or "mean", found \'max\''):
        topi.nn.nll_loss(p, t, w, "max", 0)
    with pytest.raises(TypeMismatch, match="expected targets of a signed integer dtype, found float32"):
        topi.nn.nll_loss(p, te.placeholder((4,)), w, "sum", 0)
    with pytest.raises(ShapeMismatch, match=r"need targets of shape \(4,\) and 5 weights, found \(3,\) and 5"):
        topi.nn.nll_loss(p, te.placeholder((3,), "int64"), w, "sum", 0)


@pytest.mark.parametrize(
    ("axis", "size", "dtype"), [(1, 1, "float32"), (3, 3, "float32"), (1, 5, "float32"), (3, 3, "float64")]
)
def test_lrn(axis, size, dtype):
    x = array(2, 4, 3, 5, dtype=dtype)
    found = run(lambda t: topi.nn.lrn(t, size, axis, 0.1, 0.6, 1.5), x)
    moved = torch.tensor(np.moveaxis(x, axis, 1).astype("float64"))
    expected = np.moveaxis(F.local_response_norm(moved, size, 0.1, 0.6, 1.5).numpy(), 1, axis)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_lrn_refusals():
    with pytest.raises(InvalidValue, match="expected an odd window size, found 4"):
        topi.nn.lrn(te.placeholder((1, 2, 3, 4)), 4)
    with pytest.raises(InvalidValue, match="expected the axis 1 or 3, found 2"):
        topi.nn.lrn(te.placeholder((1, 2, 3, 4)), 3, 2)
    with pytest.raises(TypeMismatch, match="expected data of a float dtype, found int32"):
        topi.nn.lrn(te.placeholder((1, 2, 3, 4), "int32"), 3)


def test_scale_and_shift():
    x, scale, shift = array(2, 4, 3, 2), array(4), array(4)
    expected = x * scale[:, None, None] + shift[:, None, None]
    np.testing.assert_allclose(run(topi.nn.scale_shift_nchw, x, scale, shift), expected, rtol=1e-5, atol=1e-6)
    found = run(topi.nn.scale_shift_nhwc, x.transpose(0, 2, 3, 1), scale, shift, shapes={0: ("n", 3, 2, 4)})
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected, rtol=1e-5, atol=1e-6)
    blocks = x.reshape(2, 2, 2, 3, 2).transpose(0, 1, 3, 4, 2)
    found = run(topi.nn.scale_shift_nchwc, blocks, scale.reshape(2, 2), shift.reshape(2, 2))
    np.testing.assert_allclose(found.transpose(0, 1, 4, 2, 3).reshape(x.shape), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeMismatch, match=r"expected Scale of shape \(4,\), found \(3,\)"):
        topi.nn.scale_shift_nchw(te.placeholder((2, 4, 3, 2)), te.placeholder((3,)), te.placeholder((4,)))


def brute_correlation(a, b, kernel, most, stride1, stride2, pad, multiply):
    a, b = (np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))).astype("float64") for x in (a, b))
    radius, border = most // stride2, most + (kernel - 1) // 2
    steps = [d * stride2 for d in range(-radius, radius + 1)]
    rows, columns = (-(-(e - 2 * border) // stride1) for e in a.shape[2:])
    out = np.zeros((a.shape[0], len(steps) ** 2, rows, columns))
    for q, (dy, dx) in enumerate((dy, dx) for dy in steps for dx in steps):
        for i, j in np.ndindex(rows, columns):
            y, x = i * stride1 + most, j * stride1 + most
            one = a[:, :, y : y + kernel, x : x + kernel]
            two = b[:, :, y + dy : y + dy + kernel, x + dx : x + dx + kernel]
            out[:, q, i, j] = (one * two if multiply else np.abs(one - two)).mean((1, 2, 3))
    return out


@pytest.mark.parametrize(
    ("options", "multiply"), [((1, 2, 1, 1, 2), True), ((3, 2, 1, 2, 3), True), ((1, 3, 2, 1, 3), False)]
)
def test_correlation(options, multiply):
    a, b = array(2, 3, 6, 7), array(2, 3, 6, 7)
    found = run(lambda a, b: topi.nn.correlation_nchw(a, b, *options, multiply), a, b)
    np.testing.assert_allclose(found, brute_correlation(a, b, *options, multiply), rtol=1e-4, atol=1e-5)


def test_correlation_refusals():
    a = te.placeholder((1, 2, 6, 6))
    with pytest.raises(ShapeMismatch, match=r"of one shape, found \(1, 2, 6, 6\) and \(1, 2, 6, 5\)"):
        topi.nn.correlation_nchw(a, te.placeholder((1, 2, 6, 5)), 1, 1, 1, 1, 0, True)
    with pytest.raises(InvalidValue, match="expected an odd kernel size, found 2"):
        topi.nn.correlation_nchw(a, a, 2, 1, 1, 1, 0, True)
    with pytest.raises(ShapeMismatch, match="too few for a displacement of 4"):
        topi.nn.correlation_nchw(a, a, 1, 4, 1, 1, 0, True)


def brute_deformable(x, offset, w, stride, pad, dilation, groups):
    n, channels, height, width = x.shape
    outputs, _, kh, kw = w.shape
    rows, columns = offset.shape[2:]
    out = np.zeros((n, outputs, rows, columns))
    for b, c, r, s, y, z in np.ndindex(n, channels, kh, kw, rows, columns):
        index = c // (channels // groups) * kh * kw * 2 + (r * kw + s) * 2
        h = y * stride - pad + r * dilation + offset[b, index, y, z]
        v = z * stride - pad + s * dilation + offset[b, index + 1, y, z]
        if h < 0 or v < 0 or h >= height or v >= width:
            continue
        i, j = int(h), int(v)
        p, q = h - i, v - j
        below, right = min(i + 1, height - 1), min(j + 1, width - 1)
        image = x[b, c].astype("float64")
        value = (1 - p) * ((1 - q) * image[i, j] + q * image[i, right])
        value += p * ((1 - q) * image[below, j] + q * image[below, right])
        out[b, :, y, z] += value * w[:, c, r, s]
    return out


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "groups", "layout"),
    [(1, 1, 1, 1, "NHWC"), (2, 1, 1, 2, "NCHW"), (1, 2, 2, 2, "NCHW"), (2, 1, 1, 2, "NHWC")],
)
def test_deformable(stride, pad, dilation, groups, layout):
    x, w = array(1, 4, 5, 6), array(2, 4, 3, 3)
    out = [(e + 2 * pad - 2 * dilation - 1) // stride + 1 for e in (5, 6)]
    offset = (array(1, groups * 18, *out) * 1.5).astype("float32")
    expected = brute_deformable(x, offset, w, stride, pad, dilation, groups)
    options = (stride, pad, dilation, groups, 1, None)
    if layout == "NCHW":
        found = run(lambda *t: topi.nn.deformable_conv2d_nchw(*t, *options), x, offset, w)
    else:
        moved = x.transpose(0, 2, 3, 1), offset.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
        found = run(lambda *t: topi.nn.deformable_conv2d_nhwc(*t, *options), *moved).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_deformable_refusals():
    x, offset, w = te.placeholder((1, 4, 5, 5)), te.placeholder((1, 18, 5, 5)), te.placeholder((2, 4, 3, 3))
    with pytest.raises(InvalidValue, match="expected 1 group, found 2"):
        topi.nn.deformable_conv2d_nchw(x, offset, w, 1, 1, 1, 1, 2, None)
    with pytest.raises(ShapeMismatch, match="expected 36 offsets"):
        topi.nn.deformable_conv2d_nchw(x, offset, w, 1, 1, 1, 2, 1, None)
    with pytest.raises(ShapeMismatch, match="divide into 3 deformable groups"):
        topi.nn.deformable_conv2d_nchw(x, offset, w, 1, 1, 1, 3, 1, None)


@pytest.mark.parametrize(
    ("data", "buffer", "axis"),
    [((2,), (5,), 0), ((3, 2), (3, 2), 1), ((2, 1, 3), (2, 4, 3), 1), ((1, 1, 1, 1, 2), (1, 1, 1, 1, 3), -1)],
)
def test_fifo_buffer(data, buffer, axis):
    x, old = array(*data), array(*buffer)
    joined = np.concatenate([old, x], axis)
    expected = np.take(joined, range(data[axis], joined.shape[axis]), axis)
    np.testing.assert_array_equal(run(lambda d, b: topi.nn.fifo_buffer(d, b, axis), x, old), expected)


def test_fifo_buffer_refusals():
    with pytest.raises(ShapeMismatch, match=r"at most as long on axis 0, found \(3, 2\)"):
        topi.nn.fifo_buffer(te.placeholder((3, 2)), te.placeholder((2, 2)), 0)
    with pytest.raises(InvalidValue, match=r"expected axis in \[-1, 1\), found 1"):
        topi.nn.fifo_buffer(te.placeholder((3,)), te.placeholder((3,)), 1)


RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("dtype", ["disable", "int8", "uint8", "int32"])
def test_simulated_quantization(dtype, channels, axis):
    x = (array(3, 4) * 100).astype("float32")
    count = x.shape[axis] if channels else 1
    scale, zero = (np.abs(array(count)) + 0.1).astype("float32"), rng.integers(-5, 5, count).astype("int32")
    wide = [a.reshape(-1, 1) if axis == 0 and channels else a for a in (scale, zero)]
    code = np.asarray(topi.nn.SQNN_DTYPE_TO_CODE[dtype], "int32")
    quantized = run(lambda d, c, s, z: topi.nn.simulated_quantize(d, c(), s, z, axis), x, code, scale, zero)
    if dtype == "disable":
        expected = x
    else:
        expected = np.clip(np.round(x / wide[0]) + wide[1], *RANGES[dtype])
    np.testing.assert_allclose(quantized, expected, rtol=1e-6)
    back = run(lambda d, c, s, z: topi.nn.simulated_dequantize(d, c(), s, z, axis), quantized, code, scale, zero)
    expected = x if dtype == "disable" else (expected - wide[1]) * wide[0]
    np.testing.assert_allclose(back, expected, rtol=1e-5, atol=1e-4)


def test_simulated_quantization_needs_a_scale_and_a_zero_point():
    with pytest.raises(InvalidValue, match=r"topi.nn.simulated_quantize: expected a scale and a zero point"):
        topi.nn.simulated_quantize(te.placeholder((2, 3)), 1)
