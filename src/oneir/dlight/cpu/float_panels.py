"""Rows of floats by weights in panels, which are widened to floats in registers.

    wide[p, k, v, l] = float(weight[p, k, v, l])         or integers with scales, or any other expression
    x[m, k] = float(rows[m, k])                          unless they are floats
    y[m, n(p, v, l)] += x[m, k] * wide[p, k, v, l]

A panel `p` of outputs is a stream of weights. Its weights meet a few rows at a time, whose sums stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import Var
from ...target.cpu import cpu_info
from ...target.target import Target
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import BufferStore
from ...tir.stmt_functor import loads
from ...tir.tensor_intrin.x86 import BFLOAT16_DOT_16x2_INTRIN
from ..analysis.contraction import operands
from ..analysis.leaves import Leaf, leaves, leaves_of
from .base import CPUScheduleRule
from .contraction_axes import variables_of
from .integer_dots import unroll_and_vectorize
from .prefetch import with_prefetches
from .spatial import schedule_leaf
from .whole_tiles import computing_whole_tiles

ROWS = {64: 8, 32: 2}
"""Rows that share widened weights, by the bytes of a vector: with 32 outputs each, their sums take 16 registers of 32,
or 8 of 16. On Zen 3, 3 rows spill registers: 52 GFLOP/s for float rows by bfloat16, where 2
have 72."""
STEP = 4
"""Weights along the sum for which code is laid out: those of a word of four bytes. Of more, LLVM loads what all of them
need at once, which spills registers."""


class FloatPanels(CPUScheduleRule):
    """Rows of floats by widened weights, with a panel's sums in registers."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        if product_of(leaves_of(func) or []) is None:
            return None
        sch = Schedule(func)
        product = product_of(leaves(sch) or [])
        assert product is not None
        by_pairs = product.in_pairs and cpu_info(target).has_bfloat16_dots
        if by_pairs and product.convert is not None:
            sch.compute_inline(product.convert.handle)
        extent = product.total.extents[0]
        most = ROWS.get(cpu_info(target).vector_bytes, 2)
        rows = most if extent is None else min(extent, most)
        if product.total.block.writes[0].buffer in func.buffer_map.values():
            sch.cache_write(product.total.handle, 0, "global")
        if extent is None or extent % rows:
            name = product.total.block.name_hint
            factors = {leaf.block.iter_vars[0].var: rows for leaf in leaves(sch) or () if leaf.block.name_hint == name}
            sch = Schedule(computing_whole_tiles(sch.mod["main"], {name}, factors))
        product = product_of(leaves(sch) or [])
        assert product is not None
        if product.convert is not None:
            schedule_leaf(sch, product.convert, cpu_info(target).vector_bytes)
        panel, depth = (compute_by_pairs if by_pairs else compute_by_panels)(sch, product, rows)
        if extent is None or extent > rows:
            return sch
        panel_axis, depth_axis, *_ = (iv.var for iv in product.widen.block.iter_vars)
        places = {panel_axis: panel, depth_axis: depth * (2 if by_pairs else STEP)}
        return Schedule(with_prefetches(sch.mod["main"], depth, [product.widen], places))


@dataclass(slots=True)
class Product:
    """The blocks of a product: rows as floats, if they are none, widened weights, sums, and what follows."""

    convert: Leaf | None
    widen: Leaf
    total: Leaf
    epilogue: list[Leaf]
    in_pairs: bool
    """Whether rows are bfloat16, and weights words of two of these, neighbours along the sum."""


def product_of(found: list[Leaf]) -> Product | None:
    """The blocks of a function that computes a product with weights in panels; None for another function."""
    count = next((i for i, leaf in enumerate(found) if leaf.reduces), 0)
    if count == 0:
        return None
    made = {leaf.block.writes[0].buffer: leaf for leaf in found[:count]}
    total, *epilogue = found[count:]
    pair = operands(total.block)
    if pair is None or any(leaf.reduces for leaf in epilogue):
        return None
    x, weight = pair
    convert, widen, store = made.pop(x.buffer, None), made.pop(weight.buffer, None), total.block.body
    if widen is None or made or not isinstance(store, BufferStore):
        return None
    kinds = [iv.iter_type for iv in total.block.iter_vars]
    if kinds != [IterVar.DataPar] * 4 + [IterVar.CommReduce] or len(widen.extents) != 4:
        return None
    row, panel, vector, lane, depth = (iv.var for iv in total.block.iter_vars)
    if list(weight.indices) != [panel, depth, vector, lane]:
        return None
    if not variables_of(x) >= {row, depth} or variables_of(x) & {panel, vector, lane} or total.extents[4] is None:
        return None
    if store.buffer.dtype != "float32":
        return None
    sources = [[load.buffer.dtype for load in loads(leaf.block.body)] for leaf in (convert, widen) if leaf is not None]
    in_pairs = sources == [["bfloat16"], ["uint32"]]
    return Product(convert, widen, total, epilogue, in_pairs) if total.extents[4] % STEP == 0 else None


def compute_by_pairs(sch: Schedule, product: Product, rows: int) -> tuple[Var, Var]:
    """A panel of outputs at a time, a few rows in it, pair after pair of weights, by the processor's dot products.
    Returns the variables of panels and pairs.
    """
    total = product.total.handle
    sch.compute_inline(product.widen.handle)
    row, panel, vector, lane, depth = sch.get_loops(total)
    row_outer, row_inner = sch.split(row, [None, rows])
    pair, half = sch.split(depth, [None, 2])
    sch.reorder(panel, row_outer, pair, row_inner, vector, lane, half)
    sch.parallel(panel)
    sch.set_scope(total, 0, "local")
    for leaf in product.epilogue:
        sch.reverse_compute_at(leaf.handle, row_outer, preserve_unit_loops=True)
        sch.vectorize(sch.get_loops(leaf.handle)[-1])
    init = sch.decompose_reduction(total, pair)
    for loop in (row_inner, vector, *sch.get_loops(init)[-3:]):
        sch.unroll(loop)
    variables = sch.get(panel).loop_var, sch.get(pair).loop_var
    sch.tensorize(lane, BFLOAT16_DOT_16x2_INTRIN)
    return variables


def compute_by_panels(sch: Schedule, product: Product, rows: int) -> tuple[Var, Var]:
    """A panel of outputs at a time, a few rows in it, some weights along the sum after the others. Returns the
    variables of panels and of `STEP` weights.
    """
    widen, total = product.widen.handle, product.total.handle
    row, panel, vector, lane, depth = product.total.loops
    row_outer, row_inner = sch.split(row, [None, rows])
    outer, inner = sch.split(depth, [None, STEP])
    sch.reorder(panel, row_outer, outer, inner, row_inner, vector, lane)
    sch.parallel(panel)
    for handle in (widen, total):
        sch.set_scope(handle, 0, "local")
    sch.compute_at(widen, inner, preserve_unit_loops=True)
    for leaf in product.epilogue:
        sch.reverse_compute_at(leaf.handle, row_outer, preserve_unit_loops=True)
        sch.vectorize(sch.get_loops(leaf.handle)[-1])
    unroll_and_vectorize(sch, [inner, row_inner, vector, lane])
    unroll_and_vectorize(sch, sch.get_loops(widen)[-4:])
    sch.decompose_reduction(total, outer)
    return sch.get(panel).loop_var, sch.get(outer).loop_var
