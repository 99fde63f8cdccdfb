"""Matrix by matrix on NVIDIA's sm_90: tiles that the copy engine brings while warpgroups multiply those before them.

    first warpgroup, one thread:                        other warpgroups, 64 rows of the tile of the result each:
    for each tile of the block of threads:              for each tile of the block of threads:
        for each 64 products of the sum:                    for each 64 products of the sum:
            wait until the stage is empty                       wait until the stage is full, multiply it (wgmma)
            announce the bytes, copy A's and B's tiles          wait for the products before, call their stage empty
                                                            store the sums, with all that is computed from them

As many blocks of threads as the GPU has processors take tiles in turn, so copies for a tile begin while results of the
one before are stored. The kernel is written as it is: no sequence of schedule primitives gives warps different work.

On an H100 it has 0.85 of cuBLAS' speed at 4096³ and 0.93 at 8192³ in float16 and bfloat16 (`benchmarks.gpu`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...arith import Analyzer, detect_linear_equation
from ...ir import operators as ops
from ...ir.expr import Call, PrimExpr, Range, Var, as_int, const, pointer_to
from ...target.target import Target
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.op_hopper import (
    TENSOR_MAP_SCOPE,
    cuda_tensor_map,
    ptx_cp_async_bulk_tensor,
    ptx_fence_proxy_async,
    ptx_mbarrier_arrive,
    ptx_mbarrier_arrive_expect_tx,
    ptx_mbarrier_init,
    ptx_mbarrier_wait,
    ptx_setmaxnreg,
    ptx_wgmma,
    ptx_wgmma_commit_group,
    ptx_wgmma_fence,
    ptx_wgmma_wait_group,
)
from ...tir.op_vendor import tvm_storage_sync
from ...tir.schedule import BlockRV, Schedule
from ...tir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    flat_seq,
)
from ..analysis.leaves import extent_of, leaves
from ..analysis.values import Loaded, at_values, root_block
from .base import PROCESSORS, GPUScheduleRule
from .inlining import auto_inline_consumer_chain, auto_inline_producers
from .matmul_tensorization import MatmulInt8Tensorization, MatmulTensorization, architecture, tensor_core_product

_ARCHITECTURE = 90
"""The one that has these instructions; later ones have others."""
_WARP, _WARPGROUP = 32, 128
_ROWS = 64
"""Rows of the result that a warpgroup computes."""
_PART_BYTES = 32
"""Of a row of the left factor, or a column of the right one: what one instruction multiplies."""
_ROW_BYTES = 128
"""A row of a tile in shared memory: after eight of them, the permutation of the copy engine repeats."""
_STAGES = 4
_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 40, 232
"""Of a thread that starts copies, and of one that has sums; with two warpgroups of these, all that there are."""
_BAND = 8
"""Tiles of rows that meet the same columns at about the same time, so that these are read from memory once."""
_ALIGNMENT = 16
"""Bytes of which addresses and rows of tensors are multiples, as the copy engine needs them."""


class MatmulWarpgroup(GPUScheduleRule):
    """Products of float16 or bfloat16 in float32, and of int8 in int32, for sm_90, with all that is computed from each.

    Factors are parameters, whose rows have a multiple of 16 bytes, and lie along the sum if they are of bytes; others
    are left to `MatmulTensorization`, as are functions with the attribute "dlight.do_not_tensorize". Sizes need not
    fit: what is copied from beyond the end is zero, and results there are not stored. What is only known in a call
    (where tensors begin, symbolic sizes) decides there between this kernel and that of `MatmulTensorization`.
    """

    architectures: ClassVar[dict[tuple[str, str], int]] = {
        ("float16", "float32"): _ARCHITECTURE,
        ("bfloat16", "float32"): _ARCHITECTURE,
        ("int8", "int32"): _ARCHITECTURE,
    }

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        if architecture(target) != _ARCHITECTURE:
            return None
        sch = Schedule(func)
        found = tensor_core_product(sch, target, self.architectures)
        if found is None or (found.dtype == "int8" and any(found.across)):
            return None
        extents = [extent_of(iv) for iv in sch.get(found.block).iter_vars]
        copies = [sch.cache_read(found.block, position, "shared") for position in range(2)]
        for copy in copies:
            auto_inline_producers(sch, copy)
        result = sch.cache_write(found.block, 0, "local")
        if not auto_inline_consumer_chain(sch, result) or len(leaves(sch) or ()) != 4 or not _is_whole(sch, result):
            return None
        a, b = (_factor_of(sch, copy, across) for copy, across in zip(copies, found.across, strict=True))
        if a is None or b is None:
            return None
        rule = MatmulInt8Tensorization() if found.dtype == "int8" else MatmulTensorization()
        other = rule.schedule(func, target)
        if other is None:
            return None
        kernel = _Kernel(extents, (found.dtype, found.out), (a, b), sch.get(result))
        needed = [*a.conditions, *b.conditions, extents[3] > 0]
        body = IfThenElse(functools.reduce(ops.logical_and, needed), kernel.body(), _root_of(other).body)
        buffers = [*kernel.buffers, *_root_of(other).alloc_buffers]
        return Schedule(func.replace(body=root_block(body, buffers)))


def _root_of(sch: Schedule) -> Block:
    return sch.get(sch.get_block("root"))


@dataclass
class _Factor:
    """A matrix in memory; innermost dimension first, the batch last."""

    buffer: Buffer
    extents: list[PrimExpr]
    strides: list[PrimExpr]
    """The bytes from one element to the next along the second and the third dimension."""
    across: bool
    """Whether its rows lie across the sum."""
    conditions: list[PrimExpr]
    """What must hold in a call."""

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.buffer.dtype.itemsize

    @property
    def depth(self) -> int:
        """How much of the sum a tile holds."""
        return _ROW_BYTES // self.itemsize

    def box(self, size: int) -> list[int]:
        """What one copy brings of a tile of `size` rows or columns of the result."""
        return [_ROW_BYTES // self.itemsize, self.depth if self.across else size, 1]

    def copies(self, size: int) -> list[int]:
        """Where the copies of a tile begin, in rows or columns of the result; they lie one behind the other."""
        return list(range(0, size, self.depth)) if self.across else [0]

    @property
    def part(self) -> int:
        """The bytes in shared memory from the products of one instruction to those of the next."""
        return _PART_BYTES // self.itemsize * _ROW_BYTES if self.across else _PART_BYTES


def _factor_of(sch: Schedule, copy: BlockRV, across: bool) -> _Factor | None:
    """The factor that a block copies to shared memory; None for one that the copy engine cannot copy."""
    block, func = sch.get(copy), sch.mod["main"]
    assert isinstance(block.body, BufferStore) and isinstance(func, PrimFunc)
    load = block.body.value
    if not isinstance(load, BufferLoad) or load.buffer not in func.buffer_map.values() or load.buffer.strides:
        return None
    analyzer, offset = Analyzer(), const(0, load.indices[0].dtype)
    for iv in block.iter_vars:
        analyzer.bind(iv.var, Range(0, extent_of(iv)))
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        offset = offset * extent + index
    linear = detect_linear_equation(analyzer.simplify(offset), [iv.var for iv in block.iter_vars])
    if not linear:
        return None
    outer, middle, inner, start = linear
    extents = [extent_of(iv) for iv in reversed(block.iter_vars)]
    if not (analyzer.can_prove_equal(inner, 1) and analyzer.can_prove_equal(start, 0)):
        return None
    if as_int(extents[2]) == 1:
        outer = extents[1] * middle
    strides = [stride * load.dtype.itemsize for stride in (middle, outer)]
    address = Call("int64", "tir.reinterpret", [load.buffer.data])
    needed = [middle >= extents[0], *(ops.floormod(number, _ALIGNMENT).equal(0) for number in (*strides, address))]
    conditions = [analyzer.simplify(condition) for condition in needed]
    if any(as_int(condition) == 0 for condition in conditions):
        return None
    return _Factor(load.buffer, extents, strides, across, conditions)


def _is_whole(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block is computed for all values of its axes."""
    realize = sch.get(sch.get_loops(block)[-1]).body
    return isinstance(realize, BlockRealize) and as_int(realize.predicate) == 1


# -- the kernel --


@dataclass
class _Tile:
    """A tile of the result: its batch, its first row and column, and the steps that were taken for tiles before it."""

    batch: PrimExpr
    row: PrimExpr
    column: PrimExpr
    before: PrimExpr


@dataclass
class _Step:
    """A step along the sum: its number, how many there were before it in all tiles, its stage, and the parity of the
    phases of the stage's barriers.
    """

    number: PrimExpr
    count: PrimExpr
    stage: PrimExpr
    parity: PrimExpr


class _Kernel:
    """Writes the kernel of a product `SIJK`; `result` is the block that stores a sum, with what is computed from it.

    Tiles are counted in int32, which is what the copy engine takes.
    """

    def __init__(
        self, extents: Sequence[PrimExpr], dtypes: tuple[str, str], factors: tuple[_Factor, _Factor], result: Block
    ):
        self.extents, self.dtypes, self.factors, self.result = extents, dtypes, factors, result
        batch, m, n, k = extents
        self.rows, self.columns = _tile_of(batch, m, n)
        self.warpgroups = self.rows // _ROWS
        self.sizes = [size * _ROW_BYTES for size in (self.rows, self.columns)]
        """The bytes of A and of B in a stage."""
        self.maps = [Var(f"{name}_map", pointer_to("uint64", TENSOR_MAP_SCOPE)) for name in "AB"]
        self.barriers = decl_buffer([2 * _STAGES], "uint64", "barriers", scope="shared")
        """Of each stage one that says that it is full, then of each one that says that it is empty."""
        self.memory = decl_buffer([_STAGES * sum(self.sizes)], "uint8", "stages", scope="shared.dyn")
        self.sums = decl_buffer([self.columns // 2], dtypes[1], "sums", scope="local")
        self.place_of_tile = decl_buffer([3], "int32", "tile", scope="local")
        """Its number along the batch, the rows, and the columns: divided out once for a tile, not for each element."""
        self.buffers = [self.barriers, self.memory, self.sums, self.place_of_tile]
        self.block, self.thread = Var("block", "int32"), Var("thread", "int32")
        self.tiles_m, self.tiles_n = _tiles(m, self.rows), _tiles(n, self.columns)
        self.steps = _tiles(k, factors[0].depth)
        self.tiles = ops.cast("int32", batch) * self.tiles_m * self.tiles_n
        self.grid = ops.minimum(self.tiles, PROCESSORS)

    def body(self) -> Stmt:
        """The kernel, and what the host says of the tensors that it copies."""
        full, empty = range(_STAGES), range(_STAGES, 2 * _STAGES)
        warps = self.warpgroups * _WARPGROUP // _WARP
        start = [ptx_mbarrier_init(self.barriers.data, barrier, 1) for barrier in full]
        start += [ptx_mbarrier_init(self.barriers.data, barrier, warps) for barrier in empty]
        body: Stmt = SeqStmt(
            [
                IfThenElse(self.thread.equal(0), _calls(*start, ptx_fence_proxy_async())),
                _calls(tvm_storage_sync("shared")),
                IfThenElse(self.thread < _WARPGROUP, self.producer(), self.consumer()),
            ]
        )
        threads = const(_WARPGROUP * (1 + self.warpgroups))
        for var, extent, tag in ((self.thread, threads, "threadIdx.x"), (self.block, self.grid, "blockIdx.x")):
            axis = IterVar(Range(0, extent), Var(tag, "int32"), IterVar.ThreadIndex, tag)
            body = For(var, const(0), extent, ForKind.THREAD_BINDING, body, thread_binding=axis)
        for tensor_map, factor, size in zip(self.maps, self.factors, (self.rows, self.columns), strict=True):
            numbers = [*factor.extents, *factor.strides, *factor.box(size)]
            body = LetStmt(tensor_map, cuda_tensor_map(factor.buffer.data, factor.itemsize, *numbers), body)
        return body

    # -- what both roles do --

    def each_tile(self, body: Callable[[_Tile], Stmt]) -> Stmt:
        """A loop over the tiles of a block of threads, band after band."""
        turn, number, rest, first, height = (
            Var(name, "int32") for name in ("turn", "number", "rest", "first", "height")
        )
        tiles, band = self.tiles_m * self.tiles_n, self.tiles_n * _BAND
        within = ops.floormod(rest, band)
        numbers = [
            ops.floordiv(number, tiles),
            first + ops.floormod(within, height),
            ops.floordiv(within, height),
        ]
        found: Stmt = SeqStmt([BufferStore(self.place_of_tile, value, [place]) for place, value in enumerate(numbers)])
        found = LetStmt(height, ops.minimum(self.tiles_m - first, _BAND), found)
        found = LetStmt(first, ops.floordiv(rest, band) * _BAND, found)
        found = LetStmt(rest, ops.floormod(number, tiles), found)
        found = LetStmt(number, self.block + turn * self.grid, found)
        batch, row, column = (BufferLoad(self.place_of_tile, [place]) for place in range(3))
        tile = _Tile(batch, row * self.rows, column * self.columns, turn * self.steps)
        stmt = SeqStmt([found, body(tile)])
        return For(turn, const(0), _tiles(self.tiles - self.block, self.grid), ForKind.SERIAL, stmt)

    def each_step(self, tile: _Tile, body: Callable[[_Step], Stmt]) -> Stmt:
        """A loop along the sum."""
        number, count, stage, parity = (Var(name, "int32") for name in ("step", "count", "stage", "parity"))
        stmt = body(_Step(number, count, stage, parity))
        stmt = LetStmt(parity, ops.floormod(ops.floordiv(count, _STAGES), 2), stmt)
        stmt = LetStmt(stage, ops.floormod(count, _STAGES), stmt)
        return For(number, const(0), self.steps, ForKind.SERIAL, LetStmt(count, tile.before + number, stmt))

    def place(self, step: _Step, position: int) -> PrimExpr:
        """Where in shared memory the tile of a factor is."""
        return step.stage * sum(self.sizes) + sum(self.sizes[:position])

    def with_registers(self, increase: bool, count: int, body: Stmt) -> Stmt:
        """A role, before which registers change hands; with one warpgroup that multiplies, all have enough."""
        return body if self.warpgroups == 1 else SeqStmt([_calls(ptx_setmaxnreg(increase, count)), body])

    # -- the one that copies --

    def producer(self) -> Stmt:
        """What the first warpgroup does: one thread of it."""
        loop = self.each_tile(lambda tile: self.each_step(tile, lambda step: self.copied(tile, step)))
        return self.with_registers(False, _PRODUCER_REGISTERS, IfThenElse(self.thread.equal(0), loop))

    def copied(self, tile: _Tile, step: _Step) -> Stmt:
        """Fills a stage."""
        barriers = self.barriers.data
        calls = [
            ptx_mbarrier_wait(barriers, step.stage + _STAGES, 1 - step.parity),
            ptx_mbarrier_arrive_expect_tx(barriers, step.stage, sum(self.sizes)),
        ]
        for position, (factor, size, first) in enumerate(
            zip(self.factors, (self.rows, self.columns), (tile.row, tile.column), strict=True)
        ):
            for offset in factor.copies(size):
                target = self.place(step, position) + offset * _ROW_BYTES
                across, along = first + offset, step.number * factor.depth
                at = (across, along, tile.batch) if factor.across else (along, across, tile.batch)
                calls.append(
                    ptx_cp_async_bulk_tensor(self.memory.data, target, self.maps[position], barriers, step.stage, *at)
                )
        return _calls(*calls)

    # -- those that multiply --

    def consumer(self) -> Stmt:
        """What the other warpgroups do."""

        def computed(tile: _Tile) -> Stmt:
            last = tile.before + (self.steps - 1)
            done = SeqStmt([_calls(self.wait_for_products(0)), self.emptied(last)])
            known = as_int(self.steps)
            end = done if known is not None and known > 0 else IfThenElse(self.steps > 0, done)
            return SeqStmt([self.each_step(tile, self.multiplied), end, self.stored(tile)])

        return self.with_registers(True, _CONSUMER_REGISTERS, self.each_tile(computed))

    def multiplied(self, step: _Step) -> Stmt:
        """Begins to add the products of a stage. Those of the step before are done then: its stage is empty."""
        barriers, memory, sums = self.barriers.data, self.memory.data, self.sums.data
        a, b = self.factors
        of_a = self.place(step, 0) + (self.thread // _WARPGROUP - 1) * (_ROWS * _ROW_BYTES)
        of_b = self.place(step, 1)
        from_a, from_b = (factor.depth * _ROW_BYTES for factor in self.factors)
        kind = (f"m{_ROWS}n{self.columns}k{_PART_BYTES // a.itemsize}", *self.dtypes, a.across, b.across)
        calls = [ptx_mbarrier_wait(barriers, step.stage, step.parity), ptx_wgmma_fence()]
        for part in range(_ROW_BYTES // _PART_BYTES):
            left, right = of_a + part * a.part, of_b + part * b.part
            added = const(True) if part else step.number > 0
            calls.append(ptx_wgmma(*kind, sums, 0, memory, left, from_a, memory, right, from_b, added))
        calls += [ptx_wgmma_commit_group(), self.wait_for_products(1)]
        return SeqStmt([_calls(*calls), IfThenElse(step.number > 0, self.emptied(step.count - 1))])

    def wait_for_products(self, steps: int) -> PrimExpr:
        """Waits until products of at most so many steps are not done."""
        return ptx_wgmma_wait_group(steps, self.sums.data, 0, self.columns // 2)

    def emptied(self, count: PrimExpr) -> Stmt:
        """One thread of each warp calls the stage of a step empty."""
        stage = ops.floormod(count, _STAGES) + _STAGES
        return IfThenElse((self.thread % _WARP).equal(0), _calls(ptx_mbarrier_arrive(self.barriers.data, stage)))

    def stored(self, tile: _Tile) -> Stmt:
        """Stores what a thread holds; a warp has 16 rows, as it has those of `mma`."""
        from ...tir.tensor_intrin.cuda import ldmatrix_32x8_to_shared_16x16_layout

        batch, m, n, _ = self.extents
        half, part, side = Var("half", "int32"), Var("part", "int32"), Var("side", n.dtype)
        group, warp = self.thread // _WARPGROUP - 1, self.thread % _WARPGROUP // _WARP
        row, _ = ldmatrix_32x8_to_shared_16x16_layout(self.thread % _WARP, half * 2)
        _, column = ldmatrix_32x8_to_shared_16x16_layout(self.thread % _WARP, part * 4)
        i = ops.cast(m.dtype, tile.row + group * _ROWS + warp * 16 + row)
        first = ops.cast(n.dtype, tile.column + column)
        j = first + side
        held = ops.cast(n.dtype, part * 4 + half * 2) + side
        value = Loaded(self.result.reads[0].buffer, BufferLoad(self.sums, [held]))
        stmt = at_values(self.result, value(self.result.body), [ops.cast(batch.dtype, tile.batch), i, j])
        known = as_int(n)
        if known is not None and known % 2 == 0:  # two neighbours are there both, or none
            stmt = _within(
                first, n, self.columns, For(side, const(0, n.dtype), const(2, n.dtype), ForKind.VECTORIZED, stmt)
            )
        else:
            stmt = _unrolled(side, 2, _within(j, n, self.columns, stmt))
        return _unrolled(half, 2, _within(i, m, self.rows, _unrolled(part, self.columns // 8, stmt)))


def _tile_of(*extents: PrimExpr) -> tuple[int, int]:
    """The rows and columns of a tile: the most there are registers for, unless that leaves processors without one."""
    batch, m, n = map(as_int, extents)
    rows = _ROWS if m is not None and m <= _ROWS else 2 * _ROWS
    if n is not None and n <= 64:
        return rows, 64
    if batch is None or m is None or n is None or batch * -(-m // rows) * -(-n // 256) < PROCESSORS:
        return rows, 128
    return rows, 256


def _tiles(extent: PrimExpr, size: PrimExpr | int) -> PrimExpr:
    """How many tiles an extent has."""
    return ops.cast("int32", ops.floordiv(extent + (size - 1), size))


def _within(place: PrimExpr, extent: PrimExpr, size: int, stmt: Stmt) -> Stmt:
    """A statement for places that there are along an axis."""
    known = as_int(extent)
    return stmt if known is not None and known % size == 0 else IfThenElse(place < extent, stmt)


def _unrolled(var: Var, extent: int, body: Stmt) -> Stmt:
    return For(var, const(0, var.dtype), const(extent, var.dtype), ForKind.UNROLLED, body)


def _calls(*calls: PrimExpr) -> Stmt:
    return flat_seq([Evaluate(call) for call in calls])
