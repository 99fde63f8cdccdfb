"""Mistral: a Llama whose tokens attend to a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decoder import Decoder, decoder_config


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    windows = [config.get("sliding_window")] * config["num_hidden_layers"]
    return Decoder(decoder_config(config, windows=windows))
