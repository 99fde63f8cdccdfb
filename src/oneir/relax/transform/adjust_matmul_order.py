"""AdjustMatmulOrder: of three matrices, the two go first whose product makes the whole cheaper.

R.matmul(R.matmul(a, b), x)   ->   R.matmul(a, R.matmul(b, x))     for x of few columns
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from ...arith import Analyzer
from ...ir.expr import Add, IntImm, Mul, PrimExpr, Sub
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.structural import structural_hash
from ...ir.transform import PassContext
from .. import op
from ..analysis.compile_time import computable_at_compile_time
from ..analysis.struct_info import tir_vars_in_struct_info
from ..dpl import is_op, rewrite_call, wildcard
from ..dpl.rewrite_module import Found
from ..expr import Expr, Function
from ..struct_info import TensorStructInfo, same_extent
from .pass_base import FunctionPass


class AdjustMatmulOrder(FunctionPass, opt_level=1):
    """Reorders products of three matrices, one product of which may be transposed.

    Two weights go together, so that their product is computed at compile time. Otherwise the order with provably fewer
    multiplications is taken. The attributes `tir_var_lower_bound` and `tir_var_upper_bound` of a function bound its
    symbolic variables, by name.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        known = set(computable_at_compile_time(func))
        bounds = _bounds(func)
        a, b, c = wildcard(), wildcard(), wildcard()
        matmul, permute = is_op("relax.matmul"), is_op("relax.permute_dims")
        left, right = matmul(matmul(a, b), c), matmul(a, matmul(b, c))
        left_transposed, right_transposed = permute(matmul(b, a)), permute(matmul(c, b))
        permuted_left, permuted_right = matmul(left_transposed, c), matmul(a, right_transposed)

        def rewrite(expr: Expr, found: Found) -> Expr:
            values = [found[a], found[b], found[c]]
            if all(v in known for v in values):
                return expr  # All is computed while compiling.
            shapes = [_extents(v) for v in values]
            transposed = (0, 1) if permuted_left in found else (1, 2) if permuted_right in found else ()
            if transposed and not _swaps_matrices(found[left_transposed if 0 in transposed else right_transposed]):
                return expr
            for i in transposed:
                if len(shapes[i] or ()) < 2:
                    return expr
                values[i], shapes[i] = _transposed(values[i], shapes[i])
            x, y, z = values
            if x in known and y in known:
                return op.matmul(op.matmul(x, y), z)
            if y in known and z in known:
                return op.matmul(x, op.matmul(y, z))
            costs = _Costs(shapes, left in found, bounds)
            if costs.less(costs.from_left, costs.from_right):
                return op.matmul(op.matmul(x, y), z)
            return op.matmul(x, op.matmul(y, z)) if costs.less(costs.from_right, costs.from_left) else expr

        return rewrite_call(left | right | permuted_left | permuted_right, rewrite, func)


def _extents(expr: Expr) -> Sequence[PrimExpr] | None:
    info = expr.struct_info_
    return info.extents if isinstance(info, TensorStructInfo) else None


def _swaps_matrices(call: Any) -> bool:
    """Whether a call of `permute_dims` transposes the matrices of its argument."""
    axes, info = call.attrs["axes"], call.args[0].struct_info
    order = list(range(info.ndim))
    swapped = [*order[:-2], *order[:-3:-1]]
    return (order[::-1] if axes is None else [int(i) % info.ndim for i in axes]) == swapped


def _transposed(expr: Expr, shape: Any) -> tuple[Expr, Sequence[PrimExpr]]:
    axes = list(range(len(shape)))
    swapped = [*axes[:-2], *axes[:-3:-1]]
    return op.permute_dims(expr, None if len(shape) == 2 else swapped), (*shape[:-2], shape[-1], shape[-2])


# -- how many multiplications an order takes --

Polynomial = Mapping[tuple[int, ...], int]
"""Coefficients by monomial: the unknowns in it, each as often as it is a factor."""


def _bounds(func: Function) -> dict[str, tuple[int, int | None]]:
    """The least and the largest value of symbolic variables, as far as attributes of a function say them."""
    lower, upper = (func.attrs.get(f"tir_var_{which}_bound") or {} for which in ("lower", "upper"))
    names = {var.name for var in tir_vars_in_struct_info(func.struct_info_)}
    return {
        name: (int(lower.get(name, 0)), int(upper[name]) - 1 if name in upper else None)
        for name in names & {*lower, *upper}
    }


class _Costs:
    """The multiplications of (a b) c and of a (b c); None where the shapes do not say."""

    def __init__(
        self,
        shapes: Sequence[Sequence[PrimExpr] | None],
        on_left: bool,
        bounds: Mapping[str, tuple[int, int | None]],
    ):
        self.bounds = bounds
        self.unknowns: list[PrimExpr] = []
        self.places: dict[Any, int] = {}
        self.positive: set[int] = set()
        self.from_left: Polynomial | None = None
        self.from_right: Polynomial | None = None
        if any(not shape for shape in shapes):
            return
        one = IntImm("int64", 1)
        a, b, c = ((one, s[0]) if i == 0 and len(s) == 1 else tuple(s) for i, s in enumerate(shapes) if s)
        if len(b) == 1:
            b = (b[0], one) if on_left else (one, b[0])
        if len(c) == 1:
            c = (c[0], one)
        both, right = _broadcast(a[:-2], b[:-2]), _broadcast(b[:-2], c[:-2])
        whole = None if both is None or right is None else _broadcast(both, c[:-2])
        if both is None or right is None or whole is None:
            return
        rows, inner, outer, columns = a[-2], a[-1], c[-2], c[-1]
        for extent in (*whole, *both, *right, rows, inner, outer, columns):
            if not isinstance(extent, (IntImm, Add, Sub, Mul)):
                self.positive.add(self._place(extent))
        self.from_left = self._sum([*both, rows, inner, outer], [*whole, rows, outer, columns])
        self.from_right = self._sum([*right, inner, outer, columns], [*whole, rows, inner, columns])

    def _sum(self, *terms: Sequence[PrimExpr]) -> Polynomial:
        total: dict[tuple[int, ...], int] = {}
        for factors in terms:
            term: Polynomial = {(): 1}
            for factor in factors:
                term = _times(term, self._polynomial(factor))
            total = _plus(total, term)
        return total

    def _polynomial(self, extent: PrimExpr) -> Polynomial:
        if isinstance(extent, IntImm):
            return {(): extent.value}
        if isinstance(extent, (Add, Sub)):
            sign = 1 if isinstance(extent, Add) else -1
            return _plus(self._polynomial(extent.a), self._polynomial(extent.b), sign)
        if isinstance(extent, Mul):
            return _times(self._polynomial(extent.a), self._polynomial(extent.b))
        return {(self._place(extent),): 1}

    def _place(self, extent: PrimExpr) -> int:
        key = extent if isinstance(extent, TirVar) else structural_hash(extent)
        if key not in self.places:
            self.places[key] = len(self.unknowns)
            self.unknowns.append(extent)
        return self.places[key]

    def _range(self, place: int) -> tuple[int, int | None]:
        """The least and the largest value of an unknown; no extent is 0."""
        unknown = self.unknowns[place]
        least, most = self.bounds.get(unknown.name, (0, None)) if isinstance(unknown, TirVar) else (0, None)
        return max(least, int(place in self.positive)), most

    def less(self, a: Polynomial | None, b: Polynomial | None) -> bool:
        """Whether one number is smaller than another, whatever the unknowns are."""
        if a is None or b is None:
            return False
        difference = _plus(b, a, -1)
        ranges = {place: self._range(place) for monomial in difference for place in monomial}
        # What is of first degree is least at one of its ends.
        ends = [p for p, (_, most) in ranges.items() if most is not None and all(m.count(p) < 2 for m in difference)]
        for chosen in product(*[ranges[p] for p in ends[:8]]):
            rest = difference
            for place, value in zip(ends, chosen, strict=False):
                rest = _substituted(rest, place, {(): value or 0})
            for place in {p for monomial in rest for p in monomial}:
                rest = _substituted(rest, place, {(): ranges[place][0], (place,): 1})
            if rest.get((), 0) <= 0 or any(coefficient < 0 for coefficient in rest.values()):
                return False
        return True


def _plus(a: Polynomial, b: Polynomial, sign: int = 1) -> dict[tuple[int, ...], int]:
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def _times(a: Polynomial, b: Polynomial) -> dict[tuple[int, ...], int]:
    total: dict[tuple[int, ...], int] = {}
    for (m, c), (n, d) in product(a.items(), b.items()):
        key = tuple(sorted(m + n))
        total[key] = total.get(key, 0) + c * d
    return total


def _substituted(a: Polynomial, place: int, value: Polynomial) -> dict[tuple[int, ...], int]:
    """A polynomial with another one as one of its unknowns."""
    total: dict[tuple[int, ...], int] = {}
    for monomial, coefficient in a.items():
        term: Polynomial = {tuple(p for p in monomial if p != place): coefficient}
        for _ in range(monomial.count(place)):
            term = _times(term, value)
        total = _plus(total, term)
    return total


def _broadcast(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> list[PrimExpr] | None:
    """Two shapes broadcast against each other; None where it is not known what that gives."""
    analyzer, result = Analyzer(), []
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    offset = len(longer) - len(shorter)
    for i, extent in enumerate(longer):
        other = shorter[i - offset] if i >= offset else extent
        if same_extent(extent, other, analyzer) or _is_one(other):
            result.append(extent)
        elif _is_one(extent):
            result.append(other)
        else:
            return None
    return result


def _is_one(extent: PrimExpr) -> bool:
    return isinstance(extent, IntImm) and extent.value == 1
