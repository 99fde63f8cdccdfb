"""The gradient of pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from ...tir.reduction import comm_reducer
from .. import tag
from ..index import Padding, Sizes, ravel, shape_text
from .pad import pad_ends
from .pooling import check_pool_type, pooled_axes, quotient, with_value
from .window import output_extent, per_dimension, same_dtype


def pool_grad(
    grads: Tensor,
    data: Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Padding,
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Tensor:
    """The gradient of `pool2d` (without dilation) over `data`, from that over its output.

    Of several largest elements in a window the first one gets the gradient.
    """
    check_pool_type(pool_type, "pool_grad")
    pooling = _Pooling(grads, data, kernel, stride, padding, ceil_mode, pooled_axes(data, layout, "HW", "pool_grad"))
    return _max_grad(pooling) if pool_type == "max" else _mean_grad(pooling, count_include_pad)


class _Pooling:
    """Sizes along the pooled axes, and which windows cover an element."""

    def __init__(
        self,
        grads: Tensor,
        data: Tensor,
        kernel: Sizes,
        stride: Sizes,
        padding: Padding,
        ceil_mode: bool,
        axes: list[int],
    ):
        self.grads, self.data, self.axes = grads, data, axes
        self.extents = [data.shape[a] for a in axes]
        sizes = (per_dimension(v, 2, "pool_grad", w) for v, w in ((kernel, "kernel extent"), (stride, "stride")))
        self.kernel, self.stride = (self._index(values) for values in sizes)
        pads = [padding] * 4 if isinstance(padding, int) else list(padding)
        if len(pads) != 4:
            raise InvalidValue(f"topi.nn.pool_grad: expected 4 paddings, found {len(pads)}")
        self.head = self._index(pads[:2])
        self.ceil_mode = ceil_mode
        self.end = self._index(pads[2:])
        # In ceil mode a last window may reach beyond the padding, by less than a stride.
        self.tail = [p + s - 1 if ceil_mode else p for p, s in zip(self.end, self.stride, strict=True)]
        self.out = [
            output_extent(*s, "pool_grad")
            for s in zip(self.extents, self.kernel, self.stride, self.head, self.tail, strict=True)
        ]
        self.shape = with_value(data.shape, axes, self.out)
        pairs = [(as_int(a), as_int(b)) for a, b in zip(grads.shape, self.shape, strict=False)]
        if grads.ndim != data.ndim or any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise ShapeMismatch(
                f"topi.nn.pool_grad: expected grads of the output's shape {shape_text(self.shape)}, "
                f"found {shape_text(grads.shape)}"
            )
        # How many windows can cover an element.
        covering = [ops.truncdiv(k + s - 1, s) for k, s in zip(self.kernel, self.stride, strict=True)]
        names = ("wh", "ww")
        self.windows = [te.reduce_axis((const(0, c.dtype), c), n) for n, c in zip(names, covering, strict=True)]

    def _index(self, values: list[Any]) -> list[Any]:
        return [same_dtype(v, e) for v, e in zip(values, self.extents, strict=True)]

    def padded_place(self, at: Any) -> list[Any]:
        """Where an element of the data lies in the padded data."""
        return [at[a] + h for a, h in zip(self.axes, self.head, strict=True)]

    def window_over(self, at: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """One of the windows over an element, as an index of the output; for each axis the condition that it begins
        early enough to cover the element, and that there is such a window.
        """
        places, covering, existing = [], [], []
        sizes = zip(self.padded_place(at), self.kernel, self.stride, self.windows, self.out, strict=True)
        for place, kernel, stride, window, out in sizes:
            index = ops.truncdiv(place, stride) - window.var
            lowest = Select(place < kernel, const(0, place.dtype), ops.truncdiv(place - kernel, stride) + 1)
            places.append(index)
            covering.append(index >= lowest)
            existing.append(index < out)
        return with_value(at, self.axes, places), covering, existing

    def sum(self, name: str, value: Callable[..., tuple[Any, Any]]) -> Tensor:
        """For each element the sum over the windows around it, where `value` says so."""

        def element(*ax: PrimExpr) -> Any:
            condition, found = value(ax, *self.window_over(ax))
            return te.sum(tir_op.if_then_else(condition, found, const(0, self.grads.dtype)), axis=self.windows)

        return te.compute(self.data.shape, element, name="T_pool_grad", tag=name)

    def past_the_end(self, axis: int) -> bool:
        """Whether the last elements along an axis may begin a window that does not exist."""
        sizes = (self.extents[axis], self.head[axis], self.stride[axis], self.out[axis])
        extent, head, stride, out = (as_int(v) for v in sizes)
        if extent is None or head is None or stride is None or out is None:
            return True
        return (extent - 1 + head) // stride >= out


def _max_grad(p: _Pooling) -> Tensor:
    data = p.data
    ravel_shape = with_value(data.shape, p.axes, [e + h + t for e, h, t in zip(p.extents, p.head, p.tail, strict=True)])
    source = data
    if any(as_int(v) != 0 for v in (*p.head, *p.tail)):
        none = [0] * data.ndim
        smallest = tir_op.min_value(data.dtype)
        source = pad_ends(data, with_value(none, p.axes, p.head), with_value(none, p.axes, p.tail), smallest)
    inner = [te.reduce_axis((const(0, k.dtype), k), name) for name, k in zip(("dh", "dw"), p.kernel, strict=True)]

    def largest(*ax: PrimExpr) -> Any:
        place = [ax[a] * s + r.var for a, s, r in zip(p.axes, p.stride, inner, strict=True)]
        at = with_value(ax, p.axes, place)
        return _ARGMAX((ravel(at, ravel_shape), source(*at)), inner)

    best, _ = te.compute(p.shape, largest, name="maxpool_grad_argmax", tag=tag.COMM_REDUCE_IDX)

    def gradient(
        at: tuple[PrimExpr, ...], index: list[Any], covering: list[Any], existing: list[Any]
    ) -> tuple[Any, Any]:
        here = ravel(with_value(at, p.axes, p.padded_place(at)), ravel_shape)
        needed = [condition for axis, condition in enumerate(existing) if p.past_the_end(axis)]
        return tir_op.all(*covering, *needed, ops.equal(best(*index), here)), p.grads(*index)

    return p.sum("pool_grad_max", gradient)


def _mean_grad(p: _Pooling, count_include_pad: bool) -> Tensor:
    def gradient(
        at: tuple[PrimExpr, ...], index: list[Any], covering: list[Any], existing: list[Any]
    ) -> tuple[Any, Any]:
        count: Any = const(1, "int32")
        for i, a in enumerate(p.axes):
            start = index[a] * p.stride[i] - p.head[i]
            if not count_include_pad:
                end = te.min(start + p.kernel[i], p.extents[i])
                count = count * (end - te.max(start, const(0, start.dtype)))
            elif p.ceil_mode:
                # What lies beyond the padding does not count.
                count = count * (te.min(start + p.kernel[i], p.extents[i] + p.end[i]) - start)
            else:
                count = count * p.kernel[i]
        if not count_include_pad:
            count = te.max(count, const(1, count.dtype))
        valid = tir_op.all(*(ops.logical_and(c, e) for c, e in zip(covering, existing, strict=True)))
        return valid, quotient(p.grads(*index), count)

    return p.sum("pool_grad_avg", gradient)


def _first_largest(x: Any, y: Any) -> tuple[Any, Any]:
    better = ops.greater(x[1], y[1])
    first = ops.logical_or(better, ops.logical_and(ops.equal(x[1], y[1]), ops.less(x[0], y[0])))
    return Select(first, x[0], y[0]), Select(better, x[1], y[1])


_ARGMAX = comm_reducer(_first_largest, lambda index, value: (const(-1, index), tir_op.min_value(value)), name="argmax")
