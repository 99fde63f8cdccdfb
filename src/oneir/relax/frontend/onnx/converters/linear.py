"""Products of matrices, of floats and of integers."""

from __future__ import annotations

from .... import op
from ....expr import Expr
from ..context import Context
from ..registry import converter
from .convolution import shifted


@converter("MatMul")
def matmul(g: Context, a: Expr, b: Expr) -> Expr:
    """The product of matrices, broadcast over the other dimensions."""
    return g.emit(op.matmul(a, b))


@converter("Gemm")
def gemm(
    g: Context,
    a: Expr,
    b: Expr,
    c: Expr | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """alpha * a @ b + beta * c, a and b transposed before if that is asked for."""
    left = op.permute_dims(a, [1, 0]) if transA else a
    right = op.permute_dims(b, [1, 0]) if transB else b
    out = op.matmul(left, right)
    if alpha != 1.0:
        out = op.multiply(out, g.like(alpha, a))
    if c is not None and beta != 0.0:
        out = op.add(out, c if beta == 1.0 else op.multiply(c, g.like(beta, a)))
    return g.emit(out)


@converter("Einsum")
def einsum(g: Context, *operands: Expr, equation: str) -> Expr:
    """Products and sums that letters describe."""
    return g.emit(op.einsum(list(operands), equation.replace(" ", "")))


@converter("MatMulInteger")
def matmul_integer(g: Context, a: Expr, b: Expr, a_zero: Expr | None = None, b_zero: Expr | None = None) -> Expr:
    """A product of integers, from which their zero points are taken before."""
    rows = max(g.ndim(a) - 2, 0)
    return g.emit(op.matmul(shifted(g, a, a_zero, rows), shifted(g, b, b_zero, g.ndim(b) - 1)))
