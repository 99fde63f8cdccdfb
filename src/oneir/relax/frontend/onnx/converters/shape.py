"""The same elements in another shape or order, repeated, joined, taken apart, padded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr, Select
from .....runtime.error import UnsupportedError
from .....tir import op as tir_op
from .... import op
from ....expr import Expr, ShapeExpr, const
from ..context import Context
from ..registry import converter


@converter("Shape")
def shape(g: Context, x: Expr, *, start: int = 0, end: int | None = None) -> Expr:
    """The extents of a tensor, or of some of its dimensions."""
    return g.of_elements(g.shape(x)[start:end], "int64")


@converter("Size")
def size(g: Context, x: Expr) -> Expr:
    """The number of elements."""
    return g.of_elements(math.prod(g.shape(x)), "int64")


@converter("Reshape")
def reshape(g: Context, x: Expr, target: Expr, *, allowzero: int = 0) -> Expr:
    """The tensor in another shape, in which -1 is inferred and 0 copies the extent of the input."""
    extents, elements = g.shape(x), g.elements(target)
    if elements is None:
        return g.emit(op.reshape(x, ShapeExpr(g.extents(_without_placeholders(g, x, target, allowzero), "a shape"))))
    wanted = elements.reshape(-1).tolist()
    if not allowzero:
        wanted = [extents[i] if isinstance(e, int) and e == 0 else e for i, e in enumerate(wanted)]
    unknown = [i for i, e in enumerate(wanted) if isinstance(e, int) and e == -1]
    if unknown:
        rest = _quotient_of_products(g, extents, [e for i, e in enumerate(wanted) if i != unknown[0]])
        if len(unknown) > 1 or rest is None:
            raise UnsupportedError(f"a tensor of shape {extents} cannot have the shape {elements.tolist()}")
        wanted[unknown[0]] = rest
    if all(isinstance(e, int) for e in (*extents, *wanted)) and math.prod(extents) != math.prod(wanted):
        raise UnsupportedError(f"a tensor of shape {extents} cannot have the shape {elements.tolist()}")
    return g.reshaped(x, wanted)


def _quotient_of_products(g: Context, above: Sequence[Any], below: Sequence[Any]) -> Any:
    """The product of some extents divided by that of others, common factors cancelled; None if it is not known."""
    left, divisors = list(above), []
    for extent in below:
        same = next((i for i, e in enumerate(left) if g.same(e, extent)), None)
        if same is None:
            divisors.append(extent)
        else:
            del left[same]
    numbers = math.prod(e for e in left if isinstance(e, int))
    divisor = math.prod(divisors)
    symbolic = math.prod(e for e in left if not isinstance(e, int))
    if isinstance(divisor, int) and divisor and numbers % divisor == 0:
        return symbolic * (numbers // divisor)
    if isinstance(divisor, int) and (not divisor or isinstance(symbolic, int)):
        return None
    return g.block_builder.analyzer.simplify(ops.floordiv(symbolic * numbers, divisor))


def _without_placeholders(g: Context, x: Expr, target: Expr, allowzero: int) -> Expr:
    """A shape that is known only when the model runs, with 0 and -1 replaced by extents."""
    count = g.static(g.shape(target)[0], "how many dimensions the result has")
    zero, minus = const(0, "int64"), const(-1, "int64")
    own = g.shape(x)
    if not allowzero:
        extents = [*own, *[1] * (count - len(own))][:count]
        target = g.emit(op.where(op.equal(target, zero), g.of_elements(extents, "int64"), target))
    rest = op.prod(op.where(op.equal(target, minus), const(1, "int64"), target), axis=0)
    missing = op.floor_divide(g.of_elements(math.prod(own), "int64"), rest)
    return g.emit(op.where(op.equal(target, minus), missing, target))


@converter("Flatten")
def flatten(g: Context, x: Expr, *, axis: int = 1) -> Expr:
    """A matrix: the dimensions before `axis` are its rows."""
    extents = g.shape(x)
    place = axis + len(extents) if axis < 0 else axis
    return g.reshaped(x, [math.prod(extents[:place]), math.prod(extents[place:])])


@converter("Squeeze")
def squeeze_attribute(g: Context, x: Expr, *, axes: Sequence[int] | None = None) -> Expr:
    """The tensor without dimensions of extent 1."""
    extents = g.shape(x)
    if axes is None:
        gone = {i for i, e in enumerate(extents) if g.is_one(e)}
    else:
        gone = {g.axis(a, len(extents)) for a in axes}
    if any(isinstance(extents[i], int) and extents[i] != 1 for i in gone):
        raise UnsupportedError(f"dimensions {sorted(gone)} of a tensor of shape {extents} are not all of extent 1")
    return g.reshaped(x, [e for i, e in enumerate(extents) if i not in gone])


@converter("Squeeze", since=13)
def squeeze(g: Context, x: Expr, axes: Expr | None = None) -> Expr:
    """The tensor without dimensions of extent 1."""
    places = None if axes is None else g.elements(axes)
    if axes is None or places is not None:
        return squeeze_attribute(g, x, axes=None if places is None else places.reshape(-1).tolist())
    ndim, gone = g.ndim(x), _marks(g, g.ndim(x), axes)
    # In order of their numbers, those that stay first.
    order = op.argsort(op.add(op.multiply(gone, const(ndim, "int64")), _numbers(g, ndim)), dtype="int64")
    left = ndim - g.static(g.shape(axes)[0], "how many dimensions are taken away")
    extents = op.take(shape(g, x), op.strided_slice(order, [0], [0], [left]), axis=0)
    return g.emit(op.reshape(x, ShapeExpr(g.extents(g.emit(extents), "a shape"))))


def _numbers(g: Context, count: int) -> Expr:
    return g.constant(np.arange(count, dtype=np.int64))


def _marks(g: Context, ndim: int, axes: Expr) -> Expr:
    """1 for each of some axes, 0 for the others."""
    return spread(g, ndim, axes, g.emit(op.ones_like(g.cast(axes, "int64"))), 0)


@converter("Unsqueeze")
def unsqueeze_attribute(g: Context, x: Expr, *, axes: Sequence[int]) -> Expr:
    """The tensor with new dimensions of extent 1."""
    rest, count = iter(g.shape(x)), g.ndim(x) + len(axes)
    new = {g.axis(a, count) for a in axes}
    return g.reshaped(x, [1 if i in new else next(rest) for i in range(count)])


@converter("Unsqueeze", since=13)
def unsqueeze(g: Context, x: Expr, axes: Expr) -> Expr:
    """The tensor with new dimensions of extent 1."""
    places = g.elements(axes)
    if places is not None:
        return unsqueeze_attribute(g, x, axes=places.reshape(-1).tolist())
    new = _marks(g, g.ndim(x) + g.static(g.shape(axes)[0], "how many dimensions are new"), axes)
    one = const(1, "int64")
    before = op.subtract(op.cumsum(op.subtract(one, new), 0), one)
    own = op.concat([shape(g, x), g.constant(np.ones([1], np.int64))])
    extents = op.where(op.equal(new, one), one, op.take(own, op.maximum(before, const(0, "int64")), axis=0))
    return g.emit(op.reshape(x, ShapeExpr(g.extents(g.emit(extents), "a shape"))))


@converter("Transpose")
def transpose(g: Context, x: Expr, *, perm: Sequence[int] | None = None) -> Expr:
    """The dimensions in another order."""
    return g.emit(op.permute_dims(x, list(perm) if perm is not None else None)) if g.ndim(x) > 1 else x


@converter("Concat")
def concat(g: Context, *tensors: Expr, axis: int) -> Expr:
    """Tensors one after the other along an axis."""
    if len(tensors) == 1:
        return tensors[0]
    place, shapes = g.axis(axis, g.ndim(tensors[0])), [g.shape(x) for x in tensors]
    if any(len(s) != len(shapes[0]) for s in shapes):
        return g.emit(op.concat(list(tensors), place))
    # Extents of which nothing is known are asserted to be those of the others.
    common = [next((e for e in extents if isinstance(e, int)), extents[0]) for extents in zip(*shapes, strict=True)]
    alike = []
    for x, own in zip(tensors, shapes, strict=True):
        wanted = [e if i == place or isinstance(e, int) else common[i] for i, e in enumerate(own)]
        alike.append(g.asserted(x, wanted))
    return g.emit(op.concat(alike, place))


@converter("Split")
def split_attribute(g: Context, x: Expr, *, axis: int = 0, split: Sequence[int] | None = None) -> Any:
    """Pieces of a tensor along an axis."""
    return _pieces(g, x, axis, split, g.num_outputs)


@converter("Split", since=13)
def split(g: Context, x: Expr, sizes: Expr | None = None, *, axis: int = 0, num_outputs: int | None = None) -> Any:
    """Pieces of a tensor along an axis."""
    return _pieces(g, x, axis, None if sizes is None else g.extents(sizes, "sizes"), num_outputs or g.num_outputs)


def _pieces(g: Context, x: Expr, axis: int, sizes: Sequence[Any] | None, count: int) -> tuple[Expr, ...]:
    place = g.axis(axis, g.ndim(x))
    if sizes is None:
        extent = g.static(g.shape(x)[place], "the extent that is split into equal parts")
        each = -(-extent // count)
        sizes = [min(each, extent - i * each) for i in range(count)]
    if len(sizes) == 1:
        return (x,)
    pieces, begin = [], 0
    for size_ in sizes:
        pieces.append(g.emit(op.strided_slice(x, [place], [begin], [begin + size_], assume_inbound=True)))
        begin = begin + size_
    return tuple(pieces)


@converter("Expand")
def expand(g: Context, x: Expr, target: Expr) -> Expr:
    """The tensor broadcast against a shape."""
    own = g.shape(x)
    if g.elements(target) is None:
        # Extents of 1 in the shape leave those of the tensor, of which at least one side is known.
        count = g.static(g.shape(target)[0], "how many dimensions the result has")
        own = [1] * (count - len(own)) + own
        if count < len(own):
            target = op.concat([op.ones([len(own) - count], "int64"), target])
        target = g.emit(op.maximum(target, g.of_elements(own, "int64")))
    wanted = g.extents(target, "the shape that Expand gives")
    count = max(len(own), len(wanted))
    own, wanted = [1] * (count - len(own)) + own, [1] * (count - len(wanted)) + wanted
    return g.broadcast(x, [a if g.is_one(b) else b for a, b in zip(own, wanted, strict=True)])


@converter("Tile")
def tile(g: Context, x: Expr, repeats: Expr) -> Expr:
    """The tensor repeated along each dimension."""
    counts = g.extents(repeats, "repeats")
    if all(isinstance(c, int) for c in counts):
        return g.emit(op.tile(x, counts))
    extents = g.shape(x)
    inner = [e for extent in extents for e in (1, extent)]
    outer = [e for count, extent in zip(counts, extents, strict=True) for e in (count, extent)]
    spread = g.broadcast(g.reshaped(x, inner), outer)
    return g.reshaped(spread, [c * e for c, e in zip(counts, extents, strict=True)])


# -- slices --


@converter("Slice")
def slice_attributes(
    g: Context, x: Expr, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Expr:
    """A part of a tensor, bounds as attributes."""
    return g.emit(op.strided_slice(x, list(axes or range(len(starts))), list(starts), list(ends)))


HUGE, FAR = 10**9, np.iinfo(np.int64).max


@converter("Slice", since=10)
def slice_(g: Context, x: Expr, starts: Expr, ends: Expr, axes: Expr | None = None, steps: Expr | None = None) -> Expr:
    """A part of a tensor; bounds count from the end where they are negative, and are cut to the extent."""
    known = [None if v is None else g.elements(v) for v in (starts, ends, steps)]
    count = g.static(g.shape(starts)[0], "how many dimensions are sliced")
    if axes is None:
        axes = g.constant(np.arange(count, dtype=np.int64))
    places = g.elements(axes)
    if places is None or known[0] is None or known[1] is None or (steps is not None and known[2] is None):
        return _dynamic_slice(g, x, starts, ends, axes, steps)
    dims = [g.axis(d, g.ndim(x)) for d in places.reshape(-1).tolist()]
    begin, end = (k.reshape(-1).tolist() for k in known[:2] if k is not None)
    strides = [1] * count if known[2] is None else [g.static(s, "a step") for s in known[2].reshape(-1).tolist()]
    # Exporters write some huge number for "to the end"; as a bound of symbolic extents, it would be computed with.
    symbolic = [not isinstance(g.shape(x)[d], int) for d in dims]
    end = [FAR if s and isinstance(e, int) and e >= HUGE else e for s, e in zip(symbolic, end, strict=True)]
    return g.emit(op.strided_slice(x, dims, begin, end, strides))


def _dynamic_slice(g: Context, x: Expr, starts: Expr, ends: Expr, axes: Expr, steps: Expr | None) -> Expr:
    """A slice whose bounds are read when the model runs."""
    begin = spread(g, g.ndim(x), axes, starts, 0)
    zero = const(0, "int64")
    # The first element must be inside, where there is one; the end may be anywhere.
    begin = op.where(op.less(begin, zero), op.add(begin, shape(g, x)), begin)
    begin = g.emit(op.maximum(begin, zero))
    end = spread(g, g.ndim(x), axes, ends, np.iinfo(np.int64).max)
    stride = g.constant(np.ones([g.ndim(x)], np.int64)) if steps is None else spread(g, g.ndim(x), axes, steps, 1)
    return g.emit(op.dynamic_strided_slice(x, begin, end, stride))


def spread(g: Context, ndim: int, axes: Expr, values: Expr, default: int) -> Expr:
    """Values of some axes as a vector of all axes."""
    whole = g.constant(np.full([ndim], default, dtype=np.int64))
    places = op.floor_mod(g.cast(axes, "int64"), const(ndim, "int64"))
    return g.emit(op.scatter_elements(whole, places, g.cast(values, "int64"), axis=0))


@converter("Trilu")
def trilu(g: Context, x: Expr, k: Expr | None = None, *, upper: int = 1) -> Expr:
    """The part of matrices above or below a diagonal, the rest 0."""
    if k is not None and g.array(k) is None:
        rows, columns = g.shape(x)[-2:]
        row = g.reshaped(g.emit(op.arange(0, rows, 1, "int64")), [rows, 1])
        distance = op.subtract(op.subtract(op.arange(0, columns, 1, "int64"), row), g.reshaped(k, []))
        zero = const(0, "int64")
        kept = op.greater_equal(distance, zero) if upper else op.less_equal(distance, zero)
        return g.emit(op.where(kept, x, g.like(0, x)))
    offset = 0 if k is None else g.constant_ints(k, "k of Trilu")[0]
    return g.emit(op.triu(x, offset) if upper else op.tril(x, offset))


# -- padding --

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@converter("Pad")
def pad_attributes(g: Context, x: Expr, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Expr:
    """The tensor padded, by widths that are attributes."""
    return padded(g, x, list(pads), mode, const(value, g.dtype(x)))


@converter("Pad", since=11)
def pad(
    g: Context, x: Expr, pads: Expr, value: Expr | None = None, axes: Expr | None = None, *, mode: str = "constant"
) -> Expr:
    """The tensor padded: by a constant, or by its own elements, mirrored, repeated or wrapped around."""
    if mode not in _MODES:
        raise UnsupportedError(f"expected a mode of {', '.join(_MODES)}, found {mode!r}")
    if axes is not None:
        count = g.static(g.shape(axes)[0], "how many dimensions are padded")
        sides = [op.strided_slice(pads, [0], [at], [at + count]) for at in (0, count)]
        pads = g.emit(op.concat([spread(g, g.ndim(x), axes, side, 0) for side in sides]))
    return padded(g, x, g.extents(pads, "pads"), mode, value)


def padded(g: Context, x: Expr, widths: list[Any], mode: str, value: Expr | None) -> Expr:
    """Negative widths take elements away."""
    ndim = g.ndim(x)
    before, after = widths[:ndim], widths[ndim:]
    cut = [isinstance(w, int) and w < 0 for w in widths]
    if any(cut):
        begin = [-b if c else 0 for b, c in zip(before, cut[:ndim], strict=True)]
        end = [e + (a if c else 0) for a, c, e in zip(after, cut[ndim:], g.shape(x), strict=True)]
        x = g.emit(op.strided_slice(x, list(range(ndim)), begin, end))
        before, after = ([0 if isinstance(w, int) and w < 0 else w for w in side] for side in (before, after))
    number = np.zeros(1) if value is None else g.array(value)
    static = all(isinstance(w, int) for w in (*before, *after))
    short = static and all(
        isinstance(e, int) and max(b, a) < e for b, a, e in zip(before, after, g.shape(x), strict=True)
    )
    if static and number is not None and (mode == "constant" or short):
        pairs = [w for pair in zip(before, after, strict=True) for w in pair]
        if not any(pairs):
            return x
        filler = float(number.reshape(-1)[0]) if mode == "constant" else 0.0
        return g.emit(op.nn.pad(x, pairs, _MODES[mode], filler))
    filler = g.like(0, x) if value is None else g.reshaped(value, [])
    return g.te(_te_pad, x, filler, before, after, mode, name="pad")


def _te_pad(data: te.Tensor, filler: te.Tensor, before: Any, after: Any, mode: str) -> te.Tensor:
    """The padded tensor; widths may be symbolic, and larger than the tensor."""
    out = [b + e + a for b, e, a in zip(before, data.shape, after, strict=True)]
    padded = [
        isinstance(b, PrimExpr) or isinstance(a, PrimExpr) or a + b > 0 for b, a in zip(before, after, strict=True)
    ]

    def inner(index: PrimExpr, extent: PrimExpr) -> PrimExpr:
        if mode == "wrap":
            return ops.floormod(index, extent)
        if mode == "reflect":
            period = ops.maximum(2 * (extent - 1), 1)
            turned = ops.floormod(index, period)
            return Select(turned < extent, turned, period - turned)
        return ops.maximum(ops.minimum(index, extent - 1), 0)

    def element(*index: PrimExpr) -> PrimExpr:
        moved = [i - b for i, b in zip(index, before, strict=True)]
        value = data(*[inner(i, e) if p else i for i, e, p in zip(moved, data.shape, padded, strict=True)])
        if mode == "constant":
            for i, e, p in zip(moved, data.shape, padded, strict=True):
                if p:
                    value = tir_op.if_then_else(ops.logical_and(i >= 0, i < e), value, filler())
        return value

    return te.compute(out, element, name="pad")


@converter("DepthToSpace")
def depth_to_space(g: Context, x: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    """Blocks of channels as squares of pixels."""
    n, c, h, w = g.shape(x)
    b = blocksize
    if mode == "DCR":
        parts, order = [n, b, b, c // (b * b), h, w], [0, 3, 4, 1, 5, 2]
    else:
        parts, order = [n, c // (b * b), b, b, h, w], [0, 1, 4, 2, 5, 3]
    apart = op.permute_dims(g.reshaped(x, parts), order)
    return g.reshaped(g.emit(apart), [n, c // (b * b), h * b, w * b])


@converter("SpaceToDepth")
def space_to_depth(g: Context, x: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    """Squares of pixels as blocks of channels."""
    n, c, h, w = g.shape(x)
    b = blocksize
    parts = g.reshaped(x, [n, c, _quotient(g, h, b), b, _quotient(g, w, b), b])
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    return g.reshaped(g.emit(op.permute_dims(parts, order)), [n, c * b * b, _quotient(g, h, b), _quotient(g, w, b)])


def _quotient(g: Context, extent: Any, divisor: int) -> Any:
    if isinstance(extent, int):
        return extent // divisor
    return g.block_builder.analyzer.simplify(ops.floordiv(extent, divisor))


@converter("ReverseSequence")
def reverse_sequence(g: Context, x: Expr, lengths: Expr, *, batch_axis: int = 1, time_axis: int = 0) -> Expr:
    """The first elements of each sequence of a batch in reverse order."""

    def reversed_(data: te.Tensor, counts: te.Tensor) -> te.Tensor:
        def element(*index: PrimExpr) -> PrimExpr:
            count, time = counts(index[batch_axis]), index[time_axis]
            place = list(index)
            place[time_axis] = Select(time < count, count - 1 - time, time)
            return data(*place)

        return te.compute(data.shape, element, name="reverse_sequence")

    return g.te(reversed_, x, g.cast(lengths, "int64"), name="reverse_sequence")
