"""The matrices of Winograd's fast convolution, by the construction of Cook and Toom.

An output tile of m elements under a kernel of r is a product of polynomials, evaluated at m + r - 2 points and at
infinity: A.T @ ((G @ kernel) * (B.T @ data)).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ... import te
from ...ir.expr import PrimExpr, Select, const
from ...runtime.error import InvalidValue
from ...te.tensor import Tensor
from ...tir import op as tir_op

# The points with the least error for each number of points, from "Error Analysis and Improving the Accuracy of
# Winograd Convolution for Deep Neural Networks", Barabasz et al., https://arxiv.org/abs/1803.10986.
_POINTS = {
    3: "0 -1 1",
    4: "0 -1 1 1/2",
    5: "0 -1 1 1/2 -2",
    6: "0 -1 1 1/2 -2 -1/2",
    7: "0 -1 1 1/2 -1/2 2 -2",
    8: "0 -1 1 1/2 -1/2 2 -2 -1/4",
    9: "0 -1 1 1/2 -1/2 2 -2 -1/4 4",
    10: "0 -1 1 1/2 -1/2 2 -2 -1/4 3/4 -4/3",
    11: "0 -1 1 1/2 -1/2 2 -2 -1/4 4 3/4 -4/3",
    12: "0 -1 1 1/2 -1/2 2 -2 -1/4 4 3/4 -4/3 1/4",
    13: "0 -1 1 1/2 -1/2 2 -2 -1/4 4 1/4 -3/4 4/3 -4",
}


def winograd_transform_matrices(tile_size: int, kernel_size: int, out_dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    """The matrices A, B and G for output tiles of `tile_size` and kernels of `kernel_size` elements, as constants."""
    if not 1 < tile_size < 9:
        raise InvalidValue(f"topi.nn.winograd_transform_matrices: expected a tile size from 2 to 8, found {tile_size}")
    if not 2 < kernel_size < 8:
        raise InvalidValue(
            f"topi.nn.winograd_transform_matrices: expected a kernel size from 3 to 7, found {kernel_size}"
        )
    a, b, g = _cook_toom(tile_size, kernel_size)
    return _constant(a, out_dtype, "A"), _constant(b, out_dtype, "B"), _constant(g, out_dtype, "G")


def _cook_toom(m: int, r: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = m + r - 2
    points = [Fraction(text) for text in _POINTS[count].split()]
    scales = []
    for i, point in enumerate(points):
        scale = Fraction(1)
        for k, other in enumerate(points):
            scale *= point - other if k != i else 1
        scales.append(scale)
    # Which of a row of G and a column of B is negated is free; this makes the first entry of G positive.
    sign = -1 if scales[0] < 0 else 1

    a = [[p**j for j in range(m)] for p in points] + [_unit(m)]
    g = [[p**j / s for j in range(r)] for p, s in zip(points, scales, strict=True)] + [_unit(r)]
    g[0] = [sign * v for v in g[0]]
    b = [[Fraction(0)] * (count + 1) for _ in range(count + 1)]
    for i in range(count):
        for power, coefficient in enumerate(_product([p for k, p in enumerate(points) if k != i])):
            b[power][i] = coefficient * (sign if i == 0 else 1)
    for power, coefficient in enumerate(_product(points)):
        b[power][count] = coefficient
    return _floats(a), _floats(b), _floats(g)


def _floats(rows: list[list[Fraction]]) -> np.ndarray:
    return np.array([[float(v) for v in row] for row in rows])


def _unit(length: int) -> list[Fraction]:
    return [Fraction(int(j == length - 1)) for j in range(length)]


def _product(roots: list[Fraction]) -> list[Fraction]:
    """The coefficients of the product of x - root over the roots, of the lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [s - root * c for s, c in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return coefficients


def _constant(matrix: np.ndarray, dtype: str, name: str) -> Tensor:
    rows, columns = matrix.shape

    def element(i: PrimExpr, j: PrimExpr) -> Any:
        value: Any = const(0.0, dtype)
        for row in range(rows):
            for column in range(columns):
                here = tir_op.all(i % rows == row, j % columns == column)
                value = Select(here, const(float(matrix[row, column]), dtype), value)
        return value

    return te.compute((rows, columns), element, name=name, attrs={"const_matrix": True, "schedule_rule": "None"})
