"""Layers whose weights are kept in the forms of `kernels.forms`, and how a model's numbers are kept and multiplied.

    stored(Decoder(config), parts_of, "int8")

Rows of activations that meet digits become int8 in groups of 32, and those that meet bfloat16 become bfloat16, unless a
model is asked to keep them in float32. Errors of a product with Gaussian rows, root mean square, relative: 5e-3 from
rows in int8, 2e-3 from rows in bfloat16, none from rows in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ..ir.expr import const
from ..relax.frontend import nn
from ..relax.frontend.nn import op
from ..runtime.error import InvalidValue
from ..tir import PrimFunc, decl_buffer
from .kernels import float_panels, group_quantized, row_forms
from .kernels.expert_products import expert_products
from .kernels.forms import PANEL, DigitForm, Form, Shape
from .kernels.group_quantized import GROUP
from .kernels.row_forms import RowForm
from .models.experts import ExpertLinear

QUANTIZATIONS = ("q4_0", "q8_0", "f16", "bf16", "f32")
ACTIVATIONS = ("int8", "float32")
KV_DTYPES = ("float32", "float16", "int8")
Rows = Literal["float32", "bfloat16"] | int
"""What rows become before a product: floats, or int8 with sums of so many neighbours."""
_Model = TypeVar("_Model", bound=nn.Module)


@dataclass(frozen=True)
class Precision:
    """How the numbers of a model are kept and multiplied. Raises `InvalidValue` for names that are not known."""

    quantization: str | None = None
    """The form of all weights of layers; None: that of the file."""
    activations: str | None = None
    """What rows become that meet weights of digits: "int8", or "float32", which is exact and slower. With "int8", those
    that meet bfloat16 become bfloat16. None: int8 on processors, float32 elsewhere."""
    kv_dtype: str | None = None
    """The dtype of keys and values in pages; None: float16, or float32 where weights or activations are. In int8, each
    head of a position has a scale for its key and one for its value."""

    def __post_init__(self) -> None:
        known = {
            "quantization": (self.quantization, QUANTIZATIONS, ", or None"),
            "activations": (self.activations, ACTIVATIONS, ", or None"),
            "kv_dtype": (self.kv_dtype, KV_DTYPES, ", or None"),
        }
        for name, (value, names, more) in known.items():
            if value not in names and not (value is None and more):
                raise InvalidValue(f"expected {name} of {', '.join(names)}{more}, found {value!r}")


@dataclass(frozen=True)
class Part:
    """Rows of a layer's weight that have one form, and the tensors of the file that they are in, in this order."""

    form: Form
    rows: int
    sources: Sequence[str]


class Weight(nn.Module):
    """A weight (rows, k) in a form. Its parameters are the arrays of the form."""

    def __init__(self, part: Part, k: int, activations: str):
        self.part, self.k = part, k
        form = part.form
        self.layout: Form | RowForm = form
        """How its arrays lie."""
        self.activations: Rows = "float32"
        if activations == "int8" and isinstance(form, DigitForm):
            self.activations = form.group
        elif activations == "int8" and form.name == "BF16":
            self.activations = "bfloat16"
        """What rows become that meet it."""
        self.in_words = isinstance(self.activations, str)
        kinds = float_panels.word_parameters(form, part.rows, k) if self.in_words else form.parameters(part.rows, k)
        self._declare(kinds)

    def _declare(self, kinds: Mapping[str, tuple[Shape, str]]) -> None:
        for name, (shape, dtype) in kinds.items():
            setattr(self, name, nn.Parameter(shape, dtype))
        self.arrays = list(kinds)

    def project(self, rows: Sequence[nn.Tensor]) -> nn.Tensor:
        """rows @ weight.T, of rows as `rows_of` gives them for `activations`."""
        form, n = self.part.form, self.part.rows
        arrays = [getattr(self, name) for name in self.arrays]
        if isinstance(self.activations, str):
            func = float_panels.product(form, n, self.k, self.activations)
        else:
            assert isinstance(form, DigitForm)
            func = group_quantized.product(form, n, self.k)
        m = rows[0].shape[0]
        out = nn.Tensor.placeholder((m, n), "float32")
        return op.tensor_ir_op(_for_rows(func, m), f"{form.name.lower()}_product", [*rows, *arrays], out)

    def of_experts(self, x: nn.Tensor, experts: nn.Tensor, count: int) -> nn.Tensor:
        """The products of rows (m, k) with those of `count` parts of this weight that are their experts (m, chosen)."""
        form, n = self.part.form, self.part.rows // count
        arrays = [getattr(self, name) for name in self.arrays]
        out = nn.Tensor.placeholder((*experts.shape, n), "float32")
        func = expert_products(form, count, n, self.k)
        return op.tensor_ir_op(func, f"{form.name.lower()}_expert_products", [x, experts, *arrays], out)

    def take(self, numbers: nn.Tensor) -> nn.Tensor:
        """The rows of these numbers (m,), float32 (m, k)."""
        func = float_panels.take_rows(self.part.form, self.part.rows, self.k, self.in_words)
        out = nn.Tensor.placeholder((numbers.shape[0], self.k), "float32")
        arrays = [getattr(self, name) for name in self.arrays]
        return op.tensor_ir_op(func, f"{self.part.form.name.lower()}_take", [numbers, *arrays], out)


class RowWeight(Weight):
    """A weight for devices with threads, whose arrays lie row by row; rows that meet it stay floats."""

    def __init__(self, part: Part, k: int):
        self.part, self.k = part, k
        self.layout = RowForm(part.form)
        self.activations, self.in_words = "float32", False
        self._declare(self.layout.parameters(part.rows, k))

    def project(self, rows: Sequence[nn.Tensor]) -> nn.Tensor:
        (x,), n, m = rows, self.part.rows, rows[0].shape[0]
        func = _for_rows(row_forms.product(self.layout, n, self.k), m)
        out = nn.Tensor.placeholder((m, n), "float32")
        arrays = [getattr(self, name) for name in self.arrays]
        return op.tensor_ir_op(func, f"{self.part.form.name.lower()}_product", [x, *arrays], out)

    def take(self, numbers: nn.Tensor) -> nn.Tensor:
        func = row_forms.take_rows(self.layout, self.part.rows, self.k)
        out = nn.Tensor.placeholder((numbers.shape[0], self.k), "float32")
        arrays = [getattr(self, name) for name in self.arrays]
        return op.tensor_ir_op(func, f"{self.part.form.name.lower()}_take", [numbers, *arrays], out)


def _for_rows(func: PrimFunc, m: Any) -> PrimFunc:
    """The function for `m` rows, if that is a number: that for any number computes whole tiles of rows."""
    if not isinstance(m, int):
        return func
    rows = func.params[0]
    buffer = func.buffer_map[rows]
    return func.specialize({rows: decl_buffer([const(m, "int64"), *buffer.shape[1:]], buffer.dtype)})


def rows_of(x: nn.Tensor, k: int, kind: Rows) -> list[nn.Tensor]:
    """Rows (m, k) as products take them: as floats of a dtype, or int8 with scales and sums of so many neighbours."""
    if isinstance(kind, str):
        return [x if x.dtype == kind else op.astype(x, kind)]
    kinds = {(GROUP,): "int8", (): "float32"}
    m, groups = x.shape[0], k // GROUP
    out = [nn.Tensor.placeholder((m, groups, *shape), dtype) for shape, dtype in kinds.items()]
    out.append(nn.Tensor.placeholder((m, k // kind), "int32"))
    return op.tensor_ir_op(group_quantized.quantize_rows(k, kind), "quantize_rows", [x], out)


class StoredLayer(nn.Module):
    """A layer whose weight (n, k) has parts in forms, one below the other."""

    def __init__(self, weights: Sequence[Weight], k: int, bias: nn.Parameter | None = None):
        self.weights = nn.ModuleList(list(weights))
        self.k, self.bias = k, bias

    def project(self, x: nn.Tensor) -> nn.Tensor:
        """x @ weight.T + bias"""
        weights = [weight for weight in self.weights if isinstance(weight, Weight)]
        kinds: dict[Rows, None] = {weight.activations: None for weight in weights}
        rows = {kind: rows_of(x, self.k, kind) for kind in kinds}
        products = [weight.project(rows[weight.activations]) for weight in weights]
        y = products[0] if len(products) == 1 else op.concat(products, 1)
        return y if self.bias is None else y + self.bias


class StoredLinear(StoredLayer):
    """x @ weight.T + bias"""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.project(x)


class StoredEmbedding(StoredLayer):
    """A row of the weight for each index."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        weight = self.weights[0]
        assert isinstance(weight, Weight)
        return weight.take(x)


class StoredExperts(StoredLayer):
    """What `ExpertLinear` computes; the weights of experts lie one below the other. Rows stay floats."""

    def __init__(self, part: Part, count: int, k: int):
        super().__init__([Weight(part, k, "float32")], k)
        self.count = count

    def forward(self, x: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
        weight = self.weights[0]
        assert isinstance(weight, Weight)
        return weight.of_experts(x, experts, self.count)


class _Store(nn.Mutator):
    def __init__(self, parts_of: Callable[[str, int, int], Sequence[Part]], activations: str, threads: bool):
        self.parts_of, self.activations, self.threads = parts_of, activations, threads

    def weights_of(self, parts: Sequence[Part], k: int) -> list[Weight]:
        return [RowWeight(part, k) if self.threads else Weight(part, k, self.activations) for part in parts]

    def visit_module(self, name: str, node: nn.Module) -> Any:
        if isinstance(node, nn.Embedding):
            parts = self.parts_of(name, node.num, node.dim)
            return StoredEmbedding(self.weights_of(parts, node.dim), node.dim) if len(parts) == 1 else node
        if isinstance(node, nn.Linear):
            parts = self.parts_of(name, node.out_features, node.in_features)
            weights = self.weights_of(parts, node.in_features)
            return StoredLinear(weights, node.in_features, node.bias) if parts else node
        if isinstance(node, ExpertLinear) and not self.threads:
            parts = self.parts_of(name, node.count * node.n, node.k) if node.n % PANEL == 0 else ()
            return StoredExperts(parts[0], node.count, node.k) if len(parts) == 1 else node
        return super().visit_module(name, node)


def stored(
    model: _Model, parts_of: Callable[[str, int, int], Sequence[Part]], activations: str, threads: bool = False
) -> _Model:
    """The model with linear layers, embeddings and experts that keep their weights (n, k) in the parts
    `parts_of(name, n, k)`; those without parts stay as they are. `n` of experts is that of all of them.
    With `threads`, weights lie as `RowWeight` has them, and experts stay floats.
    """
    return _Store(parts_of, activations, threads).visit("", model)
