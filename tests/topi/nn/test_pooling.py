"""Pooling computes what PyTorch computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(16)
F = torch.nn.functional
POOLS = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}
ADAPTIVE = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}
EXTENTS = (7, 6, 5)


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def both(pads):
    return (*pads, *pads)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_max(dim, ceil_mode):
    x = array(2, 3, *EXTENTS[:dim])
    kernel, stride, pad, dilation = (3, 3, 2)[:dim], (2, 3, 1)[:dim], (1, 0, 1)[:dim], (2, 1, 1)[:dim]
    found = run(lambda t: POOLS[dim](t, kernel, stride, dilation, both(pad), "max", ceil_mode), x)
    expected = getattr(F, f"max_pool{dim}d")(torch.tensor(x), kernel, stride, pad, dilation, ceil_mode)
    np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_mean(dim, ceil_mode, count_include_pad):
    x = array(2, 3, *EXTENTS[:dim])
    kernel, stride, pad = (3, 3, 2)[:dim], (2, 3, 1)[:dim], (1, 0, 1)[:dim]
    found = run(
        lambda t: POOLS[dim](
            t, kernel, stride, (1,) * dim, both(pad), "avg", ceil_mode, count_include_pad=count_include_pad
        ),
        x,
    )
    options = (kernel, stride, pad, ceil_mode, count_include_pad)
    expected = getattr(F, f"avg_pool{dim}d")(torch.tensor(x), *options)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def brute_mean(x, kernel, stride, dilation, head, tail, count_include_pad):
    n = x.shape[-1]
    out = []
    for begin in range(-head, n + tail - (kernel - 1) * dilation, stride):
        places = [begin + i * dilation for i in range(kernel)]
        inside = [p for p in places if 0 <= p < n]
        out.append(x[..., inside].sum(-1) / (len(places) if count_include_pad else max(len(inside), 1)))
    return np.stack(out, -1)


@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "head", "tail"),
    [(2, 1, 2, 1, 1), (3, 2, 3, 4, 2), (2, 3, 4, 0, 5), (1, 1, 1, 2, 0)],
)
def test_mean_of_dilated_windows_and_uneven_padding(kernel, stride, dilation, head, tail, count_include_pad):
    x = array(2, 9)
    found = run(
        lambda t: topi.nn.pool1d(
            t, kernel, stride, dilation, (head, tail), "avg", layout="NW", count_include_pad=count_include_pad
        ),
        x,
    )
    expected = brute_mean(x, kernel, stride, dilation, head, tail, count_include_pad)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pool_type", ["max", "avg"])
def test_layouts(pool_type):
    x = array(2, 3, 6, 5)
    options = ((2, 3), (2, 1), (1, 1), (0, 1, 1, 0), pool_type)
    expected = run(lambda t: topi.nn.pool2d(t, *options), x)
    found = run(lambda t: topi.nn.pool2d(t, *options, layout="NHWC"), x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), expected)
    found = run(lambda t: topi.nn.pool2d(t, *options, layout="NCHW3c"), x.transpose(0, 2, 3, 1)[:, None])
    np.testing.assert_array_equal(found[:, 0].transpose(0, 3, 1, 2), expected)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int8"])
def test_dtypes(dtype):
    x = rng.integers(-60, 60, (1, 2, 6)).astype(dtype)
    largest, mean = run(lambda t: [topi.nn.pool1d(t, 2, 2, 1, (0, 0), kind) for kind in ("max", "avg")], x)
    np.testing.assert_array_equal(largest, x.reshape(1, 2, 3, 2).max(-1))
    pairs = x.reshape(1, 2, 3, 2).astype("float64").sum(-1) / 2
    if dtype != "int8":  # sums of bytes wrap
        np.testing.assert_array_equal(mean, (np.trunc(pairs) if "int" in dtype else pairs).astype(dtype))


def test_padding_of_the_smallest_values_does_not_count():
    x = np.full((1, 1, 2), -np.inf, "float32")
    x[0, 0, 0] = -1e38
    found = run(lambda t: topi.nn.pool1d(t, 2, 2, 1, (1, 1), "max"), x)
    np.testing.assert_array_equal(found[0, 0, :1], np.float32([-1e38]))


def test_unknown_batch_and_extent():
    x = array(2, 3, 9, 6)
    found = run(
        lambda t: topi.nn.pool2d(t, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg", count_include_pad=False),
        x,
        shapes={0: ("n", 3, "h", 6)},
    )
    expected = F.avg_pool2d(torch.tensor(x), 3, 2, 1, count_include_pad=False)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_stages_are_named_as_legalized_modules_show_them():
    x = te.placeholder((1, 2, 6, 6), name="x")
    text = te.create_prim_func([x, topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")]).script()
    assert "for ax0, ax1, ax2, ax3, rv0, rv1 in T.grid(1, 2, 3, 3, 3, 3):" in text
    assert 'T.block_attr({"schedule_rule": "meta_schedule.pool_max"})' in text
    assert "pad_temp[v_ax0, v_ax1, v_ax2 * 2 + v_rv0, v_ax3 * 2 + v_rv1]" in text
    text = te.create_prim_func([x, topi.nn.global_pool(x, "avg")]).script()
    assert "for ax0, ax1, ax2, ax3, rv0, rv1 in T.grid(1, 2, 1, 1, 6, 6):" in text
    assert (
        "adaptive_pool_avg[v_ax0, v_ax1, v_ax2, v_ax3] = adaptive_pool_sum[v_ax0, v_ax1, v_ax2, v_ax3] / T.float32(36.0)"
        in text
    )


@pytest.mark.parametrize("pool_type", ["max", "avg"])
@pytest.mark.parametrize("out", [(1, 1, 1), (7, 6, 5), (3, 4, 2), (10, 9, 1)], ids=str)
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_adaptive(dim, out, pool_type):
    x = array(2, 2, *EXTENTS[:dim])
    found = run(lambda t: ADAPTIVE[dim](t, out[:dim], pool_type), x)
    expected = getattr(F, f"adaptive_{pool_type}_pool{dim}d")(torch.tensor(x), out[:dim])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_adaptive_in_another_layout_and_of_unknown_extents():
    x = array(2, 7, 5, 3)
    found = run(lambda t: topi.nn.adaptive_pool(t, (3, 2), "avg", "NHWC"), x, shapes={0: ("n", "h", "w", 3)})
    expected = F.adaptive_avg_pool2d(torch.tensor(x.transpose(0, 3, 1, 2)), (3, 2)).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_global(dtype):
    x = array(2, 3, 4, 5, dtype=dtype)
    largest, mean = run(lambda t: [topi.nn.global_pool(t, "max"), topi.nn.global_pool(t, "avg")], x)
    np.testing.assert_array_equal(largest, x.max((2, 3), keepdims=True))
    np.testing.assert_allclose(mean, x.astype("float64").mean((2, 3), keepdims=True), rtol=5e-3, atol=5e-3)


def pool(x=(1, 2, 4, 4), kernel=2, stride=1, dilation=1, padding=(0, 0, 0, 0), pool_type="max", layout="NCHW"):
    return topi.nn.pool2d(te.placeholder(x), kernel, stride, dilation, padding, pool_type, layout=layout)


@pytest.mark.parametrize(
    ("error", "arguments", "message"),
    [
        (InvalidValue, {"pool_type": "sum"}, 'pool2d: expected the pool type "max" or "avg", found \'sum\''),
        (InvalidValue, {"layout": "NCW"}, "pool2d: expected a layout with each of H, W once and whole, found 'NCW'"),
        (InvalidValue, {"layout": "NCHW4w"}, "once and whole, found 'NCHW4w'"),
        (
            ShapeMismatch,
            {"x": (2, 4, 4)},
            r"expected data in the layout NCHW of 4 dimensions, found the shape \(2, 4, 4\)",
        ),
        (ShapeMismatch, {"kernel": (5, 2)}, "pool2d: a window of 5 does not fit into 4 elements padded by 0 and 0"),
        (InvalidValue, {"kernel": (2, 2, 2)}, "pool2d: expected one kernel extent or 2, found 3"),
        (InvalidValue, {"padding": (1, 1)}, "pool2d: expected 4 paddings, found 2"),
    ],
)
def test_refusals(error, arguments, message):
    with pytest.raises(error, match=message):
        pool(**arguments)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2,), (3, 1), (0, 2, 2)])
def test_flatten(shape):
    x = array(*shape)
    np.testing.assert_array_equal(run(topi.nn.flatten, x), x.reshape(shape[0], int(np.prod(shape[1:]))))


def test_flatten_of_an_unknown_batch_and_of_a_scalar():
    x = array(4, 2, 3)
    np.testing.assert_array_equal(run(topi.nn.flatten, x, shapes={0: ("n", 2, 3)}), x.reshape(4, 6))
    with pytest.raises(ShapeMismatch, match=r"topi.nn.flatten: expected data of at least one dimension"):
        topi.nn.flatten(te.placeholder(()))
