"""Attention of tokens to what their sequences have in pages, and the way of keys and values into pages.

Pages are parts of two tensors: keys (layers, pages, kv_heads, head_dim, page_size), so that scores of neighbouring
positions are a vector, and values (layers, pages, kv_heads, page_size, head_dim). Position `i` of sequence `s` is in
the page `table[starts[s] + i // page_size]`. Their dtype is float32 or float16; sums are in float32. Where it is int8,
the scales of each position and head are a third tensor, (layers, pages, 2, kv_heads, page_size) float32: those of keys,
and those of values.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...dlight.cpu.prefetch import LINE, prefetch
from ...runtime.dtype import numpy_dtype
from ...script import tir as T
from ...target.cpu import CPUInfo
from ...tir import PrimFunc

PAGE_SIZE = 16
"""Positions of a page: its scores are a vector, which is halved four times for their largest and their sum."""
ROWS, LANES, SCORES = 4, 64, 8
"""Queries and the most elements of values whose sums are in registers at once, and the most queries of scores."""
AHEAD = 2
"""Pages between what is asked for and what is multiplied: one or four of them are no better."""


def value_lanes(info: CPUInfo) -> int:
    """The elements of values whose sums, of `ROWS` queries, fit into registers: 64 of AVX-512, 16 of AVX2.

    Beside the sums of each vector are that vector, and one weight that all of its elements are multiplied by.
    """
    vectors = max((info.vector_registers - 1) // (ROWS + 1), 1)
    return min(info.vector_bytes // 4 << vectors.bit_length() - 1, LANES)


def score_rows(info: CPUInfo) -> int:
    """The queries whose scores of a page fit into registers, a power of two: 8 of AVX-512, 4 of AVX2.

    Beside them are the vectors of an element of its keys, and that element of a query.
    """
    vectors = max(PAGE_SIZE * 4 // info.vector_bytes, 1)
    rows = max((info.vector_registers - 1) // vectors - 1, 1)
    return min(1 << rows.bit_length() - 1, SCORES)


def without(func: PrimFunc, unused: Sequence[str]) -> PrimFunc:
    """The function without the parameters of these names, which it has no use for."""
    return func.replace(params=[p for p in func.params if p.name not in unused]) if unused else func


def _largest_divisor(extent: int, most: int) -> int:
    return max(d for d in range(1, min(extent, most) + 1) if extent % d == 0)


class _Tiles(NamedTuple):
    """The numbers of queries whose sums are in registers at once, and how often there are so many."""

    score_rows: Any
    score_tiles: Any
    steps: Any
    """Elements of a head whose products are added up apart, so that few queries do not wait for their own sums."""
    value_rows: Any
    value_tiles: Any


def _tiles(rows: int, head_dim: int, most_scores: int) -> _Tiles:
    of_scores, of_values = (_largest_divisor(rows, most) for most in (most_scores, ROWS))
    steps = _largest_divisor(head_dim, most_scores // of_scores)
    return _Tiles(*map(T.int64, (of_scores, rows // of_scores, steps, of_values, rows // of_values)))


@functools.lru_cache(256)
def rotate_and_store(
    heads: int,
    kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    scale: float = 1.0,
    original_context: int | None = None,
    dtype: str = "float32",
    norm_eps: float | None = None,
) -> PrimFunc:
    """Turns queries and keys by their positions, and stores keys and values in pages.

    The parameters are queries, keys and values (m, heads + 2 * kv_heads, head_dim) float32, the positions of the m
    tokens and the numbers of their sequences, `starts` and `table` of the pages, `lengths` of the sequences, all int32,
    the frequencies float32, with a `norm_eps` the weights (head_dim,) of the normalizations of each query and of each
    key, the tensors of pages, and the result, the turned queries (m, heads, head_dim); the layer is a variable. In
    int8, the largest of a head is 127 or -127. The elements `d` and `d + rotary_dim // 2` of a head turn together, and
    those from `rotary_dim` on stay. Cosines and sines are multiplied by `scale`. Frequencies are (1, rotary_dim // 2),
    or (2, rotary_dim // 2) with an `original_context`: the second row is for sequences that are longer than that.
    """
    H, KV, D, R, P = (T.int64(x) for x in (heads, kv_heads, head_dim, rotary_dim // 2, PAGE_SIZE))
    kinds, quantized = T.int64(1 if original_context is None else 2), dtype == "int8"
    near, normed, epsilon = original_context or 0x7FFFFFFF, norm_eps is not None, norm_eps or 0.0
    lanes = _largest_divisor(head_dim, PAGE_SIZE)
    L, parts = T.int64(lanes), T.int64(head_dim // lanes)

    @T.prim_func(private=True)
    def rotate_and_store(
        rows: T.handle,
        positions: T.handle,
        sequences: T.handle,
        starts: T.handle,
        table: T.handle,
        lengths: T.handle,
        frequencies: T.handle,
        query_norm: T.handle,
        key_norm: T.handle,
        key_pages: T.handle,
        value_pages: T.handle,
        scales: T.handle,
        turned: T.handle,
        layer: T.int64,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        m, pages, layers, b, n = T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
        X = T.match_buffer(rows, (m, H + 2 * KV, D), "float32")
        position = T.match_buffer(positions, (m,), "int32")
        sequence = T.match_buffer(sequences, (m,), "int32")
        start = T.match_buffer(starts, (b,), "int32")
        page_of = T.match_buffer(table, (n,), "int32")
        length = T.match_buffer(lengths, (b,), "int32")
        F = T.match_buffer(frequencies, (kinds, R), "float32")
        if normed:
            WQ = T.match_buffer(query_norm, (D,), "float32")
            WK = T.match_buffer(key_norm, (D,), "float32")
        KP = T.match_buffer(key_pages, (layers, pages, KV, D, P), dtype)
        VP = T.match_buffer(value_pages, (layers, pages, KV, P, D), dtype)
        if quantized:
            S = T.match_buffer(scales, (layers, pages, 2, KV, P), "float32")
        out = T.match_buffer(turned, (m, H, D), "float32")
        for t in T.parallel(m):
            cos = T.decl_buffer((R,), "float32", scope="local")
            sin = T.decl_buffer((R,), "float32", scope="local")
            head = T.decl_buffer((D,), "float32", scope="local")
            key = T.decl_buffer((D,), "float32", scope="local")
            page: T.int64 = T.Cast(
                "int64", page_of[T.Cast("int64", start[sequence[t]]) + T.Cast("int64", position[t]) // P]
            )
            slot: T.int64 = T.Cast("int64", position[t]) % P
            kind: T.int64 = T.Cast("int64", length[sequence[t]] > near)
            for i in range(R):
                cos[i] = T.cos(T.Cast("float32", position[t]) * F[kind, i]) * T.float32(scale)
                sin[i] = T.sin(T.Cast("float32", position[t]) * F[kind, i]) * T.float32(scale)
            for h in range(H + KV):
                if normed:
                    squares = T.decl_buffer((L,), "float32", scope="local")
                    total = T.decl_buffer((1,), "float32", scope="local")
                    for c in T.vectorized(L):
                        squares[c] = T.float32(0)
                    for j in range(parts):
                        for c in T.vectorized(L):
                            squares[c] = squares[c] + X[t, h, j * L + c] * X[t, h, j * L + c]
                    total[0] = T.float32(0)
                    for c in range(L):
                        total[0] = total[0] + squares[c]
                    inverse: T.float32 = T.rsqrt(total[0] * T.float32(1 / head_dim) + T.float32(epsilon))
                    for i in range(D):
                        head[i] = X[t, h, i] * inverse * T.if_then_else(h < H, WQ[i], WK[i])
                else:
                    for i in range(D):
                        head[i] = X[t, h, i]
                if h < H:
                    for i in range(R):
                        out[t, h, i] = head[i] * cos[i] - head[i + R] * sin[i]
                        out[t, h, i + R] = head[i + R] * cos[i] + head[i] * sin[i]
                    for i in range(D - 2 * R):
                        out[t, h, 2 * R + i] = head[2 * R + i]
                else:
                    for i in range(R):
                        key[i] = head[i] * cos[i] - head[i + R] * sin[i]
                        key[i + R] = head[i + R] * cos[i] + head[i] * sin[i]
                    for i in range(D - 2 * R):
                        key[2 * R + i] = head[2 * R + i]
                    if quantized:
                        top = T.decl_buffer((2,), "float32", scope="local")
                        top[0] = T.float32(0)
                        top[1] = T.float32(0)
                        for i in range(D):
                            top[0] = T.max(top[0], T.fabs(key[i]))
                            top[1] = T.max(top[1], T.fabs(X[t, h + KV, i]))
                        for i in range(2):
                            S[layer, page, i, h - H, slot] = top[i] * T.float32(1 / 127)
                            top[i] = T.Select(top[i] > T.float32(0), T.float32(127) / top[i], T.float32(0))
                        for i in range(D):
                            KP[layer, page, h - H, i, slot] = T.Cast("int8", T.nearbyint(key[i] * top[0]))
                            VP[layer, page, h - H, slot, i] = T.Cast("int8", T.nearbyint(X[t, h + KV, i] * top[1]))
                    else:
                        for i in range(D):
                            KP[layer, page, h - H, i, slot] = T.Cast(dtype, key[i])
                            VP[layer, page, h - H, slot, i] = T.Cast(dtype, X[t, h + KV, i])

    unused = ["scales"] * (not quantized) + ["query_norm", "key_norm"] * (not normed)
    return without(rotate_and_store, unused)


@functools.lru_cache(256)
def paged_attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None = None,
    dtype: str = "float32",
    cap: float | None = None,
    sinks: bool = False,
    one: bool = False,
    most_lanes: int = LANES,
    most_scores: int = SCORES,
) -> PrimFunc:
    """softmax(scale * q @ k) @ v of each query over the positions of its sequence up to its own.

    The parameters are queries (m, heads, head_dim) float32, positions and sequences (m,), `starts` and `table`, the
    tensors of pages and scales, scores of sinks (heads,), and the result, like the queries; the layer is a variable.
    With a `window`, only so many positions are attended to, the query's own among them; with a `cap`, scores are
    `cap * tanh(score / cap)`; with `sinks`, softmax has one score more for each head, which has no value. With `one`,
    m is 1. Sums of up to `most_lanes` elements of values are in registers at once, or scores of `most_scores` queries.
    """
    group = heads // kv_heads
    H, KV, D, P, G = (T.int64(x) for x in (heads, kv_heads, head_dim, PAGE_SIZE, group))
    lanes = _largest_divisor(head_dim, most_lanes)
    VL, VD = (T.int64(x) for x in (lanes, head_dim // lanes))
    reach, quantized = T.int64(window or 1 << 40), dtype == "int8"
    factor, capped, limit = T.float32(scale), cap is not None, cap or 1.0
    of_line = LINE // numpy_dtype(dtype).itemsize
    key_rows, value_lines = T.int64(max(of_line // PAGE_SIZE, 1)), T.int64(max(lanes // of_line, 1))
    block = 1 if one else max(1, 2 * ROWS // group)
    TB, in_blocks = T.int64(block), block > 1
    of_one, of_block = (_tiles(tokens * group, head_dim, most_scores) for tokens in (1, block))

    @T.prim_func(private=True)
    def paged_attention(
        queries: T.handle,
        positions: T.handle,
        sequences: T.handle,
        starts: T.handle,
        table: T.handle,
        key_pages: T.handle,
        value_pages: T.handle,
        scales: T.handle,
        sink_scores: T.handle,
        result: T.handle,
        layer: T.int64,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        m, pages, layers, b, n = T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
        Q = T.match_buffer(queries, (m, H, D), "float32")
        position = T.match_buffer(positions, (m,), "int32")
        sequence = T.match_buffer(sequences, (m,), "int32")
        start = T.match_buffer(starts, (b,), "int32")
        page_of = T.match_buffer(table, (n,), "int32")
        K = T.match_buffer(key_pages, (layers, pages, KV, D, P), dtype)
        V = T.match_buffer(value_pages, (layers, pages, KV, P, D), dtype)
        if quantized:
            S = T.match_buffer(scales, (layers, pages, 2, KV, P), "float32")
        if sinks:
            sink = T.match_buffer(sink_scores, (H,), "float32")
        out = T.match_buffer(result, (m, H, D), "float32")

        @T.inline
        def attend(t, h, tokens, tiles):
            # The queries of a few tokens of one sequence, one after the other, for one head of keys and values.
            base: T.int64 = T.Cast("int64", start[sequence[t]])
            first: T.int64 = T.max(T.Cast("int64", position[t]) - reach + 1, 0) // P
            count: T.int64 = T.Cast("int64", position[t + tokens - 1]) // P + 1 - first
            scores = T.decl_buffer((tokens * G, count * P), "float32")
            top = T.decl_buffer((tokens * G, P), "float32", scope="local")
            total = T.decl_buffer((tokens * G,), "float32", scope="local")
            for g in range(tokens * G):
                for p in T.vectorized(P):
                    top[g, p] = T.float32("-inf")
                if sinks:
                    top[g, 0] = sink[h * G + g % G]
            for j in range(count):
                page: T.int64 = T.Cast("int64", page_of[base + first + j])
                ahead: T.int64 = T.Cast("int64", page_of[base + first + T.min(j + AHEAD, count - 1)])
                for o in range(tiles.score_tiles):
                    part = T.decl_buffer((tiles.steps, tiles.score_rows, P), "float32", scope="local")
                    for u, g in T.grid(tiles.steps, tiles.score_rows):
                        for p in T.vectorized(P):
                            part[u, g, p] = T.float32(0)
                    for d in range(D // tiles.steps):
                        for i in T.unroll(T.max(tiles.steps // key_rows, 1)):
                            T.evaluate(prefetch(K[layer, ahead, h, d * tiles.steps + i * key_rows, 0], 3))
                        for u in T.unroll(tiles.steps):
                            for g in T.unroll(tiles.score_rows):
                                for p in T.vectorized(P):
                                    part[u, g, p] = part[u, g, p] + Q[
                                        t + (o * tiles.score_rows + g) // G,
                                        h * G + (o * tiles.score_rows + g) % G,
                                        d * tiles.steps + u,
                                    ] * T.Cast("float32", K[layer, page, h, d * tiles.steps + u, p])
                    for u in T.unroll(tiles.steps - 1):
                        for g in T.unroll(tiles.score_rows):
                            for p in T.vectorized(P):
                                part[0, g, p] = part[0, g, p] + part[u + 1, g, p]
                    for g in T.unroll(tiles.score_rows):
                        for p in T.vectorized(P):
                            part[0, g, p] = part[0, g, p] * factor
                    if quantized:
                        for g in T.unroll(tiles.score_rows):
                            for p in T.vectorized(P):
                                part[0, g, p] = part[0, g, p] * S[layer, page, 0, h, p]
                    if capped:
                        for g in T.unroll(tiles.score_rows):
                            for p in T.vectorized(P):
                                part[0, g, p] = T.tanh(part[0, g, p] * T.float32(1 / limit)) * T.float32(limit)
                    for g in T.unroll(tiles.score_rows):
                        row: T.int64 = o * tiles.score_rows + g
                        own: T.int64 = T.Cast("int64", position[t + row // G])
                        for p in T.vectorized(P):
                            scores[row, j * P + p] = T.Select(
                                T.And((first + j) * P + p <= own, (first + j) * P + p > own - reach),
                                part[0, g, p],
                                T.float32("-inf"),
                            )
                            top[row, p] = T.Select(
                                top[row, p] > scores[row, j * P + p], top[row, p], scores[row, j * P + p]
                            )
            for g in range(tokens * G):
                row = T.decl_buffer((P,), "float32", scope="local")
                weight = T.decl_buffer((P,), "float32", scope="local")
                for p in T.vectorized(P):
                    row[p] = top[g, p]
                for p in T.vectorized(8):
                    row[p] = T.Select(row[p] > row[p + 8], row[p], row[p + 8])
                for p in T.vectorized(4):
                    row[p] = T.Select(row[p] > row[p + 4], row[p], row[p + 4])
                for p in T.vectorized(2):
                    row[p] = T.Select(row[p] > row[p + 2], row[p], row[p + 2])
                peak: T.float32 = T.Select(row[0] > row[1], row[0], row[1])
                for p in T.vectorized(P):
                    row[p] = T.float32(0)
                for j in range(count):
                    for p in T.vectorized(P):
                        weight[p] = T.exp(scores[g, j * P + p] - peak)
                    for p in T.vectorized(P):
                        scores[g, j * P + p] = weight[p]
                        row[p] = row[p] + weight[p]
                    if quantized:
                        page: T.int64 = T.Cast("int64", page_of[base + first + j])
                        for p in T.vectorized(P):
                            scores[g, j * P + p] = weight[p] * S[layer, page, 1, h, p]
                for p in T.vectorized(8):
                    row[p] = row[p] + row[p + 8]
                for p in T.vectorized(4):
                    row[p] = row[p] + row[p + 4]
                for p in T.vectorized(2):
                    row[p] = row[p] + row[p + 2]
                total[g] = row[0] + row[1]
                if sinks:
                    total[g] = total[g] + T.exp(sink[h * G + g % G] - peak)
            for o, c in T.grid(tiles.value_tiles, VD):
                sums = T.decl_buffer((tiles.value_rows, VL), "float32", scope="local")
                for g in T.unroll(tiles.value_rows):
                    for d in T.vectorized(VL):
                        sums[g, d] = T.float32(0)
                for j in range(count):
                    page: T.int64 = T.Cast("int64", page_of[base + first + j])
                    ahead: T.int64 = T.Cast("int64", page_of[base + first + T.min(j + AHEAD, count - 1)])
                    for p in range(P):
                        for i in T.unroll(value_lines):
                            T.evaluate(prefetch(V[layer, ahead, h, p, c * VL + i * of_line], 3))
                        for g in T.unroll(tiles.value_rows):
                            for d in T.vectorized(VL):
                                sums[g, d] = sums[g, d] + scores[o * tiles.value_rows + g, j * P + p] * T.Cast(
                                    "float32", V[layer, page, h, p, c * VL + d]
                                )
                for g in T.unroll(tiles.value_rows):
                    for d in T.vectorized(VL):
                        out[t + (o * tiles.value_rows + g) // G, h * G + (o * tiles.value_rows + g) % G, c * VL + d] = (
                            sums[g, d] / total[o * tiles.value_rows + g]
                        )

        if in_blocks:
            for th in T.parallel((m + TB - 1) // TB * KV):
                low: T.int64 = th // KV * TB
                last: T.int64 = T.min(low + TB, m) - 1
                # Tokens of one sequence come one after the other.
                if last - low == TB - 1 and sequence[low] == sequence[last]:
                    attend(low, th % KV, TB, of_block)
                else:
                    for i in range(last - low + 1):
                        attend(low + i, th % KV, T.int64(1), of_one)
        else:
            for th in T.parallel(m * KV):
                attend(th // KV, th % KV, T.int64(1), of_one)

    return without(paged_attention, ["scales"] * (not quantized) + ["sink_scores"] * (not sinks))
