"""Padding: a tensor with further elements at both ends of its dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import ExprOp, PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import shape_text

_TAG = tag.INJECTIVE + ",pad"


def get_padded_shape(data: Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any] | None = None) -> tuple:
    """The shape of `data` after padding; `pad_after` is by default as `pad_before`."""
    before, after = _pads(data, pad_before, pad_after, "get_padded_shape")
    return _padded_shape(data, before, after)


def _pads(data: Tensor, before: Any, after: Any, function: str) -> tuple[list[Any], list[Any]]:
    after = after or before
    for name, pads in (("pad_before", before), ("pad_after", after)):
        if len(pads) != data.ndim:
            raise InvalidValue(
                f"topi.nn.{function}: expected a {name} for each of the {data.ndim} dimensions of the data of shape "
                f"{shape_text(data.shape)}, found {len(pads)}"
            )
    return list(before), list(after)


def _padded_shape(data: Tensor, before: list[Any], after: list[Any]) -> tuple:
    simplify = Analyzer().simplify
    return tuple(simplify(d + b + a) for d, b, a in zip(data.shape, before, after, strict=True))


@te.tag_scope(tag=_TAG)
def pad(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """`data` with `pad_value` around it; `pad_after` is by default as `pad_before`."""
    before, after = _pads(data, pad_before, pad_after, "pad")
    value = pad_value if isinstance(pad_value, ExprOp) else const(pad_value, data.dtype)

    def element(*i: PrimExpr) -> Any:
        inside, indices = [], []
        for index, extent, b, a in zip(i, data.shape, before, after, strict=True):
            if as_int(b) == 0 and as_int(a) == 0:
                indices.append(index)
                continue
            indices.append(index - b)
            inside += [index >= b, index < extent + b]
        found = data(*indices)
        return tir_op.if_then_else(tir_op.all(*inside), found, value) if inside else found

    return te.compute(_padded_shape(data, before, after), element, name=name, attrs=attrs)


def pad_ends(data: Tensor, before: list[Any], after: list[Any], value: Any, name: str = "pad_temp") -> Tensor:
    """Padding that tests only the ends that are padded."""
    simplify = Analyzer().simplify
    shape = [simplify(d + b + a) for d, b, a in zip(data.shape, before, after, strict=True)]

    def element(*ax: PrimExpr) -> Any:
        inside, indices = [], []
        for index, extent, b, a in zip(ax, data.shape, before, after, strict=True):
            if as_int(b) != 0:
                inside.append(index >= b)
                index = index - b
            indices.append(index)
            if as_int(a) != 0:
                inside.append(ax[len(indices) - 1] < b + extent)
        found = data(*indices)
        return tir_op.if_then_else(tir_op.all(*inside), found, value) if inside else found

    return te.compute(shape, element, name=name, tag=tag.ELEMWISE)


def _remapped(data: Tensor, before: list[Any], after: list[Any], remap: Callable[[Any, int], Any], name: str) -> Tensor:
    """Padding with elements of the data: `remap(index, dimension)` is the index that the element is read from."""
    return te.compute(
        _padded_shape(data, before, after),
        lambda *i: data(*(remap(index, dim) for dim, index in enumerate(i))),
        name=name,
    )


def _check_widths(data: Tensor, before: list[Any], after: list[Any], spare: int, function: str) -> None:
    """Raises `ShapeMismatch` for more padding than elements to mirror: an extent less `spare`."""
    for dim, extent in enumerate(data.shape):
        known = as_int(extent)
        for pads in (before, after):
            width = as_int(pads[dim])
            if known is not None and width is not None and width > max(known - spare, 0):
                raise ShapeMismatch(
                    f"topi.nn.{function}: dimension {dim} of the data of shape {shape_text(data.shape)} can be padded "
                    f"by at most {max(known - spare, 0)}, found {width}"
                )


@te.tag_scope(tag=_TAG)
def mirror_pad(
    data: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Tensor:
    """`data` with its mirror image around it; the mode "SYMMETRIC" repeats the border, "REFLECT" does not."""
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise InvalidValue(f'topi.nn.mirror_pad: expected the mode "SYMMETRIC" or "REFLECT", found {mode!r}')
    repeated = int(mode == "SYMMETRIC")
    before, after = _pads(data, pad_before, pad_after, "mirror_pad")
    _check_widths(data, before, after, 1 - repeated, "mirror_pad")

    def remap(index: PrimExpr, dim: int) -> Any:
        b, extent = before[dim], data.shape[dim]
        if as_int(b) == 0 and as_int(after[dim]) == 0:
            return index
        place = index - b
        mirrored = tir_op.if_then_else(index < b, -place - repeated, place)
        return tir_op.if_then_else(index >= extent + b, 2 * (extent - 1) - place + repeated, mirrored)

    return _remapped(data, before, after, remap, name)


@te.tag_scope(tag=_TAG)
def reflect_pad(
    data: Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any] | None = None, name: str = "ReflectPadInput"
) -> Tensor:
    """`data` with its mirror image around it, the border itself not repeated."""
    before, after = _pads(data, pad_before, pad_after, "reflect_pad")
    _check_widths(data, before, after, 1, "reflect_pad")

    def remap(index: PrimExpr, dim: int) -> Any:
        place, extent = index - before[dim], data.shape[dim]
        beyond = tir_op.if_then_else(place >= extent, 2 * extent - 2 - place, place)
        return tir_op.if_then_else(place < 0, -place, beyond)

    return _remapped(data, before, after, remap, name)


@te.tag_scope(tag=_TAG)
def replicate_pad(
    data: Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any] | None = None, name: str = "ReplicatePadInput"
) -> Tensor:
    """`data` with its border repeated around it."""
    before, after = _pads(data, pad_before, pad_after, "replicate_pad")

    def remap(index: PrimExpr, dim: int) -> Any:
        place, extent = index - before[dim], data.shape[dim]
        beyond = tir_op.if_then_else(place >= extent, extent - 1, place)
        return tir_op.if_then_else(place < 0, const(0, place.dtype), beyond)

    return _remapped(data, before, after, remap, name)


@te.tag_scope(tag=_TAG)
def circular_pad(
    data: Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any] | None = None, name: str = "CircularPadInput"
) -> Tensor:
    """`data` with copies of itself around it."""
    before, after = _pads(data, pad_before, pad_after, "circular_pad")

    def remap(index: PrimExpr, dim: int) -> Any:
        extent = data.shape[dim]
        if as_int(before[dim]) == 0 and as_int(after[dim]) == 0:
            return index  # also of dimensions without elements
        return ops.floormod(index - before[dim] + extent, extent)

    return _remapped(data, before, after, remap, name)
