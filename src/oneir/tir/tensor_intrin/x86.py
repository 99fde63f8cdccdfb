"""Dot products of x86 processors: of unsigned bytes with signed ones, and of bfloat16.

`dot_16x4_*` adds four products to each of 16 sums, with four unsigned bytes for all sums and four signed ones for each:

    for i, k in T.grid(16, 4):
        C[i] += A[k] * B[i, k]

`dot_{n}x32_u4_weights_*` adds those of a group of 32, or of 16, to each of the `n` sums of a vector. Weights are digits
of at most 4 bits (`u4`), or bytes (`u8`), and signed bytes are for all sums:

    for i, q, k in T.grid(n, 8, 4):
        C[i] += B[q, 4 * i + k] * A[4 * q + k]

`dot_{n}x4_bytes_*` is `dot_16x4` for the sums of one vector, exact for all bytes, with C in the scope "local".

`dot_8x2x2_pairs_avx2` adds the first two and the last two of such four products to sums of 16 bits, and
`sum_8x2_pairs_avx2` adds both of these to sums of 32:

    for i, h, k in T.grid(8, 2, 2):                             for i, h in T.grid(8, 2):
        C[i, h] += B[4 * i + 2 * h + k] * A[2 * h + k]              C[i] += A[i, h]

So products with digits of many vectors and rows are independent, and a group ends with one more for each sum.
`start_8x2_pairs_avx2` gives such sums of 16 bits the two halves of a word to start with:

    for i, h in T.grid(8, 2):
        C[i, h] = int16(A[0] >> T.Select(h == 0, 0, 16))

`dot_8x2_words_avx2` adds two products of integers of 16 bits to sums of 32:

    for i, k in T.grid(8, 2):
        C[i] += B[2 * i + k] * A[k]

`split_{dtype}x32_avx2` makes such integers of bytes, those at even and those at odd places apart:

    for h, i in T.grid(2, 16):
        B[h, i] = A[2 * i + h]

`dot_16x2_bfloat16` adds products of pairs of bfloat16 to 16 sums of float32. The pairs of B are words, the first of
each in the lower half:

    for i, k in T.grid(16, 2):
        C[i] += float32(A[k]) * reinterpret("float32", B[i] >> 16 * k << 16)

`dot_16x2_bfloat16_pairs` is the same, with B as the numbers themselves:

    for i, k in T.grid(16, 2):
        C[i] += float32(A[k]) * float32(B[i, k])

The instruction (AVX-512 BF16) rounds each sum to the nearest, and takes subnormal numbers for zeros, in what it reads
and in what it gives. The product of the odd place is added first.

- `vnni`: AVX-512 VNNI, one instruction for four products. `avx_vnni`: the same with vectors of 32 bytes.
- `avx512`, `avx2`: products are added up in pairs as 16-bit integers first, which saturate. So `dot_16x4` is as
  described for unsigned bytes up to 128 only; the 32 products of a group with digits fit, at most 8 * 2 * 15 * 128.
  `dot_{n}x4_bytes` widens bytes to 16 bits and adds up products of these in pairs, which 32 bits hold.
  The upper and lower four bits of a byte are multiplied apart, and meet in 32 bits.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Broadcast, PrimExpr, Ramp, Select, Var, const
from ...runtime.error import InvalidValue
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad
from ..function import PrimFunc, TensorIntrin
from ..op import call_llvm_pure_intrin, reinterpret
from ..stmt import BufferStore, For, ForKind, flat_seq
from .describe import function_of, loops_around
from .dot_product_common import as_words, dot_product

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN = "dot_16x4_avx512"
AVX2_PAIR_DOT_INTRIN = "dot_8x2x2_pairs_avx2"
AVX2_PAIR_SUM_INTRIN = "sum_8x2_pairs_avx2"
AVX2_PAIR_START_INTRIN = "start_8x2_pairs_avx2"
AVX2_WORD_DOT_INTRIN = "dot_8x2_words_avx2"
BFLOAT16_DOT_16x2_INTRIN = "dot_16x2_bfloat16"
BFLOAT16_PAIRS_DOT_16x2_INTRIN = "dot_16x2_bfloat16_pairs"

_PRODUCTS = 4
GROUPS = (16, 32)
"""Weights of a group along the sum."""
VECTOR_BYTES = {"vnni": 64, "avx512": 64, "avx_vnni": 32, "avx2": 32}
"""The size of the vectors of each kind of instructions."""
_PAIRS = {
    64: ("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    32: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
}


def _size(instructions: str) -> int:
    if instructions not in VECTOR_BYTES:
        known = ", ".join(f'"{name}"' for name in VECTOR_BYTES)
        raise InvalidValue(f'expected the instructions {known}, found "{instructions}"')
    return VECTOR_BYTES[instructions]


def _for_all(four: PrimExpr, size: int) -> PrimExpr:
    """Four bytes again and again, as a vector of `size` bytes."""
    return reinterpret(f"{four.dtype.element}x{size}", Broadcast(as_words(four), size // _PRODUCTS))


def _pairs(unsigned: PrimExpr, signed: PrimExpr, size: int) -> PrimExpr:
    """Products of bytes, added up in pairs."""
    return call_llvm_pure_intrin(f"int16x{size // 2}", _PAIRS[size][0], unsigned, signed)


def _add_pairs(sums: PrimExpr, pairs: PrimExpr, size: int, factor: int = 1) -> PrimExpr:
    factors = Broadcast(const(factor, "int16"), size // 2)
    return sums + call_llvm_pure_intrin(sums.dtype, _PAIRS[size][1], pairs, factors)


def _multiply_and_add(sums: PrimExpr, unsigned: PrimExpr, signed: PrimExpr, size: int) -> PrimExpr:
    return call_llvm_pure_intrin(sums.dtype, f"llvm.x86.avx512.vpdpbusd.{8 * size}", sums, unsigned, signed)


def get_group_dot_intrin(instructions: str, bits: int = 4, group: int = 32) -> tuple[PrimFunc, PrimFunc]:
    """What `dot_{n}x{group}_u{bits}_weights` computes, and how: by "vnni", "avx_vnni", "avx512" or "avx2" instructions.

    The operands are A (group,) int8, B (group // 4, 4 * n) uint8 and C (n,) int32, B and C in the scope "local".
    Raises `InvalidValue` for other instructions, and for other digits than of 4 or 8 bits in groups of 16 or 32.
    """
    size = _size(instructions)
    if bits not in (4, 8) or group not in GROUPS:
        raise InvalidValue(f"expected digits of 4 or 8 bits in groups of 16 or 32, found {bits} in groups of {group}")
    sums, quads = size // _PRODUCTS, group // _PRODUCTS

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        return (
            decl_buffer((group,), "int8", "A", offset_factor=1),
            decl_buffer((quads, size), "uint8", "B", scope="local", strides=[Var("s", "int32"), 1], offset_factor=1),
            decl_buffer((sums,), "int32", "C", scope="local", offset_factor=1),
        )

    a, b, c = buffers()

    def update(i: Any, q: Any, k: Any) -> tuple[BufferStore, list[BufferLoad]]:
        loads = [
            BufferLoad(c, [i]),
            BufferLoad(b, [q, i * _PRODUCTS + k]),
            BufferLoad(a, [q * _PRODUCTS + k]),
        ]
        return BufferStore(c, loads[0] + ops.cast("int32", loads[1]) * ops.cast("int32", loads[2]), [i]), loads

    loops = loops_around("update", "SRR", (sums, quads, _PRODUCTS), update)
    described = function_of((a, b, c), (c, b, a), c, loops)
    a, b, c = buffers()
    place = [Ramp(0, 1, sums)]
    factors = [
        (b.vload([q, 0], f"uint8x{size}"), _for_all(a.vload([q * _PRODUCTS], "int8x4"), size)) for q in range(quads)
    ]

    def added(value: PrimExpr, shift: int) -> PrimExpr:
        """The products with the four bits of each digit from `shift` on, added to a value."""
        pairs = (_pairs(_four_bits(x, shift, size) if bits > 4 else x, y, size) for x, y in factors)
        return _add_pairs(value, functools.reduce(operator.add, pairs), size, 1 << shift)

    if instructions.endswith("vnni"):
        values = [_multiply_and_add(BufferLoad(c, place), x, y, size) for x, y in factors]
    else:
        values = [added(BufferLoad(c, place), shift) for shift in range(0, bits, 4)]
    body = flat_seq([BufferStore(c, value, place) for value in values])
    return described, function_of((a, b, c), (c, b, a), c, body)


def _four_bits(digits: PrimExpr, shift: int, size: int) -> PrimExpr:
    """Four bits of each of a vector of bytes."""
    if shift:
        words = reinterpret(f"uint16x{size // 2}", digits)
        shifted = ops.shift_right(words, Broadcast(const(shift, "uint16"), size // 2))
        digits = reinterpret(f"uint8x{size}", shifted)
    return ops.bitwise_and(digits, Broadcast(const(15, "uint8"), size))


def get_pair_dot_intrin() -> tuple[PrimFunc, PrimFunc]:
    """What `dot_8x2x2_pairs_avx2` computes, and how.

    The operands are A (4,) int8, B (32,) uint8 up to 128, and C (8, 2) int16, B and C in the scope "local".
    """
    size = VECTOR_BYTES["avx2"]
    sums = size // _PRODUCTS

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        return (
            decl_buffer((_PRODUCTS,), "int8", "A", offset_factor=1),
            decl_buffer((size,), "uint8", "B", scope="local", offset_factor=1),
            decl_buffer((sums, 2), "int16", "C", scope="local", offset_factor=1),
        )

    a, b, c = buffers()

    def update(i: Any, h: Any, k: Any) -> tuple[BufferStore, list[BufferLoad]]:
        loads = [BufferLoad(c, [i, h]), BufferLoad(b, [i * _PRODUCTS + h * 2 + k]), BufferLoad(a, [h * 2 + k])]
        return BufferStore(c, loads[0] + ops.cast("int16", loads[1]) * ops.cast("int16", loads[2]), [i, h]), loads

    described = function_of((a, b, c), (c, b, a), c, loops_around("update", "SSR", (sums, 2, 2), update))
    a, b, c = buffers()
    digits, factor = b.vload([0], f"uint8x{size}"), _for_all(a.vload([0], f"int8x{_PRODUCTS}"), size)
    value = c.vload([0, 0], f"int16x{2 * sums}") + _pairs(digits, factor, size)
    return described, function_of((a, b, c), (c, b, a), c, c.vstore([0, 0], value))


def get_pair_sum_intrin() -> tuple[PrimFunc, PrimFunc]:
    """What `sum_8x2_pairs_avx2` computes, and how: the operands are A (8, 2) int16 and C (8,) int32, both in the scope
    "local".
    """
    size = VECTOR_BYTES["avx2"]
    sums = size // _PRODUCTS

    def buffers() -> tuple[Buffer, Buffer]:
        return (
            decl_buffer((sums, 2), "int16", "A", scope="local", offset_factor=1),
            decl_buffer((sums,), "int32", "C", scope="local", offset_factor=1),
        )

    a, c = buffers()

    def update(i: Any, h: Any) -> tuple[BufferStore, list[BufferLoad]]:
        loads = [BufferLoad(c, [i]), BufferLoad(a, [i, h])]
        return BufferStore(c, loads[0] + ops.cast("int32", loads[1]), [i]), loads

    described = function_of((a, c), (c, a), c, loops_around("update", "SR", (sums, 2), update))
    a, c = buffers()
    value = _add_pairs(c.vload([0], f"int32x{sums}"), a.vload([0, 0], f"int16x{2 * sums}"), size)
    return described, function_of((a, c), (c, a), c, c.vstore([0], value))


def get_pair_start_intrin() -> tuple[PrimFunc, PrimFunc]:
    """What `start_8x2_pairs_avx2` computes, and how: the operands are A (1,) int32 and C (8, 2) int16, both in the
    scope "local".
    """
    sums = VECTOR_BYTES["avx2"] // _PRODUCTS

    def buffers() -> tuple[Buffer, Buffer]:
        return (
            decl_buffer((1,), "int32", "A", scope="local", offset_factor=1),
            decl_buffer((sums, 2), "int16", "C", scope="local", offset_factor=1),
        )

    a, c = buffers()

    def start(i: Any, h: Any) -> tuple[BufferStore, list[BufferLoad]]:
        load = BufferLoad(a, [0])
        shift = Select(h.equal(0), const(0, "int32"), const(16, "int32"))
        return BufferStore(c, ops.cast("int16", ops.shift_right(load, shift)), [i, h]), [load]

    described = function_of((a, c), (a,), c, loops_around("start", "SS", (sums, 2), start))
    a, c = buffers()
    words = reinterpret(f"int16x{2 * sums}", Broadcast(BufferLoad(a, [0]), sums))
    return described, function_of((a, c), (a,), c, c.vstore([0, 0], words))


def get_word_dot_intrin() -> tuple[PrimFunc, PrimFunc]:
    """What `dot_8x2_words_avx2` computes, and how: the operands are A (2,) int16, B (16,) int16 and C (8,) int32, B and
    C in the scope "local". No two of its products exceed 32 bits, unless all four numbers are -32768.
    """
    size = VECTOR_BYTES["avx2"]
    sums = size // _PRODUCTS

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        return (
            decl_buffer((2,), "int16", "A", offset_factor=1),
            decl_buffer((2 * sums,), "int16", "B", scope="local", offset_factor=1),
            decl_buffer((sums,), "int32", "C", scope="local", offset_factor=1),
        )

    a, b, c = buffers()

    def update(i: Any, k: Any) -> tuple[BufferStore, list[BufferLoad]]:
        loads = [BufferLoad(c, [i]), BufferLoad(b, [i * 2 + k]), BufferLoad(a, [k])]
        return BufferStore(c, loads[0] + ops.cast("int32", loads[1]) * ops.cast("int32", loads[2]), [i]), loads

    described = function_of((a, b, c), (c, b, a), c, loops_around("update", "SR", (sums, 2), update))
    a, b, c = buffers()
    pair = Broadcast(reinterpret("int32", a.vload([0], "int16x2")), sums)
    factor = reinterpret(f"int16x{2 * sums}", pair)
    step = call_llvm_pure_intrin(f"int32x{sums}", _PAIRS[size][1], b.vload([0], f"int16x{2 * sums}"), factor)
    value = c.vload([0], f"int32x{sums}") + step
    return described, function_of((a, b, c), (c, b, a), c, c.vstore([0], value))


def split_name(dtype: str) -> str:
    """The name that the intrinsic for bytes of a dtype is registered under."""
    return f"split_{dtype}x32_avx2"


def get_split_intrin(dtype: str) -> tuple[PrimFunc, PrimFunc]:
    """What `split_{dtype}x32_avx2` computes, and how: the operands are A (32,) of the dtype and B (2, 16) int16, of
    uint8, which are digits, in the scope "local".
    """
    size, scope = VECTOR_BYTES["avx2"], "local" if dtype == "uint8" else ""

    def buffers() -> tuple[Buffer, Buffer]:
        return (
            decl_buffer((size,), dtype, "A", offset_factor=1),
            decl_buffer((2, size // 2), "int16", "B", scope=scope, strides=[Var("s", "int32"), 1], offset_factor=1),
        )

    a, b = buffers()

    def update(h: Any, i: Any) -> tuple[BufferStore, list[BufferLoad]]:
        load = BufferLoad(a, [i * 2 + h])
        return BufferStore(b, ops.cast("int16", load), [h, i]), [load]

    described = function_of((a, b), (a,), b, loops_around("split", "SS", (2, size // 2), update))
    a, b = buffers()
    # One store, in a loop, so that it is seen to write all of B.
    half = Var("h", "int32")
    words = reinterpret(f"int16x{size // 2}", a.vload([0], f"{dtype}x{size}"))

    def shifted(by: PrimExpr) -> PrimExpr:
        return Broadcast(ops.cast("int16", by), size // 2)

    if dtype == "uint8":
        part = ops.bitwise_and(words >> shifted(half * 8), Broadcast(const(255, "int16"), size // 2))
    else:
        part = (words << shifted(8 - half * 8)) >> Broadcast(const(8, "int16"), size // 2)
    body = For(half, const(0), const(2), ForKind.UNROLLED, b.vstore([half, 0], part))
    return described, function_of((a, b), (a,), b, body)


def group_dot_name(instructions: str, bits: int = 4, group: int = 32) -> str:
    """The name that the intrinsic for a group is registered under."""
    return f"dot_{_size(instructions) // _PRODUCTS}x{group}_u{bits}_weights_{instructions}"


def _multiply_widened(sums: PrimExpr, unsigned: PrimExpr, signed: PrimExpr, size: int) -> PrimExpr:
    """Sums and products of bytes, with the bytes at even and at odd places widened to 16 bits."""
    words, eight = size // 2, Broadcast(const(8, "int16"), size // 2)
    signed = reinterpret(f"int16x{words}", signed)
    unsigned = reinterpret(f"uint16x{words}", unsigned)
    factors = (
        (ops.bitwise_and(unsigned, Broadcast(const(255, "uint16"), words)), (signed << eight) >> eight),
        (unsigned >> Broadcast(const(8, "uint16"), words), signed >> eight),
    )
    for x, y in factors:
        pair = call_llvm_pure_intrin(sums.dtype, _PAIRS[size][1], reinterpret(f"int16x{words}", x), y)
        sums = sums + pair
    return sums


def byte_dot_name(instructions: str) -> str:
    """The name that the exact dot products of four bytes are registered under."""
    return f"dot_{_size(instructions) // _PRODUCTS}x{_PRODUCTS}_bytes_{instructions}"


def get_byte_dot_intrin(instructions: str) -> tuple[PrimFunc, PrimFunc]:
    """What `dot_{n}x4_bytes` computes, and how: by "vnni", "avx_vnni", "avx512" or "avx2" instructions.

    The operands are A (4,) uint8, B (n, 4) int8 and C (n,) int32, C in the scope "local".
    Raises `InvalidValue` for other instructions.
    """
    size = _size(instructions)
    add = _multiply_and_add if instructions.endswith("vnni") else _multiply_widened

    def product(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
        return add(c, _for_all(a, size), b, size)

    return dot_product(size // _PRODUCTS, _PRODUCTS, ("uint8", "int8", "int32"), product, ("", "", "local"))


def _dot_16x4(add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]) -> tuple[PrimFunc, PrimFunc]:
    def product(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
        return add(c, _for_all(a, 64), b)

    return dot_product(16, _PRODUCTS, ("uint8", "int8", "int32"), product)


def get_bfloat16_dot_intrin() -> tuple[PrimFunc, PrimFunc]:
    """What `dot_16x2_bfloat16` computes, and how. The operands are A (2,) bfloat16, B (16,) uint32, and C (16,) float32
    in the scope "local".
    """

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        return (
            decl_buffer((2,), "bfloat16", "A", offset_factor=1),
            decl_buffer((16,), "uint32", "B", offset_factor=1),
            decl_buffer((16,), "float32", "C", scope="local", offset_factor=1),
        )

    a, b, c = buffers()

    def update(i: Any, k: Any) -> tuple[BufferStore, list[BufferLoad]]:
        loads = [BufferLoad(c, [i]), BufferLoad(a, [k]), BufferLoad(b, [i])]
        half = ops.shift_right(loads[2], ops.cast("uint32", k * 16))
        weight = reinterpret("float32", ops.shift_left(half, const(16, "uint32")))
        return BufferStore(c, loads[0] + ops.cast("float32", loads[1]) * weight, [i]), loads

    described = function_of((a, b, c), (c, a, b), c, loops_around("update", "SR", (16, 2), update))
    a, b, c = buffers()
    place = [Ramp(0, 1, 16)]
    sums = _add_pairs_of_bfloat16(a.vload([0], "bfloat16x2"), BufferLoad(b, place), BufferLoad(c, place))
    return described, function_of((a, b, c), (c, a, b), c, BufferStore(c, sums, place))


def _add_pairs_of_bfloat16(pair: PrimExpr, weights: PrimExpr, sums: PrimExpr) -> PrimExpr:
    """16 sums, and to each the two products of a pair with one of its own."""
    # LLVM takes words for pairs of bfloat16; vectors of bfloat16 would be computed with as float32.
    pairs, words = Broadcast(reinterpret("int32", pair), 16), reinterpret("int32x16", weights)
    return call_llvm_pure_intrin(sums.dtype, "llvm.x86.avx512bf16.dpbf16ps.512", sums, pairs, words)


def get_bfloat16_pairs_dot_intrin() -> tuple[PrimFunc, PrimFunc]:
    """What `dot_16x2_bfloat16_pairs` computes, and how. The operands are A (2,) bfloat16, B (16, 2) bfloat16, and
    C (16,) float32 in the scope "local".
    """
    dtypes = ("bfloat16", "bfloat16", "float32")
    return dot_product(16, 2, dtypes, _add_pairs_of_bfloat16, ("", "", "local"))


TensorIntrin.provide(VNNI_DOT_16x4_INTRIN, lambda: _dot_16x4(lambda c, a, b: _multiply_and_add(c, a, b, 64)))
TensorIntrin.provide(AVX512_DOT_16x4_INTRIN, lambda: _dot_16x4(lambda c, a, b: _add_pairs(c, _pairs(a, b, 64), 64)))
for _kind in itertools.product(VECTOR_BYTES, (4, 8), GROUPS):
    TensorIntrin.provide(group_dot_name(*_kind), get_group_dot_intrin, *_kind)
TensorIntrin.provide(AVX2_PAIR_DOT_INTRIN, get_pair_dot_intrin)
TensorIntrin.provide(AVX2_PAIR_SUM_INTRIN, get_pair_sum_intrin)
TensorIntrin.provide(AVX2_PAIR_START_INTRIN, get_pair_start_intrin)
TensorIntrin.provide(AVX2_WORD_DOT_INTRIN, get_word_dot_intrin)
for _dtype in ("int8", "uint8"):
    TensorIntrin.provide(split_name(_dtype), get_split_intrin, _dtype)
for _name in VECTOR_BYTES:
    TensorIntrin.provide(byte_dot_name(_name), get_byte_dot_intrin, _name)
TensorIntrin.provide(BFLOAT16_DOT_16x2_INTRIN, get_bfloat16_dot_intrin)
TensorIntrin.provide(BFLOAT16_PAIRS_DOT_16x2_INTRIN, get_bfloat16_pairs_dot_intrin)
