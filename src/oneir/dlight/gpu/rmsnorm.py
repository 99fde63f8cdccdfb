"""RMS norm: rows in registers, read once and written once, eight elements at a time."""

from __future__ import annotations

from ...ir.op import Op
from ...target.target import Target
from ...tir.expr import BufferLoad, Call, Cast
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import Block, BufferStore
from ..analysis import get_root_block
from .base import GPUScheduleRule

# Threads of a block, by the kind of target; 64 elsewhere.
_THREADS = {"cuda": 512, "opencl": 256}
_VECTOR = 8


class RMSNorm(GPUScheduleRule):
    """Squares, their sum, the inverse of its root, and the product with it, each in a block of its own."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        threads = _THREADS.get(target.kind.name, 64)
        sch = Schedule(func)
        root = get_root_block(sch)
        blocks = sch.get_child_blocks(root)
        if not any(identify_rsqrt_block(sch.get(block)) for block in blocks):
            return None
        sch.cache_read(blocks[0], 0, "local")
        sch.cache_write(blocks[-1], 0, "local")
        for block in blocks:
            if identify_cast_or_load_block(sch.get(block)):
                sch.compute_inline(block)
        blocks = sch.get_child_blocks(root)
        if len(blocks) != 6 or not identify_rsqrt_block(sch.get(blocks[3])):
            return None
        read, square, total, rsqrt, norm, write = blocks
        for block in blocks:
            if outer := sch.get_loops(block)[:-1]:
                sch.fuse(*outer)
        bx, row = sch.get_loops(read)
        tx, _, v = sch.split(row, [threads, None, _VECTOR])
        sch.bind(bx, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(v)
        sch.reverse_compute_at(square, tx)
        sch.reverse_compute_at(total, tx)
        sch.reverse_compute_at(rsqrt, bx, index=-1)
        sch.reverse_compute_at(norm, bx, index=-1)
        bx, row = sch.get_loops(norm)
        tx, _, _ = sch.split(row, [threads, None, _VECTOR])
        sch.bind(tx, "threadIdx.x")
        sch.reverse_compute_at(write, tx, index=-1)
        sch.vectorize(sch.get_loops(write)[-1])
        for block, scope in ((square, "local"), (total, "local"), (rsqrt, "shared"), (norm, "local")):
            sch.set_scope(block, 0, scope)
        return sch


def identify_cast_or_load_block(block: Block) -> bool:
    """Whether a block copies elements to the same places, perhaps in another dtype."""
    store = block.body
    if len(block.reads) != 1 or len(block.writes) != 1 or not isinstance(store, BufferStore):
        return False
    load = store.value.value if isinstance(store.value, Cast) else store.value
    if not isinstance(load, BufferLoad) or len(load.indices) != len(store.indices):
        return False
    return all(a.same_as(b) for a, b in zip(load.indices, store.indices, strict=True))


def identify_rsqrt_block(block: Block) -> bool:
    """Whether a block stores inverse square roots."""
    store = block.body
    if len(block.reads) != 1 or len(block.writes) != 1 or not isinstance(store, BufferStore):
        return False
    return isinstance(store.value, Call) and store.value.op is Op.get("tir.rsqrt")
