"""LowerDeviceStorageAccessInfo: special memories of a device, which are there already, and pointers into memory.

    A = T.allocate([64], "int32", "global.scratch")       A = the memory's head address, or nothing
    T.evaluate(T.tvm_access_ptr(..., A, 8, 16, 1))    ->  T.evaluate(T.address_of(A_1[8]))

A scope with a tag ("scratch") is such a memory; a function registered as "tvm.info.mem." and the scope says what it is
like (`target.MemoryInfo`). Tags of memory that is allocated when a kernel starts ("shared.dyn") are none.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Call, PrimExpr, Var, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import InvalidValue
from ...target.memory_info import MemoryInfo, get_memory_info
from ..buffer import decl_buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import address_of
from ..stmt import Allocate, DeclBuffer, LetStmt
from .pass_base import PrimFuncPass

_ACCESS_PTR = Op.get("tir.tvm_access_ptr")


class LowerDeviceStorageAccessInfo(PrimFuncPass):
    """Takes out allocations in special memories, and lowers `tvm_access_ptr` to addresses.

    An address in a memory that programs cannot address is, for a call of a number's dtype, the number of its unit.
    Raises `NotRegistered` for a memory that no function describes, and `InvalidValue` for a pointer into memory without
    an address, and for elements that do not divide its units.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Lower()(func.body))


class _Lower(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.memories: dict[Var, MemoryInfo] = {}

    def visit_Allocate(self, node: Allocate) -> Any:
        scope: str = getattr(node.buffer_var.type_annotation, "storage_scope", "")
        if scope.partition(".")[2] in ("", "dyn"):
            return self.generic_visit(node)
        info = self.memories[node.buffer_var] = get_memory_info(scope)
        body = self.visit(node.body)
        return body if info.head_address is None else LetStmt(node.buffer_var, info.head_address, body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        info = self.memories.get(node.buffer.data)
        return self.visit(node.body) if info is not None and info.head_address is None else self.generic_visit(node)

    def visit_Call(self, node: Call) -> Any:
        if node.op is not _ACCESS_PTR:
            return self.generic_visit(node)
        kind, data, offset = [self.visit(arg) for arg in node.args[:3]]
        info = self.memories.get(data)
        if info is not None and node.dtype != "handle":
            return _unit(node, kind, offset, info)
        if info is not None and info.head_address is None:
            raise InvalidValue(f"`{node}` points into `{data}`, a memory without an address")
        element, lanes = kind.dtype.element, kind.dtype.lanes
        place = offset * lanes if lanes > 1 else offset
        memory = decl_buffer([place + 1], str(element), data.name, data=data)
        return address_of(BufferLoad(memory, [place]))


def _unit(node: Call, kind: PrimExpr, offset: PrimExpr, info: MemoryInfo) -> PrimExpr:
    """The number of the unit of memory at which an element lies."""
    bits = kind.dtype.bits * kind.dtype.lanes
    if info.unit_bits % bits:
        raise InvalidValue(f"`{node}` names elements of {bits} bits in a memory of units of {info.unit_bits} bits")
    return ops.cast(node.dtype, ops.floordiv(offset, const(info.unit_bits // bits, offset.dtype)))
