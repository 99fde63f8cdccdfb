"""Layouts of images: the shape that a tensor has in another layout, and complete paddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.expr import PrimExpr
from ....runtime.error import InvalidValue
from ....tir.data_layout import BijectiveLayout, Layout
from ...expr import Call
from ...struct_info import TensorStructInfo
from ..arguments import integers
from ..inference import fail


def in_layout(call: Call, info: TensorStructInfo, layout: str, target: str, what: str) -> list[PrimExpr] | None:
    """The extents of a tensor of one layout in another one; None if they are not known."""
    count = len(Layout(layout))
    if info.ndim not in (-1, count):
        raise fail(call, f"the {what} in the layout {layout} must have {count} dimensions, found {info.ndim}")
    convert = _conversion(call, layout, target, what)
    if info.extents is None:
        return None
    return list(info.extents) if convert is None else list(convert.forward_shape(info.extents))


def from_layout(call: Call, extents: Sequence[PrimExpr], layout: str, source: str, what: str) -> list[PrimExpr]:
    """Extents in the layout `source` as those in another one."""
    convert = _conversion(call, layout, source, what)
    return list(extents) if convert is None else list(convert.backward_shape(extents))


def _conversion(call: Call, layout: str, target: str, what: str) -> BijectiveLayout | None:
    if layout == target:
        return None
    try:
        return BijectiveLayout(Layout(layout), Layout(target))
    except InvalidValue as error:
        raise fail(call, f"the layout {layout} of the {what} cannot be converted to {target}: {error}") from None


def per_dimension(function: str, values: Any, count: int, what: str, least: int = 1) -> list[int]:
    """One number of at least `least` for each spatial dimension; a single one is for all."""
    given = integers(values)
    if len(given) == 1:
        given *= count
    if len(given) != count:
        raise InvalidValue(f"relax.nn.{function}: expected {count} {what}, found {given}")
    if min(given) < least:
        raise InvalidValue(f"relax.nn.{function}: expected {what} of at least {least}, found {given}")
    return given


def complete_padding(function: str, padding: Any, count: int) -> list[int]:
    """The paddings before and then those after each dimension, from one, one for each, or all."""
    given = integers(padding)
    if len(given) == 1:
        return given * (2 * count)
    if len(given) == count:
        return given * 2
    if len(given) == 2 * count:
        return given
    raise InvalidValue(f"relax.nn.{function}: expected 1, {count} or {2 * count} paddings, found {given}")
