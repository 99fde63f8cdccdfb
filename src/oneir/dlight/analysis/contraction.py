"""Which blocks multiply and sum."""

from __future__ import annotations

from ...ir.expr import Add, Cast, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Var
from ...tir.expr import BufferLoad
from ...tir.stmt import Block, BufferStore
from .leaves import Leaf


def operands(block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """The two loads that a block multiplies and adds to its result; None for another block."""
    body = block.body
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return None
    total, product = body.value.a, body.value.b
    if not (isinstance(total, BufferLoad) and total.buffer is body.buffer and isinstance(product, Mul)):
        return None
    a, b = without_cast(product.a), without_cast(product.b)
    return (a, b) if isinstance(a, BufferLoad) and isinstance(b, BufferLoad) else None


def without_cast(expr: PrimExpr) -> PrimExpr:
    """An expression without the cast around it, if there is one."""
    return expr.value if isinstance(expr, Cast) else expr


QUAD = 4
"""Bytes along the sum that dot products of bytes take together."""


def panel_width(load: BufferLoad, var: Var) -> int | None:
    """The elements of a panel along the variable, where the buffer lies in panels: `B[v // 32, ..., v % 32]`, or
    `B[v // 32, ..., k // 4, v % 32, k % 4]` with bytes in fours.
    """
    indices = load.indices[:-1] if summed_in_quads(load) is not None else load.indices
    last = indices[-1] if indices else None
    if isinstance(last, FloorMod) and last.a is var and isinstance(last.b, IntImm):
        return last.b.value
    return None


def summed_in_quads(load: BufferLoad) -> Var | None:
    """The variable `k` of panels of bytes that lie in fours: `B[..., k // 4, v % 32, k % 4]`; None for other loads."""
    if load.buffer.dtype.bits != 8 or len(load.indices) < 4:
        return None
    fours, lane, four = load.indices[-3:]
    if not (isinstance(fours, FloorDiv) and isinstance(lane, FloorMod) and isinstance(four, FloorMod)):
        return None
    var = four.a
    same = fours.a is var and isinstance(var, Var) and lane.a is not var
    quads = all(isinstance(d, IntImm) and d.value == QUAD for d in (fours.b, four.b))
    return var if same and quads and isinstance(var, Var) else None


def is_contraction(leaf: Leaf) -> bool:
    """Whether a block multiplies and sums."""
    return leaf.reduces and leaf.block.init is not None and operands(leaf.block) is not None
