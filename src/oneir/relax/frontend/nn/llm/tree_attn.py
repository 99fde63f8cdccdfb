"""Attention of tokens that form a tree: several continuations of a sequence, of which one will be kept."""

from ....script_kernels import tree_attn_cpu, tree_attn_with_paged_kv_cache_cpu

__all__ = ["tree_attn_cpu", "tree_attn_with_paged_kv_cache_cpu"]
