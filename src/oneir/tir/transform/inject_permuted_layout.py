"""InjectPermutedLayout: rows of shared memory are permuted, so that eight rows are read at once from different banks.

Shared memory has 32 banks of 4 bytes. Rows of a tile begin in few of them, so that equal columns of neighbouring rows
collide. A buffer that a block with the annotation "permuted_layout" uses keeps its shape, but its columns, in pieces of
8 elements (16 bytes, if those are more), are exchanged by row: piece `c` of row `r` lies where piece
`c ^ (r // p % n)` was. `n` pieces in a row, a power of two up to eight, take part; `p` rows are 128 bytes, or one row
is more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Call, IntImm, PrimExpr, Var, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Visitor, post_order_visit
from ...runtime.error import InvalidValue
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Block, BufferRegion, BufferStore
from .analyzed import AnalyzedMapper
from .pass_base import PrimFuncPass

PERMUTED = "permuted_layout"
_PIECE = 8
"""Elements that stay together, at least: what a thread has of a row of a fragment in registers."""
_PIECE_BYTES = 16
_BANK_BYTES = 128
"""All banks together."""
_PARTS = 8
"""Pieces that change places, at most."""
_POINTERS: dict[Op, tuple[int, int | None]] = {
    ops.as_op("tir.ptx_ldmatrix"): (5, 6),
    ops.as_op("tir.mma_store"): (2, None),
}
"""The argument that is a pointer to shared memory, and the one that is an offset from it."""
_ACCESS_PTR = ops.as_op("tir.tvm_access_ptr")


class InjectPermutedLayout(PrimFuncPass):
    """Permutes the rows of shared memory that blocks with the annotation "permuted_layout" use, and drops that.

    All accesses to such memory are permuted, whether their blocks are marked or not; regions of blocks stay what they
    were. It is for functions without matched views. Raises `InvalidValue` for a marked block without shared memory, for
    memory of one dimension or whose rows are no multiple of two pieces, and for pointers to it in calls other than
    `ptx_ldmatrix` and `mma_store`.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        found = _Permuted()
        found(func.body)
        return func.with_body(_Permute(found.layouts)(func.body)) if found.marked else func


@dataclass
class _Layout:
    """How the rows of a buffer are permuted: the elements of a row and of a piece, the pieces that change places, and
    how many rows have their pieces in the same places.
    """

    row: int
    piece: int
    parts: int
    rows: int

    def place(self, analyzer: Analyzer, row: PrimExpr, column: PrimExpr) -> PrimExpr:
        """Where the element of a column lies in its row."""
        turn = ops.floormod(ops.floordiv(row, self.rows), self.parts)
        piece = analyzer.simplify(ops.floordiv(column, self.piece))
        within = analyzer.simplify(ops.floormod(column, self.piece))
        return analyzer.simplify(ops.bitwise_xor(piece, analyzer.simplify(turn)) * self.piece + within)


class _Permuted(Visitor):
    """The layouts of the memory to permute, by its pointer."""

    def __init__(self) -> None:
        super().__init__()
        self.marked = False
        self.layouts: dict[Var, _Layout] = {}
        self.buffers: dict[Var, Buffer] = {}

    def visit_Block(self, node: Block) -> None:
        self.buffers.update({buffer.data: buffer for buffer in node.alloc_buffers})
        if node.annotations.get(PERMUTED):
            self.marked = True
            used = [self.buffers[data] for data in _memory(node.body) if data in self.buffers]
            shared = [buffer for buffer in used if buffer.scope().startswith("shared")]
            if not shared:
                names = ", ".join(f"`{region.buffer.name}`" for region in (*node.reads, *node.writes))
                raise InvalidValue(
                    f"a block with the annotation {PERMUTED!r} uses shared memory that a block allocates; found "
                    f"{node.name_hint!r}, which uses {names}"
                )
            self.layouts.update({buffer.data: _layout(buffer) for buffer in shared})
        self.generic_visit(node)


def _memory(body: Any) -> set[Var]:
    """The pointers of all memory that a statement uses."""
    found: set[Var] = set()

    def add(node: Any) -> None:
        if isinstance(node, (BufferLoad, BufferStore)):
            found.add(node.buffer.data)
        elif isinstance(node, Call) and node.op is _ACCESS_PTR:
            data: Any = node.args[1]
            found.add(data)

    post_order_visit(body, add)
    return found


def _layout(buffer: Buffer) -> _Layout:
    row = buffer.shape[-1] if len(buffer.shape) > 1 else None
    size = row.value if isinstance(row, IntImm) else 0
    piece = max(_PIECE, _PIECE_BYTES * 8 // buffer.dtype.bits)
    pieces = size // piece
    dense = not buffer.strides or (is_number(buffer.strides[-1], 1) and is_number(buffer.strides[-2], size))
    if not dense or size % piece or pieces % 2 or not pieces:
        raise InvalidValue(
            f"{PERMUTED} is for shared memory with rows of {piece} elements times an even number, one after the other; "
            f"found `{buffer.name}` with the shape {tuple(buffer.shape)} and the strides {tuple(buffer.strides)}"
        )
    bytes_of_row = size * buffer.dtype.bits // 8
    return _Layout(size, piece, min(pieces & -pieces, _PARTS), max(1, _BANK_BYTES // bytes_of_row))


class _Permute(AnalyzedMapper):
    def __init__(self, layouts: dict[Var, _Layout]):
        super().__init__()
        self.layouts = layouts

    def visit_Block(self, node: Block) -> Any:
        new = super().visit_Block(node)
        if PERMUTED not in node.annotations:
            return new
        return new.replace(annotations={key: value for key, value in node.annotations.items() if key != PERMUTED})

    def indices(self, layout: _Layout, indices: Any) -> Array[PrimExpr]:
        *outer, row, column = [self.visit(index) for index in indices]
        return Array([*outer, row, layout.place(self.analyzer, row, column)])

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        layout = self.layouts.get(node.buffer.data)
        return self.generic_visit(node) if layout is None else node.replace(indices=self.indices(layout, node.indices))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        layout = self.layouts.get(node.buffer.data)
        if layout is None:
            return self.generic_visit(node)
        return node.replace(value=self.visit(node.value), indices=self.indices(layout, node.indices))

    def visit_BufferRegion(self, node: BufferRegion) -> Any:
        """Regions name elements by what they are, not by where they lie."""
        return node

    def visit_Call(self, node: Call) -> Any:
        known = _POINTERS.get(node.op) if isinstance(node.op, Op) else None
        pointer: Any = None if known is None else node.args[known[0]]
        if known is None or not isinstance(pointer, Call) or pointer.op is not _ACCESS_PTR:
            data: Any = node.args[1] if node.op is _ACCESS_PTR else None
            layout = self.layouts.get(data)
            if layout is not None:
                raise InvalidValue(
                    f"rows of {node.args[1]} are permuted, so that only ptx_ldmatrix and mma_store take pointers to "
                    f"them; found {node}"
                )
            return super().visit_Call(node)
        memory: Any = pointer.args[1]
        layout = self.layouts.get(memory)
        if layout is None:
            return super().visit_Call(node)
        first, second = known
        args = [arg if i == first else self.visit(arg) for i, arg in enumerate(node.args)]
        start = self.visit(pointer.args[2])
        if second is not None:
            start = start + args[second]
            args[second] = const(0, args[second].dtype)
        row, column = ops.floordiv(start, layout.row), ops.floormod(start, layout.row)
        begin = self.analyzer.simplify(row * layout.row + layout.place(self.analyzer, row, column))
        inner = [begin if i == 2 else self.visit(arg) for i, arg in enumerate(pointer.args)]
        args[first] = pointer.replace(args=Array(inner))
        return node.replace(args=Array(args))
