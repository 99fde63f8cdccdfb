"""Operators that move elements without computing with them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import IntImm, PrimExpr, as_int, const
from ...runtime.error import InvalidValue
from ..expr import Call, Expr, ShapeExpr, Tuple, TupleGetItem, Var
from ..operator_facts import OpPattern, ViewsArgument
from ..struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo, same_extent
from .arguments import integer, integers, shape_value
from .infer_layout import (
    concat_layout,
    expand_layout,
    move_axes,
    permute_layout,
    split_layout,
    squeeze_layout,
    stack_layout,
)
from .inference import (
    common_dtype,
    common_vdevice,
    fail,
    normalize_axes,
    normalize_axis,
    shape_argument,
    tensor_argument,
    tensors_of_tuple,
)
from .op_attrs import (
    ConcatAttrs,
    ExpandDimsAttrs,
    FlipAttrs,
    PermuteDimsAttrs,
    RepeatAttrs,
    SplitAttrs,
    SqueezeAttrs,
    StackAttrs,
    TileAttrs,
)
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder

_ONE = const(1, "int64")


def tuple_fields(builder: BlockBuilder, value: Expr) -> list[Expr]:
    """The fields of a tuple, which may have been given a variable."""
    while isinstance(value, Var):
        bound = builder.lookup_binding(value)
        if not isinstance(bound, (Tuple, Var)):
            break
        value = bound
    if isinstance(value, Tuple):
        return list(value.fields)
    return [builder.emit(TupleGetItem(value, i)) for i in range(len(value.struct_info.fields))]


def known_shape(builder: BlockBuilder, shape: Expr) -> Expr:
    """A shape as a `ShapeExpr`, where the extents are known."""
    while isinstance(shape, Var):
        bound = builder.lookup_binding(shape)
        if bound is None:
            break
        shape = bound
    info = shape.struct_info
    if isinstance(info, ShapeStructInfo) and info.values is not None:
        return ShapeExpr(info.values)
    return shape


def product(extents: Sequence[PrimExpr]) -> PrimExpr:
    """The number of elements of a shape."""
    result: PrimExpr = _ONE
    for extent in extents:
        result = ops.multiply(result, extent)
    return result


def axis_list(axis: Any) -> list[int] | None:
    """One axis or several as a list; None stays None."""
    return None if axis is None else integers(axis)


def unknown_shape(info: TensorStructInfo, ndim: int) -> TensorStructInfo:
    """A tensor like another one, of which only the number of dimensions is known; -1 is not even that."""
    return TensorStructInfo(None, info.dtype, info.vdevice, ndim)


def of_shape(info: TensorStructInfo, shape: Any) -> TensorStructInfo:
    """A tensor like another one in another shape."""
    return TensorStructInfo(shape, info.dtype, info.vdevice)


def _text(extents: Any) -> str:
    return f"({', '.join(map(str, extents))})"


# -- shapes --


@operator("relax.broadcast_to", pattern=OpPattern.BROADCAST)
def broadcast_to(x: Expr, shape: Any) -> Expr:
    """The tensor repeated along dimensions that it lacks, or of extent 1, so that it has `shape`."""
    return broadcast_to.call(x, shape_value(shape))


broadcast_to.selects()
broadcast_to.follow_precision()


@broadcast_to.struct_info
def _broadcast_to_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, target = tensor_argument(call, 0), shape_argument(call, 1)
    if -1 not in (info.ndim, target.ndim) and target.ndim < info.ndim:
        raise fail(call, f"a tensor of {info.ndim} dimensions cannot be broadcast to {target.ndim} dimensions")
    if info.extents is not None and target.values is not None:
        for have, want in zip(reversed(info.extents), reversed(target.values), strict=False):
            if as_int(have) != 1 and builder.analyzer.can_prove(ops.not_equal(have, want)):
                raise fail(call, f"the shape {_text(info.extents)} cannot be broadcast to {_text(target.values)}")
    return of_shape(info, call.args[1])


broadcast_to.reference(np.broadcast_to)


@broadcast_to.legalize_as
def _legalize_broadcast_to(builder: BlockBuilder, call: Call) -> Expr:
    shape = known_shape(builder, call.args[1])
    return builder.call_te(topi.broadcast_to, call.args[0], shape, primfunc_name_hint="broadcast_to")


@operator("relax.reshape", pattern=OpPattern.INJECTIVE)
def reshape(x: Expr, shape: Any) -> Expr:
    """The elements in row-major order in another shape of as many elements.

    One extent may be -1, for what remains of the elements; an extent of 0 is that of `x` in the same place, but for a
    tensor that is known to have no elements: there it is 0.
    """
    target = shape_value(shape)
    return reshape.call(x, _completed(x, target) if isinstance(target, ShapeExpr) else target)


def _completed(x: Expr, target: ShapeExpr) -> ShapeExpr:
    """The shape with -1 and 0 replaced by the extents that they stand for."""
    extents = list(target.values)
    known = list(map(as_int, extents))
    if known.count(-1) > 1 or any(k is not None and k < -1 for k in known):
        raise InvalidValue(f"relax.reshape: expected extents of at least 0, and at most one -1, found {_text(extents)}")
    if -1 not in known and 0 not in known:
        return target
    info = getattr(x, "struct_info_", None)
    if not isinstance(info, TensorStructInfo) or info.extents is None:
        raise InvalidValue(
            f"relax.reshape: -1 and 0 in the shape {_text(extents)} need a tensor of known shape, found `{x}`: {info}"
        )
    if -1 not in known and 0 in map(as_int, info.extents):
        return target
    for i, k in enumerate(known):
        if k == 0:
            if i >= len(info.extents):
                raise InvalidValue(
                    f"relax.reshape: 0 in the shape {_text(extents)} stands for extent {i} of {_text(info.extents)}"
                )
            extents[i] = info.extents[i]
    if -1 in known:
        place = known.index(-1)
        rest = product([e for i, e in enumerate(extents) if i != place])
        analyzer = Analyzer()
        if analyzer.can_prove(ops.not_equal(ops.floormod(product(info.extents), rest), 0)):
            raise InvalidValue(f"relax.reshape: {_text(info.extents)} cannot have the shape {_text(target.values)}")
        extents[place] = analyzer.simplify(ops.floordiv(product(info.extents), rest))
    return ShapeExpr(extents)


reshape.selects()
reshape.follow_precision()
ViewsArgument.set(reshape.op, True)


@reshape.struct_info
def _reshape_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, target = tensor_argument(call, 0), shape_argument(call, 1)
    if info.extents is not None and target.values is not None:
        have, want = product(info.extents), product(target.values)
        if builder.analyzer.can_prove(ops.not_equal(have, want)):
            raise fail(
                call,
                f"the shape {_text(info.extents)} has {builder.analyzer.simplify(have)} elements, "
                f"{_text(target.values)} has {builder.analyzer.simplify(want)}",
            )
    return of_shape(info, call.args[1] if target.values is None else target.values)


reshape.reference(np.reshape)


@reshape.legalize_as
def _legalize_reshape(builder: BlockBuilder, call: Call) -> Expr:
    shape = known_shape(builder, call.args[1])
    return builder.call_te(topi.reshape, call.args[0], shape, primfunc_name_hint="reshape")


@operator("relax.flatten", pattern=OpPattern.INJECTIVE)
def flatten(x: Expr) -> Expr:
    """All elements in row-major order in one dimension."""
    return flatten.call(x)


flatten.selects()
flatten.follow_precision()
ViewsArgument.set(flatten.op, True)


@flatten.struct_info
def _flatten_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    if info.ndim == 1:
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)
    if info.ndim == 0:
        return of_shape(info, [1])
    return unknown_shape(info, 1) if info.extents is None else of_shape(info, [product(info.extents)])


flatten.reference(np.ravel)
flatten.legalize_as(
    lambda builder, call: builder.call_te(
        topi.reshape, call.args[0], ShapeExpr(call.struct_info.extents), primfunc_name_hint="reshape"
    )
)


@operator("relax.expand_dims", pattern=OpPattern.BROADCAST, attrs=ExpandDimsAttrs)
def expand_dims(x: Expr, axis: int | list[int]) -> Expr:
    """The tensor with new dimensions of extent 1, at the places `axis` of the result."""
    return expand_dims.call(x, axis=axis_list(axis))


expand_dims.selects()
expand_dims.follow_precision()
ViewsArgument.set(expand_dims.op, True)
expand_dims.infer_layout(expand_layout)


@expand_dims.struct_info
def _expand_dims_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, axes = tensor_argument(call, 0), call.attrs["axis"]
    if not axes:
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)
    if info.ndim == -1:
        return unknown_shape(info, -1)
    ndim = info.ndim + len(axes)
    new = normalize_axes(call, axes, ndim)
    if info.extents is None:
        return unknown_shape(info, ndim)
    kept = iter(info.extents)
    return of_shape(info, [_ONE if i in new else next(kept) for i in range(ndim)])


expand_dims.reference(lambda x, axis: np.expand_dims(x, tuple(axis)))


def te_expand_dims(data: te.Tensor, axis: Sequence[int]) -> te.Tensor:
    """The tensor with new dimensions of extent 1."""
    ndim = data.ndim + len(axis)
    new = {a % ndim for a in axis}
    kept = iter(data.shape)
    shape = [_ONE if i in new else next(kept) for i in range(ndim)]
    old = [i for i in range(ndim) if i not in new]
    return te.compute(shape, lambda *index: data(*[index[i] for i in old]), name="expand_dims")


expand_dims.legalize(te_expand_dims, "expand_dims")


@operator("relax.squeeze", pattern=OpPattern.INJECTIVE, attrs=SqueezeAttrs)
def squeeze(x: Expr, axis: int | list[int] | None = None) -> Expr:
    """The tensor without dimensions of extent 1: those of `axis`, or all."""
    return squeeze.call(x, axis=axis_list(axis))


squeeze.selects()
squeeze.follow_precision()
ViewsArgument.set(squeeze.op, True)
squeeze.infer_layout(squeeze_layout)


@squeeze.struct_info
def _squeeze_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, axes = tensor_argument(call, 0), call.attrs["axis"]
    if axes is not None and not axes:
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)
    if info.ndim == -1:
        return unknown_shape(info, -1)
    extents = info.extents
    if axes is None:
        if extents is None or not all(isinstance(e, IntImm) for e in extents):
            return unknown_shape(info, -1)
        return of_shape(info, [e for e in extents if as_int(e) != 1])
    removed = normalize_axes(call, axes, info.ndim)
    if extents is None:
        return unknown_shape(info, info.ndim - len(removed))
    for a in removed:
        if as_int(extents[a]) not in (1, None):
            raise fail(call, f"axis {a} of the shape {_text(extents)} is not of extent 1")
    return of_shape(info, [e for i, e in enumerate(extents) if i not in removed])


squeeze.reference(lambda x, axis: np.squeeze(x, None if axis is None else tuple(axis)))
squeeze.legalize(topi.squeeze)


@operator("relax.permute_dims", pattern=OpPattern.INJECTIVE, attrs=PermuteDimsAttrs)
def permute_dims(x: Expr, axes: list[int] | None = None) -> Call:
    """The tensor with its dimensions in another order: dimension i of the result is axes[i]; reversed without axes."""
    return permute_dims.call(x, axes=axis_list(axes))


permute_dims.selects()
permute_dims.follow_precision()
ViewsArgument.set(permute_dims.op, True)
permute_dims.infer_layout(permute_layout)


@permute_dims.struct_info
def _permute_dims_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, axes = tensor_argument(call, 0), call.attrs["axes"]
    if axes is None:
        extents = info.extents
        return unknown_shape(info, info.ndim) if extents is None else of_shape(info, list(reversed(extents)))
    if info.ndim not in (-1, len(axes)):
        raise fail(call, f"expected {info.ndim} axes for a tensor of {info.ndim} dimensions, found {list(axes)}")
    order = normalize_axes(call, axes, len(axes))
    if order == list(range(len(order))):
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, len(axes))
    return unknown_shape(info, len(axes)) if info.extents is None else of_shape(info, [info.extents[a] for a in order])


permute_dims.reference(lambda x, axes: np.transpose(x, axes))
permute_dims.legalize(topi.transpose)


# -- joining and cutting --


def _tensors(value: Any) -> Expr:
    return Tuple(value) if isinstance(value, (list, tuple)) else value


def joined_tensors(call: Call) -> tuple[list[TensorStructInfo], TensorStructInfo]:
    """The tensors of the tuple that is the first argument, and what they have in common: dtype, device, dimensions."""
    infos = tensors_of_tuple(call)
    if not infos:
        raise fail(call, "expected at least one tensor, found none")
    known = {i.ndim for i in infos} - {-1}
    if len(known) > 1:
        raise fail(call, f"expected tensors of as many dimensions, found {' and '.join(str(i.ndim) for i in infos)}")
    ndim = known.pop() if known else -1
    devices = {id(i.vdevice): i.vdevice for i in infos if i.vdevice is not None}
    device = common_vdevice(infos) if len(devices) == 1 else None
    return infos, TensorStructInfo(None, common_dtype(call, infos), device, ndim)


def agreed_extents(
    call: Call, shapes: Sequence[Sequence[PrimExpr]], builder: BlockBuilder, besides: int | None = None
) -> list[PrimExpr] | None:
    """The extents that shapes share, but for one axis; None where they are not known to agree."""
    first, agree = shapes[0], True
    for other in shapes[1:]:
        for i, (x, y) in enumerate(zip(first, other, strict=True)):
            if i == besides or same_extent(x, y, builder.analyzer):
                continue
            if builder.analyzer.can_prove(ops.not_equal(x, y)):
                raise fail(call, f"the shapes {_text(first)} and {_text(other)} differ at dimension {i}")
            agree = False
    return list(first) if agree else None


@operator("relax.concat", pattern=OpPattern.INJECTIVE, attrs=ConcatAttrs)
def concat(tensors: Any, axis: int | None = 0) -> Expr:
    """Tensors one after the other along an axis; without one, of one dimension."""
    return concat.call(_tensors(tensors), axis=None if axis is None else integer(axis))


concat.follow_precision()
concat.infer_layout(concat_layout)


@concat.struct_info
def _concat_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    infos, common = joined_tensors(call)
    axis = call.attrs["axis"]
    if axis is None and common.ndim not in (-1, 1):
        raise fail(call, f"without an axis, expected tensors of one dimension, found {common.ndim}")
    ndim = 1 if axis is None else common.ndim
    if ndim == -1:
        return infos[0] if len(infos) == 1 else unknown_shape(common, -1)
    place = 0 if axis is None else normalize_axis(call, axis, ndim)
    if len(infos) == 1:
        return infos[0]
    shapes = [i.extents for i in infos if i.extents is not None]
    extents = agreed_extents(call, shapes, builder, place) if shapes else None
    if extents is None or len(shapes) < len(infos):
        return unknown_shape(common, ndim)
    sizes = [s[place] for s in shapes]
    if all(same_extent(s, sizes[0], builder.analyzer) for s in sizes):
        extents[place] = ops.multiply(sizes[0], const(len(sizes), "int64"))
    else:
        total: PrimExpr = const(0, "int64")
        for size in sizes:
            total = ops.add(total, size)
        extents[place] = total
    return of_shape(common, extents)


concat.reference(lambda tensors, axis: np.concatenate(tensors, 0 if axis is None else axis))


@concat.legalize_as
def _legalize_concat(builder: BlockBuilder, call: Call) -> Expr:
    fields, axis = tuple_fields(builder, call.args[0]), call.attrs["axis"]
    return builder.call_te(topi.concatenate, fields, 0 if axis is None else axis, primfunc_name_hint="concatenate")


@operator("relax.stack", pattern=OpPattern.INJECTIVE, attrs=StackAttrs)
def stack(tensors: Any, axis: int = 0) -> Expr:
    """Tensors of one shape along a new axis of the result."""
    return stack.call(_tensors(tensors), axis=integer(axis))


stack.follow_precision()
stack.infer_layout(stack_layout)


@stack.struct_info
def _stack_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    infos, common = joined_tensors(call)
    if common.ndim == -1:
        return unknown_shape(common, -1)
    axis = normalize_axis(call, call.attrs["axis"], common.ndim + 1)
    shapes = [i.extents for i in infos if i.extents is not None]
    extents = agreed_extents(call, shapes, builder) if shapes else None
    if extents is None or len(shapes) < len(infos):
        return unknown_shape(common, common.ndim + 1)
    return of_shape(common, [*extents[:axis], const(len(infos), "int64"), *extents[axis:]])


stack.reference(np.stack)
stack.legalize_as(
    lambda builder, call: builder.call_te(
        topi.stack, tuple_fields(builder, call.args[0]), call.attrs["axis"], primfunc_name_hint="stack"
    )
)


@operator("relax.split", pattern=OpPattern.INJECTIVE, attrs=SplitAttrs)
def split(x: Expr, indices_or_sections: int | list[int], axis: int = 0) -> Expr:
    """The tensor cut along an axis: into so many parts of equal size, the last maybe smaller, or at rising indices."""
    if isinstance(indices_or_sections, (list, tuple)):
        cuts: Any = [integer(i) for i in indices_or_sections]
        if cuts != sorted(cuts) or (cuts and cuts[0] < 0):
            raise InvalidValue(f"relax.split: expected ascending indices of at least 0, found {cuts}")
    else:
        cuts = integer(indices_or_sections)
        if cuts < 1:
            raise InvalidValue(f"relax.split: expected at least one part, found {cuts}")
    return split.call(x, indices_or_sections=cuts, axis=integer(axis))


split.follow_precision()
split.infer_layout(split_layout)


@split.struct_info
def _split_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, cuts = tensor_argument(call, 0), call.attrs["indices_or_sections"]
    axis = call.attrs["axis"] if info.ndim == -1 else normalize_axis(call, call.attrs["axis"], info.ndim)
    count = cuts if isinstance(cuts, int) else len(cuts) + 1
    if count == 1:
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)
    extents = info.extents
    if extents is None:
        return TupleStructInfo([unknown_shape(info, info.ndim)] * count)
    bounds = cut_positions(extents[axis], cuts, builder.analyzer)
    parts = []
    for left, right in itertools.pairwise(bounds):
        size = builder.analyzer.simplify(ops.subtract(right, left))
        parts.append(of_shape(info, [*extents[:axis], size, *extents[axis + 1 :]]))
    return TupleStructInfo(parts)


def cut_positions(extent: PrimExpr, cuts: Any, analyzer: Analyzer) -> list[PrimExpr]:
    """Where the parts of an axis begin, and where the last one ends."""
    zero = const(0, "int64")
    known = as_int(extent) is not None
    if isinstance(cuts, int):
        each = analyzer.simplify(ops.floordiv(ops.add(extent, const(cuts - 1, "int64")), const(cuts, "int64")))
        inner = [analyzer.simplify(ops.multiply(each, const(i, "int64"))) for i in range(1, cuts)]
    else:
        inner = [const(i, "int64") for i in cuts]
    if known or not isinstance(cuts, int):
        inner = [analyzer.simplify(ops.minimum(ops.maximum(i, zero), extent)) for i in inner]
    return [zero, *inner, extent]


@split.reference
def _split_reference(x: np.ndarray, indices_or_sections: Any, axis: int) -> Any:
    size, cuts = x.shape[axis], indices_or_sections
    if isinstance(cuts, int):
        each = -(-size // cuts)
        cuts = [min(each * i, size) for i in range(1, cuts)]
    parts = np.split(x, list(cuts), axis)
    return parts if len(parts) > 1 else x


@split.legalize_as
def _legalize_split(builder: BlockBuilder, call: Call) -> Expr:
    x, cuts, axis = call.args[0], call.attrs["indices_or_sections"], call.attrs["axis"]
    extents = tensor_argument(call, 0).extents
    if extents is None:
        raise fail(call, f"the shape of `{x}` is not known: {x.struct_info}; cast it with match_cast")
    extent = extents[axis]
    size = as_int(extent)
    divides = isinstance(cuts, int) and size is not None and size % cuts == 0
    if not divides:
        cuts = cut_positions(extent, cuts, builder.analyzer)[1:-1]
    return builder.call_te(topi.split, x, cuts, axis, primfunc_name_hint="split")


# -- repeating --


@operator("relax.repeat", pattern=OpPattern.BROADCAST, attrs=RepeatAttrs)
def repeat(data: Expr, repeats: int, axis: int | None = None) -> Expr:
    """Each element `repeats` times in a row along an axis; without one, in one dimension."""
    if integer(repeats) < 0:
        raise InvalidValue(f"relax.repeat: expected repeats of at least 0, found {repeats}")
    return repeat.call(data, repeats=integer(repeats), axis=None if axis is None else integer(axis))


repeat.selects()
repeat.follow_precision()


@repeat.struct_info
def _repeat_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, axis = tensor_argument(call, 0), call.attrs["axis"]
    repeats = const(call.attrs["repeats"], "int64")
    if axis is not None and info.ndim != -1:
        axis = normalize_axis(call, axis, info.ndim)
    extents = info.extents
    if axis is None:
        if extents is None:
            return unknown_shape(info, 1)
        return of_shape(info, [builder.analyzer.simplify(ops.multiply(product(extents), repeats))])
    if extents is None:
        shape = info.shape if as_int(repeats) == 1 else None
        return TensorStructInfo(shape, info.dtype, info.vdevice, info.ndim)
    new = builder.analyzer.simplify(ops.multiply(extents[axis], repeats))
    return of_shape(info, [*extents[:axis], new, *extents[axis + 1 :]])


repeat.reference(np.repeat)


def te_repeat(data: te.Tensor, repeats: int, axis: int | None) -> te.Tensor:
    """Each element several times in a row, along an axis or of all elements."""
    if axis is None:
        return topi.repeat(topi.reshape(data, [product(data.shape)]), repeats, 0)
    return topi.repeat(data, repeats, axis)


repeat.legalize(te_repeat, "repeat")


@operator("relax.tile", pattern=OpPattern.BROADCAST, attrs=TileAttrs)
def tile(data: Expr, repeats: int | Sequence[int]) -> Expr:
    """The tensor as a whole repeated along its dimensions; the shorter of shape and repeats is filled with ones."""
    times = integers(repeats)
    if min(times, default=0) < 0:
        raise InvalidValue(f"relax.tile: expected repeats of at least 0, found {times}")
    return tile.call(data, repeats=times)


tile.selects()
tile.follow_precision()


@tile.struct_info
def _tile_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, repeats = tensor_argument(call, 0), call.attrs["repeats"]
    if info.ndim == -1:
        return unknown_shape(info, -1)
    ndim, extents = max(info.ndim, len(repeats)), info.extents
    if extents is None:
        shape = info.shape if ndim == info.ndim and all(r == 1 for r in repeats) else None
        return TensorStructInfo(shape, info.dtype, info.vdevice, ndim)
    sizes = [*[_ONE] * (ndim - info.ndim), *extents]
    times = [const(r, "int64") for r in (*[1] * (ndim - len(repeats)), *repeats)]
    products = (ops.multiply(s, t) for s, t in zip(sizes, times, strict=True))
    return of_shape(info, [builder.analyzer.simplify(p) for p in products])


tile.reference(lambda data, repeats: np.tile(data, tuple(repeats)))
tile.legalize(topi.tile)


@operator("relax.flip", pattern=OpPattern.INJECTIVE, attrs=FlipAttrs)
def flip(data: Expr, axis: int) -> Expr:
    """The tensor with the order along an axis reversed."""
    return flip.call(data, axis=integer(axis))


flip.selects()
flip.follow_precision()
flip.infer_layout(move_axes("axis"))


@flip.struct_info
def _flip_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    if info.ndim != -1:
        normalize_axis(call, call.attrs["axis"], info.ndim)
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


flip.reference(np.flip)
flip.legalize(topi.flip)


# -- what broadcasting repeated, summed --


def _check_collapse(call: Call, have: Sequence[PrimExpr], want: Sequence[PrimExpr], builder: BlockBuilder) -> None:
    """An error unless `want` is known to broadcast to `have`."""
    fits = len(want) <= len(have)
    for x, y in zip(reversed(have), reversed(want), strict=False):
        fits &= same_extent(x, y, builder.analyzer) or as_int(y) == 1
    if not fits:
        raise fail(
            call,
            f"the shape {_text(have)} cannot be summed to {_text(want)}, which is not known to broadcast to it; "
            "cast symbolic extents with match_cast",
        )


@operator("relax.collapse_sum_like")
def collapse_sum_like(data: Expr, collapse_target: Expr) -> Expr:
    """The sum over the dimensions that a broadcast of `collapse_target` to the shape of `data` repeats."""
    return collapse_sum_like.call(data, collapse_target)


@collapse_sum_like.struct_info
def _collapse_sum_like_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, target = tensor_argument(call, 0), tensor_argument(call, 1)
    if info.extents is not None and target.extents is not None:
        _check_collapse(call, info.extents, target.extents, builder)
    return TensorStructInfo(target.shape, info.dtype, target.vdevice, target.ndim)


def _collapsed(data: np.ndarray, shape: Any) -> np.ndarray:
    extra = data.ndim - len(shape)
    repeated = [i + extra for i, e in enumerate(shape) if e == 1 and data.shape[i + extra] != 1]
    return data.sum((*range(extra), *repeated), dtype=data.dtype).reshape(shape)


collapse_sum_like.reference(lambda data, collapse_target: _collapsed(data, collapse_target.shape))
collapse_sum_like.legalize_as(
    lambda builder, call: builder.call_te(
        topi.collapse_sum, call.args[0], _target_extents(call), primfunc_name_hint="collapse_sum"
    )
)


def _target_extents(call: Call) -> Expr:
    extents = tensor_argument(call, 1).extents
    if extents is None:
        raise fail(call, f"the shape of `{call.args[1]}` is not known: {call.args[1].struct_info}")
    return ShapeExpr(extents)


@operator("relax.collapse_sum_to")
def collapse_sum_to(data: Expr, shape: Any) -> Expr:
    """The sum over the dimensions that a broadcast of `shape` to the shape of `data` repeats."""
    return collapse_sum_to.call(data, shape_value(shape))


@collapse_sum_to.struct_info
def _collapse_sum_to_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, target = tensor_argument(call, 0), shape_argument(call, 1)
    if info.extents is not None and target.values is not None:
        _check_collapse(call, info.extents, target.values, builder)
    return of_shape(info, call.args[1])


collapse_sum_to.reference(_collapsed)
collapse_sum_to.legalize_as(
    lambda builder, call: builder.call_te(
        topi.collapse_sum, call.args[0], known_shape(builder, call.args[1]), primfunc_name_hint="collapse_sum"
    )
)
