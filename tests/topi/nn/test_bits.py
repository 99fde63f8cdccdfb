"""Products of few bits, packed, are those of the integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from topi_native import run

from oneir import te, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch

rng = np.random.default_rng(27)


def integers(bits, *shape, dtype="int32"):
    return rng.integers(0, 2**bits, shape).astype(dtype)


def signed(weight, bits):
    """What a unipolar weight stands for: bits that are 0 count as -1."""
    return sum((2 * (weight >> b & 1) - 1) << b for b in range(bits))


@pytest.mark.parametrize(("bits", "pack_type"), [(1, "uint8"), (2, "uint32"), (3, "uint16")])
def test_bitpack(bits, pack_type):
    width = int(pack_type[4:])
    x = integers(bits, 3, 2 * width)
    found = run(lambda t: topi.nn.bitpack(t, bits, 1, 1, pack_type), x)
    assert found.shape == (3, bits, 2) and found.dtype == pack_type
    for b in range(bits):
        rows = ((x >> b) & 1).reshape(3, 2, width)
        expected = (rows.astype("uint64") << np.arange(width, dtype="uint64")[::-1]).sum(-1)
        np.testing.assert_array_equal(found[:, b], expected.astype(pack_type))


def test_a_word_packs_as_many_elements_as_it_has_bits():
    widths = [topi.nn.bitserial_util.binary_op_multiplier(t) for t in ("uint8", "uint16", "uint32", "uint64")]
    assert widths == [8, 16, 32, 64]
    with pytest.raises(InvalidValue, match="expected one of uint8, uint16, uint32, uint64 to pack in, found int32"):
        topi.nn.bitserial_util.binary_op_multiplier("int32")


@pytest.mark.parametrize("pack_type", ["uint8", "uint32"])
@pytest.mark.parametrize("unipolar", [False, True])
@pytest.mark.parametrize(("data_bits", "weight_bits"), [(1, 1), (2, 1), (2, 2)])
def test_bitserial_dense(data_bits, weight_bits, unipolar, pack_type):
    x, w = integers(data_bits, 3, 64), integers(weight_bits, 2, 64)
    found = run(lambda x, w: topi.nn.bitserial_dense(x, w, data_bits, weight_bits, pack_type, unipolar=unipolar), x, w)
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, x @ (signed(w, weight_bits) if unipolar else w).T)


def test_bitserial_dense_with_a_packed_weight():
    x, w = integers(1, 2, 32), integers(2, 3, 32)
    packed = run(lambda t: topi.nn.bitpack(t, 2, 1, 1, "uint32"), w)
    found = run(lambda x, w: topi.nn.bitserial_dense(x, w, 1, 2, unipolar=False), x, packed)
    np.testing.assert_array_equal(found, x @ w.T)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("unipolar", [False, True])
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), ((2, 1), (0, 1, 1, 0))])
def test_bitserial_conv2d(stride, padding, unipolar, layout):
    x, w = integers(2, 1, 32, 5, 4), integers(1, 3, 32, 3, 2)
    top, left, bottom, right = padding if isinstance(padding, tuple) else (padding,) * 4
    weight = signed(w, 1) if unipolar else w
    data = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    expected = torch.nn.functional.conv2d(torch.tensor(data).double(), torch.tensor(weight).double(), None, stride)
    options = (stride, padding, 2, 1, "uint32", "int16", unipolar)
    if layout == "NCHW":
        found = run(lambda x, w: topi.nn.bitserial_conv2d_nchw(x, w, *options), x, w)
    else:
        moved = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
        found = run(lambda x, w: topi.nn.bitserial_conv2d_nhwc(x, w, *options), *moved).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(found, expected.numpy().astype("int16"))


def test_binary_dense():
    x, w = (rng.standard_normal(s).astype("float32") for s in ((3, 64), (5, 64)))
    found = run(lambda x, w: topi.nn.binary_dense(topi.nn.binarize_pack(x), topi.nn.binarize_pack(w)), x, w)
    np.testing.assert_array_equal(found, np.where(x >= 0, 1, -1) @ np.where(w >= 0, 1, -1).T)


def test_binarize_pack_along_another_axis():
    x = rng.standard_normal((32, 3)).astype("float32")
    found = run(lambda t: topi.nn.binarize_pack(t, 0), x)
    expected = ((x >= 0).astype("uint64") << np.arange(32, dtype="uint64")[::-1, None]).sum(0)
    np.testing.assert_array_equal(found, expected[None].astype("uint32"))


@pytest.mark.parametrize(
    ("error", "make", "message"),
    [
        (
            InvalidValue,
            lambda t: topi.nn.bitpack(t, 1, 1, 1, "int8"),
            "one of uint8, uint16, uint32, uint64 to pack in, found int8",
        ),
        (
            ShapeMismatch,
            lambda t: topi.nn.bitpack(t, 1, 1, 1, "uint32"),
            r"axis 1 of the shape \(2, 40\) is no multiple of 32",
        ),
        (
            TypeMismatch,
            lambda t: topi.nn.bitpack(te.placeholder((2, 8)), 1, 1, 1, "uint8"),
            "of an integer dtype, found float32",
        ),
        (ShapeMismatch, lambda t: topi.nn.binarize_pack(t), "is no multiple of 32"),
        (TypeMismatch, lambda t: topi.nn.binary_dense(t, t), "binary_dense: expected data of uint32, found int32"),
        (
            ShapeMismatch,
            lambda t: topi.nn.bitserial_dense(t, te.placeholder((2, 1, 4), "uint8"), 1, 1, "uint8"),
            "the inner dimensions differ",
        ),
    ],
)
def test_refusals(error, make, message):
    with pytest.raises(error, match=message):
        make(te.placeholder((2, 40), "int32"))
