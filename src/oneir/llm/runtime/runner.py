"""Steps of a model on its cache in pages: what the engine asks for, by one native call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import relax
from ...runtime.device import cpu
from ...runtime.tensor import Tensor, from_dlpack
from ...runtime.vm.profile import Report
from ..engine.runner import Piece
from ..kernels.attention import PAGE_SIZE
from ..models.decoder import DecoderConfig


class ModelRunner:
    """A compiled model and its pages.

    `num_pages` pages of keys and values take `2 * layers * kv_heads * head_dim` elements for each of their positions,
    and pages of int8 as many float32 as heads besides; the system gives memory for those that are used. `adapters` says
    whether the program has some.
    """

    def __init__(
        self, program: Any, config: DecoderConfig, num_pages: int, dtype: str, max_tokens: int, adapters: bool = False
    ):
        self.page_size, self.num_pages = PAGE_SIZE, num_pages
        self.vocab_size, self.max_tokens, self._adapters = config.vocab_size, max_tokens, adapters
        self.original_context, self.renews = config.original_context, config.renews
        self._machine = relax.VirtualMachine(program, cpu())
        names = [name for name in ("step", "decode") if program.implements_function(name)]
        self._functions = {name: self._machine[name] for name in names}
        pages = (config.layers, num_pages, config.kv_heads)
        self._arrays = [
            np.zeros((*pages, config.head_dim, PAGE_SIZE), dtype),
            np.zeros((*pages, PAGE_SIZE, config.head_dim), dtype),
        ]
        if dtype == "int8":
            self._arrays.append(np.zeros((config.layers, num_pages, 2, config.kv_heads, PAGE_SIZE), np.float32))
        self._pages = [from_dlpack(array) for array in self._arrays]

    def run(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
        """Computes the new tokens of some sequences, and keeps them in the pages; see `engine.runner.Runner`."""
        name, arguments = self._call(pieces)
        logits = self._functions[name](*arguments).numpy()
        counts = [len(piece.token_ids) if piece.all_logits else 1 for piece in pieces]
        return np.split(logits, np.cumsum(counts)[:-1])

    def profile(self, pieces: Sequence[Piece]) -> Report:
        """Computes what `run` does kernel by kernel, and reports how long each took."""
        name, arguments = self._call(pieces)
        return self._machine.profile(name, *arguments)

    def _call(self, pieces: Sequence[Piece]) -> tuple[str, list[Tensor | np.ndarray]]:
        """The function that computes the new tokens of some sequences, and its arguments."""
        tokens: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        starts: list[int] = []
        table: list[int] = []
        lengths: list[int] = []
        wanted: list[int] = []
        for number, piece in enumerate(pieces):
            count = len(piece.token_ids)
            first = len(tokens)
            tokens += piece.token_ids
            positions += range(piece.start, piece.start + count)
            sequences += [number] * count
            starts.append(len(table))
            table += piece.pages
            lengths.append(piece.length or piece.start + count)
            wanted += range(first if piece.all_logits else first + count - 1, first + count)
        indices = tokens, positions, sequences, starts, table, lengths, wanted
        adapters = [[piece.adapter for piece in pieces]] if self._adapters else []
        given, last = ([np.array(v, np.int32) for v in part] for part in (indices, adapters))
        name = "decode" if len(tokens) == 1 and "decode" in self._functions else "step"
        return name, [*given, *self._pages, *last]

    def copy_page(self, source: int, target: int) -> None:
        """Copies the keys and values of a page, in all layers."""
        for array in self._arrays:
            array[:, target] = array[:, source]
