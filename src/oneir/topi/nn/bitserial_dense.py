"""The product of matrices of few bits, packed."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from ..index import require_ndim, shape_text
from .bitserial_util import bit_product, bitpack


def bitserial_dense(
    data: Tensor,
    weight: Tensor,
    data_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Tensor:
    """data @ weight.T of integers of a few bits; the weight may be packed already: (out, bits, in).

    With `unipolar`, bits of the weight that are 0 count as -1.
    """
    packed = bitpack(data, data_bits, pack_axis=1, bit_axis=1, pack_type=pack_dtype)
    if weight.ndim == 2:
        weight = bitpack(weight, weight_bits, pack_axis=1, bit_axis=1, pack_type=pack_dtype)
    require_ndim(weight, 3, "nn.bitserial_dense", "a packed weight")
    rows, bits, words = packed.shape
    outputs, of_weight, depth = weight.shape
    if None not in (as_int(words), as_int(depth)) and as_int(words) != as_int(depth):
        raise ShapeMismatch(
            f"topi.nn.bitserial_dense: the inner dimensions differ: packed data {shape_text(packed.shape)}, "
            f"packed weight {shape_text(weight.shape)}"
        )
    k = te.reduce_axis((0, words), name="k")
    db = te.reduce_axis((0, bits), name="db")
    wb = te.reduce_axis((0, of_weight), name="wb")

    def element(i: PrimExpr, j: PrimExpr) -> Any:
        product = bit_product(packed(i, db, k), weight(j, wb, k), out_dtype, unipolar)
        return te.sum(ops.shift_left(product, (db.var + wb.var).astype(out_dtype)), axis=[wb, db, k])

    return te.compute((rows, outputs), element, tag="bitserial_dense_unipolar" if unipolar else "bitserial_dense")
