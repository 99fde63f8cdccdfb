"""TransformMmaBufferLayout: matrices in tensor cores become registers of the threads of a warp.

    C = T.alloc_buffer((32, 16), scope="m16n8k8.matrixC")      C = T.alloc_buffer((2, 2, 2, 2), scope="local")
    C[i, j] = x                                            ->  C[i // 16, j // 8, i % 16 // 8, j % 2] = x

Each block of 16 rows and 8 columns of C is spread over 32 threads: 8 of them along the rows, 4 along the columns, so
that a thread has two neighbours in each half of the block. Which elements of A and B a thread has is up to the tensor
intrinsics, which take addresses.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import InvalidValue, WellFormedError
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Block, BufferRegion, BufferStore
from .pass_base import PrimFuncPass

_C = "m16n8k8.matrixC"
_PARTS = {"m16n8k8.matrixA": (32, 8, 4, 2), "m16n8k8.matrixB": (8, 32, 1, 8), _C: (16, 8, 2, 2)}
"""The rows and columns of the blocks of a matrix, and those of a thread's part of each."""


class TransformMmaBufferLayout(PrimFuncPass):
    """Gives each thread its part of buffers of the scopes "m16n8k8.matrixA", "matrixB" and "matrixC", in blocks.

    An access to C stands for the running thread's element, which the program has to see to. Raises `InvalidValue` for a
    buffer that is no multiple of a block, and `WellFormedError` for an access to an element of A or B.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Transform()(func.body))


class _Transform(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.local: dict[Buffer, Buffer] = {}
        self.pointers: dict[Var, Var] = {}

    def visit_Block(self, node: Block) -> Any:
        for buffer in node.alloc_buffers:
            if buffer.scope() in _PARTS:
                made = self.local[buffer] = _registers(buffer)
                self.pointers[buffer.data] = made.data
        return self.generic_visit(node)

    def visit_Buffer(self, node: Buffer) -> Any:
        return self.local.get(node, node)

    def visit_Var(self, node: Var) -> Any:
        return self.pointers.get(node, node)

    def visit_BufferRegion(self, node: BufferRegion) -> Any:
        made = self.local.get(node.buffer)
        return self.generic_visit(node) if made is None else BufferRegion.full(made)

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        made = self.local.get(node.buffer)
        return self.generic_visit(node) if made is None else BufferLoad(made, self.place(node), span=node.span)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        made = self.local.get(node.buffer)
        if made is None:
            return self.generic_visit(node)
        return node.replace(buffer=made, value=self.visit(node.value), indices=Array(self.place(node)))

    def place(self, node: BufferLoad | BufferStore) -> list[PrimExpr]:
        """The indices of an element in the thread's part."""
        if node.buffer.scope() != _C:
            raise WellFormedError(
                f"only tensor intrinsics access elements of `{node.buffer.name}`, which lie in the registers of "
                f"several threads; found {node}"
            )
        *outer, i, j = [self.visit(index) for index in node.indices]
        half = ops.floordiv(i, 8)
        return [*outer, ops.floordiv(half, 2), ops.floordiv(j, 8), ops.floormod(half, 2), ops.floormod(j, 2)]


def _registers(buffer: Buffer) -> Buffer:
    """A thread's part of a buffer."""
    rows, columns, *part = _PARTS[buffer.scope()]
    *outer, height, width = buffer.shape if len(buffer.shape) > 1 else (None, None)
    counts = [
        size.value // whole if isinstance(size, IntImm) and size.value % whole == 0 else 0
        for size, whole in ((height, rows), (width, columns))
    ]
    if not all(counts):
        raise InvalidValue(
            f"the matrix `{buffer.name}` of the scope {buffer.scope()} has the shape {tuple(buffer.shape)}; expected "
            f"multiples of {rows} rows and {columns} columns"
        )
    return decl_buffer([*outer, *counts, *part], str(buffer.dtype), buffer.name, scope="local")
