"""The oracles in `topi.testing` against PyTorch, and by hand where PyTorch has no such operator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oneir.runtime.error import InvalidValue
from oneir.topi import testing as t

RNG = np.random.default_rng(0)


def some(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def same(found, expected, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(found, np.asarray(expected), rtol=tolerance, atol=tolerance)


def as_torch(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


def test_convolutions():
    x, w = some(2, 4, 9), some(6, 2, 3)
    a, b = as_torch(x, w)
    same(t.group_conv1d_ncw_python(x, w, 2, 1, 2, 2), F.conv1d(a, b, stride=2, padding=1, dilation=2, groups=2))
    same(t.conv1d_ncw_python(x, some(6, 4, 3), 1, "SAME", 1).shape, (2, 6, 9))
    x, w = some(2, 4, 7, 8), some(6, 2, 3, 2)
    a, b = as_torch(x, w)
    expected = F.conv2d(F.pad(a, (0, 1, 1, 2)), b, stride=(2, 1), groups=2).numpy()
    same(t.conv2d_nchw_python(x, w, (2, 1), (1, 0, 2, 1), 2), expected)
    found = t.conv2d_nhwc_python(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (2, 1), (1, 0, 2, 1), 2)
    same(found, expected.transpose(0, 2, 3, 1))
    w = some(6, 4, 3, 2)
    expected = F.conv2d(*as_torch(x, w)).numpy()
    same(t.conv2d_hwcn_python(x.transpose(2, 3, 1, 0), w.transpose(2, 3, 1, 0), 1, 0), expected.transpose(2, 3, 1, 0))
    x, w = some(1, 2, 4, 5, 6), some(3, 2, 2, 3, 2)
    expected = F.conv3d(*as_torch(x, w), stride=2, padding=1).numpy()
    same(t.conv3d_ncdhw_python(x, w, 2, 1), expected)
    found = t.conv3d_ndhwc_python(x.transpose(0, 2, 3, 4, 1), w.transpose(2, 3, 4, 1, 0), 2, 1)
    same(found, expected.transpose(0, 2, 3, 4, 1))
    with pytest.raises(InvalidValue, match='expected padding to be "SAME", "VALID" or numbers'):
        t.conv2d_nchw_python(some(1, 1, 3, 3), some(1, 1, 2, 2), 1, "FULL")


def test_depthwise_convolutions():
    x, w = some(2, 4, 6, 5), some(4, 2, 3, 3)
    expected = F.conv2d(*as_torch(x, w.reshape(8, 1, 3, 3)), stride=2, padding=1, groups=4).numpy()
    same(t.depthwise_conv2d_python_nchw(x, w, 2, 1), expected)
    found = t.depthwise_conv2d_python_nhwc(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1), 2, 1)
    same(found, expected.transpose(0, 2, 3, 1))
    one = F.conv2d(*as_torch(x, w[:, :1]), groups=4).numpy()
    blocked = x.reshape(2, 2, 2, 6, 5).transpose(0, 1, 3, 4, 2)
    weight = w[:, :1].reshape(2, 2, 1, 3, 3).transpose(0, 2, 3, 4, 1)[:, :, :, :, None, :]
    found = t.depthwise_conv2d_python_nchwc(blocked, weight, 1, 0)
    same(found, one.reshape(2, 2, 2, 4, 3).transpose(0, 1, 3, 4, 2))


def test_transposed_convolutions_and_gradients():
    x, w = some(2, 4, 5), some(4, 3, 3)
    same(t.conv1d_transpose_ncw_python(x, w, 2, 1, 1), F.conv_transpose1d(*as_torch(x, w), None, 2, 1, 1))
    found = t.group_conv1d_transpose_ncw_python(x, w, 2, 1, 0, 2)
    same(found, F.conv_transpose1d(*as_torch(x, w), None, 2, 1, 0, 2))
    x, w = some(2, 4, 5, 4), some(4, 3, 3, 2)
    expected = F.conv_transpose2d(*as_torch(x, w), None, 2, 1, 1).numpy()
    same(t.conv2d_transpose_nchw_python(x, w, 2, 1, 1), expected)
    nhwc, hwio = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1)
    same(t.conv2d_transpose_nhwc_python(nhwc, hwio, "HWIO", 2, 1, 1), expected.transpose(0, 2, 3, 1))
    with pytest.raises(InvalidValue, match="expected a permutation of HWIO"):
        t.conv2d_transpose_nhwc_python(nhwc, hwio, "HWII", 2, 1)
    x3, w3 = some(1, 2, 3, 3, 3), some(2, 3, 2, 2, 2)
    same(t.conv3d_transpose_ncdhw_python(x3, w3, 2, 0, 0), F.conv_transpose3d(*as_torch(x3, w3), None, 2))
    weight = torch.randn(6, 2, 3, 2, requires_grad=True)
    y = F.conv2d(torch.from_numpy(x), weight, stride=2, padding=1, groups=2)
    dy = torch.randn_like(y)
    y.backward(dy)
    same(t.conv2d_backward_weight_python(dy.numpy(), x, (3, 2), 2, 1, 2), weight.grad)
    same(t.dilate_python(np.array([[1, 2]]), (1, 3), 9), [[1, 9, 9, 2]])


def test_normalizations():
    x, gamma, beta = some(2, 4, 5, 3), some(4), some(4)
    a, g, b = as_torch(x, gamma, beta)
    same(t.softmax_python(x, 2), F.softmax(a, 2))
    same(t.log_softmax_python(x), F.log_softmax(a, 1))
    same(t.group_norm_python(x, gamma, beta, 2, 1, [2, 3]), F.group_norm(a, 2, g, b))
    same(t.instance_norm_python(x, gamma, beta, (2, 3)), F.instance_norm(a, weight=g, bias=b))
    scale, shift = some(5, 3), some(5, 3)
    same(t.layer_norm_python(x, scale, shift, (2, 3)), F.layer_norm(a, (5, 3), *as_torch(scale, shift)))
    same(t.rms_norm_python(x, scale[0], -1), F.rms_norm(a, (3,), torch.from_numpy(scale[0]), 1e-5))
    mean, var = some(4), np.abs(some(4))
    out, *_ = t.batch_norm(x, gamma, beta, mean, var, 1, 1e-5, True, True)
    same(out, F.batch_norm(a, *as_torch(mean, var), g, b))
    running = [torch.from_numpy(v.copy()) for v in (mean, var)]
    expected = F.batch_norm(a, *running, g, b, training=True)
    out, new_mean, _ = t.batch_norm(x, gamma, beta, mean, var, 1, 1e-5, True, True, True)
    same(out, expected)
    same(new_mean, running[0])
    same(t.l2_normalize_python(x, 1e-12, [1]), F.normalize(a, dim=1))
    same(t.lrn_python(x, 3, 1, 2.0, 0.5, 0.75), F.local_response_norm(a, 3, 0.5, 0.75, 2.0))


def test_pooling():
    x = some(2, 3, 7, 6)
    a = torch.from_numpy(x)
    options = ((3, 2), (2, 1), (1, 1), (1, 1), (1, 1))
    same(t.poolnd_python(x, *options, "max"), F.max_pool2d(a, (3, 2), (2, 1), 1))
    for counted in (True, False):
        expected = F.avg_pool2d(a, (3, 2), (2, 1), 1, count_include_pad=counted)
        same(t.poolnd_python(x, *options, "avg", counted), expected)
        moved = t.poolnd_python(x.transpose(0, 2, 3, 1), *options, "avg", counted, layout="NHWC")
        same(moved, expected.permute(0, 2, 3, 1))
    for kind in ("max", "avg"):
        needed = torch.from_numpy(x).clone().requires_grad_()
        pool = F.max_pool2d if kind == "max" else F.avg_pool2d
        y = pool(needed, 3, 2, 1)
        dy = torch.randn_like(y)
        y.backward(dy)
        same(t.pool_grad_nchw(x, dy.numpy(), (3, 3), (2, 2), (1, 1, 1, 1), kind, False), needed.grad)
    same(t.adaptive_pool(x, (4, 5), "avg", "NCHW"), F.adaptive_avg_pool2d(a, (4, 5)))
    same(t.adaptive_pool(x.transpose(0, 2, 3, 1), 3, "max", "NHWC"), F.adaptive_max_pool2d(a, 3).permute(0, 2, 3, 1))


def test_products_and_losses():
    x, y = some(3, 4, 5), some(3, 6, 5)
    same(t.batch_matmul(x, y), x @ y.transpose(0, 2, 1))
    same(t.dense(x[0], y[0], some(6) * 0 - 9, True, True), np.maximum(x[0] @ y[0].T - 9, 0))
    q, k, v = some(2, 4, 6, 8), some(2, 2, 6, 8), some(2, 2, 6, 8)
    expected = F.scaled_dot_product_attention(*as_torch(q, k, v), is_causal=True, scale=0.3, enable_gqa=True)
    same(t.attention_python(q, k, v, None, 0.3, "TopLeft", layout="BNSH")[0], expected)
    moved = [part.transpose(0, 2, 1, 3) for part in (q, k, v)]
    out, weights = t.attention_python(*moved, some(6, 6) * 0, 0.3, "none")
    same(out, F.scaled_dot_product_attention(*as_torch(q, k, v), scale=0.3, enable_gqa=True).transpose(1, 2))
    same(weights.sum(-1), np.ones((2, 4, 6)))
    _, weights = t.attention_python(*moved, None, 0.3, "BottomRight", window_size=2)
    assert (weights[0, 0] > 0).sum() == 11
    with pytest.raises(InvalidValue, match="found 'Middle'"):
        t.attention_python(*moved, None, 0.3, "Middle")
    scores, targets, weight = some(4, 5, 3), RNG.integers(0, 5, (4, 3)), np.abs(some(5))
    targets[0, 0] = -100
    for reduction in ("mean", "sum", "none"):
        expected = F.nll_loss(*as_torch(scores, targets, weight), reduction=reduction)
        same(t.nll_loss(scores, targets, weight, reduction), expected)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_recurrent_layers():
    layer = torch.nn.LSTM(3, 4, proj_size=2)
    wi, wh, bi, bh, proj = (p.detach().numpy() for p in layer.parameters())
    x = some(5, 2, 3)
    hidden, cell = t.lstm_python(x, wi, wh, bi, bh, proj=proj)  # PyTorch has the gates as IFGO, too
    expected, (last, cells) = layer(torch.from_numpy(x))
    same(hidden, expected.detach())
    same(cell[-1], cells[0].detach())
    backwards, _ = t.lstm_python(x[::-1], wi, wh, bi, bh, proj=proj, reverse=True)
    same(backwards[0], last[0].detach())


def test_elements():
    x, indices = some(3, 4), np.array([[0, 3], [1, 1], [2, 0]])
    same(t.gather_python(x, 1, indices), torch.gather(*[torch.from_numpy(x), 1, torch.from_numpy(indices)]))
    same(t.gather_nd_python(x, np.array([[0, 2], [1, 3]])), [x[0, 1], x[2, 3]])
    same(t.one_hot(np.array([1, 4]), 5, 0, 3, -1, "int32"), [[0, 5, 0], [0, 0, 0]])
    same(t.one_hot(np.array([1, 0]), 1, 0, 2, 0, "int32"), [[0, 1], [1, 0]])
    rows = np.sort(some(2, 6))
    expected = torch.searchsorted(*as_torch(rows, some(2, 3) * 0), right=True)
    same(t.searchsorted_ref(rows, np.zeros((2, 3), "float32"), True, "int32"), expected)
    same(t.sequence_mask(np.ones((3, 2)), np.array([1, 3]), 0, 0), [[1, 1], [0, 1], [0, 1]])
    same(t.sequence_mask(np.ones((2, 3)), np.array([1, 3]), 0, 1), [[1, 0, 0], [1, 1, 1]])
    same(t.slice_axis_python(x, -1, 1, -1), x[:, 1:-1])
    same(t.strided_slice_python(x, [2], [0], [-1]), x[2:0:-1])
    same(t.strided_slice_python(x, [1, 1], [-1, 2], [5, 5], "size"), x[1:, 1:3])
    same(t.strided_slice_python(x, [3], [0], [-2], axes=[1]), x[:, 3:0:-2])
    with pytest.raises(InvalidValue, match="found 'length'"):
        t.strided_slice_python(x, [1], [2], None, "length")
    same(t.strided_set_python(np.zeros(4), np.ones(2), [0], [4], [2]), [1, 0, 1, 0])
    same(t.matrix_set_diag(np.zeros((2, 3)), np.array([1, 2]), 1), [[0, 1, 0], [0, 0, 2]])
    two = np.array([[1, 2, 3], [0, 4, 5]])
    same(t.matrix_set_diag(np.zeros((3, 3)), two, (-1, 0), "RIGHT_RIGHT"), [[1, 0, 0], [4, 2, 0], [0, 5, 3]])


def test_images():
    x = some(1, 2, 4, 5)
    a = torch.from_numpy(x)
    for method, mode, options in [
        ("bilinear", "align_corners", {"mode": "bilinear", "align_corners": True}),
        ("bilinear", "half_pixel", {"mode": "bilinear", "align_corners": False}),
        ("nearest_neighbor", "asymmetric", {"mode": "nearest"}),
    ]:
        same(t.resize2d_python(x, (2, 3), "NCHW", method, mode), F.interpolate(a, scale_factor=(2, 3), **options))
    moved = t.resize2d_python(x.transpose(0, 2, 3, 1), (2, 3), "NHWC")
    same(moved.transpose(0, 3, 1, 2), F.interpolate(a, scale_factor=(2, 3), mode="bilinear", align_corners=True))
    same(
        t.resize1d_python(x[0], (2,), "NCW", "linear"),
        F.interpolate(a[0], scale_factor=2, mode="linear", align_corners=True),
    )
    cube = some(1, 1, 2, 3, 2)
    expected = F.interpolate(torch.from_numpy(cube), scale_factor=2, mode="trilinear", align_corners=True)
    same(t.resize3d_python(cube, (2, 2, 2)), expected)
    with pytest.raises(InvalidValue, match="no way of resizing 'sharp'"):
        t.resize2d_python(x, (2, 2), method="sharp")
    theta = some(2, 2, 3)
    grid = t.affine_grid_python(theta, (3, 4))
    expected = F.affine_grid(torch.from_numpy(theta), [2, 1, 3, 4], align_corners=True)
    same(grid, expected.permute(0, 3, 1, 2))
    data = some(2, 3, 5, 4)
    for method, padding, corners in [
        ("bilinear", "zeros", True),
        ("bilinear", "border", False),
        ("nearest", "zeros", True),
    ]:
        expected = F.grid_sample(
            torch.from_numpy(data), torch.from_numpy(grid).permute(0, 2, 3, 1), method, padding, corners
        )
        same(t.grid_sample_python(data, grid, method, "NCHW", padding, corners), expected)
    deep = some(2, 8, 3, 2)
    same(t.depth_to_space_python(deep, 2, "CRD"), F.pixel_shuffle(torch.from_numpy(deep), 2))
    same(t.space_to_depth_python(t.depth_to_space_python(deep, 2), 2), deep)
    batches = t.space_to_batch_nd_python(np.arange(12.0).reshape(1, 3, 4), (2, 2), (0, 0), (1, 0))
    same(batches[0], [[0, 2], [8, 10]])
    same(batches[3], [[5, 7], [0, 0]])
    same(t.batch_to_space_nd_python(batches, (2, 2), (0, 0), (1, 0)), np.arange(12.0).reshape(1, 3, 4))
