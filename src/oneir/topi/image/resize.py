"""Images in other sizes.

Each element of the result has coordinates in the image, between its elements; the value there is that of the nearest
element or an interpolation of those around.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import IntImm, PrimExpr, as_expr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import Shape, require_ndim

_METHODS = ("nearest_neighbor", "linear", "cubic")


def can_convert_multiply_to_intdiv(origin_size: Any, scaled_size: Any) -> bool:
    """Whether multiplying an index by origin_size / scaled_size is an integer division by their whole quotient."""
    origin, scaled = as_int(origin_size), as_int(scaled_size)
    if origin is None or not isinstance(scaled_size, IntImm) or scaled is None or scaled % origin:
        return False
    # The error of the multiplication in float32 must stay below the distance of quotients.
    return scaled // origin <= 1 / (1e-5 * origin + 1e-5)


# -- layouts --


def _axes(layout: str, spatial: str) -> str:
    """The letters of a layout in order: N, C and the spatial ones. Raises `InvalidValue` for another layout.

    Channels in the second place may be followed by their blocks (16c), or by those of 'N' and 'C' (4n16c).
    """
    if not re.fullmatch(rf"N{spatial}C|NC{spatial}(\d+n\d+c|\d+c)?", layout):
        raise InvalidValue(
            f"topi.image: expected a layout such as NC{spatial}, N{spatial}C or NC{spatial}16c, found {layout!r}"
        )
    return layout[: len(spatial) + 2]


def _split(indices: Sequence[Any], layout: str, spatial: str) -> tuple[Any, Any, list[Any], list[Any]]:
    """The indices of the image, of the channel, of the spatial axes, and of the blocks."""
    axes = _axes(layout, spatial)
    by_letter = dict(zip(axes, indices, strict=False))
    return by_letter["N"], by_letter["C"], [by_letter[s] for s in spatial], list(indices[len(axes) :])


def _split_shape(data: Tensor, layout: str, spatial: str, function: str) -> tuple[Any, Any, list[Any], list[Any]]:
    """The extents of an image as `_split` sorts them."""
    _axes(layout, spatial)
    require_ndim(data, len(re.findall("[A-Za-z]", layout)), function, f"an image of layout {layout}")
    return _split(list(data.shape), layout, spatial)


def _parts(rest: list[Any]) -> tuple[Any, Any, Any]:
    """The indices cc, inum and ic as the `get_*_indices` return them."""
    if len(rest) == 2:
        return 0, *rest
    return (rest[0] if rest else None), 0, 0


def get_1d_indices(indices: Sequence[Any], layout: str = "NCW") -> tuple[Any, ...]:
    """n, c, x, and the indices of parts: cc, inum, ic."""
    n, c, (x,), rest = _split(indices, layout, "W")
    return (n, c, x, *_parts(rest))


def get_2d_indices(indices: Sequence[Any], layout: str = "NCHW") -> tuple[Any, ...]:
    """n, c, y, x, and the indices of parts: cc, inum, ic."""
    n, c, (y, x), rest = _split(indices, layout, "HW")
    return (n, c, y, x, *_parts(rest))


def get_3d_indices(indices: Sequence[Any], layout: str = "NCDHW") -> tuple[Any, ...]:
    """n, c, z, y, x, and the index of a part: cc."""
    n, c, (z, y, x), rest = _split(indices, layout, "DHW")
    return n, c, z, y, x, _parts(rest)[0]


def _pixel(
    data: Tensor, layout: str, spatial: str, extents: Sequence[Any], n: Any, c: Any, at: Sequence[Any], rest: list[Any]
) -> Any:
    """The nearest element inside of the image, as a float. Where an extent is None, the index is inside."""
    by_letter = {"N": n, "C": c}
    for letter, position, extent in zip(spatial, at, extents, strict=True):
        inside = extent is None
        by_letter[letter] = position if inside else ops.maximum(ops.minimum(position, ops.subtract(extent, 1)), 0)
    value = data(*[by_letter[a] for a in _axes(layout, spatial)], *rest)
    return ops.cast("float64" if data.dtype == "float64" else "float32", value)


def _given_parts(layout: str, cc: Any, ib: Any = 0, ic: Any = 0) -> list[Any]:
    if "n" in layout:
        return [ib, ic]
    return [cc] if "c" in layout else []


def get_1d_pixel(data: Tensor, layout: str, image_width: Any, n: Any, c: Any, x: Any, cc: Any, ib: Any, ic: Any) -> Any:
    """The element nearest to an index, as a float."""
    return _pixel(data, layout, "W", [image_width], n, c, [x], _given_parts(layout, cc, ib, ic))


def get_2d_pixel(
    data: Tensor,
    layout: str,
    image_height: Any,
    image_width: Any,
    n: Any,
    c: Any,
    y: Any,
    x: Any,
    cc: Any,
    ib: Any,
    ic: Any,
) -> Any:
    """The element nearest to indices, as a float."""
    parts = _given_parts(layout, cc, ib, ic)
    return _pixel(data, layout, "HW", [image_height, image_width], n, c, [y, x], parts)


def get_3d_pixel(
    data: Tensor,
    layout: str,
    image_depth: Any,
    image_height: Any,
    image_width: Any,
    n: Any,
    c: Any,
    z: Any,
    y: Any,
    x: Any,
    cc: Any,
) -> Any:
    """The element nearest to indices, as a float."""
    extents = [image_depth, image_height, image_width]
    return _pixel(data, layout, "DHW", extents, n, c, [z, y, x], _given_parts(layout, cc))


# -- coordinates --


def get_inx(
    x: Any,
    image_width: Any,
    target_width: Any,
    coordinate_transformation_mode: str,
    start_x: Any = 0,
    end_x: Any = -1,
    use_int_div: bool = False,
) -> Any:
    """The coordinate in the image for an index of the result, as ONNX's Resize defines the modes.

    `start_x` and `end_x` are the borders of what "tf_crop_and_resize" cuts out, in parts of the image.
    """
    image_width, target_width = as_expr(image_width), as_expr(target_width)
    image, target = ops.cast("float32", image_width), ops.cast("float32", target_width)
    scale = ops.divide(image, target)
    span = ops.cast("float32", ops.subtract(image_width, 1))
    single = as_int(target_width) == 1
    mode = coordinate_transformation_mode
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and not single):
        half = (x + 0.5) * scale - 0.5
        return half if mode == "half_pixel" else tir_op.if_then_else(ops.greater(target_width, 1), half, 0.0)
    if mode == "pytorch_half_pixel":
        return as_expr(0.0)
    if mode == "align_corners":
        return ops.multiply(0.0 if single else ops.divide(span, ops.subtract(target_width, 1)), x)
    if mode == "asymmetric":
        return tir_op.div(x, tir_op.div(target_width, image_width)) if use_int_div else ops.multiply(scale, x)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) * scale
    if mode == "tf_crop_and_resize":
        middle = ops.multiply(ops.multiply(0.5, ops.add(start_x, end_x)), span)
        if single:
            return middle
        step = ops.divide(ops.multiply(ops.multiply(x, ops.subtract(end_x, start_x)), span), target - 1.0)
        return tir_op.if_then_else(ops.greater(target_width, 1), ops.add(ops.multiply(start_x, span), step), middle)
    raise InvalidValue(f"topi.image: unknown coordinate_transformation_mode {mode!r}")


def get_closest_index(in_x: Any, rounding_method: str, boxes: Any, use_int_div: bool = False) -> Any:
    """The index nearest to a coordinate; `boxes` say that it lies in one of those, where halves go to the even one."""
    if use_int_div:
        return ops.cast("int32", in_x)
    # The coordinate of a whole number may come out slightly beside it.
    rounded = {
        "round": tir_op.round,
        "round_prefer_floor": lambda v: tir_op.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: tir_op.floor(v + 0.5),
        "floor": lambda v: tir_op.floor(v + 1e-5),
        "ceil": lambda v: tir_op.ceil(v - 1e-5),
    }
    method = "round" if boxes is not None else rounding_method
    if method not in rounded:
        raise InvalidValue(f"topi.image: expected a rounding_method of {tuple(rounded)}, found {method!r}")
    return ops.cast("int32", rounded[method](in_x))


# -- interpolation --


def _sum(values: Sequence[Any]) -> Any:
    return functools.reduce(operator.add, values)


def _cubic_weights(t: Any, alpha: float) -> list[Any]:
    """The weights of the four elements around a coordinate, which lies t behind the second of them."""
    t2, t3 = t * t, t * t * t
    return [
        alpha * (t3 - 2 * t2 + t),
        (alpha + 2) * t3 - (3 + alpha) * t2 + 1,
        -(alpha + 2) * t3 + (3 + 2 * alpha) * t2 - alpha * t,
        -alpha * t3 + alpha * t2,
    ]


@dataclass
class _Resizer:
    """What makes one element of the result.

    `extrapolation_value` stands for coordinates outside of the image; None for the nearest element.
    """

    data: Tensor
    layout: str
    spatial: str
    extents: Sequence[Any]
    out_dtype: str | None
    method: str
    rounding_method: str = ""
    alpha: float = -0.5
    exclude_outside: bool = False
    boxes: Tensor | None = None
    extrapolation_value: Any = None

    def element(self, n: Any, c: Any, coordinates: list[Any], whole: list[bool], rest: list[Any]) -> Any:
        """The value at coordinates; `whole` says of each if it is an index already, so that one element counts."""
        extents = [None if is_index else extent for extent, is_index in zip(self.extents, whole, strict=True)]

        def at(places: list[Any]) -> Any:
            return _pixel(self.data, self.layout, self.spatial, extents, n, c, places, rest)

        if self.method == "nearest_neighbor":
            value = at(
                [
                    get_closest_index(v, self.rounding_method, self.boxes, is_index)
                    for v, is_index in zip(coordinates, whole, strict=True)
                ]
            )
        else:
            lines = [
                ([v], [1.0]) if is_index else self.line(v, extent)
                for v, extent, is_index in zip(coordinates, self.extents, whole, strict=True)
            ]
            value = self.interpolated(lines, [], at)
        if self.extrapolation_value is not None:
            for v, extent in zip(coordinates, self.extents, strict=True):
                beyond = ops.greater(v, ops.subtract(extent, 1))
                value = tir_op.if_then_else(beyond, self.extrapolation_value, value)
                value = tir_op.if_then_else(ops.less(v, 0), self.extrapolation_value, value)
        return ops.cast(self.out_dtype or self.data.dtype, value)

    def line(self, coordinate: Any, extent: Any) -> tuple[list[Any], list[Any]]:
        """The indices around a coordinate, and their weights."""
        low = tir_op.floor(coordinate)
        first = ops.cast("int32", low)
        if self.method == "linear":
            behind = ops.subtract(coordinate, first)
            return [first, first + 1], [ops.subtract(1.0, behind), behind]
        weights = _cubic_weights(ops.subtract(coordinate, low), self.alpha)
        places = [first + i - 1 for i in range(4)]
        if self.exclude_outside:
            weights = [
                tir_op.if_then_else(tir_op.any(ops.less(p, 0), ops.greater_equal(p, extent)), 0.0, w)
                for p, w in zip(places, weights, strict=True)
            ]
            total = _sum(weights)
            weights = [ops.divide(w, total) for w in weights]
        return places, weights

    def interpolated(self, lines: list[tuple[list[Any], list[Any]]], chosen: list[Any], at: Any) -> Any:
        """The weighted sum over the first of the axes that are left, of those over the others."""
        if not lines:
            return at(chosen)
        (places, weights), *inner = lines
        values = [self.interpolated(inner, [*chosen, place], at) for place in places]
        return _sum([ops.multiply(v, w) for v, w in zip(values, weights, strict=True)])


KEEPS_INDICES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
"""The modes in which an axis that keeps its extent keeps its elements."""


def _resize(
    data: Tensor,
    roi: Sequence[Any],
    size: Sequence[Any],
    spatial: str,
    layout: str,
    method: str,
    mode: str,
    rounding_method: str,
    bicubic_alpha: float,
    bicubic_exclude: int,
    extrapolation_value: Any,
    out_dtype: str | None,
    output_shape: Shape | None,
) -> Tensor:
    count = len(spatial)
    function = f"image.resize{count}d"
    n, c, extents, rest = _split_shape(data, layout, spatial, function)
    method = method.lower()
    if method not in _METHODS:
        raise InvalidValue(f"topi.{function}: expected a method of {_METHODS}, found {method!r}")
    if len(size) != count:
        raise InvalidValue(f"topi.{function}: expected {count} sizes, found {len(size)}")
    rounding_method = rounding_method or ("round" if mode == "align_corners" else "floor")
    outside = extrapolation_value if mode == "tf_crop_and_resize" else None
    resizer = _Resizer(
        data,
        layout,
        spatial,
        extents,
        out_dtype,
        method,
        rounding_method,
        bicubic_alpha,
        bool(bicubic_exclude),
        extrapolation_value=outside,
    )
    targets = [as_expr(s) for s in size]
    may_divide = method == "nearest_neighbor" and mode == "asymmetric" and count == 2
    divides = [may_divide and can_convert_multiply_to_intdiv(e, t) for e, t in zip(extents, targets, strict=True)]
    kept = [mode in KEEPS_INDICES and ops.same_expr(as_expr(e), t) for e, t in zip(extents, targets, strict=True)]
    whole = [a or b for a, b in zip(divides, kept, strict=True)]
    borders = list(roi) if roi else [0.0] * (2 * count)

    def element(*i: PrimExpr) -> Any:
        image, channel, places, parts = _split(i, layout, spatial)
        coordinates = [
            places[d]
            if kept[d]
            else get_inx(places[d], extents[d], targets[d], mode, borders[d], borders[d + count], divides[d])
            for d in range(count)
        ]
        return resizer.element(image, channel, coordinates, whole, parts)

    if output_shape is None:
        by_letter = {"N": n, "C": c, **dict(zip(spatial, targets, strict=True))}
        output_shape = [*(by_letter[a] for a in _axes(layout, spatial)), *rest]
    return te.compute(output_shape, element, name="resize", tag=tag.INJECTIVE)


def resize1d(
    data: Tensor,
    roi: Sequence[Any],
    size: Sequence[Any],
    layout: str = "NCW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0,
    extrapolation_value: Any = 0.0,
    out_dtype: str | None = None,
    output_shape: Shape | None = None,
) -> Tensor:
    """Signals with another number of samples; see `resize2d`."""
    mode = coordinate_transformation_mode
    options = (rounding_method, bicubic_alpha, bicubic_exclude, extrapolation_value, out_dtype, output_shape)
    return _resize(data, roi, size, "W", layout, method, mode, *options)


def resize2d(
    data: Tensor,
    roi: Sequence[Any],
    size: Sequence[Any],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0,
    extrapolation_value: Any = 0.0,
    out_dtype: str | None = None,
    output_shape: Shape | None = None,
) -> Tensor:
    """Images of another height and width.

    `method` is "nearest_neighbor", "linear" or "cubic". `coordinate_transformation_mode` and `rounding_method` mean
    what they do in ONNX's Resize; "tf_crop_and_resize" takes the part of the image between the starts and then the ends
    in `roi`, from 0 to 1, and `extrapolation_value` outside of the image. `bicubic_alpha` is the cubic's coefficient;
    with `bicubic_exclude`, elements outside of the image have no weight. The result has `out_dtype`, by default the
    dtype of the data.
    """
    mode = coordinate_transformation_mode
    options = (rounding_method, bicubic_alpha, bicubic_exclude, extrapolation_value, out_dtype, output_shape)
    return _resize(data, roi, size, "HW", layout, method, mode, *options)


def resize3d(
    data: Tensor,
    roi: Sequence[Any],
    size: Sequence[Any],
    layout: str = "NCDHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0,
    extrapolation_value: Any = 0.0,
    out_dtype: str | None = None,
    output_shape: Shape | None = None,
) -> Tensor:
    """Volumes of another depth, height and width; see `resize2d`."""
    mode = coordinate_transformation_mode
    options = (rounding_method, bicubic_alpha, bicubic_exclude, extrapolation_value, out_dtype, output_shape)
    return _resize(data, roi, size, "DHW", layout, method, mode, *options)


def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Sequence[Any],
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: Any = None,
    out_dtype: str | None = None,
) -> Tensor:
    """Parts of images in one size: for each box y1, x1, y2, x2, from 0 to 1, of the image `box_indices[box]`.

    `method` is "bilinear" or "nearest_neighbor"; `extrapolation_value`, 0 unless given, stands for what lies outside of
    the image.
    """
    methods = {"bilinear": "linear", "nearest_neighbor": "nearest_neighbor"}
    if method.lower() not in methods:
        raise InvalidValue(f"topi.image.crop_and_resize: expected a method of {tuple(methods)}, found {method!r}")
    if boxes.ndim != 2 or as_int(boxes.shape[1]) not in (4, None):
        raise ShapeMismatch(f"topi.image.crop_and_resize: expected boxes of shape (n, 4), found {list(boxes.shape)}")
    _, c, extents, rest = _split_shape(data, layout, "HW", "image.crop_and_resize")
    outside = 0.0 if extrapolation_value is None else extrapolation_value
    resizer = _Resizer(
        data, layout, "HW", extents, out_dtype, methods[method.lower()], boxes=boxes, extrapolation_value=outside
    )

    def element(*i: PrimExpr) -> Any:
        box, channel, places, parts = _split(i, layout, "HW")
        coordinates = []
        for d in range(2):
            start, end = boxes(box, d), boxes(box, d + 2)
            span, target = ops.cast("float32", ops.subtract(extents[d], 1)), as_int(crop_size[d])
            if target == 1:
                coordinates.append(0.5 * (start + end) * span)
                continue
            scale = ops.divide(span * (end - start), ops.cast("float32", ops.subtract(as_expr(crop_size[d]), 1)))
            coordinates.append(start * span + scale * places[d])
        return resizer.element(box_indices(box), channel, coordinates, [False, False], parts)

    by_letter = {"N": box_indices.shape[0], "C": c, "H": crop_size[0], "W": crop_size[1]}
    output_shape = [*(by_letter[a] for a in _axes(layout, "HW")), *rest]
    return te.compute(output_shape, element, name="crop_and_resize", tag=tag.INJECTIVE)
