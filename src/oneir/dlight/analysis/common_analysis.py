"""Blocks as rules see them: one loop for each axis, each of a kind; and what blocks access."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from ...arith.iter_map import is_number
from ...ir.expr import IntImm, PrimExpr, Var, const
from ...runtime.error import InvalidValue, ScheduleError
from ...target.target import Target
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.index_map import IndexMap
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.schedule.conditions import is_reduction
from ...tir.schedule.domain import domain_of
from ...tir.stmt import Block, BlockRealize, BufferRegion
from .access import (
    collect_block_iter_vars_used_in_access_region,
    collect_vars_used_in_prim_expr,
    detect_dominant_read,
    dominant_access,
)
from .gemm import detect_iter_traits
from .gemv import is_gemv

__all__ = [
    "BlockInfo",
    "IterInfo",
    "collect_block_iter_vars_used_in_access_region",
    "collect_vars_used_in_prim_expr",
    "detect_dominant_read",
    "dominant_access",
    "get_block_info",
    "get_max_shared_memory_per_block",
    "get_max_threads_per_block",
    "get_root_block",
    "is_broadcast_epilogue",
    "normalize_prim_func",
]

AxisKind = Literal["S", "R", "O"]
"""Spatial, reduction, other."""

_KINDS: dict[int, AxisKind] = {IterVar.DataPar: "S", IterVar.CommReduce: "R"}


class IterInfo:
    """An axis of a block: its kind, the block's variable, its extent, and the loop that runs over it."""

    __slots__ = ("_dom", "kind", "loop_rv", "var")

    def __init__(self, kind: AxisKind, var: Var, dom: PrimExpr, loop_rv: LoopRV):
        self.kind: AxisKind = kind
        self.var = var
        self._dom = dom
        self.loop_rv = loop_rv

    @property
    def dom(self) -> int | PrimExpr:
        """The extent, a Python int where it is a number."""
        return self._dom.value if isinstance(self._dom, IntImm) else self._dom

    def __repr__(self) -> str:
        return f'Iter("{self.kind}", {self.dom})'


class BlockInfo:
    """A block and its axes."""

    __slots__ = ("_reduction_block", "block_rv", "iters", "name")

    def __init__(self, name: str, iters: list[IterInfo], block_rv: BlockRV, reduction_block: bool = False):
        self.name = name
        self.iters = iters
        self.block_rv = block_rv
        self._reduction_block = reduction_block

    def dom(self) -> list[int | PrimExpr]:
        """The extents of the axes."""
        return [i.dom for i in self.iters]

    def dom_kind(self) -> str:
        """The kinds of the axes, as in `SSR`."""
        return "".join(i.kind for i in self.iters)

    def is_injective(self) -> bool:
        """Whether all axes are spatial."""
        return all(i.kind == "S" for i in self.iters)

    def is_elementwise(self, sch: Schedule) -> bool:
        """Whether each element comes from the one at the same place of the one tensor that is read."""
        block = sch.get(self.block_rv)
        if not self.is_injective() or len(block.reads) != 1 or len(block.writes) != 1:
            return False
        return all(_is_identity(block, region) for region in (block.reads[0], block.writes[0]))

    def is_reduction(self) -> bool:
        """Whether the block is a reduction: has an init, and is the only writer of its result."""
        return self._reduction_block

    def is_gemv(self, sch: Schedule) -> bool:
        """Whether the block multiplies a matrix by a vector, or several by several."""
        return is_gemv(sch, self) is not None

    def is_gemm(self, sch: Schedule) -> bool:
        """Whether the block multiplies a matrix by a matrix, or several by several."""
        return self.is_reduction() and detect_iter_traits(sch.get(self.block_rv)) is not None

    def __repr__(self) -> str:
        return f'BlockInfo("{self.name}", "{self.dom_kind()}", {self.dom()})'


def _is_identity(block: Block, access: BufferRegion) -> bool:
    """Whether a block accesses a single element, indexed by its own variables in order."""
    return len(access.region) == len(block.iter_vars) and all(
        r.min.same_as(iv.var) and is_number(r.extent, 1) for iv, r in zip(block.iter_vars, access.region, strict=True)
    )


def normalize_prim_func(sch: Schedule) -> list[BlockInfo] | None:
    """Normalizes the innermost blocks of the function worked on, and describes them.

    Axes of extent 1 are removed, and a block without a spatial axis first gets one, of extent 1; a block that has no
    loops, or shares them with another block, stays as it is. None where the axes of some block are not its loops, one
    for one and from 0. Raises `InvalidValue` for a module of several functions before `work_on`.
    """
    if sch.func_working_on is None:
        raise InvalidValue("the module has several functions: call work_on before")
    func = sch.mod[sch.func_working_on]
    if not isinstance(func, PrimFunc) or not isinstance(func.body, BlockRealize):
        return None
    root = sch.get_block(func.body.block.name_hint)
    blocks = _innermost(sch, root)
    if not all(_is_plain(sch, block) for block in blocks):
        return None
    scope = sch.get_sref(root)
    found = []
    for handle in blocks:
        _drop_unit_axes(sch, handle)
        reduces = is_reduction(sch.state, sch.get_sref(handle), scope)
        found.append(BlockInfo(sch.get(handle).name_hint, _axes(sch, handle), handle, reduces))
    return found


def get_block_info(sch: Schedule, block: BlockRV) -> BlockInfo:
    """A block with the loops around it as its axes, in order; it reduces if one of them does."""
    axes = _axes(sch, block)
    return BlockInfo(sch.get(block).name_hint, axes, block, any(axis.kind == "R" for axis in axes))


def _axes(sch: Schedule, block: BlockRV) -> list[IterInfo]:
    """The axes of a block that has a loop for each, or no loops and so no axes."""
    return [
        IterInfo(_KINDS.get(iv.iter_type, "O"), iv.var, domain_of(iv).extent, loop)
        for iv, loop in zip(sch.get(block).iter_vars, sch.get_loops(block), strict=False)
    ]


def _innermost(sch: Schedule, block: BlockRV) -> list[BlockRV]:
    """The blocks inside of a block that have none inside."""
    inner = sch.get_child_blocks(block)
    return [found for child in inner for found in _innermost(sch, child)] if inner else [block]


def _is_plain(sch: Schedule, handle: BlockRV) -> bool:
    """Whether a block's axes are its loops, in order and from 0. A block without loops is plain as well."""
    loops = [sch.get(loop) for loop in sch.get_loops(handle)]
    if not loops:
        return True
    values = sch.state.realize_of(sch.get_sref(handle)).iter_values
    return len(loops) == len(values) and all(
        value.same_as(loop.loop_var) and is_number(loop.min, 0) for loop, value in zip(loops, values, strict=True)
    )


def _drop_unit_axes(sch: Schedule, handle: BlockRV) -> None:
    if not sch.get_loops(handle):
        return
    axes = sch.get(handle).iter_vars
    inputs = [Var(iv.var.name, iv.var.dtype) for iv in axes]
    kept = [(var, iv) for var, iv in zip(inputs, axes, strict=True) if not is_number(domain_of(iv).extent, 1)]
    outputs: list[PrimExpr] = [var for var, _ in kept]
    if not any(iv.iter_type == IterVar.DataPar for _, iv in kept):
        outputs.insert(0, const(0, "int64"))
    with suppress(ScheduleError):
        sch.transform_block_layout(handle, IndexMap(inputs, outputs, None))


def get_root_block(sch: Schedule, func_name: str = "main") -> BlockRV:
    """The root block of a function. Raises `InvalidValue` where there is none."""
    func = sch.mod[func_name]
    if not isinstance(func, PrimFunc) or not isinstance(func.body, BlockRealize):
        raise InvalidValue(f"expected `{func_name}` to be one block, the root; found {func}")
    return sch.get_block(func.body.block.name_hint, func_name)


def is_broadcast_epilogue(sch: Schedule, block: BlockRV, epilogue: BlockRV) -> bool:
    """Whether a block uses an element of the result of another one for several elements of its own."""
    written = {region.buffer for region in sch.get(block).writes}
    consumer = sch.get(epilogue)
    return any(
        len(collect_block_iter_vars_used_in_access_region(consumer, read.region)) < len(consumer.iter_vars)
        for read in consumer.reads
        if read.buffer in written
    )


def get_max_threads_per_block(target: Target) -> int:
    """The most threads in a block of a GPU; 64 where the target does not say. Raises `InvalidValue` for no GPU."""
    _check_gpu(target)
    for name in ("max_threads_per_block", "max_num_threads"):
        if target.attrs.get(name) is not None:
            return int(target.attrs[name])
    return 64


def get_max_shared_memory_per_block(target: Target) -> int:
    """Bytes that the threads of a block share. Raises `InvalidValue` for no GPU, and where the target does not say."""
    _check_gpu(target)
    size = target.attrs.get("max_shared_memory_per_block")
    if size is None:
        raise InvalidValue(f"{target} does not say max_shared_memory_per_block: give the target that attribute")
    return int(size)


def _check_gpu(target: Target) -> None:
    if "gpu" not in target.keys:
        raise InvalidValue(f"expected a GPU as the target; found {target}")
