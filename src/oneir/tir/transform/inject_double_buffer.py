"""InjectDoubleBuffer: while a loop works on one half of a buffer, the other half is filled for the next iteration.

    for i in range(8):                           fill(0, half=0)
        with T.attr(B, "double_buffer_scope", 1):   for i in range(7):
            fill(i)                          ->         fill(i + 1, half=(i + 1) % 2)
        use(i)                                          use(i, half=i % 2)
                                                    use(7, half=1)

What fills the next half carries the attribute "double_buffer_write", so that later passes may overlap it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Broadcast, IntImm, PrimExpr, Ramp, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import InvalidValue
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, IfThenElse, SeqStmt, Stmt, flat_seq
from ..stmt_functor import renew_stmt
from .pass_base import PrimFuncPass, config_option
from .unroll_loop import fold_in

SCOPE = "double_buffer_scope"
WRITE = "double_buffer_write"


class InjectDoubleBuffer(PrimFuncPass):
    """Fills buffers marked as double buffers one iteration ahead; options are those of `InjectDoubleBufferConfig`.

    They are the context's "tir.InjectDoubleBuffer". Raises `InvalidValue` for a `split_loop` that is none of 0, 1 and
    the even numbers, for memory that is not flat, and for a buffer that is not filled in one place of one loop, or used
    outside of it.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        config = config_option(ctx, "tir.InjectDoubleBuffer", InjectDoubleBufferConfig)
        if config.split_loop < 0 or (config.split_loop > 1 and config.split_loop % 2):
            raise InvalidValue(f"InjectDoubleBuffer: split_loop must be 0, 1 or even, found {config.split_loop}")
        find = _Find()
        find(func.body)
        return func.with_body(_Double(find.filled, config.split_loop)(func.body)) if find.filled else func


@dataclass(frozen=True)
class InjectDoubleBufferConfig:
    """split_loop: unroll factor of the loop, 0, 1 or an even number; the last iterations are peeled, so that filling
    needs no condition. 0 keeps one loop with a condition, whose last iteration fills nothing.
    """

    split_loop: int = 1


register_config_option("tir.InjectDoubleBuffer", InjectDoubleBufferConfig)


class _Find(Visitor):
    """The loop in which each buffer is filled, by the buffer's data."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[For] = []
        self.filled: dict[Var, For] = {}

    def visit(self, node: Any) -> None:
        if isinstance(node, Stmt):
            super().visit(node)

    def visit_For(self, node: For) -> None:
        self.loops.append(node)
        self.generic_visit(node)
        self.loops.pop()

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == SCOPE:
            data = _data_of(node)
            if not self.loops:
                raise InvalidValue(f"the double buffer {data.name} is filled outside of any loop")
            if data in self.filled:
                raise InvalidValue(f"the double buffer {data.name} is filled in two places; one is expected")
            self.filled[data] = self.loops[-1]
        self.generic_visit(node)


def _data_of(node: AttrStmt) -> Var:
    """The data pointer of an attribute's node, which is a buffer or the pointer."""
    return node.node.data if isinstance(node.node, Buffer) else node.node


class _Double(Mapper):
    def __init__(self, filled: dict[Var, For], split: int):
        super().__init__()
        self.filled, self.split = filled, split
        self.sizes: dict[Var, PrimExpr] = {}
        self.half: dict[Var, PrimExpr] = {}
        """The half that is accessed here."""
        self.moved: dict[For, list[Any]] = {}
        """Allocations inside of the loop, which go before it."""
        self.first: dict[For, list[Stmt]] = {}

    def visit_Allocate(self, node: Allocate) -> Any:
        loop = self.filled.get(node.buffer_var)
        if loop is None:
            return self.generic_visit(node)
        if len(node.extents) != 1:
            raise InvalidValue(
                f"the double buffer {node.buffer_var.name} must have one dimension, found {len(node.extents)}: "
                "run FlattenBuffer first"
            )
        size = self.sizes[node.buffer_var] = node.extents[0]
        inside = loop in self.moved
        if inside:
            self.moved[loop].append(node.replace(extents=Array([ops.multiply(size, 2)])))
            return self.visit(node.body)
        return node.replace(extents=Array([ops.multiply(size, 2)]), body=self.visit(node.body))

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        loop = self.filled.get(node.buffer.data)
        new = node.replace(buffer=self.visit(node.buffer))
        if loop is None or loop not in self.moved:
            return new.replace(body=self.visit(node.body))
        self.moved[loop].append(new)
        return self.visit(node.body)

    def visit_Buffer(self, buffer: Buffer) -> Any:
        size = self.sizes.get(buffer.data)
        if size is None:
            return buffer
        found = self._mapped.get(id(buffer))
        if found is None:
            found = self._mapped[id(buffer)] = (buffer, buffer.replace(shape=Array([ops.multiply(size, 2)])))
        return found[1]

    def access(self, node: Any) -> Any:
        new = self.generic_visit(node)
        data = node.buffer.data
        if data not in self.filled:
            return new
        if data not in self.half or len(node.indices) != 1:
            raise InvalidValue(
                f"the double buffer {data.name} is used outside of the loop that fills it, or not by one index"
            )
        offset = ops.multiply(self.half[data], self.sizes[data])
        (index,) = new.indices
        return new.replace(indices=Array([ops.add(offset, index) if index.dtype.is_scalar else _moved(index, offset)]))

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return self.access(node)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        return self.access(node)

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key != SCOPE:
            return self.generic_visit(node)
        data = _data_of(node)
        loop = self.filled[data]
        following = ops.add(loop.loop_var, 1)
        self.first[loop].append(self.fill(node, loop, loop.min))
        fill = self.fill(node, loop, following)
        more = following < ops.add(loop.min, loop.extent)
        return AttrStmt(self.visit(node.node), WRITE, 1, IfThenElse(more, fill))

    def fill(self, node: AttrStmt, loop: For, iteration: PrimExpr) -> Stmt:
        """The statements that fill the buffer for an iteration, in the half of that iteration."""
        data = _data_of(node)
        reading = self.half[data]
        self.half[data] = _half(loop, iteration)
        body = self.visit(fold_in(node.body, {loop.loop_var: iteration}))
        self.half[data] = reading
        return renew_stmt(body)

    def visit_For(self, node: For) -> Any:
        buffers = [data for data, loop in self.filled.items() if loop is node]
        if not buffers:
            return self.generic_visit(node)
        for data in buffers:
            self.half[data] = _half(node, node.loop_var)
        self.moved[node], self.first[node] = [], []
        new = node.replace(body=self.visit(node.body))
        result = flat_seq([flat_seq(self.first[node]), new])
        if not isinstance(node.extent, IntImm):
            result = IfThenElse(node.extent > 0, result)
        elif node.extent.value <= 0:
            result = Evaluate(0)
        elif self.split:
            result = flat_seq([*self.first[node], *_split(new, node.extent.value, self.split)])
        for outer in reversed(self.moved.pop(node)):
            result = outer.replace(body=result)
        for data in buffers:
            del self.half[data]
        return result


def _half(loop: For, iteration: PrimExpr) -> PrimExpr:
    return ops.floormod(ops.subtract(iteration, loop.min), 2)


def _moved(index: PrimExpr, offset: PrimExpr) -> PrimExpr:
    """A vector index, moved."""
    if isinstance(index, Ramp):
        return index.replace(base=ops.add(offset, index.base))
    return ops.add(Broadcast(offset, index.dtype.lanes), index)


class _Writes(Mapper):
    """Keeps, without their condition, what fills for the next iteration, or removes it."""

    def __init__(self, keep: bool):
        super().__init__()
        self.keep = keep

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        return flat_seq([self.visit(stmt) for stmt in node.seq])

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key != WRITE or not isinstance(node.body, IfThenElse):
            return self.generic_visit(node)
        return node.replace(body=node.body.then_case) if self.keep else Evaluate(0)


def _split(loop: For, extent: int, factor: int) -> list[Stmt]:
    """The loop with `factor` iterations in its body, and the iterations that are left, the last one among them."""
    var = loop.loop_var
    filling, last = _Writes(True)(loop.body), _Writes(False)(loop.body)
    rounds = (extent - 1) // factor if extent > 0 else 0
    outer = var.copy_with_name(f"{var.name}_outer" if factor > 1 else var.name)
    begin = ops.add(loop.min, ops.multiply(outer, factor))
    copies = [renew_stmt(fold_in(filling, {var: ops.add(begin, i)})) for i in range(factor)]
    parts: list[Stmt] = [loop.replace(loop_var=outer, min=0, extent=rounds, body=flat_seq(copies))] if rounds else []
    for i in range(rounds * factor, extent):
        body = filling if i + 1 < extent else last
        parts.append(renew_stmt(fold_in(body, {var: ops.add(loop.min, i)})))
    return parts
