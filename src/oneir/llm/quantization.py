"""Weights of 4 bits: the layers that multiply with them, and the change of a model's layers into these.

    model = quantized(Decoder(config), "q4_0")

"q4_0" is GGML's: groups of 32 along the sum with a float16 scale, values from 0 to 15 with the zero at 8. Activations
become int8 in groups of 32. Errors of a product with Gaussian rows, root mean square, relative: 5e-3 from the rows.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ..relax.frontend import nn
from ..relax.frontend.nn import op
from ..runtime.error import InvalidValue
from .kernels import group_quantized
from .kernels.group_quantized import GROUP, PANEL

ZERO = 8
_Model = TypeVar("_Model", bound=nn.Module)
FORMATS = ("q4_0",)


class Q4Weight(nn.Module):
    """What layers with a weight of 4 bits, (n, k), share: the weight in panels and its scales."""

    def __init__(self, n: int, k: int):
        self.n, self.k = n, k
        panels = (n // PANEL, k // GROUP)
        self.weight = nn.Parameter((*panels, 4, 2, 64), "uint8")
        self.scale = nn.Parameter((*panels, 2, 16), "float16")

    def project(self, x: nn.Tensor) -> nn.Tensor:
        """x @ weight.T"""
        m, groups = x.shape[0], self.k // GROUP
        rows = op.tensor_ir_op(
            group_quantized.quantize_rows(self.k, ZERO),
            "quantize_rows",
            [x],
            [
                nn.Tensor.placeholder((m, groups, GROUP), "int8"),
                nn.Tensor.placeholder((m, groups), "float32"),
                nn.Tensor.placeholder((m, groups), "int32"),
            ],
        )
        return op.tensor_ir_op(
            group_quantized.product(self.n, self.k),
            "q4_product",
            [*rows, self.weight, self.scale],
            nn.Tensor.placeholder((m, self.n), "float32"),
        )


class Q4Linear(Q4Weight):
    """x @ weight.T + bias"""

    def __init__(self, in_features: int, out_features: int, bias: bool):
        super().__init__(out_features, in_features)
        self.bias = nn.Parameter((out_features,), "float32") if bias else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = self.project(x)
        return y if self.bias is None else y + self.bias


class Q4Embedding(Q4Weight):
    """A row of the weight for each index."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        out = nn.Tensor.placeholder((x.shape[0], self.k), "float32")
        rows = group_quantized.take_rows(self.n, self.k, ZERO)
        return op.tensor_ir_op(rows, "q4_take", [x, self.weight, self.scale], out)


class _Quantize(nn.Mutator):
    def visit_module(self, name: str, node: nn.Module) -> Any:
        if isinstance(node, nn.Embedding) and node.dim % GROUP == 0 and node.num % PANEL == 0:
            return Q4Embedding(node.num, node.dim)
        if isinstance(node, nn.Linear) and node.in_features % GROUP == 0 and node.out_features % PANEL == 0:
            return Q4Linear(node.in_features, node.out_features, node.bias is not None)
        return super().visit_module(name, node)


def quantized(model: _Model, quantization: str | None) -> _Model:
    """The model with its linear layers changed, where their sizes are whole groups and panels; None changes nothing."""
    if quantization is None:
        return model
    if quantization not in FORMATS:
        raise InvalidValue(f"expected a quantization of {', '.join(FORMATS)}, or None, found {quantization!r}")
    return _Quantize().visit("", model)


def quantize_q4_0(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A weight (n, k) as digits from 0 to 15 (n, k) uint8 and scales (n, k // 32) float16, as GGML's reference does."""
    n, k = weight.shape
    groups = weight.reshape(n, k // GROUP, GROUP).astype(np.float32)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(-1, keepdims=True), -1)[..., 0]
    scale = largest / np.float32(-8)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale != 0, np.float32(1) / scale, np.float32(0))
    digits = np.minimum((groups * inverse[..., None] + np.float32(8.5)).astype(np.int8), 15)
    return digits.astype(np.uint8).reshape(n, k), scale.astype(np.float16)


def pack_q4(digits: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The parameters `weight` and `scale` of a `Q4Weight`."""
    return group_quantized.pack(digits), group_quantized.pack_scales(scales)


def from_q4_0_blocks(blocks: np.ndarray, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits (n, k) and scales (n, k // 32) of GGML's Q4_0 blocks, uint8 [bytes].

    Of 18 bytes, the first two are a float16, the others 16 pairs of digits, k and k + 16.
    """
    rows = blocks.reshape(n, k // GROUP, 18)
    scales = np.ascontiguousarray(rows[..., :2]).view(np.float16)[..., 0]
    pairs = rows[..., 2:]
    return np.concatenate([pairs & 15, pairs >> 4], -1).reshape(n, k), scales
