"""What decoders share: a configuration, attention over pages, gated layers, and the whole of the usual family.

    model = Decoder(decoder_config(config_of_a_folder))

A step takes tokens of any number of sequences, one after the other, stores their keys and values in pages, and gives
the logits after chosen ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...ir.expr import const
from ...relax.frontend import nn
from ...relax.frontend.nn import op
from ...runtime.error import InvalidValue
from ..kernels.kernel_set import KernelSet
from .model import FileModel
from .rotary import rotary_frequencies


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts: how many there are, how many a token goes through, and the size of each."""

    count: int
    chosen: int
    size: int
    normalized: bool
    """Whether the shares of the chosen ones are divided by their sum."""
    dense_layers: Sequence[int] = ()
    """The layers that have a gated layer instead."""


@dataclass(frozen=True)
class DecoderConfig:
    """The facts of a decoder. Sizes are numbers of elements.

    Raises `InvalidValue` for facts that do not fit together.
    """

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    context: int
    norm_eps: float = 1e-6
    rope: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tied: bool = False
    """Whether the embedding is the output layer's weight too."""
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: Literal["", "head", "row"] = ""
    """Of what queries and keys are normalized: nothing, each head, or all heads of a token together."""
    norm_offset: float = 0.0
    """What is added to the weights of normalizations."""
    embedding_scale: float = 1.0
    score_scale: float | None = None
    """What scores are multiplied by; by default 1 / sqrt(head_dim)."""
    score_cap: float | None = None
    logit_cap: float | None = None
    """`cap * tanh(x / cap)` of scores and logits, which keeps them below the cap."""
    local_rope: Mapping[str, Any] | None = None
    """What layers with a window have for `rope`, if that is something else."""
    windows: Sequence[int | None] = ()
    """For each layer, how many positions a token attends to; empty where it is all of them."""
    activation: str = "silu"
    sinks: bool = False
    """Whether each head has a score of its own for nothing."""
    renews: bool = False
    """Whether a sequence that grows beyond LongRoPE's original context is computed anew."""

    experts: ExpertsConfig | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise InvalidValue(
                f"the configuration of the model: expected heads of keys and values to divide {self.heads} heads of "
                f"queries, found {self.kv_heads}"
            )
        if self.head_dim < 2 or self.head_dim % 2:
            raise InvalidValue(
                f"the configuration of the model: expected heads of an even size, found {self.head_dim} for "
                f"{self.heads} heads of {self.hidden_size} elements"
            )
        if self.windows and len(self.windows) != self.layers:
            raise InvalidValue(
                f"the configuration of the model: expected a kind of attention for each of {self.layers} layers, found "
                f"{len(self.windows)}"
            )

    def window(self, layer: int) -> int | None:
        """How many positions a layer attends to; None is all of them."""
        return self.windows[layer] if self.windows else None

    @property
    def original_context(self) -> int | None:
        """The most tokens of a sequence whose keys have LongRoPE's short factors; None for other kinds of rope."""
        long = self.rope.get("rope_type", self.rope.get("type")) == "longrope"
        return self.rope["original_max_position_embeddings"] if long else None


def decoder_config(config: Mapping[str, Any], **facts: Any) -> DecoderConfig:
    """The facts that configurations of Llama and its relatives have under one name; `facts` are the others."""
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {
        "rope_theta": config.get("rope_theta", 10000.0),
        **(config.get("rope_scaling") or {}),
    }
    local = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    if config.get("partial_rotary_factor"):
        rope = {**rope, "partial_rotary_factor": config["partial_rotary_factor"]}
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    found: dict[str, Any] = {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "intermediate_size": config["intermediate_size"],
        "context": config["max_position_embeddings"],
        "norm_eps": config.get("rms_norm_eps", 1e-6),
        "rope": rope,
        "local_rope": local if local != rope else None,
        "tied": bool(config.get("tie_word_embeddings", False)),
        "activation": config.get("hidden_activation") or config.get("hidden_act", "silu"),
    }
    return DecoderConfig(**{**found, **facts})


def windows_of(config: Mapping[str, Any], period: int | None = None) -> list[int | None]:
    """How many positions each layer attends to, as a configuration's `layer_types` say. Where it has none, every
    `period`-th layer attends to all, or with no period the first `max_window_layers` do.
    """
    count, window = config["num_hidden_layers"], config.get("sliding_window")
    if not config.get("use_sliding_window", True) or window is None:
        return []
    kinds = config.get("layer_types")
    if kinds is None and period is not None:
        kinds = ["sliding_attention" if layer % period else "full_attention" for layer in range(1, count + 1)]
    elif kinds is None:
        first = config.get("max_window_layers", 0)
        kinds = ["sliding_attention" if layer >= first else "full_attention" for layer in range(count)]
    return [window if kind == "sliding_attention" else None for kind in kinds]


class Rotary(nn.Module):
    """The frequencies of rotary embeddings: a row, or one for short and one for long sequences.

    Of a head, the first elements turn, the share that is called `partial_rotary_factor`, or all.
    """

    def __init__(self, config: DecoderConfig, parameters: Mapping[str, Any]):
        dim = int(config.head_dim * parameters.get("partial_rotary_factor", 1.0))
        frequencies, self.scale, self.original_context = rotary_frequencies(parameters, dim, config.context)
        self.weight = nn.Parameter(frequencies.shape)
        self.weight.data = frequencies


class Norm(nn.RMSNorm):
    """The normalization of a decoder, over the last dimension of `size` elements."""

    def __init__(self, config: DecoderConfig, size: int):
        super().__init__(size, -1, config.norm_eps, bias=False)
        self.offset = config.norm_offset

    def scale(self) -> nn.Tensor:
        """What normalized elements are multiplied by."""
        return self.weight + self.offset if self.offset else self.weight

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.rms_norm(x, self.scale(), -1, self.epsilon)


class Cache:
    """The pages of a step, and which tokens of which sequences it computes, while a model is exported.

    `positions` and `sequences` say of each token where it is, `starts` and `table` where the pages of a sequence are,
    and `lengths` how many tokens it has, those of later steps included. Pages of int8 have `scales`.
    """

    def __init__(
        self,
        keys: nn.Tensor,
        values: nn.Tensor,
        positions: nn.Tensor,
        sequences: nn.Tensor,
        starts: nn.Tensor,
        table: nn.Tensor,
        lengths: nn.Tensor,
        scales: nn.Tensor | None,
        kernels: KernelSet,
    ):
        self.kernels = kernels
        self.pages = [keys, values] if scales is None else [keys, values, scales]
        self.places, self.lengths = [positions, sequences, starts, table], lengths

    def attend(
        self,
        layer: int,
        qkv: nn.Tensor,
        heads: int,
        rotary: Rotary,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
        norms: Sequence[Norm] = (),
        sinks: nn.Tensor | None = None,
    ) -> nn.Tensor:
        """Stores keys and values; what queries (m, heads, head_dim) attend to, like them.

        `qkv` (m, heads + 2 * kv_heads, head_dim) are queries, keys and values. `norms` are those of each query and of
        each key; `sinks` (heads,) are scores of nothing, which take their share of the softmax.
        """
        m, width, head_dim = qkv.shape
        kv_heads = (width - heads) // 2
        store = self.kernels.rotate_and_store(
            heads,
            kv_heads,
            head_dim,
            2 * rotary.weight.shape[1],
            rotary.scale,
            rotary.original_context,
            self.pages[0].dtype,
            norms[0].epsilon if norms else None,
        )
        weights = [rotary.weight, *(norm.scale() for norm in norms)]
        given = [qkv, *self.places, self.lengths, *weights]
        queries = nn.Tensor.placeholder((m, heads, head_dim), "float32")
        q, *self.pages = op.tensor_ir_inplace_op(
            store,
            "rotate_and_store",
            [*given, *self.pages, const(layer, "int64")],
            [-1, *range(len(given), len(given) + len(self.pages))],
            [queries, *self.pages],
        )
        sunk = [] if sinks is None else [sinks]
        kernel = self.kernels.paged_attention(
            heads, kv_heads, head_dim, scale, window, self.pages[0].dtype, cap, sinks is not None, one=m == 1
        )
        given = [q, *self.places, *self.pages, *sunk, const(layer, "int64")]
        return op.tensor_ir_op(kernel, "paged_attention", given, queries)


class Attention(nn.Module):
    """Self-attention with grouped queries, rotary embeddings and a cache in pages."""

    def __init__(self, config: DecoderConfig, layer: int):
        self.config, self.layer = config, layer
        width = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.qkv_proj = nn.Linear(config.hidden_size, width, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=config.out_bias)
        self.sinks = nn.Parameter((config.heads,)) if config.sinks else None
        if config.qk_norm:
            whole = config.qk_norm == "row"
            self.q_norm, self.k_norm = (
                Norm(config, config.head_dim * (heads if whole else 1)) for heads in (config.heads, config.kv_heads)
            )

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        c, m = self.config, x.shape[0]
        qkv, norms = self.qkv_proj(x), [self.q_norm, self.k_norm] if c.qk_norm else []
        if c.qk_norm == "row":
            ends = [c.heads * c.head_dim, (c.heads + c.kv_heads) * c.head_dim]
            q, k, v = op.split(qkv, ends, axis=1)
            qkv, norms = op.concat([self.q_norm(q), self.k_norm(k), v], 1), []
        qkv = op.reshape(qkv, (m, c.heads + 2 * c.kv_heads, c.head_dim))
        scale = c.head_dim**-0.5 if c.score_scale is None else c.score_scale
        window = c.window(self.layer)
        out = cache.attend(self.layer, qkv, c.heads, rotary, scale, window, c.score_cap, norms, self.sinks)
        return self.o_proj(op.reshape(out, (m, c.heads * c.head_dim)))


class GatedLayer(nn.Module):
    """down(activation(gate(x)) * up(x))"""

    def __init__(self, config: DecoderConfig):
        self.size, self.activation = config.intermediate_size, ACTIVATIONS[config.activation]
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * self.size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(self.size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        gate, up = op.split(self.gate_up_proj(x), [self.size], axis=1)
        return self.down_proj(self.activation(gate) * up)


def _gelu_tanh(x: nn.Tensor) -> nn.Tensor:
    return op.gelu(x, "tanh")


ACTIVATIONS = {
    "silu": op.silu,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_new": _gelu_tanh,
    "gelu": op.gelu,
}


class DecoderLayer(nn.Module):
    """Attention and a gated layer, each after a normalization and added to its input."""

    def __init__(self, config: DecoderConfig, layer: int):
        self.input_layernorm = Norm(config, config.hidden_size)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = Norm(config, config.hidden_size)
        self.mlp: nn.Module = GatedLayer(config)

    def forward(self, x: nn.Tensor, cache: Cache, rotary: Rotary) -> nn.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cache, rotary)
        return x + self.mlp(self.post_attention_layernorm(x))


class Embedding(nn.Embedding):
    """An embedding whose weight may be that of the output layer, too."""

    def project(self, x: nn.Tensor) -> nn.Tensor:
        """x @ weight.T"""
        return op.matmul(x, op.permute_dims(self.weight))


class Chosen:
    """The adapters of the tokens of a step, while a model is exported: `numbers` (m,) int32, 0 for none."""

    numbers: nn.Tensor | None = None


class Body(nn.Module):
    """Embedding, layers and a normalization."""

    def __init__(self, config: DecoderConfig, layer: type[DecoderLayer]):
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([layer(config, i) for i in range(config.layers)])
        self.norm = Norm(config, config.hidden_size)


class Decoder(FileModel):
    """A decoder of the usual form: Llama, Mistral, Qwen and their relatives. Layers may be of another class."""

    fused: ClassVar = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    prefixes = ("model.",)
    generates = True
    chosen: Chosen | None = None
    """What tells layers which adapter is that of a token, if there are adapters."""

    def __init__(self, config: DecoderConfig, layer: type[DecoderLayer] = DecoderLayer):
        self.config = config
        self.model = Body(config, layer)
        self.rotary = Rotary(config, config.rope)
        if config.local_rope is not None:
            self.local_rotary = Rotary(config, config.local_rope)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def step(
        self,
        tokens: nn.Tensor,
        positions: nn.Tensor,
        sequences: nn.Tensor,
        starts: nn.Tensor,
        table: nn.Tensor,
        lengths: nn.Tensor,
        wanted: nn.Tensor,
        keys: nn.Tensor,
        values: nn.Tensor,
        scales: nn.Tensor | None = None,
        adapters: nn.Tensor | None = None,
    ) -> nn.Tensor:
        """Logits (n, vocab_size) after the tokens whose numbers are `wanted` (n,), or, of a model that does not
        generate, their states (n, hidden_size); `scales` belong to pages of int8, `adapters` (b,) are those of the
        sequences.
        """
        cache = Cache(keys, values, positions, sequences, starts, table, lengths, scales, self.kernels)
        if self.chosen is not None and adapters is not None:
            self.chosen.numbers = op.take(adapters, sequences, axis=0)
        x = self.run_layers(self.embed(tokens, positions), cache)
        x = self.normalize(op.take(x, wanted, axis=0))
        if self.chosen is not None and self.chosen.numbers is not None:
            self.chosen.numbers = op.take(self.chosen.numbers, wanted, axis=0)
        return self.logits(x) if self.generates else x

    def embed(self, tokens: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
        """What layers get for tokens (m,) at positions (m,): (m, hidden_size)."""
        x = self.model.embed_tokens(tokens)
        return x if self.config.embedding_scale == 1 else x * self.config.embedding_scale

    def run_layers(self, x: nn.Tensor, cache: Cache) -> nn.Tensor:
        """What all layers make of (m, hidden_size)."""
        c = self.config
        for i, layer in enumerate(self.model.layers):
            local = c.local_rope is not None and c.window(i) is not None
            x = layer(x, cache, self.local_rotary if local else self.rotary)
        return x

    def normalize(self, x: nn.Tensor) -> nn.Tensor:
        """The states of tokens: what layers give, (n, hidden_size), normalized."""
        return self.model.norm(x)

    def logits(self, x: nn.Tensor) -> nn.Tensor:
        """Logits (n, vocab_size) of states (n, hidden_size)."""
        c = self.config
        x = self.model.embed_tokens.project(x) if c.tied else self.lm_head(x)
        return x if c.logit_cap is None else op.tanh(x / c.logit_cap) * c.logit_cap

    decode = step
    """The step of one token, which may be exported beside that of any number."""
