"""Blocks without blocks inside, in plain loop nests: what schedule rules of all targets look at first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...ir.expr import FloorDiv, FloorMod, Mul, PrimExpr, as_int
from ...ir.visitor import Visitor
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.stmt import Block, BufferStore, For, ForKind
from ...tir.transform.simplify import SimplifyConfig, simplify


@dataclass(slots=True)
class Leaf:
    """A block without blocks inside: its handle, the block, and the loops around it, each bound to one variable."""

    handle: BlockRV
    block: Block
    loops: list[LoopRV]
    extents: list[int | None]
    work: int
    """The product of the extents of the loops, as `likely_extent` has them."""

    @property
    def reduces(self) -> bool:
        """Whether it has reduction axes."""
        return reduces(self.block)


def likely_extent(extent: PrimExpr) -> int:
    """An extent; 64 for each symbolic factor of one that is not known."""
    known = as_int(extent)
    if known is None and isinstance(extent, Mul):
        return likely_extent(extent.a) * likely_extent(extent.b)
    return 64 if known is None else known


def reduces(block: Block) -> bool:
    """Whether a block has reduction axes."""
    return any(iv.iter_type == IterVar.CommReduce for iv in block.iter_vars)


def is_copy(block: Block) -> bool:
    """Whether a block stores elements as it loads them."""
    return isinstance(block.body, BufferStore) and isinstance(block.body.value, BufferLoad)


def leaves(sch: Schedule) -> list[Leaf] | None:
    """The blocks of a function in order; None for one that is not a sequence of plain loop nests around blocks."""
    root = sch.get_block("root")
    found = []
    for handle in sch.get_child_blocks(root):
        block = sch.get(handle)
        loops = sch.get_loops(handle)
        nodes = [sch.get(loop) for loop in loops]
        if sch.state.child_blocks(sch.get_sref(handle)) or not is_plain(block, nodes):
            return None
        if any(as_int(node.extent) == 0 for node in nodes):
            return None  # nothing is computed
        work = math.prod(likely_extent(node.extent) for node in nodes)
        found.append(Leaf(handle, block, loops, [as_int(node.extent) for node in nodes], work))
    return found


@lru_cache(maxsize=1)
def leaves_of(func: PrimFunc) -> list[Leaf] | None:
    """The leaves of a function as it stands, found once for all rules that look whether it is for them.

    They are of a schedule that nobody changes, nor the list: whoever schedules the function makes his own.
    """
    return leaves(Schedule(func))


def is_plain(block: Block, loops: Sequence[For]) -> bool:
    """Whether the loops of a block are unscheduled: serial, without annotations, one for each axis."""
    if any(loop.kind != ForKind.SERIAL or loop.annotations for loop in loops):
        return False
    return len(block.iter_vars) == len(loops)


def extent_of(axis: IterVar) -> PrimExpr:
    """The extent of a block's axis."""
    assert axis.dom is not None
    return axis.dom.extent


class _Divides(Visitor):
    """Whether an expression has divisions, as the indices of reshaped buffers do."""

    found = False

    def visit_FloorDiv(self, node: FloorDiv | FloorMod) -> None:
        self.found = True

    visit_FloorMod = visit_FloorDiv


def plain_schedule(func: PrimFunc) -> Schedule:
    """A schedule of the function with the indices simplified that reshaping left, and a loop for each axis.

    The block of a scalar has an axis of one value, 0, without a loop.
    """
    divides = _Divides()
    divides(func.body)
    sch = Schedule(simplify(func, SimplifyConfig()) if divides.found else func)
    for handle in sch.get_child_blocks(sch.get_block("root")):
        if len(sch.get(handle).iter_vars) == 1 and not sch.get_loops(handle):
            sch.transform_block_layout(handle, lambda axis: [axis])
    return sch
