"""DecomposeEinsum: sums of products by Einstein's convention become products of two tensors, and these `R.matmul`.

    scores = R.einsum((q, k), "bihd,bjhd->bhij")
->
    scores = R.matmul(R.permute_dims(q, [0, 2, 1, 3]), R.permute_dims(k, [0, 2, 3, 1]))

So passes that look for products of matrices find them, such as those that attention is made of. Of more than two
tensors, one loop over all letters would take as many steps as their extents multiplied; of two at a time it takes few.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...arith import Analyzer
from ...ir.expr import PrimExpr, as_int
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...topi.einsum import ELLIPSIS, parse_subscripts
from ..expr import Call, Expr, Function
from ..expr_functor import PyExprMutator
from ..op.linear_algebra import einsum, matmul
from ..op.manipulate import permute_dims, tuple_fields
from ..struct_info import TensorStructInfo
from .pass_base import FunctionPass

Labels: TypeAlias = list[str]
"""The subscripts of a tensor, one for each dimension."""
Part: TypeAlias = tuple[Expr, Labels]


class DecomposeEinsum(FunctionPass):
    """Makes `R.einsum` products of two tensors each, and these `R.matmul` if one axis of each and one sum remain.

    Tensors of unknown shape, those with a letter twice, and extents that are broadcast stay as they are.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return func if func.attrs.get("Primitive") else _Decomposer(mod).visit_expr(func)


class _Decomposer(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        if op.op is not einsum.op:
            return super().visit_call_(op)
        call = self.visit_expr_post_order(op)
        assert isinstance(call, Call)
        operands = tuple_fields(self.builder_, call.args[0])
        labelled = _labelled(operands, call.attrs["subscripts"])
        if labelled is None or len(operands) < 2:
            return call
        labels, result, extents = labelled
        path, parts = _path(labels, result, extents), list(zip(operands, labels, strict=True))
        for chosen in path:
            factors = [parts[i] for i in chosen]
            parts = [part for i, part in enumerate(parts) if i not in chosen]
            kept = _labels_after(factors, parts, result) if parts else result
            product = self._product_of_matrices(factors, kept)
            if product is None and len(path) == 1:
                return call
            product = product or _written(factors, kept)
            parts.append((self.builder_.emit(product) if parts else product, kept))
        return parts[0][0]

    def _product_of_matrices(self, factors: Sequence[Part], result: Labels) -> Expr | None:
        """The sum of products as `R.matmul`; None unless one axis of each factor, and one sum, are left of it."""
        if len(factors) != 2:
            return None
        (a, of_a), (b, of_b) = factors[0], factors[1]
        batch = [label for label in result if label in of_a and label in of_b]
        outer = [label for label in result if label not in batch]
        summed = [label for label in of_a if label not in result]
        if len(outer) != 2 or len(summed) != 1:
            return None
        if outer[0] in of_b:
            (a, of_a), (b, of_b) = (b, of_b), (a, of_a)
        rows, columns = [*batch, outer[0], *summed], [*batch, *summed, outer[1]]
        if sorted(rows) != sorted(of_a) or sorted(columns) != sorted(of_b):
            return None
        product = matmul(self._transposed(a, of_a, rows), self._transposed(b, of_b, columns))
        order = [*batch, *outer]
        return product if order == result else _transposed(self.builder_.emit(product), order, result)

    def _transposed(self, tensor: Expr, labels: Labels, order: Labels) -> Expr:
        return tensor if labels == order else self.builder_.emit(_transposed(tensor, labels, order))


def _transposed(tensor: Expr, labels: Labels, order: Labels) -> Call:
    return permute_dims(tensor, [labels.index(label) for label in order])


def _written(factors: Sequence[Part], result: Labels) -> Call:
    """The sum of products as `R.einsum`."""
    letters = dict(
        zip(dict.fromkeys(label for _, part in factors for label in part), string.ascii_letters, strict=False)
    )
    *texts, last = ("".join(letters[label] for label in part) for part in (*(part for _, part in factors), result))
    return einsum([tensor for tensor, _ in factors], f"{','.join(texts)}->{last}")


def _labels_after(factors: Sequence[Part], others: Sequence[Part], result: Labels) -> Labels:
    """The labels of a product that other tensors or the result have; first come those of batches."""
    wanted = {label for _, labels in others for label in labels}.union(result)
    kept = [label for label in dict.fromkeys(label for _, labels in factors for label in labels) if label in wanted]
    return sorted(kept, key=lambda label: not all(label in labels for _, labels in factors))


def _labelled(operands: Sequence[Expr], subscripts: str) -> tuple[list[Labels], Labels, dict[str, PrimExpr]] | None:
    """A label for each dimension of the tensors and of the result, and the extents; None for what stays as it is."""
    labels, result = parse_subscripts(subscripts)
    extents: dict[str, PrimExpr] = {}
    analyzer, hidden = Analyzer(), set[int]()
    for position, operand in enumerate(operands):
        info = operand.struct_info
        if not isinstance(info, TensorStructInfo) or info.extents is None:
            return None
        if ELLIPSIS in labels[position]:
            hidden.add(info.ndim - len(labels[position]) + 1)
            labels[position] = _without_ellipsis(labels[position], info.ndim - len(labels[position]) + 1)
        for label, extent in zip(labels[position], info.extents, strict=True):
            if not analyzer.can_prove_equal(extents.setdefault(label, extent), extent):
                return None
    if len(hidden) > 1 or any(len(set(part)) < len(part) for part in labels):
        return None
    return labels, _without_ellipsis(result, max(hidden, default=0)), extents


def _without_ellipsis(labels: Labels, count: int) -> Labels:
    """The labels with others, which no letter is, for the dimensions that an ellipsis stands for."""
    if ELLIPSIS not in labels:
        return labels
    at = labels.index(ELLIPSIS)
    return [*labels[:at], *map(str, range(count)), *labels[at + 1 :]]


def _path(labels: list[Labels], result: Labels, extents: dict[str, PrimExpr]) -> list[Sequence[int]]:
    """Which tensors are multiplied in each step, by their positions; the product is then the last of those left."""
    count, known = len(labels), {label: n for label, extent in extents.items() if (n := as_int(extent)) is not None}
    if count == 2 or len(known) < len(extents):
        return [(0, 1), *((0, left - 1) for left in range(count - 1, 1, -1))]
    numbers = {label: number for number, label in enumerate(extents)}
    arguments: list[Any] = []
    for part in labels:
        shape = [known[label] for label in part]
        arguments += [np.broadcast_to(np.float32(0), shape), [numbers[label] for label in part]]
    return np.einsum_path(*arguments, [numbers[label] for label in result], optimize="greedy")[0][1:]
