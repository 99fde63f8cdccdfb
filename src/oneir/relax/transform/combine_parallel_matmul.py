"""CombineParallelMatmul: products of one tensor with several matrices become one product.

q = R.matmul(x, wq)        w = R.concat((wq, wk), axis=1)
k = R.matmul(x, wk)   ->   qk = R.split(R.matmul(x, w), [n], axis=-1)
                           q = qk[0]
                           k = qk[1]

Additions of a bias, and activations, that follow all of them alike are done once as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir.expr import IntImm, PrimExpr
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import deep_recursion
from .. import op
from ..analysis.bindings import get_var2val
from ..analysis.variables import post_order_visit
from ..dpl import DFPattern, PatternContext, is_op, rewrite_bindings, wildcard
from ..dpl.matcher import match_expr
from ..expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from ..struct_info import TensorStructInfo, same_extents
from .pass_base import FunctionPass

Check = Callable[[Var, list[Var], list[Var], dict[Var, Expr]], bool]
ACTIVATIONS = ("relax.nn.relu", "relax.nn.gelu", "relax.nn.gelu_tanh", "relax.nn.silu")


class CombineParallelMatmul(FunctionPass):
    """Combines products with a common left side whose right sides have equal batches.

    `check(lhs, rhs, bias, bindings)` returns whether to combine products: it gets the variable on the left, those on
    the right, those that are added, and the values of the block's variables. All are combined without it.
    """

    check: Check | None = None

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        check = self.check or (lambda *_: True)
        with deep_recursion:
            branches = sorted(_find_branches(func), key=lambda branch: -branch.count)
        for branch in branches:
            func = _Combiner(branch, check).rewritten(func)
        return func


@dataclass
class _Branches:
    """Products with one left side: how many, and what follows all of them."""

    count: int
    bias_ndim: int | None
    activation: str | None


def _find_branches(func: Function) -> list[_Branches]:
    """The kinds of parallel products that a function has."""
    bias, product = wildcard(), is_op("relax.matmul")(wildcard(), wildcard())
    total = is_op("relax.add")(product, bias)
    values = get_var2val(func)
    calls: list[Call] = []
    post_order_visit(func, lambda e: calls.append(e) if isinstance(e, Call) else None)

    def groups(pattern: DFPattern, activation: str | None = None) -> dict[Var, _Branches]:
        found: dict[Var, _Branches] = {}
        for call in calls:
            match = match_expr(pattern, call, values)
            multiplied: Any = None if match is None else match[product]
            left = None if match is None else multiplied.args[0]
            if match is None or not isinstance(left, Var):
                continue
            info = match[bias].struct_info if bias in match else None
            ndim = info.ndim if isinstance(info, TensorStructInfo) else None
            known = found.get(left)
            if known is None:
                found[left] = _Branches(1, ndim, activation)
                continue
            known.count += 1
            if known.bias_ndim != ndim:
                known.bias_ndim = None
        return found

    activated: dict[Var, _Branches] = {}
    for before in (total, product):
        for name in ACTIVATIONS:
            for left, branch in groups(is_op(name)(before), name).items():
                activated.setdefault(left, branch)
    added, plain = groups(total), groups(product)
    # All products with one left side are better combined than some of them with what follows.
    for followed in (added, activated):
        for left, branch in followed.items():
            if left in plain and plain[left].count == branch.count:
                plain[left] = branch
    unique = {(b.count, b.bias_ndim, b.activation): b for g in (plain, activated, added) for b in g.values()}
    return [branch for branch in unique.values() if branch.count > 1]


@dataclass
class _Part:
    """One of the products that are combined."""

    rhs: Var
    bias: Var | None
    result: Var
    width: PrimExpr
    dtype: str

    @property
    def is_static(self) -> bool:
        return isinstance(self.width, IntImm)


class _Combiner:
    """Combines parallel products of one kind."""

    def __init__(self, branches: _Branches, check: Check):
        self.branches, self.check = branches, check
        self.left = wildcard()
        self.patterns: list[tuple[DFPattern, DFPattern, DFPattern, DFPattern]] = []
        """For each branch: the right side, the product, the bias, and the result."""
        with PatternContext() as self.context:
            for _ in range(branches.count):
                rhs, bias = wildcard(), wildcard()
                product = result = is_op("relax.matmul")(self.left, rhs)
                if branches.bias_ndim is not None:
                    result = is_op("relax.add")(result, bias)
                if branches.activation is not None:
                    result = is_op(branches.activation)(result)
                self.patterns.append((rhs, product, bias, result))

    def rewritten(self, func: Function) -> Function:
        return rewrite_bindings(self.context, self._replacements, func)

    def _replacements(self, found: Mapping[DFPattern, Var], values: dict[Var, Expr]) -> dict[Var, Expr]:
        by_rank: dict[int, list[_Part]] = {}
        for rhs, product, bias, result in self.patterns:
            extents = _extents(found[rhs])
            if extents is None:
                return {}
            info = found[product].struct_info
            assert isinstance(info, TensorStructInfo)
            part = _Part(found[rhs], found.get(bias), found[result], extents[-1], info.dtype)
            by_rank.setdefault(len(extents), []).append(part)
        replaced: dict[Var, Expr] = {}
        for rank, parts in by_rank.items():
            if rank > 1 and _same_but_last([p.rhs for p in parts], 2):
                replaced.update(self._combined(found[self.left], rank, parts, values))
        return replaced

    def _combined(self, left: Var, rank: int, parts: Sequence[_Part], values: dict[Var, Expr]) -> dict[Var, Expr]:
        # A width that is not known can only be that of the last part.
        dynamic = [p for p in parts if not p.is_static]
        parts = [*(p for p in parts if p.is_static), *dynamic[:1]]
        biases = [p.bias for p in parts if p.bias is not None]
        if len(parts) < 2 or any(p.dtype != parts[0].dtype for p in parts):
            return {}
        if biases and not _same_but_last(biases, 1):
            return {}
        if not self.check(left, [p.rhs for p in parts], biases, values):
            return {}
        left_info = left.struct_info
        assert isinstance(left_info, TensorStructInfo)
        whole: Expr = op.matmul(left, op.concat(Tuple([p.rhs for p in parts]), rank - 1), parts[0].dtype)
        if biases:
            extents = _extents(biases[0])
            assert extents is not None
            whole = op.add(whole, op.concat(Tuple(biases), len(extents) - 1))
        if self.branches.activation is not None:
            activation: Any = Op.get(self.branches.activation)
            whole = Call(activation, [whole])
        cuts, end = [], 0
        for part in parts[:-1]:
            assert isinstance(part.width, IntImm)
            end += part.width.value
            cuts.append(end)
        chunks = op.split(whole, cuts, max(left_info.ndim, rank) - 1)
        return {part.result: TupleGetItem(chunks, i) for i, part in enumerate(parts)}


def _extents(var: Var) -> Sequence[PrimExpr] | None:
    info = var.struct_info
    return info.extents if isinstance(info, TensorStructInfo) else None


def _same_but_last(variables: Sequence[Var], last: int) -> bool:
    """Whether tensors have one shape but for the last dimensions."""
    shapes = [_extents(var) for var in variables]
    analyzer, first = Analyzer(), shapes[0]
    return first is not None and all(
        s is not None and len(s) == len(first) and same_extents(first[:-last], s[:-last], analyzer) for s in shapes
    )
