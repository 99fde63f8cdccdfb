"""Images are resized, cropped, sampled and dilated as their definitions say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, tir
from oneir.runtime.error import InvalidValue, ShapeMismatch
from oneir.topi import image

rng = np.random.default_rng(12)

COORDINATES = {
    "half_pixel": lambda i, size, target: (i + 0.5) * size / target - 0.5,
    "align_corners": lambda i, size, target: i * (size - 1) / max(target - 1, 1),
    "asymmetric": lambda i, size, target: i * size / target,
    "pytorch_half_pixel": lambda i, size, target: (i + 0.5) * size / target - 0.5 if target > 1 else i * 0.0,
    "tf_half_pixel_for_nn": lambda i, size, target: (i + 0.5) * size / target,
}
ROUND = {
    "round": np.round,
    "round_prefer_floor": lambda v: np.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    "floor": lambda v: np.floor(v + 1e-6),
    "ceil": lambda v: np.ceil(v - 1e-6),
}


def weights(size, target, mode, method, rounding="floor", alpha=-0.5, exclude=False):
    """The matrix that makes `target` elements of `size` elements, a row for each."""
    where = COORDINATES[mode](np.arange(target), size, target)
    matrix = np.zeros((target, size))
    for row, v in enumerate(where):
        low = int(np.floor(v))
        t = v - low
        if method == "nearest_neighbor":
            parts = [(int(ROUND[rounding](v)), 1.0)]
        elif method == "linear":
            parts = [(low, 1 - t), (low + 1, t)]
        else:
            near, far = (
                lambda d: (alpha + 2) * d**3 - (alpha + 3) * d**2 + 1,
                lambda d: alpha * (d**3 - 5 * d**2 + 8 * d - 4),
            )
            parts = [(low - 1, far(t + 1)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]
            if exclude:
                parts = [(p, w) for p, w in parts if 0 <= p < size]
                parts = [(p, w / sum(w for _, w in parts)) for p, w in parts]
        for p, w in parts:
            matrix[row, min(max(p, 0), size - 1)] += w
    return matrix


def resized(a, sizes, *options, **more):
    """The last axes of an array in other sizes."""
    for d, target in enumerate(sizes):
        axis = a.ndim - len(sizes) + d
        a = np.moveaxis(np.tensordot(weights(a.shape[axis], target, *options, **more), a, (1, axis)), 0, axis)
    return a


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_resize2d(method, mode):
    a = rng.standard_normal((2, 1, 5, 4)).astype("float32")
    rounding = "round" if mode == "align_corners" else "floor"
    got = run(
        lambda x: [
            image.resize2d(x, None, size, method=method, coordinate_transformation_mode=mode)
            for size in [(10, 3), (1, 7)]
        ],
        a,
    )
    for result, size in zip(got, [(10, 3), (1, 7)], strict=True):
        np.testing.assert_allclose(result, resized(a, size, mode, method, rounding), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rounding", ROUND)
def test_rounding_methods(rounding):
    a = rng.standard_normal((1, 1, 6, 4)).astype("float32")
    got = run(lambda x: image.resize2d(x, None, (4, 8), method="nearest_neighbor", rounding_method=rounding), a)
    np.testing.assert_array_equal(got, resized(a, (4, 8), "half_pixel", "nearest_neighbor", rounding).astype("float32"))


@pytest.mark.parametrize("exclude", [0, 1])
def test_cubic_options(exclude):
    a = rng.standard_normal((1, 2, 4, 5)).astype("float32")
    got = run(
        lambda x: image.resize2d(x, None, (7, 9), method="cubic", bicubic_alpha=-0.75, bicubic_exclude=exclude), a
    )
    expected = resized(a, (7, 9), "half_pixel", "cubic", alpha=-0.75, exclude=bool(exclude))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    if not exclude:
        theirs = torch.nn.functional.interpolate(torch.from_numpy(a), (7, 9), mode="bicubic", align_corners=False)
        np.testing.assert_allclose(got, theirs.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_other_numbers_of_dimensions(method):
    a, b = rng.standard_normal((2, 3, 5)).astype("float32"), rng.standard_normal((1, 2, 3, 2, 4)).astype("float32")
    line, volume = run(
        lambda x, y: [image.resize1d(x, None, (8,), method=method), image.resize3d(y, None, (4, 5, 3), method=method)],
        a,
        b,
    )
    np.testing.assert_allclose(line, resized(a, (8,), "half_pixel", method), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(volume, resized(b, (4, 5, 3), "half_pixel", method), rtol=1e-4, atol=1e-4)


def test_layouts_and_dtypes():
    a = rng.integers(0, 255, (2, 4, 3, 5))
    whole = resized(a, (6, 4), "half_pixel", "linear")
    last = run(lambda x: image.resize2d(x, None, (6, 4), "NHWC"), a.transpose(0, 2, 3, 1).astype("float16"))
    np.testing.assert_allclose(last, whole.transpose(0, 2, 3, 1), rtol=2e-3)
    packed = a.reshape(2, 2, 2, 3, 5).transpose(0, 1, 3, 4, 2).astype("float64")
    got = run(lambda x: image.resize2d(x, None, (6, 4), "NCHW2c"), packed)
    np.testing.assert_allclose(got, whole.reshape(2, 2, 2, 6, 4).transpose(0, 1, 3, 4, 2), rtol=1e-5)
    bytes_ = run(lambda x: image.resize2d(x, None, (6, 4), out_dtype="float32"), a.astype("uint8"))
    np.testing.assert_allclose(bytes_, whole, rtol=1e-5, atol=1e-3)


def test_symbolic_extents():
    a = rng.standard_normal((1, 2, 3, 4)).astype("float32")
    got = run(lambda x: image.resize2d(x, None, (6, 2)), a, shapes={0: (1, 2, "h", "w")})
    np.testing.assert_allclose(got, resized(a, (6, 2), "half_pixel", "linear"), rtol=1e-4, atol=1e-5)


def test_crops():
    a = rng.standard_normal((2, 1, 5, 6)).astype("float32")
    boxes, where = np.float32([[0, 0, 1, 1], [0.25, 0.2, 0.75, 1.4]]), np.int32([1, 0])
    got = run(lambda *t: image.crop_and_resize(*t, (3, 4), extrapolation_value=7.0), a, boxes, where)
    expected = np.full((2, 1, 3, 4), 7.0)
    for n, (y1, x1, y2, x2) in enumerate(boxes):
        ys, xs = np.linspace(y1, y2, 3) * 4, np.linspace(x1, x2, 4) * 5
        for i, j in np.ndindex(3, 4):
            if 0 <= ys[i] <= 4 and 0 <= xs[j] <= 5:
                y, x = min(int(ys[i]), 3), min(int(xs[j]), 4)
                v, u = ys[i] - y, xs[j] - x
                p = a[where[n], 0, y : y + 2, x : x + 2]
                expected[n, 0, i, j] = np.array([1 - v, v]) @ p @ np.array([1 - u, u])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    roi = run(
        lambda x: image.resize2d(
            x, (0.25, 0.2, 0.75, 0.8), (3, 4), coordinate_transformation_mode="tf_crop_and_resize"
        ),
        a,
    )
    ys, xs = np.linspace(0.25, 0.75, 3) * 4, np.linspace(0.2, 0.8, 4) * 5
    grid = np.stack(np.meshgrid(xs / 5 * 2 - 1, ys / 4 * 2 - 1), -1)[None].repeat(2, 0)
    theirs = torch.nn.functional.grid_sample(torch.from_numpy(a), torch.from_numpy(grid).float(), align_corners=True)
    np.testing.assert_allclose(roi, theirs.numpy(), rtol=1e-4, atol=1e-4)


# -- grids --


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_grid_sample(method, padding, align_corners):
    a = rng.standard_normal((2, 3, 5, 4)).astype("float32")
    grid = rng.uniform(-2.5, 2.5, (2, 2, 6, 3)).astype("float32")
    got = run(lambda x, g: image.grid_sample(x, g, method, "NCHW", padding, align_corners), a, grid)
    theirs = torch.nn.functional.grid_sample(
        torch.from_numpy(a), torch.from_numpy(grid.transpose(0, 2, 3, 1).copy()), method, padding, align_corners
    )
    np.testing.assert_allclose(got, theirs.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("method", ["nearest", "bilinear"])
def test_grid_sample_of_volumes(method, padding):
    a = rng.standard_normal((1, 2, 3, 4, 5)).astype("float32")
    grid = rng.uniform(-1.5, 1.5, (1, 3, 2, 3, 2)).astype("float32")
    got = run(lambda x, g: image.grid_sample(x, g, method, "NCDHW", padding), a, grid)
    theirs = torch.nn.functional.grid_sample(
        torch.from_numpy(a), torch.from_numpy(grid.transpose(0, 2, 3, 4, 1).copy()), method, padding, True
    )
    np.testing.assert_allclose(got, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("align_corners", [True, False])
def test_affine_grid(align_corners):
    theta = rng.standard_normal((2, 2, 3)).astype("float32")
    got = run(lambda t: image.affine_grid(t, (4, 5), align_corners), theta)
    theirs = torch.nn.functional.affine_grid(torch.from_numpy(theta), [2, 1, 4, 5], align_corners)
    np.testing.assert_allclose(got, theirs.numpy().transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)


# -- morphology --


@pytest.mark.parametrize("padding", [0, 1, (0, 1), (1, 0, 0, 2), "SAME", "VALID"], ids=str)
def test_dilation(padding):
    a, kernel = rng.standard_normal((1, 2, 6, 5)).astype("float32"), rng.standard_normal((2, 3, 2)).astype("float32")
    top, left, bottom, right = {
        0: (0,) * 4,
        1: (1,) * 4,
        (0, 1): (0, 1, 0, 1),
        "SAME": (2, 1, 2, 1),
        "VALID": (0,) * 4,
    }.get(padding, padding)
    stride, step = (2, 1), (2, 2)
    padded = np.pad(a, ((0, 0), (0, 0), (top, bottom), (left, right)))
    rows, columns = (padded.shape[2] - 5) // 2 + 1, padded.shape[3] - 3 + 1
    expected = np.empty((1, 2, rows, columns), "float32")
    for i, j in np.ndindex(rows, columns):
        window = padded[:, :, 2 * i : 2 * i + 5 : 2, j : j + 3 : 2]
        expected[:, :, i, j] = (window + kernel).max((2, 3))
    np.testing.assert_allclose(
        run(lambda x, k: image.dilation2d_nchw(x, k, stride, padding, step), a, kernel), expected, rtol=1e-6
    )
    got = run(
        lambda x, k: image.dilation2d_nhwc(x, k, stride, padding, step),
        a.transpose(0, 2, 3, 1),
        kernel.transpose(1, 2, 0),
    )
    np.testing.assert_allclose(got, expected.transpose(0, 2, 3, 1), rtol=1e-6)


# -- what the parts of resizing are --


def test_parts_by_their_published_names():
    n, c, y, x, cc = (tir.Var(v, "int32") for v in "ncyxk")
    assert image.get_2d_indices((n, y, x, c), "NHWC")[:4] == (n, c, y, x)
    assert image.get_2d_indices((n, c, y, x, cc), "NCHW4c") == (n, c, y, x, cc, 0, 0)
    assert image.get_1d_indices((n, c, x)) == (n, c, x, None, 0, 0)
    assert image.can_convert_multiply_to_intdiv(tir.const(4), tir.const(8))
    assert not image.can_convert_multiply_to_intdiv(tir.const(4), tir.const(6))
    t = te.placeholder((1, 2, 3, 4), name="A")
    assert (
        str(image.get_2d_pixel(t, "NCHW", 3, 4, n, c, y, x, None, 0, 0))
        == "A[n, c, T.max(T.min(y, 2), 0), T.max(T.min(x, 3), 0)]"
    )


def test_indices_and_pixels_of_lines_and_volumes():
    n, c, z, y, x, cc = (tir.Var(v, "int32") for v in "nczyxk")
    assert image.get_3d_indices((n, z, y, x, c), "NDHWC") == (n, c, z, y, x, None)
    assert image.get_3d_indices((n, c, z, y, x, cc), "NCDHW4c") == (n, c, z, y, x, cc)
    line, volume = rng.standard_normal((2, 3, 5)), rng.standard_normal((1, 2, 3, 4, 5)).astype("float16")

    def beside(a, v):
        ends = te.compute((2, 3, 9), lambda n, c, i: image.get_1d_pixel(a, "NCW", 5, n, c, i - 2, None, 0, 0))
        whole = te.compute(
            (1, 2, 5, 6, 7),
            lambda n, c, k, j, i: image.get_3d_pixel(v, "NCDHW", 3, 4, 5, n, c, k - 1, j - 1, i - 1, None),
        )
        return [ends, whole]

    ends, whole = run(beside, line, volume)
    np.testing.assert_array_equal(ends, np.pad(line, [(0, 0), (0, 0), (2, 2)], mode="edge"))
    np.testing.assert_array_equal(whole, np.pad(volume, [(0, 0), (0, 0), (1, 1), (1, 1), (1, 1)], mode="edge"))
    assert ends.dtype == "float64" and whole.dtype == "float32"


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize(("size", "target"), [(5, 8), (8, 5), (1, 4), (4, 1)])
def test_coordinates_of_a_result(mode, size, target):
    found = run(lambda: te.compute((target,), lambda i: tir.Cast("float32", image.get_inx(i, size, target, mode))))
    np.testing.assert_allclose(found, COORDINATES[mode](np.arange(target), size, target), rtol=1e-5, atol=1e-6)
    whole = run(lambda: te.compute((8,), lambda i: image.get_inx(i, 4, 8, "asymmetric", use_int_div=True)))
    np.testing.assert_array_equal(whole, np.arange(8) // 2)


@pytest.mark.parametrize("rounding", ROUND)
def test_the_index_next_to_a_coordinate(rounding):
    where = np.float32([-1.5, -0.5, 0, 0.4, 0.5, 1.5, 2.5, 3.0])
    near, even = run(
        lambda v: [
            te.compute((8,), lambda i: image.get_closest_index(v(i), rounding, None)),
            te.compute((8,), lambda i: image.get_closest_index(v(i), rounding, "boxes")),
        ],
        where,
    )
    np.testing.assert_array_equal(near, ROUND[rounding](where))
    np.testing.assert_array_equal(even, np.round(where))


# -- refusals --

T = te.placeholder((1, 2, 3, 4))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: image.resize2d(T, None, (2, 2), "NHCW"), InvalidValue, "expected a layout such as NCHW, NHWC or NCHW16c, found 'NHCW'"),
        (lambda: image.resize2d(T, None, (2,)), InvalidValue, "topi.image.resize2d: expected 2 sizes, found 1"),
        (lambda: image.resize2d(T, None, (2, 2), method="area"), InvalidValue, "expected a method of .* found 'area'"),
        (lambda: image.get_closest_index(T[0, 0, 0, 0], "up", None), InvalidValue, "expected a rounding_method of .* found 'up'"),
        (lambda: image.get_inx(0, 4, 8, "center"), InvalidValue, "unknown coordinate_transformation_mode 'center'"),
        (lambda: image.resize2d(T, None, (2, 2), coordinate_transformation_mode="x"), InvalidValue, "unknown coordinate_transformation_mode 'x'"),
        (lambda: image.resize2d(T, None, (2, 2), method="nearest_neighbor", rounding_method="x"), InvalidValue, "rounding_method of .* found 'x'"),
        (lambda: image.resize3d(T, None, (2, 2, 2)), ShapeMismatch, "topi.image.resize3d: expected an image of layout NCDHW of 5 dimensions"),
        (lambda: image.crop_and_resize(T, T, T, (2, 2)), ShapeMismatch, r"expected boxes of shape \(n, 4\)"),
        (lambda: image.grid_sample(T, te.placeholder((1, 3, 3, 4))), ShapeMismatch, r"found \(1, 2, 3, 4\) and"),
        (lambda: image.grid_sample(T, T, layout="NHWC"), InvalidValue, "expected the layout NCHW or NCDHW, found 'NHWC'"),
        (lambda: image.affine_grid(te.placeholder((1, 2, 3)), (1, 4)), InvalidValue, r"at least 2, found \[1, 4\]"),
        (lambda: image.dilation2d_nchw(T, te.placeholder((3, 2, 2)), 1, 0, 1), ShapeMismatch, "have 2 and 3 channels"),
        (lambda: image.dilation2d_nchw(T, te.placeholder((2, 4, 2)), 1, 0, 1), ShapeMismatch, "does not fit into"),
        (lambda: image.dilation2d_nhwc(T, te.placeholder((2, 2, 4)), 1, "FULL", 1), InvalidValue, "found 'FULL'"),
    ],
)  # fmt: skip
def test_refusals_name_function_and_argument(make, error, message):
    with pytest.raises(error, match=message):
        make()
