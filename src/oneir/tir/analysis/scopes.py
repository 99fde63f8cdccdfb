"""A visitor that tracks which variables are defined at each node."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Let, Var
from ...ir.visitor import Visitor
from ..buffer import Buffer
from ..expr import BufferLoad, CommReducer, IterVar, Reduce
from ..function import PrimFunc
from ..stmt import (
    Allocate,
    AllocateConst,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    For,
    LetStmt,
)
from .symbolic_extents import solve_extent


class ScopedVisitor(Visitor):
    """Calls `enter` and `leave` around the scope of each variable, and `use` where one is used.

    A buffer defines its data pointer where memory is allocated for it; parameters and matched views also define the
    variables that stand alone in their shapes, strides and offsets, and parameters those that follow from an extent
    (`solve_extent`).
    """

    def enter(self, var: Var, node: Any) -> None:
        """A variable is defined by `node`, for what follows."""

    def leave(self, var: Var) -> None:
        """A variable is not defined any more."""

    def use(self, var: Var) -> None:
        """A variable is used."""

    def scoped(self, variables: list[Var], node: Any, *bodies: Any) -> None:
        """Visits bodies with variables defined by `node`."""
        for var in variables:
            self.enter(var, node)
        for body in bodies:
            if body is not None:
                self.visit(body)
        for var in reversed(variables):
            self.leave(var)

    def visit_PrimFunc(self, func: PrimFunc) -> None:
        variables = list(func.params)
        for param, buffer in func.buffer_map.items():
            if buffer.data is not param:
                variables += [v for v in self.defined_by(buffer) if v not in variables]
        for buffer in func.buffer_map.values():
            for extent in buffer.shape:
                solved = solve_extent(extent, extent, variables)
                variables += [] if solved is None else [solved[0]]
        for var in variables:
            self.enter(var, func)
        for buffer in func.buffer_map.values():
            self.use_buffer(buffer)
        self.visit(func.body)
        for var in reversed(variables):
            self.leave(var)

    @staticmethod
    def defined_by(buffer: Buffer) -> list[Var]:
        """The variables that a matched view defines: its data pointer, and variables that are alone in its shape,
        strides or offset."""
        fields: list[Any] = [buffer.data, *buffer.shape, *buffer.strides, buffer.elem_offset]
        return list(dict.fromkeys(field for field in fields if isinstance(field, Var)))

    def use_buffer(self, buffer: Buffer) -> None:
        """A buffer is used, and with it its data pointer and the variables of its shape, strides and offset."""
        self.use(buffer.data)
        for expr in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            self.visit(expr)

    def visit_Var(self, var: Var) -> None:
        self.use(var)

    def visit_Buffer(self, buffer: Buffer) -> None:
        self.use_buffer(buffer)

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.scoped([loop.loop_var], loop, loop.body)

    def visit_LetStmt(self, node: LetStmt | Let) -> None:
        self.visit(node.value)
        self.scoped([node.var], node, node.body)

    visit_Let = visit_LetStmt

    def visit_Allocate(self, node: Allocate) -> None:
        for extent in node.extents:
            self.visit(extent)
        self.visit(node.condition)
        self.scoped([node.buffer_var], node, node.body)

    def visit_AllocateConst(self, node: AllocateConst) -> None:
        self.scoped([node.buffer_var], node, node.body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.use_buffer(node.buffer)
        self.visit(node.body)

    def visit_BufferRealize(self, node: BufferRealize) -> None:
        for bound in node.bounds:
            self.visit(bound)
        self.visit(node.condition)
        self.scoped([node.buffer.data], node, node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        self.visit(node.value)
        if isinstance(node.node, IterVar):
            self.visit_thread(node, node.node.var)
        else:
            # The node of an attribute, such as an inner loop's variable, need not be defined here.
            self.visit(node.body)

    def visit_thread(self, node: AttrStmt, var: Var) -> None:
        """The attribute that launches a thread."""
        self.scoped([var], node, node.body)

    def visit_IterVar(self, node: IterVar) -> None:
        if node.dom is not None:
            self.visit(node.dom)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        for value in realize.iter_values:
            self.visit(value)
        self.visit(realize.predicate)
        self.visit(realize.block)

    def visit_Block(self, block: Block) -> None:
        for iter_var in block.iter_vars:
            self.visit_IterVar(iter_var)
        own = [iter_var.var for iter_var in block.iter_vars]
        for var in own:
            self.enter(var, block)
        for region in (*block.reads, *block.writes):
            self.visit(region)
        for match in block.match_buffers:
            self.visit(match.source)
        allocated = [buffer.data for buffer in block.alloc_buffers]
        for match in block.match_buffers:
            allocated += [v for v in self.defined_by(match.buffer) if v not in allocated and not self.is_known(v)]
        for var in allocated:
            self.enter(var, block)
        for buffer in block.alloc_buffers:
            self.use_buffer(buffer)
        for match in block.match_buffers:
            self.use_buffer(match.buffer)
        if block.init is not None:
            self.visit(block.init)
        self.visit(block.body)
        for var in reversed([*own, *allocated]):
            self.leave(var)

    def is_known(self, var: Var) -> bool:
        """Whether a variable is defined already, so that a view does not define but use it."""
        return False

    def visit_BufferRegion(self, region: BufferRegion) -> None:
        self.use_buffer(region.buffer)
        for r in region.region:
            self.visit(r)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.use_buffer(load.buffer)
        for index in load.indices:
            self.visit(index)
        if load.predicate is not None:
            self.visit(load.predicate)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.use_buffer(store.buffer)
        for index in store.indices:
            self.visit(index)
        self.visit(store.value)
        if store.predicate is not None:
            self.visit(store.predicate)

    def visit_Reduce(self, node: Reduce) -> None:
        if node.combiner is not None:
            self.visit(node.combiner)
        for axis in node.axis:
            self.visit_IterVar(axis)
        self.scoped([axis.var for axis in node.axis], node, *node.source, node.condition, *node.init)

    def visit_CommReducer(self, node: CommReducer) -> None:
        for value in node.identity_element:
            self.visit(value)
        self.scoped([*node.lhs, *node.rhs], node, *node.result)
