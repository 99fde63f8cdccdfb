"""Tensors of extent one, of none, and of extents that are no multiple of a vector, known and unknown: as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from topi_native import run

from oneir import tir, topi
from oneir.topi import image

rng = np.random.default_rng(31)
SHAPES = [(1,), (17,), (0, 3), (1, 1), (3, 0, 2), (5, 17)]
Case = tuple[Callable[..., Any], Callable[..., Any]]


def softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(-1, keepdims=True)) if a.shape[-1] else a
    return e / e.sum(-1, keepdims=True)


def dilated(a: np.ndarray) -> np.ndarray:
    result = np.zeros([max(2 * d - 1, 0) for d in a.shape], a.dtype)
    result[tuple(slice(None, None, 2) for _ in a.shape)] = a
    return result


MOVES: dict[str, Case] = {
    "transpose": (topi.transpose, np.transpose),
    "flip": (lambda x: topi.flip(x, -1), lambda a: np.flip(a, -1)),
    "concatenate": (lambda x: topi.concatenate([x, x], -1), lambda a: np.concatenate([a, a], -1)),
    "stack": (lambda x: topi.stack([x, x], -1), lambda a: np.stack([a, a], -1)),
    "repeat": (lambda x: topi.repeat(x, 3, -1), lambda a: a.repeat(3, -1)),
    "tile": (lambda x: topi.tile(x, (2,) * (x.ndim + 1)), lambda a: np.tile(a, (2,) * (a.ndim + 1))),
    "expand_dims": (lambda x: topi.expand_dims(x, -1, 2), lambda a: a[..., None, None]),
    "reshape": (lambda x: topi.reshape(x, (1, *x.shape, 1)), lambda a: a[None, ..., None]),
    "split": (lambda x: topi.split(x, [0], -1)[1], lambda a: a),
    "slice": (lambda x: topi.strided_slice(x, [1], [99], [2], [-1], assume_inbound=False), lambda a: a[..., 1:99:2]),
    "slice_back": (
        lambda x: topi.strided_slice(x, [-1], [-99], [-2], [-1], assume_inbound=False), lambda a: a[..., ::-2]
    ),
    "pad": (lambda x: topi.nn.pad(x, [1] * x.ndim, [2] * x.ndim, 3), lambda a: np.pad(a, (1, 2), constant_values=3)),
    "take": (lambda x: topi.take(x, topi.full((0,), "int64", 0), -1), lambda a: a[..., :0]),
    "shape": (topi.shape, lambda a: np.array(a.shape, "int32")),
    "tensor_size": (topi.tensor_size, lambda a: np.array(a.size, "int32")),
    "full_like": (lambda x: topi.full_like(x, 2), lambda a: np.full_like(a, 2)),
    "flatten": (topi.nn.flatten, lambda a: a.reshape(len(a), int(np.prod(a.shape[1:])))),
    "sort": (lambda x: topi.sort(x, -1), lambda a: np.sort(a, -1)),
    "sort_down": (lambda x: topi.sort(x, -1, False), lambda a: np.sort(a, -1)[..., ::-1]),
    "argsort": (lambda x: topi.argsort(x, dtype="int64"), lambda a: np.argsort(a, -1, kind="stable")),
    "searchsorted": (
        lambda x: topi.searchsorted(topi.arange(-3, 4, dtype=x.dtype), x), lambda a: np.searchsorted(np.arange(-3, 4), a)
    ),
}  # fmt: skip
SUMS: dict[str, Case] = {
    "cumsum": (lambda x: topi.cumsum(x, -1, x.dtype), lambda a: a.cumsum(-1, a.dtype)),
    "cumsum_before": (lambda x: topi.cumsum(x, -1, x.dtype, True), lambda a: a.cumsum(-1, a.dtype) - a),
    "cumprod": (lambda x: topi.cumprod(topi.clip(x, 1, 1)), lambda a: np.ones(a.size, a.dtype)),
    "dilate": (lambda x: topi.nn.dilate(x, [2] * x.ndim), dilated),
}
SOFT: dict[str, Case] = {
    "softmax": (topi.nn.softmax, softmax),
    "softmax_common": (lambda x: topi.nn.softmax_common(x, -1, True), softmax),
    "fast_softmax": (topi.nn.fast_softmax, softmax),
    "log_softmax": (topi.nn.log_softmax, lambda a: np.log(softmax(a))),
}


def check(case: Case, shape: tuple[int, ...], unknown: bool, dtype: str, tolerance: float = 0) -> None:
    make, reference = case
    a = rng.integers(-9, 9, shape).astype(dtype)
    found = run(make, a, shapes={0: tuple("nmk"[: a.ndim])} if unknown else None)
    expected = reference(a)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str, unknown: bool) -> None:
    for shape, dtype in zip(SHAPES, ["float32", "int8", "float16", "int64", "float64", "int32"], strict=True):
        check(MOVES[name], shape, unknown, dtype)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str, unknown: bool) -> None:
    for shape in SHAPES:
        # Dilation of nothing has no elements only where it is known that there is nothing.
        if not (name == "dilate" and 0 in shape):
            check(SUMS[name], shape, unknown, "int32" if len(shape) > 1 else "float32")


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("name", SOFT)
def test_softmax(name: str, unknown: bool) -> None:
    for shape in SHAPES:
        check(SOFT[name], shape, unknown, "float32", tolerance=1e-4 if "fast" in name or "common" in name else 1e-5)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(
    ("name", "mode"), [("mirror", "symmetric"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_pads_that_repeat_what_is_there(name: str, mode: str, unknown: bool) -> None:
    make = getattr(topi.nn, f"{name}_pad")
    for shape in [(2,), (17,), (5, 3), (1, 2, 7)]:
        before, after = [0] * (len(shape) - 1) + [1], [0] * (len(shape) - 1) + [1]
        pads = list(zip(before, after, strict=True))
        check(
            (lambda x, b=before, e=after: make(x, b, e), lambda a, p=pads: np.pad(a, p, mode=mode)),
            shape,
            unknown,
            "int16",
        )


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_resizing_from_and_to_one_element(method: str) -> None:
    torch = pytest.importorskip("torch")
    mode = {"linear": "bilinear", "cubic": "bicubic"}[method]
    for shape, size in [((1, 1, 1, 1), (4, 1)), ((2, 3, 1, 5), (1, 9)), ((1, 17, 2, 3), (1, 1))]:
        a = rng.standard_normal(shape).astype("float32")
        expected = torch.nn.functional.interpolate(torch.from_numpy(a), size, mode=mode, align_corners=False).numpy()
        for shapes in (None, {0: tuple("nchw")}):
            found = run(
                lambda x, s=size: image.resize2d(x, None, s, method=method, bicubic_alpha=-0.75), a, shapes=shapes
            )
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert run(lambda x: image.resize2d(x, None, (2, 2), method=method), np.empty((0, 3, 4, 4), "float32")).size == 0


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("method", ["nearest", "bilinear"])
def test_places_that_are_no_numbers_or_far_away_read_nothing_outside(method: str, padding: str) -> None:
    places = np.float32([0, -1, 1, 1.5, 1e30, -1e30, 3e9, np.nan, np.inf, -np.inf])
    grid = np.stack(np.meshgrid(places, places))[None]
    for shape in ((1, 1, 1, 1), (1, 2, 4, 5)):
        a = rng.standard_normal(shape).astype("float32")
        found = run(lambda x, g: image.grid_sample(x, g, method, padding_mode=padding), a, grid, interpreted=True)
        assert found.shape == (*shape[:2], len(places), len(places))
        np.testing.assert_allclose(found[..., 1, 1], a[..., 0, 0], rtol=1e-6)
        np.testing.assert_allclose(found[..., 2, 2], a[..., -1, -1], rtol=1e-6)


@pytest.mark.parametrize("unknown", [False, True])
def test_matrices(unknown: bool) -> None:
    for rows, columns in [(1, 1), (0, 3), (17, 5), (3, 17)]:
        a = rng.integers(-9, 9, (rows, columns)).astype("int32")
        shapes = {0: ("n", "m")} if unknown else None
        upper, lower = run(
            lambda x: [topi.trilu(x, tir.const(1, "int64"), True), topi.trilu(x, tir.const(-1, "int64"), False)],
            a,
            shapes=shapes,
        )
        np.testing.assert_array_equal(upper, np.triu(a, 1))
        np.testing.assert_array_equal(lower, np.tril(a, -1))
        b = rng.integers(-9, 9, (columns, 7)).astype("int32")
        shapes = {0: ("n", "k"), 1: ("k", 7)} if unknown else None
        np.testing.assert_array_equal(run(topi.matmul, a, b, shapes=shapes), a @ b)
        found = run(lambda x, y: topi.einsum("ij,jk->ki", x, y), a, b, shapes=shapes)
        np.testing.assert_array_equal(found, (a @ b).T)


@pytest.mark.parametrize("extent", [1, 2, 5])
def test_slices_of_an_unknown_extent_are_those_of_python(extent: int) -> None:
    a = np.arange(extent, dtype="int32")
    bounds = [-3, -1, 0, 1, 4]
    for step in (-2, 1):
        slices = [(b, e, step) for b in bounds for e in (*bounds, 2**31 - 1)]
        found = run(
            lambda x, slices=slices: [topi.strided_slice(x, [b], [e], [s], assume_inbound=False) for b, e, s in slices],
            a,
            shapes={0: ("n",)},
        )
        for result, (b, e, s) in zip(found, slices, strict=True):
            np.testing.assert_array_equal(result, a[b:e:s], err_msg=f"{b}:{e}:{s}")
