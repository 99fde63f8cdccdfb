"""Decompositions of matrices and systems of equations: functions of the runtime, by NumPy's LAPACK.

Each takes its arguments and then the tensors that it writes: matrices in the last two dimensions, in any batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..error import InvalidValue
from ..registry import register_func
from ..tensor import Tensor

_PREFIX = "relax.run.linalg."


def _function(name: str, count: int, by_shapes: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of arrays, which takes `count` of them and gives one or a tuple.

    With `by_shapes`, it gets the shapes of the results as well: what is computed depends on them.
    """

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> None:
            arrays, outputs = [t.numpy() for t in tensors[:count]], tensors[count:]
            shapes = tuple(tuple(out.shape) for out in outputs)
            try:
                found = compute(*arrays, shapes) if by_shapes else compute(*arrays)
            except np.linalg.LinAlgError as error:
                shape = " and ".join(str(a.shape) for a in arrays)
                raise InvalidValue(f"{name} of {shape} has no result: {error}") from None
            for out, value in zip(outputs, found if isinstance(found, tuple) else (found,), strict=True):
                out.copyfrom(np.ascontiguousarray(value, dtype=out.dtype).reshape(tuple(out.shape)))

        register_func(f"{_PREFIX}{name}", run)
        return compute

    return register


@_function("cholesky", 1)
def cholesky(a: np.ndarray) -> np.ndarray:
    """The lower triangular matrix whose product with its transpose is `a`."""
    return np.linalg.cholesky(a)


@_function("solve", 2)
def solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The matrices whose product with `a` is `b`."""
    return np.linalg.solve(a, b)


@_function("inverse", 1)
def inverse(a: np.ndarray) -> np.ndarray:
    """The inverse."""
    return np.linalg.inv(a)


@_function("determinant", 1)
def determinant(a: np.ndarray) -> np.ndarray:
    """The determinant."""
    return np.asarray(np.linalg.det(a))


@_function("slogdet", 1)
def slogdet(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sign of the determinant and the logarithm of its size."""
    sign, log = np.linalg.slogdet(a)
    return sign, log


@_function("lu", 1)
def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both triangular factors in one matrix, and for each step the row, counted from 1, that was exchanged with its."""
    rows, columns = a.shape[-2:]
    steps = min(rows, columns)
    made = a.reshape(-1, rows, columns).copy()
    pivots = np.empty((len(made), steps), "int32")
    every = np.arange(len(made))
    for k in range(steps):
        chosen = k + np.abs(made[:, k:, k]).argmax(1)
        pivots[:, k] = chosen + 1
        made[every, k], made[every, chosen] = made[every, chosen], made[every, k].copy()
        head = made[:, k, k]
        made[:, k + 1 :, k] /= np.where(head == 0, 1, head)[:, None]
        made[:, k + 1 :, k + 1 :] -= made[:, k + 1 :, k, None] * made[:, k, None, k + 1 :]
    return made, pivots


@_function("permutation", 1, by_shapes=True)
def permutation(pivots: np.ndarray, shapes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """The matrix that undoes the exchanges of rows that pivots say."""
    size = shapes[0][-1]
    *batch, steps = pivots.shape
    flat = pivots.reshape(math.prod(batch), steps)
    order = np.tile(np.arange(size), (len(flat), 1))
    every = np.arange(len(flat))
    for k in range(flat.shape[1]):
        chosen = flat[:, k] - 1
        order[every, k], order[every, chosen] = order[every, chosen], order[every, k].copy()
    return np.swapaxes(np.eye(size)[order], -1, -2)


@_function("qr", 1, by_shapes=True)
def qr(a: np.ndarray, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """An orthogonal matrix and a triangular one, whose product is `a`; complete if the first shape is square."""
    rows, columns = a.shape[-2:]
    complete = rows > columns and shapes[0][-1] == rows
    return tuple(np.linalg.qr(a, "complete" if complete else "reduced"))


@_function("svd", 1, by_shapes=True)
def svd(a: np.ndarray, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """The singular values, with orthogonal matrices on both sides if there are three results."""
    if len(shapes) == 1:
        return np.linalg.svd(a, compute_uv=False)
    left, _, right = shapes
    return tuple(np.linalg.svd(a, full_matrices=left[-1] == left[-2] and right[-1] == right[-2]))


@_function("eigh", 1)
def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of a symmetric matrix, of which the lower half is read, ascending, and its eigenvectors."""
    values, vectors = np.linalg.eigh(a)
    return values, vectors


@_function("matrix_exp", 1)
def matrix_exp(a: np.ndarray) -> np.ndarray:
    """The exponential, by squaring that of a small fraction of `a`."""
    size = np.abs(a).sum(-1).max(initial=0)
    halvings = max(0, int(np.ceil(np.log2(size))) + 1) if size > 0 else 0
    small = a.astype("float64") / 2.0**halvings
    result = term = np.broadcast_to(np.eye(a.shape[-1]), a.shape).copy()
    for k in range(1, 20):
        term = term @ small / k
        result = result + term
    for _ in range(halvings):
        result = result @ result
    return result
