"""Matrix by matrix on tensor cores: tiles in shared memory, copied while those before them are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ..analysis import get_root_block
from ..analysis.gemm import IterKind, get_reduction_blocks
from .base import GPUScheduleRule
from .inlining import auto_inline_consumer_chain, auto_inline_producers
from .matmul import across_sum, as_batched_product, check_sm_version

_WARP_SIZE = 32
_WARPS = 4
_TILE = 16
"""The rows and the columns of the smallest matrix."""
_COPIED_BYTES = 16
"""What a thread copies at once."""
_ROW_BYTES = 64
"""How much of the sum a tile in shared memory holds."""
_S, _I, _J, _K, _ = IterKind


@dataclass
class _Tiles:
    """Rows and columns of a block of threads, and of a warp."""

    block_m: int
    block_n: int
    warp_m: int
    warp_n: int


class MatmulTensorization(GPUScheduleRule):
    """Sums of products of float16 or bfloat16, as `Matmul` takes them, on the tensor cores of NVIDIA's GPUs.

    Functions with the attribute "dlight.do_not_tensorize" are left to other rules.
    """

    architectures: ClassVar[dict[tuple[str, str], int]] = {
        ("float16", "float16"): 75,
        ("float16", "float32"): 75,
        ("bfloat16", "float32"): 80,
    }
    """The dtypes of factors and sums, with the first architecture that has them."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        found = tensor_core_product(sch, target, self.architectures)
        if found is None:
            return None
        _, m, n, _ = (iv.dom.extent for iv in sch.get(found.block).iter_vars if iv.dom is not None)
        across_a, across_b = found.across
        transposed = across_a, not across_b
        return _Tensorized(sch, found.block, found.dtype, found.out, transposed, _tiles(m, n)).schedule()


class MatmulInt8Tensorization(MatmulTensorization):
    """Sums of products of int8, as `MatmulTensorization`, in int32."""

    architectures: ClassVar[dict[tuple[str, str], int]] = {("int8", "int32"): 75}


@dataclass
class TensorCoreProduct:
    """A product `C[S, I, J] += A[S, I, K] * B[S, K, J]`, of `dtype` to `out`."""

    block: BlockRV
    dtype: str
    out: str
    across: tuple[bool, bool]
    """Whether A and B lie in memory across the sum; the axis along which a factor lies comes last in it."""


def tensor_core_product(
    sch: Schedule, target: Target, architectures: Mapping[tuple[str, str], int]
) -> TensorCoreProduct | None:
    """Brings the product of a function into its form; None where it has none that tensor cores of the target take.

    `architectures` has the first one by the dtypes of factors and sums. Nor are functions taken with the attribute
    "dlight.do_not_tensorize".
    """
    if target.kind.name != "cuda" or "dlight.do_not_tensorize" in sch.mod["main"].attrs:
        return None
    found = get_reduction_blocks(sch, sch.get_child_blocks(get_root_block(sch)))
    if found is None or (across := across_sum(sch.get(found[0]))) is None:
        return None
    (block,) = found
    stmt = sch.get(block)
    a, b, out = (str(region.buffer.dtype) for region in (*stmt.reads, *stmt.writes))
    needed = architectures.get((a, out))
    if needed is None or a != b or architecture(target) < needed:
        return None
    # The axis along which a factor lies in memory comes last, so that it is copied as it lies there.
    orders = (_S, _K, _I) if across[0] else (_S, _I, _K), (_S, _K, _J) if across[1] else (_S, _J, _K)
    if not as_batched_product(sch, block, *orders):
        return None
    return TensorCoreProduct(block, a, out, across)


def architecture(target: Target) -> int:
    """The architecture of a target, as 90 of `sm_90a`; -1 where it is not known."""
    return check_sm_version((target.arch or "").rstrip("af"))


def _tiles(m: PrimExpr, n: PrimExpr) -> _Tiles:
    """The tiles for a number of rows and columns: those of large matrices, cut to small ones."""
    block = [_rounded(extent) for extent in (m, n)]
    warp = [min(size, 64) for size in block]
    while block[0] // warp[0] * (block[1] // warp[1]) < _WARPS:
        warp[warp[1] >= warp[0]] //= 2
    return _Tiles(*block, *warp)


def _rounded(extent: PrimExpr) -> int:
    """The power of two, of 32 to 128, that holds an extent or most of it."""
    size = extent.value if isinstance(extent, IntImm) else 128
    return min(max(1 << (size - 1).bit_length(), 32), 128)


class _Tensorized:
    """The schedule of a product with the axes `SIJK`."""

    def __init__(
        self, sch: Schedule, block: BlockRV, dtype: str, out: str, transposed: tuple[bool, bool], tiles: _Tiles
    ):
        from ...tir.tensor_intrin.cuda import get_mma_intrin_group, k_dim

        self.sch, self.block, self.dtype, self.transposed, self.tiles = sch, block, dtype, transposed, tiles
        self.intrinsics = get_mma_intrin_group("shared", "global", dtype, dtype, out, *transposed)
        self.length = k_dim(dtype)
        self.size = DataType(dtype).bits // 8
        self.warps = tiles.block_m // tiles.warp_m, tiles.block_n // tiles.warp_n

    def schedule(self) -> Schedule | None:
        """Tiles the product; None where what follows it cannot be computed where its results are stored."""
        sch, tiles = self.sch, self.tiles
        block_k = _ROW_BYTES // self.size
        sch.pad_einsum(self.block, [1, tiles.block_m, tiles.block_n, block_k])
        batch, i, j, k = sch.get_loops(self.block)
        i0, i1, i2, i3 = sch.split(i, [None, self.warps[0], tiles.warp_m // _TILE, _TILE])
        j0, j1, j2, j3 = sch.split(j, [None, self.warps[1], tiles.warp_n // _TILE, _TILE])
        k0, k1, k2 = sch.split(k, [None, block_k // self.length, self.length])
        sch.reorder(j0, batch, i0, i1, j1, k0, k1, i2, j2, i3, j3, k2)
        product = sch.blockize(i3)
        sch.bind(j0, "blockIdx.y")
        sch.bind(sch.fuse(batch, i0), "blockIdx.x")
        sch.bind(i1, "threadIdx.z")
        sch.bind(j1, "threadIdx.y")
        tiled = [self.factor(product, position, k0, k1) for position in range(2)]
        result = sch.cache_write(product, 0, "warp")
        self.store(product, result, j1)
        init = sch.decompose_reduction(product, k0)
        sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], self.intrinsics["init"])
        for loop, name in zip(tiled, ("load_a", "load_b"), strict=True):
            sch.tensorize(loop, self.intrinsics[name])
        sch.tensorize(sch.get_loops(sch.get_child_blocks(product)[0])[-3], self.intrinsics["compute"])
        for loop in (k1, i2, j2):
            sch.unroll(loop)
        # What is multiplied is copied during the round before.
        sch.annotate(k0, "software_pipeline_stage", [0, 0, 1])
        sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k0, "software_pipeline_async_stages", [0])
        return sch if auto_inline_consumer_chain(sch, result) else None

    def factor(self, product: BlockRV, position: int, outer: LoopRV, inner: LoopRV) -> LoopRV:
        """Copies a factor to shared memory, and from there to registers; returns the loop over one matrix of these."""
        from ...tir.tensor_intrin.cuda import fragment_layout

        sch, transposed = self.sch, self.transposed[position]
        tile = sch.cache_read(product, position, "shared")
        sch.compute_at(tile, outer, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(tile)[-2:])
        _, z, y, x, piece = sch.split(fused, [None, *self.warps, _WARP_SIZE, _COPIED_BYTES // self.size])
        for loop, axis in ((z, "threadIdx.z"), (y, "threadIdx.y"), (x, "threadIdx.x")):
            sch.bind(loop, axis)
        sch.vectorize(piece)
        sch.annotate(tile, "permuted_layout", 1)
        auto_inline_producers(sch, tile)

        fragment = sch.cache_read(product, position, "warp")
        sch.compute_at(fragment, inner, preserve_unit_loops=True)
        rows, columns = (_TILE, self.length) if (position == 0) != transposed else (self.length, _TILE)
        i, j = sch.get_loops(fragment)[-2:]
        i0, i1 = sch.split(i, [None, rows])
        j0, j1 = sch.split(j, [None, columns])
        sch.reorder(i0, j0, i1, j1)
        sch.unroll(i0)
        sch.unroll(j0)
        layout = fragment_layout("AB"[position], self.dtype, transposed)
        sch.transform_layout(fragment, ("write", 0), _matrices(rows, columns, layout))
        return i1

    def store(self, product: BlockRV, result: BlockRV, loop: LoopRV) -> None:
        """Has each thread of a warp store the results that it holds."""
        from ...tir.tensor_intrin.cuda import fragment_layout

        sch = self.sch
        layout = _matrices(_TILE, _TILE, fragment_layout("C", self.dtype))
        sch.transform_layout(product, ("write", 0), layout)
        sch.transform_block_layout(result, layout)
        sch.reverse_compute_at(result, loop, preserve_unit_loops=True)
        *_, i, j, thread, element = sch.get_loops(result)
        pair, side = sch.split(element, [None, 2])
        sch.bind(thread, "threadIdx.x")
        for part in (i, j, pair):
            sch.unroll(part)
        sch.vectorize(side)


def _matrices(rows: int, columns: int, layout: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[..., Any]:
    """The map from a batch of matrices to a batch of small ones, each in the registers of a warp."""
    return lambda b, i, j: (b, i // rows, j // columns, *layout(i % rows, j % columns))
