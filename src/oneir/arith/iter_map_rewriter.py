"""Rewrites index expressions as sums of digits of marks, and checks that the digits are independent.

A sum whose terms are neighbouring digits, `i * 4 + j` with j in [0, 4), is fused into one new mark, whose digits can be
taken in turn. A predicate makes the mark shorter; a divisor that does not fit makes it longer, by padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Range, Var
from ..ir.visitor import post_order_visit
from .constraint import conjuncts, non_positive
from .iter_map import (
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    is_number,
    normalize_iter_map_to_expr,
)
from .sizes import NoMatch, OtherOperation, Sizes, assume_positive

_PASSES = 8
"""How often padding may grow before it is taken to grow without end."""


@dataclass
class Constraint:
    """`sum(terms) - low` is `mark`: a condition says that it lies in [0, mark.extent)."""

    terms: Sequence[IterSplitExpr]
    low: PrimExpr
    mark: IterMark
    condition: PrimExpr


@dataclass
class Padding:
    """`mark` is `origin + left`, made longer to a multiple of what divides it, `multiple`."""

    mark: IterMark
    origin: IterSplitExpr
    left: PrimExpr
    multiple: PrimExpr


_Digits = tuple[PrimExpr, IterSplitExpr]
"""An offset, and digits of a split plus this offset."""


def _end(sizes: Sizes, chain: Sequence[IterSplitExpr]) -> PrimExpr:
    """The place value of the digit above the last one."""
    return sizes.times(chain[-1].lower_factor, chain[-1].extent) if chain else sizes.one


def _dependent(mark: IterMark, splits: Sequence[IterSplitExpr]) -> NoMatch:
    name = normalize_iter_map_to_expr(mark.source)
    parts = ", ".join(str(normalize_iter_map_to_expr(split.replace(scale=1))) for split in splits)
    return NoMatch(f"{name} in [0, {mark.extent}) is used as {parts or 'nothing'}, which are not independent")


class IterMapRewriter:
    """Holds the marks of one map. With `digits_first`, divisions are distributed over terms before terms are fused.

    With `whole_digits`, a remainder takes all values below its divisor, by padding, also of what stays below it anyway:
    that is what a layout of blocks means, the last of which may be the first. With `may_overlap`, `i * 7 + j` with j in
    [0, 8) is a mark, too: it takes all values up to the largest one, some of them more than once.
    """

    def __init__(
        self,
        input_iters: Mapping[Var, Range],
        dtype: Any,
        *,
        may_pad: bool,
        whole_digits: bool = False,
        keep_trivial: bool = False,
        digits_first: bool = True,
        may_overlap: bool = False,
    ):
        self.sizes = Sizes(dtype)
        self.may_pad, self.whole_digits, self.digits_first = may_pad, whole_digits, digits_first
        self.may_overlap = may_overlap
        self.constraints: list[Constraint] = []
        self.padded: dict[int, Padding] = {}
        self.inputs: list[IterMark] = []
        self.variables: dict[Var, IterSumExpr] = {}
        self._marks: dict[Any, IterMark] = {}
        self._multiples: dict[Any, PrimExpr] = {}
        """What the padded extents must be multiples of, by origin and left padding."""
        for var, domain in input_iters.items():
            self.variables[var] = self._input(var, domain, keep_trivial)

    def _input(self, var: Var, domain: Range, keep_trivial: bool) -> IterSumExpr:
        sizes = self.sizes
        low, extent = sizes.simplified(sizes.of(domain.min)), sizes.simplified(sizes.of(domain.extent))
        assume_positive(extent, sizes.analyzer)
        if is_number(extent, 1) and not keep_trivial:
            return self.sum((), low)
        mark = IterMark(ops.subtract(sizes.of(var), low), extent)
        self.inputs.append(mark)
        return self.sum([self.whole(mark)], low)

    # -- parts of sums --

    def sum(self, args: Iterable[IterSplitExpr], base: PrimExpr) -> IterSumExpr:
        """A sum whose base is simple."""
        return IterSumExpr(tuple(args), self.sizes.simplified(base))

    def whole(self, mark: IterMark) -> IterSplitExpr:
        """All digits of a mark."""
        return IterSplitExpr(mark, self.sizes.one, mark.extent, self.sizes.one)

    def mark_of(self, args: Sequence[IterSplitExpr], base: PrimExpr, extent: PrimExpr) -> IterMark:
        """The mark of a sum; the same one for the same sum."""
        key = self.sizes.key
        content = (tuple((self._key(a), key(a.scale)) for a in args), key(base), key(extent))
        found = self._marks.get(content)
        if found is None:
            found = self._marks[content] = IterMark(IterSumExpr(tuple(args), base), extent)
        return found

    def _key(self, split: IterSplitExpr) -> Any:
        """A key that is equal for splits that differ in scale only."""
        return id(split.source), self.sizes.key(split.lower_factor), self.sizes.key(split.extent)

    def add(self, a: IterSumExpr, b: IterSumExpr, factor: PrimExpr | None = None) -> IterSumExpr:
        """a + b * factor; equal digits are added up."""
        if factor is not None:
            b = self.scaled(b, factor)
        terms = {self._key(arg): arg for arg in a.args}
        for arg in b.args:
            key = self._key(arg)
            found = terms.get(key)
            if found is None:
                terms[key] = arg
                continue
            scale = self.sizes.plus(found.scale, arg.scale)
            if is_number(scale, 0):
                del terms[key]
            else:
                terms[key] = found.replace(scale=scale)
        return IterSumExpr(tuple(terms.values()), self.sizes.plus(a.base, b.base))

    def scaled(self, total: IterSumExpr, factor: PrimExpr) -> IterSumExpr:
        """total * factor"""
        times = self.sizes.times
        if is_number(factor, 1):
            return total
        if is_number(factor, 0):
            return self.sum((), factor)
        return IterSumExpr(
            tuple(arg.replace(scale=times(arg.scale, factor)) for arg in total.args), times(total.base, factor)
        )

    # -- from expressions to sums --

    def visit(self, expr: Any) -> IterSumExpr:
        """An index expression as a sum; raises `NoMatch` if it has another form."""
        if isinstance(expr, Var):
            found = self.variables.get(expr)
            return self.sum((), self.sizes.of(expr)) if found is None else found
        kind: type[e.PrimExpr] = expr.__class__
        if kind in (e.Add, e.Sub):
            factor = self.sizes.of(-1) if kind is e.Sub else None
            return self.add(self.visit(expr.a), self.visit(expr.b), factor)
        if kind is e.Mul:
            a, b = self.visit(expr.a), self.visit(expr.b)
            if a.args and b.args:
                raise NoMatch(f"the product {expr} has iterators on both sides")
            # Factors of sizes stay in their order, in which they may be known to be positive.
            return self.scaled(b, a.base) if b.args else self.scaled(a, b.base)
        if kind in (e.FloorDiv, e.FloorMod):
            return self._division(expr)
        if kind is e.Cast and expr.value.dtype.is_int and expr.dtype.is_int:
            if expr.dtype.bits >= expr.value.dtype.bits and expr.dtype.code == "int":
                return self.visit(expr.value)
        elif isinstance(expr, e.IntImm):
            return self.sum((), self.sizes.of(expr.value))
        if not self._uses_iterators(expr):
            return self.sum((), self.sizes.of(expr))
        raise OtherOperation(f"{expr} is no sum, multiple, quotient or remainder of iterators")

    def _uses_iterators(self, expr: PrimExpr) -> bool:
        found = False

        def look(node: Any) -> None:
            nonlocal found
            found = found or (isinstance(node, Var) and node in self.variables)

        post_order_visit(expr, look)
        return found

    def _division(self, expr: Any) -> IterSumExpr:
        dividend, divisor = self.visit(expr.a), self.visit(expr.b)
        if divisor.args:
            raise NoMatch(f"{expr} divides by an iterator")
        if not dividend.args:
            return self.sum((), type(expr)(dividend.base, divisor.base))
        if not self.sizes.positive(divisor.base):
            raise NoMatch(f"the divisor of {expr} is not known to be positive")
        try:
            quotient, rest = self.divide(dividend, divisor.base)
        except NoMatch as reason:
            raise NoMatch(f"{expr}: {reason}") from None
        return quotient if type(expr) is e.FloorDiv else rest

    # -- division --

    def divide(self, total: IterSumExpr, divisor: PrimExpr) -> tuple[IterSumExpr, IterSumExpr]:
        """Quotient and remainder of a sum."""
        nothing = IterSumExpr((), self.sizes.zero)
        if is_number(divisor, 1):
            return total, nothing
        if self._stays_below(total, divisor):
            return nothing, total
        if not self.digits_first:
            fused = self.fuse(total)
            if fused is not None and len(fused.args) == 1 and self.sizes.divides(fused.args[0].scale, divisor):
                return self._divide_fused(fused, divisor)
        high, rest = self._separate(total, divisor)
        if rest.args and not self._stays_below(rest, divisor):
            quotient, rest = self._divide_rest(rest, divisor)
            high = self.add(high, quotient)
        elif not rest.args and not is_number(rest.base, 0):
            base = rest.base
            high = self.add(high, self.sum((), ops.floordiv(base, divisor)))
            rest = self.sum((), ops.floormod(base, divisor))
        return high, rest

    def _stays_below(self, total: IterSumExpr, divisor: PrimExpr) -> bool:
        """Whether the sum is its own remainder."""
        if not self._below(total, divisor):
            return False
        gap = self.whole_digits and total.args and self._below(total, self.sizes.minus(divisor, self.sizes.one))
        return not gap

    def _below(self, total: IterSumExpr, limit: PrimExpr) -> bool:
        """Whether the sum is known to lie in [0, limit)."""
        sizes = self.sizes
        low = high = total.base
        for arg in total.args:
            reach = sizes.times(arg.scale, sizes.minus(arg.extent, sizes.one))
            if sizes.positive(arg.scale):
                high = sizes.plus(high, reach)
            elif sizes.negative(arg.scale):
                low = sizes.plus(low, reach)
            else:
                return False
        return sizes.at_most(sizes.zero, low) and sizes.at_most(sizes.plus(high, sizes.one), limit)

    def _separate(self, total: IterSumExpr, divisor: PrimExpr) -> tuple[IterSumExpr, IterSumExpr]:
        """(q, r) with total == q * divisor + r, where q has the terms that the divisor divides."""
        sizes = self.sizes
        high: list[IterSplitExpr] = []
        rest: list[IterSplitExpr] = []
        for arg in total.args:
            if sizes.divides(divisor, arg.scale):
                high.append(arg.replace(scale=sizes.quotient(arg.scale, divisor)))
            else:
                rest.append(arg)
        base = sizes.divided(total.base, divisor) or (sizes.zero, total.base)
        return IterSumExpr(tuple(high), base[0]), IterSumExpr(tuple(rest), base[1])

    def _divide_rest(self, rest: IterSumExpr, divisor: PrimExpr) -> tuple[IterSumExpr, IterSumExpr]:
        """Quotient and remainder of a sum without terms that the divisor divides."""
        sizes = self.sizes
        for factor in (arg.scale for arg in rest.args):
            if is_number(factor, 1) or not sizes.positive(factor) or not sizes.divides(factor, divisor):
                continue
            high, low = self._separate(rest, factor)
            if low.args and self._below(low, factor):
                # (f * high + low) // (f * d) = high // d, where 0 <= low < f; the remainder is f * (high % d) + low.
                quotient, remainder = self.divide(high, sizes.quotient(divisor, factor))
                return quotient, self.add(low, remainder, factor)
        fused = self.fuse(rest)
        if fused is None:
            raise NoMatch("the terms are no neighbouring digits")
        return self._divide_fused(fused, divisor)

    def _divide_fused(self, total: IterSumExpr, divisor: PrimExpr) -> tuple[IterSumExpr, IterSumExpr]:
        """Quotient and remainder of one split, times a scale that divides the divisor, plus a base."""
        sizes = self.sizes
        (split,) = total.args
        scale = split.scale
        if not sizes.positive(scale) or not sizes.divides(scale, divisor):
            raise NoMatch(f"the scale {scale} does not divide {divisor}")
        divisor = sizes.quotient(divisor, scale)
        base = sizes.divided(total.base, scale)
        if base is None:
            raise NoMatch(f"the remainder of {total.base} by {scale} is not known")
        split, (offset, rest) = split.replace(scale=sizes.one), base
        if is_number(divisor, 1):
            return IterSumExpr((split,), offset), self.sum((), rest)
        high, low, carry = self._divide_split(split, offset, divisor)
        return IterSumExpr((high,), carry), IterSumExpr((low.replace(scale=scale),), rest)

    def _divide_split(
        self, split: IterSplitExpr, offset: PrimExpr, divisor: PrimExpr
    ) -> tuple[IterSplitExpr, IterSplitExpr, PrimExpr]:
        """(high, low, carry) with `split + offset == (high + carry) * divisor + low`; the split has the scale 1."""
        sizes = self.sizes
        mark, lower = split.source, split.lower_factor
        if sizes.equal(sizes.times(lower, split.extent), mark.extent):
            # For the highest digits the mark itself is padded, so that its other digits are consistent.
            origin, left, needed = self.whole(mark), sizes.times(offset, lower), sizes.times(divisor, lower)
            known = self.padded.get(id(mark))
            if known is not None:
                origin, left = known.origin, sizes.plus(known.left, left)
        else:
            origin, left, needed, lower = split, offset, divisor, sizes.one
        rest = sizes.remainder(left, needed)
        padded = self._common_left(origin, rest, needed)
        carry = sizes.quotient(sizes.minus(left, padded), needed)
        place = (self._key(origin), sizes.key(padded))
        if place in self._multiples or not is_number(padded, 0) or not sizes.divides(needed, origin.extent):
            padding = self._pad(place, origin, padded, needed)
            mark, extent = padding.mark, sizes.quotient(padding.mark.extent, lower)
        else:
            lower, extent = split.lower_factor, split.extent
        high = IterSplitExpr(mark, sizes.times(lower, divisor), sizes.quotient(extent, divisor), sizes.one)
        return high, IterSplitExpr(mark, lower, divisor, sizes.one), carry

    def _common_left(self, origin: IterSplitExpr, left: PrimExpr, divisor: PrimExpr) -> PrimExpr:
        """The padding before a split that a larger divisor wants, if it leaves the same remainders as `left`.

        So (i + 5) // 32 and (i + 5) % 4, which is (i + 1) % 4, are digits of one mark.
        """
        if not (isinstance(left, e.IntImm) and isinstance(divisor, e.IntImm)):
            return left
        key = self._key(origin)
        wanted = [
            p.left.value for p in self.padded.values() if isinstance(p.left, e.IntImm) and self._key(p.origin) == key
        ]
        return self.sizes.of(max([left.value, *(w for w in wanted if (w - left.value) % divisor.value == 0)]))

    def _pad(self, place: Any, origin: IterSplitExpr, left: PrimExpr, needed: PrimExpr) -> Padding:
        """The split padded by `left` before it, and after it to a multiple of all divisors needed."""
        sizes = self.sizes
        if not self.may_pad:
            raise NoMatch(f"{needed} does not divide the extent {origin.extent}, and padding is not allowed")
        multiple = sizes.common_multiple(self._multiples.get(place, sizes.one), needed)
        self._multiples[place] = multiple
        mark = self.mark_of([origin], left, sizes.rounded_up(sizes.plus(origin.extent, left), multiple))
        return self.padded.setdefault(id(mark), Padding(mark, origin, left, multiple))

    # -- fusing --

    def fuse(self, total: IterSumExpr) -> IterSumExpr | None:
        """The sum as one split, or none, and a base; None when its terms leave gaps, or overlap and may not."""
        total = self._constrained(self.join(total))
        if len(total.args) < 2:
            return total
        chain = self._chain(total.args)
        if chain is None:
            return self._overlapping(total) if self.may_overlap else None
        sizes = self.sizes
        unit, extent = chain[-1].scale, sizes.one
        for arg in chain:
            extent = sizes.times(extent, arg.extent)
        mark = self.mark_of([a.replace(scale=sizes.quotient(a.scale, unit)) for a in chain], sizes.zero, extent)
        return IterSumExpr((self.whole(mark).replace(scale=unit),), total.base)

    def _overlapping(self, total: IterSumExpr) -> IterSumExpr | None:
        """The sum as one split and a base, if each term, the least scale first, steps no further than those before it
        reach.
        """
        sizes = self.sizes
        scales = {id(arg): arg.scale.value for arg in total.args if isinstance(arg.scale, e.IntImm)}
        if len(scales) < len(total.args) or min(scales.values()) < 1:
            return None
        args = sorted(total.args, key=lambda arg: -scales[id(arg)])
        reach = sizes.one
        for arg in args[::-1]:
            if not sizes.at_most(arg.scale, reach):
                return None
            reach = sizes.plus(reach, sizes.times(arg.scale, sizes.minus(arg.extent, sizes.one)))
        return IterSumExpr((self.whole(self.mark_of(args, sizes.zero, reach)),), total.base)

    def join(self, total: IterSumExpr) -> IterSumExpr:
        """The sum with neighbouring digits of one mark joined: i // 4 * 4 + i % 4 is i."""
        sizes = self.sizes
        args = list(total.args)
        place = 0
        while place < len(args):
            high = args[place]
            for low in args:
                if (
                    low.source is high.source
                    and low is not high
                    and sizes.equal(high.lower_factor, sizes.times(low.lower_factor, low.extent))
                    and sizes.equal(high.scale, sizes.times(low.scale, low.extent))
                ):
                    args.remove(low)
                    args.remove(high)
                    args.append(low.replace(extent=sizes.times(low.extent, high.extent)))
                    place = 0
                    break
            else:
                place += 1
        return total if len(args) == len(total.args) else IterSumExpr(tuple(args), total.base)

    def _constrained(self, total: IterSumExpr) -> IterSumExpr:
        """The sum with the terms of known constraints replaced by their marks."""
        sizes = self.sizes
        for constraint in self.constraints:
            terms = {self._key(arg): arg for arg in total.args}
            last = terms.get(self._key(constraint.terms[-1]))
            if last is None:
                continue
            factor = last.scale
            for wanted in constraint.terms:
                found = terms.pop(self._key(wanted), None)
                if found is None or not sizes.equal(found.scale, sizes.times(wanted.scale, factor)):
                    break
            else:
                part = self.whole(constraint.mark).replace(scale=factor)
                base = sizes.plus(total.base, sizes.times(constraint.low, factor))
                total = IterSumExpr((*terms.values(), part), base)
        return total

    def _chain(self, args: Sequence[IterSplitExpr]) -> list[IterSplitExpr] | None:
        """The terms, the largest scale first, if the scale of each is the scale times the extent of the next."""
        sizes = self.sizes
        scales = [
            (abs(arg.scale.value), not is_number(arg.extent, 1)) for arg in args if isinstance(arg.scale, e.IntImm)
        ]
        starts = list(args)
        if scales:
            constant = [arg for arg in args if isinstance(arg.scale, e.IntImm)]
            # Of equal ones the last, here and below, since the chain is turned round: they stay in their order.
            starts = [constant[len(scales) - 1 - scales[::-1].index(min(scales))]]
        for start in starts:
            chain, left = [start], [arg for arg in args if arg is not start]
            while left:
                wanted = sizes.times(chain[-1].scale, chain[-1].extent)
                fitting = [arg for arg in left if sizes.equal(arg.scale, wanted)]
                if not fitting:
                    break
                chosen = min(fitting[::-1], key=lambda arg: not is_number(arg.extent, 1))
                chain.append(chosen)
                left = [arg for arg in left if arg is not chosen]
            if all(is_number(arg.extent, 1) for arg in left):
                return chain[::-1]
        return None

    # -- predicates --

    def constrain(self, conditions: Sequence[PrimExpr]) -> None:
        """Applies conditions on iterators as bounds of marks, those on few iterators first."""
        self.constraints = []
        for condition in sorted(conditions, key=self._iterators_in):
            if not self._iterators_in(condition):
                # It holds for all iterations or for none.
                continue
            comparisons = list(non_positive(condition))
            if not comparisons:
                raise NoMatch(f"the predicate {condition} is no bound of a sum of iterators")
            for a, b, offset in comparisons:
                try:
                    total = self.add(self.visit(a), self.visit(b), self.sizes.of(-1))
                except OtherOperation as reason:  # an index may match where there is no predicate
                    raise NoMatch(*reason.args) from None
                self._bound(total, offset, condition)

    def _iterators_in(self, condition: PrimExpr) -> int:
        found: set[Var] = set()
        post_order_visit(condition, lambda node: found.add(node) if node in self.variables else None)
        return len(found)

    def _bound(self, total: IterSumExpr, offset: int, condition: PrimExpr) -> None:
        """Applies the bound total + offset <= 0."""
        sizes = self.sizes
        total = self._constrained(self.join(total))
        chain = self._chain(total.args) if total.args else []
        if chain is None:
            raise NoMatch(f"the predicate {condition} bounds a sum whose terms are no neighbouring digits")
        if not chain:
            if isinstance(total.base, e.IntImm) and total.base.value + offset > 0:
                raise NoMatch(f"the predicate {condition} holds nowhere")
            return
        unit, extent = chain[-1].scale, sizes.one
        terms = [arg.replace(scale=sizes.quotient(arg.scale, unit)) for arg in chain]
        for arg in chain:
            extent = sizes.times(extent, arg.extent)
        # unit * value + limit <= 0
        limit = sizes.plus(total.base, sizes.of(offset))
        low, high = sizes.zero, sizes.minus(extent, sizes.one)
        if sizes.positive(unit):
            bound = sizes.quotient(sizes.minus(sizes.zero, limit), unit)
            if sizes.at_most(high, bound):
                return
            high = sizes.smaller(high, bound)
        elif sizes.negative(unit):
            count = sizes.minus(sizes.zero, unit)
            bound = sizes.quotient(sizes.plus(limit, sizes.minus(count, sizes.one)), count)
            if sizes.at_most(bound, low):
                return
            low = sizes.larger(low, bound)
        else:
            raise NoMatch(f"the sign of {unit} in the predicate {condition} is not known")
        extent = sizes.plus(sizes.minus(high, low), sizes.one)
        if not isinstance(extent, e.IntImm):
            assume_positive(extent, sizes.analyzer)
        elif extent.value <= 0:
            raise NoMatch(f"the predicate {condition} holds nowhere")
        mark = self.mark_of(terms, sizes.minus(sizes.zero, low), extent)
        self.constraints.append(Constraint(terms, low, mark, condition))

    # -- whole maps --

    def rewrite(self, indices: Sequence[PrimExpr], predicate: PrimExpr) -> list[IterSumExpr]:
        """The indices, each as one split and a base."""
        conditions = list(conjuncts(predicate))
        if any(is_number(condition, 0) for condition in conditions):
            raise NoMatch("the predicate holds nowhere")
        for _ in range(_PASSES):
            before = dict(self._multiples)
            self.constrain(conditions)
            result = [self._index(index) for index in indices]
            same_places = len(before) == len(self._multiples)
            if same_places and all(self.sizes.equal(size, self._multiples[place]) for place, size in before.items()):
                return result
        raise NoMatch("no padding serves all divisions")

    def _index(self, index: PrimExpr) -> IterSumExpr:
        result = self.fuse(self.visit(index))
        if result is None:
            raise NoMatch(f"the terms of the index {index} are no neighbouring digits: they overlap or leave gaps")
        return result

    def used_marks(self, indices: Sequence[IterSumExpr]) -> dict[int, tuple[IterMark, list[IterSplitExpr]]]:
        """All marks that indices and constraints use, each with the splits taken of it."""
        used: dict[int, tuple[IterMark, list[IterSplitExpr]]] = {}
        pending = [constraint.mark for constraint in self.constraints]

        def note(total: IterSumExpr) -> None:
            for arg in total.args:
                pending.append(arg.source)
                splits_of.setdefault(id(arg.source), []).append(arg)

        splits_of: dict[int, list[IterSplitExpr]] = {}
        for index in indices:
            note(index)
        while pending:
            mark = pending.pop()
            if id(mark) not in used:
                used[id(mark)] = (mark, splits_of.setdefault(id(mark), []))
                if isinstance(mark.source, IterSumExpr):
                    note(mark.source)
        return used

    def check(self, indices: Sequence[IterSumExpr], level: IterMapLevel) -> None:
        """Raises `NoMatch` unless the digits of each mark take all combinations of their values; for a bijective map
        also if they leave digits out, or leave padding as the only source of a combination to the caller.
        """
        if level == IterMapLevel.NoCheck:
            return
        used = self.used_marks(indices)
        if level == IterMapLevel.Bijective:
            for mark, splits in used.values():
                chain = self._independent(splits, complete=True)
                if chain is None or not self.sizes.equal(_end(self.sizes, chain), mark.extent):
                    raise _dependent(mark, splits)
            for mark in self.inputs:
                if id(mark) not in used and not is_number(mark.extent, 1):
                    raise NoMatch(f"the iterator {mark.source} in [0, {mark.extent}) is not used")
            return
        sources = [mark.source for mark, _ in used.values() if id(mark) not in self.padded]
        totals = [*indices, *(source for source in sources if isinstance(source, IterSumExpr))]
        for origin, digits in self._digits_by_origin(totals):
            if not self._surjective(origin, digits):
                raise _dependent(origin.source, [split for _, split in digits])

    def _digits_by_origin(self, totals: Iterable[IterSumExpr]) -> Iterable[tuple[IterSplitExpr, list[_Digits]]]:
        """The terms of sums by the split that, plus some offset, they are digits of, with these offsets."""
        groups: dict[Any, tuple[IterSplitExpr, list[_Digits]]] = {}

        def add(split: IterSplitExpr) -> None:
            padding = self.padded.get(id(split.source))
            if padding is None:
                origin, left = self.whole(split.source), self.sizes.zero
            else:
                origin, left = padding.origin, padding.left
            key = self._key(origin)
            if key not in groups:
                groups[key] = origin, []
                if padding is not None and key != self._key(self.whole(origin.source)):
                    add(origin)
            groups[key][1].append((left, split))

        for total in totals:
            for arg in total.args:
                add(arg)
        return groups.values()

    def _surjective(self, origin: IterSplitExpr, digits: list[_Digits]) -> bool:
        """Whether the digits, each of `origin` plus its offset, are known to take all combinations of their values.

        Adding its place value to a number changes one digit and none below, whatever the offsets are. So any sequence
        of numbers as long as the place value of the digit above all has all combinations.
        """
        sizes = self.sizes
        chain = self._independent([split for _, split in digits], complete=False)
        if chain is None:
            return False
        end = _end(sizes, chain)
        if sizes.at_most(end, origin.extent):
            return True
        # What remains is a highest digit that is cut off at both ends. There, too, it needs numbers for all below: from
        # zeros to the largest digits.
        *lower, top = chain
        below = sizes.one
        for split in lower:
            below = sizes.plus(below, sizes.times(split.lower_factor, sizes.minus(split.extent, sizes.one)))
        padding = self.padded.get(id(top.source))
        if padding is None or not all(split.source is top.source for split in chain):
            return False
        if not sizes.equal(end, padding.mark.extent):
            return False
        if not sizes.at_most(sizes.plus(padding.left, below), top.lower_factor):
            return False
        if is_number(below, 1) and sizes.divides(padding.multiple, top.lower_factor):
            return True
        behind = sizes.minus(sizes.minus(end, padding.left), origin.extent)
        return sizes.at_most(sizes.plus(behind, below), top.lower_factor)

    def _independent(self, splits: list[IterSplitExpr], complete: bool) -> list[IterSplitExpr] | None:
        """The splits, the lowest digits first, if none has digits of another; if `complete`, none lie between them."""
        sizes = self.sizes
        chain: list[IterSplitExpr] = []
        left = list(splits)
        while left:
            reached = _end(sizes, chain)
            found = next((s for s in left if sizes.equal(s.lower_factor, reached)), None)
            if found is None and not complete:
                above = [s for s in left if sizes.divides(reached, s.lower_factor)]
                # The lowest of those above: one that divides all others.
                found = next(
                    (s for s in above if all(sizes.divides(s.lower_factor, t.lower_factor) for t in above)), None
                )
            if found is None:
                return None
            left.remove(found)
            chain.append(found)
        return chain

    def padding_predicate(self, indices: Sequence[IterSumExpr]) -> PrimExpr:
        """The predicate, over the input iterators, of the padding of marks that the indices use."""
        result: PrimExpr = e.IntImm("bool", 0)
        for mark, _ in self.used_marks(indices).values():
            padding = self.padded.get(id(mark))
            if padding is not None:
                value = normalize_iter_map_to_expr(padding.origin)
                result = ops.logical_or(result, self.beyond(padding, value))
        return result

    def beyond(self, padding: Padding, value: PrimExpr) -> PrimExpr:
        """Whether a value of the padded split lies outside of the split's extent."""
        sizes, origin = self.sizes, padding.origin
        result: PrimExpr = e.IntImm("bool", 0)
        if not is_number(padding.left, 0):
            result = ops.less(value, 0)
        if not sizes.equal(sizes.plus(origin.extent, padding.left), padding.mark.extent):
            result = ops.logical_or(result, ops.greater_equal(value, origin.extent))
        return result
