"""What language models are made of: rotary position embeddings, and attention to keys and values in pages."""

from . import position_embedding, tree_attn
