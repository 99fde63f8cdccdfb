"""ForceNarrowIndexToInt32, NarrowDataType: index arithmetic in int32.

for i in range(T.int64(8)):                        for i in range(8):
    A[i * T.int64(4)] = B[i]             ->            A[i * 4] = B[i]

A loop variable and the expressions of an index become int32; an int64 that comes from memory or from a call is
converted where an index uses it, and an index is converted back where its value is needed as int64.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import map_array
from ...ir.dtype import INT32, INT64
from ...ir.expr import BinaryOpExpr, Broadcast, Call, Cast, CmpExpr, IntImm, PrimExpr, Ramp, Range, Select, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, post_order_visit
from ...runtime.error import InvalidValue
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Allocate, Block, BlockRealize, BufferStore, For
from .analyzed import analyzer_for
from .pass_base import PrimFuncPass


class ForceNarrowIndexToInt32(PrimFuncPass):
    """Brings index arithmetic to int32, whether or not it is known to fit.

    Raises `InvalidValue` for a parameter with an extent of 2^31 or more.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        for buffer in func.buffer_map.values():
            for size in buffer.shape:
                if isinstance(size, IntImm) and size.value >= 1 << 31:
                    raise InvalidValue(f"buffer `{buffer.name}` has a size of {size.value}, which int32 cannot index")
        return func.with_body(_Narrow(None)(func.body))


class NarrowDataType(PrimFuncPass):
    """Brings index arithmetic to int32 where constant bounds show that it fits; with `target_bits` 64, nothing.

    Raises `InvalidValue` for another number of bits.
    """

    target_bits: int = 32

    def __post_init__(self) -> None:
        if self.target_bits not in (32, 64):
            raise InvalidValue(f"NarrowDataType narrows to 32 or 64 bits, found {self.target_bits}")

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Narrow(analyzer_for(func))(func.body)) if self.target_bits == 32 else func


_THREAD_ALLREDUCE = Op.get("tir.tvm_thread_allreduce")


class _Narrow(Mapper):
    """`visit` keeps an expression's dtype; `narrow` gives an int64 index as int32."""

    def __init__(self, analyzer: Analyzer | None):
        super().__init__()
        self.analyzer = analyzer
        self.narrowed: dict[Var, Var] = {}

    def define(self, var: Var, extent: PrimExpr | None = None) -> Var:
        """The int32 variable for an int64 one; with an analyzer, only where its values are known to fit."""
        if var.dtype is not INT64 or var in self.narrowed or not self.fits(extent):
            return self.narrowed.get(var, var)
        new = self.narrowed[var] = var.copy_with_dtype(INT32)
        return new

    def fits(self, value: PrimExpr | None) -> bool:
        if self.analyzer is None or value is None:
            return True
        bound = self.analyzer.const_int_bound(value)
        return bound.max_value < 1 << 31 and bound.min_value >= -(1 << 31)

    def narrow(self, expr: PrimExpr) -> PrimExpr:
        if expr.dtype.element is not INT64:
            return self.visit(expr)
        if isinstance(expr, IntImm):
            return IntImm(INT32, expr.value) if -(1 << 31) <= expr.value < 1 << 31 else expr
        if isinstance(expr, Var):
            return self.narrowed[expr] if expr in self.narrowed else self.converted(expr)
        if isinstance(expr, BinaryOpExpr) and self.fits_each(expr):
            a, b = self.narrow(expr.a), self.narrow(expr.b)
            return self.converted(expr) if a.dtype is not b.dtype else self.rebuilt(expr, a, b)
        if isinstance(expr, Select):
            return Select(self.visit(expr.condition), self.narrow(expr.true_value), self.narrow(expr.false_value))
        if isinstance(expr, Ramp):
            return Ramp(self.narrow(expr.base), self.narrow(expr.stride), expr.lanes)
        if isinstance(expr, Broadcast):
            return Broadcast(self.narrow(expr.value), expr.lanes)
        if isinstance(expr, Cast) and expr.value.dtype.element is INT32:
            return self.visit(expr.value)
        return self.converted(expr)

    def fits_each(self, expr: BinaryOpExpr) -> bool:
        return not expr.dtype.is_scalar or self.fits(expr)

    def rebuilt(self, expr: BinaryOpExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return expr if a is expr.a and b is expr.b else type(expr)(a, b)

    def converted(self, expr: PrimExpr) -> PrimExpr:
        """An int64 value as int32; what may not fit stays int64."""
        if self.analyzer is not None:
            return self.visit(expr)
        return ops.cast(INT32.with_lanes(expr.dtype.lanes, expr.dtype.scalable), self.visit(expr))

    def visit_Var(self, var: Var) -> Any:
        new = self.narrowed.get(var)
        return var if new is None else Cast(INT64, new)

    def visit_Call(self, node: Call) -> Any:
        new = self.generic_visit(node)
        if node.op is _THREAD_ALLREDUCE:  # which names the variables of threads, of any dtype
            args = [
                self.narrowed.get(old, arg) if isinstance(old, Var) else arg
                for old, arg in zip(node.args, new.args, strict=True)
            ]
            return new.replace(args=args)
        return new

    def visit_CmpExpr(self, node: CmpExpr) -> Any:
        if node.a.dtype.element is INT64 and self.uses_narrowed(node):
            a, b = self.narrow(node.a), self.narrow(node.b)
            if a.dtype is b.dtype:
                return type(node)(a, b, span=node.span)
        return self.generic_visit(node)

    def uses_narrowed(self, node: PrimExpr) -> bool:
        """Whether variables that became int32, and constants, are all that an expression consists of."""
        only = True

        def check(n: Any) -> None:
            nonlocal only
            only = only and (n in self.narrowed if isinstance(n, Var) else isinstance(n, (BinaryOpExpr, IntImm)))

        post_order_visit(node, check)
        return only

    def visit_Buffer(self, buffer: Buffer) -> Any:
        return buffer

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        predicate = None if node.predicate is None else self.visit(node.predicate)
        return node.replace(indices=self.narrow_all(node.indices), predicate=predicate)

    def narrow_all(self, exprs: Any) -> Any:
        return map_array(exprs, lambda e: self.narrow(e) if e.dtype.element is INT64 else self.visit(e))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        predicate = None if node.predicate is None else self.visit(node.predicate)
        indices = self.narrow_all(node.indices)
        return node.replace(indices=indices, value=self.visit(node.value), predicate=predicate)

    def visit_For(self, node: For) -> Any:
        self.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
        var = self.define(node.loop_var, ops.add(node.min, node.extent))
        if var is node.loop_var:
            return self.generic_visit(node)
        low, extent = self.narrow(node.min), self.narrow(node.extent)
        thread = None if node.thread_binding is None else self.visit(node.thread_binding)
        return node.replace(loop_var=var, min=low, extent=extent, thread_binding=thread, body=self.visit(node.body))

    def bind(self, var: Var, domain: Range | None) -> None:
        if self.analyzer is not None and domain is not None and var.dtype.is_index:
            self.analyzer.bind(var, domain, allow_override=True)

    def visit_IterVar(self, node: IterVar) -> Any:
        found = self._mapped.get(id(node))
        if found is None:
            new = node
            self.bind(node.var, node.dom)
            var = self.define(node.var, None if node.dom is None else ops.add(node.dom.min, node.dom.extent))
            if var is not node.var and node.dom is not None:
                dom = Range.from_min_extent(self.narrow(node.dom.min), self.narrow(node.dom.extent))
                new = node.replace(dom=dom, var=var)
            elif var is not node.var:
                new = node.replace(var=var)
            found = self._mapped[id(node)] = (node, new)
        return found[1]

    def visit_Range(self, node: Range) -> Any:
        low, extent = self.narrow(node.min), self.narrow(node.extent)
        if low is node.min and extent is node.extent:
            return node
        if low.dtype is not extent.dtype:
            return self.generic_visit(node)
        return Range.from_min_extent(low, extent)

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        for iter_var in node.block.iter_vars:
            self.visit(iter_var)
        values: list[PrimExpr] = []
        for iter_var, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            is_narrow = self.visit(iter_var).var.dtype is INT32 and iter_var.var.dtype is INT64
            values.append(self.narrow(value) if is_narrow else self.visit(value))
        if all(a is b for a, b in zip(values, node.iter_values, strict=True)):
            return node.replace(predicate=self.visit(node.predicate), block=self.visit(node.block))
        return node.replace(iter_values=values, predicate=self.visit(node.predicate), block=self.visit(node.block))

    def visit_Block(self, node: Block) -> Any:
        return self.generic_visit(node.replace(iter_vars=map_array(node.iter_vars, self.visit)))

    def visit_Allocate(self, node: Allocate) -> Any:
        return node.replace(extents=self.narrow_all(node.extents), body=self.visit(node.body))
