"""Kernels that graphs call where no operator says what is computed, written in TVMScript: attention to pages and trees,
and random numbers.

Importing the package provides those that `relax.frontend.nn.llm` publishes.
"""

from . import mersenne_twister, paged_attention, pages, tree_attention
