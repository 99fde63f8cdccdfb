"""The number formats of GGUF files: blocks of weights that share scales, read into float32 and made of it.

    dequantize(data, "Q4_K")    # uint8 of whole blocks -> float32
    quantize(weights, "Q4_0")   # float32 -> uint8

Source of the layouts: ggml's `ggml-quants.c` and `ggml-common.h`. A block of the K formats holds 256 weights in 8
groups of 32, or 16 of 16, whose scales are small integers times one float16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...runtime.dtype import numpy_dtype
from ...runtime.error import ShapeMismatch, UnsupportedError


class Digits(NamedTuple):
    """What is in blocks: weights are `(digits - zero) * scale + offset_sign * offset`, by groups of neighbours.

    Scales and offsets are float16, or integers that are multiplied with a float16 of their block.
    """

    digits: np.ndarray
    """uint8 `[n, items]`"""
    zero: int
    scale: np.ndarray
    """float16, int8 or uint8 `[n, groups]`; float32 of MXFP4"""
    block_scale: np.ndarray | None = None
    """float16 `[n, 1]`"""
    offset: np.ndarray | None = None
    block_offset: np.ndarray | None = None
    offset_sign: int = -1


class BlockFormat(NamedTuple):
    """A number format: `items` weights in `size` bytes."""

    items: int
    size: int
    digits: Callable[[np.ndarray], Digits] | None = None
    """What is in blocks, uint8 `[n, size]`; None of a plain dtype."""
    encode: Callable[[np.ndarray], np.ndarray] | None = None
    """The reverse, of the formats that we write."""
    dtype: str | None = None
    """Of a plain format: what an item is."""


class QuantizedTensor(NamedTuple):
    """A tensor in blocks of a format, as a file has it."""

    format: str
    shape: tuple[int, ...]
    """Of the weights; blocks lie along the last extent."""
    data: np.ndarray
    """The blocks, uint8 `[bytes]`, row by row."""
    transposed: bool = False
    """Whether the tensor itself has the two extents in the other order."""


_CHUNK = 1 << 21
"""Weights that are decoded at once: temporaries stay in the cache, and small beside the result."""


def dequantize(data: np.ndarray, name: str) -> np.ndarray:
    """Whole blocks, uint8 `[bytes]`, as float32 `[weights]`: the very bits that ggml gets.

    Raises `UnsupportedError` for a format that is not read, `ShapeMismatch` for bytes that are no whole blocks.
    """
    form = block_format(name)
    if len(data) % form.size:
        raise ShapeMismatch(f"expected whole blocks of {form.size} bytes of {name}, found {len(data)} bytes")
    if form.digits is None:
        return data.view(numpy_dtype(form.dtype or "")).astype(np.float32)
    blocks = data.reshape(-1, form.size)
    result = np.empty((len(blocks), form.items), np.float32)
    step = _CHUNK // form.items
    with np.errstate(all="ignore"):  # scales of a damaged file may be infinite
        for start in range(0, len(blocks), step):
            result[start : start + step] = _values(form.digits(blocks[start : start + step]))
    return result.reshape(-1)


def digits_of(data: np.ndarray, name: str) -> Digits:
    """What is in whole blocks, uint8 `[bytes]`, of a format that is no plain dtype."""
    form = block_format(name)
    assert form.digits is not None
    return form.digits(data.reshape(-1, form.size))


def quantize(weights: np.ndarray, name: str) -> np.ndarray:
    """Weights, float32 `[...]` whose last extent is whole blocks, as uint8 `[bytes]`; as ggml's reference rounds.

    Raises `UnsupportedError` for a format that is not written, `ShapeMismatch` for rows that are no whole blocks.
    """
    form = block_format(name)
    if form.encode is None:
        raise UnsupportedError(f"weights are not written as {name}; choose {', '.join(_names(lambda f: f.encode))}")
    if not weights.ndim or weights.shape[-1] % form.items:
        raise ShapeMismatch(f"expected rows of whole blocks of {form.items} for {name}, found {weights.shape}")
    rows = np.ascontiguousarray(weights, np.float32).reshape(-1, form.items)
    result = np.empty((len(rows), form.size), np.uint8)
    step = _CHUNK // form.items
    with np.errstate(all="ignore"):
        for start in range(0, len(rows), step):
            result[start : start + step] = form.encode(rows[start : start + step])
    return result.reshape(-1)


def block_format(name: str) -> BlockFormat:
    """A format by ggml's name; `UnsupportedError` for one that is not read."""
    if name not in FORMATS:
        raise UnsupportedError(f"weights in the format {name} are not read, only {', '.join(FORMATS)}")
    return FORMATS[name]


def stored_bytes(shape: tuple[int, ...], name: str) -> int:
    """The bytes that a tensor takes. Raises `ShapeMismatch` for rows that are no whole blocks."""
    form = block_format(name)
    if form.items > 1 and (not shape or shape[-1] % form.items):
        raise ShapeMismatch(f"expected rows of whole blocks of {form.items} for {name}, found {shape}")
    return math.prod(shape) // form.items * form.size


def _names(wanted: Callable[[BlockFormat], object]) -> list[str]:
    return [name for name, form in FORMATS.items() if wanted(form)]


def _fields(data: np.ndarray, bits: int, period: int) -> np.ndarray:
    """Small integers, uint8 `[n, bytes * 8 // bits]`: of each `period` bytes first the lowest bits, and so on."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    runs = data.reshape(len(data), -1, 1, period)
    return ((runs >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(data), -1)


def _bits(data: np.ndarray) -> np.ndarray:
    """Bits, uint8 `[n, bytes * 8]`, lowest first."""
    return np.unpackbits(data, axis=1, bitorder="little")


def _halves(blocks: np.ndarray, start: int) -> np.ndarray:
    """A float16 of each block, `[n, 1]`."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16)


def _values(parts: Digits) -> np.ndarray:
    """The weights of blocks, float32 `[n, items]`."""
    scale = _product(parts.scale, parts.block_scale)
    # What is below the zero wraps around.
    signed = (parts.digits - np.uint8(parts.zero)).view(np.int8).astype(np.float32)
    groups = signed.reshape(*scale.shape, -1) * scale[..., None]
    if parts.offset is not None:
        offset = _product(parts.offset, parts.block_offset)[..., None]
        groups = groups + offset if parts.offset_sign > 0 else groups - offset
    return groups.reshape(len(signed), -1)


def _product(numbers: np.ndarray, halves: np.ndarray | None) -> np.ndarray:
    numbers = numbers.astype(np.float32)
    return numbers if halves is None else halves.astype(np.float32) * numbers


def _q4_0(blocks: np.ndarray) -> Digits:
    return Digits(_fields(blocks[:, 2:], 4, 16), 8, _halves(blocks, 0))


def _q4_1(blocks: np.ndarray) -> Digits:
    return Digits(_fields(blocks[:, 4:], 4, 16), 0, _halves(blocks, 0), None, _halves(blocks, 2), offset_sign=1)


def _q5_0(blocks: np.ndarray) -> Digits:
    return Digits(_fields(blocks[:, 6:], 4, 16) | _bits(blocks[:, 2:6]) << 4, 16, _halves(blocks, 0))


def _q5_1(blocks: np.ndarray) -> Digits:
    digits = _fields(blocks[:, 8:], 4, 16) | _bits(blocks[:, 4:8]) << 4
    return Digits(digits, 0, _halves(blocks, 0), None, _halves(blocks, 2), offset_sign=1)


def _q8_0(blocks: np.ndarray) -> Digits:
    return Digits(blocks[:, 2:] ^ np.uint8(128), 128, _halves(blocks, 0))


def _q2_k(blocks: np.ndarray) -> Digits:
    scales, digits = blocks[:, :16], _fields(blocks[:, 16:80], 2, 32)
    return Digits(digits, 0, scales & 15, _halves(blocks, 80), scales >> 4, _halves(blocks, 82))


def _q3_k(blocks: np.ndarray) -> Digits:
    low, packed = _fields(blocks[:, 32:96], 2, 32), blocks[:, 96:108]
    scales = _fields(packed[:, :8], 4, 8) | _fields(packed[:, 8:], 2, 4) << 4
    # A bit of the mask is the third bit of a number that is stored with 4 added to it.
    high = _fields(blocks[:, :32], 1, 32)
    return Digits(low | high << 2, 4, scales.view(np.int8) - np.int8(32), _halves(blocks, 108))


def _q4_k(blocks: np.ndarray) -> Digits:
    scales, minima = _scales_and_minima(blocks)
    return Digits(_fields(blocks[:, 16:], 4, 32), 0, scales, _halves(blocks, 0), minima, _halves(blocks, 2))


def _q5_k(blocks: np.ndarray) -> Digits:
    scales, minima = _scales_and_minima(blocks)
    digits = _fields(blocks[:, 48:], 4, 32) | _fields(blocks[:, 16:48], 1, 32) << 4
    return Digits(digits, 0, scales, _halves(blocks, 0), minima, _halves(blocks, 2))


def _q6_k(blocks: np.ndarray) -> Digits:
    digits = _fields(blocks[:, :128], 4, 64) | _fields(blocks[:, 128:192], 2, 32) << 4
    return Digits(digits, 32, blocks[:, 192:208].view(np.int8), _halves(blocks, 208))


_MXFP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the values of its floats of 4 bits."""


def _mxfp4(blocks: np.ndarray) -> Digits:
    digits = _MXFP4[_fields(blocks[:, 1:], 4, 16)] + np.int8(12)
    return Digits(digits.view(np.uint8), 12, np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128))


def _scales_and_minima(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of Q4_K and Q5_K: 8 scales and 8 minima of 6 bits in 12 bytes.

    Bytes 0-3 and 4-7 hold the first four scales and minima; their two upper bits, and bytes 8-11, the other four.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, third & 15 | (first >> 6) << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | (second >> 6) << 4], axis=1)
    return scales, minima


def _encode_q4_0(rows: np.ndarray) -> np.ndarray:
    # The weight farthest from 0 becomes -8, so that all sixteen numbers are used.
    extreme = np.take_along_axis(rows, np.abs(rows).argmax(axis=1, keepdims=True), axis=1)
    scale = extreme / np.float32(-8)
    fields = np.minimum((rows * _inverse(scale) + np.float32(8.5)).astype(np.int8), 15).view(np.uint8)
    return np.concatenate([scale.astype(np.float16).view(np.uint8), fields[:, :16] | fields[:, 16:] << 4], axis=1)


def _encode_q8_0(rows: np.ndarray) -> np.ndarray:
    scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    scaled = rows * _inverse(scale)
    # C's roundf: halves go away from 0.
    whole = np.trunc(scaled)
    fields = whole + np.where(np.abs(scaled - whole) >= 0.5, np.sign(scaled), np.float32(0))
    return np.concatenate([scale.astype(np.float16).view(np.uint8), fields.astype(np.int8).view(np.uint8)], axis=1)


def _inverse(scale: np.ndarray) -> np.ndarray:
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


FORMATS = {
    "F32": BlockFormat(1, 4, dtype="float32"),
    "F16": BlockFormat(1, 2, dtype="float16"),
    "BF16": BlockFormat(1, 2, dtype="bfloat16"),
    "F64": BlockFormat(1, 8, dtype="float64"),
    "I8": BlockFormat(1, 1, dtype="int8"),
    "I16": BlockFormat(1, 2, dtype="int16"),
    "I32": BlockFormat(1, 4, dtype="int32"),
    "I64": BlockFormat(1, 8, dtype="int64"),
    "Q4_0": BlockFormat(32, 18, _q4_0, _encode_q4_0),
    "Q4_1": BlockFormat(32, 20, _q4_1),
    "Q5_0": BlockFormat(32, 22, _q5_0),
    "Q5_1": BlockFormat(32, 24, _q5_1),
    "Q8_0": BlockFormat(32, 34, _q8_0, _encode_q8_0),
    "Q2_K": BlockFormat(256, 84, _q2_k),
    "Q3_K": BlockFormat(256, 110, _q3_k),
    "Q4_K": BlockFormat(256, 144, _q4_k),
    "Q5_K": BlockFormat(256, 176, _q5_k),
    "Q6_K": BlockFormat(256, 210, _q6_k),
    "MXFP4": BlockFormat(32, 17, _mxfp4),
}
"""The formats that are read, by ggml's names."""
