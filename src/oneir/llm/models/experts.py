"""Mixtures of experts: each token goes through a few of many gated layers, which a router chooses."""

from __future__ import annotations

from ... import te
from ...relax.frontend import nn
from ...relax.frontend.nn import op
from .decoder import ACTIVATIONS, Decoder, DecoderConfig, DecoderLayer, ExpertsConfig


class Experts(nn.Module):
    """The sum of the chosen experts' results, by the router's probabilities."""

    def __init__(self, config: DecoderConfig, experts: ExpertsConfig):
        self.chosen, self.normalized = experts.chosen, experts.normalized
        self.activation = ACTIVATIONS[config.activation]
        self.gate = nn.Linear(config.hidden_size, experts.count, bias=False)
        self.gate_up = nn.Parameter((experts.count, 2 * experts.size, config.hidden_size))
        self.down = nn.Parameter((experts.count, config.hidden_size, experts.size))

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        shares, experts = op.topk(op.softmax(self.gate(x), axis=-1), self.chosen, axis=-1)
        if self.normalized:
            shares = shares / op.sum(shares, axis=-1, keepdims=True)
        gate, up = op.split(op.tensor_expr_op(by_expert, "experts_in", [x, self.gate_up, experts]), 2, axis=2)
        return op.tensor_expr_op(
            _sum_of_experts, "experts_out", [self.activation(gate) * up, self.down, experts, shares]
        )


def by_expert(x: te.Tensor, weight: te.Tensor, experts: te.Tensor) -> te.Tensor:
    """Of each token (m, k), the products with the weights (e, n, k) of its experts (m, chosen): (m, chosen, n)."""
    k = te.reduce_axis((0, x.shape[1]), "k")
    shape = (*experts.shape, weight.shape[1])
    return te.compute(shape, lambda i, j, n: te.sum(x[i, k] * weight[experts[i, j], n, k], k), "experts_in")


def _sum_of_experts(x: te.Tensor, weight: te.Tensor, experts: te.Tensor, shares: te.Tensor) -> te.Tensor:
    """Of each expert of each token (m, chosen, k), the product with its weight (e, n, k), by shares (m, chosen)."""
    k = te.reduce_axis((0, x.shape[2]), "k")
    each = te.compute(
        (x.shape[0], x.shape[1], weight.shape[1]),
        lambda i, j, n: te.sum(x[i, j, k] * weight[experts[i, j], n, k], k),
        "experts_out",
    )
    j = te.reduce_axis((0, x.shape[1]), "j")
    return te.compute((x.shape[0], weight.shape[1]), lambda i, n: te.sum(each[i, j, n] * shares[i, j], j), "shared")


class MixtureLayer(DecoderLayer):
    """A layer whose gated layer is a mixture."""

    def __init__(self, config: DecoderConfig, layer: int):
        super().__init__(config, layer)
        assert config.experts is not None
        if layer not in config.experts.dense_layers:
            self.mlp = Experts(config, config.experts)


class MixtureDecoder(Decoder):
    """A decoder with mixtures. `names` are, in its files, those of the mixture, gate, input and output of an expert."""

    names = ("mlp", "gate_proj", "up_proj", "down_proj")

    def __init__(self, config: DecoderConfig):
        super().__init__(config, MixtureLayer)

    def sources(self, name: str) -> list[str]:
        layer, _, last = name.rpartition(".mlp.")
        mixture, gate, up, down = self.names
        parts = {"gate_up": (gate, up), "down": (down,)}.get(last)
        if parts is None:
            return super().sources(name.replace(".mlp.gate.", f".{mixture}.gate."))
        assert self.config.experts is not None
        experts = range(self.config.experts.count)
        return [f"{layer}.{mixture}.experts.{e}.{part}.weight" for e in experts for part in parts]
