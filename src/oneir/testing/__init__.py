"""Oracles and checks, for this project's tests and for users'.

interpret(func, a, b)  # the reference interpreter
check_pass(Simplify(), before, expected)
with PassContext(instruments=[VerifyNumerics()]):
    mod = pipeline(mod)
"""

from __future__ import annotations

from .attrs import TestAttrs
from .check_pass import check_pass
from .devices import device_enabled, enabled_targets
from .expressions import assert_prim_expr_equal, check_bool_expr_is_true
from .inputs import random_inputs
from .interpreter import interpret, tolerances
from .main import main
from .numerics import VerifyNumerics, assert_allclose, assert_close, assert_same_numbers
from .stages import VerifyStages

__all__ = [
    "TestAttrs",
    "VerifyNumerics",
    "VerifyStages",
    "assert_allclose",
    "assert_close",
    "assert_prim_expr_equal",
    "assert_same_numbers",
    "check_bool_expr_is_true",
    "check_pass",
    "device_enabled",
    "enabled_targets",
    "interpret",
    "main",
    "random_inputs",
    "tolerances",
]
