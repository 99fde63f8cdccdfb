"""Dot products on Hexagon's vectors: thirty-two sums of four bytes or two pairs of bytes."""

from __future__ import annotations

from ...ir.expr import Broadcast, PrimExpr
from ..function import TensorIntrin
from ..op import call_llvm_pure_intrin
from .dot_product_common import Product, as_words, dot_product


def _instruction(name: str) -> Product:
    def product(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
        left, right = Broadcast(as_words(a), 32), as_words(b)
        return call_llvm_pure_intrin("int32x32", f"llvm.hexagon.V6.{name}.acc.128B", c, left, right)

    return product


VRMPY_u8u8i32_INTRIN = "dot_32x4_u8u8i32_vrmpy"
VRMPY_u8i8i32_INTRIN = "dot_32x4_u8i8i32_vrmpy"
VDMPY_i16i16i32_INTRIN = "dot_product_32x2_i16i16i32_vdmpy"
for _name, _k, _dtypes, _code in (
    (VRMPY_u8u8i32_INTRIN, 4, ("uint8", "uint8", "int32"), "vrmpyubv"),
    (VRMPY_u8i8i32_INTRIN, 4, ("uint8", "int8", "int32"), "vrmpybusv"),
    (VDMPY_i16i16i32_INTRIN, 2, ("int16", "int16", "int32"), "vdmpyhvsat"),
):
    TensorIntrin.provide(_name, dot_product, 32, _k, _dtypes, _instruction(_code))
