"""Layouts by name: the order of a tensor's axes, and the index mapping between two layouts.

layout("NCHW16c").factor_of("C")                                    # 16
bijective_layout("NCHW", "NCHW16c").forward_shape((1, 64, 7, 7))    # (1, 4, 7, 7, 16)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..ir import operators as ops
from ..ir.container import Array
from ..ir.dtype import DataType
from ..ir.expr import PrimExpr, Range, Var, const
from ..ir.node import Node, attr, derived
from ..runtime.error import InvalidValue, ShapeMismatch
from .expr import IterVar, expr_array

UNDEFINED = "__undef__"
"""The name of the layout of which nothing is known."""


class Layout(Node):
    """The axes of a tensor in order: a capital for each, and a lower-case letter with a factor for a part of one.

    In "NCHW16c" the channels are split: "C" counts groups of 16, and "c", the innermost axis, runs within a group. The
    layout of a scalar is "". `axes` are iteration variables of the dtype `dtype`; those of capitals have symbolic
    extents.
    """

    name: str
    dtype: DataType = attr(default="int32", converter=DataType)
    axes: Array[IterVar] = derived()

    def _derive(self) -> None:
        axes = [] if self.name == UNDEFINED else _axes_of(self.name)
        names = [name for name, _ in axes]
        for name, factor in axes:
            if names.count(name) > 1:
                raise InvalidValue(f"layout {self.name!r} has the axis {name!r} twice")
            if name.islower() and (factor == 0 or name.upper() not in names):
                missing = "a factor before it" if factor == 0 else f"the axis {name.upper()!r} that it is a part of"
                raise InvalidValue(f"layout {self.name!r}: the axis {name!r} needs {missing}")
            if name.isupper() and factor:
                raise InvalidValue(f"layout {self.name!r}: the axis {name!r} is whole and cannot have a factor")
        self.axes = Array(self._iter_var(name, factor) for name, factor in axes)

    def _iter_var(self, name: str, factor: int) -> IterVar:
        extent = const(factor, self.dtype) if factor else Var(f"{name}_shape", self.dtype)
        return IterVar(Range(const(0, self.dtype), extent), Var(name, self.dtype), IterVar.DataPar)

    def __len__(self) -> int:
        return len(self.axes)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> str:
        """The name of the axis in a position, which may count from the end."""
        if not -len(self.axes) <= index < len(self.axes):
            raise IndexError(f"layout {self.name!r} has {len(self.axes)} axes; found the index {index}")
        return self.axes[index].var.name

    def __contains__(self, axis: str) -> bool:
        """Whether there is an axis of that name; a factor before the name, as in "16c", is ignored."""
        return self.index_of(axis.lstrip("0123456789")) >= 0

    def __str__(self) -> str:
        return f"Layout({self.name})"

    def index_of(self, axis: str) -> int:
        """The position of an axis; -1 when there is none of that name."""
        return next((i for i, iter_var in enumerate(self.axes) if iter_var.var.name == axis), -1)

    def factor_of(self, axis: str) -> int:
        """The factor by which an axis is split, asked of either part; -1 when it is not split, or not there."""
        index = self.index_of(axis.lower())
        dom = self.axes[index].dom if index >= 0 else None
        return -1 if dom is None else int(getattr(dom.extent, "value", -1))


def _axes_of(name: str) -> list[tuple[str, int]]:
    """The axes of a name, with their factors; 0 for none."""
    if not re.fullmatch(r"(\d*[A-Za-z])*", name):
        raise InvalidValue(f"layout {name!r}: expected letters, with a factor before lower-case ones, such as NCHW16c")
    return [(letter, int(factor or 0)) for factor, letter in re.findall(r"(\d*)([A-Za-z])", name)]


class BijectiveLayout(Node):
    """The bijection between the indices of two layouts of a tensor."""

    src_layout: Layout
    dst_layout: Layout

    def _derive(self) -> None:
        whole = [sorted(a.var.name for a in side.axes if a.var.name.isupper()) for side in self._sides()]
        if whole[0] != whole[1] or not whole[0]:
            raise InvalidValue(
                f"{self.src_layout.name!r} and {self.dst_layout.name!r} are not layouts of the same tensor: "
                f"their axes are {', '.join(whole[0]) or 'none'} and {', '.join(whole[1]) or 'none'}"
            )

    def _sides(self) -> tuple[Layout, Layout]:
        return self.src_layout, self.dst_layout

    def forward_index(self, index: Any) -> Array[PrimExpr]:
        """The index in the destination layout of the element at an index of the source layout."""
        return _mapped(self.src_layout, self.dst_layout, index, _index)

    def backward_index(self, index: Any) -> Array[PrimExpr]:
        """The index in the source layout of the element at an index of the destination layout."""
        return _mapped(self.dst_layout, self.src_layout, index, _index)

    def forward_shape(self, shape: Any) -> Array[PrimExpr]:
        """The shape in the destination layout; an axis that its factor does not divide is padded."""
        return _mapped(self.src_layout, self.dst_layout, shape, _extent)

    def backward_shape(self, shape: Any) -> Array[PrimExpr]:
        """The shape in the source layout; an axis that its factor does not divide is padded."""
        return _mapped(self.dst_layout, self.src_layout, shape, _extent)

    @property
    def index_forward_rule(self) -> Array[PrimExpr]:
        """The destination's indices in terms of the source's axes."""
        return self.forward_index([axis.var for axis in self.src_layout.axes])

    @property
    def index_backward_rule(self) -> Array[PrimExpr]:
        """The source's indices in terms of the destination's axes."""
        return self.backward_index([axis.var for axis in self.dst_layout.axes])


def _index(axis: str, factor: int, given: dict[str, PrimExpr], given_factor: int) -> PrimExpr:
    """The index of one axis, split by `factor` in the result and by `given_factor` in what is given."""
    whole = given[axis.upper()]
    if given_factor > 0:
        if factor == given_factor:
            return given[axis]
        whole = ops.add(ops.multiply(whole, given_factor), given[axis.lower()])
    if factor <= 0:
        return whole
    return ops.floormod(whole, factor) if axis.islower() else ops.floordiv(whole, factor)


def _extent(axis: str, factor: int, given: dict[str, PrimExpr], given_factor: int) -> PrimExpr:
    """The extent of one axis; see `_index`."""
    whole = given[axis.upper()]
    if axis.islower():
        return const(factor, whole.dtype)
    if factor == given_factor:
        return whole
    if given_factor > 0:
        whole = ops.multiply(whole, given_factor)
    return ops.floordiv(ops.add(whole, factor - 1), factor) if factor > 0 else whole


def _mapped(source: Layout, target: Layout, values: Any, rule: Callable[..., PrimExpr]) -> Array[PrimExpr]:
    """What `rule` gives for each axis of `target`, from one value for each axis of `source`."""
    given = expr_array(values)
    if len(given) != len(source):
        raise ShapeMismatch(f"layout {source.name!r} has {len(source)} axes, found {len(given)} values: {list(given)}")
    from ..arith import Analyzer

    analyzer = Analyzer()
    by_name = {axis.var.name: value for axis, value in zip(source.axes, given, strict=True)}
    names = [axis.var.name for axis in target.axes]
    return Array(
        analyzer.simplify(rule(name, target.factor_of(name), by_name, source.factor_of(name))) for name in names
    )


def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """The layout of a name such as "NCHW" or "NCHW16c"; `dtype` is that of its axes."""
    return Layout(layout_str, dtype)


def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout:
    """The bijection between the indices of two layouts of a tensor."""
    src, dst = (Layout(side) if isinstance(side, str) else side for side in (src_layout, dst_layout))
    return BijectiveLayout(src, dst)
