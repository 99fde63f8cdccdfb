"""Weights in blocks: the bits that the `gguf` package gets, whatever the bytes; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from oneir.llm.files.blocks import FORMATS, block_format, dequantize, quantize, stored_bytes
from oneir.runtime.error import ShapeMismatch, UnsupportedError

BLOCKED = [name for name, form in FORMATS.items() if form.dtype is None]


def test_sizes_are_those_of_ggml():
    assert len(BLOCKED) == 11
    for name, form in FORMATS.items():
        assert (form.items, form.size) == GGML_QUANT_SIZES[GGMLQuantizationType[name]], name


@pytest.mark.parametrize("name", [*BLOCKED, "F32", "F16", "BF16"])
def test_every_bit_is_that_of_ggml(name):
    # Random bytes hold scales that are subnormal, infinite and NaN too.
    data = np.random.default_rng(0).integers(0, 256, (24, block_format(name).size * 8), np.uint8)
    with np.errstate(all="ignore"):
        expected = quants.dequantize(data, GGMLQuantizationType[name])
    got = dequantize(data.reshape(-1), name)
    assert got.dtype == np.float32 and np.isfinite(got).any()
    np.testing.assert_array_equal(got.view(np.uint32), expected.reshape(-1).view(np.uint32))


def test_long_tensors_are_read_in_pieces():
    block = np.random.default_rng(1).integers(0, 60, (8, 18), np.uint8)
    data = np.tile(block.reshape(-1), (1 << 21) // 256 + 3)
    once = dequantize(block.reshape(-1), "Q4_0")
    np.testing.assert_array_equal(dequantize(data, "Q4_0"), np.tile(once, len(data) // block.size))


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0"])
def test_weights_are_rounded_as_ggml_rounds(name):
    weights = np.random.default_rng(2).standard_normal((40, 64)).astype(np.float32)
    weights[0], weights[1] = 0, -weights[1]
    weights[2] = np.round(weights[2] * 4) / 2  # halves, many of which lie between two numbers
    weights[3] *= np.float32(1e-6)
    weights[4] *= np.float32(1e4)
    expected = quants.quantize(weights, GGMLQuantizationType[name])
    np.testing.assert_array_equal(quantize(weights, name), expected.reshape(-1))


def test_rounding_is_close_and_takes_any_layout():
    weights = np.random.default_rng(3).standard_normal((64, 6)).astype(np.float32).T
    for name, steps in (("Q4_0", 8), ("Q8_0", 127)):
        back = dequantize(quantize(weights, name), name).reshape(weights.shape)
        largest = np.abs(weights.reshape(6, 2, 32)).max(axis=2, keepdims=True)
        assert (np.abs(back - weights).reshape(6, 2, 32) <= largest / steps * 1.01).all()


def test_tensors_without_weights():
    assert dequantize(np.zeros(0, np.uint8), "Q6_K").shape == (0,)
    assert quantize(np.zeros((0, 32), np.float32), "Q8_0").shape == (0,)
    assert stored_bytes((0, 256), "Q4_K") == 0 and stored_bytes((3, 256), "Q4_K") == 3 * 144


def test_what_is_refused():
    with pytest.raises(UnsupportedError, match="weights in the format IQ2_XXS are not read, only F32, F16"):
        dequantize(np.zeros(66, np.uint8), "IQ2_XXS")
    with pytest.raises(UnsupportedError, match="weights are not written as Q4_K; choose Q4_0, Q8_0"):
        quantize(np.zeros((1, 256), np.float32), "Q4_K")
    with pytest.raises(ShapeMismatch, match="expected whole blocks of 18 bytes of Q4_0, found 20 bytes"):
        dequantize(np.zeros(20, np.uint8), "Q4_0")
    with pytest.raises(ShapeMismatch, match=r"rows of whole blocks of 32 for Q8_0, found \(2, 48\)"):
        quantize(np.zeros((2, 48), np.float32), "Q8_0")
    with pytest.raises(ShapeMismatch, match=r"rows of whole blocks of 256 for Q4_K, found \(\)"):
        stored_bytes((), "Q4_K")
