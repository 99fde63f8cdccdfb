"""The oracles of `topi.testing` for regions against ONNX's reference operators and PyTorch, and by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator

from oneir.runtime.error import InvalidValue
from oneir.topi import testing as t

RNG = np.random.default_rng(0)


def some(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def by_onnx(op: str, inputs: list[np.ndarray | None], **attributes) -> np.ndarray:
    """What ONNX's reference computes; None is an input that is left out."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    kinds = {n: onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in zip(names, inputs, strict=True) if n}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, ["y"], **attributes)],
        "one",
        [onnx.helper.make_tensor_value_info(n, kind, None) for n, kind in kinds.items()],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)])
    return ReferenceEvaluator(model).run(None, {n: x for n, x in zip(names, inputs, strict=True) if n})[0]


ROIS = np.array(
    [[0, 1, 2, 12, 9], [1, 0.5, 0.25, 3.75, 15], [1, -4, -3, 30, 20], [0, 4, 4, 4.1, 4.2]], "float32"
)  # within, of fractions, beyond the image on all sides, less than a pixel


@pytest.mark.parametrize("ratio", [2, 0])
def test_means_of_regions_are_those_of_onnx(ratio: int):
    x = some(2, 3, 9, 11)
    expected = by_onnx(
        "RoiAlign",
        [x, ROIS[:, 1:], ROIS[:, 0].astype("int64")],
        **{"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.5},
        coordinate_transformation_mode="output_half_pixel",
    )
    found = t.roi_align_nchw_python(x, ROIS, (3, 2), 0.5, ratio)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    last = t.roi_align_nhwc_python(x.transpose(0, 2, 3, 1), ROIS, (3, 2), 0.5, ratio, "avg")
    np.testing.assert_array_equal(last, found.transpose(0, 2, 3, 1))


def test_maxima_of_regions_are_those_of_sampled_points():
    """Every cell is the maximum of what PyTorch samples at its four points, which are within the image."""
    x = some(1, 2, 6, 8)
    found = t.roi_align_nchw_python(x, np.array([[0, 1, 0.5, 5, 4.5]]), (2, 2), 1.0, 2, "max")
    ys, xs = np.arange(4) + 0.5 + 0.5, np.arange(4) + 0.5 + 1
    grid = np.stack(np.meshgrid(xs / 7 * 2 - 1, ys / 5 * 2 - 1), axis=-1)[None].astype("float32")
    samples = F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), align_corners=True)
    np.testing.assert_allclose(found, F.max_pool2d(samples, 2).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidValue, match='expected the mode "avg" or "max", found \'min\''):
        t.roi_align_nchw_python(x, ROIS, 2, 1.0, 2, "min")


def test_maxima_of_pixels_in_regions():
    x = some(2, 3, 8, 9)
    # A whole image in cells that overlap is PyTorch's adaptive pooling.
    whole = t.roi_pool_nchw_python(x, np.array([[1, 0, 0, 16, 14]]), (3, 4), 0.5)
    np.testing.assert_array_equal(whole, F.adaptive_max_pool2d(torch.from_numpy(x[1:]), (3, 4)).numpy())
    found = t.roi_pool_nchw_python(x, np.array([[0, 2, 6, 5, 9], [0, 20, 20, 22, 22]]), 2, 1.0)
    np.testing.assert_array_equal(found[0, :, 0, 1], x[0, :, 6:8, 4:6].max(axis=(1, 2)))
    np.testing.assert_array_equal(found[0, :, 1], 0)
    np.testing.assert_array_equal(found[1], 0)


def test_crops_are_those_of_onnx():
    """ONNX resizes one box for all images, so each box is a model; outside of the image is the value that is given."""
    x = some(2, 3, 7, 9)
    boxes = np.array([[0.1, 0.2, 0.9, 0.7], [-0.3, 0.5, 0.6, 1.4], [0.8, 0.9, 0.2, 0.1], [0, 0, 1, 1]], "float32")
    indices = [1, 0, 1, 0]
    for size in ((4, 5), (1, 6)):
        found = t.crop_and_resize_python(x, boxes, indices, size, "NCHW", extrapolation_value=2.5)
        for box, index, crop in zip(boxes, indices, found, strict=True):
            roi = np.array([0, 0, *box[:2], 1, 1, *box[2:]], "float32")
            sizes = np.array([1, 3, *size], "int64")
            expected = by_onnx(
                "Resize",
                [x[index : index + 1], roi, None, sizes],
                **{"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
                extrapolation_value=2.5,
            )
            np.testing.assert_allclose(crop, expected[0], rtol=1e-4, atol=1e-4)
    last = t.crop_and_resize_python(x.transpose(0, 2, 3, 1), boxes, indices, (1, 6), "NHWC", extrapolation_value=2.5)
    np.testing.assert_array_equal(last, found.transpose(0, 2, 3, 1))


def test_crops_of_nearest_pixels():
    x = some(1, 2, 5, 5)
    boxes = np.array([[0, 0, 1, 1], [0, 0.4, 0.5, 1]])
    found = t.crop_and_resize_python(x, boxes, [0, 0], (3, 2), "NCHW", "nearest_neighbor")
    np.testing.assert_array_equal(found[0], x[0][:, [0, 2, 4]][:, :, [0, 4]])
    np.testing.assert_array_equal(found[1], x[0][:, [0, 1, 2]][:, :, [2, 4]])
    with pytest.raises(InvalidValue, match='expected the layout "NCHW" or "NHWC", found \'CHWN\''):
        t.crop_and_resize_python(x, boxes, [0, 0], (3, 2), "CHWN")
    with pytest.raises(InvalidValue, match='expected the method "bilinear" or "nearest_neighbor", found \'cubic\''):
        t.crop_and_resize_python(x, boxes, [0, 0], (3, 2), "NCHW", "cubic")


@pytest.mark.parametrize("groups", [1, 2])
def test_deformable_convolutions_are_those_of_onnx(groups: int):
    x, w = some(2, 4, 6, 7), some(6, 4 // groups, 3, 2)
    out = ((6 + 2 - 2 * 2 - 1) // 2 + 1, 7 + 4 - 1)
    offset = 2 * some(2, 2 * 3 * 2 * 2, *out)
    expected = by_onnx(
        "DeformConv",
        [x, w, offset],
        **{"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 2, 1, 2], "dilations": [2, 1]},
        **{"group": groups, "offset_group": 2},
    )
    found = t.deformable_conv2d_nchw_python(x, offset, w, (2, 1), (1, 2), (2, 1), 2, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    last = [a.transpose(0, 2, 3, 1) for a in (x, offset)]
    of_last = t.deformable_conv2d_nhwc_python(*last, w.transpose(2, 3, 1, 0), (2, 1), (1, 2), (2, 1), 2, groups)
    np.testing.assert_allclose(of_last, found.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5)
    with pytest.raises(InvalidValue, match="4 channels do not divide into 3 deformable groups"):
        t.deformable_conv2d_nchw_python(x, offset, w, 1, 0, 1, 3, groups)


@pytest.mark.parametrize("products", [True, False])
def test_correlations_are_means_over_shifted_images(products: bool):
    """A displacement is one shifted image, and the patches are windows of PyTorch's mean pooling."""
    a, b = some(2, 3, 8, 9), some(2, 3, 8, 9)
    found = t.correlation_nchw_python(a, b, 3, 2, 2, 2, 3, products)
    first, second = (F.pad(torch.from_numpy(x), (3, 3, 3, 3)) for x in (a, b))
    maps = []
    for dy in (-2, 0, 2):
        for dx in (-2, 0, 2):
            shifted = torch.roll(second, (-dy, -dx), (2, 3))
            both = first * shifted if products else (first - shifted).abs()
            maps.append(F.avg_pool2d(both[:, :, 2:-2, 2:-2].mean(1, keepdim=True), 3, 2))
    np.testing.assert_allclose(found, torch.cat(maps, 1).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidValue, match="are too small for displacements of 5"):
        t.correlation_nchw_python(a, b, 3, 5, 1, 1, 0, products)


def test_reorganized_blocks():
    """Of one channel of four, its blocks of the data read as one image, worked out by hand."""
    found = t.reorg_python(np.arange(16).reshape(1, 4, 2, 2), 2)
    assert found.shape == (1, 16, 1, 1)
    image = np.arange(16).reshape(4, 4)
    expected = [image[0::2, 0::2], image[0::2, 1::2], image[1::2, 0::2], image[1::2, 1::2]]
    np.testing.assert_array_equal(found.reshape(4, 2, 2), expected)
    with pytest.raises(InvalidValue, match="has no blocks of 2 x 2 for each channel"):
        t.reorg_python(np.zeros((1, 3, 4, 4)), 2)
