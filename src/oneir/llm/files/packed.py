"""Weights of AWQ and GPTQ checkpoints: integers of 2, 4 or 8 bits in words of 32, with scales and zero points by group.

    y = x @ W, W[k, n] = (q[k, n] - zero[group(k), n]) * scale[group(k), n]

so the weight of a linear layer, which multiplies from the other side, is W transposed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.error import InvalidValue, UnsupportedError
from .safetensors import Safetensors

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""AWQ's column c of eight stands in nibble `_AWQ_ORDER[c]` of a word."""
_PARTS = ("qweight", "qzeros", "scales", "g_idx")


class PackedWeights:
    """The weights of a folder whose `quantization_config` says AWQ or GPTQ; `layer.qweight` is read as `layer.weight`.

    Raises `UnsupportedError` for a method, or a kind of it, that is not read, `InvalidValue` for parts of a layer that
    do not fit together.
    """

    def __init__(self, stored: Safetensors, quantization: Mapping):
        method, bits = quantization.get("quant_method"), quantization.get("bits", quantization.get("w_bit"))
        version = quantization.get("version", "gemm")
        self.awq = method == "awq"
        if method not in ("awq", "gptq"):
            raise UnsupportedError(
                f"weights quantized by {method!r} are not read, only by 'awq', 'gptq', 'mxfp4' or 'ggml'"
            )
        if self.awq and (bits != 4 or not isinstance(version, str) or version.lower() != "gemm"):
            raise UnsupportedError(f"AWQ is read with 4 bits and the version 'gemm', found {bits!r} and {version!r}")
        if not self.awq and bits not in (2, 4, 8):
            raise UnsupportedError(f"GPTQ is read with 2, 4 or 8 bits, found {bits!r}")
        self.bits: int = bits
        # The first format of GPTQ stores zero points minus 1.
        self.zero_offset = int(not self.awq and quantization.get("checkpoint_format", "gptq") == "gptq")
        self.stored = stored
        self._layers = {name.removesuffix(".qweight") for name in stored.names() if name.endswith(".qweight")}

    def names(self) -> list[str]:
        """The names of plain weights, in the order of the files."""
        names = []
        for name in self.stored.names():
            layer, _, part = name.rpartition(".")
            if layer not in self._layers or part not in _PARTS:
                names.append(name)
            elif part == "qweight":
                names.append(f"{layer}.weight")
        return names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a plain weight; `KeyError` for an unknown one."""
        layer = name.removesuffix(".weight")
        if layer not in self._layers or layer == name:
            return self.stored.shape(name)
        rows, columns = self._part(layer, "qweight").shape
        per_word = 32 // self.bits
        return (columns * per_word, rows) if self.awq else (columns, rows * per_word)

    def read(self, name: str) -> np.ndarray:
        """A plain weight: as it is stored, or float32 `[n, k]` of what is packed. `KeyError` for an unknown one."""
        layer = name.removesuffix(".weight")
        if layer not in self._layers or layer == name:
            return self.stored.read(name)
        n, k = self.shape(name)
        scales = self._part(layer, "scales").astype(np.float32)
        words, zero_words = self._part(layer, "qweight"), self._part(layer, "qzeros")
        groups = len(scales)
        if scales.shape != (groups, n) or zero_words.shape != (groups, n * self.bits // 32) or not groups:
            raise InvalidValue(
                f"{layer}: expected scales [groups, {n}] and qzeros [groups, {n * self.bits // 32}] beside qweight "
                f"{words.shape}, found {scales.shape} and {zero_words.shape}"
            )
        zeros = self._unpack(zero_words)
        values = self._unpack(words) if self.awq else self._unpack(words.T).T
        zeros = (zeros + np.uint8(self.zero_offset)) & np.uint8((1 << self.bits) - 1)
        group = self._groups(layer, k, groups)
        result = (values.astype(np.float32) - zeros.astype(np.float32)[group]) * scales[group]
        return np.ascontiguousarray(result.T)

    def format(self, name: str) -> str:
        """The format of a tensor as `read` gives it. `KeyError` for an unknown name."""
        layer = name.removesuffix(".weight")
        return self.stored.format(name) if layer not in self._layers or layer == name else "F32"

    def quantized(self, name: str) -> None:
        """None: the blocks of these formats are not GGUF's. `KeyError` for an unknown name."""
        self.shape(name)

    def _part(self, layer: str, part: str) -> np.ndarray:
        name = f"{layer}.{part}"
        try:
            value = self.stored.read(name)
        except KeyError:
            raise InvalidValue(f"expected the tensor {name!r} beside {layer}.qweight, found none") from None
        if value.ndim != 2 or (value.dtype != np.int32) != (part == "scales"):
            raise InvalidValue(f"expected a matrix {name!r}, int32 unless of scales, found {value.dtype} {value.shape}")
        return value

    def _unpack(self, words: np.ndarray) -> np.ndarray:
        """Words `[a, b]` as their integers, uint8 `[a, b * 32 // bits]`, the lowest bits first; AWQ's in its order."""
        shifts = np.arange(0, 32, self.bits, dtype=np.uint32)
        if self.awq:
            shifts = shifts[list(_AWQ_ORDER)]
        fields = (words.view(np.uint32)[..., None] >> shifts) & np.uint32((1 << self.bits) - 1)
        return fields.astype(np.uint8).reshape(len(words), -1)

    def _groups(self, layer: str, k: int, groups: int) -> np.ndarray:
        """The group of each k: neighbours share one, unless GPTQ's `g_idx` says otherwise (`desc_act`)."""
        if not self.awq and f"{layer}.g_idx" in self.stored.names():
            group = self.stored.read(f"{layer}.g_idx")
            if group.shape != (k,) or group.dtype != np.int32 or (k and not 0 <= group.min() <= group.max() < groups):
                raise InvalidValue(
                    f"{layer}.g_idx: expected {k} int32 below {groups}, found {group.dtype} {group.shape}"
                )
            return group
        if k % groups:
            raise InvalidValue(f"{layer}: expected groups that divide {k}, found {groups} of them")
        return np.arange(k) // max(k // groups, 1)
