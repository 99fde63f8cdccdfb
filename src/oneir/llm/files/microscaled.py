"""Weights in MXFP4, as gpt-oss has them for experts: floats of 4 bits, of which 32 share a power of two.

`NAME_blocks` (experts, n, k // 32, 16) uint8 has two numbers a byte, the low half first, and `NAME_scales`
(experts, n, k // 32) uint8 the exponents plus 127. They are read as `NAME` (experts, k, n) float32, or as blocks that
have the order of GGML's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...runtime.error import ShapeMismatch
from .blocks import QuantizedTensor
from .safetensors import Safetensors

_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_BLOCKS, _SCALES = "_blocks", "_scales"


class MicroscaledWeights:
    """The weights of such a folder. Raises `ShapeMismatch` for blocks and scales that do not fit together."""

    def __init__(self, folder: Path, stored: Safetensors):
        self._stored = stored
        present = set(stored.names())
        blocks = [name.removesuffix(_BLOCKS) for name in present if name.endswith(_BLOCKS)]
        self._packed = {name for name in blocks if name + _SCALES in present}
        for name in self._packed:
            blocks, scales = stored.read(name + _BLOCKS), stored.read(name + _SCALES)
            if blocks.dtype != np.uint8 or scales.dtype != np.uint8 or blocks.shape != (*scales.shape[:3], 16):
                expected = f"uint8 {name}{_BLOCKS} (experts, n, groups, 16) and {_SCALES} (experts, n, groups)"
                raise ShapeMismatch(f"{folder}: expected {expected}, found {blocks.shape} and {scales.shape}")

    def names(self) -> list[str]:
        """The names of plain weights, in the order of the files."""
        names = []
        for name in self._stored.names():
            plain = name.removesuffix(_BLOCKS).removesuffix(_SCALES)
            if plain not in self._packed:
                names.append(name)
            elif name.endswith(_BLOCKS):
                names.append(plain)
        return names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a plain weight; `KeyError` for an unknown one."""
        if name not in self._packed:
            return self._stored.shape(name)
        experts, n, groups, _ = self._stored.shape(name + _BLOCKS)
        return experts, groups * 32, n

    def read(self, name: str) -> np.ndarray:
        """A plain weight: as it is stored, or float32 of MXFP4. `KeyError` for an unknown one."""
        if name not in self._packed:
            return self._stored.read(name)
        blocks, scales = self._stored.read(name + _BLOCKS), self._stored.read(name + _SCALES)
        values = _VALUES[np.stack([blocks & 15, blocks >> 4], -1)].reshape(*scales.shape, 32)
        values = np.ldexp(values, scales.astype(np.int32)[..., None] - 127)
        return values.reshape(*values.shape[:2], -1).swapaxes(1, 2)

    def format(self, name: str) -> str:
        """GGML's name of the format that a tensor is stored in. `KeyError` for an unknown name."""
        return "MXFP4" if name in self._packed else self._stored.format(name)

    def quantized(self, name: str) -> QuantizedTensor | None:
        """The blocks of a weight (experts * n, k), whose bytes have numbers that are 16 apart; None of a plain one.

        Raises `KeyError` for an unknown name.
        """
        shape = self.shape(name)
        if name not in self._packed:
            return None
        blocks, scales = self._stored.read(name + _BLOCKS), self._stored.read(name + _SCALES)
        halves = np.stack([blocks & 15, blocks >> 4], -1).reshape(*scales.shape, 2, 16)
        data = np.concatenate([scales[..., None], halves[..., 0, :] | halves[..., 1, :] << 4], -1)
        return QuantizedTensor("MXFP4", (shape[0] * shape[2], shape[1]), data.reshape(-1))
