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
        self.gate_up = ExpertLinear(experts.count, 2 * experts.size, config.hidden_size)
        self.down = ExpertLinear(experts.count, config.hidden_size, experts.size)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        shares, experts = op.topk(op.softmax(self.gate(x), axis=-1), self.chosen, axis=-1)
        if self.normalized:
            shares = shares / op.sum(shares, axis=-1, keepdims=True)
        gate, up = op.split(self.gate_up(x, experts), 2, axis=2)
        return shared(of_each(self.down, self.activation(gate) * up, experts), shares)


class ExpertLinear(nn.Module):
    """The weights (count, n, k) of a linear layer of each expert."""

    def __init__(self, count: int, n: int, k: int):
        self.count, self.n, self.k = count, n, k
        self.weight = nn.Parameter((count, n, k))

    def forward(self, x: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
        """Of each row (m, k), the products with the weights of its experts (m, chosen): (m, chosen, n)."""
        return op.tensor_expr_op(_by_expert, "by_expert", [x, self.weight, experts])


def _by_expert(x: te.Tensor, weight: te.Tensor, experts: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[1]), "k")
    shape = (*experts.shape, weight.shape[1])
    return te.compute(shape, lambda i, j, n: te.sum(x[i, k] * weight[experts[i, j], n, k], k), "by_expert")


def of_each(layer: nn.Module, x: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
    """What an `ExpertLinear` makes of (m, chosen, k), of which each expert (m, chosen) has a row: (m, chosen, n)."""
    m, chosen, k = x.shape
    each = layer(op.reshape(x, (m * chosen, k)), op.reshape(experts, (m * chosen, 1)))
    return op.reshape(each, (m, chosen, each.shape[2]))


def shared(each: nn.Tensor, shares: nn.Tensor) -> nn.Tensor:
    """The sum of the results of experts (m, chosen, n), by their shares (m, chosen)."""
    return op.sum(each * op.reshape(shares, (*shares.shape, 1)), axis=1)


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
        parts = {"gate_up.weight": (gate, up), "down.weight": (down,)}.get(last)
        if parts is None:
            return super().sources(name.replace(".mlp.gate.", f".{mixture}.gate."))
        assert self.config.experts is not None
        experts = range(self.config.experts.count)
        return [f"{layer}.{mixture}.experts.{e}.{part}.weight" for e in experts for part in parts]
