"""Llama and what has its form: TinyLlama, SmolLM, Yi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decoder import Decoder, decoder_config


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    bias = config.get("attention_bias", False)
    return Decoder(decoder_config(config, qkv_bias=bias, out_bias=bias, mlp_bias=config.get("mlp_bias", False)))
