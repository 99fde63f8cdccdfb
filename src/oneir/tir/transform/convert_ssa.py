"""ConvertSSA: every variable and every buffer is defined once.

Passes that copy statements may leave one variable defined by several of them. Here the later ones get variables of
their own.
"""

from __future__ import annotations

from typing import Any

from ...ir.container import Array
from ...ir.expr import Let, Var
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..buffer import Buffer
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import Allocate, AllocateConst, Block, DeclBuffer, For, LetStmt
from ..stmt_functor import RenewDefs


class ConvertSSA(ModulePass, name="tir.ConvertSSA"):
    """Replaces variables and buffers that are defined several times, from the second time on.

    Definitions in other functions of the module count as well.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        unique = _Unique()
        functions: dict[Any, Any] = {}
        for var, func in mod.functions.items():
            functions[var] = unique.function(func) if isinstance(func, PrimFunc) else func
        if all(functions[var] is func for var, func in mod.functions.items()):
            return mod
        return mod.replace(functions=functions)


class _Unique(RenewDefs):
    """Renews definitions, but only from the second one on."""

    def __init__(self) -> None:
        super().__init__()
        self.defined: set[Any] = set()

    def renew(self, var: Var) -> Var:
        if var in self.defined:
            return super().renew(var)
        self.defined.add(var)
        self.new_vars[var] = var
        return var

    def renew_buffer(self, buffer: Buffer) -> Buffer:
        if buffer in self.defined:
            # A second buffer that looks the same must still be another object.
            new = super().renew_buffer(buffer)
            if new is buffer:
                new = Buffer(**{f.name: getattr(buffer, f.name) for f in buffer.init_fields})
                self._mapped[id(buffer)] = (buffer, new)
            return new
        self.defined.add(buffer)
        return super().renew_buffer(buffer)

    def scoped(self, var: Var, visit: Any, node: Any) -> Any:
        """Maps a statement that defines a variable; after it, the variable is what it was before."""
        before = self.new_vars.get(var)
        new = visit(node)
        if before is not None:
            self.new_vars[var] = before
        return new

    def visit_For(self, node: For) -> Any:
        return self.scoped(node.loop_var, super().visit_For, node)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        return self.scoped(node.var, super().visit_LetStmt, node)

    def visit_Let(self, node: Let) -> Any:
        return self.scoped(node.var, super().visit_Let, node)

    def visit_Allocate(self, node: Allocate) -> Any:
        return self.scoped(node.buffer_var, super().visit_Allocate, node)

    def visit_AllocateConst(self, node: AllocateConst) -> Any:
        return self.scoped(node.buffer_var, super().visit_AllocateConst, node)

    def visit_IterVar(self, node: IterVar) -> Any:
        if node.var not in self.defined:
            self.defined.add(node.var)
            self.new_vars[node.var] = node.var
            return self._visit_shared(node)
        self._mapped.pop(id(node), None)
        return super().visit_IterVar(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        before = self._mapped.get(id(node.buffer))
        new = super().visit_DeclBuffer(node)
        if before is not None:
            self._mapped[id(node.buffer)] = before
        return new

    def visit_Block(self, node: Block) -> Any:
        new = super().visit_Block(node)
        return node if all(getattr(new, f.name) is getattr(node, f.name) for f in node.init_fields) else new

    def function(self, func: PrimFunc) -> PrimFunc:
        params = Array(self.renew(p) for p in func.params)
        buffers = {}
        for param, buffer in func.buffer_map.items():
            for expr in (*buffer.shape, *buffer.strides, buffer.elem_offset):
                if isinstance(expr, Var) and expr not in func.params:
                    self.renew(expr)
            buffers[self.new_vars[param]] = self.renew_buffer(buffer)
        body = self(func.body)
        same = all(a is b for a, b in zip(params, func.params, strict=True))
        if same and body is func.body and all(buffers[p] is b for p, b in func.buffer_map.items()):
            return func
        return func.replace(params=params, buffer_map=buffers, body=body)
