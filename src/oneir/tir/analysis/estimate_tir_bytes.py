"""An estimate of the bytes of its arguments that a function reads and writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.visitor import Visitor
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import BufferStore, For


class _Accesses(Visitor):
    """Counts the elements that loads and stores access, by data pointer."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 1.0
        self.elements: dict[Var, float] = defaultdict(float)

    def visit_For(self, loop: For) -> None:
        outer = self.times
        self.times *= loop.extent.value if isinstance(loop.extent, IntImm) else float("inf")
        self.visit(loop.body)
        self.times = outer

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._access(load.buffer, load.indices)
        self.generic_visit(load)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._access(store.buffer, store.indices)
        self.generic_visit(store)

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> None:
        lanes = max((index.dtype.lanes for index in indices), default=1)
        self.elements[buffer.data] += self.times * lanes


def estimate_tir_bytes(func: PrimFunc) -> int | None:
    """The bytes of the arguments that a call reads and writes at least once; None where a shape is symbolic.

    An argument counts once, however often it is accessed, and with no more elements than there are accesses: of a
    table of which a few rows are gathered, those rows count.
    """
    accesses = _Accesses()
    accesses(func.body)
    total = 0.0
    for buffer in func.buffer_map.values():
        size = 1
        for extent in buffer.shape:
            if not isinstance(extent, IntImm):
                return None
            size *= extent.value
        # Memory that only calls or views of it touch counts as a whole.
        total += min(size, accesses.elements.get(buffer.data, size)) * buffer.dtype.itemsize
    return int(total)
