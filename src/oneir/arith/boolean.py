"""Conditions as a conjunction of disjunctions: `(p and q) or r` is `(p or r) and (q or r)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir import expr as e
from .pattern import same

if TYPE_CHECKING:
    from .rewrite_simplify import RewriteSimplifier

Clause = list[Any]
_LIMIT = 64
"""How many disjunctions a condition may become; a longer one is left as it is."""


def as_and_of_ors(simplifier: RewriteSimplifier, condition: Any) -> Any:
    """The simplified condition as a conjunction of disjunctions, with parts merged pairwise where they simplify
    together. What is merged stands where the later of the two stood.
    """
    clauses = _clauses(condition)
    if clauses is None:
        return condition
    merged: list[Clause | None] = [_merged(simplifier, e.Or, clause) for clause in clauses]
    _merge_clauses(simplifier, merged)
    return _joined(e.And, [_joined(e.Or, clause, False) for clause in merged if clause is not None], True)


def _joined(cls: type, parts: list[Any], neutral: bool) -> Any:
    """The parts under one connective; the neutral element where there are none."""
    if not parts:
        return e.const(neutral, "bool")
    result = parts[0]
    for part in parts[1:]:
        result = cls(result, part)
    return result


def _pair(simplifier: RewriteSimplifier, cls: type, a: Any, b: Any) -> tuple[Any, Any] | None:
    """What two parts of a connective become: both (None for one that is gone), or None if nothing simplifies.

    As one part the result takes the place of the second.
    """
    if same(a, b):
        return None, b
    both = simplifier.binary(cls, a, b)
    if type(both) is not cls:
        return None, both
    return None if same(both.a, a) and same(both.b, b) else (both.a, both.b)


def _is(part: Any, value: bool) -> bool:
    return isinstance(part, e.IntImm) and bool(part.value) == value


def _merged(simplifier: RewriteSimplifier, cls: type, clause: Clause) -> Clause:
    """A clause whose parts are merged with one another."""
    parts: list[Any] = list(clause)
    for i in range(len(parts)):
        for j in range(i + 1, len(parts)):
            if parts[i] is None or parts[j] is None:
                continue
            merged = _pair(simplifier, cls, parts[i], parts[j])
            if merged is not None:
                parts[i], parts[j] = merged
    return [part for part in parts if part is not None and not _is(part, cls is e.And)]


def _merge_clauses(simplifier: RewriteSimplifier, clauses: list[Any]) -> None:
    """Merges clauses that are alike but for one part of each; one that follows from another becomes None."""
    for i in range(len(clauses)):
        for j in range(i + 1, len(clauses)):
            first, second = clauses[i], clauses[j]
            if first is None:
                break
            if second is None:
                continue
            own = [part for part in first if not _among(part, second)]
            other = [part for part in second if not _among(part, first)]
            if not own:
                clauses[j] = None
            elif not other:
                clauses[i], clauses[j] = second, None
            elif len(own) == len(other) == 1:
                _merge_pair(simplifier, clauses, i, j, own[0], other[0])
    for i, clause in enumerate(clauses):
        if clause is not None and any(_is(part, True) for part in clause):
            clauses[i] = None


def _merge_pair(simplifier: RewriteSimplifier, clauses: list[Any], i: int, j: int, own: Any, other: Any) -> None:
    """(p or q) and (p or r) is p or (q and r), in which p is known not to hold where q and r count."""
    first, second = clauses[i], clauses[j]
    known = e.const(True, "bool")
    for part in first:
        if part is not own:
            known = simplifier.binary(e.And, known, simplifier.make_not(part))
    with simplifier.analyzer.holding(known):
        merged = _pair(simplifier, e.And, own, other)
        if merged is None and len(first) > 1:
            visited = simplifier.visit(e.And(own, other))
            merged = None if type(visited) is e.And else (None, visited)
    if merged is None:
        return
    a, b = merged
    clauses[i] = None if a is None else [a if part is own else part for part in first]
    if not _is(b, False):
        clauses[j] = [b if part is other else part for part in second]
    else:
        rest = [part for part in second if part is not other]
        clauses[j] = rest or [b]


def _among(part: Any, clause: Clause) -> bool:
    return any(same(part, other) for other in clause)


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
