"""gpt-oss: experts with biases and a clamped gate, windows in every other layer, and sinks in attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...relax.frontend import nn
from ...relax.frontend.nn import op
from .decoder import Decoder, DecoderConfig, DecoderLayer, ExpertsConfig, decoder_config, windows_of
from .experts import ExpertLinear, of_each, shared


class ClampedExperts(nn.Module):
    """The experts' weights, and what chosen ones make of tokens."""

    def __init__(self, config: DecoderConfig, experts: ExpertsConfig, alpha: float, limit: float):
        self.alpha, self.limit = alpha, limit
        self.gate_up_proj = ExpertLinear(experts.count, 2 * experts.size, config.hidden_size)
        self.gate_up_proj_bias = nn.Parameter((experts.count, 2 * experts.size))
        self.down_proj = ExpertLinear(experts.count, config.hidden_size, experts.size)
        self.down_proj_bias = nn.Parameter((experts.count, config.hidden_size))

    def forward(self, x: nn.Tensor, shares: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
        """The sum of the results of the experts (m, chosen) of tokens (m, hidden_size), by their shares."""
        gate, up = op.split(self.gate_up_proj(x, experts) + op.take(self.gate_up_proj_bias, experts, axis=0), 2, axis=2)
        limit = nn.Tensor.from_scalar(self.limit, "float32")
        gate, up = op.minimum(gate, limit), op.maximum(op.minimum(up, limit), op.negative(limit))
        x = (up + 1.0) * (gate * op.sigmoid(gate * self.alpha))
        return shared(of_each(self.down_proj, x, experts) + op.take(self.down_proj_bias, experts, axis=0), shares)


class Mixture(nn.Module):
    """A router and its experts; shares are a softmax over the chosen ones."""

    def __init__(self, config: DecoderConfig, experts: ExpertsConfig, alpha: float, limit: float):
        self.chosen = experts.chosen
        self.router = nn.Linear(config.hidden_size, experts.count)
        self.experts = ClampedExperts(config, experts, alpha, limit)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        scores, experts = op.topk(self.router(x), self.chosen, axis=-1)
        return self.experts(x, op.softmax(scores, axis=-1), experts)


class GPTOSS(Decoder):
    """The decoder. Files have the weights of experts transposed, and gates beside what they open."""

    def __init__(self, config: DecoderConfig, alpha: float, limit: float):
        super().__init__(config)
        assert config.experts is not None
        for layer in self.model.layers:
            assert isinstance(layer, DecoderLayer)
            layer.mlp = Mixture(config, config.experts, alpha, limit)

    def sources(self, name: str) -> list[str]:
        return [name.removesuffix(".weight")] if ".experts." in name else super().sources(name)

    def is_transposed(self, name: str) -> bool:
        return ".experts." in name and name.endswith(".weight")

    def rows_here(self, name: str, value: np.ndarray) -> np.ndarray:
        if ".gate_up_proj" not in name:
            return value
        assert self.config.experts is not None
        rows = value.reshape(self.config.experts.count, 2 * self.config.experts.size, -1)
        return np.concatenate([rows[:, ::2], rows[:, 1::2]], 1).reshape(value.shape)


def build(config: Mapping[str, Any]) -> Decoder:
    """The model of a folder's configuration."""
    count, chosen = config["num_local_experts"], config["num_experts_per_tok"]
    experts = ExpertsConfig(count, chosen, config["intermediate_size"], normalized=True)
    bias = config.get("attention_bias", True)
    facts = {"qkv_bias": bias, "out_bias": bias, "sinks": True, "windows": windows_of(config, 2)}
    facts |= {"norm_eps": config.get("rms_norm_eps", 1e-5), "experts": experts}
    return GPTOSS(decoder_config(config, **facts), config.get("swiglu_alpha", 1.702), config.get("swiglu_limit", 7.0))
