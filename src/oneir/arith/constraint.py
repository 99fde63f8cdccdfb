"""Facts that follow from a condition that is known to hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir import expr as e
from ..ir.op import Op


def conjuncts(condition: Any) -> Iterator[Any]:
    """The conditions that hold when a condition does: the operands of a conjunction, the argument of `likely`."""
    pending = [condition]
    while pending:
        part = pending.pop()
        if isinstance(part, e.And):
            pending += [part.b, part.a]
        elif isinstance(part, e.Call) and isinstance(part.op, Op) and part.op.name == "tir.likely":
            pending.append(part.args[0])
        else:
            yield part


def reads_memory(condition: Any) -> bool:
    """Whether the value of a condition depends on memory: it loads from a buffer, or has a call that reads state."""
    pending = [condition]
    while pending:
        node = pending.pop()
        if not isinstance(node, e.PrimExpr):
            continue
        if type(node).__module__ != e.__name__:
            return True
        if isinstance(node, e.Call):
            kind = e.TCallEffectKind.of(node.op)
            if kind is None or kind > e.CallEffectKind.Pure:
                return True
        node.visit_children(pending.append)
    return False


def non_positive(condition: Any) -> Iterator[tuple[Any, Any, int]]:
    """A comparison as (a, b, c), each saying that a - b + c <= 0."""
    match condition:
        case e.LT(a=a, b=b):
            yield a, b, 1
        case e.LE(a=a, b=b):
            yield a, b, 0
        case e.GT(a=a, b=b):
            yield b, a, 1
        case e.GE(a=a, b=b):
            yield b, a, 0
        case e.EQ(a=a, b=b):
            yield a, b, 0
            yield b, a, 0
        case _:
            pass


def residue(condition: Any) -> tuple[e.Var, int, int] | None:
    """A condition `x % c == d` on a variable, as (x, c, d) with 0 <= d < c; rounded either way it says the same."""
    match condition:
        case e.EQ(a=e.FloorMod(a=e.Var() as variable, b=e.IntImm(value=divisor)), b=e.IntImm(value=rest)):
            return (variable, divisor, rest) if divisor > 0 and 0 <= rest < divisor else None
        case e.EQ(a=e.Mod(a=e.Var() as variable, b=e.IntImm(value=divisor)), b=e.IntImm(value=rest)):
            return (variable, divisor, rest % divisor) if abs(rest) < divisor else None
        case _:
            return None
