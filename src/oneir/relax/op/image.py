"""Operators of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import topi
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue
from ...tir.data_layout import Layout
from ...topi.image.cubic import cubic_weights
from ...topi.image.resize import KEEPS_INDICES
from ..expr import Call, Expr, ShapeExpr
from ..operator_facts import OpPattern
from ..struct_info import VOID, StructInfo, TensorStructInfo, as_dtype
from . import reference as numerics
from .arguments import shape_value
from .infer_layout import window_layouts
from .inference import fail, shape_argument, tensor_argument
from .nn.layout import from_layout, in_layout
from .op_attrs import Resize2DAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.image.resize2d", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=Resize2DAttrs)
def resize2d(
    data: Expr,
    size: Any,
    roi: float | tuple[float, ...] | None = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Call:
    """Images in another height and width, `size`; a single number is for both.

    `method` is "nearest_neighbor", "linear" or "cubic". `coordinate_transformation_mode` and `rounding_method` mean
    what they do in ONNX's Resize; "tf_crop_and_resize" takes the part between the starts and the ends in `roi`, from 0
    to 1, with `extrapolation_value` outside of the image. `cubic_alpha` is the cubic's coefficient; with
    `cubic_exclude`, elements outside of the image have no weight.
    """
    if method not in ("nearest_neighbor", "linear", "cubic"):
        raise InvalidValue(
            f'relax.image.resize2d: expected the method "nearest_neighbor", "linear" or "cubic", found {method!r}'
        )
    if isinstance(size, (int, PrimExpr)):
        size = (size, size)
    elif isinstance(size, (list, tuple)) and len(size) == 1:
        size = (size[0], size[0])
    region = [float(roi or 0.0)] * 4 if roi is None or isinstance(roi, (int, float)) else [float(r) for r in roi]
    if len(region) != 4:
        raise InvalidValue(f"relax.image.resize2d: expected a region of 4 numbers, found {region}")
    return resize2d.call(
        data,
        shape_value(size),
        roi=region,
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method=rounding_method,
        cubic_alpha=float(cubic_alpha),
        cubic_exclude=int(cubic_exclude),
        extrapolation_value=float(extrapolation_value),
        out_dtype=as_dtype(out_dtype),
    )


resize2d.follow_precision()
resize2d.infer_layout(window_layouts("layout"))


@resize2d.struct_info
def _resize2d_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, size = tensor_argument(call, 0, "data"), shape_argument(call, 1)
    if size.ndim not in (2, -1):
        raise fail(call, f"the size must be a height and a width, found {size.ndim} extents")
    if any((as_int(extent) or 0) < 0 for extent in size.values or ()):
        raise fail(call, f"the size must be of at least 0, found {list(size.values or ())}")
    layout, dtype = call.attrs["layout"], call.attrs["out_dtype"]
    dtype = info.dtype if dtype == VOID else dtype
    extents = in_layout(call, info, layout, "NCHW", "data")
    if extents is None or size.values is None:
        return TensorStructInfo(None, dtype, info.vdevice, len(Layout(layout)))
    shape = from_layout(call, [*extents[:2], *size.values], layout, "NCHW", "data")
    return TensorStructInfo(shape, dtype, info.vdevice)


@resize2d.legalize_as
def _legalize_resize2d(builder: BlockBuilder, call: Call) -> Expr:
    size = shape_argument(call, 1).values
    if size is None:
        raise fail(call, f"the size `{call.args[1]}` is not known; cast it with match_cast")
    info, data = tensor_argument(call, 0, "data"), call.args[0]
    rows = _size_of_rows(call, info.extents, size)
    if rows is not None:
        data = builder.emit(_resized(builder, call, data, rows, "float64" if info.dtype == "float64" else "float32"))
    return _resized(builder, call, data, size, call.struct_info.dtype)


def _size_of_rows(call: Call, extents: Sequence[Any] | None, size: Sequence[Any]) -> list[int] | None:
    """The size after a first step that interpolates along rows; None where one step does both.

    There are fewer rows to do so for if the image becomes higher, and the second step has whole rows for vectors.
    """
    attrs = call.attrs
    separable = attrs["method"] != "nearest_neighbor" and attrs["coordinate_transformation_mode"] in KEEPS_INDICES
    if not separable or attrs["layout"] != "NCHW" or extents is None:
        return None
    (height, width), (new_height, new_width) = ([as_int(n) for n in pair] for pair in (extents[2:], size))
    if height is None or width is None or new_height is None or new_width is None:
        return None
    return [height, new_width] if new_height > height and new_width != width else None


def _resized(builder: BlockBuilder, call: Call, data: Expr, size: Sequence[Any], dtype: Any) -> Call:
    attrs = call.attrs
    return builder.call_te(
        topi.image.resize2d,
        data,
        roi=attrs["roi"],
        size=ShapeExpr(size),
        layout=attrs["layout"],
        method=attrs["method"],
        coordinate_transformation_mode=attrs["coordinate_transformation_mode"],
        rounding_method=attrs["rounding_method"],
        bicubic_alpha=attrs["cubic_alpha"],
        bicubic_exclude=attrs["cubic_exclude"],
        extrapolation_value=attrs["extrapolation_value"],
        out_dtype=dtype,
        primfunc_name_hint="resize2d",
    )


# -- the reference: a matrix of weights along each axis --


def _coordinate(mode: str, x: int, size: int, out: int, start: float, end: float) -> float:
    """Where in an axis of `size` elements element x of `out` lies."""
    scale = np.float32(size / out)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and out > 1):
        return float((np.float32(x) + np.float32(0.5)) * scale - np.float32(0.5))
    if mode == "align_corners":
        return x * (size - 1) / (out - 1) if out > 1 else 0.0
    if mode == "asymmetric":
        return float(np.float32(x) * scale)
    if mode == "tf_half_pixel_for_nn":
        return float((np.float32(x) + np.float32(0.5)) * scale)
    if mode == "tf_crop_and_resize":
        span = x * (end - start) * (size - 1) / (out - 1) if out > 1 else 0.5 * (end - start) * (size - 1)
        return start * (size - 1) + span
    return 0.0


def _nearest(x: float, rounding: str) -> int:
    rules = {
        "round": np.rint,
        "round_prefer_floor": lambda v: math.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: math.floor(v + 0.5),
        "floor": lambda v: math.floor(v + 1e-5),
        "ceil": lambda v: math.ceil(v - 1e-5),
    }
    return int(rules[rounding](x))


def _weights(size: int, out: int, start: float, end: float, attrs: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The weight of each element for each result, and which results lie inside."""
    mode, method = attrs["coordinate_transformation_mode"], attrs["method"]
    rounding = attrs["rounding_method"] or ("round" if mode == "align_corners" else "floor")
    matrix, inside = np.zeros((out, size)), np.ones(out, bool)
    for row in range(out):
        x = _coordinate(mode, row, size, out, start, end)
        if mode == "tf_crop_and_resize":
            inside[row] = 0 <= x <= size - 1
        whole = mode == "asymmetric" and out % size == 0
        # A whole factor repeats each element, whatever the rounding.
        nearest = row // (out // size) if whole else _nearest(x, rounding)
        base = nearest if method == "nearest_neighbor" else math.floor(x)
        taps = {"nearest_neighbor": [1.0], "linear": [1 - (x - base), x - base]}.get(method)
        first = base
        if taps is None:
            taps, first = cubic_weights(x - base, attrs["cubic_alpha"]), base - 1
            if attrs["cubic_exclude"]:
                taps = [w if 0 <= first + i < size else 0.0 for i, w in enumerate(taps)]
                taps = [w / sum(taps) for w in taps]
        for i, w in enumerate(taps):
            matrix[row, min(max(first + i, 0), size - 1)] += w
    return matrix, inside


@resize2d.reference
def _resize2d_reference(data: np.ndarray, size: Any, **attrs: Any) -> np.ndarray:
    layout, roi = attrs["layout"], attrs["roi"]
    x = np.transpose(data, [layout.index(c) for c in "NCHW"]).astype(np.float64)
    rows, row_inside = _weights(x.shape[2], size[0], roi[0], roi[2], attrs)
    columns, column_inside = _weights(x.shape[3], size[1], roi[1], roi[3], attrs)
    result = np.einsum("yh,nchw,xw->ncyx", rows, x, columns)
    result = np.where(row_inside[:, None] & column_inside, result, attrs["extrapolation_value"])
    dtype = numerics.dtype_or(attrs["out_dtype"], data.dtype)
    return np.transpose(result, ["NCHW".index(c) for c in layout]).astype(dtype)
