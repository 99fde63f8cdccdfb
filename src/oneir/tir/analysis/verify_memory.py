"""Whether memory of a device is accessed only by threads of that device."""

from __future__ import annotations

from typing import Any

from ...ir.visitor import Visitor
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import AttrStmt, BufferStore, For

_CPU = 1


class _Accesses(Visitor):
    """Looks for accesses to parameters that no thread of a device makes."""

    def __init__(self, func: PrimFunc):
        super().__init__()
        self.parameters = {buffer.data for buffer in func.buffer_map.values()}
        self.fine = True

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key != "thread_extent":
            self.visit(node.body)

    def visit_For(self, loop: For) -> None:
        if loop.thread_binding is None:
            self.generic_visit(loop)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.fine = self.fine and node.buffer.data not in self.parameters
        self.generic_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.fine = self.fine and node.buffer.data not in self.parameters
        self.generic_visit(node)


def verify_memory(func: PrimFunc) -> bool:
    """Whether a function for a device with memory of its own accesses that only from its threads; true on the CPU."""
    target: Any = func.attrs.get("target")
    if target is None or target.get_target_device_type() == _CPU:
        return True
    accesses = _Accesses(func)
    accesses(func.body)
    return accesses.fine
