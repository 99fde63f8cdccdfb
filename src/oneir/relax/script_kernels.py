"""Kernels written in TVMScript, whose package is above this one: each a function that gives a TensorIR function.

`oneir.kernels` says what they do. The names of those for the cache in pages are published.
"""

from __future__ import annotations

from ..runtime.hook import Hook
from ..tir.function import PrimFunc

Kernel = Hook[..., PrimFunc]

bernoulli: Kernel = Hook("bernoulli", "oneir.kernels.mersenne_twister")
_attention_decode_cpu: Kernel = Hook("_attention_decode_cpu", "oneir.kernels.paged_attention")
_attention_prefill_cpu: Kernel = Hook("_attention_prefill_cpu", "oneir.kernels.paged_attention")
_attention_prefill_ragged_cpu: Kernel = Hook("_attention_prefill_ragged_cpu", "oneir.kernels.paged_attention")
_kv_cache_transpose_append: Kernel = Hook("_kv_cache_transpose_append", "oneir.kernels.pages")
_kv_cache_debug_get_kv: Kernel = Hook("_kv_cache_debug_get_kv", "oneir.kernels.pages")
_copy_single_page_cpu: Kernel = Hook("_copy_single_page_cpu", "oneir.kernels.pages")
_compact_kv_copy_cpu: Kernel = Hook("_compact_kv_copy_cpu", "oneir.kernels.pages")
_merge_state_inplace_cpu: Kernel = Hook("_merge_state_inplace_cpu", "oneir.kernels.pages")
tree_attn_cpu: Kernel = Hook("tree_attn_cpu", "oneir.kernels.tree_attention")
tree_attn_with_paged_kv_cache_cpu: Kernel = Hook("tree_attn_with_paged_kv_cache_cpu", "oneir.kernels.tree_attention")
