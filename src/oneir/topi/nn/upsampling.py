"""Images and volumes scaled up."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import const
from ...runtime.error import InvalidValue
from ...te.tensor import Tensor
from ...tir import op as tir_op
from ..image.resize import resize2d, resize3d
from ..index import Shape


def upsampling(
    data: Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Shape | None = None,
) -> Tensor:
    """Images NCHW (also in blocks, NCHW16c) or NHWC, `scale_h` times as high and `scale_w` times as wide.

    `method` is "nearest_neighbor", "bilinear" or "bicubic". With `align_corners` the outermost pixels stay where they
    are. `output_shape` is the shape of the result where it is known otherwise than by the scales.
    """
    size = _sizes(data, {"H": scale_h, "W": scale_w}, layout, ("NCHW", "NHWC"), output_shape, "upsampling")
    mode = "align_corners" if align_corners else "asymmetric"
    method = method.removeprefix("bi")
    return resize2d(
        data,
        [0.0] * 4,
        size,
        layout=layout,
        method=method,
        coordinate_transformation_mode=mode,
        output_shape=output_shape,
    )


def upsampling3d(
    data: Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Shape | None = None,
) -> Tensor:
    """Volumes NCDHW or NDHWC, scaled along depth, height and width; `method` is "nearest_neighbor" or "trilinear".

    `coordinate_transformation_mode` is that of `image.resize3d`.
    """
    scales = {"D": scale_d, "H": scale_h, "W": scale_w}
    size = _sizes(data, scales, layout, ("NCDHW", "NDHWC"), output_shape, "upsampling3d")
    method = method.removeprefix("tri")
    mode = coordinate_transformation_mode
    return resize3d(data, [0.0] * 6, size, layout=layout, method=method, coordinate_transformation_mode=mode)


def _sizes(
    data: Tensor, scales: dict[str, float], layout: str, layouts: tuple[str, str], shape: Shape | None, function: str
) -> list[Any]:
    """The extents of the result; `layouts` are the supported ones, with the channels first and last."""
    if layout != layouts[1] and not layout.startswith(layouts[0]):
        raise InvalidValue(f"topi.nn.{function}: expected the layout {layouts[0]} or {layouts[1]}, found {layout!r}")
    if any(scale <= 0 for scale in scales.values()):
        raise InvalidValue(f"topi.nn.{function}: expected scales above 0, found {list(scales.values())}")
    if shape:
        return [shape[layout.index(axis)] for axis in scales]
    return [_scaled(data.shape[layout.index(axis)], scale) for axis, scale in scales.items()]


def _scaled(extent: Any, scale: float) -> Any:
    if isinstance(scale, int):
        return extent * scale
    exact = tir_op.round(extent.astype("float64") * const(scale, "float64"))
    return Analyzer().simplify(ops.cast(extent.dtype, exact))
