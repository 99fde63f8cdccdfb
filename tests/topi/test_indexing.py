"""Indexing by tensors, tensors made from positions, and contractions do what NumPy does."""

from __future__ import annotations

import numpy as np
import pytest
from topi_native import run

from oneir import te, tir, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch

rng = np.random.default_rng(9)


def of(*shape, dtype="float32"):
    return rng.integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("indices", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_take(axis, indices):
    a, i = of(3, 4, 2), np.array([[0, 1], [1, 0]], indices)
    np.testing.assert_array_equal(run(lambda x, n: topi.take(x, n, axis), a, i), a.take(i, axis))


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("mode", ["clip", "wrap", "nan"])
def test_take_of_indices_outside(axis, mode):
    a, i = of(2, 3), np.array([-7, -1, 0, 2, 5, 9], "int64")
    extent = 6 if axis is None else 3
    inside = (i >= 0) & (i < extent)
    expected = a.take(np.clip(i, 0, extent - 1) if mode == "clip" else i % extent, axis)
    if mode == "nan":
        expected = np.where(inside, expected, np.nan)
    np.testing.assert_array_equal(run(lambda x, n: topi.take(x, n, axis, mode=mode), a, i), expected)


def test_take_with_common_dimensions():
    a, i = of(2, 3, 4), np.array([[0, 2], [1, 1]], "int32")
    expected = np.stack([a[b].take(i[b], 0) for b in range(2)])
    for batch in (1, -1):
        np.testing.assert_array_equal(run(lambda x, n: topi.take(x, n, 1, batch), a, i), expected)
    last = np.stack([a[b].take(i[b], 1) for b in range(2)])
    np.testing.assert_array_equal(run(lambda x, n: topi.take(x, n, 2, 1, "wrap"), a, i), last)


def test_gather():
    a, i = of(3, 4), np.array([[0, 1, 2, 2], [2, 0, 0, 1]], "int64")
    np.testing.assert_array_equal(run(lambda x, n: topi.gather(x, 0, n), a, i), np.take_along_axis(a, i, 0))
    j = np.array([[3], [0], [1]], "int32")
    np.testing.assert_array_equal(run(lambda x, n: topi.gather(x, -1, n), a, j), np.take_along_axis(a, j, 1))


def test_gather_nd():
    a = of(3, 4, 2)
    i = np.array([[0, 1, 2], [3, 0, 3]], "int32")
    np.testing.assert_array_equal(run(topi.gather_nd, a, i), a[i[0], i[1]])
    np.testing.assert_array_equal(run(topi.gather_nd, a, i.astype("float32")), a[i[0], i[1]])
    b = np.array([[2, 0, 1]], "int64")
    np.testing.assert_array_equal(
        run(lambda x, n: topi.gather_nd(x, n, 1), a, b), np.stack([a[k, b[0, k]] for k in range(3)])
    )


def test_index_tensors_broadcast():
    a = of(3, 4, 5)
    row, column = np.array([[0], [2]], "int64"), np.array([1, 3, 0], "int32")
    np.testing.assert_array_equal(run(lambda x, r, c: topi.index_tensor(x, [r, c]), a, row, column), a[row, column])
    np.testing.assert_array_equal(run(lambda x, r: topi.adv_index(x, [r]), a, row), a[row])


def test_index_tensors_count_from_the_end_below_zero():
    a = of(3, 4, 5)
    row, column = np.array([[0], [-3]], "int64"), np.array([-1, 3, -4], "int32")
    np.testing.assert_array_equal(run(lambda x, r, c: topi.index_tensor(x, [r, c]), a, row, column), a[row, column])


def test_unravel_index():
    i, shape = np.array([22, 41, 37], "int64"), np.array([7, 6], "int64")
    np.testing.assert_array_equal(run(topi.unravel_index, i, shape), np.unravel_index(i, (7, 6)))
    np.testing.assert_array_equal(run(topi.unravel_index, np.int64(22), shape), np.unravel_index(22, (7, 6)))


def test_sparse_to_dense():
    rows, values = np.array([[0, 0], [2, 1]], "int64"), np.float32([3, 4])
    expected = np.full((3, 2), -1, "float32")
    expected[tuple(rows.T)] = values
    np.testing.assert_array_equal(run(lambda i, v: topi.sparse_to_dense(i, (3, 2), v, -1), rows, values), expected)
    np.testing.assert_array_equal(
        run(lambda i, v: topi.sparse_to_dense(i, (4,), v), np.int32([3, 1]), values), [0, 4, 0, 3]
    )
    np.testing.assert_array_equal(
        run(lambda i, v: topi.sparse_to_dense(i, (3,), v), np.int32(1), np.float32(5)), [0, 5, 0]
    )


@pytest.mark.parametrize("align", ["RIGHT_LEFT", "LEFT_RIGHT"])
@pytest.mark.parametrize("k", [0, 1, -1, (-1, 2)], ids=str)
def test_matrix_set_diag(k, align):
    a = of(2, 3, 4)
    low, high = k if isinstance(k, tuple) else (k, k)
    lengths = {d: min(3, 4 - d) if d >= 0 else min(4, 3 + d) for d in range(low, high + 1)}
    longest = max(lengths.values())
    rows = of(2, *([] if low == high else [high - low + 1]), longest)
    expected = a.copy()
    for d, length in lengths.items():
        row = rows if low == high else rows[:, high - d]
        right = align.split("_")[d < 0] == "RIGHT"
        for i in range(length):
            shift = longest - length if right and low != high else 0
            expected[:, i - min(d, 0), i + max(d, 0)] = row[:, i + shift]
    np.testing.assert_array_equal(run(lambda x, v: topi.matrix_set_diag(x, v, k, align), a, rows), expected)


# -- tensors made from positions --


@pytest.mark.parametrize("bounds", [(7,), (2, 9, 3), (9, 2, -3), (0, 1, 0.25), (3, 3), (-1.5, 1.5, 0.5)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_arange(bounds, dtype):
    expected = np.arange(*bounds).astype(dtype)
    np.testing.assert_array_equal(run(lambda: topi.arange(*bounds, dtype=dtype)), expected)


def test_arange_of_a_variable():
    n = tir.Var("n", "int64")
    assert str(topi.arange(n, dtype="int64").shape[0]) == "n"
    assert str(topi.arange(1, n).shape[0]) == "n - T.int64(1)"


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(indexing):
    vectors = [of(2), of(3), of(4)]
    for got, expected in zip(
        run(lambda *v: topi.meshgrid(v, indexing), *vectors), np.meshgrid(*vectors, indexing=indexing), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    (got,) = run(lambda v: topi.meshgrid([v], indexing), np.float32(3))
    np.testing.assert_array_equal(got, [3])


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis):
    i = np.array([[0, 2], [1, 5]], "int32")
    expected = np.moveaxis(np.where(i[..., None] == np.arange(4), 7, -1), -1, axis)
    np.testing.assert_array_equal(run(lambda n: topi.one_hot(n, 7, -1, 4, axis, "float32"), i), expected)


@pytest.mark.parametrize("periodic", [False, True])
def test_hamming_window(periodic):
    expected = np.hamming(9)[:-1] if periodic else np.hamming(8)
    np.testing.assert_allclose(
        run(lambda: topi.hamming_window(8, periodic, 0.54, 0.46, "float32")), expected, rtol=1e-5
    )
    np.testing.assert_array_equal(run(lambda: topi.hamming_window(1, periodic, 0.54, 0.46, "float64")), [1])


# -- sums of products --


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_matmul(transposed, dtype):
    a, b = of(3, 4, dtype=dtype), of(4, 5, dtype=dtype)
    left, right = (m.T if t else m for m, t in zip((a, b), transposed, strict=True))
    np.testing.assert_array_equal(
        run(lambda x, y: topi.matmul(x, y, *transposed), np.ascontiguousarray(left), np.ascontiguousarray(right)), a @ b
    )


@pytest.mark.parametrize("axes", [0, 1, 2, (1, 0), ([0, 2], [2, 1]), ((), ())], ids=str)
def test_tensordot(axes):
    a = of(2, 3, 4)
    b = of(4, 2) if axes in (0, 1) else of(3, 4, 2) if axes in (2, (1, 0)) else of(5, 4, 2)
    np.testing.assert_array_equal(run(lambda x, y: topi.tensordot(x, y, axes), a, b), np.tensordot(a, b, axes))


EINSUMS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,jk": [(2, 3), (3, 4)],
    "ii": [(3, 3)],
    "ii->i": [(3, 3)],
    "ji": [(2, 3)],
    "i,i,i->": [(4,), (4,), (4,)],
    "...ij,...jk->...ik": [(2, 1, 2, 3), (5, 3, 4)],
    "i...->...": [(2, 3, 4)],
    "ab,bc,cd->ad": [(2, 3), (3, 2), (2, 4)],
    "bi,bj->bij": [(1, 3), (2, 4)],
}


@pytest.mark.parametrize("subscripts", EINSUMS)
def test_einsum(subscripts):
    operands = [of(*shape) for shape in EINSUMS[subscripts]]
    got = run(lambda *t: topi.einsum(subscripts, *t), *operands)
    expected = np.einsum(subscripts, *operands)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


def test_einsum_sums_over_what_an_ellipsis_stands_for():
    a, b = of(2, 3, 4), of(3, 1)
    np.testing.assert_array_equal(run(lambda *t: topi.einsum("i...,...->i", *t), a, b), (a * b).sum((1, 2)))


def test_symbolic_shapes():
    a, b, i = of(3, 4), of(4, 2), np.array([2, 0], "int64")
    shapes = {0: ("n", "k"), 1: ("k", "m"), 2: ("p",)}
    got = run(
        lambda x, y, n: [topi.matmul(x, y), topi.einsum("nk,km->mn", [x, y]), topi.take(x, n, 0)],
        a,
        b,
        i,
        shapes=shapes,
    )
    for result, expected in zip(got, [a @ b, (a @ b).T, a[i]], strict=True):
        np.testing.assert_array_equal(result, expected)


# -- refusals --

T = te.placeholder((2, 3))
INDEX = te.placeholder((2,), "int64")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: topi.take(T, INDEX, 2), InvalidValue, r"topi.take: expected axis in \[-2, 2\), found 2"),
        (lambda: topi.take(T, INDEX, mode="raise"), InvalidValue, r"expected a mode of .*, found 'raise'"),
        (lambda: topi.take(T, te.placeholder((2,))), TypeMismatch, "indices that are integers, found float32"),
        (lambda: topi.take(INDEX, INDEX, 0, mode="nan"), TypeMismatch, "needs a tensor of floats, found int64"),
        (lambda: topi.take(T, INDEX, 0, 1), InvalidValue, "expected batch_dims of at most the axis, 0, found 1"),
        (lambda: topi.gather(T, 0, INDEX), ShapeMismatch, r"like the data \(2, 3\), found \(2,\)"),
        (lambda: topi.gather_nd(T, te.placeholder((3, 1), "int32")), ShapeMismatch, "3 indices with batch_dims=0"),
        (lambda: topi.adv_index(T, [INDEX] * 3), InvalidValue, "expected 1 to 2 index tensors"),
        (lambda: topi.matrix_set_diag(T, T, (2, 1)), InvalidValue, "expected matrices and k in order"),
        (lambda: topi.arange(0, 3, 0), InvalidValue, "topi.arange: expected a step other than 0"),
        (lambda: topi.meshgrid([T], "ij"), ShapeMismatch, r"vectors or scalars, found \(2, 3\)"),
        (lambda: topi.one_hot(INDEX, 1, 0, 3, 2, "int8"), InvalidValue, r"topi.one_hot: expected axis in \[-1, 1\]"),
        (lambda: topi.matmul(T, T), ShapeMismatch, r"summed extents of \(2, 3\) and \(2, 3\) differ: 3 and 2"),
        (lambda: topi.matmul(T, INDEX), ShapeMismatch, r"a matrix b of 2 dimensions, found the shape \(2,\)"),
        (lambda: topi.tensordot(T, T, 3), InvalidValue, r"topi.tensordot: expected axes in \[0, 2\]"),
        (lambda: topi.einsum("ij->k", T), InvalidValue, "each label of the result must be one of an operand"),
        (lambda: topi.einsum("i->i", T), ShapeMismatch, "the subscripts 'i' of 'i->i' do not fit the shape"),
        (lambda: topi.einsum("ij,jk", T), InvalidValue, "is of 2 operands, found 1"),
        (lambda: topi.einsum("i?", T), InvalidValue, "expected subscripts such as"),
    ],
)  # fmt: skip
def test_refusals_name_function_and_argument(make, error, message):
    with pytest.raises(error, match=message):
        make()
