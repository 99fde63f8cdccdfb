"""Which blocks multiply and sum."""

from __future__ import annotations

from ...ir.expr import Add, Cast, Mul, PrimExpr
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


def is_contraction(leaf: Leaf) -> bool:
    """Whether a block multiplies and sums."""
    return leaf.reduces and leaf.block.init is not None and operands(leaf.block) is not None
