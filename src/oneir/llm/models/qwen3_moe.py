"""Qwen3 with experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decoder import Decoder, ExpertsConfig, decoder_config, windows_of
from .experts import MixtureDecoder


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    step, layers = config.get("decoder_sparse_step", 1), config["num_hidden_layers"]
    experts = ExpertsConfig(
        config.get("num_experts") or config["num_local_experts"],
        config["num_experts_per_tok"],
        config["moe_intermediate_size"],
        config.get("norm_topk_prob", False),
        [i for i in range(layers) if i in config.get("mlp_only_layers", ()) or (i + 1) % step],
    )
    bias = config.get("attention_bias", False)
    # A window is that of every layer: transformers does not look at `max_window_layers` here.
    windows = windows_of({**config, "max_window_layers": 0})
    facts = {"qkv_bias": bias, "out_bias": bias, "qk_norm": "head", "windows": windows}
    return MixtureDecoder(decoder_config(config, experts=experts, **facts))
