"""Another integer dtype for the shapes, loops and indices of a function."""

from __future__ import annotations

from typing import Any

from ..ir import operators as ops
from ..ir.container import Array
from ..ir.dtype import DataType
from ..ir.expr import BinaryOpExpr, Call, Cast, IntImm, Let, Range, Select, Var, as_expr, const
from ..ir.op import Op
from ..ir.visitor import Mapper
from ..tir.expr import BufferLoad, IterVar
from ..tir.function import PrimFunc
from ..tir.stmt import Allocate, BlockRealize, BufferStore, For, LetStmt

# Calls whose operands, like those of arithmetic, are of one dtype.
_ARITHMETIC = {"tir.bitwise_and", "tir.bitwise_or", "tir.bitwise_xor", "tir.shift_left", "tir.shift_right"}


def convert_index_dtype(func: PrimFunc, dtype: str) -> PrimFunc:
    """The function with indices and shapes of another integer dtype; what buffers hold keeps its own."""
    mapper = _ConvertIndices(DataType(dtype))
    for buffer in func.buffer_map.values():
        for dim in buffer.shape:
            if isinstance(dim, Var):
                mapper.variable(dim)
    params = Array(mapper.variable(p) for p in func.params)
    buffers = {p: mapper(b) for p, b in func.buffer_map.items()}
    return func.replace(params=params, buffer_map=buffers, body=mapper(func.body))


class _ConvertIndices(Mapper):
    """Converts what is an index, and what is computed with the converted variables.

    Inside of indices, constants and casts take the new dtype; elements of buffers are converted where they meet it.
    Outside, what a converted variable meets takes its dtype, until the value is stored.
    """

    def __init__(self, dtype: DataType):
        super().__init__()
        self.dtype = dtype
        self.new_vars: dict[Var, Var] = {}
        self.indexing = False

    def variable(self, var: Var) -> Var:
        if not var.dtype.is_index:
            return var
        return self.new_vars.setdefault(var, var.copy_with_dtype(self.dtype))

    def index(self, expr: Any) -> Any:
        outer, self.indexing = self.indexing, True
        new = self.visit(as_expr(expr))
        self.indexing = outer
        return new

    def extent(self, expr: Any) -> Any:
        new = self.index(expr)
        return ops.cast(self.dtype, new) if new.dtype.is_index else new

    # -- expressions --

    def visit_Var(self, var: Var) -> Any:
        return self.new_vars.get(var, var)

    def visit_IntImm(self, node: Any) -> Any:
        return const(node.value, self.dtype) if self.indexing and node.dtype.is_index else node

    def visit_Cast(self, node: Cast) -> Any:
        value = self.visit(node.value)
        if self.indexing and node.dtype.is_index:
            return ops.cast(self.dtype, value)
        return node if value is node.value else ops.cast(node.dtype, value)

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        a, b = ops.match_types(a, b)
        return node.replace(a=a, b=b)

    def visit_Select(self, node: Select) -> Any:
        condition = self.visit(node.condition)
        true, false = ops.match_types(self.visit(node.true_value), self.visit(node.false_value))
        return node.replace(condition=condition, true_value=true, false_value=false)

    def visit_Call(self, node: Call) -> Any:
        args = [self.visit(a) for a in node.args]
        if all(new is old for new, old in zip(args, node.args, strict=True)):
            return node
        name = node.op.name if isinstance(node.op, Op) else ""
        if name == "tir.if_then_else" or name in _ARITHMETIC:
            args[-2:] = ops.match_types(*args[-2:])
            return node.replace(dtype=args[-1].dtype, args=Array(args))
        return node.replace(args=Array(args))

    def visit_Let(self, node: Let) -> Any:
        value = self.visit(node.value)
        return node.replace(var=self.bound(node.var, value), value=value, body=self.visit(node.body))

    def bound(self, var: Var, value: Any) -> Var:
        """The variable for a value, of the value's dtype."""
        if value.dtype is var.dtype or not value.dtype.is_index:
            return var
        return self.new_vars.setdefault(var, var.copy_with_dtype(value.dtype))

    # -- buffers --

    def visit_Buffer(self, buffer: Any) -> Any:
        found = self._mapped.get(id(buffer))
        if found is None:
            new = buffer.replace(
                shape=Array(self.extent(d) for d in buffer.shape),
                strides=Array(self.extent(s) for s in buffer.strides),
                elem_offset=self.extent(buffer.elem_offset) if buffer.shape else buffer.elem_offset,
            )
            found = self._mapped[id(buffer)] = (buffer, new)
        return found[1]

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return node.replace(buffer=self.visit(node.buffer), indices=Array(self.index(i) for i in node.indices))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        buffer, value = self.visit(node.buffer), self.visit(node.value)
        if value.dtype.is_index:
            value = ops.cast(buffer.dtype, value)
        return node.replace(buffer=buffer, value=value, indices=Array(self.index(i) for i in node.indices))

    # -- statements --

    def visit_Range(self, node: Range) -> Any:
        return Range(min=self.extent(node.min), extent=self.extent(node.extent))

    def visit_IterVar(self, node: IterVar) -> Any:
        found = self._mapped.get(id(node))
        if found is None:
            new = node.replace(dom=None if node.dom is None else self.visit(node.dom), var=self.variable(node.var))
            found = self._mapped[id(node)] = (node, new)
        return found[1]

    def visit_For(self, node: For) -> Any:
        return node.replace(
            loop_var=self.variable(node.loop_var),
            min=self.extent(node.min),
            extent=self.extent(node.extent),
            body=self.visit(node.body),
        )

    def visit_LetStmt(self, node: LetStmt) -> Any:
        value = self.visit(node.value)
        return node.replace(var=self.bound(node.var, value), value=value, body=self.visit(node.body))

    def visit_Allocate(self, node: Allocate) -> Any:
        return node.replace(
            extents=Array(self.extent(e) for e in node.extents),
            condition=self.visit(node.condition),
            body=self.visit(node.body),
        )

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        for iv, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            if isinstance(value, IntImm):
                self._mapped[id(iv)] = (iv, iv)  # the variable of a block of one element indexes nothing
        return node.replace(
            iter_values=Array(self.extent(v) for v in node.iter_values),
            predicate=self.visit(node.predicate),
            block=self.visit(node.block),
        )
