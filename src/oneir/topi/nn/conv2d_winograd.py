"""Convolutions of two dimensions by Winograd's algorithm: kernels of 3 x 3, stride 1, output tiles of 4 x 4."""

from __future__ import annotations

from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ..index import Padding, Sizes, require_int, require_ndim, shape_text
from .pad import pad
from .window import output_extent, padding_of, per_dimension
from .winograd_util import winograd_transform_matrices

_TILE = 4
_KERNEL = 3
_ALPHA = _TILE + _KERNEL - 1


def conv2d_winograd_weight_transform(kernel: Tensor, tile_size: int) -> Tensor:
    """A kernel OIHW transformed for output tiles of `tile_size`: (alpha, alpha, O, I), alpha = tile + kernel - 1."""
    function = "nn.conv2d_winograd_weight_transform"
    require_ndim(kernel, 4, function, "kernel")
    outputs, inputs, *extents = kernel.shape
    height, width = (require_int(e, function, "the extents of the kernel") for e in extents)
    if height != width:
        raise ShapeMismatch(f"topi.{function}: expected a square kernel, found the shape {shape_text(kernel.shape)}")
    _, _, g = winograd_transform_matrices(tile_size, width, kernel.dtype)
    r_kh, r_kw = _window_axes(width)
    alpha = tile_size + width - 1
    return te.compute(
        (alpha, alpha, outputs, inputs),
        lambda eps, nu, co, ci: te.sum(kernel(co, ci, r_kh, r_kw) * g(eps, r_kh) * g(nu, r_kw), axis=[r_kh, r_kw]),
        name="transform_weight",
    )


def _window_axes(kernel: int) -> tuple[Any, Any]:
    return te.reduce_axis((0, kernel), name="r_kh"), te.reduce_axis((0, kernel), name="r_kw")


def _tile_axes() -> tuple[Any, Any]:
    return te.reduce_axis((0, _ALPHA), "r_a"), te.reduce_axis((0, _ALPHA), "r_b")


class _Tiles:
    """How the output divides into tiles, and how the data must be padded for it."""

    def __init__(self, extents: list[Any], strides: Sizes, padding: Padding, dilation: Sizes, function: str):
        for value, what in ((strides, "stride"), (dilation, "dilation")):
            found = per_dimension(value, 2, function, what)
            if [as_int(v) for v in found] != [1, 1]:
                raise InvalidValue(f"topi.nn.{function}: expected a {what} of 1, found {[as_int(v) for v in found]}")
        self.before, self.after = padding_of(padding, [_KERNEL, _KERNEL], function)
        sizes = zip(extents, self.before, self.after, strict=True)
        self.out = [output_extent(e, _KERNEL, 1, b, a, function) for e, b, a in sizes]
        simplify = Analyzer().simplify
        self.counts = [simplify(ops.floordiv(o + _TILE - 1, _TILE)) for o in self.out]
        # The last tiles reach as far beyond the output as it is short of whole tiles.
        self.beyond = [simplify(c * _TILE - o) for c, o in zip(self.counts, self.out, strict=True)]

    def total(self, batch: Any) -> Any:
        """The number of tiles of all images."""
        return batch * self.counts[0] * self.counts[1]

    def place(self, p: Any) -> tuple[Any, Any, Any]:
        """The image of a tile, and where in the padded data it begins."""
        rows, columns = self.counts
        row, column = ops.floormod(ops.floordiv(p, columns), rows), ops.floormod(p, columns)
        return ops.floordiv(p, rows * columns), row * _TILE, column * _TILE

    def tile_of(self, n: Any, h: Any, w: Any) -> Any:
        """The tile that an element of the output lies in."""
        rows, columns = self.counts
        return n * rows * columns + ops.floordiv(h, _TILE) * columns + ops.floordiv(w, _TILE)


def _check(data: Tensor, weight: Tensor, pre_computed: bool, layout: str, function: str) -> None:
    require_ndim(data, 4, f"nn.{function}", "data")
    require_ndim(weight, 4, f"nn.{function}", "weight")
    wanted = _ALPHA if pre_computed else _KERNEL
    at = slice(0, 2) if pre_computed or layout == "NHWC" else slice(2, 4)
    if [as_int(e) for e in weight.shape[at]] != [wanted, wanted]:
        what = "transformed for tiles of 4 x 4" if pre_computed else "of 3 x 3"
        raise ShapeMismatch(f"topi.nn.{function}: expected a weight {what}, found the shape {shape_text(weight.shape)}")


def _gemm_attrs(weight: Tensor, pre_computed: bool) -> dict[str, Any]:
    return {"layout_free_placeholders": [weight]} if pre_computed else {}


def conv2d_winograd_nhwc(
    data: Tensor,
    weight: Tensor,
    strides: Sizes,
    padding: Padding,
    dilation: Sizes,
    out_dtype: str | None,
    pre_computed: bool = False,
) -> Tensor:
    """The convolution of data NHWC with a weight HWIO of 3 x 3, stride and dilation 1.

    A weight that is transformed already (`pre_computed`) is (6, 6, O, I).
    """
    function = "conv2d_winograd_nhwc"
    _check(data, weight, pre_computed, "NHWC", function)
    batch, height, width, channels = data.shape
    outputs = weight.shape[2] if pre_computed else weight.shape[3]
    tiles = _Tiles([height, width], strides, padding, dilation, function)
    count = tiles.total(batch)
    a, b, g = winograd_transform_matrices(_TILE, _KERNEL, out_dtype or data.dtype)
    data_pad = pad(
        data,
        [0, *tiles.before, 0],
        [0, *(p + extra for p, extra in zip(tiles.after, tiles.beyond, strict=True)), 0],
        name="data_pad",
        attrs={"schedule_rule": "None"},
    )
    kernel_pack = weight
    if not pre_computed:
        r_kh, r_kw = _window_axes(_KERNEL)
        kernel_pack = te.compute(
            (_ALPHA, _ALPHA, outputs, channels),
            lambda eps, nu, co, ci: te.sum(weight(r_kh, r_kw, ci, co) * g(eps, r_kh) * g(nu, r_kw), axis=[r_kh, r_kw]),
            name="kernel_pack",
        )

    def tile(eps: PrimExpr, nu: PrimExpr, p: PrimExpr, ci: PrimExpr) -> Any:
        n, row, column = tiles.place(p)
        return data_pad(n, row + eps, column + nu, ci)

    shape = (_ALPHA, _ALPHA, count, channels)
    input_tile = te.compute(shape, tile, name="input_tile", attrs={"schedule_rule": "None"})
    r_a, r_b = _tile_axes()
    data_pack = te.compute(
        shape,
        lambda eps, nu, p, ci: te.sum(input_tile(r_a, r_b, p, ci) * b(r_a, eps) * b(r_b, nu), axis=[r_a, r_b]),
        name="data_pack",
        attrs={
            "auto_scheduler_simplify_const_tensor_indices": ["eps", "nu", "r_a", "r_b"],
            "schedule_rule": "conv2d_nhwc_winograd_data_pack",
        },
    )
    k = te.reduce_axis((0, channels), name="ci")
    bgemm = te.compute(
        (_ALPHA, _ALPHA, count, outputs),
        lambda eps, nu, p, co: te.sum(data_pack(eps, nu, p, k) * kernel_pack(eps, nu, co, k), axis=[k]),
        name="bgemm",
        attrs={**_gemm_attrs(weight, pre_computed), "meta_schedule.write_cache_level": [2]},
    )
    s_a, s_b = _tile_axes()
    inverse = te.compute(
        (_TILE, _TILE, count, outputs),
        lambda vh, vw, p, co: te.sum(bgemm(s_a, s_b, p, co) * a(s_a, vh) * a(s_b, vw), axis=[s_a, s_b]),
        name="inverse",
        attrs={
            "auto_scheduler_simplify_const_tensor_indices": ["vh", "vw", "r_a", "r_b"],
            "schedule_rule": "conv2d_nhwc_winograd_inverse",
        },
    )
    return te.compute(
        (batch, *tiles.out, outputs),
        lambda n, h, w, co: inverse(h % _TILE, w % _TILE, tiles.tile_of(n, h, w), co),
        name="conv2d_winograd",
    )


def conv2d_winograd_nchw(
    data: Tensor,
    weight: Tensor,
    strides: Sizes,
    padding: Padding,
    dilation: Sizes,
    out_dtype: str | None,
    pre_computed: bool = False,
) -> Tensor:
    """The convolution of data NCHW with a weight OIHW of 3 x 3, stride and dilation 1.

    A weight that is transformed already (`pre_computed`) is (6, 6, I, O).
    """
    function = "conv2d_winograd_nchw"
    _check(data, weight, pre_computed, "NCHW", function)
    batch, channels, height, width = data.shape
    outputs = weight.shape[3] if pre_computed else weight.shape[0]
    tiles = _Tiles([height, width], strides, padding, dilation, function)
    count = tiles.total(batch)
    a, b, g = winograd_transform_matrices(_TILE, _KERNEL, out_dtype or data.dtype)
    data_pad = pad(
        data,
        [0, 0, *tiles.before],
        [0, 0, *(p + extra for p, extra in zip(tiles.after, tiles.beyond, strict=True))],
        name="data_pad",
    )
    kernel_pack = weight
    if not pre_computed:
        r_kh, r_kw = _window_axes(_KERNEL)
        kernel_pack = te.compute(
            (_ALPHA, _ALPHA, channels, outputs),
            lambda eps, nu, ci, co: te.sum(weight(co, ci, r_kh, r_kw) * g(eps, r_kh) * g(nu, r_kw), axis=[r_kh, r_kw]),
            name="kernel_pack",
        )

    def tile(ci: PrimExpr, p: PrimExpr, eps: PrimExpr, nu: PrimExpr) -> Any:
        n, row, column = tiles.place(p)
        return data_pad(n, ci, row + eps, column + nu)

    input_tile = te.compute((channels, count, _ALPHA, _ALPHA), tile, name="input_tile", attrs={"schedule_rule": "None"})
    r_a, r_b = _tile_axes()
    data_pack = te.compute(
        (_ALPHA, _ALPHA, channels, count),
        lambda eps, nu, ci, p: te.sum(input_tile(ci, p, r_a, r_b) * b(r_a, eps) * b(r_b, nu), axis=[r_a, r_b]),
        name="data_pack",
        attrs={"schedule_rule": "conv2d_nchw_winograd_data_pack"},
    )
    k = te.reduce_axis((0, channels), name="ci")
    bgemm = te.compute(
        (_ALPHA, _ALPHA, outputs, count),
        lambda eps, nu, co, p: te.sum(data_pack(eps, nu, k, p) * kernel_pack(eps, nu, k, co), axis=[k]),
        name="bgemm",
        attrs=_gemm_attrs(weight, pre_computed),
    )
    s_a, s_b = _tile_axes()
    inverse = te.compute(
        (outputs, count, _TILE, _TILE),
        lambda co, p, vh, vw: te.sum(bgemm(s_a, s_b, co, p) * a(s_a, vh) * a(s_b, vw), axis=[s_a, s_b]),
        name="inverse",
        attrs={"schedule_rule": "conv2d_nchw_winograd_inverse"},
    )
    return te.compute(
        (batch, outputs, *tiles.out),
        lambda n, co, h, w: inverse(co, tiles.tile_of(n, h, w), h % _TILE, w % _TILE),
        name="conv2d_winograd",
    )


def conv2d_winograd_nhwc_without_weight_transform(
    data: Tensor, weight: Tensor, strides: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None
) -> Tensor:
    """As `conv2d_winograd_nhwc`, with a transformed weight."""
    return conv2d_winograd_nhwc(data, weight, strides, padding, dilation, out_dtype, pre_computed=True)


def conv2d_winograd_nchw_without_weight_transform(
    data: Tensor, weight: Tensor, strides: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None
) -> Tensor:
    """As `conv2d_winograd_nchw`, with a transformed weight."""
    return conv2d_winograd_nchw(data, weight, strides, padding, dilation, out_dtype, pre_computed=True)
