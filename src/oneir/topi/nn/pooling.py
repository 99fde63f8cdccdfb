"""Pooling: the largest element or the mean of windows, which slide, cover everything, or are as many as asked for.

A layout names the dimensions by capital letters; D, H and W are pooled. A small letter after a number is a part of a
dimension split off, as the c of NCHW16c; those of D, H and W must be whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select, as_int, const
from ...runtime.error import InvalidValue
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import Padding, Sizes, require_ndim
from .pad import pad_ends
from .window import output_extent, per_dimension, same_dtype


def pooled_axes(data: Tensor, layout: str, letters: str, function: str) -> list[int]:
    """Where in the layout the pooled dimensions stand."""
    dims = [c for c in layout if c.isalpha()]
    if any(dims.count(c) != 1 for c in letters) or any(c in "dhw" for c in dims):
        raise InvalidValue(
            f"topi.nn.{function}: expected a layout with each of {', '.join(letters)} once and whole, found {layout!r}"
        )
    require_ndim(data, len(dims), f"nn.{function}", f"data in the layout {layout}")
    return [dims.index(c) for c in letters]


def check_pool_type(pool_type: str, function: str) -> None:
    """Raises `InvalidValue` for a pool type other than "max" and "avg"."""
    if pool_type not in ("max", "avg"):
        raise InvalidValue(f'topi.nn.{function}: expected the pool type "max" or "avg", found {pool_type!r}')


def with_value(values: Any, places: list[int], new: list[Any]) -> list[Any]:
    """The values with new ones at some places."""
    result = list(values)
    for place, value in zip(places, new, strict=True):
        result[place] = value
    return result


def quotient(total: Any, count: Any) -> Any:
    """A sum divided by how many elements it has; of integers, rounded towards zero."""
    divide = ops.divide if total.dtype.is_float else ops.truncdiv
    return divide(total, count.astype(total.dtype))


def _pool(
    data: Tensor,
    kernel: Sizes,
    stride: Sizes,
    dilation: Sizes,
    padding: Padding,
    pool_type: str,
    ceil_mode: bool,
    axes: list[int],
    count_include_pad: bool,
    function: str,
) -> Tensor:
    """Pooling by windows that slide over some axes."""
    check_pool_type(pool_type, function)
    count = len(axes)
    extents = [data.shape[a] for a in axes]
    kernel, stride, dilation = (
        [same_dtype(v, e) for v, e in zip(per_dimension(values, count, function, what), extents, strict=True)]
        for values, what in ((kernel, "kernel extent"), (stride, "stride"), (dilation, "dilation"))
    )
    padding = [padding] * (2 * count) if isinstance(padding, int) else list(padding)
    if len(padding) != 2 * count:
        raise InvalidValue(f"topi.nn.{function}: expected {2 * count} paddings, found {len(padding)}")
    head = [same_dtype(p, e) for p, e in zip(padding[:count], extents, strict=True)]
    # In ceil mode a last window may reach beyond the padding, by less than a stride.
    spare = [s - 1 if ceil_mode else const(0, s.dtype) for s in stride]
    tail = [same_dtype(p, e) + s for p, e, s in zip(padding[count:], extents, spare, strict=True)]
    windows = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    out = [output_extent(*sizes, function) for sizes in zip(extents, windows, stride, head, tail, strict=True)]
    shape = with_value(data.shape, axes, out)
    reduction = [te.reduce_axis((const(0, k.dtype), k), name=f"rv{i}") for i, k in enumerate(kernel)]

    source = data
    if any(as_int(p) not in (0, None) for p in (*head, *tail)):
        none = [0] * data.ndim
        value = tir_op.min_value(data.dtype) if pool_type == "max" else const(0, data.dtype)
        source = pad_ends(data, with_value(none, axes, head), with_value(none, axes, tail), value)

    def over_window(reducer: Callable[..., Any]) -> Callable[..., Any]:
        def element(*ax: PrimExpr) -> Any:
            place = [ax[a] * s + r.var * d for a, s, r, d in zip(axes, stride, reduction, dilation, strict=True)]
            return reducer(source(*with_value(ax, axes, place)), axis=reduction)

        return element

    attrs = {"schedule_rule": f"meta_schedule.pool_{pool_type}"}
    if pool_type == "max":
        return te.compute(shape, over_window(te.max), name="pool_max", tag="pool_max", attrs=attrs)
    total = te.compute(shape, over_window(te.sum), name="pool_sum", tag="pool_sum")

    def mean(*ax: PrimExpr) -> Any:
        elements: Any = const(1, "int32")
        for i, a in enumerate(axes):
            start = ax[a] * stride[i] - head[i]
            end = start + (kernel[i] - 1) * dilation[i]
            if count_include_pad:
                end = te.min(end, extents[i] + tail[i] - 1 - spare[i])
            else:
                skipped = ops.truncdiv(dilation[i] - 1 - start, dilation[i])
                start = start + dilation[i] * te.max(skipped, const(0, skipped.dtype))
                end = te.min(end, extents[i] - 1)
            elements = elements * (ops.truncdiv(end - start, dilation[i]) + 1)
        if not count_include_pad:
            elements = te.max(elements, const(1, "int32"))
        return quotient(total(*ax), elements)

    return te.compute(shape, mean, name="pool_avg", tag=tag.ELEMWISE, attrs=attrs)


def pool1d(
    data: Tensor,
    kernel: Sizes,
    stride: Sizes,
    dilation: Sizes,
    padding: Padding,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCW",
    count_include_pad: bool = True,
) -> Tensor:
    """Pooling over W by windows of `kernel` elements; `pool_type` is "max" or "avg".

    `padding` has the elements before and after. With `ceil_mode` a last window that is not whole counts. The mean of
    windows that reach into the padding counts its zeros with `count_include_pad`, else only what is data.
    """
    axes = pooled_axes(data, layout, "W", "pool1d")
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, axes, count_include_pad, "pool1d")


def pool2d(
    data: Tensor,
    kernel: Sizes,
    stride: Sizes,
    dilation: Sizes,
    padding: Padding,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """Pooling over H and W, as `pool1d`; `padding` is (top, left, bottom, right)."""
    axes = pooled_axes(data, layout, "HW", "pool2d")
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, axes, count_include_pad, "pool2d")


def pool3d(
    data: Tensor,
    kernel: Sizes,
    stride: Sizes,
    dilation: Sizes,
    padding: Padding,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCDHW",
    count_include_pad: bool = True,
) -> Tensor:
    """Pooling over D, H and W, as `pool1d`; `padding` is (front, top, left, back, bottom, right)."""
    axes = pooled_axes(data, layout, "DHW", "pool3d")
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, axes, count_include_pad, "pool3d")


def _adaptive_pool(data: Tensor, output_size: Sizes, pool_type: str, axes: list[int], function: str) -> Tensor:
    """Pooling by as many windows as asked for, which cover all elements as evenly as they can."""
    check_pool_type(pool_type, function)
    in_size = [data.shape[a] for a in axes]
    sizes = per_dimension(output_size, len(axes), function, "output size")
    out_size = [same_dtype(v, e) for v, e in zip(sizes, in_size, strict=True)]
    shape = with_value(data.shape, axes, out_size)

    def window(ax: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        """The first elements of a window, and its extents."""
        begin = [ops.floordiv(ax[a] * i, o) for a, i, o in zip(axes, in_size, out_size, strict=True)]
        end = [_ceil_div((ax[a] + 1) * i, o) for a, i, o in zip(axes, in_size, out_size, strict=True)]
        return begin, [e - b for b, e in zip(begin, end, strict=True)]

    def over_window(reducer: Callable[..., Any]) -> Callable[..., Any]:
        def element(*ax: PrimExpr) -> Any:
            begin, extents = window(ax)
            reduction = [te.reduce_axis((const(0, e.dtype), e), name=f"rv{i}") for i, e in enumerate(extents)]
            place = [b + r.var for b, r in zip(begin, reduction, strict=True)]
            return reducer(data(*with_value(ax, axes, place)), axis=reduction)

        return element

    attrs = {"schedule_rule": f"meta_schedule.adaptive_pool_{pool_type}"}
    if pool_type == "max":
        name = "adaptive_pool_max"
        return te.compute(shape, over_window(te.max), name=name, tag=name, attrs=attrs)
    total = te.compute(shape, over_window(te.sum), name="adaptive_pool_sum", tag="adaptive_pool_sum")

    def mean(*ax: PrimExpr) -> Any:
        elements: Any = const(1, data.dtype)
        for extent in window(ax)[1]:
            elements = elements * extent.astype(data.dtype)
        return quotient(total(*ax), elements)

    return te.compute(shape, mean, name="adaptive_pool_avg", tag=tag.ELEMWISE, attrs=attrs)


def _ceil_div(value: Any, divisor: Any) -> Any:
    quotient = ops.floordiv(value, divisor)
    return Select(ops.equal(ops.floormod(value, divisor), 0), quotient, quotient + 1)


def adaptive_pool1d(data: Tensor, output_size: Sizes, pool_type: str, layout: str = "NCW") -> Tensor:
    """Pooling over W to as many elements as asked for; `pool_type` is "max" or "avg"."""
    axes = pooled_axes(data, layout, "W", "adaptive_pool1d")
    return _adaptive_pool(data, output_size, pool_type, axes, "adaptive_pool1d")


def adaptive_pool(data: Tensor, output_size: Sizes, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Pooling over H and W to as many elements as asked for."""
    axes = pooled_axes(data, layout, "HW", "adaptive_pool")
    return _adaptive_pool(data, output_size, pool_type, axes, "adaptive_pool")


def adaptive_pool3d(data: Tensor, output_size: Sizes, pool_type: str, layout: str = "NCDHW") -> Tensor:
    """Pooling over D, H and W to as many elements as asked for."""
    axes = pooled_axes(data, layout, "DHW", "adaptive_pool3d")
    return _adaptive_pool(data, output_size, pool_type, axes, "adaptive_pool3d")


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Pooling over all of H and W, which stay as dimensions of extent 1."""
    return adaptive_pool(data, (1, 1), pool_type, layout)
