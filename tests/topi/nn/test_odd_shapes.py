"""Layers on images of one pixel, empty batches, and extents that are not known: as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from topi_native import run

from oneir.topi import nn

rng = np.random.default_rng(33)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("float32")


W1, W3, WD, WT, G, B = array(6, 4, 1, 1), array(6, 4, 3, 3), array(4, 2, 3, 3), array(4, 3, 2, 2), array(4), array(4)
PAIR, AROUND = (2, 2), (1, 1, 1, 1)


def channels_last(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x, *args: function(x.permute(0, 2, 3, 1), *args).permute(0, 3, 1, 2)


Layer = tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]
LAYERS: dict[str, Layer] = {
    "conv2d_1x1": (lambda x, w: nn.conv2d_nchw(x, w, 1, 0, 1), F.conv2d, (W1,)),
    "conv2d_3x3": (lambda x, w: nn.conv2d_nchw(x, w, 2, 1, 1), lambda x, w: F.conv2d(x, w, None, 2, 1), (W3,)),
    "depthwise": (
        lambda x, w: nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
        lambda x, w: F.conv2d(x, w.reshape(8, 1, 3, 3), None, 1, 1, 1, 4),
        (WD,),
    ),
    "transposed": (
        lambda x, w: nn.conv2d_transpose_nchw(x, w, PAIR, (0, 0, 0, 0), None, (0, 0)),
        lambda x, w: F.conv_transpose2d(x, w, None, 2),
        (WT,),
    ),
    "max": (lambda x: nn.pool2d(x, (3, 3), PAIR, (1, 1), AROUND, "max"), lambda x: F.max_pool2d(x, 3, 2, 1), ()),
    "mean": (
        lambda x: nn.pool2d(x, (3, 3), PAIR, (1, 1), AROUND, "avg", count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        (),
    ),
    "global": (lambda x: nn.global_pool(x, "avg"), lambda x: x.mean((2, 3), keepdim=True), ()),
    "adaptive_mean": (lambda x: nn.adaptive_pool(x, (2, 3), "avg"), lambda x: F.adaptive_avg_pool2d(x, (2, 3)), ()),
    "adaptive_max": (lambda x: nn.adaptive_pool(x, (1, 1), "max"), lambda x: x.amax((2, 3), keepdim=True), ()),
    "group_norm": (
        lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2, 3], 1e-5), lambda x, g, b: F.group_norm(x, 2, g, b), (G, B)
    ),
    "layer_norm": (
        lambda x, g, b: nn.layer_norm(x, g, b, [1], 1e-5),
        channels_last(lambda x, g, b: F.layer_norm(x, (4,), g, b)),
        (G, B),
    ),
    "rms_norm": (
        lambda x, g: nn.rms_norm(x, g, [1], 1e-5), channels_last(lambda x, g: F.rms_norm(x, (4,), g, 1e-5)), (G,)
    ),
    "lrn": (lambda x: nn.lrn(x, 3, 1, 0.1, 0.75, 2.0), lambda x: F.local_response_norm(x, 3, 0.1, 0.75, 2.0), ()),
    "prelu": (nn.prelu, F.prelu, (G,)),
    "pixel_shuffle": (lambda x: nn.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), ()),
    "depth_to_space": (lambda x: nn.depth_to_space(x, 2, mode="CRD"), lambda x: F.pixel_shuffle(x, 2), ()),
    "upsampling": (
        lambda x: nn.upsampling(x, 2, 2, method="nearest_neighbor"),
        lambda x: x.repeat_interleave(2, 2).repeat_interleave(2, 3),
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, unknown: bool) -> None:
    make, reference, weights = LAYERS[name]
    for shape in [(0, 4, 3, 3), (1, 4, 1, 1), (2, 4, 7, 5)]:
        x = array(*shape)
        found = run(make, x, *weights, shapes={0: ("n", 4, "h", "w")} if unknown else None)
        expected = reference(*map(torch.from_numpy, (x, *weights))).numpy()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (17, 3, 1), (0, 3, 2), (1, 17, 33)])
def test_products(m: int, k: int, n: int, unknown: bool) -> None:
    for batch in (0, 1, 2):
        a, b = array(batch, m, k), array(batch, k, n)
        shapes = {0: ("b", "m", "k"), 1: ("b", "k", "n")} if unknown else None
        found = run(lambda x, y: nn.batch_matmul(x, y, transpose_b=False), a, b, shapes=shapes)
        np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)
    weight = np.ascontiguousarray(array(k, n).T)
    found = run(nn.dense, array(m, k) * 0 + 1, weight, shapes={0: ("m", "k"), 1: ("n", "k")} if unknown else None)
    np.testing.assert_allclose(found, np.ones((m, k)) @ weight.T, rtol=1e-4, atol=1e-5)
