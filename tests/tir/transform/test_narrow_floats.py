"""Conversions of float16, bfloat16 and float8 in integer arithmetic: every pattern, every tie, as NumPy and ml_dtypes convert."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from expression_evaluator import evaluate, float32_sample

from oneir.ir.dtype import DataType
from oneir.ir.expr import Var
from oneir.ir.operators import round_float
from oneir.tir.transform.narrow_floats import FORMATS, decode, encode


def other(name):
    """The format as NumPy or ml_dtypes have it."""
    return np.float16 if name == "float16" else getattr(ml_dtypes, name)


@pytest.mark.parametrize("name", FORMATS)
def test_every_pattern_decodes_exactly(name):
    form = FORMATS[name]
    patterns = np.arange(1 << form.bits, dtype=form.storage)
    p = Var("p", form.storage)
    got, want = evaluate(decode(name, p), {p: patterns}), patterns.view(other(name)).astype(np.float32)
    assert ((got.view("u4") == want.view("u4")) | (np.isnan(got) & np.isnan(want))).all()


@pytest.mark.parametrize("name", FORMATS)
def test_encoding_rounds_to_nearest(name):
    form = FORMATS[name]
    with np.errstate(all="ignore"):
        values = np.arange(1 << form.bits, dtype=form.storage).view(other(name)).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    ties = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    random = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        near = [np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
        sample = np.concatenate([ties, *near, random, float32_sample(199_967)])
        want = sample.astype(other(name)).view(form.storage)
    if name == "float16":  # NumPy keeps bits of a NaN's payload
        want = np.where(np.isnan(sample), np.signbit(sample) * np.uint16(0x8000) | np.uint16(form.nan), want)
    x = Var("x", "float32")
    np.testing.assert_array_equal(evaluate(encode(name, x), {x: sample}), want)


@pytest.mark.parametrize("name", FORMATS)
def test_float64_is_rounded_once(name):
    form = FORMATS[name]
    with np.errstate(all="ignore"):
        values = np.arange(1 << form.bits, dtype=form.storage).view(other(name)).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])[int(not form.signed) :]  # ml_dtypes rounds up to the second
    ties = (values[1:] + values[:-1]) / 2  # exact in float64
    above, below = np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)
    x = Var("x", "float64")
    for sample, expected in ((above, values[1:]), (below, values[:-1])):
        patterns = evaluate(encode(name, x), {x: sample})
        decoded = patterns.view(other(name)).astype(np.float64)
        np.testing.assert_array_equal(decoded, expected)
        folded = [round_float(float(v), DataType(name)) for v in sample[::97]]
        np.testing.assert_array_equal(folded, expected[::97])
    exact = evaluate(encode(name, x), {x: np.array([np.inf, -np.inf, np.nan, 1e300, -1e300, 0.0, 5e-324])})
    with np.errstate(all="ignore"):
        single = np.array([np.inf, -np.inf, np.nan, np.inf, -np.inf, 0.0, 1e-45], np.float32)
    y = Var("y", "float32")
    np.testing.assert_array_equal(exact, evaluate(encode(name, y), {y: single}))


def test_vectors_keep_their_lanes():
    assert decode("float8_e5m2", Var("p", "uint8x16")).dtype == "float32x16"
    assert encode("bfloat16", Var("x", "float32x4")).dtype == "uint16x4"
