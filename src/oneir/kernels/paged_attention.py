"""Attention of rows of queries to keys and values in pages, or to those of the same rows, for processors.

Every kernel computes, for each row and head, `softmax(sm_scale * q @ k) @ v` over the positions that the row may see,
and `lse`, the logarithm to the base 2 of the sum of `2 ** (log2(e) * score)`. Where a row sees no position, the result
is 0 and `lse` is -50000, so that `merge_state_inplace` gives it no weight.

A page of a layer has the shape (2, kv heads, page_size, head_dim), keys before values. All scores of a row are kept, so
sums of values need no rescaling. With `rotary_mode` 1, queries and keys are turned here, by `q_rope_position` and by
their own positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..ir import operators as ops
from ..ir.expr import PrimExpr
from ..relax import script_kernels as kernels
from ..runtime.error import InvalidValue
from ..script import tir as T
from ..tir import op as tir_op
from ..tir.buffer import Buffer
from ..tir.function import PrimFunc

BLOCK = 16
"""Positions whose scores are a vector, which is halved four times for their largest and their sum."""
LANES = 16
"""Elements of a head that are multiplied at once."""
WIDE = 64
"""Elements of values whose sums are in registers at once."""
LEAST = -5e4
"""The largest score where there is none."""


def _largest_divisor(extent: int, most: int) -> int:
    return max(d for d in range(1, min(extent, most) + 1) if extent % d == 0)


def _group(num_kv_heads: int, num_qo_heads: int) -> int:
    if num_qo_heads % num_kv_heads:
        raise InvalidValue(
            f"expected a number of query heads that is a multiple of that of key heads, found {num_qo_heads} and "
            f"{num_kv_heads}"
        )
    return num_qo_heads // num_kv_heads


def _halves(width: int) -> tuple[list[int], list[int]]:
    """Of two vectors of 16, made of groups of `width`, the first halves of all groups, and the second halves."""
    first = [i for i in range(32) if i % width < width // 2]
    return first, [i + width // 2 for i in first]


@T.macro
def _fold(x, g, count, width):
    """Makes `count` rows out of twice as many: groups of `width` become sums of half as many."""
    for i in T.unroll(count):
        pair = T.meta_var([x[g, 2 * i, 0:16], x[g, 2 * i + 1, 0:16]])
        x[g, i, 0:16] = T.Shuffle(pair, _halves(width)[0]) + T.Shuffle(pair, _halves(width)[1])


@T.macro
def _add_up(x, g):
    """The sum of the 16 elements of a row, as its first."""
    for p in T.vectorized(8):
        x[g, p] = x[g, p] + x[g, p + 8]
    for p in T.vectorized(4):
        x[g, p] = x[g, p] + x[g, p + 4]
    for p in T.vectorized(2):
        x[g, p] = x[g, p] + x[g, p + 2]
    x[g, 0] = x[g, 0] + x[g, 1]


@T.macro
def _find_largest(x, g):
    """The largest of the 16 elements of a row, as its first."""
    for p in T.vectorized(8):
        x[g, p] = T.Select(x[g, p] > x[g, p + 8], x[g, p], x[g, p + 8])
    for p in T.vectorized(4):
        x[g, p] = T.Select(x[g, p] > x[g, p + 4], x[g, p], x[g, p + 4])
    for p in T.vectorized(2):
        x[g, p] = T.Select(x[g, p] > x[g, p + 2], x[g, p], x[g, p + 2])
    x[g, 0] = T.Select(x[g, 0] > x[g, 1], x[g, 0], x[g, 1])


class Rotation(NamedTuple):
    """By how much the elements of a head of `head_dim` turn for a position; `on` is 1 where they do."""

    scaling: Any
    head_dim: int
    on: Any
    scale: Any
    theta: Any

    def turn(self, load: Callable[[Any], PrimExpr], position: Any, d: Any) -> PrimExpr:
        """The element `d` of a head, turned."""
        # Front ends for models are imported by those who use them.
        from ..relax.frontend.nn.llm.position_embedding import rotated, switch_rope_freq_func

        angle = ops.cast("float32", position) * self.scale
        turn = switch_rope_freq_func(self.scaling)(angle, d, self.head_dim, self.theta, "float32")
        half = None if self.scaling.get("rope_type") == "gptj" else self.head_dim // 2
        return rotated(load, d, turn, half, "float32", "float32")


def attend_of(num_kv_heads: int, num_qo_heads: int, d_qk: int, d_v: int, dtype: str) -> Any:
    """The macro that computes row `t` of the heads that share the key head `h`.

    `count` positions are looked at, of which those count for which `sees` holds. `place` gives where one is,
    `key(place, d)` and `value(place, d)` its elements, and `key_position` by how much it turns.
    """
    group = _group(num_kv_heads, num_qo_heads)
    wide, rows = _largest_divisor(d_v, WIDE), _largest_divisor(group, 8)
    G, D, P, L, W = (T.int64(x) for x in (group, d_qk, BLOCK, LANES, wide))
    log2_e = T.float32(math.log2(math.e))
    R, RG, WD, C = (T.int64(x) for x in (rows, group // rows, d_v // wide, -(-d_qk // LANES)))

    @T.macro
    def attend(t, h, count, Q, out, lse, query_position, place, sees, key, value, key_position, rotation, scale):
        query = T.decl_buffer((G, C * L), "float32", scope="local")
        turned = T.decl_buffer((C * L,), "float32", scope="local")
        products = T.decl_buffer((G, P, L), "float32", scope="local")
        for d in range(C * L - D):
            turned[D + d] = T.float32(0)
            for g in range(G):
                query[g, D + d] = T.float32(0)
        scores = T.decl_buffer((G, (count + P - 1) // P * P), "float32")
        top = T.decl_buffer((G, P), "float32", scope="local")
        total = T.decl_buffer((G,), "float32", scope="local")
        if rotation.on == 1:
            for g, d in T.grid(G, D):
                query[g, d] = rotation.turn(lambda i: Q[t, h * G + g, i], query_position, d) * scale * log2_e
        else:
            for g, d in T.grid(G, D):
                query[g, d] = T.Cast("float32", Q[t, h * G + g, d]) * scale * log2_e
        for g in range(G):
            for p in T.vectorized(P):
                top[g, p] = T.float32(LEAST)
        for j in range((count + P - 1) // P):
            for p in range(P):
                i: T.int64 = T.min(j * P + p, count - 1)
                at: T.int64 = place(i)
                if rotation.on == 1:
                    for d in range(D):
                        turned[d] = rotation.turn(lambda k: key(at, k), key_position(i), d)
                else:
                    for d in range(D):
                        turned[d] = T.Cast("float32", key(at, d))
                for o in range(RG):
                    part = T.decl_buffer((R, L), "float32", scope="local")
                    for g in T.unroll(R):
                        for e in T.vectorized(L):
                            part[g, e] = T.float32(0)
                    for c in range(C):
                        for g in T.unroll(R):
                            for e in T.vectorized(L):
                                part[g, e] = part[g, e] + query[o * R + g, c * L + e] * turned[c * L + e]
                    for g in T.unroll(R):
                        for e in T.vectorized(L):
                            products[o * R + g, p, e] = part[g, e]
            for g in range(G):
                _fold(products, g, 8, 16)
                _fold(products, g, 4, 8)
                _fold(products, g, 2, 4)
                _fold(products, g, 1, 2)
                for p in T.vectorized(P):
                    scores[g, j * P + p] = T.Select(j * P + p < count, products[g, 0, p], T.float32("-inf"))
            if sees is not None:
                for p in range(T.min(count - j * P, P)):
                    if not sees(j * P + p):
                        for g in range(G):
                            scores[g, j * P + p] = T.float32("-inf")
            for g in T.unroll(G):
                for p in T.vectorized(P):
                    top[g, p] = T.Select(top[g, p] > scores[g, j * P + p], top[g, p], scores[g, j * P + p])
        for g in range(G):
            row = T.decl_buffer((1, P), "float32", scope="local")
            for p in T.vectorized(P):
                row[0, p] = top[g, p]
            _find_largest(row, 0)
            peak: T.float32 = row[0, 0]
            for p in T.vectorized(P):
                row[0, p] = T.float32(0)
            for j in range((count + P - 1) // P):
                for p in T.vectorized(P):
                    scores[g, j * P + p] = T.exp2(scores[g, j * P + p] - peak)
                for p in T.vectorized(P):
                    row[0, p] = row[0, p] + scores[g, j * P + p]
            _add_up(row, 0)
            total[g] = row[0, 0] + T.exp2(T.float32(LEAST) - peak)
            lse[t, h * G + g] = peak + T.log2(total[g])
        for o, c in T.grid(RG, WD):
            sums = T.decl_buffer((R, W), "float32", scope="local")
            for g in T.unroll(R):
                for d in T.vectorized(W):
                    sums[g, d] = T.float32(0)
            for i in range(count):
                at: T.int64 = place(i)
                for g in T.unroll(R):
                    for d in T.vectorized(W):
                        sums[g, d] = sums[g, d] + scores[o * R + g, i] * T.Cast("float32", value(at, c * W + d))
            for g in T.unroll(R):
                for d in T.vectorized(W):
                    out[t, h * G + o * R + g, c * W + d] = T.Cast(dtype, sums[g, d] / total[o * R + g])

    return attend


class Lengths(NamedTuple):
    """What `length_info` says: tokens in the last page, and with a window also where it begins, and the sinks."""

    info: Buffer
    window: bool
    page_size: int

    def count(self, pages: Any, b: Any) -> PrimExpr:
        """How many positions sequence `b`, of so many pages, has."""
        last = self.info[0, b] - self.info[1, b] + self.info[2, b] if self.window else self.info[b]
        return tir_op.if_then_else(pages > 0, (pages - 1) * self.page_size + ops.cast("int64", last), 0)

    def place(self, b: Any, i: Any) -> PrimExpr:
        """Where position `i` is: counted through the pages."""
        if not self.window:
            return i
        sinks = ops.cast("int64", self.info[2, b])
        return tir_op.if_then_else(i < sinks, i, i - sinks + ops.cast("int64", self.info[1, b]))


def indices(handle: Any, *shape: Any) -> Any:
    """A parameter of int32, which may be part of a tensor."""
    return T.match_buffer(handle, shape, "int32", elem_offset=T.int64())


@T.macro
def find_sequence(of, indptr, sequences, t):
    """Which sequence row `t` belongs to; `sequences`, if it is behind all of them."""
    of[0] = T.int64(0)
    for i in range(sequences):
        of[0] = of[0] + T.Cast("int64", indptr[i + 1] <= T.Cast("int32", t))


@kernels._attention_decode_cpu.provide
def attention_decode_cpu(
    num_kv_heads: int,
    num_qo_heads: int,
    head_dim: int,
    qkv_dtype: str,
    sliding_window: bool,
    rope_scaling: dict[str, Any],
    page_size: int = 16,
) -> PrimFunc:
    """Attention of one row (B, num_qo_heads, head_dim) for each sequence, to all of its positions.

    The parameters are queries, pages, `page_table_indptr` (B + 1,) and `page_table_values`, `length_info` (B,), the
    tokens in the last page, or (3, B) with a window, also the place where it begins and the number of sinks before it,
    `k_rope_pos_offset` and `q_rope_position` (B,), all int32, the result and `lse`, and the numbers `rotary_mode`,
    `rope_scale`, `rope_theta` and `sm_scale`.
    """
    H, KV, D, P = (T.int64(x) for x in (num_qo_heads, num_kv_heads, head_dim, page_size))
    attend = attend_of(num_kv_heads, num_qo_heads, head_dim, head_dim, qkv_dtype)
    symbol = "batch_decode_paged_kv_cpu" + "_sliding_window" * sliding_window

    @T.prim_func
    def batch_decode_paged_kv(
        queries: T.handle,
        pages: T.handle,
        page_table_indptr: T.handle,
        page_table_values: T.handle,
        length_info: T.handle,
        k_rope_pos_offset: T.handle,
        q_rope_position: T.handle,
        result: T.handle,
        log_sums: T.handle,
        rotary_mode: T.int32,
        rope_scale: T.float32,
        rope_theta: T.float32,
        sm_scale: T.float32,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": symbol})
        B, n, num_pages = T.int64(), T.int64(), T.int64()
        Q = T.match_buffer(queries, (B, H, D), qkv_dtype)
        KP = T.match_buffer(pages, (num_pages, 2, KV, P, D), qkv_dtype, elem_offset=T.int64())
        start = indices(page_table_indptr, B + 1)
        page_of = indices(page_table_values, n)
        info = T.meta_var(indices(length_info, 3, B) if sliding_window else indices(length_info, B))
        key_offset = indices(k_rope_pos_offset, B)
        position = indices(q_rope_position, B)
        out = T.match_buffer(result, (B, H, D), qkv_dtype)
        lse = T.match_buffer(log_sums, (B, H), "float32")
        rotation = T.meta_var(Rotation(rope_scaling, head_dim, rotary_mode, rope_scale, rope_theta))
        lengths = T.meta_var(Lengths(info, sliding_window, page_size))
        for th in T.parallel(B * KV):
            t: T.int64 = th // KV
            h: T.int64 = th % KV
            first: T.int64 = T.Cast("int64", start[t])
            count: T.int64 = lengths.count(T.Cast("int64", start[t + 1]) - first, t)
            attend(
                t,
                h,
                count,
                Q,
                out,
                lse,
                position[t],
                lambda i: page_of[first + lengths.place(t, i) // P] * P + lengths.place(t, i) % P,
                None,
                lambda at, d: KP[at // P, 0, h, at % P, d],
                lambda at, d: KP[at // P, 1, h, at % P, d],
                lambda i: key_offset[t] + i,
                rotation,
                sm_scale,
            )

    return batch_decode_paged_kv


@kernels._attention_prefill_cpu.provide
def attention_prefill_cpu(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    sliding_window: bool,
    rope_scaling: dict[str, Any],
    page_size: int = 16,
) -> PrimFunc:
    """Attention of any number of rows (total_len, h_q, d), those of a sequence one after the other, to its positions.

    The rows of sequence `i` are those from `q_indptr[i]` to `q_indptr[i + 1]`; they are the last of its positions, and
    with `causal` each sees no later ones. The other parameters are those of decoding.
    """
    H, KV, D, P = (T.int64(x) for x in (h_q, h_kv, d, page_size))
    attend = attend_of(h_kv, h_q, d, d, dtype)
    symbol = "batch_prefill_paged_kv_cpu" + "_sliding_window" * sliding_window

    @T.prim_func
    def batch_prefill_paged_kv(
        queries: T.handle,
        q_indptr: T.handle,
        pages: T.handle,
        page_indptr: T.handle,
        page_values: T.handle,
        length_info: T.handle,
        k_rope_pos_offset: T.handle,
        q_rope_position: T.handle,
        result: T.handle,
        log_sums: T.handle,
        causal: T.int32,
        rotary_mode: T.int32,
        rope_scale: T.float32,
        rope_theta: T.float32,
        sm_scale: T.float32,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": symbol})
        m, B, n, num_pages = T.int64(), T.int64(), T.int64(), T.int64()
        Q = T.match_buffer(queries, (m, H, D), dtype)
        row_start = indices(q_indptr, B + 1)
        KP = T.match_buffer(pages, (num_pages, 2, KV, P, D), dtype, elem_offset=T.int64())
        start = indices(page_indptr, B + 1)
        page_of = indices(page_values, n)
        info = T.meta_var(indices(length_info, 3, B) if sliding_window else indices(length_info, B))
        key_offset = indices(k_rope_pos_offset, B)
        position = indices(q_rope_position, m)
        out = T.match_buffer(result, (m, H, D), dtype)
        lse = T.match_buffer(log_sums, (m, H), "float32")
        rotation = T.meta_var(Rotation(rope_scaling, d, rotary_mode, rope_scale, rope_theta))
        lengths = T.meta_var(Lengths(info, sliding_window, page_size))
        for th in T.parallel(m * KV):
            t: T.int64 = th // KV
            h: T.int64 = th % KV
            of = T.decl_buffer((1,), "int64", scope="local")
            find_sequence(of, row_start, B, t)
            if of[0] < B:
                b: T.int64 = of[0]
                first: T.int64 = T.Cast("int64", start[b])
                held: T.int64 = lengths.count(T.Cast("int64", start[b + 1]) - first, b)
                later: T.int64 = T.if_then_else(causal > 0, T.Cast("int64", row_start[b + 1]) - 1 - t, T.int64(0))
                attend(
                    t,
                    h,
                    T.max(held - later, 0),
                    Q,
                    out,
                    lse,
                    position[t],
                    lambda i: page_of[first + lengths.place(b, i) // P] * P + lengths.place(b, i) % P,
                    None,
                    lambda at, d: KP[at // P, 0, h, at % P, d],
                    lambda at, d: KP[at // P, 1, h, at % P, d],
                    lambda i: key_offset[b] + i,
                    rotation,
                    sm_scale,
                )

    return batch_prefill_paged_kv


@kernels._attention_prefill_ragged_cpu.provide
def attention_prefill_ragged_cpu(
    h_kv: int, h_q: int, d_qk: int, d_v: int, dtype: str, rope_scaling: dict[str, Any]
) -> PrimFunc:
    """Attention of rows (qo_len, h_q, d_qk) to keys (kv_len, h_kv, d_qk) and values (kv_len, h_kv, d_v) in tensors.

    Those of sequence `i` are the rows from `kv_indptr[i]` to `kv_indptr[i + 1]`. The result is (qo_len, h_q, d_v). The
    other parameters are those of `_attention_prefill_cpu`.
    """
    H, KV, DK, DV = (T.int64(x) for x in (h_q, h_kv, d_qk, d_v))
    attend = attend_of(h_kv, h_q, d_qk, d_v, dtype)

    @T.prim_func
    def batch_prefill_ragged_kv(
        queries: T.handle,
        q_indptr: T.handle,
        keys: T.handle,
        values: T.handle,
        kv_indptr: T.handle,
        q_rope_position: T.handle,
        k_rope_pos_offset: T.handle,
        result: T.handle,
        log_sums: T.handle,
        causal: T.int32,
        rotary_mode: T.int32,
        rope_scale: T.float32,
        rope_theta: T.float32,
        sm_scale: T.float32,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": "batch_prefill_ragged_kv_cpu"})
        m, n, B = T.int64(), T.int64(), T.int64()
        Q = T.match_buffer(queries, (m, H, DK), dtype)
        row_start = indices(q_indptr, B + 1)
        K = T.match_buffer(keys, (n, KV, DK), dtype)
        V = T.match_buffer(values, (n, KV, DV), dtype)
        start = indices(kv_indptr, B + 1)
        position = indices(q_rope_position, m)
        key_offset = indices(k_rope_pos_offset, B)
        out = T.match_buffer(result, (m, H, DV), dtype)
        lse = T.match_buffer(log_sums, (m, H), "float32")
        rotation = T.meta_var(Rotation(rope_scaling, d_qk, rotary_mode, rope_scale, rope_theta))
        for th in T.parallel(m * KV):
            t: T.int64 = th // KV
            h: T.int64 = th % KV
            of = T.decl_buffer((1,), "int64", scope="local")
            find_sequence(of, row_start, B, t)
            if of[0] < B:
                b: T.int64 = of[0]
                first: T.int64 = T.Cast("int64", start[b])
                held: T.int64 = T.Cast("int64", start[b + 1]) - first
                later: T.int64 = T.if_then_else(causal > 0, T.Cast("int64", row_start[b + 1]) - 1 - t, T.int64(0))
                attend(
                    t,
                    h,
                    T.max(held - later, 0),
                    Q,
                    out,
                    lse,
                    position[t],
                    lambda i: first + i,
                    None,
                    lambda at, d: K[at, h, d],
                    lambda at, d: V[at, h, d],
                    lambda i: key_offset[b] + i,
                    rotation,
                    sm_scale,
                )

    return batch_prefill_ragged_kv
