"""Substitution, copies with new definitions, and transformation of statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.container import Array, map_array
from ..ir.expr import Let, PrimExpr, Var
from ..ir.substitute import substitute
from ..ir.visitor import Mapper, Visitor, post_order_visit, pre_order_visit
from .buffer import Buffer
from .expr import BufferLoad, IterVar
from .stmt import Allocate, AllocateConst, Block, DeclBuffer, For, LetStmt, MatchBufferRegion

__all__ = [
    "StmtMapper",
    "ir_transform",
    "post_order_visit",
    "pre_order_visit",
    "renew_defs",
    "renew_stmt",
    "substitute",
]


class _Transform(Mapper):
    def __init__(self, before: Callable[[Any], Any] | None, after: Callable[[Any], Any] | None, only: set[str] | None):
        super().__init__()
        self.before, self.after, self.only = before, after, only

    def visit(self, node: Any) -> Any:
        if self.only is not None and type(node).__name__ not in self.only:
            return super().visit(node)
        new = self.before(node) if self.before else None
        if new is not None:
            return new
        new = super().visit(node)
        changed = self.after(new) if self.after else None
        return new if changed is None else changed


def ir_transform(stmt: Any, preorder: Any, postorder: Any, only_enable: list[str] | None = None) -> Any:
    """Rewrites a statement: `preorder(node)` may return a replacement before the children are visited, which then stays
    as it is, `postorder(node)` after; None keeps. `only_enable` limits both to node types such as "tir.For"; those of
    expressions may be named "tir.Add" or "ir.Add".
    """
    names = {name.rpartition(".")[2] for name in only_enable or ()}
    return _Transform(preorder, postorder, names or None)(stmt)


class RenewDefs(Mapper):
    """Replaces all variables and buffers that are defined inside by new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.new_vars: dict[Var, Var] = {}

    def renew(self, var: Var) -> Var:
        new = self.new_vars[var] = var.copy_with_name(var.name)
        return new

    def visit_Var(self, var: Var) -> Any:
        return self.new_vars.get(var, var)

    def visit_For(self, node: For) -> Any:
        return self.generic_visit(node.replace(loop_var=self.renew(node.loop_var)))

    def visit_LetStmt(self, node: LetStmt) -> Any:
        value = self.visit(node.value)
        return node.replace(var=self.renew(node.var), value=value, body=self.visit(node.body))

    def visit_Let(self, node: Let) -> Any:
        value = self.visit(node.value)
        return node.replace(var=self.renew(node.var), value=value, body=self.visit(node.body))

    def visit_Allocate(self, node: Allocate) -> Any:
        return self.generic_visit(node.replace(buffer_var=self.renew(node.buffer_var)))

    def visit_AllocateConst(self, node: AllocateConst) -> Any:
        return self.generic_visit(node.replace(buffer_var=self.renew(node.buffer_var)))

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        return node.replace(buffer=self.renew_buffer(node.buffer), body=self.visit(node.body))

    def visit_IterVar(self, node: IterVar) -> Any:
        found = self._mapped.get(id(node))
        if found is None:
            dom = None if node.dom is None else self.visit(node.dom)
            found = self._mapped[id(node)] = (node, IterVar(dom, self.renew(node.var), node.iter_type, node.thread_tag))
        return found[1]

    def renew_buffer(self, buffer: Buffer) -> Buffer:
        """A new buffer; its data pointer is new too unless something around it defined the pointer."""
        data = self.new_vars.get(buffer.data)
        if data is None:
            data = self.renew(buffer.data)
        new = buffer.replace(
            data=data,
            shape=map_array(buffer.shape, self.visit),
            strides=map_array(buffer.strides, self.visit),
            elem_offset=self.visit(buffer.elem_offset),
        )
        self._mapped[id(buffer)] = (buffer, new)
        return new

    def visit_Block(self, node: Block) -> Any:
        iter_vars = map_array(node.iter_vars, self.visit)
        allocs = Array(self.renew_buffer(b) for b in node.alloc_buffers)
        matches: list[MatchBufferRegion] = []
        for match in node.match_buffers:
            source = self.visit(match.source)
            for expr in (*match.buffer.shape, *match.buffer.strides, match.buffer.elem_offset):
                if isinstance(expr, Var) and expr not in self.new_vars:
                    self.renew(expr)
            matches.append(match.replace(buffer=self.renew_buffer(match.buffer), source=source))
        return node.replace(
            iter_vars=iter_vars,
            alloc_buffers=allocs,
            match_buffers=Array(matches),
            reads=map_array(node.reads, self.visit),
            writes=map_array(node.writes, self.visit),
            init=None if node.init is None else self.visit(node.init),
            body=self.visit(node.body),
        )


class StmtMapper(Mapper):
    """Maps statements and leaves the expressions in them, and buffers, alone."""

    def visit(self, node: Any) -> Any:
        return node if isinstance(node, (PrimExpr, Buffer)) else super().visit(node)


def renew_stmt(stmt: Any) -> Any:
    """A copy of a statement with new variables and buffers for those that it defines."""
    return RenewDefs()(stmt)


def renew_defs(func: Any) -> Any:
    """A copy of a function that shares no variable and no buffer with it."""
    mapper = RenewDefs()
    params = Array(mapper.renew(p) for p in func.params)
    # A buffer may use variables that one after it defines.
    for buffer in func.buffer_map.values():
        for expr in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            if isinstance(expr, Var) and expr not in mapper.new_vars:
                mapper.renew(expr)
    buffers = {mapper.new_vars[param]: mapper.renew_buffer(buffer) for param, buffer in func.buffer_map.items()}
    return func.replace(params=params, buffer_map=buffers, body=mapper(func.body))


class _Loads(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[BufferLoad] = []

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.found.append(load)
        self.generic_visit(load)


def loads(node: Any) -> list[BufferLoad]:
    """The loads in an expression or a statement, from the outside in."""
    visitor = _Loads()
    visitor(node)
    return visitor.found
