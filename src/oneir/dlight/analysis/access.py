"""Which variables an access to memory depends on, and in what order it runs along memory."""

from __future__ import annotations

from collections.abc import Iterable

from ...arith import IterSumExpr, normalize_to_iter_sum
from ...ir.expr import PrimExpr, Range, Var
from ...runtime.error import InvalidValue
from ...tir.analysis.variables import variables
from ...tir.schedule.domain import domain_of
from ...tir.stmt import Block


def collect_vars_used_in_prim_expr(expr: PrimExpr) -> set[Var]:
    """The variables in an expression."""
    return variables(expr)


def collect_block_iter_vars_used_in_access_region(block: Block, region: Iterable[Range]) -> set[Var]:
    """The block's iteration variables that the minima of a region depend on."""
    used: set[Var] = set()
    for r in region:
        used |= collect_vars_used_in_prim_expr(r.min)
    return used & {iv.var for iv in block.iter_vars}


def detect_dominant_read(block: Block) -> PrimExpr:
    """The offset, in elements, of the read that depends on most axes; the first of several.

    Raises `InvalidValue` for a block that reads nothing.
    """
    if not block.reads:
        raise InvalidValue(f"expected a block that reads a buffer; `{block.name_hint}` reads none")
    read = max(block.reads, key=lambda r: len(collect_block_iter_vars_used_in_access_region(block, r.region)))
    (offset,) = read.buffer.offset_of([r.min for r in read.region])
    return offset


def dominant_access(block: Block) -> IterSumExpr:
    """The offset of the dominant read as an `IterSumExpr` of the block's variables, outermost first.

    Its `base` is what is no such term. Raises `InvalidValue` for a block that reads nothing.
    """
    offset = detect_dominant_read(block)
    used = collect_vars_used_in_prim_expr(offset)
    return normalize_to_iter_sum(offset, {iv.var: domain_of(iv) for iv in block.iter_vars if iv.var in used})
