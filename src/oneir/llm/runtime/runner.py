"""Steps of a model on its cache in pages: what the engine asks for, by one native call each."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import relax
from ...runtime.device import Device, cpu
from ...runtime.dtype import numpy_dtype
from ...runtime.profiling import Report
from ...runtime.tensor import Tensor, empty, from_dlpack
from ..engine.runner import Piece
from ..kernels.attention import PAGE_SIZE
from ..models.decoder import DecoderConfig


class ModelRunner:
    """A compiled model and its pages, on a device.

    `num_pages` pages of keys and values take `2 * layers * kv_heads * head_dim` elements for each of their positions,
    and pages of int8 as many float32 as heads besides; the system gives memory for those that are used. `adapters` says
    whether the program has some.
    """

    def __init__(
        self,
        program: Any,
        config: DecoderConfig,
        num_pages: int,
        dtype: str,
        max_tokens: int,
        adapters: bool = False,
        device: Device | None = None,
    ):
        device = device or cpu()
        self.page_size, self.num_pages = PAGE_SIZE, num_pages
        self.vocab_size, self.max_tokens, self._adapters = config.vocab_size, max_tokens, adapters
        self.original_context, self.renews = config.original_context, config.renews
        self._machine = relax.VirtualMachine(program, device)
        names = [name for name in ("step", "decode") if program.implements_function(name)]
        self._functions = {name: self._machine[name] for name in names}
        pages = (config.layers, num_pages, config.kv_heads)
        kinds = [((*pages, config.head_dim, PAGE_SIZE), dtype), ((*pages, PAGE_SIZE, config.head_dim), dtype)]
        if dtype == "int8":
            kinds.append(((config.layers, num_pages, 2, config.kv_heads, PAGE_SIZE), "float32"))
        self._upload = None if device == cpu() else _Upload(device)
        # On processors NumPy copies a page in all layers at once, which takes a fiftieth of a copy for each layer.
        self._arrays = [reserved(*kind) for kind in kinds] if self._upload is None else []
        self._pages = [from_dlpack(a) for a in self._arrays] or [empty(*kind, device) for kind in kinds]

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
        arrays = [np.array(values, np.int32) for values in (*indices, *adapters)]
        given = arrays if self._upload is None else self._upload(arrays)
        name = "decode" if len(tokens) == 1 and "decode" in self._functions else "step"
        return name, [*given[: len(indices)], *self._pages, *given[len(indices) :]]

    def copy_page(self, source: int, target: int) -> None:
        """Copies the keys and values of a page, in all layers."""
        for array in self._arrays:
            array[:, target] = array[:, source]
        for pages in self._pages if self._upload is not None else ():
            layers, count, *shape = pages.shape
            size = pages.nbytes // (layers * count)
            for first in range(0, layers * count, count):
                old, new = (pages._create_view(shape, pages.dtype, (first + i) * size) for i in (source, target))
                old.copyto(new)


def reserved(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Zeros of this shape, of which only what was written takes memory.

    NumPy asks for huge pages for large arrays, and keys and values of one position are far apart: a few megabytes
    for each layer.
    """
    kind = numpy_dtype(dtype)
    size = max(math.prod(shape) * kind.itemsize, 1)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind, math.prod(shape)).reshape(shape)


class _Upload:
    """Brings arrays of int32 to a device by one copy. They stay until the next ones come."""

    def __init__(self, device: Device):
        self._device, self._memory = device, empty((1 << 12,), "int32", device)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[Tensor]:
        joined = np.concatenate(arrays)
        if joined.nbytes > self._memory.nbytes:
            self._memory = empty((2 * joined.size,), "int32", self._device)
        self._memory._create_view(joined.shape).copyfrom(joined)
        starts = np.cumsum([0, *(array.nbytes for array in arrays)])
        return [
            self._memory._create_view(array.shape, "int32", int(start))
            for array, start in zip(arrays, starts, strict=False)
        ]
