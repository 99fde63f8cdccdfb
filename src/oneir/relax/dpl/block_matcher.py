"""Matching the patterns of a `PatternContext` to the variables of a block.

A search with backtracking: one pattern after the other gets a variable, those that are connected by a use first, so
that what is tried for a pattern are the users, or what is used by, a variable that another pattern has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...arith import Analyzer
from ...ir.expr import PrimExpr
from ...runtime.error import InvalidValue
from ..analysis.variables import post_order_visit
from ..expr import Binding, Call, Expr, Var
from ..struct_info import ShapeStructInfo, TensorStructInfo, same_extents
from .context import PatternContext, Use, match_block
from .matcher import ExprMatcher
from .pattern import DFConstraint, DFPattern, SameShapeConstraint


class _Uses:
    """Which variables of a block are used by the values of which others."""

    def __init__(self, bindings: Sequence[Binding]):
        self.values: dict[Var, Expr] = {}
        self.users: dict[Var, list[Var]] = {}
        """All variables, in the order of their first uses, with the bindings that use them."""
        self.used: dict[Var, list[Var]] = {}
        """The variables in a value, in the order in which they stand in it."""
        for binding in bindings:
            self.values[binding.var] = binding.value
            self.used[binding.var] = _variables(binding.value)
            for var in self.used[binding.var]:
                users = self.users.setdefault(var, [])
                if not users or users[-1] is not binding.var:
                    users.append(binding.var)
        for binding in bindings:
            self.users.setdefault(binding.var, [])
        self.position = {var: i for i, var in enumerate(self.users)}

    def forget(self, var: Var) -> None:
        """Takes away the value of a variable."""
        for used in dict.fromkeys(self.used.pop(var)):
            self.users[used].remove(var)
        del self.values[var]

    def allows(self, producer: Var, consumer: Var, use: Use) -> bool:
        """Whether one variable is used by another in the way that is asked for."""
        used = self.used.get(consumer, ())
        if producer not in used or (use.only and len(self.users[producer]) != 1):
            return False
        if use.argument == -1:
            return True
        if use.argument < len(used) and used[use.argument] is producer:
            return True
        value = self.values[consumer]
        return isinstance(value, Call) and use.argument < len(value.args) and value.args[use.argument] is producer


def _variables(value: Expr) -> list[Var]:
    found: list[Var] = []

    def visit(expr: Expr) -> None:
        if isinstance(expr, Var):
            found.append(expr)

    post_order_visit(value, visit)
    return found


class BlockMatcher:
    """Matches the patterns of a context to the variables of some bindings."""

    def __init__(self, context: PatternContext, bindings: Sequence[Binding]):
        self.uses = _Uses(bindings)
        self.edges = context.edges
        self.producers: dict[DFPattern, list[DFPattern]] = {}
        for producer, consumers in context.edges.items():
            self.producers.setdefault(producer, [])
            for consumer in consumers:
                self.producers.setdefault(consumer, []).append(producer)
        self.order = self._order()
        self.constraints = _by_last_argument(context.constraints, self.order)
        self.fits: dict[tuple[DFPattern, Var], bool] = {}

    def _order(self) -> list[DFPattern]:
        """The patterns, each source followed by what uses it."""
        order: dict[DFPattern, None] = {}
        for source in self.edges:
            to_visit = [] if self.producers[source] else [source]
            while to_visit:
                pattern = to_visit.pop()
                if pattern not in order:
                    order[pattern] = None
                    to_visit += reversed(self.edges.get(pattern, {}))
        return list(order)

    def match(self, hint: Var | None = None, only_hint: bool = False) -> dict[DFPattern, Var] | None:
        """The variable of each pattern; None if there is none for all of them.

        A match in which `hint` takes part is preferred; with `only_hint` there is no other.
        """
        if hint is not None:
            for pattern in self.order:
                found = self._run({pattern: hint})
                if found is not None:
                    return found
        return None if only_hint else self._run({})

    def forget(self, variables: Iterable[Var]) -> None:
        """Takes away the bindings of some variables: they have no value any more and use nothing."""
        for var in variables:
            self.uses.forget(var)
        self.fits.clear()

    def _run(self, fixed: Mapping[DFPattern, Var]) -> dict[DFPattern, Var] | None:
        """A variable for each pattern, those in `fixed` given."""
        if len(self.order) < len(self.producers) or not self.order:
            return None  # Uses in a circle match nothing.
        found: dict[DFPattern, Var] = {}
        # The candidates left for each pattern that has a variable, and for the next one.
        choices = [self._candidates(self.order[0], found, fixed)]
        while choices:
            pattern = self.order[len(choices) - 1]
            found.pop(pattern, None)
            var = next(choices[-1], None)
            if var is None:
                choices.pop()
                continue
            found[pattern] = var
            if not all(_holds(constraint, found) for constraint in self.constraints.get(pattern, ())):
                continue
            if len(found) == len(self.order):
                return {p: found[p] for p in self.order}
            choices.append(self._candidates(self.order[len(choices)], found, fixed))
        return None

    def _candidates(
        self, pattern: DFPattern, found: Mapping[DFPattern, Var], fixed: Mapping[DFPattern, Var]
    ) -> Iterator[Var]:
        """The variables that a pattern may have besides those that the others have."""
        taken = set(found.values())
        consumers = len(self.edges.get(pattern, ()))
        before = [p for p in self.producers[pattern] if p in found]
        after = {p: uses for p, uses in self.edges.get(pattern, {}).items() if p in found}
        near: Iterable[Var] = self.uses.users
        if pattern in fixed:
            near = [fixed[pattern]] if fixed[pattern] in self.uses.users else []
        elif before:
            near = self.uses.users[found[before[0]]]
        elif after:
            used = set(self.uses.used.get(found[next(iter(after))], ()))
            near = sorted(used, key=self.uses.position.__getitem__)
        for var in near:
            # Each consumer is another variable.
            if len(self.uses.users[var]) < consumers or var in taken or not self._matches(pattern, var):
                continue
            uses = [(found[p], var, use) for p in before for use in self.edges[p][pattern]]
            uses += [(var, found[p], use) for p, wanted in after.items() for use in wanted]
            if all(self.uses.allows(*use) for use in uses):
                yield var

    def _matches(self, pattern: DFPattern, var: Var) -> bool:
        key = (pattern, var)
        known = self.fits.get(key)
        if known is None:
            matcher = ExprMatcher(self.uses.values)
            known = self.fits[key] = any(True for _ in matcher.matches(pattern, var))
        return known


def _by_last_argument(
    constraints: Sequence[DFConstraint], order: Sequence[DFPattern]
) -> dict[DFPattern, list[SameShapeConstraint]]:
    """The constraints, each by the pattern that is the last of its arguments to get a variable."""
    position = {pattern: i for i, pattern in enumerate(order)}
    result: dict[DFPattern, list[SameShapeConstraint]] = {}
    for constraint in constraints:
        assert isinstance(constraint, SameShapeConstraint)
        for argument in constraint.args:
            if argument not in position:
                raise InvalidValue(
                    f"{constraint} speaks of {argument}, which takes part in no use that the PatternContext knows of"
                )
        last = max(constraint.args, key=position.__getitem__)
        result.setdefault(last, []).append(constraint)
    return result


def _holds(constraint: SameShapeConstraint, found: Mapping[DFPattern, Var]) -> bool:
    analyzer = Analyzer()
    shapes = [_extents(found[argument]) for argument in constraint.args]
    first = shapes[0]
    return first is not None and all(s is not None and same_extents(first, s, analyzer) for s in shapes)


def _extents(var: Var) -> Sequence[PrimExpr] | None:
    info = var.struct_info_
    if isinstance(info, TensorStructInfo):
        return info.extents
    return info.values if isinstance(info, ShapeStructInfo) else None


@match_block.provide
def _match_block(
    context: PatternContext, bindings: Sequence[Binding], start_hint: Var | None, must_include_hint: bool
) -> dict[DFPattern, Var] | None:
    return BlockMatcher(context, bindings).match(start_hint, must_include_hint)
