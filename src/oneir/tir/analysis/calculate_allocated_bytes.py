"""The peak of the memory that a function allocates, by storage scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...ir.expr import IntImm, PrimExpr
from ...ir.module import IRModule
from ...ir.node import Node
from ...ir.visitor import Visitor
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import Allocate, AllocateConst, Block


class _Allocated(Visitor):
    """Adds up what is allocated around each statement; memory of unknown size does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def inside(self, scope: str, sizes: Iterable[PrimExpr], width: int, node: Node) -> None:
        count = width
        for size in sizes:
            count *= size.value if isinstance(size, IntImm) else 0
        self.now[scope] += count
        self.most[scope] = max(self.most[scope], self.now[scope])
        self.visit(node)
        self.now[scope] -= count

    def visit_Allocate(self, node: Allocate | AllocateConst) -> None:
        scope = getattr(node.buffer_var.type_annotation, "storage_scope", "") or "global"
        self.inside(scope, node.extents, node.dtype.itemsize, node.body)

    visit_AllocateConst = visit_Allocate

    def visit_Block(self, block: Block) -> None:
        before = Counter(self.now)
        for buffer in block.alloc_buffers:
            self.now[buffer.scope()] += _bytes(buffer)
            self.most[buffer.scope()] = max(self.most[buffer.scope()], self.now[buffer.scope()])
        if block.init is not None:
            self.visit(block.init)
        self.visit(block.body)
        self.now = before


def _bytes(buffer: Buffer) -> int:
    count = buffer.dtype.itemsize
    for dim in buffer.shape:
        count *= dim.value if isinstance(dim, IntImm) else 0
    return count


def calculate_allocated_bytes(func_or_mod: PrimFunc | IRModule) -> dict[str, dict[str, int]]:
    """For each function (a lone one is "main") the bytes it allocates at most at once, by storage scope."""
    mod = func_or_mod if isinstance(func_or_mod, IRModule) else IRModule({"main": func_or_mod})
    result: dict[str, dict[str, int]] = {}
    for var, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            allocated = _Allocated()
            allocated(func.body)
            result[var.name_hint] = dict(allocated.most)
    return result
