"""The functions by which programs and servers use a cache in pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..error import TypeMismatch, UnsupportedError
from ..registry import register_func
from ..tensor import Tensor
from .kv_state import expect
from .paged_kv_cache import CacheConfig, Kernels, PagedKVCache

MLA = 1
Kernel = Callable[..., Any]


def _single(value: Any, name: str) -> Kernel:
    """The kernel of a back end: `["tir", kernel]`."""
    if isinstance(value, (tuple, list)):
        if not value or value[0] not in ("tir", "tirx"):
            raise UnsupportedError(
                f"paged_attention_kv_cache_create: expected {name} as a kernel of the back end tir, found {value!r:.80}"
            )
        value = value[1]
    if not callable(value):
        raise TypeMismatch(f"paged_attention_kv_cache_create: expected {name} as a kernel, found {value!r:.80}")
    return value


@register_func("vm.builtin.paged_attention_kv_cache_create")
def create(
    limits: Sequence[int],
    layer_partition: Sequence[int],
    num_qo_heads: int,
    num_kv_heads: int,
    qk_head_dim: int,
    v_head_dim: int,
    attn_kinds: Sequence[int],
    enable_kv_transfer: bool,
    rope_mode: int,
    rope_scale: float,
    rope_theta: float,
    rope_ext_factors: Any,
    init: Tensor,
    f_transpose_append: Any,
    f_transpose_append_mla: Any,
    f_prefill_ragged: Any,
    f_prefill: Any,
    f_decode: Any,
    f_prefill_sliding: Any,
    f_decode_sliding: Any,
    f_tree_paged: Any,
    f_tree: Any,
    f_mla_prefill: Any,
    f_merge: Sequence[Any],
    f_split_rotary: Any,
    f_copy_page: Any,
    f_debug: Any,
    f_compact: Any,
) -> PagedKVCache:
    """A cache, by what it is for and its kernels, in the published order.

    `limits` are the most sequences, tokens in all, and tokens of a step, the size of pages, and whether there are
    windows. Kernels of attention are `["tir", kernel]`. Raises `UnsupportedError` for what there is none of: several
    parts of layers, transfers to other machines, compressed keys, and kernels of other libraries.
    """
    if enable_kv_transfer:
        raise UnsupportedError("paged_attention_kv_cache_create: keys and values are not transferred to other machines")
    if MLA in attn_kinds or qk_head_dim != v_head_dim:
        raise UnsupportedError("paged_attention_kv_cache_create: there are no compressed keys (attention of kind MLA)")
    if len(layer_partition) != 2 or layer_partition[1] - layer_partition[0] != len(attn_kinds):
        raise UnsupportedError(
            "paged_attention_kv_cache_create: expected all layers in one part, and a kind of attention for each, found "
            f"the parts {list(layer_partition)} and {len(attn_kinds)} kinds"
        )
    kernels = Kernels(
        append=_single(f_transpose_append, "f_transpose_append"),
        ragged=_single(f_prefill_ragged, "f_prefill_ragged"),
        prefill=(_single(f_prefill, "f_prefill"), _single(f_prefill_sliding, "f_prefill_sliding")),
        decode=(_single(f_decode, "f_decode"), _single(f_decode_sliding, "f_decode_sliding")),
        tree=_single(f_tree_paged, "f_tree_paged"),
        merge=_single(f_merge[0], "f_merge"),
        split_rotary=_single(f_split_rotary, "f_split_rotary"),
        copy_page=_single(f_copy_page, "f_copy_page"),
        debug=_single(f_debug, "f_debug"),
        compact=_single(f_compact, "f_compact"),
    )
    sequences, capacity, chunk, page_size, window = limits
    config = CacheConfig(
        sequences,
        capacity,
        chunk,
        page_size,
        bool(window),
        tuple(attn_kinds),
        layer_partition[0],
        num_qo_heads,
        num_kv_heads,
        qk_head_dim,
        rope_mode,
        rope_scale,
        rope_theta,
    )
    return PagedKVCache(config, kernels, rope_ext_factors if isinstance(rope_ext_factors, Tensor) else None, init)


def _cache(value: object, name: str) -> PagedKVCache:
    return expect(value, PagedKVCache, f"attention_kv_cache_{name}")


@register_func("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")
def enable_sliding_window_for_seq(cache: object, sequence: int, window: int, sinks: int) -> None:
    """Keeps only the first `sinks` and the last tokens of a sequence, `window` in all."""
    _cache(cache, "enable_sliding_window_for_seq").enable_window(sequence, window, sinks)


@register_func("vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes")
def commit_accepted_token_tree_nodes(cache: object, sequences: Sequence[int], leaves: Sequence[int]) -> None:
    """Keeps of the tree at the end of each sequence the path to a leaf."""
    _cache(cache, "commit_accepted_token_tree_nodes").commit(sequences, leaves)


@register_func("vm.builtin.attention_kv_cache_empty")
def is_empty(cache: object) -> bool:
    """Whether there are no sequences."""
    return _cache(cache, "empty").is_empty


@register_func("vm.builtin.attention_kv_cache_get_num_available_pages")
def get_num_available_pages(cache: object) -> int:
    """How many pages no sequence has."""
    return _cache(cache, "get_num_available_pages").available_pages


@register_func("vm.builtin.attention_kv_cache_get_total_sequence_length")
def get_total_sequence_length(cache: object) -> int:
    """How many tokens all sequences have."""
    return _cache(cache, "get_total_sequence_length").total_length


@register_func("vm.builtin.attention_kv_cache_get_query_positions")
def get_query_positions(cache: object) -> Tensor:
    """The positions of the step's tokens in their sequences, as int32."""
    return _cache(cache, "get_query_positions").query_positions()


@register_func("vm.builtin.attention_kv_cache_debug_get_kv")
def debug_get_kv(cache: object, sequence: int, start: int, end: int, keys: Tensor, values: Tensor) -> None:
    """Copies keys and values of a sequence to tensors of shape (layers, end - start, kv_heads, head_dim)."""
    _cache(cache, "debug_get_kv").read(sequence, start, end, keys, values)


@register_func("vm.builtin.attention_kv_cache_attention_with_fused_qkv")
def attention_with_fused_qkv(cache: object, layer: int, sm_scale: float, qkv: Tensor, out: Tensor) -> None:
    """Stores keys and values of the step's tokens, and writes the attention of their queries to `out`."""
    _cache(cache, "attention_with_fused_qkv").attend(layer, sm_scale, qkv, out)


@register_func("vm.builtin.attention_kv_cache_self_attention")
def self_attention(
    cache: object, layer: int, sm_scale: float, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
) -> None:
    """The attention of the step's tokens to each other."""
    _cache(cache, "self_attention").attend_to_new(layer, sm_scale, q, k, v, out, lse)


@register_func("vm.builtin.attention_kv_cache_cross_attention")
def cross_attention(cache: object, layer: int, sm_scale: float, q: Tensor, out: Tensor, lse: Tensor) -> None:
    """The attention of the step's tokens to those that were in the cache before."""
    _cache(cache, "cross_attention").attend_to_old(layer, sm_scale, q, out, lse)


@register_func("vm.builtin.attention_kv_cache_merge_attn_output_inplace")
def merge_attn_output_inplace(
    cache: object, out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor
) -> tuple[Tensor, Tensor]:
    """Makes two results of attention one; the first has it."""
    return _cache(cache, "merge_attn_output_inplace").merge(out, lse, other, other_lse)


@register_func("vm.builtin.attention_kv_cache_append_mla_kv")
def append_mla_kv(cache: object, layer: int, kv: Tensor) -> None:
    """Raises `UnsupportedError`: there are no caches of compressed keys."""
    raise UnsupportedError("attention_kv_cache_append_mla_kv: there are no compressed keys (attention of kind MLA)")
