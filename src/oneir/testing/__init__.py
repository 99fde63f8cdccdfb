"""Oracles and checks, for this project's tests and for users'.

interpret(func, a, b)  # the reference interpreter
check_pass(Simplify(), before, expected)
with PassContext(instruments=[VerifyNumerics()]):
    mod = pipeline(mod)
"""

from __future__ import annotations

from .check_pass import check_pass
from .inputs import random_inputs
from .interpreter import interpret, tolerances
from .main import main
from .numerics import VerifyNumerics, assert_allclose, assert_close, assert_same_numbers
from .stages import VerifyStages

__all__ = [
    "VerifyNumerics",
    "VerifyStages",
    "assert_allclose",
    "assert_close",
    "assert_same_numbers",
    "check_pass",
    "interpret",
    "main",
    "random_inputs",
    "tolerances",
]
