"""Integers: bounds, remainders, simplification, sets, iteration maps, linear systems.

analyzer = arith.Analyzer()
analyzer.simplify((i * 8 + j) // 8)
"""

from . import _ffi_api as _ffi_api  # a name of the published API
from .analyzer import Analyzer, ConstraintScope, Extension, ProofStrength
from .bound import deduce_bound
from .const_int_bound import ConstIntBound
from .detect import detect_clip_bound, detect_common_subexpr, detect_linear_equation
from .int_set import (
    IntervalSet,
    IntSet,
    PresburgerSet,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    intersect_region,
    neg_inf,
    pos_inf,
    union_lower_bound,
    union_region,
)
from .int_solver import (
    IntConstraints,
    IntConstraintsTransform,
    IntGroupBounds,
    solve_linear_equations,
    solve_linear_inequalities,
)
from .iter_affine_map import detect_iter_map, iter_map_simplify, normalize_to_iter_sum
from .iter_map import (
    IterMapExpr,
    IterMapLevel,
    IterMapResult,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    normalize_iter_map_to_expr,
)
from .iter_map_inverse import inverse_affine_iter_map, inverse_index_map
from .modular_set import ModularSet
from .subspace import subspace_divide

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "ConstraintScope",
    "Extension",
    "IntConstraints",
    "IntConstraintsTransform",
    "IntGroupBounds",
    "IntSet",
    "IntervalSet",
    "IterMapExpr",
    "IterMapLevel",
    "IterMapResult",
    "IterMark",
    "IterSplitExpr",
    "IterSumExpr",
    "ModularSet",
    "PresburgerSet",
    "ProofStrength",
    "deduce_bound",
    "detect_clip_bound",
    "detect_common_subexpr",
    "detect_iter_map",
    "detect_linear_equation",
    "estimate_region_lower_bound",
    "estimate_region_strict_bound",
    "estimate_region_upper_bound",
    "intersect_region",
    "inverse_affine_iter_map",
    "inverse_index_map",
    "iter_map_simplify",
    "neg_inf",
    "normalize_iter_map_to_expr",
    "normalize_to_iter_sum",
    "pos_inf",
    "solve_linear_equations",
    "solve_linear_inequalities",
    "subspace_divide",
    "union_lower_bound",
    "union_region",
]
