"""Attention over pages, and the way of keys and values into pages, by blocks of threads.

Parameters and pages are those of `attention`, whose kernels these stand for on devices with threads. A page of keys
has its positions side by side, so neighbouring threads that take neighbouring positions read whole pieces of memory; a
page of values has the elements of a head side by side, which threads take the sums of.
"""

from __future__ import annotations

import functools

from ...script import tir as T
from ...tir import PrimFunc
from .attention import PAGE_SIZE, without

THREADS = 128
"""Threads of a block; positions that it meets at a time."""
ROWS = 16
"""Queries of a block: more would not find registers for their sums."""
BLOCKS = 512
"""Blocks that keep any device busy; with fewer tokens and heads, several share the positions of a sequence."""
SPLITS = 32
"""The most blocks that share the positions of a sequence."""
_WARP = 32


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
    """What `attention.rotate_and_store` computes, for pages of floats: a block of threads has a head of a token."""
    H, KV, D, R, P, W = (T.int64(x) for x in (heads, kv_heads, head_dim, rotary_dim // 2, PAGE_SIZE, _WARP))
    kinds, near = T.int64(1 if original_context is None else 2), original_context or 0x7FFFFFFF
    normed, epsilon = norm_eps is not None, norm_eps or 0.0

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
        K = T.match_buffer(key_pages, (layers, pages, KV, D, P), dtype)
        V = T.match_buffer(value_pages, (layers, pages, KV, P, D), dtype)
        out = T.match_buffer(turned, (m, H, D), "float32")
        for block in T.thread_binding(m * (H + 2 * KV), "blockIdx.x"):
            for lane in T.thread_binding(W, "threadIdx.x"):
                head = T.decl_buffer((D,), "float32", scope="shared")
                partial = T.decl_buffer((W,), "float32", scope="shared")
                squares = T.decl_buffer((1,), "float32", scope="local")
                factor = T.decl_buffer((1,), "float32", scope="local")
                turned_value = T.decl_buffer((1,), "float32", scope="local")
                t: T.int64 = block // (H + 2 * KV)
                h: T.int64 = block % (H + 2 * KV)
                page: T.int64 = T.Cast(
                    "int64", page_of[T.Cast("int64", start[sequence[t]]) + T.Cast("int64", position[t]) // P]
                )
                slot: T.int64 = T.Cast("int64", position[t]) % P
                kind: T.int64 = T.Cast("int64", length[sequence[t]] > near)
                # All heads come to the barriers; those of values only pass.
                factor[0] = T.float32(1)
                if normed:
                    squares[0] = T.float32(0)
                    for j in range((D + W - 1) // W):
                        if j * W + lane < D:
                            squares[0] = squares[0] + X[t, h, j * W + lane] * X[t, h, j * W + lane]
                    partial[lane] = squares[0]
                    squares[0] = T.float32(0)
                    for j in range(W):
                        squares[0] = squares[0] + partial[j]
                    factor[0] = T.rsqrt(squares[0] * T.float32(1 / head_dim) + T.float32(epsilon))
                for j in range((D + W - 1) // W):
                    if j * W + lane < D:
                        head[j * W + lane] = X[t, h, j * W + lane]
                        if normed and h < H + KV:
                            head[j * W + lane] = (
                                X[t, h, j * W + lane]
                                * factor[0]
                                * T.if_then_else(h < H, WQ[j * W + lane], WK[j * W + lane])
                            )
                for j in range((D + W - 1) // W):
                    i: T.int64 = j * W + lane
                    if i < D:
                        if h >= H + KV:
                            V[layer, page, h - H - KV, slot, i] = T.Cast(dtype, head[i])
                        else:
                            turned_value[0] = head[i]
                            if i < 2 * R:
                                angle: T.float32 = T.Cast("float32", position[t]) * F[kind, i % R]
                                other: T.float32 = T.if_then_else(i < R, -head[i + R], head[i - R])
                                turned_value[0] = head[i] * (T.cos(angle) * T.float32(scale)) + other * (
                                    T.sin(angle) * T.float32(scale)
                                )
                            if h < H:
                                out[t, h, i] = turned_value[0]
                            else:
                                K[layer, page, h - H, i, slot] = T.Cast(dtype, turned_value[0])

    return without(rotate_and_store, ["query_norm", "key_norm"] * (not normed))


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
) -> PrimFunc:
    """What `attention.paged_attention` computes, for pages of floats.

    A block of threads has the queries of some heads, which share keys, and of neighbouring tokens of a sequence. It
    meets `THREADS` positions at a time: each thread has the scores of one of them, and then sums of one element of a
    head. Few tokens do not keep a device busy, so several blocks share the positions of a sequence, and a second kernel
    adds up what they found.
    """
    group = heads // kv_heads
    rows_of_token = 1
    while rows_of_token < min(group, ROWS):
        rows_of_token *= 2
    tokens = 1 if one else ROWS // rows_of_token
    rows, parts = tokens * rows_of_token, -(-group // rows_of_token)
    groups = max(THREADS // head_dim, 1)
    H, KV, D, P, G, N = (T.int64(x) for x in (heads, kv_heads, head_dim, PAGE_SIZE, group, THREADS))
    TB, Q, HP, S, C = (T.int64(x) for x in (tokens, rows_of_token, parts, groups, -(-head_dim // THREADS)))
    # Threads that have scores of one query, and how many scores each has.
    R, E, B = T.int64(rows), T.int64(THREADS // rows), T.int64(rows)
    reach, capped, limit, factor = T.int64(window or 1 << 40), cap is not None, cap or 1.0, T.float32(scale)
    lowest = T.float32("-inf")

    @T.prim_func(private=True)
    def paged_attention(
        queries: T.handle,
        positions: T.handle,
        sequences: T.handle,
        starts: T.handle,
        table: T.handle,
        key_pages: T.handle,
        value_pages: T.handle,
        sink_scores: T.handle,
        result: T.handle,
        layer: T.int64,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        m, pages, layers, b, n = T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
        X = T.match_buffer(queries, (m, H, D), "float32")
        position = T.match_buffer(positions, (m,), "int32")
        sequence = T.match_buffer(sequences, (m,), "int32")
        start = T.match_buffer(starts, (b,), "int32")
        page_of = T.match_buffer(table, (n,), "int32")
        K = T.match_buffer(key_pages, (layers, pages, KV, D, P), dtype)
        V = T.match_buffer(value_pages, (layers, pages, KV, P, D), dtype)
        if sinks:
            sink = T.match_buffer(sink_scores, (H,), "float32")
        out = T.match_buffer(result, (m, H, D), "float32")
        splits: T.int64 = T.max(T.min(BLOCKS // (m * KV * HP), SPLITS), 1)
        tops = T.decl_buffer((m, H, splits), "float32")
        totals = T.decl_buffer((m, H, splits), "float32")
        found = T.decl_buffer((m, H, splits, S, D), "float32")
        for split in T.thread_binding(splits, "blockIdx.y"):
            for block in T.thread_binding(m * KV * HP, "blockIdx.x"):
                for thread in T.thread_binding(N, "threadIdx.x"):
                    query = T.decl_buffer((D, R), "float32", scope="shared")
                    score = T.decl_buffer((R, N + 1), "float32", scope="shared")
                    shared = T.decl_buffer((R, E), "float32", scope="shared")
                    rescale = T.decl_buffer((R,), "float32", scope="shared")
                    part = T.decl_buffer((R,), "float32", scope="local")
                    mine = T.decl_buffer((B,), "float32", scope="local")
                    sums = T.decl_buffer((C, R), "float32", scope="local")
                    top = T.decl_buffer((1,), "float32", scope="local")
                    peak = T.decl_buffer((1,), "float32", scope="local")
                    total = T.decl_buffer((1,), "float32", scope="local")
                    count = T.decl_buffer((1,), "int64", scope="local")
                    t: T.int64 = block // (KV * HP)
                    h: T.int64 = block // HP % KV
                    g0: T.int64 = block % HP * Q
                    own: T.int64 = T.Cast("int64", position[t])
                    # A block of tokens begins with a sequence, and at positions that are multiples of its size.
                    begins: T.bool = T.Or(own % TB == 0, T.Or(t == 0, sequence[T.max(t - 1, 0)] != sequence[t]))
                    # A block that does not begin one has no tokens; all threads come to the barriers.
                    count[0] = T.Cast("int64", begins)
                    for i in range(TB - 1):
                        follows: T.bool = T.And(count[0] == i + 1, T.And(own % TB + i + 1 < TB, t + i + 1 < m))
                        if follows and sequence[T.min(t + i + 1, m - 1)] == sequence[t]:
                            count[0] = i + 2
                    for j in range((D * R + N - 1) // N):
                        d: T.int64 = (j * N + thread) // R
                        r: T.int64 = (j * N + thread) % R
                        if d < D:
                            query[d, r] = T.if_then_else(
                                T.And(r // Q < count[0], g0 + r % Q < G),
                                X[T.min(t + r // Q, m - 1), T.min(h * G + g0 + r % Q, H - 1), d],
                                T.float32(0),
                            )
                    row: T.int64 = thread // E
                    lane: T.int64 = thread % E
                    base: T.int64 = T.Cast("int64", start[sequence[t]])
                    first: T.int64 = T.max(own - reach + 1, 0) // P * P
                    end: T.int64 = own + count[0]
                    top[0] = lowest
                    total[0] = T.float32(0)
                    for c in T.unroll(C):
                        for r in T.unroll(R):
                            sums[c, r] = T.float32(0)
                    for step in range(
                        T.if_then_else(begins, ((end - first + N - 1) // N - split + splits - 1) // splits, 0)
                    ):
                        low: T.int64 = first + (step * splits + split) * N
                        p: T.int64 = low + thread
                        for r in T.unroll(R):
                            part[r] = T.float32(0)
                        if p < end:
                            page: T.int64 = T.Cast("int64", page_of[base + p // P])
                            for d in range(D):
                                key: T.float32 = T.Cast("float32", K[layer, page, h, d, p % P])
                                for r in T.unroll(R):
                                    part[r] = part[r] + query[d, r] * key
                        for r in T.unroll(R):
                            part[r] = part[r] * factor
                            if capped:
                                part[r] = T.tanh(part[r] * T.float32(1 / limit)) * T.float32(limit)
                            score[r, thread] = T.Select(
                                T.And(p <= own + r // Q, T.And(p < end, p > own + r // Q - reach)), part[r], lowest
                            )
                        peak[0] = lowest
                        for j in T.unroll(B):
                            mine[j] = score[row, j * E + lane]
                            peak[0] = T.max(peak[0], mine[j])
                        shared[row, lane] = peak[0]
                        peak[0] = top[0]
                        for j in range(E):
                            peak[0] = T.max(peak[0], shared[row, j])
                        # Where there was no score so far there is nothing to rescale, and -inf - -inf is no number.
                        shift: T.float32 = T.Select(peak[0] == lowest, T.float32(0), peak[0])
                        again: T.float32 = T.exp(top[0] - shift)
                        total[0] = total[0] * again
                        top[0] = peak[0]
                        for j in T.unroll(B):
                            mine[j] = T.exp(mine[j] - shift)
                            score[row, j * E + lane] = mine[j]
                            total[0] = total[0] + mine[j]
                        if lane == 0:
                            rescale[row] = again
                        for c in T.unroll(C):
                            for r in T.unroll(R):
                                sums[c, r] = sums[c, r] * rescale[r]
                        if thread < S * D:
                            for j in range(T.min((end - low + P - 1) // P, N // P)):
                                page: T.int64 = T.Cast("int64", page_of[base + low // P + j])
                                for i in range((P + S - 1) // S):
                                    s: T.int64 = i * S + thread // D
                                    if s < P and low + j * P + s < end:
                                        for c in T.unroll(C):
                                            e: T.int64 = c * N + thread % D
                                            if e < D:
                                                value: T.float32 = T.Cast("float32", V[layer, page, h, s, e])
                                                for r in T.unroll(R):
                                                    sums[c, r] = sums[c, r] + score[r, j * P + s] * value
                    shared[row, lane] = total[0]
                    if lane == 0 and row // Q < count[0] and g0 + row % Q < G:
                        total[0] = T.float32(0)
                        for j in range(E):
                            total[0] = total[0] + shared[row, j]
                        tops[t + row // Q, h * G + g0 + row % Q, split] = top[0]
                        totals[t + row // Q, h * G + g0 + row % Q, split] = total[0]
                    if thread < S * D:
                        for c in T.unroll(C):
                            for r in T.unroll(R):
                                e: T.int64 = c * N + thread % D
                                if e < D and r // Q < count[0] and g0 + r % Q < G:
                                    found[t + r // Q, h * G + g0 + r % Q, split, thread // D, e] = sums[c, r]
        for block in T.thread_binding(m * H, "blockIdx.x"):
            for thread in T.thread_binding(N, "threadIdx.x"):
                peak = T.decl_buffer((1,), "float32", scope="local")
                total = T.decl_buffer((1,), "float32", scope="local")
                sums = T.decl_buffer((C,), "float32", scope="local")
                t: T.int64 = block // H
                h: T.int64 = block % H
                peak[0] = lowest
                total[0] = T.float32(0)
                if sinks:
                    peak[0] = sink[h]
                for s in range(splits):
                    peak[0] = T.max(peak[0], tops[t, h, s])
                if sinks:
                    total[0] = T.exp(sink[h] - peak[0])
                for c in T.unroll(C):
                    sums[c] = T.float32(0)
                for s in range(splits):
                    again: T.float32 = T.exp(tops[t, h, s] - peak[0])
                    total[0] = total[0] + totals[t, h, s] * again
                    for c in T.unroll(C):
                        if c * N + thread < D:
                            for i in range(S):
                                sums[c] = sums[c] + found[t, h, s, i, c * N + thread] * again
                for c in T.unroll(C):
                    if c * N + thread < D:
                        out[t, h, c * N + thread] = sums[c] / total[0]

    return without(paged_attention, ["sink_scores"] * (not sinks))
