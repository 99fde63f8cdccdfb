"""Folders whose safetensors hold blocks of GGML's formats, as `oneir quantize` writes them.

`quantization_config` of config.json is `{"quant_method": "ggml", "format": "Q4_0"}`. A matrix of uint8 holds blocks,
row by row; other tensors are as they are everywhere. Blocks lie along the sum of a product, so of a weight that the
family keeps as (inputs, outputs) they are those of the transpose, whose name ends in `.transposed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...runtime.error import ShapeMismatch, UnsupportedError
from .blocks import QuantizedTensor, block_format, dequantize
from .safetensors import Safetensors

METHOD = "ggml"
"""The name of the method in configurations."""
TRANSPOSED = ".transposed"
"""What names end in of blocks that are those of the transpose of a weight."""


class BlockWeights:
    """The weights of such a folder. Raises `UnsupportedError` for an unknown format."""

    def __init__(self, folder: Path, stored: Safetensors, quantization: Mapping):
        name = quantization.get("format")
        if not isinstance(name, str) or block_format(name).digits is None:
            raise UnsupportedError(f"{folder}: expected blocks of a format such as Q4_0 or Q8_0, found {name!r}")
        self._folder, self._stored, self._format, self._form = folder, stored, name, block_format(name)
        self._names = {name.removesuffix(TRANSPOSED): name for name in stored.names()}

    def names(self) -> list[str]:
        """The names of plain weights, in the order of the file."""
        return [*self._names]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a plain weight; `KeyError` for an unknown one."""
        shape = self._stored.shape(self._names[name])
        if not self._in_blocks(name):
            return shape
        n, k = self._shape_of_blocks(name)
        return (k, n) if self._is_transposed(name) else (n, k)

    def _shape_of_blocks(self, name: str) -> tuple[int, int]:
        shape = self._stored.shape(self._names[name])
        if shape[1] % self._form.size:
            expected = f"whole blocks of {self._form.size} bytes of {self._format}"
            raise ShapeMismatch(f"{self._folder}: expected rows of {name} to be {expected}, found {shape[1]} bytes")
        return shape[0], shape[1] // self._form.size * self._form.items

    def read(self, name: str) -> np.ndarray:
        """A plain weight: as it is stored, or float32 of what is in blocks. `KeyError` for an unknown one."""
        blocks = self.quantized(name)
        if blocks is None:
            return self._stored.read(self._names[name])
        values = dequantize(blocks.data, self._format).reshape(blocks.shape)
        return values.T if blocks.transposed else values

    def format(self, name: str) -> str:
        """GGML's name of the format that a tensor is stored in. `KeyError` for an unknown name."""
        return self._format if self._in_blocks(name) else self._stored.format(self._names[name])

    def quantized(self, name: str) -> QuantizedTensor | None:
        """The blocks of a tensor; None of a plain one. `KeyError` for an unknown name."""
        if not self._in_blocks(name):
            return None
        data = self._stored.read(self._names[name]).reshape(-1)
        return QuantizedTensor(self._format, self._shape_of_blocks(name), data, self._is_transposed(name))

    def _in_blocks(self, name: str) -> bool:
        stored = self._stored.read(self._names[name])
        return stored.dtype == np.uint8 and stored.ndim == 2

    def _is_transposed(self, name: str) -> bool:
        return self._names[name].endswith(TRANSPOSED)
