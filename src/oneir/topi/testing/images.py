"""Images in NumPy: resizing, sampling, blocks of space as channels or batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ...runtime.error import InvalidValue


def _source(place: int, size: int, out: int, mode: str) -> float:
    """Where an element of the result is in the data."""
    if mode == "align_corners":
        return place * (size - 1) / (out - 1) if out > 1 else 0.0
    if mode == "asymmetric":
        return place * size / out
    if mode == "half_pixel":
        return (place + 0.5) * size / out - 0.5
    raise InvalidValue(f'expected "align_corners", "asymmetric" or "half_pixel", found {mode!r}')


def _weights(size: int, out: int, method: str, mode: str) -> np.ndarray:
    """What each element of a dimension contributes to each of the result, (out, size)."""
    result = np.zeros((out, size))
    for i in range(out):
        at = _source(i, size, out, mode)
        if method == "nearest_neighbor":
            nearest = np.floor(at) if mode == "asymmetric" else np.floor(at + 0.5)
            result[i, int(np.clip(nearest, 0, size - 1))] = 1
            continue
        low = int(np.floor(at))
        part = at - low
        if method in ("linear", "bilinear", "trilinear"):
            taps = [(low, 1 - part), (low + 1, part)]
        elif method in ("cubic", "bicubic", "tricubic"):
            taps = [(low + k, _cubic(part - k)) for k in (-1, 0, 1, 2)]
        else:
            raise InvalidValue(f"there is no way of resizing {method!r}")
        for index, weight in taps:
            result[i, int(np.clip(index, 0, size - 1))] += weight
    return result


def _cubic(distance: float, alpha: float = -0.5) -> float:
    x = abs(distance)
    if x <= 1:
        return (alpha + 2) * x**3 - (alpha + 3) * x**2 + 1
    return alpha * x**3 - 5 * alpha * x**2 + 8 * alpha * x - 4 * alpha if x < 2 else 0.0


def _resize(data: np.ndarray, scale: Sequence[float], layout: str, letters: str, method: str, mode: str) -> np.ndarray:
    result = data.astype("float64")
    for letter, factor in zip(letters, scale, strict=True):
        axis = layout.index(letter)
        size = data.shape[axis]
        weights = _weights(size, round(size * factor), method, mode)
        result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
    return result.astype(data.dtype)


def resize1d_python(
    data: np.ndarray,
    scale: Sequence[float],
    layout: str = "NCW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> np.ndarray:
    """A dimension resized by a factor."""
    return _resize(data, scale, layout, "W", method, coordinate_transformation_mode)


def resize2d_python(
    data: np.ndarray,
    scale: Sequence[float],
    layout: str = "NCHW",
    method: str = "bilinear",
    coordinate_transformation_mode: str = "align_corners",
) -> np.ndarray:
    """Height and width resized by factors."""
    return _resize(data, scale, layout, "HW", method, coordinate_transformation_mode)


def resize3d_python(
    data: np.ndarray,
    scale: Sequence[float],
    layout: str = "NCDHW",
    method: str = "trilinear",
    coordinate_transformation_mode: str = "align_corners",
) -> np.ndarray:
    """Depth, height and width resized by factors."""
    return _resize(data, scale, layout, "DHW", method, coordinate_transformation_mode)


def affine_grid_python(data: np.ndarray, target_shape: Sequence[int]) -> np.ndarray:
    """Where the elements of an image of a shape are after affine maps (N, 2, 3); coordinates are -1 to 1."""
    height, width = target_shape
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    places = np.stack([x.ravel(), y.ravel(), np.ones(height * width)])
    return (data @ places).reshape(len(data), 2, height, width).astype(data.dtype)


def grid_sample_python(
    data: np.ndarray,
    grid: np.ndarray,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> np.ndarray:
    """NCHW data at the places (N, 2, H, W) of a grid, whose coordinates x and y are -1 to 1."""
    if layout != "NCHW" or method not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border"):
        raise InvalidValue(
            f"expected NCHW, bilinear or nearest, zeros or border; found {layout}, {method}, {padding_mode}"
        )
    n, channels, height, width = data.shape
    result = np.zeros((n, channels, *grid.shape[2:]), data.dtype)
    for b, y, x in np.ndindex(n, *grid.shape[2:]):
        at = []
        for coordinate, size in zip(grid[b, ::-1, y, x], (height, width), strict=True):
            scaled = (coordinate + 1) * (size - 1) / 2 if align_corners else ((coordinate + 1) * size - 1) / 2
            at.append(float(np.clip(scaled, 0, size - 1)) if padding_mode == "border" else float(scaled))
        if method == "nearest":
            taps = [(int(np.rint(at[0])), int(np.rint(at[1])), 1.0)]
        else:
            low = [int(np.floor(p)) for p in at]
            part = [p - q for p, q in zip(at, low, strict=True)]
            taps = [
                (low[0] + i, low[1] + j, (part[0] if i else 1 - part[0]) * (part[1] if j else 1 - part[1]))
                for i, j in itertools.product((0, 1), repeat=2)
            ]
        for row, column, weight in taps:
            if 0 <= row < height and 0 <= column < width:
                result[b, :, y, x] += data[b, :, row, column] * weight
    return result


def depth_to_space_python(data: np.ndarray, block_size: int, mode: str = "DCR") -> np.ndarray:
    """Channels as blocks of height and width: the outer part of channels in the mode "DCR", the inner one in "CRD"."""
    n, c, h, w = data.shape
    rest = c // block_size**2
    if mode == "DCR":
        blocks = data.reshape(n, block_size, block_size, rest, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = data.reshape(n, rest, block_size, block_size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, rest, h * block_size, w * block_size)


def space_to_depth_python(data: np.ndarray, block_size: int) -> np.ndarray:
    """Blocks of height and width as the outer part of channels."""
    n, c, h, w = data.shape
    blocks = data.reshape(n, c, h // block_size, block_size, w // block_size, block_size)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * block_size**2, h // block_size, w // block_size)


def space_to_batch_nd_python(
    data: np.ndarray,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0,
) -> np.ndarray:
    """Blocks of the dimensions after the first, padded, as the outer part of the batch."""
    count = len(block_shape)
    pads = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * (data.ndim - 1 - count)]
    padded = np.pad(data, pads, constant_values=pad_value)
    split = [padded.shape[0]]
    for i, block in enumerate(block_shape):
        split += [padded.shape[1 + i] // block, block]
    blocks = padded.reshape(*split, *padded.shape[1 + count :])
    inner, outer = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
    moved = blocks.transpose(*inner, 0, *outer, *range(2 * count + 1, blocks.ndim))
    return moved.reshape(-1, *[split[i] for i in outer], *padded.shape[1 + count :])


def batch_to_space_nd_python(
    data: np.ndarray, block_shape: Sequence[int], crop_begin: Sequence[int], crop_end: Sequence[int]
) -> np.ndarray:
    """What `space_to_batch_nd_python` undoes, and crops at both ends."""
    count = len(block_shape)
    batch = data.shape[0] // int(np.prod(block_shape))
    blocks = data.reshape(*block_shape, batch, *data.shape[1:])
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    moved = blocks.transpose(*order, *range(2 * count + 1, blocks.ndim))
    sizes = [data.shape[1 + i] * block for i, block in enumerate(block_shape)]
    whole = moved.reshape(batch, *sizes, *data.shape[1 + count :])
    kept = tuple(slice(b, n - e) for b, e, n in zip(crop_begin, crop_end, sizes, strict=True))
    return whole[(slice(None), *kept)]
