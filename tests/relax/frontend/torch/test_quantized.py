"""Quantized programs, as export quantization writes them down, and programs in short floats: against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from torch import nn
from torch_programs import check_exported, floats, integers, positive

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
torch.manual_seed(0)
Q = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
UINT8 = (0, 255, torch.uint8)
NARROW = (-127, 127, torch.int8)


def per_tensor(x):
    y = Q.quantize_per_tensor(x, 0.1, 3, *INT8)
    return y, Q.dequantize_per_tensor(y, 0.1, 3, *INT8)


def per_tensor_in_half(x):
    return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.1, 3, *UINT8), 0.1, 3, *UINT8, out_dtype=torch.float16)


def per_channel(x, scales, zero_points):
    y = Q.quantize_per_channel(x, scales, zero_points, 0, *NARROW)
    return y, Q.dequantize_per_channel(y, scales, zero_points, 0, *NARROW)


def without_zero_points(x, scales):
    return Q.dequantize_per_channel(x.to(torch.int8), scales, None, 1, *INT8)


def dynamically(x):
    scale, zero_point = Q.choose_qparams.tensor(x, *INT8[:2], 1e-5, torch.int8)
    y = Q.quantize_per_tensor.tensor(x, scale, zero_point, *INT8)
    return scale, zero_point, y, Q.dequantize_per_tensor.tensor(y, scale, zero_point, *INT8)


def symmetrically(x):
    return Q.choose_qparams_symmetric.tensor(x, *NARROW[:2], 1e-5, torch.int8)


def per_token(x, scales, zero_points):
    y = Q.quantize_per_token(x, scales, zero_points, *INT8)
    return y, Q.dequantize_per_token(y, scales, zero_points, *INT8, torch.float32)


CASES = [
    (per_tensor, floats(3, 4) * 9),
    (per_tensor_in_half, floats(3, 4)),
    (per_channel, floats(3, 4), positive(3) / 100, integers(3)),
    (without_zero_points, integers(3, 4), positive(4)),
    (dynamically, floats(3, 4)),
    (dynamically, positive(3, 4)),
    (symmetrically, floats(3, 4)),
    (per_token, floats(3, 4), positive(3, 1) / 100, integers(3, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_quantized_numbers(case: tuple[Any, ...]):
    check_exported(*case)


class Quantized(nn.Module):
    """A linear layer with weights of one byte, and its input rounded to bytes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", integers(4, 8, below=255).sub(128).to(torch.int8))
        self.register_buffer("scales", positive(4) / 100)
        self.register_buffer("zero_points", torch.zeros(4, dtype=torch.int64))

    def forward(self, x):
        x = Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.02, 0, *INT8), 0.02, 0, *INT8)
        weight = Q.dequantize_per_channel(self.weight, self.scales, self.zero_points, 0, *INT8)
        return torch.relu(nn.functional.linear(x, weight))


def test_a_quantized_layer():
    check_exported(Quantized(), floats(3, 8))


class Casting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)
        return y.float() + 1


def test_regions_in_short_floats():
    check_exported(Casting(), floats(2, 8), tolerance=2e-2)
    half = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).half()
    check_exported(half, floats(4, 8).half(), tolerance=1e-2)
