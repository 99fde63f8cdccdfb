"""Phi-3 and Phi-4: a Llama whose files have queries, keys and values, and gates and inputs, as one matrix each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decoder import Decoder, decoder_config


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    windows = [config.get("sliding_window")] * config["num_hidden_layers"]
    # As transformers does for configurations with this entry.
    return Decoder(decoder_config(config, windows=windows, renews="original_max_position_embeddings" in config))
