"""Regions of images in NumPy: regions of interest, windows displaced by offsets, patches that are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.error import InvalidValue

_Pair = int | Sequence[int]


def _pair(value: _Pair) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, second = value
    return first, second


def _between(plane: np.ndarray, y: float, x: float) -> np.ndarray:
    """What lies at (y, x) of an array (..., height, width), interpolated; beyond the last pixels it is those."""
    height, width = plane.shape[-2:]
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, across = y - top, x - left
    above = plane[..., top, left] * (1 - across) + plane[..., top, right] * across
    below = plane[..., bottom, left] * (1 - across) + plane[..., bottom, right] * across
    return above * (1 - down) + below * down


def roi_align_nchw_python(
    a_np: np.ndarray,
    rois_np: np.ndarray,
    pooled_size: _Pair,
    spatial_scale: float,
    sample_ratio: int,
    mode: str | bytes | int = b"avg",
) -> np.ndarray:
    """The mean or the maximum of interpolated samples in each cell of each region: (regions, C, pooled H, pooled W).

    Data is (N, C, H, W), a region (image, x1, y1, x2, y2) in units of `spatial_scale` pixels, at least one pixel wide.
    A cell has `sample_ratio` samples in each direction, as many as it has pixels, rounded up, if that is not positive.
    Up to one pixel outside of the image a sample is that of the border, and 0 farther off. `mode` is "avg" (0) or
    "max" (1).
    """
    reductions = {b"avg": np.mean, "avg": np.mean, 0: np.mean, b"max": np.max, "max": np.max, 1: np.max}
    if mode not in reductions:
        raise InvalidValue(f'expected the mode "avg" or "max", found {mode!r}')
    height, width = a_np.shape[2:]
    rows, columns = _pair(pooled_size)
    result = np.zeros((len(rois_np), a_np.shape[1], rows, columns), a_np.dtype)
    for r, (image, *corners) in enumerate(rois_np):
        x1, y1, x2, y2 = (float(c) * spatial_scale for c in corners)
        cell_h, cell_w = max(y2 - y1, 1.0) / rows, max(x2 - x1, 1.0) / columns
        down = sample_ratio if sample_ratio > 0 else math.ceil(cell_h)
        across = sample_ratio if sample_ratio > 0 else math.ceil(cell_w)
        for i, j in np.ndindex(rows, columns):
            samples = []
            for a, b in np.ndindex(down, across):
                y = y1 + (i + (a + 0.5) / down) * cell_h
                x = x1 + (j + (b + 0.5) / across) * cell_w
                if -1 <= y <= height and -1 <= x <= width:
                    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
                    samples.append(_between(a_np[int(image)], y, x))
                else:
                    samples.append(np.zeros(a_np.shape[1]))
            result[r, :, i, j] = reductions[mode](samples, axis=0)
    return result


def roi_align_nhwc_python(
    a_np: np.ndarray,
    rois_np: np.ndarray,
    pooled_size: _Pair,
    spatial_scale: float,
    sample_ratio: int,
    mode: str | bytes | int = b"avg",
) -> np.ndarray:
    """As `roi_align_nchw_python`, of data (N, H, W, C): (regions, pooled H, pooled W, C)."""
    data = a_np.transpose(0, 3, 1, 2)
    found = roi_align_nchw_python(data, rois_np, pooled_size, spatial_scale, sample_ratio, mode)
    return found.transpose(0, 2, 3, 1)


def roi_pool_nchw_python(a_np: np.ndarray, rois_np: np.ndarray, pooled_size: _Pair, spatial_scale: float) -> np.ndarray:
    """The maximum of the pixels in each cell of each region: (regions, C, pooled H, pooled W).

    Data is (N, C, H, W), a region (image, x1, y1, x2, y2) in units of `spatial_scale` pixels; its corners are rounded
    to pixels, which both belong to it. Cells overlap where the region does not divide evenly; empty ones are 0.
    """
    height, width = a_np.shape[2:]
    rows, columns = _pair(pooled_size)
    result = np.zeros((len(rois_np), a_np.shape[1], rows, columns), a_np.dtype)

    def cells(first: int, last: int, count: int, extent: int) -> list[slice]:
        size = max(last - first + 1, 1)
        starts = [first + i * size // count for i in range(count)]
        ends = [first - (-(i + 1) * size // count) for i in range(count)]
        return [slice(min(max(s, 0), extent), min(max(e, 0), extent)) for s, e in zip(starts, ends, strict=True)]

    for r, (image, *corners) in enumerate(rois_np):
        x1, y1, x2, y2 = (round(float(c) * spatial_scale) for c in corners)
        for i, vertical in enumerate(cells(y1, y2, rows, height)):
            for j, horizontal in enumerate(cells(x1, x2, columns, width)):
                cell = a_np[int(image), :, vertical, horizontal]
                if cell.size:
                    result[r, :, i, j] = cell.max(axis=(1, 2))
    return result


def crop_and_resize_python(
    image: np.ndarray,
    boxes: np.ndarray,
    box_indices: Sequence[int] | np.ndarray,
    crop_size: Sequence[int],
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
) -> np.ndarray:
    """Parts of images in one size: for each box (y1, x1, y2, x2), from 0 to 1, of the image `box_indices[box]`.

    `layout` is "NCHW" or "NHWC", also of the result, `method` "bilinear" or "nearest_neighbor". What lies outside of
    the image is `extrapolation_value`; a crop of one row or column is the middle of its box.
    """
    if layout not in ("NCHW", "NHWC"):
        raise InvalidValue(f'expected the layout "NCHW" or "NHWC", found {layout!r}')
    if method not in ("bilinear", "nearest_neighbor"):
        raise InvalidValue(f'expected the method "bilinear" or "nearest_neighbor", found {method!r}')
    data = image if layout == "NCHW" else image.transpose(0, 3, 1, 2)
    extents = data.shape[2:]
    result = np.full((len(boxes), data.shape[1], *crop_size), extrapolation_value, image.dtype)

    def places(start: float, end: float, count: int, extent: int) -> np.ndarray:
        return (
            np.linspace(start, end, count) * (extent - 1) if count > 1 else np.array([(start + end) / 2 * (extent - 1)])
        )

    for box, ((y1, x1, y2, x2), index) in enumerate(zip(boxes, box_indices, strict=True)):
        for i, y in enumerate(places(y1, y2, crop_size[0], extents[0])):
            for j, x in enumerate(places(x1, x2, crop_size[1], extents[1])):
                if not (0 <= y <= extents[0] - 1 and 0 <= x <= extents[1] - 1):
                    continue
                if method == "nearest_neighbor":
                    y, x = math.floor(y + 0.5), math.floor(x + 0.5)
                result[box, :, i, j] = _between(data[index], y, x)
    return result if layout == "NCHW" else result.transpose(0, 2, 3, 1)


def deformable_conv2d_nchw_python(
    a_np: np.ndarray,
    offset_np: np.ndarray,
    w_np: np.ndarray,
    stride: _Pair,
    padding: _Pair,
    dilation: _Pair,
    deformable_groups: int,
    groups: int,
) -> np.ndarray:
    """The convolution of data (N, C, H, W) with a kernel (O, C / groups, H, W), its window displaced by offsets.

    `offset_np` is (N, deformable groups * kernel H * kernel W * 2, out H, out W), the rows of each element of the
    window before its columns. Between pixels the data is interpolated; outside of it is 0.
    """
    (down, across), (before, left), (apart_h, apart_w) = _pair(stride), _pair(padding), _pair(dilation)
    batch, channels, height, width = a_np.shape
    outputs, _, kernel_h, kernel_w = w_np.shape
    if channels % deformable_groups:
        raise InvalidValue(f"{channels} channels do not divide into {deformable_groups} deformable groups")
    out_h, out_w = offset_np.shape[2:]
    # Zeros on all sides: pixels beside the border take part in interpolating.
    padded = np.pad(a_np, ((0, 0), (0, 0), (1, 1), (1, 1)))
    parts = padded.reshape(batch, deformable_groups, -1, height + 2, width + 2)
    moves = offset_np.reshape(batch, deformable_groups, kernel_h, kernel_w, 2, out_h, out_w)
    windows = np.zeros((*parts.shape[:3], kernel_h, kernel_w, out_h, out_w))
    for n, g, kh, kw, i, j in np.ndindex(batch, deformable_groups, kernel_h, kernel_w, out_h, out_w):
        move = moves[n, g, kh, kw, :, i, j]
        y = i * down - before + kh * apart_h + float(move[0])
        x = j * across - left + kw * apart_w + float(move[1])
        if -1 < y < height and -1 < x < width:
            windows[n, g, :, kh, kw, i, j] = _between(parts[n, g], y + 1, x + 1)
    windows = windows.reshape(batch, groups, -1, kernel_h, kernel_w, out_h, out_w)
    weights = w_np.reshape(groups, outputs // groups, -1, kernel_h, kernel_w)
    return np.einsum("ngchwij,gochw->ngoij", windows, weights).reshape(batch, outputs, out_h, out_w).astype(a_np.dtype)


def deformable_conv2d_nhwc_python(
    a_np: np.ndarray,
    offset_np: np.ndarray,
    w_np: np.ndarray,
    stride: _Pair,
    padding: _Pair,
    dilation: _Pair,
    deformable_groups: int,
    groups: int,
) -> np.ndarray:
    """As `deformable_conv2d_nchw_python`, of data and offsets with the channels last and a kernel (H, W, C, O)."""
    data, offset, kernel = a_np.transpose(0, 3, 1, 2), offset_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1)
    found = deformable_conv2d_nchw_python(data, offset, kernel, stride, padding, dilation, deformable_groups, groups)
    return found.transpose(0, 2, 3, 1)


def correlation_nchw_python(
    data1: np.ndarray,
    data2: np.ndarray,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: int,
    is_multiply: bool,
) -> np.ndarray:
    """The means over channels and patches of products of two images (N, C, H, W), a channel for each displacement.

    Patches of the first are `kernel_size` wide and `stride1` apart; those of the second are displaced by up to
    `max_displacement`, in steps of `stride2`. Without `is_multiply` it is absolute differences, not products.
    """
    around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    first, second = np.pad(data1, around), np.pad(data2, around)
    border = max_displacement + (kernel_size - 1) // 2
    height, width = (-(-(extent - 2 * border) // stride1) for extent in first.shape[2:])
    if min(height, width) < 1:
        raise InvalidValue(f"images of {data1.shape[2:]} are too small for displacements of {max_displacement}")
    radius = max_displacement // stride2
    moves = [move * stride2 for move in range(-radius, radius + 1)]
    result = np.zeros((len(data1), len(moves) ** 2, height, width), data1.dtype)

    def patch(data: np.ndarray, y: int, x: int) -> np.ndarray:
        return data[:, :, y : y + kernel_size, x : x + kernel_size]

    for q, i, j in np.ndindex(result.shape[1:]):
        y, x = i * stride1 + max_displacement, j * stride1 + max_displacement
        left = patch(first, y, x)
        right = patch(second, y + moves[q // len(moves)], x + moves[q % len(moves)])
        result[:, q, i, j] = (left * right if is_multiply else abs(left - right)).mean(axis=(1, 2, 3))
    return result


def reorg_python(a_np: np.ndarray, stride: int) -> np.ndarray:
    """Blocks of space as channels, as Darknet orders them: (N, C, H, W) to (N, C * stride^2, H / stride, W / stride).

    The data is read as (N, C / stride^2, H * stride, W * stride), whose blocks of stride x stride are spread over the
    channels, and the result of the data's shape as one of the shape that is returned.
    """
    batch, channels, height, width = a_np.shape
    if channels % stride**2 or height % stride or width % stride:
        raise InvalidValue(f"data of shape {a_np.shape} has no blocks of {stride} x {stride} for each channel")
    blocks = a_np.reshape(batch, channels // stride**2, height, stride, width, stride)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(batch, channels * stride**2, height // stride, width // stride)
