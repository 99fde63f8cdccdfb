"""Products of bytes that are summed as integers in groups, and scaled: rows of int8 by quantized weights.

    dots[m, p, g, v, l] += digits[p, g, v, q, 4 * l + i] * X[m, g, 4 * q + i]            integers
    y[m, n(p, v, l)] += float(dots[m, p, g, v, l]) * (scale[p, g, v, l] * row_scale[m, g])

Groups are of 16 or 32, digits have 4 or 8 bits, and what is added may be less an offset of the group. Processors with
AVX2 only add up products in pairs, of digits of 4 bits in sums of 16 and of 8 bits as integers of 16 bits. On Zen 3,
rows by a matrix of Q8_0 took 0.57 of the time that its halves of 4 bits took one after the other, and one row 0.75.

A panel `p` of outputs is a stream of weights. For each of its groups, digits are unpacked into registers, multiplied
by the processor's dot products with a few rows, and the scaled sums stay in registers while the groups pass by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...arith import Analyzer
from ...ir.expr import Add, PrimExpr, Var, as_int
from ...target.cpu import cpu_info
from ...target.target import Target
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.stmt import BufferStore
from ...tir.stmt_functor import loads
from ...tir.tensor_intrin.x86 import (
    AVX2_PAIR_DOT_INTRIN,
    AVX2_PAIR_START_INTRIN,
    AVX2_PAIR_SUM_INTRIN,
    AVX2_WORD_DOT_INTRIN,
    GROUPS,
    VECTOR_BYTES,
    group_dot_name,
    split_name,
)
from ..analysis.contraction import operands
from ..analysis.leaves import Leaf, leaves, leaves_of
from .base import CPUScheduleRule, parallelize
from .contraction_axes import variables_of
from .first_tile import made_by_the_first
from .prefetch import with_prefetches
from .whole_tiles import computing_whole_tiles

ROWS = {"vnni": 4, "avx512": 4, "avx_vnni": 2, "avx2": 4}
"""Rows of activations that share unpacked weights. Measured on Zen 5: of 3 to 8 rows with vectors of 64 bytes, 4 and 5
are fastest by a few percent. Registers of AVX2 hold sums of 16 bits of 4 rows for two vectors of outputs, which give
206 GOP/s on Zen 3; of 2, 3, 5 and 6 rows they give 165, 181, 186 and 186."""
LANES = 16
"""Outputs that lie together."""
UNPACKED = 8192
"""Bytes of digits that tiles of rows share. Measured on an Emerald Rapids: 8 to 88 KiB give the same within 5 %, and
8 to 11 % more than if each tile of 4 rows unpacks digits, 19 % with scales on two levels (128 rows by 2048 x 2048). One
tile alone takes 1.15 times as long."""
PAGE, CACHE_LINE = 4096, 64
"""Bytes."""
LARGEST_DIGITS = {15: 4, 255: 8}
"""The bits of digits, by the largest that the bound of an expression allows."""


class IntegerDots(CPUScheduleRule):
    """Rows of int8 by quantized weights, with a panel's sums in registers."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        instructions = cpu_info(target).byte_dots
        product = product_of(leaves_of(func) or [])
        if product is None or instructions is None or (product.in_pairs and instructions != "avx2"):
            return None
        sch = Schedule(func)
        product = product_of(leaves(sch) or [])
        assert product is not None
        extent = product.dot.extents[0]
        rows = ROWS[instructions] if extent is None else min(extent, ROWS[instructions])
        shares = product.halves is not None and (extent is None or extent > rows)
        if not shares:
            for leaf in product.floats:
                sch.compute_inline(leaf.handle)
        total = product.total.handle
        if product.total.block.writes[0].buffer in func.buffer_map.values():
            sch.cache_write(total, 0, "global")
        if extent is None or extent % rows:
            whole = [leaf for leaf in (product.starts, product.halves, product.dot, product.total) if leaf is not None]
            names = {leaf.block.name_hint for leaf in whole}
            factors = {leaf.block.iter_vars[0].var: rows for leaf in leaves(sch) or () if leaf.block.name_hint in names}
            sch = Schedule(computing_whole_tiles(sch.mod["main"], names, factors))
        product = product_of(leaves(sch) or [])
        assert product is not None
        panel, tile, group = compute_by_panels(sch, product, rows, instructions, shares)
        if shares:
            made_once = {leaf.block.name_hint for leaf in (product.unpack, *product.floats)}
            return Schedule(made_by_the_first(sch.mod["main"], tile, made_once))
        if extent is None or extent > rows:
            return sch
        places: dict[Var, PrimExpr] = {}
        for leaf, axes in ((product.unpack, (0, 1)), (product.total, (1, 4))):
            places |= zip((leaf.block.iter_vars[axis].var for axis in axes), (panel, group), strict=True)
        return Schedule(with_prefetches(sch.mod["main"], group, [product.unpack, product.total], places))


@dataclass(slots=True)
class Product:
    """The blocks of a product: digits of weights, integer sums of a group, the scaled sum, and what follows."""

    unpack: Leaf
    floats: list[Leaf]
    """What makes scales of groups, and offsets, float32, if that stands alone."""
    widen: Leaf | None
    """Rows as integers of 16 bits, if digits are such."""
    starts: Leaf | None
    """What the integer sums of each row and group start with, if it is not zero: for sums of 16 bits, both halves of a
    word."""
    halves: Leaf | None
    """Sums of 16 bits, two of which are a sum of a group; None where that adds up products itself."""
    dot: Leaf
    total: Leaf
    epilogue: list[Leaf]
    bits: int
    """Of a digit."""
    group: int
    """Weights of a group."""

    @property
    def in_pairs(self) -> bool:
        """Whether products are added up in pairs, of bytes to 16 bits or of 16 bits to 32."""
        return self.halves is not None or self.widen is not None


def product_of(found: list[Leaf]) -> Product | None:
    """The blocks of a function that computes a product with weights in groups; None for another function."""
    count = next((i for i, leaf in enumerate(found) if leaf.reduces), 0)
    made, rest = {leaf.block.writes[0].buffer: leaf for leaf in found[:count]}, found[count:]
    halves = rest.pop(0) if rest and _stores(rest[0], "int16") else None
    if len(rest) < 2:
        return None
    dot, total, *epilogue = rest
    multiplied = halves or dot
    factors = operands(multiplied.block) if multiplied.reduces else None
    if factors is None or any(leaf.reduces for leaf in epilogue):
        return None
    digits, values = factors
    unpack, widen = made.pop(digits.buffer, None), made.pop(values.buffer, None)
    starts = next((made.pop(buffer) for buffer, leaf in made.items() if len(leaf.extents) == 2), None)
    floats = list(made.values())
    if unpack is None or not all(len(leaf.extents) == 4 and _stores(leaf, "float32") for leaf in floats):
        return None
    if not _is_reduction(dot, 5) or not _is_reduction(multiplied, 5 if halves is None else 6):
        return None
    row, _, group, _, lane, *_ = (iv.var for iv in multiplied.block.iter_vars)
    expected = ("uint8", "int8") if widen is None else ("int16", "int16")
    if (digits.buffer.dtype, values.buffer.dtype) != expected or not _stores(dot, "int32"):
        return None
    if row in variables_of(digits):
        return None
    size = 4 * (multiplied.extents[5 if halves is None else 6] or 0)
    within = [2, size // 4, 2] if halves is not None else [size // 4, 4] if widen is None else [size // 4, 2, 2]
    store = unpack.block.body
    if size not in GROUPS or multiplied.extents[4:] != [LANES, *within]:
        return None
    if len(unpack.extents) != (5 if widen is None else 6) or not isinstance(store, BufferStore):
        return None
    largest = Analyzer().const_int_bound(store.value).max_value
    bits = next((bits for digit, bits in LARGEST_DIGITS.items() if largest <= digit), None)
    if bits is None or not {row, group} <= variables_of(values) or lane in variables_of(values):
        return None
    # The products of a group with bytes exceed 16 bits.
    if (halves is not None and bits > 4) or not _adds_up(total, dot.block.writes[0].buffer):
        return None
    return Product(unpack, floats, widen, starts, halves, dot, total, epilogue, bits, size)


def _stores(leaf: Leaf, dtype: str) -> bool:
    return leaf.block.writes[0].buffer.dtype == dtype


def _is_reduction(leaf: Leaf, parallel: int) -> bool:
    """Whether a block has so many parallel axes, and then only those that it adds up over."""
    kinds = [iv.iter_type for iv in leaf.block.iter_vars]
    return kinds == [IterVar.DataPar] * parallel + [IterVar.CommReduce] * (len(kinds) - parallel)


def _adds_up(total: Leaf, sums: object) -> bool:
    """Whether a block adds up what is made of the integer sums, each of its own group, over the groups."""
    store = total.block.body
    if not total.reduces or not isinstance(store, BufferStore) or not isinstance(store.value, Add):
        return False
    kinds = [iv.iter_type for iv in total.block.iter_vars]
    if kinds != [IterVar.DataPar] * 4 + [IterVar.CommReduce]:
        return False
    row, panel, vector, lane, group = (iv.var for iv in total.block.iter_vars)
    found = [load for load in loads(store.value.b) if load.buffer is sums]
    return len(found) == 1 and list(found[0].indices) == [row, panel, group, vector, lane]


def compute_by_panels(
    sch: Schedule, product: Product, rows: int, instructions: str, shares: bool
) -> tuple[Var, Var, Var]:
    """A panel of outputs at a time, a few rows in it, group after group.

    If tiles of rows are to share what is unpacked, all of them pass by some groups before the next ones. Returns the
    variables of panels, of tiles of rows, and of groups.
    """
    dot, unpack, total = product.dot.handle, product.unpack.handle, product.total.handle
    row, panel, vector, lane, group = product.total.loops
    row_outer, row_inner = sch.split(row, [None, rows])
    # A vector of the instructions may be a part of the 16 outputs that lie together.
    size = VECTOR_BYTES[instructions] // 4
    part, lane = sch.split(lane, [None, size])
    if rows == 1 or instructions != "avx2":
        outer, inner = [panel], [row_inner, vector, part, lane]
    elif not product.in_pairs:
        outer, inner = [panel, vector, part], [row_inner, lane]
    else:
        outer, inner = [panel, vector], [row_inner, part, lane]
    of_tile, summed = row_outer, group
    if shares:
        of_tile = outer[-1]
        summed, group = sch.split(group, [None, _groups_together(product)])
        sch.reorder(*outer, summed, row_outer, group, *inner)
    else:
        sch.reorder(*outer, row_outer, group, *inner)
    sch.parallel(panel)
    variables = sch.get(panel).loop_var, sch.get(row_outer).loop_var, sch.get(group).loop_var
    steps = [leaf.handle for leaf in (product.dot, product.halves, product.unpack) if leaf is not None]
    for handle in steps if shares else (*steps, total):
        sch.set_scope(handle, 0, "local")
    for handle in steps:
        sch.compute_at(handle, group, preserve_unit_loops=True)
    for leaf in product.floats:
        sch.set_scope(leaf.handle, 0, "local")
        sch.compute_at(leaf.handle, group, preserve_unit_loops=True)
        unroll_and_vectorize(sch, sch.get_loops(leaf.handle)[-4:])
    if product.starts is not None:
        # In memory, so that it is broadcast as it is loaded.
        starts = product.starts.handle
        sch.set_scope(starts, 0, "local")
        sch.compute_at(starts, row_outer)
        _, lanes = sch.split(sch.get_loops(starts)[-1], [None, math.gcd(as_int(sch.get(group).extent) or 1, LANES)])
        sch.vectorize(lanes)
    for leaf in product.epilogue:
        sch.reverse_compute_at(leaf.handle, of_tile, preserve_unit_loops=True)
        columns = sch.get_loops(leaf.handle)[-1]
        sch.vectorize(columns)
    unroll_and_vectorize(sch, inner)
    if product.halves is not None:
        multiply_in_halves(sch, product.halves.handle, unpack, size, product.starts is not None)
    if product.widen is not None:
        widen_rows(sch, product.widen)
        multiply_in_words(sch, dot, unpack, size)
    sch.decompose_reduction(total, summed)
    if product.widen is not None:
        return variables
    unroll_and_vectorize(sch, sch.get_loops(unpack)[-5:])
    row, panel, group, vector, lane, *within = sch.get_loops(dot)[-len(product.dot.extents) :]
    part, lane = sch.split(lane, [None, size])
    sch.reorder(vector, part, row, lane, *within)
    for loop in (panel, group, vector, part, row):
        sch.unroll(loop)
    init = sch.decompose_reduction(dot, lane)
    for loop in sch.get_loops(init)[-6:]:
        sch.unroll(loop)
    in_groups = group_dot_name(instructions, product.bits, product.group)
    sch.tensorize(lane, in_groups if product.halves is None else AVX2_PAIR_SUM_INTRIN)
    return variables


def _groups_together(product: Product) -> int:
    """How many groups all rows pass by, for what is unpacked of them to stay in the first-level cache."""
    groups = product.total.extents[-1]
    assert groups is not None
    wanted = UNPACKED / (LANES * product.group)
    return min((n for n in range(1, groups + 1) if groups % n == 0), key=lambda n: max(n / wanted, wanted / n))


def multiply_in_halves(sch: Schedule, halves: BlockRV, unpack: BlockRV, lanes: int, started: bool) -> None:
    """Adds products to sums of 16 bits in registers, while a loop unpacks the digits of a few bytes for all rows.

    So neither do products wait for one another, nor is more unpacked than registers hold.
    """
    row, panel, group, vector, lane, half, quad, within = sch.get_loops(halves)[-8:]
    part, lane = sch.split(lane, [None, lanes])
    # Digits of the lower and the upper half of bytes.
    of_byte, quad = sch.split(quad, [2, None])
    sch.reorder(panel, group, quad, of_byte, row, vector, part, lane, half, within)
    sch.compute_at(unpack, of_byte, preserve_unit_loops=True)
    init = sch.decompose_reduction(halves, quad)
    of_init = sch.get_loops(init)[-7:]
    if started:
        for loop in of_init[:-2]:
            sch.unroll(loop)
        sch.tensorize(of_init[-2], AVX2_PAIR_START_INTRIN)
    else:
        unroll_and_vectorize(sch, of_init)
    for loop in (panel, group, of_byte, row, vector, part):
        sch.unroll(loop)
    sch.tensorize(lane, AVX2_PAIR_DOT_INTRIN)


def widen_rows(sch: Schedule, widen: Leaf) -> None:
    """Makes integers of 16 bits of rows, once for all panels."""
    # Numbers of rows that are whole pages apart would compete for the same places of the cache.
    sch.storage_align(widen.handle, 0, 0, PAGE // 2, CACHE_LINE // 2)
    sch.tensorize(widen.loops[-2], split_name("int8"))
    parallelize(sch, widen.loops[:-2], widen.work)


def multiply_in_words(sch: Schedule, dot: BlockRV, unpack: BlockRV, lanes: int) -> None:
    """Adds products of 16 bits to sums in registers, while a loop unpacks the digits of a few bytes for all rows."""
    row, panel, group, vector, lane, quad, half, within = sch.get_loops(dot)[-8:]
    part, lane = sch.split(lane, [None, lanes])
    sch.reorder(panel, group, quad, half, row, vector, part, lane, within)
    sch.compute_at(unpack, quad, preserve_unit_loops=True)
    *outer, halves, values = sch.get_loops(unpack)[-6:]
    piece, values = sch.split(values, [None, 2 * lanes])
    sch.reorder(piece, halves, values)
    for loop in (*outer, piece):
        sch.unroll(loop)
    sch.tensorize(halves, split_name("uint8"))
    init = sch.decompose_reduction(dot, quad)
    unroll_and_vectorize(sch, sch.get_loops(init)[-6:])
    for loop in (panel, group, half, row, vector, part):
        sch.unroll(loop)
    sch.tensorize(lane, AVX2_WORD_DOT_INTRIN)


def unroll_and_vectorize(sch: Schedule, loops: list[LoopRV]) -> None:
    """Unrolls all loops but the innermost, which becomes vectors."""
    for loop in loops[:-1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])
