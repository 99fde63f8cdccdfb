"""Group quantization of modules: weights of linear layers and embeddings become integers of 3, 4 or 8 bits in words.

    quantize = GroupQuantize.named("q4f16_1")
    model = quantize(Model())                      # its layers are quantized ones
    weights = quantize.convert(model, floats)      # its parameters by name, out of those of the float model

A group of neighbouring elements of a row has one scale, the largest absolute value over `2 ** (bits - 1) - 1`; an
element is `(digit - (2 ** (bits - 1) - 1)) * scale`. Words of 32 bits have the digits of neighbours, the first one in
the lowest bits. `transform.FuseDequantizeMatmul` lets products read words, so no dequantized weight is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .... import te
from ....ir.expr import const
from ....runtime.dtype import numpy_dtype
from ....runtime.error import InvalidValue, ShapeMismatch
from . import op
from .core import Module
from .modules import Embedding, Linear
from .tensor import Parameter, Tensor
from .visitor import Mutator

WORD = 32


@dataclass(frozen=True)
class GroupQuantize:
    """How weights are quantized: `bits` a digit, and a scale in `dtype` for each `group_size` of them.

    Modules of the names in `skip`, and embeddings unless `embeddings`, stay as they are. Calling it changes a module,
    which it returns, or gives the quantized layer that stands for one.
    """

    bits: int = 4
    group_size: int = 32
    dtype: str = "float16"
    embeddings: bool = True
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.bits not in (3, 4, 8):
            raise InvalidValue(f"GroupQuantize: expected 3, 4 or 8 bits, found {self.bits}")
        if self.group_size < 1 or self.group_size % self.per_word:
            raise InvalidValue(
                f"GroupQuantize: expected groups of whole words of {self.per_word} digits, found {self.group_size}"
            )

    @staticmethod
    def named(name: str, skip: tuple[str, ...] = ()) -> GroupQuantize:
        """By the published name: q3f16_1, q4f16_1, q4f32_1, q8f16_1 or q8f32_1; `_2` leaves embeddings as they are."""
        kinds = {"q3": (3, 40), "q4": (4, 32), "q8": (8, 32)}
        form, _, layout = name.partition("_")
        kind, _, width = form.partition("f")
        if kind not in kinds or width not in ("16", "32") or layout not in ("1", "2"):
            raise InvalidValue(
                f"expected a quantization such as q4f16_1: q3, q4 or q8, f16 or f32, _1 or _2, found {name!r}"
            )
        return GroupQuantize(*kinds[kind], f"float{width}", layout == "1", skip)

    @property
    def per_word(self) -> int:
        """How many digits a word has."""
        return WORD // self.bits

    @property
    def zero(self) -> int:
        """The digit of 0, and the largest absolute value in scales."""
        return 2 ** (self.bits - 1) - 1

    def shapes(self, rows: Any, columns: int) -> tuple[list[Any], list[Any]]:
        """The shapes of the words and of the scales of a weight (rows, columns)."""
        groups = -(-columns // self.group_size)
        return [rows, groups * (self.group_size // self.per_word)], [rows, groups]

    def __call__(self, module: Any) -> Any:
        return _Quantizer(self).visit_module("", module)

    def quantize(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The words and the scales of a weight (rows, columns)."""
        if weight.ndim != 2:
            raise ShapeMismatch(f"GroupQuantize: expected a weight of two dimensions, found the shape {weight.shape}")
        rows, columns = weight.shape
        groups = -(-columns // self.group_size)
        padded = np.zeros((rows, groups * self.group_size), "float32")
        padded[:, :columns] = weight
        grouped = padded.reshape(rows, groups, self.group_size)
        scales = (np.abs(grouped).max(-1, keepdims=True) / self.zero).astype(numpy_dtype(self.dtype))
        divisor = np.where(scales == 0, 1, scales).astype("float32")
        digits = np.clip(np.rint(grouped / divisor) + self.zero, 0, 2 * self.zero).astype("uint32")
        digits = digits.reshape(rows, -1, self.per_word)
        words = np.bitwise_or.reduce(digits << (np.arange(self.per_word, dtype="uint32") * self.bits), -1)
        return words.astype("uint32"), scales[..., 0]

    def dequantized(self, words: Tensor, scales: Tensor, columns: int) -> Tensor:
        """The weight (rows, columns), an expression of its words and scales."""

        def dequantize(words: te.Tensor, scales: te.Tensor) -> te.Tensor:
            def element(i: Any, j: Any) -> Any:
                shift = (j % self.per_word * self.bits).astype("uint32")
                digit = (words[i, j // self.per_word] >> shift) & const((1 << self.bits) - 1, "uint32")
                return (digit.astype(self.dtype) - const(self.zero, self.dtype)) * scales[i, j // self.group_size]

            return te.compute((words.shape[0], columns), element, name="dequantize")

        return op.tensor_expr_op(dequantize, "dequantize", [words, scales])

    def convert(self, module: Module, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The values of a quantized module's parameters, out of those of the module that it was. Raises `InvalidValue`
        for a weight that is missing.
        """
        layers = dict(module.named_attributes(QuantizedLayer))
        if isinstance(module, QuantizedLayer):
            layers[""] = module
        found: dict[str, np.ndarray] = {}
        for prefix in layers:
            name = f"{prefix}.weight" if prefix else "weight"
            words, scales = self.quantize(np.asarray(_of(weights, name)))
            start = f"{prefix}." if prefix else ""
            found[f"{start}q_weight"], found[f"{start}q_scale"] = words, scales
        for name, parameter in module.named_parameters():
            if name not in found:
                found[name] = np.asarray(_of(weights, name)).astype(numpy_dtype(parameter.dtype))
        return found


def _of(weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in weights:
        raise InvalidValue(f"GroupQuantize: the weights have no {name!r}")
    return weights[name]


class QuantizedLayer(Module):
    """What quantized layers share: words and scales of a weight (rows, columns)."""

    def __init__(self, scheme: GroupQuantize, rows: Any, columns: int):
        words, scales = scheme.shapes(rows, columns)
        self.scheme, self.columns = scheme, columns
        self.q_weight, self.q_scale = Parameter(words, "uint32"), Parameter(scales, scheme.dtype)

    def weight(self) -> Tensor:
        """The weight, dequantized."""
        return self.scheme.dequantized(self.q_weight, self.q_scale, self.columns)


class QuantizedLinear(QuantizedLayer):
    """A linear layer with a quantized weight."""

    def __init__(self, scheme: GroupQuantize, layer: Linear):
        super().__init__(scheme, layer.out_features, layer.in_features)
        self.bias, self.out_dtype = layer.bias, layer.out_dtype

    def forward(self, x: Tensor) -> Tensor:
        """x @ weight.T + bias"""
        x = op.matmul(x, op.permute_dims(self.weight()), out_dtype=self.out_dtype)
        return x if self.bias is None else x + self.bias


class QuantizedEmbedding(QuantizedLayer):
    """An embedding with a quantized weight."""

    def __init__(self, scheme: GroupQuantize, layer: Embedding):
        super().__init__(scheme, layer.num, layer.dim)

    def forward(self, x: Tensor) -> Tensor:
        """The rows of the weight for indices of any shape."""
        if x.ndim == 1:
            return op.take(self.weight(), x, axis=0)
        return op.reshape(op.take(self.weight(), op.reshape(x, [-1]), axis=0), [*x.shape, self.columns])

    def lm_head_forward(self, x: Tensor) -> Tensor:
        """x @ weight.T, in float32: the logits of a model whose head is its embedding."""
        return op.matmul(x, op.permute_dims(self.weight()), out_dtype="float32")


class _Quantizer(Mutator):
    def __init__(self, scheme: GroupQuantize):
        self.scheme = scheme

    def visit_module(self, name: str, node: Module) -> Any:
        if name in self.scheme.skip:
            return node
        if isinstance(node, Linear):
            return QuantizedLinear(self.scheme, node)
        if isinstance(node, Embedding) and self.scheme.embeddings:
            return QuantizedEmbedding(self.scheme, node)
        return self.visit(name, node)
