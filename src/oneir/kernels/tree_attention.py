"""Attention of tokens that form a tree: several continuations of a sequence, of which one will be kept.

A token sees all of its sequence before the tree, and in the tree itself and the tokens that it descends from. The tree
is given by `order`, of shape (nodes, 2): of each node, in a walk that goes down first, its own place and the one behind
its last descendant. The nodes of sequence `i` are those from `order_indptr[i]` to `order_indptr[i + 1]`; they are the
last tokens of the sequence, and the rows of queries are the last of those.
"""

from __future__ import annotations

from typing import Any

from ..relax import script_kernels as kernels
from ..script import tir as T
from ..tir.buffer import Buffer
from ..tir.function import PrimFunc
from .paged_attention import Lengths, Rotation, attend_of, find_sequence, indices


def _descends(order: Buffer, node: Any, from_node: Any) -> Any:
    """Whether a node is another one, or one of those that it descends from."""
    return T.And(order[node, 0] >= order[from_node, 0], order[node, 0] < order[from_node, 1])


@kernels.tree_attn_cpu.provide
def tree_attn_cpu(h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: dict[str, Any]) -> PrimFunc:
    """Attention of rows (rows, h_q, d) to keys and values (rows, h_kv, d) of the same tokens: those of the trees alone.

    The parameters are queries, `q_indptr` (B + 1,), keys, values, `kv_indptr` (B + 1,), `q_rope_position` (rows,),
    `order_indptr` (B + 1,), `order`, all int32, the result and `lse`, and the numbers `rotary_mode`, `rope_scale`,
    `rope_theta` and `sm_scale`.
    """
    H, KV, D = (T.int64(x) for x in (h_q, h_kv, d))
    attend = attend_of(h_kv, h_q, d, d, dtype)

    @T.prim_func
    def batch_tree_attn(
        queries: T.handle,
        q_indptr: T.handle,
        keys: T.handle,
        values: T.handle,
        kv_indptr: T.handle,
        q_rope_position: T.handle,
        order_indptr: T.handle,
        node_order: T.handle,
        result: T.handle,
        log_sums: T.handle,
        rotary_mode: T.int32,
        rope_scale: T.float32,
        rope_theta: T.float32,
        sm_scale: T.float32,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": "batch_tree_attn_cpu"})
        m, n, ends, nodes = T.int64(), T.int64(), T.int64(), T.int64()
        Q = T.match_buffer(queries, (m, H, D), dtype)
        row_start = indices(q_indptr, ends)
        K = T.match_buffer(keys, (n, KV, D), dtype)
        V = T.match_buffer(values, (n, KV, D), dtype)
        start = indices(kv_indptr, ends)
        position = indices(q_rope_position, m)
        node_start = indices(order_indptr, ends)
        order = indices(node_order, nodes, 2)
        out = T.match_buffer(result, (m, H, D), dtype)
        lse = T.match_buffer(log_sums, (m, H), "float32")
        rotation = T.meta_var(Rotation(rope_scaling, d, rotary_mode, rope_scale, rope_theta))
        for th in T.parallel(m * KV):
            t: T.int64 = th // KV
            h: T.int64 = th % KV
            of = T.decl_buffer((1,), "int64", scope="local")
            find_sequence(of, row_start, ends - 1, t)
            if of[0] < ends - 1:
                b: T.int64 = of[0]
                first: T.int64 = T.Cast("int64", start[b])
                held: T.int64 = T.Cast("int64", start[b + 1]) - first
                last_node: T.int64 = T.Cast("int64", node_start[b + 1])
                tree: T.int64 = held - (last_node - T.Cast("int64", node_start[b]))
                own: T.int64 = last_node - (T.Cast("int64", row_start[b + 1]) - t)
                attend(
                    t,
                    h,
                    held,
                    Q,
                    out,
                    lse,
                    position[t],
                    lambda i: first + i,
                    lambda i: T.if_then_else(i < tree, True, _descends(order, own, last_node - (held - i))),
                    lambda at, d: K[at, h, d],
                    lambda at, d: V[at, h, d],
                    lambda i: position[first + i],
                    rotation,
                    sm_scale,
                )

    return batch_tree_attn


@kernels.tree_attn_with_paged_kv_cache_cpu.provide
def tree_attn_with_paged_kv_cache_cpu(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: dict[str, Any], page_size: int = 16
) -> PrimFunc:
    """Attention of rows (rows, h_q, d) to all of their sequences, which lie in pages, with trees at their ends.

    The parameters are those of `_attention_prefill_cpu` without a window, up to `lse`; then `rotary_mode`,
    `rope_scale`, `rope_theta` and `sm_scale`, and the last ones are `order_indptr` and `order`.
    """
    H, KV, D, P = (T.int64(x) for x in (h_q, h_kv, d, page_size))
    attend = attend_of(h_kv, h_q, d, d, dtype)

    @T.prim_func
    def tree_attn_paged_kv(
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
        rotary_mode: T.int32,
        rope_scale: T.float32,
        rope_theta: T.float32,
        sm_scale: T.float32,
        order_indptr: T.handle,
        node_order: T.handle,
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": "tree_attn_paged_kv_cpu"})
        m, B, n, num_pages, nodes = T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
        Q = T.match_buffer(queries, (m, H, D), dtype)
        row_start = indices(q_indptr, B + 1)
        KP = T.match_buffer(pages, (num_pages, 2, KV, P, D), dtype, elem_offset=T.int64())
        start = indices(page_indptr, B + 1)
        page_of = indices(page_values, n)
        info = indices(length_info, B)
        key_offset = indices(k_rope_pos_offset, B)
        position = indices(q_rope_position, m)
        out = T.match_buffer(result, (m, H, D), dtype)
        lse = T.match_buffer(log_sums, (m, H), "float32")
        node_start = indices(order_indptr, B + 1)
        order = indices(node_order, nodes, 2)
        rotation = T.meta_var(Rotation(rope_scaling, d, rotary_mode, rope_scale, rope_theta))
        lengths = T.meta_var(Lengths(info, False, page_size))
        for th in T.parallel(m * KV):
            t: T.int64 = th // KV
            h: T.int64 = th % KV
            of = T.decl_buffer((1,), "int64", scope="local")
            find_sequence(of, row_start, B, t)
            if of[0] < B:
                b: T.int64 = of[0]
                first: T.int64 = T.Cast("int64", start[b])
                held: T.int64 = lengths.count(T.Cast("int64", start[b + 1]) - first, b)
                last_node: T.int64 = T.Cast("int64", node_start[b + 1])
                tree: T.int64 = held - (last_node - T.Cast("int64", node_start[b]))
                own: T.int64 = last_node - (T.Cast("int64", row_start[b + 1]) - t)
                attend(
                    t,
                    h,
                    held,
                    Q,
                    out,
                    lse,
                    position[t],
                    lambda i: page_of[first + i // P] * P + i % P,
                    lambda i: T.if_then_else(i < tree, True, _descends(order, own, last_node - (held - i))),
                    lambda at, d: KP[at // P, 0, h, at % P, d],
                    lambda at, d: KP[at // P, 1, h, at % P, d],
                    lambda i: key_offset[b] + i,
                    rotation,
                    sm_scale,
                )

    return tree_attn_paged_kv
