"""Conversions between float32 and narrower floats in integer arithmetic, rounded to nearest, halves to even.

`decode("float8_e4m3fn", bits)` is the float32 of a bit pattern, `encode("float8_e4m3fn", x)` the pattern nearest a
float32 or float64. Patterns are uint8 or uint16, vectors of any length. Results for float32 are those of the ml_dtypes
package, bit for bit; float64 is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import operators as ops
from ...ir.expr import PrimExpr
from ..intrin_rules.formula import Formula, bits_of, float_of, like, select, splat


@dataclass(frozen=True)
class NarrowFloat:
    """A sign bit, `exponent` bits with `bias`, `mantissa` bits.

    `infinity` and `nan` are patterns without the sign; `infinity` is None where a format has none. `unsigned_zero`
    formats have no -0: its pattern is their only NaN. One that is not `signed` has powers of two only, no zero.
    """

    exponent: int
    mantissa: int
    bias: int
    infinity: int | None
    nan: int
    unsigned_zero: bool = False
    signed: bool = True

    @property
    def bits(self) -> int:
        """The width."""
        return int(self.signed) + self.exponent + self.mantissa

    @property
    def storage(self) -> str:
        """The integer dtype that holds it."""
        return f"uint{self.bits}"

    @property
    def largest(self) -> int:
        """The pattern of the largest finite value."""
        if self.infinity is not None:
            return self.infinity - 1
        return (1 << (self.bits - 1)) - 1 if self.unsigned_zero else self.nan - 1


FORMATS = {
    "bfloat16": NarrowFloat(8, 7, 127, 0x7F80, 0x7FC0),
    "float16": NarrowFloat(5, 10, 15, 0x7C00, 0x7E00),
    "float8_e3m4": NarrowFloat(3, 4, 3, 0x70, 0x78),
    "float8_e4m3": NarrowFloat(4, 3, 7, 0x78, 0x7C),
    "float8_e4m3fn": NarrowFloat(4, 3, 7, None, 0x7F),
    "float8_e4m3fnuz": NarrowFloat(4, 3, 8, None, 0x80, unsigned_zero=True),
    "float8_e4m3b11fnuz": NarrowFloat(4, 3, 11, None, 0x80, unsigned_zero=True),
    "float8_e5m2": NarrowFloat(5, 2, 15, 0x7C, 0x7E),
    "float8_e5m2fnuz": NarrowFloat(5, 2, 16, None, 0x80, unsigned_zero=True),
    "float8_e8m0fnu": NarrowFloat(8, 0, 127, None, 0xFF, signed=False),
}


def decode(dtype: str, pattern: PrimExpr) -> PrimExpr:
    """The float32 of a bit pattern, exactly."""
    form = FORMATS[dtype]
    f = Formula()
    p = f.let(ops.cast(like(pattern.dtype, "int32"), pattern), "p")
    if not form.signed:
        value = select(ops.equal(p, 0), 0x00400000, p << 23)  # 2^-127 is a denormal float32
        return f.close(float_of(select(ops.equal(p, form.nan), 0x7FC00000, value)))
    sign_bit = 1 << (form.bits - 1)
    sign = (p & sign_bit) << (32 - form.bits)
    magnitude = f.let(p & (sign_bit - 1), "magnitude")
    if form.bias == 127:
        return f.close(float_of(p << 16))  # bfloat16 is the upper half of a float32
    # The fields shifted to float32's positions have the wrong bias; the product corrects it, also for denormals.
    value = bits_of(float_of(magnitude << (23 - form.mantissa)) * 2.0 ** (127 - form.bias))
    if form.infinity is not None:
        value = select(ops.equal(magnitude, form.infinity), 0x7F800000, value)
        value = select(magnitude > form.infinity, 0x7FC00000, value)
    elif not form.unsigned_zero:
        value = select(ops.equal(magnitude, form.nan), 0x7FC00000, value)
    else:
        value = select(ops.equal(p, form.nan), 0x7FC00000, value)
    return f.close(float_of(value | sign))


def encode(dtype: str, x: PrimExpr) -> PrimExpr:
    """The bit pattern of the nearest value; beyond the largest finite one infinity, or NaN where there is none."""
    form = FORMATS[dtype]
    f = Formula()
    bits = f.let(_float32_to_round(f, x) if x.dtype.element == "float64" else bits_of(x), "bits")
    if not form.signed:
        rounded = (bits + 0x400000) >> 23  # halves go up
        rounded = select(bits < 0x800000, ops.cast(bits.dtype, bits > 0x400000), rounded)  # as ml_dtypes does
        rounded = select(ops.logical_or(bits <= 0, bits >= 0x7F800000), form.nan, rounded)
        return f.close(ops.cast(like(x.dtype, form.storage), rounded))
    a = f.let(bits & 0x7FFFFFFF, "a")
    dropped = 23 - form.mantissa
    rounded = a + ((1 << (dropped - 1)) - 1) + ((a >> dropped) & 1)
    pattern = (rounded >> dropped) - ((127 - form.bias) << form.mantissa)
    if form.bias != 127:
        # Below the smallest normal value: adding a number whose last bit is that of the result rounds to it.
        exponent = 23 + 1 - form.bias - form.mantissa
        small = bits_of(float_of(a) + 2.0**exponent) - ((127 + exponent) << 23)
        pattern = select(a < (128 - form.bias) << 23, small, pattern)
    pattern = f.let(pattern, "pattern")
    over = form.nan if form.infinity is None else form.infinity
    pattern = select(pattern > form.largest, over, pattern)
    pattern = f.let(select(a > 0x7F800000, form.nan, pattern), "pattern")
    sign = (bits >> (32 - form.bits)) & (1 << (form.bits - 1))
    if form.unsigned_zero:
        signed = pattern | sign
        signed = select(ops.logical_or(ops.equal(pattern, 0), ops.equal(pattern, form.nan)), pattern, signed)
    else:
        signed = pattern | sign
    return f.close(ops.cast(like(x.dtype, form.storage), signed))


def _float32_to_round(f: Formula, x: PrimExpr) -> PrimExpr:
    """The bits of a float32 that rounds as the float64 does: an inexact one is cut off, and its last bit set.

    The nearest float32 would round twice, which goes wrong where it is halfway between two narrow values.
    """
    x = f.let(x, "x")
    nearest = f.let(ops.cast(like(x.dtype, "float32"), x), "nearest")
    back = f.let(ops.cast(x.dtype, nearest), "back")
    beyond = select(ops.less(x, splat(0.0, x)), back < x, back > x)
    bits = like(x.dtype, "int32")
    cut = bits_of(nearest) - ops.cast(bits, beyond)
    return cut | ops.cast(bits, ops.not_equal(back, x))
