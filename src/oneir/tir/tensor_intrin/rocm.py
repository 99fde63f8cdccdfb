"""A dot product of bytes on AMD's GPUs."""

from __future__ import annotations

from ...ir.expr import PrimExpr, const
from ..function import TensorIntrin
from ..op import call_llvm_pure_intrin
from .dot_product_common import as_words, dot_product


def _sdot4(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    saturates = const(1, "bool")
    return c + call_llvm_pure_intrin(
        "int32", "llvm.amdgcn.sdot4", as_words(a), as_words(b), const(0, "int32"), saturates
    )


AMDGPU_SDOT4_INTRIN = "sdot4"
_DTYPES = ("int8", "int8", "int32")
TensorIntrin.provide(AMDGPU_SDOT4_INTRIN, dot_product, 1, 4, _DTYPES, _sdot4, ("shared", "shared", "local"))
