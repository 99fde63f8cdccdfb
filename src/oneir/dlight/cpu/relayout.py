"""The same function over buffers that lie in memory in another order.

Any buffer of a function can be given another layout, since only its indices change. What follows from a layout is the
order of loops: those of each block run along the memory that it writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, as_int, const
from ...ir.visitor import Mapper, Visitor
from ...runtime.tensor import Tensor, empty, tensor
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, SeqStmt, Stmt, stmt_list


@dataclass(frozen=True)
class Permuted:
    """Dimensions in another order: the new dimension `i` is the old dimension `axes[i]`."""

    axes: tuple[int, ...]

    def shape(self, shape: Sequence[PrimExpr]) -> list[PrimExpr]:
        """The shape in memory of a buffer of that shape."""
        return [shape[axis] for axis in self.axes]

    def indices(self, indices: Sequence[PrimExpr]) -> list[PrimExpr]:
        """Where the element at those indices lies."""
        return [indices[axis] for axis in self.axes]

    def region(self, region: Sequence[Range]) -> list[Range]:
        """Where a region lies."""
        return [region[axis] for axis in self.axes]

    def in_memory(self, data: np.ndarray) -> Tensor:
        """The elements of an array as they lie in memory."""
        return tensor(data.transpose(self.axes))


@dataclass(frozen=True)
class Panels:
    """Panels of `width` elements along one dimension, one panel after the other: the vectors of a contraction.

    `axes` orders all dimensions; the one at its end is split, its panels come first, its elements within a panel last.
    A last panel that is not full ends in zeros.
    """

    axes: tuple[int, ...]
    width: int

    def shape(self, shape: Sequence[PrimExpr]) -> list[PrimExpr]:
        """The shape in memory of a buffer of that shape."""
        *others, split = (shape[axis] for axis in self.axes)
        assert isinstance(split, IntImm)
        panels = const(-(-split.value // self.width), split.dtype)
        return [panels, *others, const(self.width, split.dtype)]

    def indices(self, indices: Sequence[PrimExpr]) -> list[PrimExpr]:
        """Where the element at those indices lies."""
        *others, split = (indices[axis] for axis in self.axes)
        return [split // self.width, *others, split % self.width]

    def region(self, region: Sequence[Range]) -> list[Range]:
        """Where a region lies: whole panels, but for single elements."""
        *others, split = (region[axis] for axis in self.axes)
        one = const(1, split.min.dtype)
        if isinstance(split.extent, IntImm) and split.extent.value == 1:
            first = Range.from_min_extent(split.min // self.width, one)
            return [first, *others, Range.from_min_extent(split.min % self.width, one)]
        count = (split.extent + (2 * self.width - 2)) // self.width
        within = Range.from_min_extent(const(0, one.dtype), const(self.width, one.dtype))
        return [Range.from_min_extent(split.min // self.width, count), *others, within]

    def in_memory(self, data: np.ndarray) -> Tensor:
        """The elements of an array as they lie in memory."""
        data = data.transpose(self.axes)
        *others, extent = data.shape
        full, rest = divmod(extent, self.width)
        packed = empty((full + (rest > 0), *others, self.width), data.dtype)
        memory = np.asarray(packed)
        memory[:full] = np.moveaxis(data[..., : extent - rest].reshape(*others, full, self.width), -2, 0)
        if rest:
            memory[full, ..., :rest] = data[..., extent - rest :]
            memory[full, ..., rest:] = 0
        return packed


@dataclass(frozen=True)
class WordPanels:
    """Panels of short elements that lie in words along a sum: what dot products of bytes and of bfloat16 read.

    `axes` orders all dimensions. The last one is split into panels of `width` elements, as in `Panels`; of the one
    before it, whose extent is a multiple of `length`, the `length` elements of a word lie together.
    """

    axes: tuple[int, ...]
    width: int
    length: int

    def shape(self, shape: Sequence[PrimExpr]) -> list[PrimExpr]:
        """The shape in memory of a buffer of that shape."""
        *others, depth, split = (shape[axis] for axis in self.axes)
        assert isinstance(split, IntImm)
        panels = const(-(-split.value // self.width), split.dtype)
        return [panels, *others, depth // self.length, const(self.width, split.dtype), const(self.length, split.dtype)]

    def indices(self, indices: Sequence[PrimExpr]) -> list[PrimExpr]:
        """Where the element at those indices lies."""
        *others, depth, split = (indices[axis] for axis in self.axes)
        return [split // self.width, *others, depth // self.length, split % self.width, depth % self.length]

    def region(self, region: Sequence[Range]) -> list[Range]:
        """Where a region of single elements lies."""
        *others, depth, split = (region[axis] for axis in self.axes)
        one = const(1, split.min.dtype)
        parts = (
            split.min // self.width,
            depth.min // self.length,
            split.min % self.width,
            depth.min % self.length,
        )
        panel, word, lane, within = (Range.from_min_extent(part, one) for part in parts)
        return [panel, *others, word, lane, within]

    def in_memory(self, data: np.ndarray) -> Tensor:
        """The elements of an array as they lie in memory."""
        data = data.transpose(self.axes)
        *others, depth, extent = data.shape
        panels = -(-extent // self.width)
        whole = np.zeros((*others, depth, panels * self.width), data.dtype)
        whole[..., :extent] = data
        parts = whole.reshape(*others, depth // self.length, self.length, panels, self.width)
        return tensor(np.ascontiguousarray(np.moveaxis(np.moveaxis(parts, -2, 0), -2, -1)))


Layout = Permuted | Panels | WordPanels


def can_be_changed(func: PrimFunc) -> bool:
    """Whether all that a function does with its buffers is to load and store elements."""
    if not isinstance(func.body, BlockRealize) or func.attrs.get("tir.is_scheduled"):
        return False
    buffers = {buffer.data for buffer in func.buffer_map.values()} | {b.data for b in func.body.block.alloc_buffers}
    finder = _Opaque(buffers)
    finder(func.body)
    return not finder.found and not any(b.strides or b.axis_separators for b in func.buffer_map.values())


class _Opaque(Visitor):
    """Finds uses of memory other than loads and stores, and views of buffers."""

    def __init__(self, handles: set[Var]):
        super().__init__()
        self.handles, self.found = handles, False

    def visit_Var(self, var: Var) -> None:
        self.found = self.found or var in self.handles

    def visit_Buffer(self, buffer: Buffer) -> None:
        pass

    def visit_Block(self, block: Block) -> None:
        self.found = self.found or bool(block.match_buffers)
        self.generic_visit(block)


def relayout(func: PrimFunc, layouts: Mapping[Buffer, Layout]) -> PrimFunc:
    """The function with those of its buffers, parameters or not, in other layouts."""
    new = {
        old: decl_buffer(layout.shape(old.shape), old.dtype, old.name, scope=old.scope())
        for old, layout in layouts.items()
    }
    body = _Relayout(layouts, new)(func.body)
    assert isinstance(body, BlockRealize)
    statements = [follow_memory(stmt) for stmt in stmt_list(body.block.body)]
    block = body.block.replace(body=statements[0] if len(statements) == 1 else SeqStmt(statements))
    buffer_map = {param: new.get(buffer, buffer) for param, buffer in func.buffer_map.items()}
    return func.replace(body=body.replace(block=block), buffer_map=buffer_map)


class _Relayout(Mapper):
    def __init__(self, layouts: Mapping[Buffer, Layout], new: Mapping[Buffer, Buffer]):
        super().__init__()
        self.layouts, self.new = layouts, new

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.new.get(buffer, buffer)

    def _changes(self, node: Any) -> dict[str, Any]:
        layout = self.layouts.get(node.buffer)
        indices = [self.visit(i) for i in node.indices]
        if layout is not None:
            indices = layout.indices(indices)
        return {"buffer": self.visit(node.buffer), "indices": Array(indices)}

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        return load.replace(**self._changes(load))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        return store.replace(value=self.visit(store.value), **self._changes(store))

    def visit_BufferRegion(self, region: BufferRegion) -> Any:
        layout = self.layouts.get(region.buffer)
        if layout is None:
            return region
        return BufferRegion(self.new[region.buffer], layout.region(region.region))


def follow_memory(stmt: Stmt) -> Stmt:
    """A plain nest around one block with its loops in the order of the memory that the block writes, then of that which
    it reduces; other nests unchanged.
    """
    loops: list[For] = []
    inner = stmt
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, BlockRealize):
        return stmt
    block, values = inner.block, list(inner.iter_values)
    accesses = _StoresAndLoads()
    accesses(block.body)
    if not accesses.stores or len(values) != len(loops) or not all(map(_is_bound, values, loops)):
        return stmt
    axes = list(block.iter_vars)
    order = memory_order(accesses, axes)
    if order == list(range(len(axes))):
        return stmt
    realize = inner.replace(
        iter_values=Array(values[i] for i in order), block=block.replace(iter_vars=Array(axes[i] for i in order))
    )
    return nest([loops[i] for i in order], realize)


def _is_bound(value: PrimExpr, loop: For) -> bool:
    """Whether an axis has the values of a loop; that may be a single one."""
    return value is loop.loop_var or (as_int(loop.extent) == 1 and as_int(value) == as_int(loop.min))


class _StoresAndLoads(Visitor):
    """The stores and loads of a block's body."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: list[BufferStore] = []
        self.loads: list[BufferLoad] = []

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.stores.append(store)
        self.generic_visit(store)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.loads.append(load)
        self.generic_visit(load)


def memory_order(accesses: _StoresAndLoads, axes: Sequence[IterVar]) -> list[int]:
    """The axes in the order in which the first store uses them as indices, and then a load, where all that is loaded
    besides the results is elements of one buffer. Of those that neither uses, reduction axes come last, others first.
    """
    results = {store.buffer for store in accesses.stores}
    operands = [load for load in accesses.loads if load.buffer not in results]
    ordered = [accesses.stores[0], *(operands[:1] if len({load.buffer for load in operands}) == 1 else [])]
    place: dict[Var, tuple[int, int]] = {}
    for number, access in enumerate(ordered):
        for position, index in enumerate(access.indices):
            for var in variables(index):
                place.setdefault(var, (number, position))

    def key(i: int) -> tuple[int, int, int]:
        unused = (len(ordered), 0) if axes[i].iter_type == IterVar.CommReduce else (-1, 0)
        return (*place.get(axes[i].var, unused), i)

    return sorted(range(len(axes)), key=key)


def nest(loops: Sequence[For], body: Stmt) -> Stmt:
    """The loops around a statement, the first one outermost."""
    for loop in reversed(loops):
        body = loop.replace(body=body)
    return body
