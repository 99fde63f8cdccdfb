"""What language models are made of: rotary position embeddings, and attention to keys and values in pages."""

from . import position_embedding, tree_attn
from .kv_cache import PagedKVCache
from .position_embedding import llama_rope

__all__ = ["PagedKVCache", "llama_rope", "position_embedding", "tree_attn"]
