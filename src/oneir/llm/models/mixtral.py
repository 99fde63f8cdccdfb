"""Mixtral: a Mistral with experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decoder import Decoder, ExpertsConfig, decoder_config
from .experts import MixtureDecoder


class MixtralDecoder(MixtureDecoder):
    """The decoder, by the names of its files."""

    names = ("block_sparse_moe", "w1", "w3", "w2")


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    count, chosen = config["num_local_experts"], config["num_experts_per_tok"]
    experts = ExpertsConfig(count, chosen, config["intermediate_size"], normalized=True)
    windows = [config.get("sliding_window")] * config["num_hidden_layers"]
    return MixtralDecoder(decoder_config(config, windows=windows, experts=experts))
