"""The forms of weights (n, k) on processors: panels of `forms`, and the kernels that read them.

layout = PanelForm(FORMS["Q4_0"], "int8")
layout.rows                                 # 32: rows that meet it become int8, with a sum for each 32
layout.product(n, k)                        # a function of such rows and of the arrays of the weight
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...tir import PrimFunc
from . import float_panels, group_quantized
from .expert_products import expert_products
from .forms import PANEL, DigitForm, Form, Rows, Shape


@dataclass(frozen=True)
class PanelForm:
    """A form whose arrays lie in panels, for rows that become int8 where it is made for that, or stay floats."""

    form: Form
    activations: str = "int8"
    """As those of `Precision`."""
    in_pairs: bool = False
    """Whether the processor adds up products of bytes in pairs of 16 bits (`group_quantized.product`)."""
    panel = PANEL

    @property
    def rows(self) -> Rows:
        """What rows become that meet the weight."""
        if self.activations == "int8" and isinstance(self.form, DigitForm):
            return self.form.group
        return "bfloat16" if self.activations == "int8" and self.form.name == "BF16" else "float32"

    @property
    def _in_words(self) -> bool:
        return isinstance(self.rows, str)

    def parameters(self, n: int, k: int) -> dict[str, tuple[Shape, str]]:
        """Shape and dtype of each array of a weight. Raises `ShapeMismatch` for sizes that are no whole panels."""
        return float_panels.word_parameters(self.form, n, k) if self._in_words else self.form.parameters(n, k)

    def pack(self, data: np.ndarray, n: int, k: int) -> dict[str, np.ndarray]:
        """The arrays of a weight, of the blocks that a file has, uint8 [bytes], or of its values (n, k)."""
        arrays = self.form.pack(data, n, k)
        if self._in_words and arrays["weight"].dtype == np.uint8:
            arrays["weight"] = arrays["weight"].view(np.uint32)
        return arrays

    def product(self, n: int, k: int) -> PrimFunc:
        """x @ weight.T: the parameters are what rows (m, k) have become, the arrays of the weight, and the result
        (m, n) float32.
        """
        if isinstance(self.rows, str):
            return float_panels.product(self.form, n, k, self.rows)
        assert isinstance(self.form, DigitForm)
        return group_quantized.product(self.form, n, k, self.in_pairs)

    def take_rows(self, n: int, k: int) -> PrimFunc:
        """Rows of a weight as float32 (m, k): those of the numbers (m,) int32, of the arrays of the weight."""
        return float_panels.take_rows(self.form, n, k, self._in_words)

    def expert_products(self, count: int, n: int, k: int) -> PrimFunc:
        """Products of rows that stay floats with the weights (n, k) of the experts of each, of `count`."""
        return expert_products(self.form, count, n, k)
