"""Dot products of a few short integers, which many processors add to sums in one instruction.

    C[i] += A[0] * B[i, 0] + ... + A[k - 1] * B[i, k - 1]        for each of a vector's lanes i

`dot_product` makes the description and the implementation from a function over vectors. The `DP4A_...` are for GPUs,
one sum for each thread.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, Var, const
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad
from ..function import PrimFunc, TensorIntrin
from ..op import call_pure_extern, reinterpret
from ..stmt import BufferStore
from .describe import function_of, loops_around

Product = Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
"""From the k factors of all lanes, the lanes * k of their own and the sums, all of them vectors, to the new sums."""


def dot_product(
    lanes: int, k: int, dtypes: tuple[str, str, str], product: Product, scopes: tuple[str, str, str] = ("", "", "")
) -> tuple[PrimFunc, PrimFunc]:
    """The description and the implementation of C[i] += sum of A[j] * B[i, j], j < k, for `lanes` sums.

    A is of the shape (k,), B (lanes, k), or (k,) for one lane, C (lanes,); `dtypes` and `scopes` are theirs.
    """
    a, b, c = _buffers(lanes, k, dtypes, scopes)
    several = lanes > 1

    def update(*axes: Var) -> tuple[BufferStore, list[BufferLoad]]:
        loads = [BufferLoad(c, [axes[0] if several else const(0)]), BufferLoad(a, [axes[-1]]), BufferLoad(b, [*axes])]
        added = ops.multiply(*(ops.cast(dtypes[2], factor) for factor in loads[1:]))
        return BufferStore(c, ops.add(loads[0], added), loads[0].indices), loads

    loops = loops_around("update", "SR" if several else "R", (lanes, k) if several else (k,), update)
    description = function_of((a, b, c), (c, a, b), c, loops)
    a, b, c = _buffers(lanes, k, dtypes, scopes)
    new = product(
        a.vload([0], str(DataType(dtypes[0]).with_lanes(k))),
        b.vload([0, 0] if several else [0], str(DataType(dtypes[1]).with_lanes(lanes * k))),
        c.vload([0], str(DataType(dtypes[2]).with_lanes(lanes))),
    )
    return description, function_of((a, b, c), (c, a, b), c, c.vstore([0], new))


def _buffers(
    lanes: int, k: int, dtypes: tuple[str, str, str], scopes: tuple[str, str, str]
) -> tuple[Buffer, Buffer, Buffer]:
    shapes = ((k,), (lanes, k) if lanes > 1 else (k,), (lanes,))
    a, b, c = (
        decl_buffer(shape, dtype, name, scope=scope, offset_factor=1)
        for shape, dtype, name, scope in zip(shapes, dtypes, "ABC", scopes, strict=True)
    )
    return a, b, c


def as_words(vector: PrimExpr) -> PrimExpr:
    """Bytes or pairs of bytes as int32, four or two of them each."""
    lanes = vector.dtype.lanes * vector.dtype.bits // 32
    return reinterpret(str(DataType("int32").with_lanes(lanes)), vector)


def _register_dp4a(a_dtype: str, b_dtype: str, c_dtype: str) -> str:
    short = "_".join(
        [
            "dp4a",
            "".join(f"{'u' if DataType(d).is_uint else 's'}{DataType(d).bits}" for d in (a_dtype, b_dtype, c_dtype)),
        ]
    )
    dtypes = (a_dtype, b_dtype, c_dtype)

    def product(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
        return ops.add(c, call_pure_extern(c_dtype, "__dp4a", as_words(a), as_words(b), const(0, c_dtype)))

    TensorIntrin.provide(short, dot_product, 1, 4, dtypes, product, ("shared", "shared", "local"))
    return short


DP4A_S8S8S32_INTRIN = _register_dp4a("int8", "int8", "int32")
DP4A_U8S8S32_INTRIN = _register_dp4a("uint8", "int8", "int32")
DP4A_S8U8S32_INTRIN = _register_dp4a("int8", "uint8", "int32")
DP4A_U8U8U32_INTRIN = _register_dp4a("uint8", "uint8", "uint32")
