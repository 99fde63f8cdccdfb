"""Decompositions of matrices, and systems of equations: calls of functions of the runtime (`runtime/vm/linalg.py`).

A matrix without a result (singular, not positive definite) is an error of the program, where PyTorch's operators whose
names end with `_ex` would say it in a number; that number is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....ir import operators
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ....struct_info import TensorStructInfo
from ..dtypes import as_operand
from ..importer import Importer, as_shape, fields_of
from ..registry import converter
from .shape import broadcast_shape, matrix_transpose


def _run(g: Importer, name: str, args: Sequence[Expr], *results: tuple[Sequence[Any], str]) -> list[Expr]:
    """The results, of the given shapes and dtypes, of a function of the runtime."""
    infos = [TensorStructInfo(list(shape), dtype) for shape, dtype in results]
    args = [g.emit(a) for a in args]
    made = g.emit(op.call_dps_packed(f"relax.run.linalg.{name}", tuple(args), infos if len(infos) > 1 else infos[0]))
    return fields_of(made) if len(infos) > 1 else [made]


def _parts(g: Importer, a: Expr) -> tuple[list[Any], Any, Any, str]:
    """Batch, rows, columns and dtype of matrices."""
    *batch, rows, columns = g.shape(a)
    return batch, rows, columns, g.dtype(a)


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else operators.minimum(a, b)


def _success(g: Importer, batch: Sequence[Any]) -> Expr:
    """The status code of success."""
    return g.emit(op.zeros(as_shape(batch), "int32"))


@converter("cholesky", "linalg_cholesky")
def cholesky(g: Importer, a: Expr, upper: bool = False) -> Expr:
    """The triangular matrix whose product with its transpose is `a`."""
    (lower,) = _run(g, "cholesky", [a], (g.shape(a), g.dtype(a)))
    return matrix_transpose(g, lower) if upper else lower


@converter("linalg_cholesky_ex")
def cholesky_ex(g: Importer, a: Expr, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The same, and whether there is one."""
    return cholesky(g, a, upper), _success(g, g.shape(a)[:-2])


def _solved(g: Importer, a: Expr, b: Expr) -> Expr:
    """The matrices whose product with `a` is `b`."""
    shape = [*broadcast_shape([g.shape(a)[:-2], g.shape(b)[:-2]]), *g.shape(b)[-2:]]
    return _run(g, "solve", [a, b], (shape, g.dtype(a)))[0]


def _triangle(g: Importer, a: Expr, upper: bool, unit: bool = False) -> Expr:
    """One triangle of matrices; with `unit`, the diagonal is taken to be ones."""
    if not unit:
        return g.emit(op.triu(a) if upper else op.tril(a))
    rows = g.shape(a)[-1]
    strict = op.triu(a, 1) if upper else op.tril(a, -1)
    return g.emit(op.add(strict, op.eye(rows, rows, 0, g.dtype(a))))


@converter("linalg_solve_triangular")
def solve_triangular(
    g: Importer, a: Expr, b: Expr, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Expr:
    """The matrices whose product with a triangular one is `b`."""
    triangle = _triangle(g, a, upper, unitriangular)
    if left:
        return _solved(g, triangle, b)
    return matrix_transpose(g, _solved(g, matrix_transpose(g, triangle), matrix_transpose(g, b)))


@converter("triangular_solve")
def triangular_solve(
    g: Importer, b: Expr, a: Expr, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """The same, and the triangular matrix."""
    triangle = _triangle(g, a, upper, unitriangular)
    solution = _solved(g, matrix_transpose(g, triangle) if transpose else triangle, b)
    return solution, g.emit(op.broadcast_to(a, as_shape([*g.shape(solution)[:-2], *g.shape(a)[-2:]])))


def _product_of(g: Importer, factor: Expr, upper: bool) -> Expr:
    """The matrices that triangular ones are factors of."""
    triangle = _triangle(g, factor, upper)
    other = matrix_transpose(g, triangle)
    return g.emit(op.matmul(other, triangle) if upper else op.matmul(triangle, other))


@converter("cholesky_solve")
def cholesky_solve(g: Importer, b: Expr, factor: Expr, upper: bool = False) -> Expr:
    """The matrices whose product with that which `factor` is of is `b`."""
    triangle = _triangle(g, factor, upper)
    lower = matrix_transpose(g, triangle) if upper else triangle
    return _solved(g, matrix_transpose(g, lower), _solved(g, lower, b))


@converter("cholesky_inverse")
def cholesky_inverse(g: Importer, factor: Expr, upper: bool = False) -> Expr:
    """The inverse of the matrix that `factor` is of."""
    return inverse(g, _product_of(g, factor, upper))


@converter("linalg_inv", "inverse")
def inverse(g: Importer, a: Expr) -> Expr:
    """The inverse."""
    return _run(g, "inverse", [a], (g.shape(a), g.dtype(a)))[0]


@converter("linalg_inv_ex")
def inverse_ex(g: Importer, a: Expr, *, check_errors: bool = False) -> Any:
    """The inverse, and whether there is one."""
    return inverse(g, a), _success(g, g.shape(a)[:-2])


@converter("linalg_solve")
def solve(g: Importer, a: Expr, b: Expr, *, left: bool = True) -> Expr:
    """The matrices, or vectors, whose product with `a` is `b`."""
    vectors = g.ndim(b) == 1 or (g.ndim(a) - 1 == g.ndim(b) and g.shape(b) == g.shape(a)[:-1])
    if vectors:
        return g.emit(op.squeeze(_solved(g, a, g.emit(op.expand_dims(b, -1))), [-1]))
    if left:
        return _solved(g, a, b)
    return matrix_transpose(g, _solved(g, matrix_transpose(g, a), matrix_transpose(g, b)))


@converter("_linalg_solve_ex")
def solve_ex(g: Importer, a: Expr, b: Expr, *, left: bool = True, check_errors: bool = False) -> Any:
    """The same; a factorization is not given."""
    return solve(g, a, b, left=left), None, None, _success(g, g.shape(a)[:-2])


@converter("linalg_det", "det")
def determinant(g: Importer, a: Expr) -> Expr:
    """The determinant."""
    return _run(g, "determinant", [a], (g.shape(a)[:-2], g.dtype(a)))[0]


@converter("_linalg_det")
def determinant_and_factors(g: Importer, a: Expr) -> Any:
    """The determinant; a factorization is not given."""
    return determinant(g, a), None, None


@converter("linalg_slogdet", "slogdet", "_linalg_slogdet")
def slogdet(g: Importer, a: Expr) -> Any:
    """The sign of the determinant and the logarithm of its size; a factorization is not given."""
    batch, dtype = g.shape(a)[:-2], g.dtype(a)
    return (*_run(g, "slogdet", [a], (batch, dtype), (batch, dtype)), None, None)


def _factored(g: Importer, a: Expr) -> tuple[Expr, Expr]:
    batch, rows, columns, dtype = _parts(g, a)
    made, pivots = _run(g, "lu", [a], (g.shape(a), dtype), ([*batch, _smaller(rows, columns)], "int32"))
    return made, pivots


@converter("linalg_lu_factor_ex", "_lu_with_info")
def lu_factor_ex(g: Importer, a: Expr, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Both factors in one matrix, the exchanges of rows, and whether that could be."""
    if not pivot:
        raise UnsupportedError("factors without exchanges of rows; leave pivot=False out")
    return (*_factored(g, a), _success(g, g.shape(a)[:-2]))


@converter("linalg_lu_factor")
def lu_factor(g: Importer, a: Expr, *, pivot: bool = True) -> Any:
    """Both factors in one matrix, and the exchanges of rows."""
    return lu_factor_ex(g, a, pivot=pivot)[:2]


@converter("linalg_lu")
def lu(g: Importer, a: Expr, *, pivot: bool = True) -> Any:
    """A permutation and two triangular matrices, whose product is `a`."""
    if not pivot:
        raise UnsupportedError("factors without exchanges of rows; leave pivot=False out")
    return lu_unpack(g, *_factored(g, a))


@converter("lu_unpack")
def lu_unpack(g: Importer, factors: Expr, pivots: Expr, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """A permutation and two triangular matrices of what `linalg_lu_factor` gives."""
    batch, rows, columns, dtype = _parts(g, factors)
    steps = _smaller(rows, columns)
    (order,) = _run(g, "permutation", [pivots], ([*batch, rows, rows], dtype))
    last = len(batch) + 1
    lower = g.emit(op.strided_slice(op.tril(factors, -1), [last], [0], [steps]))
    lower = g.emit(op.add(lower, op.eye(rows, steps, 0, dtype)))
    return order, lower, g.emit(op.strided_slice(op.triu(factors), [last - 1], [0], [steps]))


@converter("linalg_lu_solve")
def lu_solve(g: Importer, factors: Expr, pivots: Expr, b: Expr, *, left: bool = True, adjoint: bool = False) -> Expr:
    """The matrices whose product with that which `factors` are of is `b`."""
    order, lower, upper = lu_unpack(g, factors, pivots)
    whole = g.emit(op.matmul(order, op.matmul(lower, upper)))
    return solve(g, matrix_transpose(g, whole) if adjoint else whole, b, left=left)


@converter("linalg_qr")
def qr(g: Importer, a: Expr, mode: str = "reduced") -> Any:
    """An orthogonal and an upper triangular matrix, whose product is `a`; with mode "r", the latter."""
    batch, rows, columns, dtype = _parts(g, a)
    width = rows if mode == "complete" else _smaller(rows, columns)
    q, r = _run(g, "qr", [a], ([*batch, rows, width], dtype), ([*batch, width, columns], dtype))
    return (g.emit(op.zeros(as_shape([0]), dtype)) if mode == "r" else q), r


@converter("linalg_svd", "_linalg_svd")
def svd(g: Importer, a: Expr, full_matrices: bool = True, compute_uv: bool = True, *, driver: Any = None) -> Any:
    """Orthogonal matrices and singular values, whose product is `a`."""
    batch, rows, columns, dtype = _parts(g, a)
    count = _smaller(rows, columns)
    values = ([*batch, count], dtype)
    if not compute_uv:
        empty = g.emit(op.zeros(as_shape([0]), dtype))
        return empty, _run(g, "svd", [a], values)[0], empty
    left, right = (rows, columns) if full_matrices else (count, count)
    return tuple(_run(g, "svd", [a], ([*batch, rows, left], dtype), values, ([*batch, right, columns], dtype)))


@converter("linalg_svdvals")
def singular_values(g: Importer, a: Expr, *, driver: Any = None) -> Expr:
    """The singular values, from the largest on."""
    return svd(g, a, compute_uv=False)[1]


@converter("linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(g: Importer, a: Expr, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Expr:
    """The pseudoinverse, by the singular values above a tolerance; one half of a Hermitian matrix is read."""
    *_, rows, columns = g.shape(a)
    dtype = g.dtype(a)
    if hermitian:
        lower = op.tril(a, -1)
        a = g.emit(op.add(op.tril(a), matrix_transpose(g, g.emit(lower))))
    left, values, right = svd(g, a, False)
    if rtol is None:
        larger = g.static(max(rows, columns), "the extent of a matrix to invert")
        epsilon = float(np.finfo(dtype).eps) * larger if atol is None else 0.0
        rtol = const(epsilon, dtype)
    limit = op.multiply(_spread(g, rtol, dtype), op.max(values, [-1], True))
    if atol is not None:
        limit = op.maximum(limit, _spread(g, atol, dtype))
    one, zero = const(1, dtype), const(0, dtype)
    kept = op.greater(values, limit)
    inverses = g.emit(op.where(kept, op.divide(one, op.where(kept, values, one)), zero))
    scaled = g.emit(op.multiply(matrix_transpose(g, right), op.expand_dims(inverses, -2)))
    return g.emit(op.matmul(scaled, matrix_transpose(g, left)))


def _spread(g: Importer, tolerance: Any, dtype: str) -> Expr:
    """A tolerance for each matrix, next to its singular values."""
    value = g.emit(as_operand(tolerance, dtype))
    return op.expand_dims(value, -1) if g.ndim(value) else value


@converter("linalg_eigh", "_linalg_eigh")
def eigh(g: Importer, a: Expr, uplo: str = "L", compute_v: bool = True) -> Any:
    """The eigenvalues of a symmetric matrix, of which one half is read, ascending, and its eigenvectors."""
    batch, rows, _, dtype = _parts(g, a)
    half = a if uplo.upper() == "L" else matrix_transpose(g, a)
    values, vectors = _run(g, "eigh", [half], ([*batch, rows], dtype), (g.shape(a), dtype))
    return values, vectors if compute_v else g.emit(op.zeros(as_shape([0]), dtype))


@converter("linalg_matrix_exp", "matrix_exp")
def matrix_exp(g: Importer, a: Expr) -> Expr:
    """The exponential of a square matrix."""
    return _run(g, "matrix_exp", [a], (g.shape(a), g.dtype(a)))[0]
