"""Conditions as a conjunction of disjunctions: `(p and q) or r` is `(p or r) and (q or r)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir import expr as e

if TYPE_CHECKING:
    from .rewrite_simplify import RewriteSimplifier

Clause = list[Any]
_LIMIT = 64
"""How many disjunctions a condition may become; a longer one is left as it is."""


def as_and_of_ors(simplifier: RewriteSimplifier, condition: Any) -> Any:
    """The simplified condition as a conjunction of disjunctions, with parts merged pairwise where they simplify
    together.
    """
    clauses = _clauses(condition)
    if clauses is None or len(clauses) == 1 or not _mixed(condition):
        return condition
    return _joined(simplifier, e.And, [_joined(simplifier, e.Or, clause) for clause in clauses])


def _mixed(condition: Any) -> bool:
    """Whether there is a conjunction below a disjunction."""
    pending = [(condition, False)]
    while pending:
        part, below_or = pending.pop()
        if isinstance(part, (e.And, e.Or)):
            if below_or and isinstance(part, e.And):
                return True
            inner = below_or or isinstance(part, e.Or)
            pending += [(part.a, inner), (part.b, inner)]
    return False


def _joined(simplifier: RewriteSimplifier, cls: type, parts: list[Any]) -> Any:
    """The parts under one connective, after pairs that simplify together are merged."""
    kept: list[Any] = []
    for part in parts:
        place = 0
        while place < len(kept):
            both = simplifier.binary(cls, kept[place], part)
            if type(both) is cls:
                place += 1
            else:
                # The merged part may merge with an earlier one in turn.
                del kept[place]
                part, place = both, 0
        kept.append(part)
    result = kept[0]
    for part in kept[1:]:
        result = cls(result, part)
    return result


def _clauses(condition: Any) -> list[Clause] | None:
    if isinstance(condition, e.And):
        left, right = _clauses(condition.a), _clauses(condition.b)
        if left is None or right is None or len(left) + len(right) > _LIMIT:
            return None
        return left + right
    if isinstance(condition, e.Or):
        left, right = _clauses(condition.a), _clauses(condition.b)
        if left is None or right is None or len(left) * len(right) > _LIMIT:
            return None
        return [x + y for x in left for y in right]
    return [[condition]]
