"""Elementwise operators of PyTorch.

Each expression is exported and traced, imported, and run by the reference interpreter, against PyTorch itself.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_programs import check_exported, check_traced, floats, function_of, integers, positive

torch.manual_seed(0)

UNARY = "abs ceil cos cosh erf exp floor neg round sigmoid sign sin sinh square tan tanh trunc isfinite isinf isnan asinh atan exp2 expm1 reciprocal logical_not frac"
POSITIVE = "log log2 log10 log1p rsqrt sqrt"
WITHIN_ONE = "acos asin atanh"
ACTIVATIONS = "relu relu6 silu selu hardsigmoid hardswish mish softsign logsigmoid tanhshrink celu elu gelu leaky_relu hardtanh hardshrink softshrink softplus"
BINARY = "add sub mul div eq ne lt le gt ge maximum minimum fmod remainder floor_divide logaddexp true_divide"
WITH_NUMBER = "add sub mul div eq lt remainder floor_divide fmod"
CASES = [
    *((f"torch.{name}(x)", floats(3, 4)) for name in UNARY.split()),
    *((f"torch.{name}(x)", positive(3, 4)) for name in POSITIVE.split()),
    *((f"torch.{name}(x)", floats(3, 4).clamp(-0.8, 0.8)) for name in WITHIN_ONE.split()),
    *((f"F.{name}(x)", 4 * floats(3, 5)) for name in ACTIVATIONS.split()),
    *((f"torch.{name}(x, y)", floats(3, 4), positive(4)) for name in BINARY.split()),
    *((f"torch.{name}(x, 2.5)", floats(3, 4)) for name in WITH_NUMBER.split()),
    *((f"torch.{name}(x, 2)", integers(4) - 2) for name in WITH_NUMBER.split()),
    *((f"torch.{name}(y, x)", positive(4), integers(4) - 2) for name in WITH_NUMBER.split() if name != "div"),
    ("torch.pow(x, y)", positive(3, 4), floats(4)),
    ("torch.acosh(x)", positive(3) + 1),
    ("torch.exp(x)", integers(3, 4)),
    ("torch.sqrt(x)", integers(3, 4)),
    ("torch.acosh(x)", positive(3) + 1),
    ("torch.bitwise_not(x)", integers(4)),
    ("torch.round(x, decimals=2)", floats(4) * 10),
    ("F.gelu(x, approximate='tanh')", floats(3)),
    ("F.elu(x, 0.7)", floats(4)),
    ("F.celu(x, 0.7)", floats(9)),
    ("F.leaky_relu(x, 0.2)", floats(4)),
    ("F.hardtanh(x, -0.3, 0.4)", floats(4)),
    ("F.softplus(x, 2.0, 3.0)", floats(9) * 3),
    ("F.threshold(x, 0.1, 7.0)", floats(9)),
    ("F.glu(x, 1)", floats(3, 4, 2)),
    ("F.softmax(x, 1)", floats(2, 3, 4)),
    ("F.log_softmax(x, -1)", floats(2, 3)),
    ("F.softmin(x, 0)", floats(2, 3)),
    ("torch.softmax(x, 1, dtype=torch.float64)", floats(2, 3)),
    ("F.prelu(x, y)", floats(2, 3, 4), floats(3)),
    ("F.prelu(x, y)", floats(2, 3, 4), floats(1)),
    ("F.dropout(x, 0.5, training=False)", floats(3)),
    ("x + 2.5", integers(4)),
    ("2.5 - x", integers(4)),
    ("1 / x", positive(4)),
    ("2 ** x", floats(4)),
    ("x ** 2", floats(4)),
    ("x ** 2", integers(4)),
    ("x // 2", floats(4)),
    ("x % 3", integers(5)),
    ("x & y", integers(4), integers(4)),
    ("x | y", integers(4), integers(4)),
    ("x ^ y", integers(4) > 2, integers(4) > 1),
    ("x << 2", integers(4)),
    ("x >> 1", integers(4)),
    ("~x", integers(4) > 2),
    ("torch.add(x, y, alpha=2)", floats(3, 4), positive(4)),
    ("torch.sub(x, y, alpha=0.5)", floats(3, 4), positive(4)),
    ("torch.rsub(x, 3.0, alpha=2)", floats(3, 4)),
    ("torch.div(x, y, rounding_mode='floor')", floats(3, 4), positive(4)),
    ("torch.div(x, y, rounding_mode='trunc')", floats(3, 4), positive(4)),
    ("torch.div(x, y, rounding_mode='trunc')", integers(4) - 3, integers(4) + 1),
    ("torch.div(x, y)", integers(4) - 3, integers(4) + 1),
    ("torch.lerp(x, y, z)", floats(3, 4), positive(4) + floats(3, 4), torch.tensor(0.3)),
    ("torch.lerp(x, y, 0.4)", floats(3, 4), floats(3, 4) + 1),
    ("torch.addcmul(x, y, z, value=0.5)", floats(3, 4), floats(3, 4) + 1, positive(4)),
    ("torch.addcdiv(x, y, z, value=0.5)", floats(3, 4), floats(3, 4) + 1, positive(4)),
    ("torch.clamp(x, -0.5, 0.5)", floats(3, 4)),
    ("torch.clamp(x, min=0.1)", floats(3, 4)),
    ("x.clamp(max=0.1)", floats(3, 4)),
    ("torch.clamp(x, 1, 3)", integers(6)),
    ("torch.clamp(x, min=y)", floats(3, 4), positive(4)),
    ("torch.clamp_min(x, 0.2)", floats(3, 4)),
    ("torch.clamp_max(x, 0.2)", floats(3, 4)),
    ("torch.clamp(x, 0.5)", integers(6)),
    ("torch.where(x, y, z)", floats(3, 4) > 0, floats(3, 4), -floats(3, 4)),
    ("torch.where(x > 0, x, 0.0)", floats(3, 4)),
    ("torch.where(x > 0, 1, 0)", floats(3, 4)),
    ("x.masked_fill(x > 0, -1000000000.0)", floats(3, 4)),
    ("x.masked_fill(y == 0, float('-inf'))", floats(3, 4), integers(3, 4, below=2)),
    ("torch.logical_and(x > 0, y > 0)", floats(3, 4), positive(4)),
    ("torch.logical_or(x, y)", integers(4, below=2), integers(4, below=2)),
    ("torch.logical_xor(x > 0, y > 0.7)", floats(3, 4), positive(4)),
    ("torch.outer(x, y)", floats(3), floats(4)),
    ("x + torch.tensor(2.0)", floats(3, 4)),
    ("x * torch.tensor(2)", floats(3, 4)),
    ("x.to(torch.float64) + x", floats(3, 4)),
    ("(x > 0).float().sum()", floats(3, 4)),
    ("x.half().float()", floats(3, 4)),
    ("x.type_as(y)", integers(4), floats(4)),
    ("x.long()", floats(4) * 4),
    ("x.to(dtype=torch.int32)", floats(4) * 3),
    ("x.double()", floats(3)),
    ("x.bool()", floats(3)),
    ("x.to(y)", integers(3), floats(3)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_exported(case: tuple[Any, ...]):
    expression, *args = case
    check_exported(function_of(expression, len(args)), *args)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_traced(case: tuple[Any, ...]):
    expression, *args = case
    check_traced(function_of(expression, len(args)), *args)
