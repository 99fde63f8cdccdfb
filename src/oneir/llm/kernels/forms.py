"""The forms in which weights (n, k) are kept: panels of 32 outputs, in the order in which kernels read them.

    form = FORMS["Q4_0"]
    form.parameters(n, k)                       # shapes and dtypes by name
    form.pack(blocks, n, k)                     # the blocks of a file as these arrays

A form of digits has for each group of weights along the sum a scale, and maybe an offset, which are float16, or small
integers times a float16 for 256 weights:

    weight[n, k] = (digit[n, k] - zero) * scale[n, k // group] + offset_sign * offset[n, k // group]

Digits of 8 bits lie as (n // 32, k // 32, 8, 2, 64) bytes: byte `4 * c + i` of the vector (q, v) is that of the output
`16 * v + c` and of `k = 4 * q + i`. Of those of 4 bits, (n // 32, k // 32, 4, 2, 64), the low half of a byte of the
vector (j, v) is that of `k = 4 * j + i`, the high half that of `k = 16 + 4 * j + i`. Scales and offsets are
(n // 32, k // group, 2, 16). Floats of 4 bits (MXFP4) lie as digits do, with the exponents of powers of two for scales.
Float16 are (n // 32, k, 2, 16). Bfloat16 are words of two, (n // 32, k // 2, 2, 16),
whose low half is that of the even `k`: processors add up products of such pairs, and a shift makes float32 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...runtime.dtype import numpy_dtype
from ...runtime.error import ShapeMismatch
from ...script.ir_builder import tir as T
from ..files.blocks import Digits, digits_of

PANEL, VECTORS, LANES = 32, 2, 16
"""Outputs of a panel, which are so many vectors of so many lanes."""
BLOCK, SUPERBLOCK = 32, 256
"""Weights along the sum whose digits lie together, and those that share a float16 where scales are integers."""
Shape = tuple[int, ...]
Rows = Literal["float32", "bfloat16"] | int
"""What rows become before a product: floats, or int8 with sums of so many neighbours."""
At = Callable[[str, Any], Any]
"""Gives the element of an array of that name for a group of weights."""


@dataclass(frozen=True)
class DigitForm:
    """Integers without a sign, with scales by groups."""

    name: str
    """That of GGML's format which has the same numbers."""
    bits: Literal[4, 8]
    zero: int
    group: Literal[16, 32] = 32
    scale: Literal["float16", "int8", "uint8"] = "float16"
    offset_sign: Literal[-1, 0, 1] = 0
    """0 where there are no offsets; these have the dtype of the scales."""

    @property
    def two_levels(self) -> bool:
        """Whether scales are integers, which are multiplied with a float16 of 256 weights."""
        return self.scale != "float16"

    def parameters(self, n: int, k: int) -> dict[str, tuple[Shape, str]]:
        """Shape and dtype of each array of a weight. Raises `ShapeMismatch` for sizes that are no whole panels."""
        check_multiple(n, PANEL, "the outputs")
        check_multiple(k, SUPERBLOCK if self.two_levels else BLOCK, "the sum")
        panels = n // PANEL
        found: dict[str, tuple[Shape, str]] = {
            "weight": ((panels, k // BLOCK, self.bits, VECTORS, 4 * LANES), "uint8"),
            "scale": ((panels, k // self.group, VECTORS, LANES), self.scale),
        }
        if self.two_levels:
            found["block_scale"] = (panels, k // SUPERBLOCK, VECTORS, LANES), "float16"
        if self.offset_sign:
            found |= {name.replace("scale", "offset"): kind for name, kind in found.items() if "scale" in name}
        return found

    def scale_at(self, parts: Mapping[str, Any], name: Literal["scale", "offset"], p: Any, g: Any, v: Any, c: Any):
        """The scale or the offset of the group `g` of an output, float32."""
        return self._scale(lambda array, group: parts[array][p, group, v, c], name, g)

    def _scale(self, at: At, name: str, g: Any) -> Any:
        value = T.Cast("float32", at(name, g))
        if not self.two_levels:
            return value
        return T.Cast("float32", at(f"block_{name}", g // (SUPERBLOCK // self.group))) * value

    def value(self, parts: Mapping[str, Any], p: Any, k: Any, v: Any, c: Any) -> Any:
        """The weight at `k` of an output, float32."""
        digit = digit_at(parts["weight"], self.bits, p, k, v, c)
        return self.decoded(digit, lambda array, group: parts[array][p, group, v, c], k)

    def decoded(self, digit: Any, at: At, k: Any) -> Any:
        """The weight at `k` of an output, float32, whose digit is known; `at` gives elements of its other arrays."""
        digit = T.Cast("int32", digit)
        value = T.Cast("float32", digit - self.zero if self.zero else digit) * self._scale(at, "scale", k // self.group)
        if not self.offset_sign:
            return value
        offset = self._scale(at, "offset", k // self.group)
        return value + offset if self.offset_sign > 0 else value - offset

    def pack(self, blocks: np.ndarray, n: int, k: int) -> dict[str, np.ndarray]:
        """The arrays of a weight, of the blocks that a file has, uint8 [bytes]."""
        return self.pack_digits(digits_of(blocks, self.name), n, k)

    def pack_digits(self, digits: Digits, n: int, k: int) -> dict[str, np.ndarray]:
        """The arrays of a weight of these digits, which may be in blocks."""
        arrays = {"weight": _packed_digits(digits.digits, self.bits, n, k)}
        for name, (_, dtype) in self.parameters(n, k).items():
            if name != "weight":
                arrays[name] = _in_panels(getattr(digits, name).astype(numpy_dtype(dtype), copy=False), n)
        return arrays


@dataclass(frozen=True)
class MicroscaledForm:
    """Floats of 4 bits, of which 32 along the sum share a power of two: MXFP4 of the Open Compute Project.

    Bits are a sign, two of an exponent and one of a mantissa: 0, 0.5, 1, 1.5, 2, 3, 4 and 6. The exponent of a group is
    that of the scale plus 127.
    """

    name: str

    def parameters(self, n: int, k: int) -> dict[str, tuple[Shape, str]]:
        """Shape and dtype of each array of a weight. Raises `ShapeMismatch` for sizes that are no whole panels."""
        check_multiple(n, PANEL, "the outputs")
        check_multiple(k, BLOCK, "the sum")
        groups = (n // PANEL, k // BLOCK)
        return {"weight": ((*groups, 4, VECTORS, 4 * LANES), "uint8"), "scale": ((*groups, VECTORS, LANES), "uint8")}

    def value(self, parts: Mapping[str, Any], p: Any, k: Any, v: Any, c: Any) -> Any:
        """The weight at `k` of an output, float32."""
        code = digit_at(parts["weight"], 4, p, k, v, c)
        return self.decoded(code, lambda array, group: parts[array][p, group, v, c], k)

    def decoded(self, code: Any, at: At, k: Any) -> Any:
        """The weight at `k` of an output, float32, whose bits are known; `at` gives elements of its other arrays."""
        code = T.Cast("uint32", code)
        # Three bits are the upper ones of a float32's exponent and mantissa, of twice the value; the two smallest are
        # those of integers.
        one, rest = T.uint32(0x3F800000), T.bitwise_and(code, T.uint32(7))
        size = T.Select(rest < T.uint32(2), rest * one, one + T.shift_left(rest, T.uint32(22)))
        sign = T.shift_left(T.bitwise_and(code, T.uint32(8)), T.uint32(28))
        # Half of the power of two, which the two smallest have without an exponent.
        exponent = T.Cast("uint32", at("scale", k // BLOCK))
        small = T.shift_left(T.uint32(0x00200000), exponent)
        scale = T.Select(exponent < T.uint32(2), small, T.shift_left(exponent - T.uint32(1), T.uint32(23)))
        return T.reinterpret("float32", T.bitwise_or(size, sign)) * T.reinterpret("float32", scale)

    def pack(self, blocks: np.ndarray, n: int, k: int) -> dict[str, np.ndarray]:
        """The arrays of a weight, of the blocks that a file has, uint8 [bytes]."""
        codes, scale = self.codes_of(blocks)
        return {"weight": _packed_digits(codes, 4, n, k), "scale": _in_panels(scale, n)}

    def codes_of(self, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bits of weights, in their order, and the exponents of groups, of blocks uint8 [bytes]."""
        blocks = blocks.reshape(-1, 17)
        return np.stack([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], 1), blocks[:, 0]


def digit_at(weight: Any, bits: int, p: Any, k: Any, v: Any, c: Any) -> Any:
    """The digit at `k` of an output, of the dtype of `weight`, which is of bytes or of words of four bytes."""
    shift = 16 if bits == 4 else 32
    place = [p, k // BLOCK, k % shift // 4, v]
    high = k % BLOCK // shift
    if weight.dtype == "uint32":
        word = weight[(*place, c)]
        shifted = T.shift_right(word, T.Cast("uint32", (k % 4) * 8 + high * 4))
    else:
        shifted = T.shift_right(weight[(*place, c * 4 + k % 4)], T.Cast("uint8", high * 4))
    return T.bitwise_and(shifted, T.Cast(weight.dtype, (1 << bits) - 1))


def _packed_digits(digits: np.ndarray, bits: int, n: int, k: int) -> np.ndarray:
    shift = 16 if bits == 4 else 32
    shape = (n // PANEL, VECTORS, LANES, k // BLOCK, BLOCK // shift, shift // 4, 4)
    parts = digits.reshape(shape).transpose(4, 0, 3, 5, 1, 2, 6)
    weight = parts[0] | parts[1] << 4 if bits == 4 else parts[0]
    return np.ascontiguousarray(weight).reshape(*weight.shape[:-2], 4 * LANES)


def _in_panels(numbers: np.ndarray, n: int) -> np.ndarray:
    return np.ascontiguousarray(numbers.reshape(n // PANEL, VECTORS, LANES, -1).transpose(0, 3, 1, 2))


@dataclass(frozen=True)
class FloatForm:
    """Floats, of 16 bits where weights lie in panels."""

    name: str
    dtype: Literal["float16", "bfloat16", "float32"]

    @property
    def in_pairs(self) -> bool:
        """Whether neighbours along the sum are one word."""
        return self.dtype == "bfloat16"

    def parameters(self, n: int, k: int) -> dict[str, tuple[Shape, str]]:
        """Shape and dtype of each array of a weight. Raises `ShapeMismatch` for sizes that are no whole panels."""
        check_multiple(n, PANEL, "the outputs")
        check_multiple(k, LANES, "the sum")
        if self.in_pairs:
            return {"weight": ((n // PANEL, k // 2, VECTORS, LANES), "uint32")}
        return {"weight": ((n // PANEL, k, VECTORS, LANES), self.dtype)}

    def value(self, parts: Mapping[str, Any], p: Any, k: Any, v: Any, c: Any) -> Any:
        """The weight at `k` of an output, float32."""
        if not self.in_pairs:
            return T.Cast("float32", parts["weight"][p, k, v, c])
        half = T.shift_right(parts["weight"][p, k // 2, v, c], T.Cast("uint32", k % 2 * 16))
        return T.reinterpret("float32", T.shift_left(half, T.uint32(16)))

    def pack(self, values: np.ndarray, n: int, k: int) -> dict[str, np.ndarray]:
        """The arrays of a weight, of its values (n, k)."""
        step = 2 if self.in_pairs else 1
        panels = values.astype(numpy_dtype(self.dtype), copy=False).reshape(n // PANEL, PANEL, k // step, step)
        panels = np.ascontiguousarray(panels.transpose(0, 2, 1, 3))
        packed = panels.view(np.uint32) if self.in_pairs else panels
        return {"weight": packed.reshape(n // PANEL, k // step, VECTORS, LANES)}


Form = DigitForm | FloatForm | MicroscaledForm

FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        DigitForm("Q4_0", 4, 8),
        DigitForm("Q4_1", 4, 0, offset_sign=1),
        DigitForm("Q5_0", 8, 16),
        DigitForm("Q5_1", 8, 0, offset_sign=1),
        DigitForm("Q8_0", 8, 128),
        DigitForm("Q2_K", 4, 0, 16, "uint8", -1),
        DigitForm("Q3_K", 4, 4, 16, "int8"),
        DigitForm("Q4_K", 4, 0, 32, "uint8", -1),
        DigitForm("Q5_K", 8, 0, 32, "uint8", -1),
        DigitForm("Q6_K", 8, 32, 16, "int8"),
        MicroscaledForm("MXFP4"),
        FloatForm("F16", "float16"),
        FloatForm("BF16", "bfloat16"),
    )
}
"""The forms that kernels multiply with, by GGML's names of the formats whose numbers they have, bit for bit. Digits of
5 and 6 bits take 8."""


def check_multiple(extent: int, of: int, name: str) -> None:
    """Raises `ShapeMismatch` for an extent that is no multiple."""
    if extent % of or extent <= 0:
        what = f"{name} of a product with weights in panels"
        raise ShapeMismatch(f"expected {what} to be a multiple of {of}, found {extent}")
