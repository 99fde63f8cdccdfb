"""BERT, RoBERTa and XLM-RoBERTa: encoders, whose tokens attend to all of their text, for embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ... import relax
from ...relax.frontend import nn
from ...relax.frontend.nn import op
from ...relax.frontend.nn.tensor import wrap_nested
from ...runtime.error import UnsupportedError
from .decoder import ACTIVATIONS
from .model import FileModel


@dataclass(frozen=True)
class EncoderConfig:
    """The facts of an encoder. Sizes are numbers of elements."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    context: int
    """The most tokens of a text."""
    first_position: int
    """The number of the first token's position, of `first_position + context`."""
    kinds: int
    """How many kinds of tokens have embeddings; those of a single text are of the first one."""
    norm_eps: float
    activation: str


class SelfAttention(nn.Module):
    """Attention of all tokens of a text to one another."""

    def __init__(self, config: EncoderConfig):
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)

    def forward(self, x: nn.Tensor, bias: nn.Tensor) -> nn.Tensor:
        batch, length = bias.shape[0], bias.shape[3]
        rows, hidden = x.shape
        shape = (batch, length, self.heads, hidden // self.heads)
        q, k, v = (op.reshape(part, shape)._expr for part in op.split(self.qkv(x), 3, axis=1))
        out = wrap_nested(relax.op.nn.attention(q, k, v, bias._expr), "attention")
        return op.reshape(out, (rows, hidden))


class Added(nn.Module):
    """A linear layer, added to what stood before it, and normalized."""

    def __init__(self, config: EncoderConfig, size: int):
        self.dense = nn.Linear(size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.norm_eps)

    def forward(self, x: nn.Tensor, before: nn.Tensor) -> nn.Tensor:
        return self.LayerNorm(self.dense(x) + before)


class Attention(nn.Module):
    """Attention, added to its input."""

    def __init__(self, config: EncoderConfig):
        self.self = SelfAttention(config)
        self.output = Added(config, config.hidden_size)

    def forward(self, x: nn.Tensor, bias: nn.Tensor) -> nn.Tensor:
        return self.output(self.self(x, bias), x)


class Intermediate(nn.Module):
    """A linear layer with an activation."""

    def __init__(self, config: EncoderConfig):
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.activation(self.dense(x))


class EncoderLayer(nn.Module):
    """Attention and two linear layers."""

    def __init__(self, config: EncoderConfig):
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = Added(config, config.intermediate_size)

    def forward(self, x: nn.Tensor, bias: nn.Tensor) -> nn.Tensor:
        x = self.attention(x, bias)
        return self.output(self.intermediate(x), x)


class Kinds(nn.Module):
    """The embeddings of kinds of tokens."""

    def __init__(self, config: EncoderConfig):
        self.weight = nn.Parameter((config.kinds, config.hidden_size))

    def forward(self) -> nn.Tensor:
        return op.split(self.weight, [1], axis=0)[0] if int(self.weight.shape[0]) > 1 else self.weight


class Embeddings(nn.Module):
    """Those of tokens, of positions and of the first kind, added up and normalized."""

    def __init__(self, config: EncoderConfig):
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.first_position + config.context, config.hidden_size)
        self.token_type_embeddings = Kinds(config)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.norm_eps)

    def forward(self, tokens: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
        x = self.word_embeddings(tokens) + self.position_embeddings(positions)
        return self.LayerNorm(x + self.token_type_embeddings())


class Layers(nn.Module):
    """The layers, by the name of their files."""

    def __init__(self, config: EncoderConfig):
        self.layer = nn.ModuleList([EncoderLayer(config) for _ in range(config.layers)])

    def forward(self, x: nn.Tensor, bias: nn.Tensor) -> nn.Tensor:
        for layer in self.layer:
            x = layer(x, bias)
        return x


class Encoder(FileModel):
    """The encoder, by the names of its files, which may have the family's before them."""

    fused: ClassVar = {"qkv": ("query", "key", "value")}
    prefixes = ("bert.", "roberta.")

    def __init__(self, config: EncoderConfig):
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Layers(config)

    def spellings(self, name: str) -> list[str]:
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return super().spellings(name) + super().spellings(old)

    def encode(self, tokens: nn.Tensor, positions: nn.Tensor, bias: nn.Tensor) -> nn.Tensor:
        """States (batch * length, hidden_size) of tokens (batch, length) at positions (batch, length); what is added to
        the scores of keys, (batch, 1, 1, length), is -inf where a text has ended.
        """
        count = tokens.shape[0] * tokens.shape[1]
        x = self.embeddings(op.reshape(tokens, (count,)), op.reshape(positions, (count,)))
        return self.encoder(x, bias)


def build(config: Mapping[str, Any]) -> Encoder:
    """The model of a folder's configuration."""
    kind = config.get("position_embedding_type") or "absolute"
    if kind != "absolute" or config.get("is_decoder"):
        found = "a decoder" if config.get("is_decoder") else f"{kind} positions"
        raise UnsupportedError(
            f"models of the type {config['model_type']!r} are encoders with absolute positions, found {found}"
        )
    # RoBERTa's positions begin behind the number of the token that fills up batches.
    first = 0 if config["model_type"] == "bert" else config.get("pad_token_id", 1) + 1
    return Encoder(
        EncoderConfig(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            intermediate_size=config["intermediate_size"],
            context=config["max_position_embeddings"] - first,
            first_position=first,
            kinds=config["type_vocab_size"],
            norm_eps=config.get("layer_norm_eps", 1e-12),
            activation=config.get("hidden_act", "gelu"),
        )
    )
