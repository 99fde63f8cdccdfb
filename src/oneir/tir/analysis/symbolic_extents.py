"""What an extent says of the variable in it: a dimension declared as `n * 32 + 1` that has 65 elements tells `n`."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Add, Cast, IntImm, Mul, Sub, Var


def solve_extent(declared: Any, actual: Any, known: Container[Var]) -> tuple[Var, Any] | None:
    """The variable, not yet known, that follows where the declared extent is the actual one, and its value.

    A declared extent may add constants to the variable, and multiply it by them. None where it is anything else. The
    value is only that of an equation that has a solution: whoever takes it checks that both extents are equal.
    """
    while not isinstance(declared, Var):
        if isinstance(declared, Cast):
            declared = declared.value
            continue
        if not isinstance(declared, (Add, Sub, Mul)):
            return None
        rest, constant = declared.a, declared.b
        if isinstance(rest, IntImm) and not isinstance(declared, Sub):
            rest, constant = constant, rest
        if not isinstance(constant, IntImm) or (isinstance(declared, Mul) and not constant.value):
            return None
        value = constant.value
        if isinstance(declared, Mul):
            actual = ops.floordiv(actual, value)
        else:
            actual = ops.subtract(actual, value) if isinstance(declared, Add) else ops.add(actual, value)
        declared = rest
    return None if declared in known else (declared, actual)
