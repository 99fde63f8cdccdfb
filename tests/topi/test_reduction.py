"""Reductions compute what NumPy computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch

rng = np.random.default_rng(7)
AXES = [None, 0, -1, (0, 2), (2, -2), (), (1, 1), [0, 1, 2]]


def numpy_axes(axis):
    return axis if axis is None or isinstance(axis, int) else tuple({a % 3 for a in axis})


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_axes(axis, keepdims):
    a = rng.standard_normal((2, 3, 4)).astype("float32")
    total, largest = run(lambda x: [topi.sum(x, axis, keepdims), topi.max(x, axis, keepdims)], a)
    expected = np.sum(a, numpy_axes(axis), keepdims=keepdims)
    assert total.shape == expected.shape
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(largest, np.max(a, numpy_axes(axis), keepdims=keepdims))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint16", "int64"])
def test_every_dtype(dtype):
    wide = rng.integers(1, 4, (3, 4))
    a = wide.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    names = ["sum", "prod", "min", "max"]
    for name, result in zip(names, run(lambda x: [getattr(topi, n)(x, 1) for n in names], a), strict=True):
        assert result.dtype == a.dtype
        np.testing.assert_array_equal(result.astype("int64"), getattr(np, name)(wide, 1))


def test_bools():
    a = np.array([[True, False, True], [True, True, True], [False, False, False]])
    every, some, total = run(lambda x: [topi.all(x, 1), topi.any(x, -1, True), topi.sum(x, 0)], a)
    np.testing.assert_array_equal(every, a.all(1))
    np.testing.assert_array_equal(some, a.any(1, keepdims=True))
    np.testing.assert_array_equal(total, a.any(0))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)], ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_arguments_of_extremes(axis, last):
    a = rng.integers(0, 3, (2, 3, 4)).astype("float32")
    got = run(lambda x: [topi.argmax(x, axis, True, last), topi.argmin(x, axis, False, last)], a)
    axes = tuple(range(3)) if axis is None else axis if isinstance(axis, tuple) else (axis % 3,)
    flat = np.moveaxis(a, axes, range(-len(axes), 0))
    flat = flat.reshape(*flat.shape[: 3 - len(axes)], -1)
    for result, pick in zip(got, (np.argmax, np.argmin), strict=True):
        expected = flat.shape[-1] - 1 - pick(flat[..., ::-1], -1) if last else pick(flat, -1)
        np.testing.assert_array_equal(result.reshape(expected.shape), expected)
    assert got[0].shape == tuple(1 if i in axes else d for i, d in enumerate(a.shape)) and got[0].dtype == "int32"


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (1, 1)], ids=str)
def test_odd_shapes(shape):
    a = np.ones(shape, "float32")
    axis = 0 if shape else None
    np.testing.assert_array_equal(run(lambda x: topi.sum(x, axis), a), a.sum(axis))
    np.testing.assert_array_equal(run(lambda x: topi.prod(x, None, True), a), a.prod(keepdims=True))


@pytest.mark.parametrize(
    ("shape", "target"), [((2, 3, 4), (3, 1)), ((2, 3), (2, 3)), ((2, 3), ()), ((4, 3), (1, 3))], ids=str
)
def test_collapse_sum_undoes_broadcasts(shape, target):
    a = rng.integers(-5, 5, shape).astype("float32")
    expected = a.sum(tuple(range(len(shape) - len(target))))
    expected = expected.sum(tuple(i for i, d in enumerate(target) if d == 1), keepdims=True)
    got = run(lambda x: topi.collapse_sum(x, target), a)
    assert got.shape == target
    np.testing.assert_array_equal(got, expected)


def test_symbolic_shapes():
    a = rng.integers(-5, 5, (3, 4)).astype("float32")
    total, where = run(lambda x: [topi.sum(x, 0), topi.argmax(x)], a, shapes={0: ("n", "m")})
    np.testing.assert_array_equal(total, a.sum(0))
    assert where == a.argmax() and where.dtype == "int64"


RED = """
# from tvm.script import tir as T

@T.prim_func
def main(A: T.Buffer((2, 3), "float32"), A_red: T.Buffer((2, 1), "float32")):
    T.func_attr({"tir.noalias": True})
    # with T.block("root"):
    for ax0, ax1, k1 in T.grid(2, 1, 3):
        with T.block("A_red"):
            v_ax0, v_ax1, v_k1 = T.axis.remap("SSR", [ax0, ax1, k1])
            T.reads(A[v_ax0, v_k1])
            T.writes(A_red[v_ax0, v_ax1])
            with T.init():
                A_red[v_ax0, v_ax1] = T.float32(0.0)
            A_red[v_ax0, v_ax1] = A_red[v_ax0, v_ax1] + A[v_ax0, v_k1]
"""


def test_a_reduction_prints_as_documented():
    a = te.placeholder((2, 3), name="A")
    assert te.create_prim_func([a, topi.sum(a, 1, True)]).script().strip() == RED.strip()
    best = topi.argmax(a, 0)
    assert (best.op.name, best.op.input_tensors[0].op.name) == ("A_red", "A_red_temp")


# -- refusals --


def test_wrong_axes_and_dtypes_are_named():
    a = te.placeholder((2, 3))
    with pytest.raises(InvalidValue, match=r"topi.sum: expected axis in \[-2, 2\), found 2"):
        topi.sum(a, 2)
    with pytest.raises(InvalidValue, match=r"topi.argmin: expected axis in \[-2, 2\), found -3"):
        topi.argmin(a, (0, -3))
    with pytest.raises(TypeMismatch, match=r"topi.all: expected a tensor of bools, found float32"):
        topi.all(a)


def test_a_number_has_its_largest_element_at_the_place_0():
    assert run(lambda x: topi.argmax(x), np.array(3, np.float32)) == 0


def test_collapse_sum_refuses_other_shapes():
    for target in [(2, 2), (3, 2, 3), (4, 3)]:
        with pytest.raises(ShapeMismatch, match=r"topi.collapse_sum: .* does not broadcast to \(2, 3\)"):
            topi.collapse_sum(te.placeholder((2, 3)), target)
