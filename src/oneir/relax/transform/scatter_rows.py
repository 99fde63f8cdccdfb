"""ScatterRows: elements that are scattered along an axis, all of a slice to one place, are scattered as slices.

    places = R.broadcast_to(index, (k, 64))                     places = R.reshape(index, (k, 1))
    R.scatter_elements(nodes, places, messages,          ->     R.scatter_nd(nodes, places, messages, reduction="add")
                       axis=0, reduction="add")

Along another axis than the first, a place is the number of the slice's outer axes, and its index.

So graph networks add up what nodes receive: `index_add` and `scatter_add` of PyTorch, whose index is the same for all
features of a node. A slice is as many neighbouring elements, which vectors compute, and one place is read for it.
"""

from __future__ import annotations

import math

from ...arith import Analyzer
from ...ir.expr import PrimExpr, as_int
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..expr import Call, Expr, Function, PrimValue, ShapeExpr, Var
from ..expr_functor import PyExprMutator
from ..op.create import arange
from ..op.datatype import astype
from ..op.gather import extents_of
from ..op.manipulate import broadcast_to, concat, reshape
from ..op.scatter import REDUCTIONS_OF_ND, scatter_elements, scatter_nd
from .pass_base import FunctionPass


class ScatterRows(FunctionPass):
    """Makes `R.scatter_elements` whose indices are broadcast along all other axes `R.scatter_nd`.

    Along the last axis, where slices are no neighbouring elements, they stay as they are.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return func if func.attrs.get("Primitive") else _Scatter(mod).visit_expr(func)


class _Scatter(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if op.op is not scatter_elements.op or not isinstance(call, Call):
            return call
        data, indices, updates = call.args
        axis, reduction = call.attrs["axis"], call.attrs["reduction"]
        extents, places = extents_of(data), self.places(indices, axis)
        if extents is None or places is None or reduction not in REDUCTIONS_OF_ND or extents_of(updates) is None:
            return call
        axis %= len(extents)
        whole, analyzer = extents_of(indices), Analyzer()
        if whole is None or (axis == len(extents) - 1 and axis > 0):
            return call
        others = [pair for i, pair in enumerate(zip(whole, extents, strict=True)) if i != axis]
        if not all(analyzer.can_prove_equal(part, all_of) for part, all_of in others):
            return call
        if axis == 0:
            rows = self.builder_.emit(reshape(places, ShapeExpr([whole[axis], 1])))
            return scatter_nd(data, rows, updates, reduction=reduction)
        outer, own = math.prod(extents[1:axis], start=extents[0]), extents[axis + 1 :]
        rows = self.rows_of(outer, places, whole[axis])
        if axis == 1:
            return scatter_nd(data, rows, updates, reduction=reduction)
        flat = self.builder_.emit(reshape(data, ShapeExpr([outer, extents[axis], *own])))
        new = self.builder_.emit(reshape(updates, ShapeExpr([outer, whole[axis], *own])))
        found = self.builder_.emit(scatter_nd(flat, rows, new, reduction=reduction))
        return reshape(found, ShapeExpr(extents))

    def rows_of(self, outer: PrimExpr, places: Expr, count: PrimExpr) -> Expr:
        """The pairs of each number below `outer` and each place, of which there are `count`."""
        shape = ShapeExpr([outer, count, 1])
        numbers = self.builder_.emit(reshape(arange(PrimValue(outer)), ShapeExpr([outer, 1, 1])))
        indices = self.builder_.emit(reshape(places, ShapeExpr([1, count, 1])))
        if indices.struct_info.dtype != "int64":
            indices = self.builder_.emit(astype(indices, "int64"))
        pairs = [self.builder_.emit(broadcast_to(each, shape)) for each in (numbers, indices)]
        return self.builder_.emit(concat(pairs, 2))

    def places(self, indices: Expr, axis: int) -> Expr | None:
        """The indices with one number for each slice; None if they have more."""
        value = self.lookup_binding(indices) if isinstance(indices, Var) else indices
        if not isinstance(value, Call) or value.op is not broadcast_to.op:
            return None
        small, large = extents_of(value.args[0]), extents_of(value)
        if small is None or large is None:
            return None
        axis %= len(large)
        kept = axis - (len(large) - len(small))
        if kept < 0 or any(as_int(extent) != 1 for i, extent in enumerate(small) if i != kept):
            return None
        return value.args[0] if Analyzer().can_prove_equal(small[kept], large[axis]) else None
