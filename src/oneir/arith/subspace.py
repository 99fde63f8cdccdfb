"""Divides an iteration space into an outer and an inner one.

subspace_divide([i * 4 + j], {i: Range(0, 8), j: Range(0, 4)}, [j])
# [[IterMark(i, 8), IterMark(j, 4)], [IterMark(0, True), IterMark(0, True)]]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.container import Array
from ..ir.expr import PrimExpr, Range, Var
from ..ir.visitor import post_order_visit
from .constraint import conjuncts
from .iter_affine_map import detect
from .iter_map import IterMapLevel, IterMark, IterSplitExpr, IterSumExpr, is_number
from .iter_map_rewriter import IterMapRewriter
from .sizes import NoMatch


@dataclass
class _Division:
    """outer * (extent of inner) + inner; None has extent 1."""

    outer: IterSplitExpr | None
    inner: IterSplitExpr | None


class _Divider:
    def __init__(self, rewriter: IterMapRewriter, inner: Collection[Var]):
        self.rewriter, self.sizes = rewriter, rewriter.sizes
        self.inner = set(inner)

    def sides(self, expr: PrimExpr) -> tuple[bool, bool]:
        """Whether an expression uses outer, and whether it uses inner iterators."""
        found = {False: False, True: False}

        def look(node: Any) -> None:
            if isinstance(node, Var) and node in self.rewriter.variables:
                found[node in self.inner] = True

        post_order_visit(expr, look)
        return found[False], found[True]

    def predicates(self, predicate: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The conditions on outer, and those on inner iterators.

        Raises `NoMatch` for a condition on both that restricts the iterations.
        """
        outer = inner = e.IntImm("bool", 1)
        effective = {id(constraint.condition) for constraint in self.rewriter.constraints}
        for condition in conjuncts(predicate):
            if not isinstance(condition, e.IntImm):
                has_outer, has_inner = self.sides(condition)
                if not has_inner:
                    outer = ops.logical_and(outer, condition)
                elif not has_outer:
                    inner = ops.logical_and(inner, condition)
                elif id(condition) in effective:
                    raise NoMatch(f"the predicate {condition} is on outer and inner iterators")
        return outer, inner

    def index(self, total: IterSumExpr) -> list[IterMark]:
        """The outer and the inner part of an index."""
        nothing = IterSumExpr((), self.sizes.zero)
        if not total.args:
            return [IterMark(nothing, self.sizes.one), IterMark(total, self.sizes.one)]
        (split,) = total.args
        if not is_number(split.scale, 1):
            raise NoMatch(f"the index {total} has the stride {split.scale}")
        division = self.split(split)
        marks: list[IterMark] = []
        for part, base in ((division.outer, self.sizes.zero), (division.inner, total.base)):
            args = () if part is None else (part,)
            marks.append(IterMark(IterSumExpr(args, base), self.sizes.one if part is None else part.extent))
        return marks

    def split(self, split: IterSplitExpr) -> _Division:
        """Some digits of a mark, their scale left out."""
        sizes, mark = self.sizes, split.source
        split = split.replace(scale=sizes.one)
        whole = self.mark(mark)
        if whole.inner is None or whole.outer is None:
            return _Division(split, None) if whole.inner is None else _Division(None, split)
        if is_number(split.lower_factor, 1) and sizes.equal(split.extent, mark.extent):
            return whole
        lower, width = split.lower_factor, whole.inner.extent
        upper = sizes.times(lower, split.extent)
        if sizes.divides(upper, width):
            return _Division(None, self._digits(whole.inner, lower, split.extent))
        if sizes.divides(width, lower):
            return _Division(self._digits(whole.outer, sizes.quotient(lower, width), split.extent), None)
        if sizes.divides(lower, width) and sizes.divides(width, upper):
            return _Division(
                self._digits(whole.outer, sizes.one, sizes.quotient(upper, width)),
                self._digits(whole.inner, lower, sizes.quotient(width, lower)),
            )
        raise NoMatch(f"{split} cuts across outer and inner iterators")

    def _digits(self, split: IterSplitExpr, lower: PrimExpr, extent: PrimExpr) -> IterSplitExpr:
        return split.replace(lower_factor=self.sizes.times(split.lower_factor, lower), extent=extent)

    def mark(self, mark: IterMark) -> _Division:
        """All digits of a mark."""
        source = mark.source
        has_outer, has_inner = self._sides_of_mark(mark)
        if not (has_outer and has_inner):
            whole = self.rewriter.whole(mark)
            return _Division(None, whole) if has_inner else _Division(whole, None)
        if not isinstance(source, IterSumExpr) or id(mark) in self.rewriter.padded or not is_number(source.base, 0):
            raise NoMatch("outer and inner iterators are padded, or bounded, together")
        sizes = self.sizes
        outer: list[IterSplitExpr] = []
        inner: list[IterSplitExpr] = []
        width = sizes.one
        for arg in source.args[::-1]:
            part = self.split(arg)
            if part.inner is not None:
                if outer:
                    raise NoMatch("an inner iterator is more significant than an outer one")
                inner.insert(0, part.inner.replace(scale=arg.scale))
                width = sizes.times(width, part.inner.extent)
            if part.outer is not None:
                step = arg.scale if part.inner is None else sizes.times(arg.scale, part.inner.extent)
                outer.insert(0, part.outer.replace(scale=sizes.quotient(step, width)))
        return _Division(self._joined(outer), self._joined(inner))

    def _joined(self, parts: list[IterSplitExpr]) -> IterSplitExpr | None:
        fused = self.rewriter.fuse(IterSumExpr(tuple(parts), self.sizes.zero))
        assert fused is not None, "parts of a fused sum are neighbouring digits"
        return fused.args[0] if fused.args else None

    def _sides_of_mark(self, mark: IterMark) -> tuple[bool, bool]:
        if not isinstance(mark.source, IterSumExpr):
            return self.sides(mark.source)
        has_outer = has_inner = False
        for arg in mark.source.args:
            outer, inner = self._sides_of_mark(arg.source)
            has_outer, has_inner = has_outer or outer, has_inner or inner
        return has_outer, has_inner


def subspace_divide(
    bindings: Any,
    input_iters: Mapping[Var, Range],
    sub_iters: Any,
    predicate: Any = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
) -> Array[Array[IterMark]]:
    """Each binding as `outer * (extent of inner) + inner`, where `sub_iters` make the inner part.

    The result has a pair of marks for each binding, and a last pair whose extents are the predicates of the outer and
    the inner space. It is empty when the bindings cannot be divided.
    """
    exprs = [e.as_expr(binding) for binding in bindings]
    condition = ops.as_bool(predicate)
    try:
        rewriter, sums = detect(exprs, input_iters, condition, check_level, simplify_trivial_iterators)
        divider = _Divider(rewriter, sub_iters)
        pairs = [divider.index(total) for total in sums]
        last = [IterMark(IterSumExpr((), rewriter.sizes.zero), part) for part in divider.predicates(condition)]
    except NoMatch:
        return Array()
    return Array(Array(pair) for pair in [*pairs, last])
