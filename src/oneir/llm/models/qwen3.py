"""Qwen3: queries and keys are normalized, head by head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decoder import Decoder, decoder_config, windows_of


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    bias = config.get("attention_bias", False)
    facts = {"qkv_bias": bias, "out_bias": bias, "qk_norm": "head", "windows": windows_of(config)}
    return Decoder(decoder_config(config, **facts))
