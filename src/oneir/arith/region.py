"""Regions of buffers that loops access: `A[i * 4 : i * 4 + 4]` over i in [0, 8) is `A[0:32]`.

A region is a list of `Range`, one a dimension, over the variables of `var_dom`; the results are lists of `IntervalSet`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import operators as ops
from ..ir.expr import PrimExpr, Range, Var
from .analyzer import Analyzer
from .interval_set import NOTHING, IntervalSet, IntSet, is_infinite, neg_inf, pos_inf, union
from .iter_affine_map import detect
from .iter_map import IterMapLevel, IterSumExpr
from .sizes import NoMatch, Sizes


def estimate_region_strict_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Any = True
) -> list[IntSet] | None:
    """The exact union of a region over all iterations for which the predicate holds; None when that is no box."""
    starts = [dimension.min for dimension in region]
    try:
        rewriter, sums = detect(starts, var_dom, predicate, IterMapLevel.Surjective, may_overlap=True)
    except NoMatch:
        return None
    result: list[IntSet] = []
    for total, dimension in zip(sums, region, strict=True):
        covered = _covered(total, dimension.extent, rewriter.sizes)
        if covered is None:
            return None
        result.append(covered)
    return result


def estimate_region_lower_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Any = True
) -> list[IntSet] | None:
    """A box that the union of a region over all iterations certainly contains; None when nothing is known."""
    return estimate_region_strict_bound(region, var_dom, predicate)


def _covered(total: IterSumExpr, extent: PrimExpr, sizes: Sizes) -> IntervalSet | None:
    """The union of [start, start + extent) over all values of start, if it has no gaps."""
    low = total.base
    reach = sizes.of(extent)
    for split in total.args:
        scale = split.scale
        span = sizes.times(scale, sizes.minus(split.extent, sizes.one))
        if sizes.negative(scale):
            low, scale, span = sizes.plus(low, span), sizes.minus(sizes.zero, scale), sizes.minus(sizes.zero, span)
        if not sizes.positive(scale) or not sizes.at_most(scale, reach):
            return None
        reach = sizes.plus(reach, span)
    last = sizes.minus(sizes.plus(low, reach), sizes.one)
    return IntervalSet(*(ops.cast(extent.dtype, bound) for bound in (low, last)))


def estimate_region_upper_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Any = True
) -> list[IntSet]:
    """A box that contains the union of a region over all iterations, as small as is known."""
    exact = estimate_region_strict_bound(region, var_dom, predicate)
    if exact is not None:
        return exact
    result: list[IntSet] = []
    analyzer = Analyzer()
    for dimension in region:
        alone = estimate_region_strict_bound([dimension], var_dom, predicate)
        if alone is not None:
            result += alone
            continue
        last = analyzer.simplify(ops.subtract(ops.add(dimension.min, dimension.extent), 1))
        ends = [analyzer.int_set(end, var_dom) for end in (dimension.min, last)]
        assert isinstance(ends[0], IntervalSet) and isinstance(ends[1], IntervalSet)
        result.append(IntervalSet(ends[0].min_value, ends[1].max_value))
    return result


def union_lower_bound(sets: Sequence[IntSet]) -> IntSet:
    """An interval all of whose values are in one of the sets.

    Sets join in the order in which they come, each that touches or overlaps what came before it; others are left out.
    """
    analyzer = Analyzer()
    result: IntervalSet | None = None
    for values in sets:
        if not isinstance(values, IntervalSet) or values.is_nothing():
            continue
        if result is None:
            result = values
        elif _touches(result, values, analyzer) and _touches(values, result, analyzer):
            result = union([result, values], analyzer)
    return NOTHING if result is None else result


def _touches(a: IntervalSet, b: IntervalSet, analyzer: Analyzer) -> bool:
    """Whether a is known to begin no later than right after b's end."""
    if a.min_value is neg_inf() or b.max_value is pos_inf():
        return True
    return analyzer.can_prove(ops.less_equal(a.min_value, ops.add(b.max_value, 1)))


def union_region(regions: Sequence[Sequence[IntervalSet]]) -> list[IntervalSet]:
    """The smallest box that holds several boxes of the same number of dimensions."""
    analyzer = Analyzer()
    return [union(list(dimension), analyzer) for dimension in zip(*regions, strict=True)]


def intersect_region(regions: Sequence[Sequence[IntervalSet]]) -> list[IntervalSet]:
    """The intersection of several boxes; a dimension that is known to be empty is the empty set."""
    return [_intersection(dimension) for dimension in zip(*regions, strict=True)]


def _intersection(sets: Sequence[IntervalSet]) -> IntervalSet:
    analyzer = Analyzer()
    low, high = neg_inf(), pos_inf()
    for values in sets:
        if values.is_nothing():
            return NOTHING
        if not is_infinite(values.min_value):
            low = values.min_value if is_infinite(low) else analyzer.simplify(ops.maximum(low, values.min_value))
        if not is_infinite(values.max_value):
            high = values.max_value if is_infinite(high) else analyzer.simplify(ops.minimum(high, values.max_value))
    empty = not is_infinite(low) and not is_infinite(high) and analyzer.can_prove(ops.less(high, low))
    return NOTHING if empty else IntervalSet(low, high)
