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
from .analyzer import Analyzer
from .iter_map import (
    IterMapLevel,
    IterMapResult,
    IterSplitExpr,
    IterSumExpr,
    is_number,
    normalize_iter_map_to_expr,
)
from .iter_map_rewriter import IterMapRewriter
from .sizes import NoMatch, OtherOperation


def detect_iter_map(
    indices: Any,
    input_iters: Mapping[Var, Range],
    predicate: Any = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    *,
    may_overlap: bool = True,
) -> IterMapResult:
    """The indices as sums of digits of iterators, each a single split and a base.

    `Bijective`: every combination of index values comes from exactly one iteration for which the predicate holds.
    `Surjective`: from at least one, which for the sum of a window, `i + k`, may be many unless `may_overlap` is False.
    `NoCheck`: the indices are of the form, and need not be independent.

    Where a divisor does not fit, as in `i // 4` and `i % 4` of i in [0, 30), the digits are those of a longer
    iterator. The result's `padding_predicate` holds for its values outside of [0, 30), and is False when there is no
    padding. With `Surjective`, each combination of digits comes from a value inside: `i // 4` alone, or `i % 4`, but
    not both.

    `predicate` is a conjunction of bounds on sums of iterators. Iterators of extent 1 are left out when
    `simplify_trivial_iterators`. Without a match the result has no indices, and `errors` says why.
    """
    exprs = [e.as_expr(index) for index in indices]
    try:
        rewriter, sums = detect(
            exprs, input_iters, predicate, check_level, simplify_trivial_iterators, may_overlap=may_overlap
        )
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
    fused_first: bool = False,
    may_overlap: bool = False,
) -> tuple[IterMapRewriter, list[IterSumExpr]]:
    """The sums of the indices, and the rewriter that made them; raises `NoMatch` if they are no iteration map.

    Terms are divided before they are fused, or the other way round with `fused_first`; where that fails, the other way.
    """
    check_level = IterMapLevel.of(check_level)
    _check_ranges(input_iters)
    condition = ops.as_bool(predicate)
    dtype = _common_dtype([*indices, *input_iters])
    reason = NoMatch("")
    for digits_first in (not fused_first, fused_first):
        rewriter = IterMapRewriter(
            input_iters,
            dtype,
            may_pad=check_level != IterMapLevel.Bijective if may_pad is None else may_pad,
            whole_digits=whole_digits,
            keep_trivial=not simplify_trivial_iterators,
            digits_first=digits_first,
            may_overlap=may_overlap and check_level == IterMapLevel.Surjective,
        )
        try:
            with deep_recursion:
                sums = rewriter.rewrite(indices, condition)
                rewriter.check(sums, check_level)
            return rewriter, sums
        except OtherOperation:
            raise
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
    *,
    fused_first: bool = True,
) -> Array[PrimExpr]:
    """The indices simplified as an iteration map; unchanged when they are none.

    With `fused_first` a sum that is divided stays whole where it can: `(i * 8 + j) // 4` with j in [0, 8) keeps its
    dividend. Else each term is divided: it is `i * 2 + j // 4`.
    """
    exprs = Array(e.as_expr(index) for index in indices)
    conditions = [predicate]
    if IterMapLevel.of(check_level) != IterMapLevel.Bijective:
        # A map of all iterations is also one of those that satisfy the predicate.
        conditions.append(True)
    for condition in conditions:
        try:
            _, sums = detect(
                exprs, input_iters, condition, check_level, simplify_trivial_iterators, fused_first=fused_first
            )
        except OtherOperation:
            break
        except NoMatch:
            continue
        return Array(
            _of_dtype(normalize_iter_map_to_expr(total), index.dtype, input_iters)
            for index, total in zip(exprs, sums, strict=True)
        )
    return exprs


def _of_dtype(expr: PrimExpr, dtype: DataType, input_iters: Mapping[Var, Range]) -> PrimExpr:
    """The expression in a dtype: computed in it where no dividend leaves its range, and cast to it elsewhere."""
    if expr.dtype is dtype:
        return expr
    analyzer = Analyzer()
    for var, domain in input_iters.items():
        analyzer.bind(var, domain)
    found = _computed_in(expr, dtype, analyzer)
    return ops.cast(dtype, expr) if found is None else found


def _computed_in(expr: PrimExpr, dtype: DataType, analyzer: Analyzer) -> PrimExpr | None:
    """The expression with all of its parts in a narrower dtype; None where that may change its value."""
    if isinstance(expr, e.Cast) and expr.value.dtype is dtype:
        return expr.value
    if isinstance(expr, e.IntImm):
        return e.IntImm(dtype, expr.value) if -(1 << dtype.bits - 1) <= expr.value < 1 << dtype.bits - 1 else None
    if not isinstance(expr, (e.Add, e.Sub, e.Mul, e.FloorDiv, e.FloorMod)):
        return None
    if isinstance(expr, (e.FloorDiv, e.FloorMod)):
        bound = analyzer.const_int_bound(expr.a)
        if bound.min_value < -(1 << dtype.bits - 1) or bound.max_value >= 1 << dtype.bits - 1:
            return None
    a, b = (_computed_in(part, dtype, analyzer) for part in (expr.a, expr.b))
    return None if a is None or b is None else type(expr)(a, b)


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
        (_unpadded(rewriter, arg) for arg in rewriter.join(total).args),
        key=lambda arg: (isinstance(arg.scale, e.IntImm), -_constant_factor(arg.scale)),
    )
    return IterSumExpr(args, total.base)


def _unpadded(rewriter: IterMapRewriter, split: IterSplitExpr) -> IterSplitExpr:
    """The digits of a mark that was only made longer, to a multiple of a divisor, as digits of the mark itself."""
    padding = rewriter.padded.get(id(split.source))
    if padding is None or not is_number(padding.left, 0):
        return split
    origin = padding.origin
    whole = is_number(origin.lower_factor, 1) and rewriter.sizes.equal(origin.extent, origin.source.extent)
    return split.replace(source=origin.source) if whole else split


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
