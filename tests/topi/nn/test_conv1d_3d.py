"""Convolutions of one and of three dimensions compute what PyTorch computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(21)
F = torch.nn.functional


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def reference(x, w, *options):
    function = F.conv1d if x.ndim == 3 else F.conv3d
    return function(torch.tensor(x.astype("float64")), torch.tensor(w.astype("float64")), None, *options).numpy()


def check(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def last(x):
    """Channels last; of a kernel: the window first, then channels in and out."""
    return np.moveaxis(x, 1, -1)


def kernel_last(w):
    return np.moveaxis(w, (0, 1), (-1, -2))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), ((3,), [2], (2,))])
def test_conv1d(stride, padding, dilation, groups):
    x, w = array(2, 4, 9), array(6, 4 // groups, 3)
    expected = reference(x, w, stride, padding, dilation, groups)
    check(run(lambda x, w: topi.nn.group_conv1d_ncw(x, w, stride, padding, dilation, groups), x, w), expected)
    found = run(lambda x, w: topi.nn.group_conv1d_nwc(x, w, stride, padding, dilation, groups), last(x), kernel_last(w))
    check(found, last(expected))


def test_conv1d_by_layout_and_uneven_padding():
    x, w = array(2, 4, 9), array(6, 4, 3)
    expected = reference(np.pad(x, ((0, 0), (0, 0), (2, 1))), w)
    check(run(lambda x, w: topi.nn.conv1d(x, w, padding=(2, 1)), x, w), expected)
    check(
        run(lambda x, w: topi.nn.conv1d(x, w, padding=(2, 1), data_layout="NWC"), last(x), kernel_last(w)),
        last(expected),
    )
    check(run(topi.nn.conv1d_ncw, x, w), reference(x, w))
    check(run(topi.nn.conv1d_nwc, last(x), kernel_last(w)), last(reference(x, w)))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), ((2, 1, 2), (1, 0, 1), 1), (1, 1, (1, 2, 1))])
def test_conv3d(stride, padding, dilation, groups):
    x, w = array(1, 4, 5, 4, 5), array(2, 4 // groups, 2, 2, 3)
    expected = reference(x, w, stride, padding, dilation, groups)
    check(run(lambda x, w: topi.nn.conv3d_ncdhw(x, w, stride, padding, dilation, groups), x, w), expected)
    found = run(lambda x, w: topi.nn.conv3d_ndhwc(x, w, stride, padding, dilation, groups), last(x), kernel_last(w))
    check(found, last(expected))


def test_unknown_extents():
    x, w = array(2, 3, 8), array(4, 3, 3)
    check(run(topi.nn.conv1d_ncw, x, w, shapes={0: ("n", 3, "w")}), reference(x, w))
    x, w = array(2, 1, 4, 5, 3), array(2, 1, 2, 2, 2)
    found = run(lambda x, w: topi.nn.conv3d_ncdhw(x, w, 1, 1, 1, 1), x, w, shapes={0: ("n", 1, "d", 5, 3)})
    check(found, reference(x, w, 1, 1))


def test_the_axes_are_named():
    x, w = te.placeholder((1, 2, 4, 5, 6), name="x"), te.placeholder((3, 2, 2, 2, 2), name="w")
    text = te.create_prim_func([x, w, topi.nn.conv3d_ncdhw(x, w, 1, 0, 1, 1)]).script()
    assert "for nn, ff, yy, xx, zz, rc, ry, rx, rz in T.grid(1, 3, 3, 4, 5, 2, 2, 2, 2):" in text
    assert 'with T.block("conv3d_ncdhw"):' in text


def test_refusals():
    with pytest.raises(ShapeMismatch, match="expected inp in the layout NCW of 3 dimensions"):
        topi.nn.conv1d_ncw(te.placeholder((1, 2, 3, 4)), te.placeholder((1, 2, 3)))
    with pytest.raises(InvalidValue, match="expected padding by 1, 3 or 6 numbers, found 2"):
        topi.nn.conv3d_ncdhw(te.placeholder((1, 2, 3, 4, 5)), te.placeholder((1, 2, 1, 1, 1)), 1, (1, 1), 1, 1)
