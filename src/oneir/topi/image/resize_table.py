"""Resizing as ONNX defines it: which elements of a dimension each new element is the weighted sum of.

Where sizes are known only when a program runs, it asks for these tables then (`RESIZE_TABLE`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...runtime.error import UnsupportedError
from ...runtime.object import ShapeTuple
from ...runtime.registry import register_func
from ...runtime.tensor import Tensor, tensor
from .cubic import far_weight, near_weight


@dataclass
class Resizing:
    """How an image is resized; the words are those of ONNX."""

    mode: str
    transformation: str
    rounding: str
    alpha: float = -0.75
    exclude: int = 0
    outside: float = 0.0
    antialias: int = 0
    crop: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Of tf_crop_and_resize, the parts of dimensions that are resized."""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise UnsupportedError(f"expected a mode of {', '.join(_MODES)}, found {self.mode!r}")


_MODES = ("nearest", "linear", "cubic")


def linear_weights(distance: np.ndarray) -> np.ndarray:
    """The weights of linear interpolation by the distance of an element."""
    return np.maximum(1 - np.abs(distance), 0)


def cubic_weights(distance: np.ndarray, a: float) -> np.ndarray:
    """The weights of cubic convolution by the distance of an element."""
    d = np.abs(distance)
    return np.where(d <= 1, near_weight(d, a), np.where(d < 2, far_weight(d, a), 0.0))


def coordinates(old: int, new: int, factor: float, options: Resizing, crop: tuple[float, float]) -> np.ndarray:
    """The source coordinate of each new element of a dimension; `crop` is the part of it that is resized."""
    at = np.arange(new, dtype=np.float64)
    mode, length = options.transformation, factor * old
    if mode == "asymmetric":
        return at / factor
    if mode == "align_corners":
        return at * (old - 1) / (length - 1) if new > 1 else np.zeros(new)
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / factor - 0.5 if new > 1 else np.zeros(new)
    if mode == "half_pixel":
        return (at + 0.5) / factor - 0.5
    if mode == "half_pixel_symmetric":
        adjustment = new / length
        return (old / 2) * (1 - adjustment) + (at + 0.5) / factor - 0.5
    if mode == "tf_crop_and_resize":
        start, end = crop
        if new > 1:
            return start * (old - 1) + at * (end - start) * (old - 1) / (length - 1)
        return np.full(new, 0.5 * (start + end) * (old - 1))
    raise UnsupportedError(f"the coordinate_transformation_mode {mode!r}")


def _nearest(places: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "floor":
        return np.floor(places)
    if rounding == "ceil":
        return np.ceil(places)
    if rounding == "round_prefer_floor":
        return np.ceil(places - 0.5)
    if rounding == "round_prefer_ceil":
        return np.floor(places + 0.5)
    raise UnsupportedError(f"the nearest_mode {rounding!r}")


def sources(places: np.ndarray, old: int, factor: float, options: Resizing) -> tuple[np.ndarray, np.ndarray | None]:
    """The indices of the elements that each new element is the sum of, a row for each, and their weights, if not 1."""
    if options.mode == "nearest":
        return np.clip(_nearest(places, options.rounding), 0, old - 1).astype(np.int64)[:, None], None
    narrow = min(factor, 1.0) if options.antialias else 1.0
    radius = math.ceil((2.0 if options.mode == "cubic" else 1.0) / narrow)
    count, first = 2 * radius, np.floor(places) - radius + 1
    index = first[:, None] + np.arange(count)
    distance = (index - places[:, None]) * narrow
    weights = cubic_weights(distance, options.alpha) if options.mode == "cubic" else linear_weights(distance)
    if options.exclude or options.antialias:
        if options.exclude:
            weights = np.where((index >= 0) & (index < old), weights, 0.0)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(index, 0, old - 1).astype(np.int64), weights


def fitting_factor(old: Sequence[int], wanted: Sequence[int], policy: str) -> float | None:
    """The one factor of all dimensions that keeps proportions: the largest whose result is "not_larger" than wanted, or
    the smallest whose result is "not_smaller"; None for "stretch", which does not keep them.
    """
    if policy == "stretch":
        return None
    factors = [new / extent for new, extent in zip(wanted, old, strict=True)]
    return min(factors) if policy == "not_larger" else max(factors)


def rounded_size(extent: int, factor: float) -> int:
    """An extent times a factor, rounded."""
    return math.floor(factor * extent + 0.5)


RESIZE_TABLE = "oneir.topi.image.resize_table"
"""The function that makes the tables of one dimension when a program runs."""


@register_func(RESIZE_TABLE)
def _table(options: str, old: ShapeTuple, numbers: Tensor, roi: Tensor) -> list[Tensor]:
    """The indices of elements (new extent, elements of a sum), their weights, and what is inside of the image (new
    extent,). `old` are the extents of the dimensions that are resized, `numbers` their sizes or factors.
    """
    dim, by_size, policy, *words = json.loads(options)
    resizing = Resizing(*words)
    given = numbers.numpy()
    if len(given) != len(old):
        raise UnsupportedError(f"expected a number for each of {len(old)} dimensions that are resized, found {given}")
    extent = int(old[dim])
    factor = fitting_factor(old, given.tolist(), policy) if by_size else float(given[dim])
    if factor is None:
        new = int(given[dim])
        factor = new / extent
    else:
        new = rounded_size(extent, factor) if by_size else math.floor(extent * factor)
    parts = roi.numpy().astype("float64")
    crop = (float(parts[dim]), float(parts[len(old) + dim])) if len(parts) else (0.0, 1.0)
    places = coordinates(extent, new, factor, resizing, crop)
    indices, weights = sources(places, extent, factor, resizing)
    inside = (
        (places >= 0) & (places <= extent - 1) if resizing.transformation == "tf_crop_and_resize" else places == places
    )
    return [
        tensor(indices),
        tensor(np.ones(indices.shape, "float32") if weights is None else weights.astype("float32")),
        tensor(inside),
    ]
