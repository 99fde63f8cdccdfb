"""Integers: bounds, remainders, simplification, sets, iteration maps, linear systems.

analyzer = arith.Analyzer()
analyzer.simplify((i * 8 + j) // 8)
"""

from .analyzer import Analyzer, ConstraintScope, Extension, ProofStrength
from .const_int_bound import ConstIntBound
from .int_set import IntervalSet, IntSet, PresburgerSet, neg_inf, pos_inf
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
    "detect_iter_map",
    "inverse_affine_iter_map",
    "inverse_index_map",
    "iter_map_simplify",
    "neg_inf",
    "normalize_iter_map_to_expr",
    "normalize_to_iter_sum",
    "pos_inf",
    "subspace_divide",
]
