"""How operators take tensors in other layouts: the rules that `ConvertLayout` uses.

A layout names the dimensions that a tensor had, A, B, C, ..., in the order in which they now stand: "ACDB" is an image
that was NCHW and is NHWC. In "ABCD4b" the second dimension is split: B counts groups of 4, and b runs within one. The
layout of a tuple is a tuple; None stands where nothing is known, "" for what has no dimensions.

    relu.infer_layout(keep_layout)                 # what relu returns has the layout of its argument
    softmax.infer_layout(move_axes("axis"))        # and an axis is found where it went
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arith import Analyzer
from ...ir.expr import IntImm
from ...runtime.error import InvalidValue, OneIRError
from ...tir.data_layout import bijective_layout
from ..expr import Call, Constant, Expr, PrimValue, Tuple, Var
from ..struct_info import PrimStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .inference import fail

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NestedLayout = Any
"""A layout, a tuple of layouts, or None."""


class Layouts:
    """The layouts that variables have; those of which nothing was noted have the one that they were made in."""

    def __init__(self) -> None:
        self.known: dict[Var, NestedLayout] = {}

    def of(self, expr: Expr) -> NestedLayout:
        """The layout of an argument."""
        if isinstance(expr, Var):
            return self.known[expr] if expr in self.known else initial_of(expr.struct_info)
        if isinstance(expr, Constant):
            return initial(len(expr.data.shape))
        if isinstance(expr, Tuple):
            return tuple([self.of(f) for f in expr.fields])
        return None


@dataclass
class LayoutChoice:
    """What a call wants: the layouts of its first arguments, those of its result, its attributes, other arguments."""

    inputs: Sequence[NestedLayout]
    output: NestedLayout
    attrs: Mapping[str, Any]
    new_args: Mapping[int, Expr] = field(default_factory=dict)


LayoutRule = Callable[[Call, Mapping[str, Sequence[str]], Layouts], LayoutChoice]
"""`rule(call, desired_layouts, layouts)`: what a call does with arguments in these layouts."""


# -- layouts as text --


def initial(ndim: int) -> NestedLayout:
    """The layout in which nothing has moved."""
    return None if ndim < 0 else LETTERS[:ndim]


def initial_of(info: StructInfo) -> NestedLayout:
    """The layouts of a value whose tensors are as they were made."""
    if isinstance(info, TupleStructInfo):
        return tuple([initial_of(f) for f in info.fields])
    return initial(info.ndim) if isinstance(info, TensorStructInfo) else None


def axes_of(layout: str) -> list[str]:
    """The axes of a layout: "ABCD4b" has "A", "B", "C", "D" and "4b"."""
    return re.findall(r"\d*[A-Za-z]", layout)


def is_packed(layout: NestedLayout) -> bool:
    """Whether an axis is split."""
    return isinstance(layout, str) and any(c.islower() for c in layout)


def transpose_like(names: str, source: str, target: str) -> str:
    """`names`, which stand for the axes of `source`, in the order of `target`; split as that is.

    transpose_like("NCHW", "ABCD", "ACDB4b") == "NHWC4c"
    """
    renamed = dict(zip((a[-1] for a in axes_of(source)), names if names.isalpha() else axes_of(names), strict=True))
    result = []
    for axis in axes_of(target):
        letter = axis[-1]
        if letter in renamed:
            result.append(renamed[letter])
        elif letter.upper() in renamed:
            result.append(axis[:-1] + renamed[letter.upper()].lower())
        else:
            raise InvalidValue(f"the layout {target!r} has the axis {letter!r}, which {source!r} lacks")
    return "".join(result)


def find_axis(layout: str, axis: int, ndim: int) -> int:
    """Where the dimension `axis` of a tensor of `ndim` dimensions stands in a layout."""
    return [a[-1] for a in axes_of(layout)].index(LETTERS[axis % ndim])


def splits(layout: str, axes: Sequence[int], ndim: int) -> bool:
    """Whether one of some dimensions is split."""
    return any(LETTERS[a % ndim].lower() in layout for a in axes)


def can_convert(source: str, target: str, shape: Any) -> bool:
    """Whether a tensor of a shape in one layout can be brought into another and back: its factors divide."""
    if shape is None:
        return False
    try:
        convert = bijective_layout(source, target)
        back = convert.backward_shape(convert.forward_shape(shape))
    except OneIRError:
        return False
    analyzer = Analyzer()
    return all(analyzer.can_prove_equal(a, b) for a, b in zip(shape, back, strict=True) if hasattr(a, "value"))


# -- rules --


def check_not_desired(call: Call, desired: Mapping[str, Sequence[str]]) -> None:
    """An error where a layout is desired of an operator that follows those of its arguments."""
    if call.op.name in desired:
        raise fail(call, "follows the layouts of its arguments, so none can be desired of it; leave it out")


def _tensor(call: Call, index: int = 0) -> TensorStructInfo:
    info = call.args[index].struct_info
    assert isinstance(info, TensorStructInfo)
    return info


def layout_of(call: Call, layouts: Layouts, split: bool = True) -> str:
    """The layout of the first argument, or the initial one if it is split and the call cannot take that."""
    layout = layouts.of(call.args[0])
    return initial(_tensor(call).ndim) if is_packed(layout) and not split else layout


def keep_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """Elementwise: the result has the layout of the first argument."""
    check_not_desired(call, desired)
    layout = layout_of(call, layouts)
    return LayoutChoice([layout], layout, dict(call.attrs))


def _followed(layout: str, ndim: int) -> str:
    """A layout of fewer dimensions as that of a tensor it is broadcast to."""
    missing = ndim - len(layout)
    return LETTERS[:missing] + "".join(chr(ord(c) + missing) for c in layout)


def broadcast_layouts(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """Binary: both arguments take the layout of the one of fewer dimensions, the first of two alike."""
    check_not_desired(call, desired)
    infos = [a.struct_info for a in call.args]
    for i, info in enumerate(infos):
        if isinstance(info, PrimStructInfo) or (isinstance(info, TensorStructInfo) and info.ndim == 0):
            other = layouts.of(call.args[1 - i])
            return LayoutChoice(["", other] if i == 0 else [other, ""], other, dict(call.attrs))
    a, b = (layouts.of(arg) for arg in call.args)
    tensors = [_tensor(call, 0), _tensor(call, 1)]
    if is_packed(a) or is_packed(b):
        # Both are split alike if the one that is not can be.
        longer, i = (a, 1) if len(axes_of(a)) >= len(axes_of(b)) else (b, 0)
        if tensors[0].ndim == tensors[1].ndim and can_convert(initial(tensors[i].ndim), longer, tensors[i].extents):
            return LayoutChoice([longer, longer], longer, dict(call.attrs))
        a, b = (initial(t.ndim) for t in tensors)
    if tensors[0].ndim <= tensors[1].ndim:
        output = _followed(a, tensors[1].ndim)
        return LayoutChoice([a, output], output, dict(call.attrs))
    output = _followed(b, tensors[0].ndim)
    return LayoutChoice([output, b], output, dict(call.attrs))


def same_layouts(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """All arguments, tensors of one shape, take the layout of the first."""
    check_not_desired(call, desired)
    layout = layout_of(call, layouts)
    return LayoutChoice([layout] * len(call.args), layout, dict(call.attrs))


def move_axes(*names: str, outputs: Callable[[str, Call], NestedLayout] | None = None) -> LayoutRule:
    """The first argument keeps its layout, unless one of its axes that attributes name is split; the others move.

    `names` are attributes: an axis or several. `outputs` says the layout of the result, if it is not that alone.
    """

    def rule(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
        check_not_desired(call, desired)
        ndim = _tensor(call).ndim
        axes = {n: call.attrs[n] for n in names}
        listed = {n: [a] if isinstance(a, int) else list(a) for n, a in axes.items()}
        layout = layout_of(call, layouts)
        if any(splits(layout, a, ndim) for a in listed.values()):
            layout = initial(ndim)
        moved: dict[str, Any] = {n: [find_axis(layout, a, ndim) for a in every] for n, every in listed.items()}
        moved = {n: m[0] if isinstance(axes[n], int) else m for n, m in moved.items()}
        rest = [initial_of(a.struct_info) for a in call.args[1:]]
        result = layout if outputs is None else outputs(layout, call)
        return LayoutChoice([layout, *rest], result, {**call.attrs, **moved})

    return rule


def convolve(data: str, weight: str, output: str, follows: bool = True) -> LayoutRule:
    """Convolutions: the desired layouts [data, weight] or [data, weight, output], or else those of the arguments.

    `data`, `weight` and `output` are the attributes that hold them. One that does not follow its arguments takes them
    as they were made, unless layouts are desired of it.
    """

    def rule(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
        attrs = {name: call.attrs[name] for name in (data, weight, output)}
        current = [layouts.of(a) if follows else initial(_tensor(call).ndim) for a in call.args[:2]]
        wanted = desired.get(call.op.name)
        if wanted:
            names = [*wanted, wanted[0]] if len(wanted) == 2 else list(wanted)
            if len(names) != 3:
                raise fail(call, f"expected the desired layouts of data, weight and maybe output, found {list(wanted)}")
            if not any(map(is_packed, names)) or _divisible(call, list(attrs.values()), names):
                start = initial(_tensor(call).ndim)
                found = [transpose_like(start, a, n) for a, n in zip(attrs.values(), names, strict=True)]
                return LayoutChoice(found[:2], found[2], {**call.attrs, **dict(zip(attrs, names, strict=True))})
            current = [initial(_tensor(call, i).ndim) for i in (0, 1)]
        start = initial(_tensor(call).ndim)
        moves = [*current, current[0]]
        new = {n: transpose_like(a, start, m) for (n, a), m in zip(attrs.items(), moves, strict=True)}
        return LayoutChoice(current, current[0], {**call.attrs, **new})

    return rule


def _divisible(call: Call, have: Sequence[str], want: Sequence[str]) -> bool:
    """Whether data and weight can be split as desired."""
    return all(can_convert(have[i], want[i], _tensor(call, i).extents) for i in (0, 1))


def window_layouts(*attrs: str) -> LayoutRule:
    """Images: a desired layout, or that of the data; the attributes say in which layout it, and the result, are."""

    def rule(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
        start = initial(_tensor(call).ndim)
        layout, wanted = layouts.of(call.args[0]), desired.get(call.op.name)
        if wanted:
            if any(map(is_packed, wanted)):
                raise fail(call, f"the desired layouts must keep whole axes, found {list(wanted)}")
            names = [wanted[0], wanted[-1]]
            moves = [transpose_like(start, call.attrs[a], n) for a, n in zip(attrs, names, strict=False)]
            new = dict(zip(attrs, names, strict=False))
            return _choice(call, moves[0], moves[-1], new)
        if is_packed(layout):
            named = transpose_like(call.attrs[attrs[0]], start, layout)
            if len(attrs) == 1 or not can_convert(call.attrs[attrs[0]], named, _tensor(call).extents):
                layout = start
        return _choice(call, layout, layout, {a: transpose_like(call.attrs[a], start, layout) for a in attrs})

    return rule


def _choice(call: Call, data: str, output: str, attrs: Mapping[str, str]) -> LayoutChoice:
    rest = [initial_of(a.struct_info) for a in call.args[1:]]
    return LayoutChoice([data, *rest], output, {**call.attrs, **attrs})


def reduce_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """Reductions: the axes are found where they went; what remains of the layout is renamed."""
    check_not_desired(call, desired)
    ndim, axis, keepdims = _tensor(call).ndim, call.attrs["axis"], call.attrs["keepdims"]
    reduced = range(ndim) if axis is None else [a % ndim for a in axis]
    layout = layout_of(call, layouts)
    if keepdims and splits(layout, reduced, ndim):
        layout = initial(ndim)
    axes = [i for i, a in enumerate(axes_of(layout)) if LETTERS.index(a[-1].upper()) in reduced]
    output = layout if keepdims else _without(layout, reduced)
    return LayoutChoice([layout], output, {**call.attrs, "axis": axes})


def _without(layout: str, removed: Sequence[int]) -> str:
    """A layout without some dimensions, the others renamed."""
    kept = [c for i, c in enumerate(LETTERS) if i not in removed]
    renamed = {c: LETTERS[i] for i, c in enumerate(kept)}
    remaining = [a for a in axes_of(layout) if a[-1].upper() in renamed]
    names = [renamed[a[-1].upper()] for a in remaining]
    return "".join(n if a[-1].isupper() else a[:-1] + n.lower() for a, n in zip(remaining, names, strict=True))


def permute_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """A transposition takes any layout, and gives the initial one."""
    check_not_desired(call, desired)
    ndim, layout = _tensor(call).ndim, layout_of(call, layouts, split=False)
    order = range(ndim)[::-1] if call.attrs["axes"] is None else [a % ndim for a in call.attrs["axes"]]
    axes = [layout.index(LETTERS[a]) for a in order]
    return LayoutChoice([layout], initial(ndim), {**call.attrs, "axes": axes})


def expand_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """New dimensions stay where they are made; the others follow."""
    check_not_desired(call, desired)
    ndim, layout = _tensor(call).ndim, layout_of(call, layouts, split=False)
    count = ndim + len(call.attrs["axis"])
    new = {a % count for a in call.attrs["axis"]}
    old = iter(transpose_like("".join(LETTERS[i] for i in range(count) if i not in new), initial(ndim), layout))
    output = "".join(LETTERS[i] if i in new else next(old) for i in range(count))
    return LayoutChoice([layout], output, dict(call.attrs))


def squeeze_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """The dimensions that go are found where they went."""
    check_not_desired(call, desired)
    info, layout, axis = _tensor(call), layout_of(call, layouts, split=False), call.attrs["axis"]
    if axis is None and info.extents is None:
        return LayoutChoice([initial(info.ndim)], initial_of(call.struct_info), dict(call.attrs))
    removed = (
        [i for i, e in enumerate(info.extents or ()) if getattr(e, "value", None) == 1]
        if axis is None
        else [a % info.ndim for a in axis]
    )
    axes = [i for i, letter in enumerate(layout) if LETTERS.index(letter) in removed]
    return LayoutChoice([layout], _without(layout, removed), {**call.attrs, "axis": axes})


def concat_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """All parts take the layout of the first."""
    check_not_desired(call, desired)
    parts, axis = layouts.of(call.args[0]), call.attrs["axis"] or 0
    info = call.args[0].struct_info
    assert isinstance(info, TupleStructInfo)
    ndims = [f.ndim for f in info.fields if isinstance(f, TensorStructInfo)]
    layout = parts[0]
    shapes = [f.extents for f in info.fields if isinstance(f, TensorStructInfo)]
    if is_packed(layout) and not all(can_convert(initial(ndims[0]), layout, shape) for shape in shapes):
        layout = initial(ndims[0])
    attrs = {**call.attrs, "axis": find_axis(layout, axis, ndims[0])}
    return LayoutChoice([(layout,) * len(parts)], layout, attrs)


def stack_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """All parts take the layout of the first; the new dimension stays where it is made."""
    check_not_desired(call, desired)
    parts = layouts.of(call.args[0])
    info = call.args[0].struct_info
    assert isinstance(info, TupleStructInfo)
    (first, *_) = info.fields
    assert isinstance(first, TensorStructInfo)
    ndim = first.ndim
    layout = initial(ndim) if is_packed(parts[0]) else parts[0]
    axis = call.attrs["axis"] % (ndim + 1)
    names = LETTERS[:axis] + LETTERS[axis + 1 : ndim + 1]
    moved = transpose_like(names, initial(ndim), layout)
    output = moved[:axis] + LETTERS[axis] + moved[axis:]
    return LayoutChoice([(layout,) * len(parts)], output, {**call.attrs, "axis": axis})


def split_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """All parts have the layout of the whole, if they can."""
    check_not_desired(call, desired)
    ndim, layout, result = _tensor(call).ndim, layout_of(call, layouts), call.struct_info
    parts = list(result.fields) if isinstance(result, TupleStructInfo) else [result]
    if is_packed(layout) and (
        (splits(layout, [call.attrs["axis"]], ndim) and not isinstance(call.attrs["indices_or_sections"], int))
        or not all(isinstance(p, TensorStructInfo) and can_convert(initial(ndim), layout, p.extents) for p in parts)
    ):
        layout = initial(ndim)
    output = (layout,) * len(parts) if isinstance(result, TupleStructInfo) else layout
    return LayoutChoice([layout], output, {**call.attrs, "axis": find_axis(layout, call.attrs["axis"], ndim)})


def slice_layout(call: Call, desired: Mapping[str, Sequence[str]], layouts: Layouts) -> LayoutChoice:
    """The axes of a slice, its second argument, are found where they went."""
    check_not_desired(call, desired)
    ndim, layout, axes = _tensor(call).ndim, layout_of(call, layouts, split=False), call.args[1]
    fields = axes.fields if isinstance(axes, Tuple) else [axes]
    numbers = [f.value.value for f in fields if isinstance(f, PrimValue) and isinstance(f.value, IntImm)]
    if len(numbers) < len(fields):
        return LayoutChoice([initial(ndim)], initial(ndim), dict(call.attrs))
    moved = Tuple([PrimValue(find_axis(layout, n, ndim)) for n in numbers])
    return LayoutChoice([layout], layout, dict(call.attrs), {1: moved})
