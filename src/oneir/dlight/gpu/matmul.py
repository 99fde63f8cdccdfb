"""Matrix by matrix: tiles of both in shared memory, a small tile of the result in the registers of each thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...arith.iter_map import is_number
from ...ir.expr import PrimExpr, Var
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, Schedule
from ...tir.stmt import Block, BufferRegion
from ..analysis import get_block_info, get_root_block
from ..analysis.gemm import (
    IterKind,
    IterTrait,
    detect_iter_traits,
    get_in_out_dtypes,
    get_index_map,
    get_reduction_blocks,
    make_iter_fusion_index_map,
)
from .base import GPUScheduleRule, unroll_explicitly
from .inlining import auto_inline_consumer_chain, auto_inline_consumers, auto_inline_producers
from .matmul_packed_rows import MatmulPackedRows
from .matrix_vector import is_adreno

__all__ = [
    "IterKind",
    "IterTrait",
    "Matmul",
    "auto_inline_consumer_chain",
    "auto_inline_consumers",
    "auto_inline_producers",
    "check_sm_version",
    "detect_iter_traits",
    "get_block_info",
    "get_in_out_dtypes",
    "get_index_map",
    "get_reduction_blocks",
    "make_iter_fusion_index_map",
]


_S, _I, _J, _K, _ = IterKind
_SIK, _SJK, _SIJ = (_S, _I, _K), (_S, _J, _K), (_S, _I, _J)


def check_sm_version(arch: str) -> int:
    """The number of an architecture of CUDA, as 80 of `sm_80`; -1 for another text."""
    version = arch.replace("sm_", "")
    return int(version) if version.isdigit() else -1


class Matmul(GPUScheduleRule):
    """Any sum of products of two tensors, with axes of both, of each and of the sum: several of a kind are fused.

    Extents are padded to whole tiles; what computes the factors goes into the loads of their tiles, and what is
    computed from the result into its stores.
    """

    @dataclass
    class Config:
        """Sizes of tiles: threads of a block, virtual threads, elements of each, along `x` and `y`."""

        block_size_x: int = 8
        block_size_y: int = 8
        vthread_x: int = 1
        vthread_y: int = 1
        micro_size_x: int = 4
        micro_size_y: int = 4
        micro_size_k: int = 8
        vector_size: int = 1
        unroll: int = 256
        use_shared: bool = True
        storage_align: bool = False
        inner_x: bool = False

    def get_configs(self, target: Target) -> Config:
        """The sizes for a target."""
        if target.kind.name in ("cuda", "rocm"):
            return Matmul.Config(block_size_y=16, micro_size_k=16, vector_size=2, storage_align=True)
        if is_adreno(target):
            return Matmul.Config(
                block_size_x=32,
                block_size_y=4,
                micro_size_x=8,
                micro_size_y=2,
                micro_size_k=16,
                vector_size=8,
                unroll=16,
                use_shared=False,
                inner_x=True,
            )
        return Matmul.Config()

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        blocks = sch.get_child_blocks(get_root_block(sch))
        found = get_reduction_blocks(sch, blocks)
        if found is None or get_index_map(sch.get(found[0])) is None:
            return None
        (block,) = found
        packed = MatmulPackedRows().apply(func, target)
        if packed is not None:
            return packed
        if not as_batched_product(sch, block):
            return None
        return self.tiled(sch, block, self.get_configs(target))

    def tiled(self, sch: Schedule, block: BlockRV, config: Config) -> Schedule | None:
        """Tiles a product with the axes `SIJK`."""
        y_size = config.vthread_y * config.block_size_y * config.micro_size_y
        x_size = config.vthread_x * config.block_size_x * config.micro_size_x
        sizes = [y_size, x_size] if config.inner_x else [x_size, y_size]
        sch.pad_einsum(block, [1, *sizes, config.micro_size_k])
        batch, i, j, k = sch.get_loops(block)
        x, y = (j, i) if config.inner_x else (i, j)
        by, vy, ty, yi = sch.split(y, [None, config.vthread_y, config.block_size_y, config.micro_size_y])
        bx, vx, tx, xi = sch.split(x, [None, config.vthread_x, config.block_size_x, config.micro_size_x])
        ko, ki = sch.split(k, [None, config.micro_size_k])
        inner = [yi, xi] if config.inner_x else [xi, yi]
        sch.reorder(by, bx, vy, vx, ty, tx, ko, ki, *inner)
        for loop, axis in (
            (bx, "blockIdx.x"),
            (sch.fuse(batch, by), "blockIdx.y"),
            (vy, "vthread.y"),
            (vx, "vthread.x"),
            (ty, "threadIdx.y"),
            (tx, "threadIdx.x"),
        ):
            sch.bind(loop, axis)
        if (config.micro_size_x if config.inner_x else config.micro_size_y) % config.vector_size == 0:
            sch.vectorize(sch.split(inner[-1], [None, config.vector_size])[-1])
        if config.unroll > 0:
            unroll_explicitly(sch, tx, config.unroll)
        result = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(result, tx, preserve_unit_loops=True)
        if config.micro_size_x % config.vector_size == 0:
            sch.vectorize(sch.split(sch.get_loops(result)[-1], [None, config.vector_size])[-1])
        if config.use_shared:
            tiles = []
            for position in range(2):
                tile = sch.cache_read(block, position, "shared")
                loops = len(sch.get_loops(tile))
                sch.compute_at(tile, ko, preserve_unit_loops=True)
                fused = sch.fuse(*sch.get_loops(tile)[-loops:])
                ty, tx, _, v = sch.split(fused, [config.block_size_y, config.block_size_x, None, config.vector_size])
                sch.vectorize(v)
                sch.bind(ty, "threadIdx.y")
                sch.bind(tx, "threadIdx.x")
                if config.storage_align:
                    sch.storage_align(tile, 0, axis=1, factor=8, offset=config.vector_size)
                tiles.append(tile)
        else:
            tiles = [block]
        for tile in tiles:
            auto_inline_producers(sch, tile)
        if not auto_inline_consumer_chain(sch, result):
            return None
        sch.decompose_reduction(block, ko)
        return sch


def across_sum(product: Block) -> tuple[bool, bool] | None:
    """Whether each factor lies in memory across the sum, as its innermost index says; None for what is no product."""
    of_sum = axes_of(product, _K)
    if not of_sum:
        return None
    a, b = map(innermost_index, product.reads)
    return a not in of_sum, b not in of_sum


def axes_of(product: Block, kind: IterKind) -> set[Var]:
    """The axes of a kind of a product; none of what is no product."""
    traits = detect_iter_traits(product)
    axes = [] if traits is None else zip(product.iter_vars, traits[3], strict=True)
    return {iv.var for iv, trait in axes if trait.kind is kind}


def innermost_index(region: BufferRegion) -> PrimExpr | None:
    """The index of neighbours in memory: that of the last dimension that has several elements; None if none has."""
    dimensions = zip(reversed(region.region), reversed(region.buffer.shape), strict=True)
    return next((place.min for place, size in dimensions if not is_number(size, 1)), None)


def as_batched_product(
    sch: Schedule,
    block: BlockRV,
    a_order: Sequence[IterKind] = _SIK,
    b_order: Sequence[IterKind] = _SJK,
    c_order: Sequence[IterKind] = _SIJ,
) -> bool:
    """Brings a product into the form `C[S, I, J] += A[S, I, K] * B[S, J, K]`; says whether it has that form.

    `a_order`, `b_order` and `c_order` are the orders of the axes of A, B and C; the loops are those of C, then K.
    """
    a = sch.reindex(block, ("read", 0))
    b = sch.reindex(block, ("read", 1))
    c = sch.reindex(block, ("write", 0))
    traits = detect_iter_traits(sch.get(block))
    if traits is None:
        return False
    of_a, of_b, of_c, of_block = traits
    sch.transform_layout(a, ("write", 0), make_iter_fusion_index_map(of_a, a_order))
    sch.transform_layout(b, ("write", 0), make_iter_fusion_index_map(of_b, b_order))
    sch.transform_layout(c, ("read", 0), make_iter_fusion_index_map(of_c, c_order))
    sch.transform_block_layout(block, make_iter_fusion_index_map(of_block, (*c_order, _K)))
    return True
