"""GPT-NeoX and Pythia: attention and linear layers take the same input, and heads have their queries, keys and values
side by side in files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...relax.frontend import nn
from ...relax.frontend.nn import op
from .decoder import ACTIVATIONS, Cache, Decoder, DecoderConfig, Embedding, Rotary, decoder_config


class NeoXAttention(nn.Module):
    """Self-attention with rotary embeddings in a part of each head."""

    def __init__(self, config: DecoderConfig, layer: int):
        self.config, self.layer = config, layer
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.qkv_bias)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.out_bias)

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        c, m = self.config, x.shape[0]
        qkv = op.reshape(self.query_key_value(x), (m, 3 * c.heads, c.head_dim))
        out = cache.attend(self.layer, qkv, c.heads, rotary, c.head_dim**-0.5)
        return self.dense(op.reshape(out, (m, c.hidden_size)))


class NeoXLayers(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: DecoderConfig):
        self.activation = ACTIVATIONS[config.activation]
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_4h_to_h = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.dense_4h_to_h(self.activation(self.dense_h_to_4h(x)))


class NeoXLayer(nn.Module):
    """Attention and linear layers, both added to the input, or one after the other."""

    def __init__(self, config: DecoderConfig, layer: int, parallel: bool):
        self.parallel = parallel
        self.input_layernorm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.attention = NeoXAttention(config, layer)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.mlp = NeoXLayers(config)

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        attended = x + self.attention(self.input_layernorm(x), cache, rotary)
        return attended + self.mlp(self.post_attention_layernorm(x if self.parallel else attended))


class NeoXBody(nn.Module):
    """Embedding, layers and a normalization."""

    def __init__(self, config: DecoderConfig, parallel: bool):
        self.embed_in = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([NeoXLayer(config, i, parallel) for i in range(config.layers)])
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, config.norm_eps)


class NeoX(Decoder):
    """The decoder, by the names of its files."""

    prefixes = ("gpt_neox.",)

    def __init__(self, config: DecoderConfig, parallel: bool):
        self.config = config
        self.gpt_neox = NeoXBody(config, parallel)
        self.rotary = Rotary(config, config.rope)
        if not config.tied:
            self.embed_out = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def embed(self, tokens: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
        return self.gpt_neox.embed_in(tokens)

    def run_layers(self, x: nn.Tensor, cache: Cache) -> nn.Tensor:
        for layer in self.gpt_neox.layers:
            x = layer(x, cache, self.rotary)
        return x

    def normalize(self, x: nn.Tensor) -> nn.Tensor:
        return self.gpt_neox.final_layer_norm(x)

    def logits(self, x: nn.Tensor) -> nn.Tensor:
        return self.gpt_neox.embed_in.project(x) if self.config.tied else self.embed_out(x)

    def rows_here(self, name: str, value: np.ndarray) -> np.ndarray:
        if ".query_key_value." not in name:
            return value
        c = self.config
        heads = value.reshape(c.heads, 3, c.head_dim, *value.shape[1:])
        return heads.swapaxes(0, 1).reshape(value.shape)


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    bias = config.get("attention_bias", True)
    old = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}
    config = {**{new: config[name] for name, new in old.items() if name in config}, **config}
    heads, eps = config["num_attention_heads"], config.get("layer_norm_eps", 1e-5)
    facts = decoder_config(config, kv_heads=heads, norm_eps=eps, qkv_bias=bias, out_bias=bias)
    return NeoX(facts, config.get("use_parallel_residual", True))
