"""Low-rank adapters, as the package peft writes them: a folder with adapter_config.json and adapter_model.safetensors.

    adapter = Adapter.open("folder")
    adapter.layers["model.layers.0.self_attn.q_proj"]      # what is added to this layer's weight: up @ down

`up` (n, rank) has the factor of the adapter in it: `lora_alpha / r`, or `lora_alpha / sqrt(r)` of rsLoRA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.error import InvalidValue, ShapeMismatch, UnsupportedError
from .safetensors import Safetensors
from .source import file_in, read_json

_PREFIX = "base_model.model."
_HALVES = {".lora_A.weight": "down", ".lora_B.weight": "up"}


@dataclass(frozen=True)
class LowRank:
    """What an adapter adds to the weight (n, k) of a linear layer, in float32."""

    down: np.ndarray
    """(rank, k)"""
    up: np.ndarray
    """(n, rank)"""


@dataclass(frozen=True)
class Adapter:
    """The files of an adapter."""

    path: Path
    layers: Mapping[str, LowRank]
    """By the names of linear layers."""

    @staticmethod
    def open(path: str | Path) -> Adapter:
        """The adapter in a folder.

        Raises `InvalidValue` and `ShapeMismatch` for damaged files, `UnsupportedError` for kinds of adapters, and parts
        of them, that are not read.
        """
        path = Path(path)
        file = file_in(path, "adapter_config.json")
        if not file.is_file():
            raise InvalidValue(
                f"{path}: expected adapter_config.json and adapter_model.safetensors, as peft writes them"
            )
        config = read_json(file)
        if config.get("peft_type") != "LORA" or config.get("use_dora") or config.get("bias", "none") != "none":
            found = {key: config.get(key) for key in ("peft_type", "use_dora", "bias")}
            raise UnsupportedError(f"{file}: adapters are LORA without DoRA and biases, found {found}")
        weights = Safetensors(path, "adapter_model.safetensors")
        halves: dict[str, dict[str, np.ndarray]] = {}
        for name in weights.names():
            layer, half = _layer(file.with_name("adapter_model.safetensors"), name)
            value = weights.read(name)
            if value.ndim != 2:
                raise ShapeMismatch(f"{path}: expected a matrix {name}, found {value.shape}")
            halves.setdefault(layer, {})[half] = value.astype(np.float32)
        return Adapter(path, {layer: _low_rank(path, layer, found, config) for layer, found in halves.items()})


def _layer(path: Path, name: str) -> tuple[str, str]:
    for suffix, half in _HALVES.items():
        if name.endswith(suffix):
            return name.removeprefix(_PREFIX).removesuffix(suffix), half
    raise UnsupportedError(f"{path}: expected tensors that end in {' or '.join(_HALVES)}, found {name}")


def _low_rank(path: Path, layer: str, halves: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> LowRank:
    if len(halves) != 2:
        raise InvalidValue(f"{path}: expected lora_A and lora_B of {layer}, found one of them")
    rank = _number(path, config, "rank_pattern", "r", layer)
    alpha = _number(path, config, "alpha_pattern", "lora_alpha", layer)
    down, up = halves["down"], halves["up"]
    if down.shape[0] != rank or up.shape[1] != rank or rank <= 0:
        expected = f"lora_A ({rank:g}, k) and lora_B (n, {rank:g})"
        raise ShapeMismatch(f"{path}: expected {expected} of {layer}, found {down.shape} and {up.shape}")
    factor = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return LowRank(down, up * np.float32(factor))


def _number(path: Path, config: Mapping[str, Any], patterns: str, name: str, layer: str) -> float:
    """A number of the configuration, which some layers may have one of their own for, by their name or its end."""
    own = config.get(patterns) or {}
    found = next((own[key] for key in own if layer == key or layer.endswith(f".{key}")), config.get(name))
    if not isinstance(found, (int, float)) or isinstance(found, bool):
        raise InvalidValue(f"{path}: expected a number {name} in adapter_config.json, found {found!r}")
    return found
