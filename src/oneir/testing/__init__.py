"""Oracles and checks, for this project's tests and for users'.

interpret(func, a, b)  # the reference interpreter
check_pass(Simplify(), before, expected)
with PassContext(instruments=[VerifyNumerics()]):
    mod = pipeline(mod)
"""

from __future__ import annotations

from .interpreter import interpret

__all__ = ["interpret"]
