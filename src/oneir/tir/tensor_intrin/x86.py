"""Integer dot products of x86 processors: four products of bytes, added to each of 16 sums.

    for i, k in T.grid(16, 4):
        C[i] += A[k] * B[i, k]

The processors multiply an unsigned byte with a signed one. `dot_16x4_*` has four unsigned bytes for all sums, and four
signed ones for each: activations and weights of a published form. In `dot_16x4_u8_weights_*` the four for each sum are
unsigned, 64 bytes in a row (`B[i * 4 + k]`) in the scope "local", and those for all sums are signed.

- `vnni`: AVX-512 VNNI, one instruction. `avx_vnni`: the same with vectors of 32 bytes, two instructions.
- `avx512`, `avx2`: products are added up in pairs as 16-bit integers first, which saturate: what they compute is as
  described only where `a0 * b0 + a1 * b1` is below 2**15. It is for unsigned bytes up to 128.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Broadcast, PrimExpr, Ramp, const
from ...runtime.error import InvalidValue
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad
from ..function import PrimFunc, TensorIntrin
from ..op import call_llvm_pure_intrin, reinterpret
from ..stmt import BufferStore, Stmt, flat_seq
from .describe import function_of, loops_around

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN = "dot_16x4_avx512"
U8_WEIGHTS = "dot_16x4_u8_weights"
"""What the names of intrinsics with unsigned weights begin with."""

_SUMS, _PRODUCTS = 16, 4
_VECTOR_BYTES = {"vnni": 64, "avx512": 64, "avx_vnni": 32, "avx2": 32}
_PAIRS = {
    64: ("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    32: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
}


def _multiply_and_add(instructions: str, sums: PrimExpr, unsigned: PrimExpr, signed: PrimExpr) -> PrimExpr:
    """Vectors of sums, of unsigned bytes and of signed bytes, multiplied and added."""
    size = _VECTOR_BYTES[instructions]
    if instructions.endswith("vnni"):
        return call_llvm_pure_intrin(sums.dtype, f"llvm.x86.avx512.vpdpbusd.{8 * size}", sums, unsigned, signed)
    bytes_to_words, words_to_sums = _PAIRS[size]
    pairs = call_llvm_pure_intrin(f"int16x{size // 2}", bytes_to_words, unsigned, signed)
    ones = Broadcast(const(1, "int16"), size // 2)
    return sums + call_llvm_pure_intrin(sums.dtype, words_to_sums, pairs, ones)


def get_dot_16x4_intrin(instructions: str, unsigned_weights: bool = False) -> tuple[PrimFunc, PrimFunc]:
    """What a dot product of bytes computes, and how: "vnni", "avx_vnni", "avx512" or "avx2" instructions.

    With `unsigned_weights` the operands are uint8 weights (64,) and sums (16,) in the scope "local", and int8
    activations (4,); otherwise uint8 activations (4,), int8 weights (16, 4) and sums (16,). Sums are int32.

    Raises `InvalidValue` for other instructions.
    """
    if instructions not in _VECTOR_BYTES:
        known = ", ".join(f'"{name}"' for name in _VECTOR_BYTES)
        raise InvalidValue(f'expected the instructions {known}, found "{instructions}"')
    shared_dtype, own_dtype = ("int8", "uint8") if unsigned_weights else ("uint8", "int8")
    scope = "local" if unsigned_weights else "global"
    own_shape = (_SUMS * _PRODUCTS,) if unsigned_weights else (_SUMS, _PRODUCTS)

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        return (
            decl_buffer((_PRODUCTS,), shared_dtype, "A", offset_factor=1),
            decl_buffer(own_shape, own_dtype, "B", scope=scope, offset_factor=1),
            decl_buffer((_SUMS,), "int32", "C", scope=scope, offset_factor=1),
        )

    def own(b: Buffer, i: Any, k: Any) -> BufferLoad:
        return BufferLoad(b, [i * _PRODUCTS + k] if unsigned_weights else [i, k])

    def in_order(shared: Any, own: Any) -> tuple[Any, Any]:
        """The unsigned factor first."""
        return (own, shared) if unsigned_weights else (shared, own)

    def function(a: Buffer, b: Buffer, c: Buffer, body: Stmt) -> PrimFunc:
        return function_of((a, b, c), (c, *in_order(a, b)), c, body)

    a, b, c = buffers()

    def update(i: Any, k: Any) -> tuple[BufferStore, list[BufferLoad]]:
        total, (x, y) = BufferLoad(c, [i]), in_order(BufferLoad(a, [k]), own(b, i, k))
        return BufferStore(c, total + ops.cast("int32", x) * ops.cast("int32", y), [i]), [total, x, y]

    described = function(a, b, c, loops_around("update", "SR", (_SUMS, _PRODUCTS), update))
    a, b, c = buffers()
    size = _VECTOR_BYTES[instructions]
    lanes = size // _PRODUCTS
    shared = reinterpret(
        f"{shared_dtype}x{size}", Broadcast(reinterpret("int32", a.vload([0], f"{shared_dtype}x4")), lanes)
    )
    steps: list[Stmt] = []
    for first in range(0, _SUMS, lanes):
        sums = BufferLoad(c, [Ramp(first, 1, lanes)])
        mine = b.vload([first * _PRODUCTS] if unsigned_weights else [first, 0], f"{own_dtype}x{size}")
        product = _multiply_and_add(instructions, sums, *in_order(shared, mine))
        steps.append(BufferStore(c, product, [Ramp(first, 1, lanes)]))
    return described, function(a, b, c, flat_seq(steps))


TensorIntrin.register(VNNI_DOT_16x4_INTRIN, *get_dot_16x4_intrin("vnni"))
TensorIntrin.register(AVX512_DOT_16x4_INTRIN, *get_dot_16x4_intrin("avx512"))
for _name in _VECTOR_BYTES:
    TensorIntrin.register(f"{U8_WEIGHTS}_{_name}", *get_dot_16x4_intrin(_name, unsigned_weights=True))
