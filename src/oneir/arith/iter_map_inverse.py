"""Inverses of iteration maps: the iterators as expressions over the indices.

result = detect_iter_map([i // 4, i % 4], {i: Range(0, 32)})
inverse_affine_iter_map(result.indices, [a, b])  # {i: a * 4 + b}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Range, Var
from ..ir.visitor import deep_recursion
from ..runtime.error import InvalidValue
from .analyzer import Analyzer
from .iter_affine_map import detect
from .iter_map import IterMapLevel, IterMark, IterSplitExpr, IterSumExpr, is_number
from .iter_map_rewriter import IterMapRewriter, Padding
from .sizes import NoMatch


class _Inverter:
    """Propagates values from the indices to the variables, through each mark once all its digits are known."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.values: dict[int, PrimExpr] = {}
        """The values of marks, by identity: so far the sum of the digits that have arrived."""
        self.variables: dict[Var, PrimExpr] = {}

    def invert(self, indices: Sequence[IterSumExpr], outputs: Sequence[PrimExpr]) -> None:
        for total, output in zip(indices, outputs, strict=True):
            self._pass_on(total, ops.cast(total.dtype, output))
        for mark in _users_first(indices):
            value = self.values[id(mark)] = self.analyzer.simplify(self.values[id(mark)])
            if isinstance(mark.source, IterSumExpr):
                self._pass_on(mark.source, value)
            else:
                self._found(mark.source, value)

    def _pass_on(self, total: IterSumExpr, value: PrimExpr) -> None:
        """Assigns each split of a sum its part of the sum's value."""
        value = ops.subtract(value, total.base)
        args = _digits(total)
        for place, split in enumerate(args):
            part = self._quotient(value, split.scale)
            if place:
                part = ops.floormod(part, split.extent)
            known = self.values.get(id(split.source))
            part = ops.multiply(part, split.lower_factor)
            self.values[id(split.source)] = part if known is None else ops.add(known, part)

    def _quotient(self, value: PrimExpr, scale: PrimExpr) -> PrimExpr:
        if isinstance(scale, e.IntImm) and scale.value < 0:
            return ops.floordiv(ops.negative(value), -scale.value)
        return ops.floordiv(value, scale)

    def _found(self, source: PrimExpr, value: PrimExpr) -> None:
        """The variable of a source: a variable, perhaps converted, perhaps less its minimum."""
        if isinstance(source, e.Sub):
            source, value = source.a, ops.add(value, source.b)
        elif isinstance(source, e.Add):
            source, value = source.a, ops.subtract(value, source.b)
        if isinstance(source, e.Cast):
            source = source.value
        if not isinstance(source, Var):
            raise InvalidValue(f"expected an iteration mark over a variable or a sum, found one over `{source}`")
        self.variables[source] = self.analyzer.simplify(ops.cast(source.dtype, value))


def _digits(total: IterSumExpr) -> Sequence[IterSplitExpr]:
    """The splits of a sum, the largest scale first; each must span exactly the scale of the next larger one."""
    # Of several with one scale, all but one have the extent 1, and that one comes last.
    left: list[IterSplitExpr] = sorted(total.args, key=lambda arg: not is_number(arg.extent, 1))
    chain: list[IterSplitExpr] = []
    equal = Analyzer().can_prove_equal
    while left:
        if chain:
            below = ops.multiply(chain[-1].scale, chain[-1].extent)
            found = next((arg for arg in left if equal(arg.scale, below)), None)
        else:
            found = next((a for a in left if all(equal(ops.floormod(b.scale, a.scale), 0) for b in left)), None)
        if found is None:
            raise InvalidValue(f"the terms of {total} overlap or leave gaps, so that it has no inverse")
        chain.append(found)
        left = [arg for arg in left if arg is not found]
    return chain[::-1]


def _users_first(indices: Sequence[IterSumExpr]) -> list[IterMark]:
    """All marks in topological order: each before those that its source uses."""
    finished: dict[int, IterMark] = {}

    def visit(mark: IterMark) -> None:
        if id(mark) not in finished:
            if isinstance(mark.source, IterSumExpr):
                for split in mark.source.args:
                    visit(split.source)
            finished[id(mark)] = mark

    for total in indices:
        for split in total.args:
            visit(split.source)
    return list(finished.values())[::-1]


def inverse_affine_iter_map(iter_map: Any, outputs: Any) -> dict[Var, PrimExpr]:
    """The iterators of a map found by `detect_iter_map`, over given values of its indices.

    Digits of an iterator that no index has are taken to be 0.
    """
    exprs = [e.as_expr(output) for output in outputs]
    if len(iter_map) != len(exprs):
        raise InvalidValue(f"the map has {len(iter_map)} indices, found {len(exprs)} outputs")
    inverter = _Inverter(Analyzer())
    with deep_recursion:
        inverter.invert(iter_map, exprs)
    return inverter.variables


def inverse_index_map(index_map: Any, shape: Any) -> tuple[Any, PrimExpr]:
    """The inverse of an index map over a shape, and a predicate over the new indices for those outside of the shape.

    `index_map` has `initial_indices`, `final_indices` and `inverse_index_map`; the inverse is of the same class.
    """
    never = e.IntImm("bool", 0)
    if index_map.inverse_index_map is not None:
        return index_map.inverse_index_map, never
    initial, final = index_map.initial_indices, index_map.final_indices
    if len(shape) != len(initial):
        raise InvalidValue(f"the index map takes {len(initial)} indices, found the shape {list(shape)}")
    domains = {var: Range(0, ops.cast(var.dtype, dim)) for var, dim in zip(initial, shape, strict=True)}
    try:
        rewriter, sums = detect(final, domains, True, IterMapLevel.Bijective, may_pad=True, whole_digits=True)
    except NoMatch as reason:
        raise InvalidValue(f"the index map has no inverse over the shape {list(shape)}: {reason}") from None
    sizes = rewriter.sizes
    outputs = [Var(f"axis{place}", index.dtype) for place, index in enumerate(final)]
    for var, total in zip(outputs, sums, strict=True):
        sizes.analyzer.bind(var, _range_of(total, var.dtype))
    inverter = _Inverter(Analyzer())
    inverter.invert(sums, outputs)
    padded = never
    for mark, _ in reversed(rewriter.used_marks(sums).values()):  # those of the first indices come first
        padding = rewriter.padded.get(id(mark))
        if padding is not None:
            padded = ops.logical_or(padded, _outside(padding, inverter.values[id(mark)], rewriter))
    # A dimension of extent 1 that no index has is 0.
    back = [inverter.variables.get(var, e.const(0, var.dtype)) for var in initial]
    return type(index_map)(outputs, back), sizes.analyzer.rewrite_simplify(padded)


def _outside(padding: Padding, value: PrimExpr, rewriter: IterMapRewriter) -> PrimExpr:
    """Whether a value of the padded mark lies before or behind the split.

    What is padded is a part of the first and of the last block, so the block is asked for first: that is the form
    in which conditions on the indices of blocks are decided.
    """
    sizes, block = rewriter.sizes, padding.multiple
    end = sizes.plus(padding.origin.extent, padding.left)
    if not (isinstance(block, e.IntImm) and isinstance(end, e.IntImm) and isinstance(padding.left, e.IntImm)):
        return rewriter.beyond(padding, sizes.minus(value, padding.left))
    if padding.left.value >= block.value:
        return rewriter.beyond(padding, sizes.minus(value, padding.left))
    outside: PrimExpr = e.IntImm("bool", 0)
    number, place = sizes.quotient(value, block), sizes.remainder(value, block)
    if padding.left.value:
        outside = ops.logical_and(e.EQ(number, e.const(0, number.dtype)), ops.less(place, padding.left))
    last, rest = divmod(end.value, block.value)
    if rest:
        behind = ops.logical_and(e.EQ(number, e.const(last, number.dtype)), ops.greater_equal(place, rest))
        outside = ops.logical_or(outside, behind)
    return outside


def padded_extents(indices: Sequence[PrimExpr], domains: Mapping[Var, Range]) -> list[PrimExpr] | None:
    """The extents of a map's indices, each block whole; None if they are no digits of the iterators."""
    try:
        _, sums = detect(indices, domains, True, IterMapLevel.NoCheck, may_pad=True, whole_digits=True)
    except NoMatch:
        return None
    return [_range_of(total, index.dtype).extent for total, index in zip(sums, indices, strict=True)]


def _range_of(total: IterSumExpr, dtype: Any) -> Range:
    """The values from the least to the greatest that a sum of at most one split takes."""
    if not total.args:
        return Range(ops.cast(dtype, total.base), extent=e.const(1, dtype))
    (split,) = total.args
    reach = ops.multiply(split.scale, ops.subtract(split.extent, 1))
    low = total.base
    if isinstance(split.scale, e.IntImm) and split.scale.value < 0:
        low, reach = ops.add(low, reach), ops.negative(reach)
    return Range(ops.cast(dtype, low), extent=ops.cast(dtype, ops.add(reach, 1)))
