"""Replacing what matches a pattern.

    func = rewrite_call(pattern, lambda expr, found: R.multiply(found[x], R.const(2.0)), func)
    mod = PatternMatchingRewriter.from_module(AddIsTwice)(mod)

A rewriter looks at the bindings of one block, or of one stretch of it without side effects, and says what some of them
become (`rewrites`). It is applied until nothing matches; after each time, variables that only stand for others,
repeated computations and what is not used any more are removed (`rewrite_blocks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...ir.structural import structural_equal
from ...ir.transform import Pass, PassContext
from ...ir.visitor import deep_recursion
from ...runtime.error import InvalidValue, TypeMismatch
from ..analysis.variables import free_vars
from ..block_builder import BlockBuilder
from ..expr import Binding, Expr, Function, Tuple, TupleGetItem, Var, as_seq_expr
from .block_matcher import BlockMatcher
from .context import PatternContext
from .matcher import ExprMatcher, match_expr
from .pattern import DFPattern, OrPattern, TuplePattern
from .rewrite_blocks import called_subroutines, rewrite_function, rewrite_module
from .rewrite_module import Found, rewriter_parts

Rewrite = Callable[[Any, Found], Expr | None]
"""What becomes of an expression, knowing what the parts of the pattern match; the expression itself, or None, to keep
it."""


class PatternMatchingRewriter(Pass):
    """A rule that replaces what matches; also a pass. `a | b` replaces what either does."""

    @property
    def subroutines(self) -> Mapping[GlobalVar, BaseFunc]:
        """The functions that replacements may call."""
        return {}

    @staticmethod
    def from_pattern(pattern: DFPattern, func: Rewrite) -> PatternMatchingRewriter:
        """Replaces what matches `pattern` by `func(expr, found)`, as `rewrite_call` does.

        An `OrPattern` is two rules: what `func` keeps by the first may be replaced by the second. The fields of a
        `TuplePattern` also match values of a block that no tuple holds.
        """
        return _from_pattern(pattern, func, ())

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """Replaces what computes the function `pattern` of a module by what its function `replacement` does.

        Both have one signature. Symbolic variables in it stand for what they match. Further functions, private ones,
        may be called by the replacement.
        """
        parts = rewriter_parts(mod)
        rewriter = PatternMatchingRewriter.from_pattern(parts.pattern, parts.rewrite)
        return ModuleRewriter(rewriter, parts.subroutines)

    def rewrites(self, bindings: Sequence[Binding]) -> dict[Var, Expr]:
        """What some of the variables are to be bound to instead. The bindings have no side effects."""
        raise NotImplementedError

    def __call__(self, obj: Any) -> Any:
        """The module, function or graph expression, which becomes a body of its own, with what matches replaced."""
        if isinstance(obj, IRModule):
            return super().__call__(obj)
        if not isinstance(obj, Expr):
            raise TypeMismatch(f"a rewriter is applied to a module or a graph expression, found {type(obj).__name__}")
        with deep_recursion:
            if isinstance(obj, Function):
                func = obj
            else:
                body = BlockBuilder().normalize(as_seq_expr(obj))
                func = Function(free_vars(body), body)
            result = rewrite_function(self, func)
        if result is func:
            return obj
        called = called_subroutines([result], self.subroutines)
        if called:
            names = ", ".join(f"`{var.name_hint}`" for var in called)
            raise InvalidValue(f"the replacement calls {names}, so the rewriter must be applied to a whole module")
        return result if func is obj else result.body

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return rewrite_module(self, mod)

    def __or__(self, other: PatternMatchingRewriter) -> PatternMatchingRewriter:
        return OrRewriter(self, other)


def _from_pattern(pattern: DFPattern, func: Rewrite, enclosing: tuple[DFPattern, ...]) -> PatternMatchingRewriter:
    if isinstance(pattern, OrPattern):
        enclosing = (*enclosing, pattern)
        return OrRewriter(_from_pattern(pattern.left, func, enclosing), _from_pattern(pattern.right, func, enclosing))
    if isinstance(pattern, TuplePattern):
        implicit = TupleRewriter(pattern.fields, func, (*enclosing, pattern))
        return OrRewriter(ExprPatternRewriter(pattern, func, enclosing), implicit)
    return ExprPatternRewriter(pattern, func, enclosing)


class ExprPatternRewriter(PatternMatchingRewriter):
    """Replaces expressions that match one pattern. `enclosing` are patterns that count as matched with it."""

    pattern: DFPattern
    func: Rewrite
    enclosing: Sequence[DFPattern] = ()

    def rewrites(self, bindings: Sequence[Binding]) -> dict[Var, Expr]:
        replaced: dict[Var, Expr] = {}
        values: dict[Var, Expr] = {}
        for binding in bindings:
            new = self._rewritten(binding.value, values)
            if new is None:
                values[binding.var] = binding.value
            else:
                replaced[binding.var] = new
        return replaced

    def _rewritten(self, expr: Expr, values: Mapping[Var, Expr]) -> Expr | None:
        found = match_expr(self.pattern, expr, values)
        if found is None:
            return None
        for pattern in self.enclosing:
            found[pattern] = ExprMatcher(values).value(expr)
        new = self.func(expr, found)
        return None if new is expr else new


class OrRewriter(PatternMatchingRewriter):
    """Replaces what either of two rewriters does; where both would, the first."""

    lhs: PatternMatchingRewriter
    rhs: PatternMatchingRewriter

    @property
    def subroutines(self) -> Mapping[GlobalVar, BaseFunc]:
        return {**self.lhs.subroutines, **self.rhs.subroutines}

    def rewrites(self, bindings: Sequence[Binding]) -> dict[Var, Expr]:
        replaced = self.lhs.rewrites(bindings)
        # The second one sees the others as they are now in the next round.
        rest = [b for b in bindings if b.var not in replaced] if replaced else bindings
        return {**replaced, **self.rhs.rewrites(rest)}


class _Element:
    """One binding, and what each field of the tuple has matched in it."""

    def __init__(self, var: Var, value: Expr, found: list[Found | None]):
        self.var, self.value, self.found = var, value, found
        self.users: set[Var] = set()


class ModuleRewriter(PatternMatchingRewriter):
    """A rewriter whose replacements may call functions of the module that it was written as."""

    rewriter: PatternMatchingRewriter
    functions: Mapping[GlobalVar, BaseFunc]

    @property
    def subroutines(self) -> Mapping[GlobalVar, BaseFunc]:
        return self.functions

    def rewrites(self, bindings: Sequence[Binding]) -> dict[Var, Expr]:
        return self.rewriter.rewrites(bindings)


class TupleRewriter(PatternMatchingRewriter):
    """Replaces two or three values of a block that match the fields of a tuple, whether or not there is a tuple.

    `func` gets the tuple of them, and gives the tuple that replaces them.
    """

    MAX_FIELDS: ClassVar[int] = 3

    patterns: Sequence[DFPattern]
    func: Rewrite
    enclosing: Sequence[DFPattern] = ()

    def rewrites(self, bindings: Sequence[Binding]) -> dict[Var, Expr]:
        if len(self.patterns) > self.MAX_FIELDS:
            raise InvalidValue(
                f"a tuple of {len(self.patterns)} fields is looked for: values that no tuple holds are tried in all "
                f"combinations, so there may be at most {self.MAX_FIELDS}; use ExprPatternRewriter for actual tuples"
            )
        replaced: dict[Var, Expr] = {}
        values: dict[Var, Expr] = {}
        elements: dict[Var, _Element] = {}
        fitting: list[list[_Element]] = [[] for _ in self.patterns]
        """The elements that are not replaced yet, for each field."""
        for binding in bindings:
            var, value = binding.var, binding.value
            element = _Element(var, value, [match_expr(p, value, values) for p in self.patterns])
            match = self._match(element, fitting)
            elements[var] = element
            if match is None:
                values[var] = value
                for field, found in enumerate(element.found):
                    if found is not None:
                        fitting[field].append(element)
            else:
                for old, new in match:
                    replaced[old.var] = new
                    values.pop(old.var, None)
                    fitting = [[e for e in candidates if e is not old] for candidates in fitting]
            for used in free_vars(value):
                if used in elements:
                    elements[used].users.add(var)
        return replaced

    def _match(self, last: _Element, fitting: Sequence[Sequence[_Element]]) -> list[tuple[_Element, Expr]] | None:
        """Elements, `last` among them, that are replaced together, and what each becomes."""
        for field in reversed(range(len(self.patterns))):
            if last.found[field] is None:
                continue
            candidates = [[last] if i == field else others[::-1] for i, others in enumerate(fitting)]
            for chosen in _combinations(candidates):
                new = self._rewritten(chosen)
                if new is not None:
                    return list(zip(chosen, new, strict=True))
        return None

    def _rewritten(self, chosen: Sequence[_Element]) -> list[Expr] | None:
        found: Found = {}
        for field, element in enumerate(chosen):
            for pattern, expr in (element.found[field] or {}).items():
                if not structural_equal(found.setdefault(pattern, expr), expr):
                    return None
        # What is used already cannot be computed later, together with the last one.
        if any(all(user is not e for e in found.values()) for element in chosen for user in element.users):
            return None
        whole = Tuple([element.value for element in chosen])
        for pattern in self.enclosing:
            found[pattern] = whole
        new = self.func(whole, found)
        if new is None or new is whole:
            return None
        if not isinstance(new, Tuple):
            return [TupleGetItem(new, i) for i in range(len(chosen))]
        if len(new.fields) != len(chosen):
            raise InvalidValue(
                f"{len(chosen)} values are replaced together, but by a tuple of {len(new.fields)}: {new}"
            )
        return list(new.fields)


def _combinations(candidates: Sequence[Sequence[_Element]]) -> Iterator[list[_Element]]:
    """One different element of each, those of the first changing fastest."""
    if not candidates:
        yield []
        return
    for last in candidates[-1]:
        for others in _combinations(candidates[:-1]):
            if last not in others:
                yield [*others, last]


class _ContextRewriter(PatternMatchingRewriter):
    """Replaces what a whole `PatternContext` matches."""

    context: PatternContext
    func: Callable[[dict[DFPattern, Var], dict[Var, Expr]], Any]

    def rewrites(self, bindings: Sequence[Binding]) -> dict[Var, Expr]:
        replaced: dict[Var, Expr] = {}
        matcher = BlockMatcher(self.context, bindings)
        values = {b.var: b.value for b in bindings}
        while True:
            found = matcher.match()
            new = self.func(found, values) if found is not None else {}
            new = {var: value for var, value in new.items() if var in values}
            if not new:
                return replaced
            replaced.update(new)
            matcher.forget(new)
            values = {var: value for var, value in values.items() if var not in new}


def rewrite_call(pattern: DFPattern, rewriter: Rewrite, func: Function) -> Function:
    """A function with each expression that matches replaced by `rewriter(expr, found)`.

    `found` has the expression that each part of the pattern matches. Returning `expr` keeps it. The identical function
    if nothing changes.
    """
    return PatternMatchingRewriter.from_pattern(pattern, rewriter)(func)


def rewrite_bindings(
    ctx: PatternContext, rewriter: Callable[[dict[DFPattern, Var], dict[Var, Expr]], Mapping[Var, Expr]], func: Function
) -> Function:
    """A function with what matches all of a context replaced, block by block.

    `rewriter(found, values)` gets the variable of each pattern and the values of the block's variables, and returns
    what variables are to be bound to instead; nothing, to keep them.
    """
    return _ContextRewriter(ctx, rewriter)(func)
