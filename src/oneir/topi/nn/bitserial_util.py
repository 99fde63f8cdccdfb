"""Packing the bits of integers: each word holds one bit of as many elements as it has bits."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ...te.tensor import Tensor
from ..index import require_axis, shape_text
from ..transform import concatenate

_PACK_TYPES = ("uint8", "uint16", "uint32", "uint64")


def binary_op_multiplier(pack_dtype: str) -> int:
    """How many elements a word of the dtype packs."""
    if pack_dtype not in _PACK_TYPES:
        raise InvalidValue(f"topi.nn.bitpack: expected one of {', '.join(_PACK_TYPES)} to pack in, found {pack_dtype}")
    return int(pack_dtype[4:])


def bitpack(
    data: Tensor, bits: int, pack_axis: int, bit_axis: int, pack_type: str, name: str = "QuantizeInput"
) -> Tensor:
    """The lowest `bits` bits of integers, packed along `pack_axis`; a new axis at `bit_axis` counts the bits.

    The first of the elements that share a word is its highest bit.
    """
    width = binary_op_multiplier(pack_type)
    if data.dtype.is_float:
        raise TypeMismatch(f"topi.nn.bitpack: expected data of an integer dtype, found {data.dtype}")
    pack_axis = require_axis(pack_axis, data.ndim, "nn.bitpack", "pack_axis")
    bit_axis = require_axis(bit_axis, data.ndim + 1, "nn.bitpack", "bit_axis")
    if (known := as_int(data.shape[pack_axis])) is not None and known % width:
        raise ShapeMismatch(
            f"topi.nn.bitpack: axis {pack_axis} of the shape {shape_text(data.shape)} is no multiple of {width}, the "
            f"bits of {pack_type}"
        )
    shape = [ops.floordiv(e, width) if d == pack_axis else e for d, e in enumerate(data.shape)]
    shape.insert(bit_axis, const(1, data.shape[pack_axis].dtype))

    def words(*i: PrimExpr) -> tuple[Any, ...]:
        place = [index for d, index in enumerate(i) if d != bit_axis]
        packed = [const(0, pack_type)] * bits
        for k in range(width):
            element = data(*(p * width + k if d == pack_axis else p for d, p in enumerate(place)))
            for b in range(bits):
                bit = ops.bitwise_and(ops.shift_right(element, const(b, data.dtype)), const(1, data.dtype))
                word = packed[b] if k == 0 else ops.shift_left(packed[b], const(1, pack_type))
                packed[b] = ops.bitwise_or(word, bit.astype(pack_type))
        return tuple(packed)

    packed = te.compute(shape, words, name=name, tag="bitpack")
    return concatenate(packed, axis=bit_axis) if bits > 1 else packed


def bit_product(a: Any, b: Any, dtype: str, unipolar: bool) -> Any:
    """The product of packed ones and zeros, summed over a word; of -1 and 1 for b where it is `unipolar`."""
    ones = te.popcount(ops.bitwise_and(a, b)).astype(dtype)
    if not unipolar:
        return ones
    return ones - te.popcount(ops.bitwise_and(a, ops.bitwise_not(b))).astype(dtype)
