"""Padding puts what NumPy's `pad` puts around a tensor."""

from __future__ import annotations

import numpy as np
import pytest
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch

rng = np.random.default_rng(14)
PADS = [((1, 2), (0, 3)), ((0, 0), (2, 1)), ((0, 0), (0, 0)), ((3, 3), (1, 0))]


def padded(function, pads, **options):
    before, after = zip(*pads, strict=True)
    return lambda x: getattr(topi.nn, function)(x, before, after, **options)


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize(
    ("function", "options", "mode"),
    [
        ("pad", {"pad_value": 2.5}, {"mode": "constant", "constant_values": 2.5}),
        ("mirror_pad", {"mode": "SYMMETRIC"}, {"mode": "symmetric"}),
        ("mirror_pad", {"mode": "REFLECT"}, {"mode": "reflect"}),
        ("reflect_pad", {}, {"mode": "reflect"}),
        ("replicate_pad", {}, {"mode": "edge"}),
        ("circular_pad", {}, {"mode": "wrap"}),
    ],
)
def test_pads(function, options, mode, pads):
    x = rng.standard_normal((4, 4)).astype("float32")
    np.testing.assert_array_equal(run(padded(function, pads, **options), x), np.pad(x, pads, **mode))


@pytest.mark.parametrize("dtype", ["int8", "float16", "bool"])
def test_zeros_around_other_dtypes_and_nothing_at_all(dtype):
    x = np.ones((0, 2), dtype)
    np.testing.assert_array_equal(run(lambda t: topi.nn.pad(t, [1, 1]), x), np.zeros((2, 4), dtype))


@pytest.mark.parametrize("function", ["pad", "mirror_pad", "reflect_pad", "replicate_pad", "circular_pad"])
def test_an_unknown_extent(function):
    x = rng.standard_normal((5, 3)).astype("float32")
    mode = {"pad": "constant", "mirror_pad": "symmetric", "reflect_pad": "reflect", "replicate_pad": "edge"}
    found = run(padded(function, ((2, 1), (1, 1))), x, shapes={0: ("n", 3)})
    np.testing.assert_array_equal(found, np.pad(x, ((2, 1), (1, 1)), mode=mode.get(function, "wrap")))


def test_the_index_keeps_the_dtype_of_the_shape():
    x = te.placeholder((te.const(4, "int64"),), name="x")
    text = te.create_prim_func([x, topi.nn.pad(x, [1], name="pad_temp")]).script()
    assert "for i0 in range(T.int64(6)):" in text and "T.int64(1) <= v_i0 and v_i0 < T.int64(5)" in text


def test_the_padded_shape():
    x = te.placeholder((te.var("n"), 4))
    assert [str(d) for d in topi.nn.get_padded_shape(x, [1, 2], [0, 3])] == ["n + 1", "9"]


def test_refusals():
    x = te.placeholder((3, 4))
    with pytest.raises(
        InvalidValue, match=r"topi.nn.pad: expected a pad_before for each of the 2 dimensions .* found 1"
    ):
        topi.nn.pad(x, [1])
    with pytest.raises(InvalidValue, match=r"topi.nn.circular_pad: expected a pad_after .* \(3, 4\), found 3"):
        topi.nn.circular_pad(x, [1, 1], [1, 1, 1])
    with pytest.raises(InvalidValue, match='expected the mode "SYMMETRIC" or "REFLECT", found \'edge\''):
        topi.nn.mirror_pad(x, [1, 1], mode="edge")
    with pytest.raises(ShapeMismatch, match=r"reflect_pad: dimension 0 .* can be padded by at most 2, found 3"):
        topi.nn.reflect_pad(x, [3, 1])
