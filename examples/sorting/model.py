"""A small Transformer that has learned to sort: 16 digits go in, the same digits come out in their order.

    model = load_model()
    logits = model(torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]]))
    logits.argmax(-1)  # 1 1 2 3 3 3 4 5 5 5 6 7 8 9 9 9

The weights lie beside this file; `train.py` made them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from oneir.runtime import load_param_dict_from_file

WEIGHTS = Path(__file__).parent / "sorting.safetensors"
DIGITS, LENGTH, WIDTH, HEADS, LAYERS = 10, 16, 48, 4, 2


class Block(nn.Module):
    """Attention among all positions, then two linear layers at each; float32 (n, LENGTH, WIDTH) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.query_key_value(self.norm1(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm2(x))))


class Sorter(nn.Module):
    """int64 digits (n, LENGTH) to logits (n, LENGTH, DIGITS) of the digits in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.digit, self.place = nn.Embedding(DIGITS, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.answer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, DIGITS)

    def forward(self, digits: torch.Tensor) -> torch.Tensor:
        x = self.digit(digits) + self.place
        for block in self.blocks:
            x = block(x)
        return self.answer(self.norm(x))


def load_model() -> Sorter:
    """The trained model, in evaluation mode."""
    model = Sorter()
    params = load_param_dict_from_file(WEIGHTS)
    model.load_state_dict({key: torch.from_numpy(value.numpy()) for key, value in params.items()})
    return model.eval()
