"""Dot products of bytes on Arm's processors: four sums of four products."""

from __future__ import annotations

from ...ir import operators as ops
from ...ir.expr import Broadcast, PrimExpr
from ..function import TensorIntrin
from ..op import call_llvm_pure_intrin, reinterpret
from ..op_vendor import vectorhigh, vectorlow
from .dot_product_common import (
    DP4A_S8S8S32_INTRIN as DP4A_S8S8S32_INTRIN,
)
from .dot_product_common import (
    DP4A_S8U8S32_INTRIN as DP4A_S8U8S32_INTRIN,
)
from .dot_product_common import (
    DP4A_U8S8S32_INTRIN as DP4A_U8S8S32_INTRIN,
)
from .dot_product_common import (
    DP4A_U8U8U32_INTRIN as DP4A_U8U8U32_INTRIN,
)
from .dot_product_common import as_words, dot_product


def _sdot(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    spread = reinterpret("int8x16", Broadcast(as_words(a), 4))
    return call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.sdot.v4i32.v16i8", c, spread, b)


def _neon(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    """Products of 16 bits, added up in pairs and then in pairs of pairs."""
    spread = reinterpret("int8x16", Broadcast(as_words(a), 4))
    halves = [
        call_llvm_pure_intrin(
            "int32x4",
            "llvm.aarch64.neon.saddlp.v4i32.v8i16",
            call_llvm_pure_intrin(
                "int16x8", "llvm.aarch64.neon.smull.v8i16", half("int8x8", spread), half("int8x8", b)
            ),
        )
        for half in (vectorlow, vectorhigh)
    ]
    return ops.add(c, call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.addp.v4i32", *halves))


_DTYPES = ("int8", "int8", "int32")
ARM_DOT_4x4_i8_SDOT_INTRIN = "dot_4x4_i8i8s32_sdot"
ARM_DOT_4x4_i8_NEON_INTRIN = "dot_4x4_i8i8s32_neon"
TensorIntrin.provide(ARM_DOT_4x4_i8_SDOT_INTRIN, dot_product, 4, 4, _DTYPES, _sdot)
TensorIntrin.provide(ARM_DOT_4x4_i8_NEON_INTRIN, dot_product, 4, 4, _DTYPES, _neon)
