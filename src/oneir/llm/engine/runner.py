"""What the engine asks of a model: to compute some tokens of some sequences, in one step, with caches in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True)
class Piece:
    """What one step computes of one sequence."""

    token_ids: Sequence[int]
    """The new tokens, at least one."""
    start: int
    """How many tokens of the sequence the cache has already."""
    pages: Sequence[int]
    """The numbers of the sequence's pages, enough for `start + len(token_ids)` tokens: token i lies in page
    `pages[i // page_size]`. -1 stands for a page whose tokens the sliding window has left."""
    all_logits: bool = False
    """Logits after each new token, to verify drafts for instance; else only after the last one."""
    adapter: int = 0
    """The number of the adapter that its tokens go through, from 1; 0 is none."""
    length: int | None = None
    """How many tokens the sequence has, those of later steps included; None: no more than by now."""


class Runner(Protocol):
    """A model with its paged cache. Only one thread calls it."""

    page_size: int
    """Tokens in a page."""
    num_pages: int
    vocab_size: int
    max_tokens: int
    """The most new tokens in one step, of all pieces together."""
    original_context: int | None
    """In sequences of more tokens keys are others, so these share no pages with shorter ones; None: they never are."""
    renews: bool
    """Whether a sequence that grows beyond the original context is computed anew."""

    def run(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
        """Computes the new tokens and keeps them in the cache.

        Returns the logits of each piece, float32 (n, vocab_size), where n is 1, or all its tokens with `all_logits`.
        Pieces may share pages, but none writes to a page that another one of the step reads.
        """
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Copies the content of a page, in all layers."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """What a runner has whose model gives a vector for a text."""

    def embed(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """A vector of each sequence of tokens, float32 (size,)."""
        ...
