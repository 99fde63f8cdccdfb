"""Integers: bounds, remainders, simplification, sets.

analyzer = arith.Analyzer()
analyzer.simplify((i * 8 + j) // 8)
"""

from .analyzer import Analyzer, ConstraintScope, Extension, ProofStrength
from .const_int_bound import ConstIntBound
from .int_set import IntervalSet, IntSet, PresburgerSet, neg_inf, pos_inf
from .modular_set import ModularSet

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "ConstraintScope",
    "Extension",
    "IntSet",
    "IntervalSet",
    "ModularSet",
    "PresburgerSet",
    "ProofStrength",
    "neg_inf",
    "pos_inf",
]
