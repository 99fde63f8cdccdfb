"""Rearrangements of channels, space and batch are those of PyTorch and of NumPy's reshape and transpose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(24)


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "factor"), [((2, 12, 3, 2), 2), ((9, 2, 2), 3), ((2, 2, 4, 1, 3), 2), ((1, 3, 2, 2), 1)]
)
def test_pixel_shuffle(shape, factor):
    x = array(*shape)
    found = run(lambda t: topi.nn.pixel_shuffle(t, factor), x)
    np.testing.assert_array_equal(found, torch.nn.functional.pixel_shuffle(torch.tensor(x), factor).numpy())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["DCR", "CDR"])
def test_depth_to_space(mode, layout):
    x = array(2, 12, 3, 2)
    if mode == "CDR":
        expected = torch.nn.functional.pixel_shuffle(torch.tensor(x), 2).numpy()
    else:
        expected = x.reshape(2, 2, 2, 3, 3, 2).transpose(0, 3, 4, 1, 5, 2).reshape(2, 3, 6, 4)
    if layout == "NCHW":
        np.testing.assert_array_equal(run(lambda t: topi.nn.depth_to_space(t, 2, layout, mode), x), expected)
    else:
        found = run(lambda t: topi.nn.depth_to_space(t, 2, layout, mode), x.transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(found, expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_space_to_depth_is_the_reverse(layout):
    x = array(2, 8, 3, 2) if layout == "NCHW" else array(2, 3, 2, 8)
    back = run(lambda t: topi.nn.space_to_depth(topi.nn.depth_to_space(t, 2, layout), 2, layout), x)
    np.testing.assert_array_equal(back, x)


def test_space_to_depth_of_an_unknown_batch():
    x = array(3, 2, 4, 6)
    found = run(lambda t: topi.nn.space_to_depth(t, 2), x, shapes={0: ("n", 2, 4, 6)})
    np.testing.assert_array_equal(found, x.reshape(3, 2, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(3, 8, 2, 3))


def brute_space_to_batch(x, block, pads, value):
    x = np.pad(x, [(0, 0), *pads, *[(0, 0)] * (x.ndim - 1 - len(block))], constant_values=value)
    out = []
    for place in np.ndindex(*block):
        out.append(x[(slice(None), *(slice(p, None, b) for p, b in zip(place, block, strict=True)))])
    return np.concatenate(out)


@pytest.mark.parametrize(
    ("shape", "block", "pads"),
    [((1, 4, 6), (2, 3), [(0, 0), (0, 0)]), ((2, 3, 4, 2), (2, 2), [(1, 0), (0, 2)]), ((2, 5, 2), (3,), [(0, 1)])],
)
def test_space_to_batch_and_back(shape, block, pads):
    x = array(*shape)
    before, after = zip(*pads, strict=True)
    expected = brute_space_to_batch(x, block, pads, 1.5)
    found = run(lambda t: topi.nn.space_to_batch_nd(t, block, before, after, 1.5), x)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(run(lambda t: topi.nn.batch_to_space_nd(t, block, before, after), found), x)


def test_space_to_batch_of_an_unknown_batch():
    x = array(3, 4, 4)
    found = run(lambda t: topi.nn.space_to_batch_nd(t, (2, 2), (0, 0), (0, 0)), x, shapes={0: ("n", 4, 4)})
    np.testing.assert_array_equal(found, brute_space_to_batch(x, (2, 2), [(0, 0), (0, 0)], 0))


def t(*shape):
    return te.placeholder(shape)


@pytest.mark.parametrize(
    ("error", "make", "message"),
    [
        (ShapeMismatch, lambda: topi.nn.pixel_shuffle(t(1, 6, 2, 2), 2), "the 6 channels .* are no multiple of 4"),
        (ShapeMismatch, lambda: topi.nn.pixel_shuffle(t(6, 2), 2), "expected data of at least 3 dimensions"),
        (InvalidValue, lambda: topi.nn.pixel_shuffle(t(1, 6, 2, 2), 0), "a factor of at least 1, found 0"),
        (InvalidValue, lambda: topi.nn.depth_to_space(t(1, 4, 2, 2), 2, "HWCN"), "'HWCN'"),
        (InvalidValue, lambda: topi.nn.depth_to_space(t(1, 4, 2, 2), 2, mode="RCD"), "'RCD'"),
        (ShapeMismatch, lambda: topi.nn.depth_to_space(t(1, 6, 2, 2), 2), "the 6 channels .* are no multiple of 4"),
        (
            ShapeMismatch,
            lambda: topi.nn.space_to_depth(t(1, 6, 3, 2), 2),
            "3 of the shape .* is no multiple of the block size 2",
        ),
        (
            ShapeMismatch,
            lambda: topi.nn.space_to_batch_nd(t(1, 5, 4), (2, 2), (0, 0), (0, 0)),
            "dimension 1, 5 after padding",
        ),
        (
            InvalidValue,
            lambda: topi.nn.space_to_batch_nd(t(1, 4, 4), (2, 2), (0,), (0, 0)),
            "expected pads for each of the 2 extents",
        ),
        (ShapeMismatch, lambda: topi.nn.batch_to_space_nd(t(3, 4, 4), (2, 2), (0, 0), (0, 0)), "is no multiple of 4"),
        (
            ShapeMismatch,
            lambda: topi.nn.batch_to_space_nd(t(4, 1, 4), (2, 2), (1, 0), (1, 0)),
            "cannot crop 1 and 1 from 2",
        ),
    ],
)
def test_refusals(error, make, message):
    with pytest.raises(error, match=message):
        make()
