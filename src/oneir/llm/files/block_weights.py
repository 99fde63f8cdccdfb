"""Folders whose safetensors hold blocks of GGML's formats, as `oneir quantize` writes them.

`quantization_config` of config.json is `{"quant_method": "ggml", "format": "Q4_0"}`. A matrix of uint8 holds blocks,
row by row; other tensors are as they are everywhere.
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


class BlockWeights:
    """The weights of such a folder. Raises `UnsupportedError` for an unknown format."""

    def __init__(self, folder: Path, stored: Safetensors, quantization: Mapping):
        name = quantization.get("format")
        if not isinstance(name, str) or block_format(name).digits is None:
            raise UnsupportedError(f"{folder}: expected blocks of a format such as Q4_0 or Q8_0, found {name!r}")
        self._folder, self._stored, self._format, self._form = folder, stored, name, block_format(name)

    def names(self) -> list[str]:
        """The names of plain weights, in the order of the file."""
        return self._stored.names()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a plain weight; `KeyError` for an unknown one."""
        shape = self._stored.shape(name)
        if not self._in_blocks(name):
            return shape
        if shape[1] % self._form.size:
            expected = f"whole blocks of {self._form.size} bytes of {self._format}"
            raise ShapeMismatch(f"{self._folder}: expected rows of {name} to be {expected}, found {shape[1]} bytes")
        return shape[0], shape[1] // self._form.size * self._form.items

    def read(self, name: str) -> np.ndarray:
        """A plain weight: as it is stored, or float32 of what is in blocks. `KeyError` for an unknown one."""
        if not self._in_blocks(name):
            return self._stored.read(name)
        return dequantize(self._stored.read(name).reshape(-1), self._format).reshape(self.shape(name))

    def format(self, name: str) -> str:
        """GGML's name of the format that a tensor is stored in. `KeyError` for an unknown name."""
        return self._format if self._in_blocks(name) else self._stored.format(name)

    def quantized(self, name: str) -> QuantizedTensor | None:
        """The blocks of a tensor; None of a plain one. `KeyError` for an unknown name."""
        if not self._in_blocks(name):
            return None
        return QuantizedTensor(self._format, self.shape(name), self._stored.read(name).reshape(-1))

    def _in_blocks(self, name: str) -> bool:
        stored = self._stored.read(name)
        return stored.dtype == np.uint8 and stored.ndim == 2
