"""Detection of iteration maps: index expressions that split and fuse loop iterations, and whether they are bijective.

    detect_iter_map([i // 4, i % 4], {i: Range(0, 32)}, check_level=IterMapLevel.Bijective).indices

The variables of `input_iters` run over ranges that do not depend on one another; other variables are parameters. A
symbolic extent is taken to be at least one, as are its factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.container import Array
from ..ir.dtype import INT32, INT64, DataType
from ..ir.expr import PrimExpr, Range, Var
from ..ir.visitor import deep_recursion, post_order_visit
from ..runtime.error import TypeMismatch
from .iter_map import IterMapLevel, IterMapResult, IterSumExpr, normalize_iter_map_to_expr
from .iter_map_rewriter import IterMapRewriter
from .sizes import NoMatch


def detect_iter_map(
    indices: Any,
    input_iters: Mapping[Var, Range],
    predicate: Any = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
) -> IterMapResult:
    """The indices as sums of digits of iterators, each a single split and a base.

    `Bijective`: every combination of index values comes from exactly one iteration for which the predicate holds.
    `Surjective`: from at least one, except for padding, whose combinations come from values outside of the iterators'
    ranges only; the result's `padding_predicate` holds for these, and is False when there is no padding. `NoCheck`: the
    indices are of the form, and need not be independent.

    `predicate` is a conjunction of bounds on sums of iterators. Iterators of extent 1 are left out when
    `simplify_trivial_iterators`. Without a match the result has no indices, and `errors` says why.
    """
    exprs = [e.as_expr(index) for index in indices]
    try:
        rewriter, sums = detect(exprs, input_iters, predicate, check_level, simplify_trivial_iterators)
    except NoMatch as reason:
        return IterMapResult((), [str(reason)], e.IntImm("bool", 0))
    return IterMapResult(sums, (), rewriter.padding_predicate(sums))


def detect(
    indices: Sequence[PrimExpr],
    input_iters: Mapping[Var, Range],
    predicate: Any,
    check_level: IterMapLevel | str,
    simplify_trivial_iterators: bool = True,
    may_pad: bool | None = None,
    whole_digits: bool = False,
) -> tuple[IterMapRewriter, list[IterSumExpr]]:
    """The sums of the indices, and the rewriter that made them; raises `NoMatch` if they are no iteration map."""
    check_level = IterMapLevel.of(check_level)
    _check_ranges(input_iters)
    condition = ops.as_bool(predicate)
    dtype = _common_dtype([*indices, *input_iters])
    reason = NoMatch("")
    for digits_first in (True, False):
        rewriter = IterMapRewriter(
            input_iters,
            dtype,
            may_pad=check_level != IterMapLevel.Bijective if may_pad is None else may_pad,
            whole_digits=whole_digits,
            keep_trivial=not simplify_trivial_iterators,
            digits_first=digits_first,
        )
        try:
            with deep_recursion:
                sums = rewriter.rewrite(indices, condition)
                rewriter.check(sums, check_level)
            return rewriter, sums
        except NoMatch as found:
            reason = found
    raise reason


def _common_dtype(exprs: Sequence[PrimExpr]) -> DataType:
    for expr in exprs:
        if expr.dtype.code != "int" or not expr.dtype.is_scalar:
            raise TypeMismatch(f"expected signed integer indices, found `{expr}` of dtype {expr.dtype}")
    return INT64 if any(expr.dtype is INT64 for expr in exprs) else INT32


def _check_ranges(input_iters: Mapping[Var, Range]) -> None:
    """Raises `NoMatch` for ranges that depend on other iterators."""

    def look(node: Any) -> None:
        if isinstance(node, Var) and node in input_iters:
            raise NoMatch(f"the range of an iterator depends on the iterator {node}")

    for domain in input_iters.values():
        for bound in (domain.min, domain.extent):
            if not isinstance(bound, e.IntImm):
                post_order_visit(bound, look)


def iter_map_simplify(
    indices: Any,
    input_iters: Mapping[Var, Range],
    predicate: Any = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
) -> Array[PrimExpr]:
    """The indices simplified as an iteration map; unchanged when they are none."""
    exprs = Array(e.as_expr(index) for index in indices)
    conditions = [predicate]
    if IterMapLevel.of(check_level) != IterMapLevel.Bijective:
        # A map of all iterations is also one of those that satisfy the predicate.
        conditions.append(True)
    for condition in conditions:
        try:
            _, sums = detect(exprs, input_iters, condition, check_level, simplify_trivial_iterators)
        except NoMatch:
            continue
        return Array(
            ops.cast(index.dtype, normalize_iter_map_to_expr(total)) for index, total in zip(exprs, sums, strict=True)
        )
    return exprs


def normalize_to_iter_sum(index: Any, input_iters: Mapping[Var, Range]) -> IterSumExpr:
    """The index as a sum of digits of iterators, the largest scale first.

    Digits of one iterator are joined where they are neighbours. Terms that are of no such form are left in the base.
    """
    expr = e.as_expr(index)
    rewriter = IterMapRewriter(input_iters, _common_dtype([expr, *input_iters]), may_pad=True)
    sizes = rewriter.sizes
    total = IterSumExpr((), sizes.zero)
    with deep_recursion:
        for part, factor in _terms(expr):
            try:
                found = rewriter.visit(part)
            except NoMatch:
                found = IterSumExpr((), sizes.of(part))
            total = rewriter.add(total, found, sizes.of(factor))
    args = sorted(
        rewriter.join(total).args, key=lambda arg: (isinstance(arg.scale, e.IntImm), -_constant_factor(arg.scale))
    )
    return IterSumExpr(args, total.base)


def _terms(expr: PrimExpr) -> list[tuple[PrimExpr, int]]:
    """The terms of a sum, each with its sign."""
    result: list[tuple[PrimExpr, int]] = []
    pending = [(expr, 1)]
    while pending:
        part, factor = pending.pop()
        if isinstance(part, (e.Add, e.Sub)):
            pending += [(part.b, -factor if isinstance(part, e.Sub) else factor), (part.a, factor)]
        else:
            result.append((part, factor))
    return result


def _constant_factor(scale: PrimExpr) -> int:
    """The constant in a product of symbols and a constant."""
    if isinstance(scale, e.IntImm):
        return scale.value
    if isinstance(scale, e.Mul):
        return _constant_factor(scale.a) * _constant_factor(scale.b)
    return 1
