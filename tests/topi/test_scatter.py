"""Scattered updates do what the same assignments do in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch

rng = np.random.default_rng(11)
COMBINE = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": min,
    "max": max,
}


def of(*shape, dtype="float32"):
    return rng.integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("reduction", COMBINE)
def test_scatter_elements(reduction, axis):
    data, indices, updates = of(3, 4), np.array([[0, -1, 2], [1, 2, -3]], "int64"), of(2, 3)
    expected = data.copy()
    for i, j in np.ndindex(2, 3):
        place = (indices[i, j], j) if axis == 0 else (i, indices[i, j])
        expected[place] = COMBINE[reduction](expected[place], updates[i, j])
    np.testing.assert_array_equal(
        run(lambda d, i, u: topi.scatter_elements(d, i, u, axis, reduction), data, indices, updates), expected
    )


@pytest.mark.parametrize("mode", ["update", "add", "mul", "min", "max"])
def test_scatter_nd(mode):
    data, updates = of(3, 4, 2), of(3, 2)
    indices = np.array([[0, 2, 2], [1, -1, 3]], "int32")
    expected = data.copy()
    for y in range(3):
        for x in range(2):
            place = (indices[0, y], indices[1, y], x)
            expected[place] = COMBINE[mode](expected[place], updates[y, x])
    np.testing.assert_array_equal(run(lambda d, i, u: topi.scatter_nd(d, i, u, mode), data, indices, updates), expected)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16"])
def test_scatter_of_several_dtypes(dtype):
    data, indices, updates = of(6, dtype=dtype), np.array([[5, 0]], "uint8"), of(2, dtype=dtype)
    expected = data.copy()
    expected[[5, 0]] += updates
    np.testing.assert_array_equal(
        run(lambda d, i, u: topi.scatter_nd(d, i, u, "add"), data, indices, updates), expected
    )
    got = run(lambda d, i, u: topi.scatter_elements(d, i, u, 0, "add"), data, indices[0], updates)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate):
    data, row, column = of(3, 4), np.array([[0], [-1]], "int64"), np.array([1, 3, 1], "int32")
    values = of(2, 3)
    expected = data.copy()
    if accumulate:
        np.add.at(expected, (row, column), values)
    else:
        expected[row, column] = values
    got = run(lambda d, r, c, v: topi.index_put(d, [r, c], v, accumulate), data, row, column, values)
    np.testing.assert_array_equal(got, expected)


def test_index_put_broadcasts_values_over_what_is_not_indexed():
    data, row, values = of(3, 4), np.array([2, 0], "int64"), of(4)
    expected = data.copy()
    expected[row] = values
    np.testing.assert_array_equal(run(lambda d, r, v: topi.index_put(d, r, v), data, row, values), expected)


@pytest.mark.parametrize("bounds", [(0, 4, 1), (1, 4, 2), (-3, 9, 1), (2, 2, 1)], ids=str)
def test_slice_scatter(bounds):
    data = of(2, 4)
    expected = data.copy()
    src = of(*expected[:, slice(*bounds)].shape)
    expected[:, slice(*bounds)] = src
    (got,) = run(lambda d, s: topi.slice_scatter(d, s, *bounds, axis=-1), data, src)
    np.testing.assert_array_equal(got, expected)


def test_symbolic_shapes():
    data, indices, updates = of(5, 3), np.array([[4, 0]], "int64"), of(2, 3)
    expected = data.copy()
    expected[indices[0]] = updates
    shapes = {0: ("n", "m"), 1: (1, "k"), 2: ("k", "m")}
    got = run(lambda d, i, u: topi.scatter_nd(d, i, u, "update"), data, indices, updates, shapes=shapes)
    np.testing.assert_array_equal(got, expected)


def test_sparse_reshape():
    indices = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 2, 3]], "int64")
    old, new = np.array([2, 3, 4], "int64"), np.array([9, -1], "int64")
    old[0] = 6
    got, shape = run(lambda i, p, n: topi.sparse_reshape(i, p, n, (5, 2), (2,)), indices, old, new)
    np.testing.assert_array_equal(shape, [9, 8])
    np.testing.assert_array_equal(got.T, np.unravel_index(np.ravel_multi_index(indices.T, old), (9, 8)))


# -- refusals --

T = te.placeholder((2, 3))
INDEX = te.placeholder((2,), "int64")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: topi.scatter_elements(T, INDEX, T), ShapeMismatch, r"topi.scatter_elements: .* found \(2,\) and \(2, 3\)"),
        (lambda: topi.scatter_elements(T, T, T), TypeMismatch, "expected indices that are integers, found float32"),
        (lambda: topi.scatter_elements(T, te.placeholder((2, 3), "int32"), T, 2), InvalidValue, r"axis in \[-2, 2\)"),
        (lambda: topi.scatter_elements(T, T, T, 0, "sub"), InvalidValue, "expected reduction to be one of .* found 'sub'"),
        (lambda: topi.scatter_nd(T, INDEX, T, "mean"), InvalidValue, "expected mode to be one of .* found 'mean'"),
        (lambda: topi.scatter_nd(T, INDEX, T, "add"), ShapeMismatch, r"do not fit updates of shape \(2, 3\)"),
        (lambda: topi.index_put(T, [INDEX] * 3, T), InvalidValue, "expected 1 to 2 index tensors"),
        (lambda: topi.index_put(T, INDEX, te.placeholder((2,))), ShapeMismatch, r"shapes .* do not broadcast"),
        (lambda: topi.index_put(T, INDEX, te.placeholder((1, 2, 3))), ShapeMismatch, r"do not broadcast to \(2, 3\)"),
        (lambda: topi.slice_scatter(T, T, 0, 2, 1, 1), ShapeMismatch, "is no slice 0:2:1 along axis 1"),
        (lambda: topi.slice_scatter(T, T, 0, 3, 0, 1), InvalidValue, "expected a step of at least 1, found 0"),
    ],
)  # fmt: skip
def test_refusals_name_function_and_argument(make, error, message):
    with pytest.raises(error, match=message):
        make()
