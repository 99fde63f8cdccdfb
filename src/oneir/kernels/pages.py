"""Keys and values into pages, out of them, and from one to another; and two results of attention made into one.

They are loops without a schedule, so that those of any target serve them. `pages` are those of one layer, of shape
(num_pages, 2, kv heads, page_size, head_dim). A place is `page * page_size + slot`.
"""

from __future__ import annotations

from ..ir.expr import PrimExpr
from ..relax import script_kernels as kernels
from ..script import tir as T
from ..tir.function import PrimFunc


@kernels._kv_cache_transpose_append.provide
def kv_cache_transpose_append(num_key_value_heads: int, head_dim: int, dtype: str, page_size: int = 16) -> PrimFunc:
    """Stores keys and values (rows, num_key_value_heads, head_dim) at the places (rows,) of int32; -1 is none.

    The parameters are pages, keys, values and places.
    """
    KV, D, P = (T.int64(x) for x in (num_key_value_heads, head_dim, page_size))

    @T.prim_func
    def tir_kv_cache_transpose_append(var_pages: T.handle, keys: T.handle, values: T.handle, places: T.handle):
        T.func_attr({"tir.noalias": True})
        m, num_pages = T.int64(), T.int64()
        pages = T.match_buffer(var_pages, (num_pages, 2, KV, P, D), dtype, elem_offset=T.int64())
        K = T.match_buffer(keys, (m, KV, D), dtype)
        V = T.match_buffer(values, (m, KV, D), dtype)
        place = T.match_buffer(places, (m,), "int32", elem_offset=T.int64())
        for t, h, d in T.grid(m, KV, D):
            with T.block("append"):
                vt, vh, vd = T.axis.remap("SSS", [t, h, d])
                T.reads(place[vt], K[vt, vh, vd], V[vt, vh, vd])
                T.writes(pages[place[vt] // P, 0:2, vh, place[vt] % P, vd])
                if place[vt] != -1:
                    pages[place[vt] // P, 0, vh, place[vt] % P, vd] = K[vt, vh, vd]
                    pages[place[vt] // P, 1, vh, place[vt] % P, vd] = V[vt, vh, vd]

    return tir_kv_cache_transpose_append


@kernels._kv_cache_debug_get_kv.provide
def kv_cache_debug_get_kv(num_hidden_layers: int, num_key_value_heads: int, head_dim: int, dtype: str) -> PrimFunc:
    """Copies what is at the places (n,) of int32 to keys and values (num_hidden_layers, n, heads, head_dim).

    The parameters are pages, places, keys, values and the layer that is written.
    """
    N, KV, D = (T.int64(x) for x in (num_hidden_layers, num_key_value_heads, head_dim))

    @T.prim_func
    def tir_kv_cache_debug_get_kv(
        var_pages: T.handle, places: T.handle, keys: T.handle, values: T.handle, layer_id: T.int64
    ):
        T.func_attr({"tir.noalias": True})
        n, page_size, num_pages = T.int64(), T.int64(), T.int64()
        pages = T.match_buffer(var_pages, (num_pages, 2, KV, page_size, D), dtype, elem_offset=T.int64())
        place = T.match_buffer(places, (n,), "int32", elem_offset=T.int64())
        K = T.match_buffer(keys, (N, n, KV, D), dtype)
        V = T.match_buffer(values, (N, n, KV, D), dtype)
        for i, h, d in T.grid(n, KV, D):
            with T.block("copy"):
                vi, vh, vd = T.axis.remap("SSS", [i, h, d])
                T.reads(place[vi], pages[place[vi] // page_size, 0:2, vh, place[vi] % page_size, vd])
                T.writes(K[layer_id, vi, vh, vd], V[layer_id, vi, vh, vd])
                K[layer_id, vi, vh, vd] = pages[place[vi] // page_size, 0, vh, place[vi] % page_size, vd]
                V[layer_id, vi, vh, vd] = pages[place[vi] // page_size, 1, vh, place[vi] % page_size, vd]

    return tir_kv_cache_debug_get_kv


@kernels._copy_single_page_cpu.provide
def copy_single_page_cpu(num_heads: int, page_size: int | PrimExpr, head_dim: int, dtype: str) -> PrimFunc:
    """Copies the first `copy_length` positions of a page to another. The last parameters are these two and the length.

    A `page_size` that is an expression stands for any.
    """
    KV, D = T.int64(num_heads), T.int64(head_dim)
    fixed = T.int64(page_size) if isinstance(page_size, int) else None

    @T.prim_func
    def copy_single_page(var_pages: T.handle, src_page_id: T.int64, tgt_page_id: T.int64, copy_length: T.int64):
        # Two pages of one tensor: the same page is copied to itself.
        num_pages, any_size = T.int64(), T.int64()
        P = T.meta_var(any_size if fixed is None else fixed)
        pages = T.match_buffer(var_pages, (num_pages, 2, KV, P, D), dtype, elem_offset=T.int64())
        for k, h, p, d in T.grid(T.int64(2), KV, copy_length, D):
            with T.block("copy"):
                vk, vh, vp, vd = T.axis.remap("SSSS", [k, h, p, d])
                T.reads(pages[src_page_id, vk, vh, vp, vd])
                T.writes(pages[tgt_page_id, vk, vh, vp, vd])
                pages[tgt_page_id, vk, vh, vp, vd] = pages[src_page_id, vk, vh, vp, vd]

    return copy_single_page


@kernels._compact_kv_copy_cpu.provide
def compact_kv_copy_cpu(num_heads: int, head_dim: int, dtype: str, page_size: int = 16) -> PrimFunc:
    """Moves positions: those of sequence `i`, from `copy_length_indptr[i]` on, one after the other.

    The parameters are pages, `copy_length_indptr` (batch_size + 1,), `copy_src_dst_pos` (2, moves), both int32, and the
    number of sequences.
    """
    KV, D, P = (T.int64(x) for x in (num_heads, head_dim, page_size))

    @T.prim_func
    def compact_kv_copy(var_pages: T.handle, length_indptr: T.handle, moves: T.handle, batch_size: T.int32):
        num_pages, total, sequences = T.int64(), T.int64(), T.int64()
        pages = T.match_buffer(var_pages, (num_pages, 2, KV, P, D), dtype, elem_offset=T.int64())
        start = T.match_buffer(length_indptr, (sequences,), "int32", elem_offset=T.int64())
        move = T.match_buffer(moves, (2, total), "int32", elem_offset=T.int64())
        for b, k, h, d in T.grid(T.Cast("int64", batch_size), T.int64(2), KV, D):
            with T.block("compact"):
                vb, vk, vh, vd = T.axis.remap("SSSS", [b, k, h, d])
                T.reads(start[vb : vb + 2], move[0:2, 0:total], pages[0:num_pages, vk, vh, 0:P, vd])
                T.writes(pages[0:num_pages, vk, vh, 0:P, vd])
                for i in range(start[vb + 1] - start[vb]):
                    pages[move[1, start[vb] + i] // P, vk, vh, move[1, start[vb] + i] % P, vd] = pages[
                        move[0, start[vb] + i] // P, vk, vh, move[0, start[vb] + i] % P, vd
                    ]

    return compact_kv_copy


@kernels._merge_state_inplace_cpu.provide
def merge_state_inplace_cpu(v_dtype: str) -> PrimFunc:
    """Attention to two sets of positions becomes that to both: the first result (N, H, D) and its `lse` (N, H) get it.

    The parameters are a result, its `lse` in float32, and the other two. `lse` is to the base 2.
    """

    @T.prim_func
    def merge_state_inplace(v: T.handle, s: T.handle, v_other: T.handle, s_other: T.handle):
        T.func_attr({"tir.noalias": True})
        N, H, D = T.int64(), T.int64(), T.int64()
        V = T.match_buffer(v, (N, H, D), v_dtype)
        S = T.match_buffer(s, (N, H), "float32")
        other = T.match_buffer(v_other, (N, H, D), v_dtype)
        S_other = T.match_buffer(s_other, (N, H), "float32")
        for n, h in T.grid(N, H):
            with T.block("merge"):
                vn, vh = T.axis.remap("SS", [n, h])
                T.reads(V[vn, vh, 0:D], S[vn, vh], other[vn, vh, 0:D], S_other[vn, vh])
                T.writes(V[vn, vh, 0:D], S[vn, vh])
                both: T.float32 = T.max(S[vn, vh], S_other[vn, vh]) + T.log2(
                    T.float32(1) + T.exp2(-T.abs(S[vn, vh] - S_other[vn, vh]))
                )
                for d in range(D):
                    V[vn, vh, d] = T.Cast(
                        v_dtype,
                        T.Cast("float32", V[vn, vh, d]) * T.exp2(S[vn, vh] - both)
                        + T.Cast("float32", other[vn, vh, d]) * T.exp2(S_other[vn, vh] - both),
                    )
                S[vn, vh] = both

    return merge_state_inplace
