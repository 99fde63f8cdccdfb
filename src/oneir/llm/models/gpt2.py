"""GPT-2: positions have embeddings, and matrices are stored transposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...relax.frontend import nn
from ...relax.frontend.nn import op
from .decoder import ACTIVATIONS, Cache, Decoder, DecoderConfig, Embedding, Rotary


class GPT2Attention(nn.Module):
    """Self-attention without rotary embeddings."""

    def __init__(self, config: DecoderConfig, layer: int):
        self.config, self.layer = config, layer
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        c, m = self.config, x.shape[0]
        qkv = op.reshape(self.c_attn(x), (m, 3 * c.heads, c.head_dim))
        out = cache.attend(self.layer, qkv, c.heads, rotary, c.head_dim**-0.5)
        return self.c_proj(op.reshape(out, (m, c.hidden_size)))


class GPT2Layers(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: DecoderConfig):
        self.activation = ACTIVATIONS[config.activation]
        self.c_fc = nn.Linear(config.hidden_size, config.intermediate_size)
        self.c_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.c_proj(self.activation(self.c_fc(x)))


class GPT2Layer(nn.Module):
    """Attention and linear layers, each after a normalization and added to its input."""

    def __init__(self, config: DecoderConfig, layer: int):
        self.ln_1 = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.attn = GPT2Attention(config, layer)
        self.ln_2 = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.mlp = GPT2Layers(config)

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        x = x + self.attn(self.ln_1(x), cache, rotary)
        return x + self.mlp(self.ln_2(x))


class GPT2Body(nn.Module):
    """Embeddings, layers and a normalization."""

    def __init__(self, config: DecoderConfig):
        self.wte = Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.context, config.hidden_size)
        self.h = nn.ModuleList([GPT2Layer(config, i) for i in range(config.layers)])
        self.ln_f = nn.LayerNorm(config.hidden_size, config.norm_eps)


class GPT2(Decoder):
    """The decoder, by the names of its files."""

    prefixes = ("transformer.",)

    def __init__(self, config: DecoderConfig):
        self.config = config
        self.transformer = GPT2Body(config)
        self.rotary = Rotary(config, config.rope)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def embed(self, tokens: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
        return self.transformer.wte(tokens) + self.transformer.wpe(positions)

    def run_layers(self, x: nn.Tensor, cache: Cache) -> nn.Tensor:
        for layer in self.transformer.h:
            x = layer(x, cache, self.rotary)
        return x

    def normalize(self, x: nn.Tensor) -> nn.Tensor:
        return self.transformer.ln_f(x)

    def logits(self, x: nn.Tensor) -> nn.Tensor:
        return self.transformer.wte.project(x) if self.config.tied else self.lm_head(x)

    def is_transposed(self, name: str) -> bool:
        return ".h." in name and name.endswith(".weight") and ".ln_" not in name


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    size, heads = config["n_embd"], config["n_head"]
    facts = DecoderConfig(
        vocab_size=config["vocab_size"],
        hidden_size=size,
        layers=config["n_layer"],
        heads=heads,
        kv_heads=heads,
        head_dim=size // heads,
        intermediate_size=config.get("n_inner") or 4 * size,
        context=config["n_positions"],
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        rope={"partial_rotary_factor": 0.0},
        tied=config.get("tie_word_embeddings", True),
        activation=config.get("activation_function", "gelu_new"),
    )
    return GPT2(facts)
