"""Conversions of bfloat16 and float8 in integer arithmetic: every pattern, every tie, as ml_dtypes converts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from expression_evaluator import evaluate, float32_sample

from oneir.ir.expr import Var
from oneir.tir.transform.narrow_floats import FORMATS, decode, encode


@pytest.mark.parametrize("name", FORMATS)
def test_every_pattern_decodes_exactly(name):
    form = FORMATS[name]
    patterns = np.arange(1 << form.bits, dtype=form.storage)
    p = Var("p", form.storage)
    got, want = evaluate(decode(name, p), {p: patterns}), patterns.view(getattr(ml_dtypes, name)).astype(np.float32)
    assert ((got.view("u4") == want.view("u4")) | (np.isnan(got) & np.isnan(want))).all()


@pytest.mark.parametrize("name", FORMATS)
def test_encoding_rounds_to_nearest_with_ties_to_even(name):
    form = FORMATS[name]
    with np.errstate(all="ignore"):
        values = np.arange(1 << form.bits, dtype=form.storage).view(getattr(ml_dtypes, name)).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    ties = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    random = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        near = [np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
        sample = np.concatenate([ties, *near, random, float32_sample(199_967)])
        want = sample.astype(getattr(ml_dtypes, name)).view(form.storage)
    x = Var("x", "float32")
    np.testing.assert_array_equal(evaluate(encode(name, x), {x: sample}), want)


def test_vectors_keep_their_lanes():
    assert decode("float8_e5m2", Var("p", "uint8x16")).dtype == "float32x16"
    assert encode("bfloat16", Var("x", "float32x4")).dtype == "uint16x4"
