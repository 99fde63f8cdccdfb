"""Sets of integers and the regions that they make up, under their published module name."""

from .interval_set import (
    EVERYTHING,
    NOTHING,
    IntervalSet,
    IntSet,
    IntSetEvaluator,
    PresburgerSet,
    as_int_set,
    is_infinite,
    neg_inf,
    pos_inf,
    union,
)
from .region import (
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    intersect_region,
    union_lower_bound,
    union_region,
)

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "IntSet",
    "IntSetEvaluator",
    "IntervalSet",
    "PresburgerSet",
    "as_int_set",
    "estimate_region_lower_bound",
    "estimate_region_strict_bound",
    "estimate_region_upper_bound",
    "intersect_region",
    "is_infinite",
    "neg_inf",
    "pos_inf",
    "union",
    "union_lower_bound",
    "union_region",
]
