"""Drafts without a model: what followed the last few tokens where they stood before (prompt lookup, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LENGTH, MIN_LENGTH = 4, 2
"""How many tokens must repeat: the longest match is looked for first."""


class PromptLookup:
    """Remembers where each few tokens of one sequence ended last."""

    def __init__(self) -> None:
        self._ends: list[dict[tuple[int, ...], int]] = [{} for _ in range(MAX_LENGTH + 1)]
        self._read = 0

    def draft(self, tokens: Sequence[int], count: int) -> list[int]:
        """Up to `count` tokens that may follow; `tokens` has grown at its end only since the last call."""
        # The last token is read when another one stands behind it, so a match has something that followed.
        for end in range(self._read + 1, len(tokens)):
            for length in range(MIN_LENGTH, min(MAX_LENGTH, end) + 1):
                self._ends[length][tuple(tokens[end - length : end])] = end
        self._read = max(self._read, len(tokens) - 1)
        for length in range(min(MAX_LENGTH, len(tokens)), MIN_LENGTH - 1, -1):
            end = self._ends[length].get(tuple(tokens[len(tokens) - length :]))
            if end is not None:
                return list(tokens[end : end + count])
        return []
