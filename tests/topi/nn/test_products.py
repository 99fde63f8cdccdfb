"""Products of matrices compute what NumPy computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import ShapeMismatch

rng = np.random.default_rng(11)


def array(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_matmul_transposed(transpose_a, transpose_b):
    a = array(*((5, 3) if transpose_a else (3, 5)))
    b = array(*((4, 5) if transpose_b else (5, 4)))
    found = run(lambda x, y: topi.nn.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b), a, b)
    expected = (a.T if transpose_a else a) @ (b.T if transpose_b else b)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3, 4), (2, 4, 5)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((1, 3, 4), (6, 4, 5)),
        ((7, 1, 2, 3), (4, 3, 1)),
    ],
)
def test_matmul_broadcasts_batches(a, b):
    x, y = array(*a), array(*b)
    np.testing.assert_allclose(run(topi.nn.matmul, x, y), x @ y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (0, 3), (7, 0), (1, 9)])
def test_dense_of_odd_shapes(shape):
    x, w = array(*shape), array(4, shape[1])
    np.testing.assert_allclose(run(topi.nn.dense, x, w), x @ w.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", ml_dtypes.bfloat16])
def test_dense_of_dtypes(dtype):
    x, w, b = (rng.integers(-4, 5, s).astype(dtype) for s in ((3, 6), (2, 6), (2,)))
    found = run(topi.nn.dense, x, w, b)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, (x.astype("int64") @ w.T.astype("int64") + b.astype("int64")).astype(dtype))


def test_dense_in_a_wider_dtype():
    x, w = rng.integers(-128, 128, (3, 40)).astype("int8"), rng.integers(-128, 128, (2, 40)).astype("int8")
    found = run(lambda x, w: topi.nn.dense(x, w, out_dtype="int32"), x, w)
    np.testing.assert_array_equal(found, x.astype("int32") @ w.astype("int32").T)


def test_dense_of_an_unknown_batch():
    x, w = array(6, 3), array(2, 3)
    found = run(topi.nn.dense, x, w, shapes={0: ("n", 3)})
    np.testing.assert_allclose(found, x @ w.T, rtol=1e-4, atol=1e-5)


def test_dense_names_its_stage_and_leaves_the_layout_of_the_weight_open():
    x, w = te.placeholder((2, 3), name="x"), te.placeholder((4, 3), name="w")
    text = te.create_prim_func([x, w, topi.nn.dense(x, w)]).script()
    assert 'T.func_attr({"layout_free_buffers": [1], "tir.noalias": True})' in text
    assert "for i0, i1, k in T.grid(2, 4, 3):" in text
    assert "T_matmul_NT[v_i0, v_i1] = T_matmul_NT[v_i0, v_i1] + x[v_i0, v_k] * w[v_i1, v_k]" in text


def test_dense_pack():
    x, w, b = array(3, 6), array(8, 6), array(8)
    packed = w.reshape(2, 4, 6).transpose(0, 2, 1)
    np.testing.assert_allclose(run(topi.nn.dense_pack, x, packed, b), x @ w.T + b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batches", [(3, 3), (1, 3), (3, 1), (1, 1)])
def test_batch_matmul(batches):
    x, y = array(batches[0], 2, 5), array(batches[1], 4, 5)
    np.testing.assert_allclose(run(topi.nn.batch_matmul, x, y), x @ y.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)


def test_batch_matmul_transposed_and_of_an_unknown_batch():
    x, y = array(3, 5, 2), array(3, 5, 4)
    found = run(
        lambda x, y: topi.nn.batch_matmul(x, y, transpose_a=True, transpose_b=False),
        x,
        y,
        shapes={0: ("b", 5, 2), 1: ("b", 5, 4)},
    )
    np.testing.assert_allclose(found, x.transpose(0, 2, 1) @ y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "a", "b", "message"),
    [
        ("matmul", (2, 3), (4, 5), r"topi.nn.matmul: the inner dimensions differ: 3 of the shape \(2, 3\) meets 4"),
        ("matmul", (3,), (3, 4), r"topi.nn.matmul: expected tensors of at least 2 dimensions, found the shapes \(3,\)"),
        ("matmul", (2, 2, 3), (3, 3, 4), r"topi.nn.matmul: the shapes \(2,\) and \(3,\) do not broadcast"),
        ("dense", (2, 3), (4, 5), r"meets 5 of the shape \(4, 5\) transposed"),
        ("batch_matmul", (2, 3, 4), (3, 5, 4), r"the batches differ: \(2, 3, 4\) and \(3, 5, 4\)"),
        ("batch_matmul", (3, 4), (3, 5, 4), r"expected tensor_a of 3 dimensions, found the shape \(3, 4\)"),
        ("dense_pack", (2, 3), (1, 4, 8), r"dense_pack: the inner dimensions differ"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(function, a, b, message):
    with pytest.raises(ShapeMismatch, match=message):
        getattr(topi.nn, function)(te.placeholder(a), te.placeholder(b))


def test_a_bias_of_two_dimensions_is_refused():
    with pytest.raises(ShapeMismatch, match=r"nn.matmul: expected bias of 1 dimensions, found the shape \(1, 4\)"):
        topi.nn.dense(te.placeholder((2, 3)), te.placeholder((4, 3)), te.placeholder((1, 4)))
