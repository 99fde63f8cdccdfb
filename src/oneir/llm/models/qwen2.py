"""Qwen2: a Llama with biases of queries, keys and values, and windows in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decoder import Decoder, decoder_config, windows_of


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    return Decoder(decoder_config(config, qkv_bias=True, windows=windows_of(config)))
