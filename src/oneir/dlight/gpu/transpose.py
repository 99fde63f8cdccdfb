"""Transpose: a tile goes through shared memory, so that loads and stores both coalesce."""

from __future__ import annotations

from ...ir.expr import IntImm, Var
from ...target.target import Target
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, Schedule
from ...tir.stmt import BufferStore
from ..analysis import dominant_access, normalize_prim_func
from ..base.common_schedules import try_inline_contiguous_spatial
from .base import GPUScheduleRule, unroll_explicitly

_VECTOR = 4
# Threads along both axes and steps to unroll, by the kind of target; (8, 4, 64) elsewhere.
_SIZES = {"cuda": (16, 8, 256), "opencl": (16, 8, 64)}


class Transpose(GPUScheduleRule):
    """A matrix whose axes are exchanged, and what computes it elementwise."""

    def is_transpose(self, sch: Schedule, block_rv: BlockRV) -> bool:
        """Whether a block copies elements to places with the same indices in another order."""
        store = sch.get(block_rv).body
        if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
            return False
        to, of = list(store.indices), list(store.value.indices)
        if not all(isinstance(index, Var) for index in [*to, *of]):
            return False
        return len(to) == len(of) and set(to) == set(of) and any(a is not b for a, b in zip(to, of, strict=True))

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        tx_size, ty_size, unroll = _SIZES.get(target.kind.name, (8, 4, 64))
        sch = Schedule(func)
        infos = normalize_prim_func(sch)
        if infos is None:
            return None
        at = next((i for i in reversed(range(len(infos))) if self.is_transpose(sch, infos[i].block_rv)), None)
        if at is None or not all(info.is_injective() for info in infos):
            return None
        block = infos[at].block_rv
        loops = sch.get_loops(block)
        if len(loops) != 2 or try_inline_contiguous_spatial(sch, infos[: max(at - 1, 0)]):
            return None
        prologue = infos[at - 1].block_rv if at else None
        group = 1 if prologue is None else _group(sch, prologue)
        i, vi = sch.split(loops[0], [None, group])
        bi, ti = sch.split(i, [None, ty_size])
        bj, tj = sch.split(loops[1], [None, tx_size])
        sch.reorder(bi, bj, ti, tj, vi)
        for loop, axis in ((bi, "blockIdx.y"), (bj, "blockIdx.x"), (ti, "threadIdx.y"), (tj, "threadIdx.x")):
            sch.bind(loop, axis)
        width = min(_VECTOR, group)
        _, vi = sch.split(vi, [None, width])
        if width > 1:
            sch.vectorize(vi)
        tile = sch.cache_read(block, 0, "shared")
        sch.compute_at(tile, bj)
        _, ty, tx, v = sch.split(sch.fuse(*sch.get_loops(tile)[2:]), [None, ty_size, tx_size, group])
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        sch.unroll(v)
        # An odd stride, so that the threads that read a column meet different banks.
        sch.storage_align(tile, 0, axis=0, factor=32, offset=1)
        unroll_explicitly(sch, bi, unroll)
        if prologue is not None:
            sch.compute_inline(prologue)
        return sch


def _group(sch: Schedule, prologue: BlockRV) -> int:
    """How many elements of a result are unpacked from one element that is read."""
    block = sch.get(prologue)
    if not block.reads:
        return 1
    parts = dominant_access(block).args
    return parts[0].lower_factor.value if parts and isinstance(parts[0].lower_factor, IntImm) else 1
