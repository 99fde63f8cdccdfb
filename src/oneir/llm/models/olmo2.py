"""OLMo 2: what attention and gated layers give is normalized, not what they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...relax.frontend import nn
from .decoder import Attention, Cache, Decoder, DecoderConfig, DecoderLayer, GatedLayer, Norm, Rotary, decoder_config


class OLMo2Layer(DecoderLayer):
    """Attention and a gated layer, each normalized and then added to its input."""

    def __init__(self, config: DecoderConfig, layer: int):
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = Norm(config, config.hidden_size)
        self.mlp = GatedLayer(config)
        self.post_feedforward_layernorm = Norm(config, config.hidden_size)

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(x, cache, rotary))
        return x + self.post_feedforward_layernorm(self.mlp(x))


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    bias = config.get("attention_bias", False)
    return Decoder(decoder_config(config, qkv_bias=bias, out_bias=bias, qk_norm="row"), OLMo2Layer)
