"""Gemma 1 to 3: weights of normalizations are stored as their difference to 1, and embeddings are scaled.

Gemma 2 and 3 normalize what layers give as well; Gemma 2 caps scores and logits, Gemma 3 normalizes queries and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...relax.frontend import nn
from .decoder import Cache, Decoder, DecoderConfig, DecoderLayer, Norm, Rotary, decoder_config, windows_of


class SandwichLayer(DecoderLayer):
    """Attention and a gated layer, normalized before and after."""

    def __init__(self, config: DecoderConfig, layer: int):
        super().__init__(config, layer)
        self.pre_feedforward_layernorm = Norm(config, config.hidden_size)
        self.post_feedforward_layernorm = Norm(config, config.hidden_size)

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), cache, rotary))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    generation = {"gemma": 1, "gemma2": 2, "gemma3_text": 3}[config["model_type"]]
    bias = config.get("attention_bias", False)
    facts: dict[str, Any] = {
        "norm_offset": 1.0,
        "embedding_scale": config["hidden_size"] ** 0.5,
        "tied": config.get("tie_word_embeddings", True),
        "qkv_bias": bias,
        "out_bias": bias,
        "activation": config.get("hidden_activation") or "gelu_pytorch_tanh",
    }
    if generation == 1:
        return Decoder(decoder_config(config, **facts))
    facts["score_scale"] = config["query_pre_attn_scalar"] ** -0.5
    facts["score_cap"] = config.get("attn_logit_softcapping")
    facts["logit_cap"] = config.get("final_logit_softcapping")
    period = 2
    if generation == 3:
        period = config.get("sliding_window_pattern") or 6
        if not config.get("rope_parameters"):  # as older files say it
            full = {"rope_theta": config.get("rope_theta", 1e6), **(config.get("rope_scaling") or {})}
            local = {"rope_theta": config.get("rope_local_base_freq", 1e4)}
            config = {**config, "rope_parameters": {"full_attention": full, "sliding_attention": local}}
    facts["windows"] = windows_of(config, period)
    facts["qk_norm"] = "head" if generation == 3 else ""
    return Decoder(decoder_config(config, **facts), SandwichLayer)
