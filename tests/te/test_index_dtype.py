"""Functions with another dtype of shapes and indices compute the same; what they store keeps its dtype."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import te, tir, topi

rng = np.random.default_rng(14)


def placeholder(shape, dtype, name, extents):
    return te.placeholder([tir.const(d, extents) for d in shape], dtype, name)


def converted(extents, make, *arrays):
    """The function with int64 indices, and what it computes."""
    inputs = [placeholder(a.shape, a.dtype.name, f"A{i}", extents) for i, a in enumerate(arrays)]
    out = make(*inputs)
    func = te.create_prim_func([*inputs, out], index_dtype_override="int64")
    tir.analysis.verify_well_formed(func)
    result = np.zeros([int(d) for d in out.shape], out.dtype)
    oneir.build(func)(*arrays, result)
    return func, result


A = rng.integers(-9, 9, (3, 4)).astype("float32")
INDEX = np.array([2, 0, 1], "int32")
CASES = {
    "take": (lambda x, i: topi.take(x, i, 0), A[INDEX]),
    "clip": (lambda x, i: topi.take(x, topi.multiply(i, 2), 0, mode="clip"), A[[2, 0, 2]]),
    "wrap": (lambda x, i: topi.take(x, topi.multiply(i, 2), 0, mode="wrap"), A[[1, 0, 2]]),
    "flat": (lambda x, i: topi.take(x, i), A.ravel()[INDEX]),
    "one_hot": (lambda x, i: topi.one_hot(i, 1, 0, 4, -1, "int32"), np.eye(4, dtype="int32")[INDEX]),
    "argmax": (lambda x, i: topi.argmax(x, 1), A.argmax(1)),
    "shape": (lambda x, i: topi.shape(x), np.array([3, 4])),
    "argsort": (lambda x, i: topi.argsort(x, axis=1, dtype="int32"), np.argsort(A, 1, kind="stable")),
    "topk": (lambda x, i: topi.topk(x, 2, ret_type="indices"), np.argsort(-A, 1, kind="stable")[:, :2]),
    "cumsum": (lambda x, i: topi.cumsum(x, 1), np.cumsum(A, 1)),
    "index_put": (lambda x, i: topi.index_put(x, [i], x), A[np.argsort(INDEX)]),
    "shifted": (lambda x, i: te.compute((3,), lambda k: (k << 2) + te.if_then_else(k > 1, k, i[k])), np.array([2, 4, 10])),
    "resize": (lambda x, i: topi.image.resize1d(topi.expand_dims(x, 0), None, (2,)), (A[None, :, ::2] + A[None, :, 1::2]) / 2),
}  # fmt: skip


@pytest.mark.parametrize("extents", ["int32", "int64"])
@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name, extents):
    make, expected = CASES[name]
    func, result = converted(extents, make, A, INDEX)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert all(d.dtype == "int64" for p in func.params for d in func.buffer_map[p].shape)


def test_what_an_index_meets_is_converted_where_it_meets_it():
    func, _ = converted("int32", CASES["clip"][0], A, INDEX)
    assert 'A0[T.min(T.max(T.int64(0), T.Cast("int64", T_multiply[v_ax0])), T.int64(2)), v_ax1]' in func.script()
    func, _ = converted("int32", lambda x, i: te.compute((4,), lambda k: k * 2), A, INDEX)
    assert 'compute[v_k] = T.Cast("int32", v_k * T.int64(2))' in func.script()
    func, _ = converted("int32", lambda x, i: te.compute((4,), lambda k: k.astype("float32")), A, INDEX)
    assert 'compute[v_k] = T.Cast("float32", v_k)' in func.script()
