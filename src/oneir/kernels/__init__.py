"""Kernels that graphs call where no operator says what is computed, written in TVMScript: attention to pages and trees.

Importing the package provides those that `relax.frontend.nn.llm` publishes.
"""

from . import paged_attention, pages, tree_attention
