"""Sums over windows leave out steps in padding: same results, and conditions only where there is padding to leave out."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import te, tir, topi
from oneir.dlight.cpu import Contraction
from oneir.target import Target

rng = np.random.default_rng(0)


def convolution(shape, kernel, pads, strides, dilations, dtype="float32"):
    """A convolution of images with channels last by weights with output channels last, padded with zeros."""
    data, weight = te.placeholder(shape, dtype, "data"), te.placeholder(kernel, dtype, "weight")
    count = len(strides)
    padded = topi.nn.pad(data, [0, *pads, 0], [0, *pads, 0]) if any(pads) else data
    out = [(shape[1 + i] + 2 * pads[i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(count)]
    taps = [te.reduce_axis((0, kernel[i]), f"k{i}") for i in range(count)]
    channels = te.reduce_axis((0, kernel[-2]), "c")

    def element(n, *rest):
        places = [rest[i] * strides[i] + taps[i] * dilations[i] for i in range(count)]
        return te.sum(padded(n, *places, channels) * weight(*taps, channels, rest[-1]), axis=[*taps, channels])

    result = te.compute((shape[0], *out, kernel[-1]), element, "conv")
    return te.create_prim_func([data, weight, result]).with_attr("global_symbol", "main")


def expected(data, weight, pads, strides, dilations):
    """The convolution tap by tap, in float64."""
    padded = np.pad(data.astype("float64"), [(0, 0), *((p, p) for p in pads), (0, 0)])
    total = 0
    for tap in np.ndindex(weight.shape[:-2]):
        windows = []
        for i, (at, stride, dilation) in enumerate(zip(tap, strides, dilations, strict=True)):
            count = (padded.shape[1 + i] - (weight.shape[i] - 1) * dilation - 1) // stride + 1
            windows.append(slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride))
        total = total + padded[(slice(None), *windows)] @ weight[tap].astype("float64")
    return total


def scheduled(func, target="llvm"):
    with Target(target):
        schedule = Contraction().apply(func, Target(target), False)
    assert schedule is not None
    return schedule.mod["main"]


def conditions(func):
    """How many conditions stand around sums."""
    found = []
    tir.stmt_functor.post_order_visit(func.body, lambda n: found.append(n) if isinstance(n, tir.IfThenElse) else None)
    return len(found)


@pytest.mark.parametrize(
    "size, kernel, pads, strides, dilations, guarded",
    [
        ((9, 9), (3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((12, 20), (3, 3), (1, 1), (2, 2), (1, 1), 1),
        ((11, 17), (7, 1), (3, 0), (1, 1), (1, 1), 1),
        ((11, 17), (1, 7), (0, 3), (1, 1), (1, 1), 0),
        ((16, 16), (3, 3), (12, 12), (1, 1), (12, 12), 2),  # whole tiles of columns are padding, too
        ((4, 8), (3, 3), (18, 18), (1, 1), (18, 18), 2),  # of which only the middle of the kernel meets the image
        ((4, 8), (3, 3), (0, 0), (1, 1), (1, 1), 0),
        ((2, 5, 9), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 2),
        ((20,), (3,), (4,), (1,), (4,), 0),
    ],
)
def test_windows_over_borders(size, kernel, pads, strides, dilations, guarded):
    func = convolution((2, *size, 8), (*kernel, 8, 16), pads, strides, dilations)
    new = scheduled(func)
    data = rng.standard_normal((2, *size, 8)).astype("float32")
    weight = rng.standard_normal((*kernel, 8, 16)).astype("float32")
    wanted = expected(data, weight, pads, strides, dilations)
    result = np.full(wanted.shape, np.nan, "float32")
    oneir.build(new)["main"](data, weight, result)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    assert conditions(scheduled(func, "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")) == guarded


@pytest.mark.parametrize("extent", [1, 3, 10])
def test_an_unknown_number_of_rows(extent):
    height = tir.Var("height", "int64")
    new = scheduled(convolution((1, height, 12, 8), (3, 3, 8, 16), (1, 1), (1, 1), (1, 1)))
    data = rng.standard_normal((1, extent, 12, 8)).astype("float32")
    weight = rng.standard_normal((3, 3, 8, 16)).astype("float32")
    wanted = expected(data, weight, (1, 1), (1, 1), (1, 1))
    result = np.full(wanted.shape, np.nan, "float32")
    oneir.build(new)["main"](data, weight, result)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    assert conditions(new) >= 1


def test_padding_with_another_number_is_summed():
    data, weight = te.placeholder((1, 9, 9, 8), "float32", "data"), te.placeholder((3, 3, 8, 16), "float32", "weight")
    padded = topi.nn.pad(data, [0, 1, 1, 0], [0, 1, 1, 0], pad_value=2.0)
    y, x, c = (te.reduce_axis((0, n), name) for n, name in ((3, "y"), (3, "x"), (8, "c")))
    result = te.compute(
        (1, 9, 9, 16),
        lambda n, i, j, k: te.sum(padded[n, i + y, j + x, c] * weight[y, x, c, k], axis=[y, x, c]),
        "conv",
    )
    assert conditions(scheduled(te.create_prim_func([data, weight, result]).with_attr("global_symbol", "main"))) == 0


def test_rows_that_a_mask_hides_are_summed():
    data, mask = te.placeholder((12, 20), "float32", "data"), te.placeholder((20,), "int32", "mask")
    weight = te.placeholder((20, 16), "float32", "weight")
    hidden = te.compute(
        (12, 20), lambda i, k: tir.if_then_else(mask[k] > 0, data[i, k], tir.const(0, "float32")), "hidden"
    )
    k = te.reduce_axis((0, 20), "k")
    result = te.compute((12, 16), lambda i, j: te.sum(hidden[i, k] * weight[k, j], axis=k), "sum")
    func = te.create_prim_func([data, mask, weight, result]).with_attr("global_symbol", "main")
    assert conditions(scheduled(func)) == 0
