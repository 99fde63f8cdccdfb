"""In which layouts a PrimFunc would access its buffers in order, if its outputs had given ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...arith.iter_affine_map import detect_iter_map
from ...arith.iter_map import IterMapLevel, IterSplitExpr, IterSumExpr
from ...ir.container import same_objects
from ...ir.expr import PrimExpr, Range, Var
from ...ir.visitor import Visitor
from ...runtime.error import InvalidValue, TypeMismatch
from ...tir.analysis import undefined_vars
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.index_map import IndexMap
from ...tir.stmt import Block, BufferStore

Spatial = list[Var | None]
"""For each dimension of a buffer, the one variable of a block that moves along it, or None."""


def suggest_layout_transforms(
    func: PrimFunc, write_buffer_transforms: Sequence[IndexMap | Callable[..., Any]]
) -> dict[Block, dict[Block | Buffer, IndexMap]]:
    """For each block, how its loops and the buffers that it accesses should be laid out.

    `write_buffer_transforms` are the layouts of the last parameters, the outputs. A block is left out if it is too
    complex: if it writes several buffers, or one out of order, or holds other blocks. A buffer that it reads is left
    out if it is not always indexed alike, in order; the proposal of the block that comes first holds.
    """
    maps = [t if isinstance(t, IndexMap) else IndexMap.from_func(t) for t in map(_checked, write_buffer_transforms)]
    if not maps:
        return {}
    if len(maps) > len(func.params):
        raise InvalidValue(f"expected at most {len(func.params)} layouts, one for a parameter, found {len(maps)}")
    known: dict[Buffer, IndexMap] = {}
    for param, index_map in zip(func.params[len(func.params) - len(maps) :], maps, strict=True):
        buffer = func.buffer_map.get(param)
        if buffer is None or len(buffer.shape) != len(index_map.initial_indices):
            found = "no buffer" if buffer is None else f"{len(buffer.shape)} dimensions"
            raise InvalidValue(
                f"the layout of the parameter `{param.name}` takes {len(index_map.initial_indices)} indices; "
                f"the parameter has {found}"
            )
        known[buffer] = index_map
    search = _Blocks(known)
    search(func.body)
    return search.found


def _checked(transform: Any) -> Any:
    if not isinstance(transform, IndexMap) and not callable(transform):
        raise TypeMismatch(f"a layout is an IndexMap or a function of the indices, found {transform!r}")
    return transform


class _Blocks(Visitor):
    """Goes through the blocks in order; what one proposes for a buffer holds for those after it."""

    def __init__(self, known: dict[Buffer, IndexMap]):
        super().__init__()
        self.known = known
        self.found: dict[Block, dict[Block | Buffer, IndexMap]] = {}

    def visit_Block(self, block: Block) -> None:
        if block.name_hint == "root":
            self.generic_visit(block)
            return
        index_map = self.known.get(block.writes[0].buffer) if len(block.writes) == 1 else None
        proposal = None if index_map is None else _proposal(block, index_map)
        if proposal is None or index_map is None:
            return
        loops, buffers = proposal
        result: dict[Block | Buffer, IndexMap] = {block: loops, block.writes[0].buffer: index_map}
        for buffer, layout in buffers.items():
            if buffer not in self.known:
                self.known[buffer] = result[buffer] = layout
        self.found[block] = result


def _proposal(block: Block, index_map: IndexMap) -> tuple[IndexMap, dict[Buffer, IndexMap]] | None:
    """The layouts of a block's loops and of what it reads; None if it cannot be told."""
    kinds = {iter_var.iter_type for iter_var in block.iter_vars}
    if not kinds <= {IterVar.DataPar, IterVar.CommReduce}:
        return None
    accesses = _Accesses(block)
    accesses(block.body)
    order = {iter_var.var: i for i, iter_var in enumerate(block.iter_vars)}
    written = accesses.layouts.get(block.writes[0].buffer)
    if accesses.complex or written is None or None in written or not _in_order(written, order):
        return None
    outputs = [var for var in written if var is not None]
    loops = _follow(outputs, index_map, list(order))
    if loops is None or not _is_bijective(loops, [iter_var.dom for iter_var in block.iter_vars]):
        return None
    buffers: dict[Buffer, IndexMap] = {}
    for region in block.reads:
        layout = accesses.layouts.get(region.buffer)
        if layout is None or not _in_order(layout, order):
            continue
        follows = _follow(outputs, index_map, layout)
        if follows is not None:
            buffers[region.buffer] = follows
    return loops, buffers


class _Accesses(Visitor):
    """How a block indexes each buffer; None for one that it indexes in several ways, or in none of the known form."""

    def __init__(self, block: Block):
        super().__init__()
        self.domains: Mapping[Var, Range] = {
            i.var: i.dom for i in block.iter_vars if i.iter_type == IterVar.DataPar and i.dom is not None
        }
        self.written = block.writes[0].buffer
        self.layouts: dict[Buffer, Spatial | None] = {}
        self.complex = False

    def visit_Block(self, block: Block) -> None:
        self.complex = True

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.generic_visit(store)
        self.complex = self.complex or store.buffer is not self.written
        self._note(store.buffer, store.indices)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._note(load.buffer, load.indices)

    def _note(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> None:
        layout = self._layout(indices)
        if buffer in self.layouts:
            known = self.layouts[buffer]
            same = layout is not None and known is not None and same_objects(layout, known)
            layout = layout if same else None
        self.layouts[buffer] = layout

    def _layout(self, indices: Sequence[PrimExpr]) -> Spatial | None:
        sums = detect_iter_map(indices, self.domains, True, IterMapLevel.NoCheck).indices
        if not sums:
            return None
        variables = [_iterators(index) for index in sums]
        return None if any(len(v) > 1 for v in variables) else [v[0] if v else None for v in variables]


def _iterators(index: PrimExpr) -> list[Var]:
    """The variables that run in an index."""
    if isinstance(index, IterSumExpr):
        return [var for part in index.args for var in _iterators(part)]
    if isinstance(index, IterSplitExpr):
        source = index.source.source
        return [source] if isinstance(source, Var) else _iterators(source)
    return []


def _in_order(layout: Spatial, order: Mapping[Var, int]) -> bool:
    """Whether the dimensions of a buffer are walked in the order of the block's variables."""
    places = [order[var] for var in layout if var is not None]
    return all(a < b for a, b in pairwise(places))


def _follow(source: Sequence[Var], index_map: IndexMap, target: Sequence[Var | None]) -> IndexMap | None:
    """What a layout of dimensions along `source` means for dimensions along `target`.

    Dimensions that `target` lacks go, with the final indices that only they are in; those that `source` lacks stay
    whole, in their places. None where a final index needs a dimension that went together with one that stays.
    """
    initial = [i for i, var in zip(index_map.initial_indices, source, strict=True) if var in target]
    final: list[PrimExpr] = []
    for index in index_map.final_indices:
        used = undefined_vars(index)
        if all(var in initial for var in used):
            final.append(index)
        elif any(var in initial for var in used):
            return None
    dtype = index_map.initial_indices[0].dtype
    for place, var in enumerate(target):
        if var is None or var not in source:
            new = Var("d", dtype)
            initial.insert(place, new)
            final.insert(min(place, len(final)), new)
    return IndexMap(initial, final)


def _is_bijective(index_map: IndexMap, domains: Sequence[Any]) -> bool:
    """Whether different indices, out of ranges, stay different and fill the final ranges."""
    ranges = dict(zip(index_map.initial_indices, domains, strict=True))
    return bool(detect_iter_map(index_map.final_indices, ranges, True, IterMapLevel.Bijective).indices)
