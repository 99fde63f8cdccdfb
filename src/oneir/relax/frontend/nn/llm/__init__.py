"""What language models need beyond modules: rotary position embeddings."""

from . import position_embedding
