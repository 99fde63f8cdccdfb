"""DefaultGPUSchedule: unscheduled blocks run on a GPU, with one thread for each element that they write."""

from __future__ import annotations

from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue
from ...target.target import Target
from ..expr import IterVarType
from ..function import PrimFunc
from ..schedule import BlockRV, LoopRV, Schedule
from ..stmt import BlockRealize

SCHEDULED = "tir.is_scheduled"
# The most thread blocks: with more elements than these have threads, a thread computes several.
MAX_THREAD_BLOCKS = 256


class DefaultGPUSchedule(ModulePass):
    """Gives the functions for a GPU that have no schedule one thread for each element of their blocks.

    The spatial loops of a block are fused, split by the number of threads that the target allows, and bound to
    `blockIdx.x` and `threadIdx.x`; the function gets the attribute `tir.is_scheduled`. Functions that have it, and
    those for other targets, stay as they are. Raises `InvalidValue` where no target is known, and a `ScheduleError`
    for loops that cannot be fused.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions = {v: scheduled(f) if isinstance(f, PrimFunc) else f for v, f in mod.functions.items()}
        changed = any(functions[var] is not func for var, func in mod.functions.items())
        return mod.replace(functions=functions) if changed else mod


def gpu_of(func: PrimFunc) -> Target | None:
    """The GPU that a function is compiled for, by its own target or the current one; None if that is no GPU."""
    target = func.attrs.get("target") or Target.current()
    if target is None:
        raise InvalidValue(
            "DefaultGPUSchedule needs to know the target: apply it inside of `with Target(...):`, or give the "
            "functions a target with BindTarget; found neither"
        )
    return target if "gpu" in target.keys else None


def bind_threads(sch: Schedule, block: BlockRV, max_threads: int) -> None:
    """Binds the spatial loops around a block, fused, to thread blocks and threads; unless a loop is bound already."""
    loops = sch.get_loops(block)
    if any(sch.get(loop).thread_binding is not None for loop in loops):
        return
    # A block without loops has one block variable all the same, so there may be more of these.
    kinds = [iter_var.iter_type for iter_var in sch.get(block).iter_vars]
    spatial: list[LoopRV] = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == IterVarType.DataPar] or [
        sch.add_unit_loop(loops[0] if loops else block)
    ]
    fused = sch.fuse(*spatial, preserve_unit_iters=False)
    extent = sch.get(fused).extent
    if isinstance(extent, IntImm) and extent.value <= max_threads * MAX_THREAD_BLOCKS:
        blocks, threads = sch.split(fused, [None, min(extent.value, max_threads)])
    else:
        rest, blocks, threads = sch.split(fused, [None, MAX_THREAD_BLOCKS, max_threads])
        sch.reorder(blocks, threads, rest)
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")


def leaves(sch: Schedule, block: BlockRV) -> list[BlockRV]:
    """The blocks below a block that have no blocks in them."""
    found: list[BlockRV] = []
    for child in sch.get_child_blocks(block):
        found += leaves(sch, child) or [child]
    return found


def scheduled(func: PrimFunc) -> PrimFunc:
    """The function with the threads of a GPU, and marked; unchanged where it is marked or for no GPU."""
    if func.attrs.get(SCHEDULED) or (gpu := gpu_of(func)) is None:
        return func
    if isinstance(func.body, BlockRealize):
        sch = Schedule(func)
        for block in leaves(sch, sch.get_block(func.body.block.name_hint)):
            bind_threads(sch, block, gpu.max_num_threads)
        (func,) = (f for f in sch.mod.functions.values() if isinstance(f, PrimFunc))
    return func.with_attr(SCHEDULED, True)
