"""Transformations made of several primitives.

sch = Schedule(matmul)
loop = tile_with_tensor_intrin(sch, sch.get_block("C"), "dot_16x16")
sch.tensorize(loop, "dot_16x16")
"""

from __future__ import annotations

from ..function import TensorIntrin
from .analysis import get_tensorize_loop_mapping, is_output_block
from .random_variable import BlockRV, LoopRV
from .schedule import Schedule


def tile_with_tensor_intrin(
    sch: Schedule, block: BlockRV, intrin_name: str, allow_padding: bool = False
) -> LoopRV | None:
    """Splits the loops around a block by the extents of a registered intrinsic, and moves the tile innermost.

    The result is the outermost loop of the tile, which can be tensorized; None if the block does not match the
    intrinsic's description, and then nothing changes. With `allow_padding`, extents that the intrinsic's do not divide
    are padded; the copies of padded buffers are inlined, except that into a result. Raises for an unknown intrinsic.
    """
    intrin = TensorIntrin.get(intrin_name)
    assert intrin is not None
    info = get_tensorize_loop_mapping(sch, block, intrin.desc, allow_padding)
    if info is not None and info.block_iter_paddings is not None:
        _pad(sch, block, info.block_iter_paddings)
        info = get_tensorize_loop_mapping(sch, block, intrin.desc)
    if info is None or not info.loop_map:
        return None
    order: list[LoopRV] = []
    tile: dict[int, LoopRV] = {}
    for loop in sch.get_loops(block):
        desc_loop = info.loop_map.get(sch.get_sref(loop))
        if desc_loop is None:
            order.append(loop)
            continue
        outer, inner = sch.split(loop, [None, desc_loop.extent])
        order.append(outer)
        tile[info.desc_loop_indexer[desc_loop]] = inner
    order += [tile[i] for i in sorted(tile)]
    sch.reorder(*order)
    return tile[min(tile)]


def _pad(sch: Schedule, block: BlockRV, padding: list[int]) -> None:
    """Pads the block; copies into and out of padded buffers are computed where they are read."""
    producers = {sch.get_sref(b) for b in sch.get_producers(block)}
    consumers = {sch.get_sref(b) for b in sch.get_consumers(block)}
    sch.pad_einsum(block, padding)
    for producer in sch.get_producers(block):
        if sch.get_sref(producer) not in producers:
            sch.compute_inline(producer)
    for consumer in sch.get_consumers(block):
        if sch.get_sref(consumer) not in consumers and not is_output_block(sch, consumer):
            sch.compute_inline(consumer)
