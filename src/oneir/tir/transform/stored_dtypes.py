"""Memory and variables that change their dtype: buffers, allocations, pointers and values of some dtypes as others."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from ...ir.expr import Let, Var
from ...ir.type import PointerType, PrimType
from ...ir.visitor import Mapper
from ..buffer import Buffer
from ..expr import CommReducer
from ..stmt import Allocate, AllocateConst, LetStmt


class StoredDtypes(Mapper):
    """Declares memory and variables with the dtypes that `stored` says; subclasses map what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.renamed: dict[Var, Var] = {}

    def stored(self, dtype: DataType) -> DataType:
        """The dtype in which values of a dtype are kept: the dtype itself where nothing changes."""
        raise NotImplementedError

    def define(self, var: Var) -> Var:
        """The variable for a value or a pointer whose dtype changes."""
        kind = var.type_annotation
        if isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType):
            element = self.stored(kind.element_type.dtype)
            if element is not kind.element_type.dtype and var not in self.renamed:
                self.renamed[var] = Var(var.name, PointerType(PrimType(element), kind.storage_scope))
        elif self.stored(var.dtype) is not var.dtype:
            self.renamed[var] = Var(var.name, self.stored(var.dtype))
        return self.renamed.get(var, var)

    def visit_Var(self, var: Var) -> Any:
        return self.renamed.get(var, var)

    def visit_Buffer(self, buffer: Buffer) -> Any:
        found = self._mapped.get(id(buffer))
        if found is None:
            new = buffer.replace(data=self.define(buffer.data), dtype=self.stored(buffer.dtype))
            found = self._mapped[id(buffer)] = (buffer, new)
        return found[1]

    def visit_Allocate(self, node: Allocate) -> Any:
        var = self.define(node.buffer_var)
        return self.generic_visit(node.replace(buffer_var=var, dtype=self.stored(node.dtype)))

    def visit_AllocateConst(self, node: AllocateConst) -> Any:
        var = self.define(node.buffer_var)
        return self.generic_visit(node.replace(buffer_var=var, dtype=self.stored(node.dtype)))

    def visit_LetStmt(self, node: LetStmt | Let) -> Any:
        value = self.visit(node.value)
        return node.replace(value=value, var=self.define(node.var), body=self.visit(node.body))

    visit_Let = visit_LetStmt

    def visit_CommReducer(self, node: CommReducer) -> Any:
        return node  # which names a reduction that has been written out
