"""Cumulative operations, sorting, searching and Fourier transforms compute what NumPy computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from topi_native import run

from oneir import te, tir, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch
from oneir.topi import loops
from oneir.topi.searchsorted import binary_search

rng = np.random.default_rng(10)


def of(*shape, dtype="float32", low=-9, high=9):
    return rng.integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_cumulative(axis):
    a = of(2, 3, 4, low=1, high=4)
    got = run(lambda x: [topi.cumsum(x, axis), topi.cumprod(x, axis), topi.cumsum(x, axis, exclusive=True)], a)
    np.testing.assert_array_equal(got[0], np.cumsum(a, axis))
    np.testing.assert_array_equal(got[1], np.cumprod(a, axis))
    np.testing.assert_array_equal(got[2], np.cumsum(a, axis) - (a.ravel() if axis is None else a))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "bfloat16", "float64"])
def test_cumulative_of_every_dtype(dtype):
    a = of(3, 2, low=1, high=5).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    plain, wide = run(lambda x: [topi.cumsum(x, 0), topi.cumprod(x, 0, "int32")], a)
    assert plain.dtype == a.dtype
    np.testing.assert_array_equal(plain.astype("int64"), np.cumsum(a.astype("int64"), 0))
    np.testing.assert_array_equal(wide, np.cumprod(a.astype("int32"), 0))


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0)], ids=str)
def test_cumulative_of_odd_shapes(shape):
    a = of(*shape)
    np.testing.assert_array_equal(run(lambda x: topi.cumsum(x, 0), a), np.cumsum(a, 0))
    np.testing.assert_array_equal(run(lambda x: topi.cumsum(x), a), np.cumsum(a))


def test_other_operations_are_scanned():
    a = of(3, 5)
    lowest = tir.min_value("float32")
    got = run(lambda x: topi.scanop(x, lambda p, q: te.max(p, q), lowest, "cummax", axis=1), a)
    np.testing.assert_array_equal(got, np.maximum.accumulate(a, 1))


# -- sorting --


@pytest.mark.parametrize("length", [0, 1, 2, 5, 64, 100])
@pytest.mark.parametrize("axis", [0, -1])
def test_sort(axis, length):
    a = of(length, 3) if axis == 0 else of(2, 3, length)
    up, down = run(lambda x: [topi.sort(x, axis), topi.sort(x, axis, False)], a)
    np.testing.assert_array_equal(up, np.sort(a, axis))
    np.testing.assert_array_equal(down, -np.sort(-a, axis))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_argsort_is_stable(dtype):
    a = (
        (of(3, 40) > 0)
        if dtype == "bool"
        else of(3, 40, low=0, high=5).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    )
    up, down = run(lambda x: [topi.argsort(x, dtype="int32"), topi.argsort(x, is_ascend=False, dtype="int64")], a)
    np.testing.assert_array_equal(up, np.argsort(a.astype("float64"), -1, kind="stable"))
    np.testing.assert_array_equal(down, np.argsort(-a.astype("float64"), -1, kind="stable"))


def test_nan_is_greater_than_any_number():
    a = np.float32([3, np.nan, -np.inf, np.inf, np.nan, 0])
    up, down = run(lambda x: [topi.sort(x), topi.sort(x, is_ascend=False)], a)
    np.testing.assert_array_equal(up, np.sort(a))
    np.testing.assert_array_equal(down, np.sort(a)[::-1])


def test_argsort_of_the_valid_elements():
    a, count = of(3, 6), np.array([6, 2, 0], "int32")
    expected = np.tile(np.arange(6), (3, 1))
    for i, n in enumerate(count):
        expected[i, :n] = np.argsort(-a[i, :n], kind="stable")
    got = run(lambda x, n: topi.argsort(x, n, 1, False), a, count)
    assert got.dtype == "int32"
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("is_ascend", [False, True])
@pytest.mark.parametrize(("k", "axis"), [(1, -1), (3, 1), (2, 0), (0, 1)])
def test_topk(k, axis, is_ascend):
    a = of(4, 7)
    order = np.argsort(a if is_ascend else -a, axis, kind="stable")
    order = order.take(range(k or a.shape[axis]), axis)
    values, indices = run(lambda x: topi.topk(x, k, axis, is_ascend=is_ascend), a)
    sign, tail = (1 if is_ascend else -1), of(1, 40)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(a, order, axis))
    np.testing.assert_array_equal(
        run(lambda x: topi.topk(x, 33, ret_type="values", is_ascend=is_ascend), tail)[0],
        sign * np.sort(sign * tail)[0, :33],
    )
    only = run(lambda x: topi.topk(x, k, axis, "indices", is_ascend, "int32"), a)
    assert only.dtype == "int32"
    np.testing.assert_array_equal(only, order)


def test_sorting_of_symbolic_shapes():
    a = of(3, 9)
    total, order, best = run(
        lambda x: [topi.cumsum(x, 1), topi.argsort(x, dtype="int64"), topi.topk(x, 4, ret_type="values")],
        a,
        shapes={0: ("n", "m")},
    )
    np.testing.assert_array_equal(total, np.cumsum(a, 1))
    np.testing.assert_array_equal(order, np.argsort(a, -1, kind="stable"))
    np.testing.assert_array_equal(best, -np.sort(-a, -1)[:, :4])


# -- searching --


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right):
    side = "right" if right else "left"
    sequence, values = np.sort(of(7)), of(2, 5)
    np.testing.assert_array_equal(
        run(lambda s, v: topi.searchsorted(s, v, right), sequence, values), np.searchsorted(sequence, values, side)
    )
    many = np.sort(of(2, 6), -1)
    got = run(lambda s, v: topi.searchsorted(s, v, right, "int32"), many, values)
    np.testing.assert_array_equal(got, [np.searchsorted(s, v, side) for s, v in zip(many, values, strict=True)])
    assert got.dtype == "int32"


@pytest.mark.parametrize("right", [False, True])
def test_a_binary_search_as_a_statement(right):
    sequences, values = np.sort(of(3, 8), -1), of(3)

    def search(s, v):
        def body(ins, outs):
            found = []
            for row in range(3):
                buffers, stmt = binary_search([row], 8, ins[0], ins[1][row], right, "int32")
                found.append(loops.allocate(buffers, stmt, loops.store(outs[0], (row,), buffers[0][0])))
            return tir.SeqStmt(found)

        return te.extern([(3,)], [s, v], body, dtype="int32")

    expected = [np.searchsorted(s, v, "right" if right else "left") for s, v in zip(sequences, values, strict=True)]
    np.testing.assert_array_equal(run(search, sequences, values), expected)


# -- Fourier transforms --


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dft(dtype, inverse):
    x = rng.standard_normal((2, 7)) + 1j * rng.standard_normal((2, 7))
    re, im = run(lambda a, b: topi.dft(a, b, inverse), x.real.astype(dtype), x.imag.astype(dtype))
    expected = (np.fft.ifft if inverse else np.fft.fft)(x)
    np.testing.assert_allclose(re + 1j * im, expected, atol=1e-5 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("normalized", [False, True])
def test_stft(normalized):
    n, hop = 6, 2
    signal, window = rng.standard_normal((2, 14)).astype("float32"), np.hanning(n).astype("float32")
    frames = np.lib.stride_tricks.sliding_window_view(signal, n, -1)[:, ::hop]
    expected = np.fft.rfft(frames * window, axis=-1).transpose(0, 2, 1) / (np.sqrt(n) if normalized else 1)
    got = run(lambda d, w: topi.stft(d, n, hop, n, w, normalized, True, (*expected.shape, 2)), signal, window)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], expected, atol=1e-5)


# -- refusals --

T = te.placeholder((2, 3))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: topi.cumsum(T, 2), InvalidValue, r"topi.cumsum: expected axis in \[-2, 2\), found 2"),
        (lambda: topi.sort(T, -3), InvalidValue, r"topi.sort: expected axis in \[-2, 2\), found -3"),
        (lambda: topi.topk(T, 4), InvalidValue, r"topi.topk: expected k of at most 3 for \(2, 3\) along axis 1, found 4"),
        (lambda: topi.topk(T, 1, ret_type="all"), InvalidValue, "topi.topk: expected ret_type .* found 'all'"),
        (lambda: topi.argsort(T, T), ShapeMismatch, "topi.argsort: expected valid_count of 1 dimensions"),
        (lambda: topi.searchsorted(T, te.placeholder((3, 3))), ShapeMismatch, r"topi.searchsorted: .* found \(2, 3\)"),
        (lambda: topi.dft(T, te.placeholder((2, 2)), False), ShapeMismatch, r"topi.dft: .* found \(2, 3\) and \(2, 2\)"),
        (lambda: topi.stft(te.placeholder((1, 2, 3)), 2, 1, 2, te.placeholder((2,)), 0, 0, (1,)), ShapeMismatch, "expected a signal"),
    ],
)  # fmt: skip
def test_refusals_name_function_and_argument(make, error, message):
    with pytest.raises(error, match=message):
        make()
