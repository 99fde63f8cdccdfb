"""Linear layers with low-rank adapters, of which each token has one or none.

    adapt(model, [Adapter.open("sql"), Adapter.open("poems")])

adds to a layer what the adapter of a token says: `y += x @ down[a] @ up[a]`, where `a` is 0 without an adapter, then 1,
2, ... All adapters are in the program, in float32, whatever form the weights of the layers have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...relax.frontend import nn
from ...relax.frontend.nn import op
from ...runtime.error import InvalidValue, ShapeMismatch
from ..files.adapter import Adapter
from .decoder import Chosen, Decoder


class AdaptedLinear(nn.Module):
    """A linear layer (n, k), and what adapters add to its results."""

    def __init__(self, base: nn.Module, down: np.ndarray, up: np.ndarray, chosen: Chosen):
        self.base, self.chosen = base, chosen
        self.down, self.up = nn.Parameter(down.shape), nn.Parameter(up.shape)
        self.down.data, self.up.data = down, up

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        assert self.chosen.numbers is not None
        low = op.tensor_expr_op(_by_adapter, "adapter_down", [x, self.down, self.chosen.numbers])
        return self.base(x) + op.tensor_expr_op(_by_adapter, "adapter_up", [low, self.up, self.chosen.numbers])


def _by_adapter(x: te.Tensor, weight: te.Tensor, numbers: te.Tensor) -> te.Tensor:
    """Rows (m, k) times the weights (adapters, k, n) of their adapters (m,): (m, n)."""
    k = te.reduce_axis((0, x.shape[1]), "k")
    shape = x.shape[0], weight.shape[2]
    return te.compute(shape, lambda i, n: te.sum(x[i, k] * weight[numbers[i], k, n], k), "by_adapter")


def adapt(model: Decoder, adapters: Sequence[Adapter]) -> None:
    """Gives the layers that adapters name what these add to them.

    Raises `InvalidValue` for an adapter of what is no linear layer here, `ShapeMismatch` for one of another model.
    """
    mutator = _Adapt(model, adapters)
    mutator.visit("", model)
    for adapter in adapters:
        unknown = [layer for layer in adapter.layers if layer not in mutator.known]
        if unknown:
            known = f"linear layers of the model, such as {next(iter(mutator.known))}"
            raise InvalidValue(f"{adapter.path}: expected adapters of {known}, found one of {unknown[0]}")
    if adapters:
        model.chosen = mutator.chosen


class _Adapt(nn.Mutator):
    def __init__(self, model: Decoder, adapters: Sequence[Adapter]):
        self.model, self.adapters, self.chosen = model, adapters, Chosen()
        self.known: dict[str, None] = {}
        """The names that linear layers have in files."""

    def visit_module(self, name: str, node: nn.Module) -> Any:
        if not isinstance(node, nn.Linear):
            return super().visit_module(name, node)
        n, k = node.out_features, node.in_features
        parts = [source.removesuffix(".weight") for source in self.model.sources(f"{name}.weight")]
        rows = self._rows(n, len(parts))
        own = {name: (0, n)} | {part: (sum(rows[:i]), rows[i]) for i, part in enumerate(parts)}
        self.known |= dict.fromkeys(own)
        found = [
            [(*own[layer], low, f"{a.path}: {layer}") for layer, low in a.layers.items() if layer in own]
            for a in self.adapters
        ]
        if not any(found):
            return node
        rank = max(sum(len(low.down) for _, _, low, _ in parts) for parts in found)
        down = np.zeros((len(found) + 1, k, rank), np.float32)
        up = np.zeros((len(found) + 1, rank, n), np.float32)
        for number, parts in enumerate(found, 1):
            at = 0
            for first, count, low, where in parts:
                if low.down.shape[1] != k or low.up.shape[0] != count:
                    raise ShapeMismatch(
                        f"{where}: expected an adapter of a weight ({count}, {k}), found one of "
                        f"({low.up.shape[0]}, {low.down.shape[1]})"
                    )
                ranks = slice(at, at := at + len(low.down))
                down[number, :, ranks] = low.down.T
                up[number, ranks, first : first + count] = low.up.T
        order = self.model.rows_here(f"{name}.weight", np.arange(n)[:, None]).reshape(-1)
        return AdaptedLinear(node, down, up[..., order], self.chosen)

    def _rows(self, n: int, parts: int) -> list[int]:
        """The rows of the parts of a layer: queries, keys and values, or parts of one size."""
        c = self.model.config
        kv = c.kv_heads * c.head_dim
        return [n - 2 * kv, kv, kv] if parts == 3 else [n // parts] * parts
