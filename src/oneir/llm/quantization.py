"""Layers whose weights are kept in the forms of `kernels.forms`, and how a model's numbers are kept and multiplied.

    stored(Decoder(config), parts_of)

Rows of activations that meet digits become int8 in groups of 32, and those that meet bfloat16 become bfloat16, unless a
model is asked to keep them in float32. Errors of a product with Gaussian rows, root mean square, relative: 5e-3 from
rows in int8, 2e-3 from rows in bfloat16, none from rows in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..ir.expr import const
from ..relax.frontend import nn
from ..relax.frontend.nn import op
from ..runtime.error import InvalidValue
from ..tir import PrimFunc, decl_buffer
from .kernels.forms import Rows
from .kernels.group_quantized import GROUP, quantize_rows
from .kernels.kernel_set import Layout
from .models.experts import ExpertLinear

QUANTIZATIONS = ("q4_0", "q8_0", "f16", "bf16", "f32")
ACTIVATIONS = ("int8", "float32")
KV_DTYPES = ("float32", "float16", "int8")
_Model = TypeVar("_Model", bound=nn.Module)


@dataclass(frozen=True)
class Precision:
    """How the numbers of a model are kept and multiplied. Raises `InvalidValue` for names that are not known."""

    quantization: str | None = None
    """The form of all weights of layers; None: that of the file."""
    activations: str | None = None
    """What rows become that meet weights of digits: "int8", or "float32", which is exact and slower. With "int8", those
    that meet bfloat16 become bfloat16. None: what the kernels of the target take best, which is int8 on processors, and
    float32 elsewhere, where it is all they take."""
    kv_dtype: str | None = None
    """The dtype of keys and values in pages; None: float32 for a model that is to be exact, since all of its weights
    are float32 or `activations` asks for it, else float16. In int8, each head of a position has a scale for its key and
    one for its value."""

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
    """Rows of a layer's weight that lie in one way, and the tensors of the file that they are in, in this order."""

    layout: Layout
    rows: int
    sources: Sequence[str]


PartsOf = Callable[[str, int, int, int], Sequence[Part]]
"""Gives the parts of a weight `(name, n, k, experts)`; none for one that stays as it is. A weight of experts is
(experts * n, k); `experts` is 0 for other weights."""


class Weight(nn.Module):
    """A weight (rows, k) in a form. Its parameters are the arrays of the form."""

    def __init__(self, part: Part, k: int):
        self.part, self.k, self.name = part, k, part.layout.form.name.lower()
        self.kinds = part.layout.parameters(part.rows, k)
        for name, (shape, dtype) in self.kinds.items():
            setattr(self, name, nn.Parameter(shape, dtype))

    @property
    def arrays(self) -> list[nn.Tensor]:
        """Its parameters, as kernels take them."""
        return [getattr(self, name) for name in self.kinds]

    def project(self, rows: Sequence[nn.Tensor]) -> nn.Tensor:
        """rows @ weight.T, of rows as `rows_of` gives them for the layout."""
        n, m = self.part.rows, rows[0].shape[0]
        func = _for_rows(self.part.layout.product(n, self.k), m)
        out = nn.Tensor.placeholder((m, n), "float32")
        return op.tensor_ir_op(func, f"{self.name}_product", [*rows, *self.arrays], out)

    def of_experts(self, x: nn.Tensor, experts: nn.Tensor, count: int) -> nn.Tensor:
        """The products of rows (m, k) with those of `count` parts of this weight that are their experts (m, chosen)."""
        n = self.part.rows // count
        func = self.part.layout.expert_products(count, n, self.k)
        out = nn.Tensor.placeholder((*experts.shape, n), "float32")
        return op.tensor_ir_op(func, f"{self.name}_expert_products", [x, experts, *self.arrays], out)

    def take(self, numbers: nn.Tensor) -> nn.Tensor:
        """The rows of these numbers (m,), float32 (m, k)."""
        func = self.part.layout.take_rows(self.part.rows, self.k)
        out = nn.Tensor.placeholder((numbers.shape[0], self.k), "float32")
        return op.tensor_ir_op(func, f"{self.name}_take", [numbers, *self.arrays], out)


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
    return op.tensor_ir_op(quantize_rows(k, kind), "quantize_rows", [x], out)


class StoredLayer(nn.Module):
    """A layer whose weight (n, k) has parts in forms, one below the other."""

    def __init__(self, weights: Sequence[Weight], k: int, bias: nn.Parameter | None = None):
        self.weights = nn.ModuleList(list(weights))
        self.k, self.bias = k, bias

    def project(self, x: nn.Tensor) -> nn.Tensor:
        """x @ weight.T + bias"""
        weights = [weight for weight in self.weights if isinstance(weight, Weight)]
        kinds: dict[Rows, None] = {weight.part.layout.rows: None for weight in weights}
        rows = {kind: rows_of(x, self.k, kind) for kind in kinds}
        products = [weight.project(rows[weight.part.layout.rows]) for weight in weights]
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
        super().__init__([Weight(part, k)], k)
        self.count = count

    def forward(self, x: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
        weight = self.weights[0]
        assert isinstance(weight, Weight)
        return weight.of_experts(x, experts, self.count)


class _Store(nn.Mutator):
    def __init__(self, parts_of: PartsOf):
        self.parts_of = parts_of

    def visit_module(self, name: str, node: nn.Module) -> Any:
        if isinstance(node, nn.Embedding):
            parts = self.parts_of(name, node.num, node.dim, 0)
            return StoredEmbedding([Weight(parts[0], node.dim)], node.dim) if len(parts) == 1 else node
        if isinstance(node, nn.Linear):
            parts, k = self.parts_of(name, node.out_features, node.in_features, 0), node.in_features
            return StoredLinear([Weight(part, k) for part in parts], k, node.bias) if parts else node
        if isinstance(node, ExpertLinear):
            parts = self.parts_of(name, node.n, node.k, node.count)
            return StoredExperts(parts[0], node.count, node.k) if len(parts) == 1 else node
        return super().visit_module(name, node)


def stored(model: _Model, parts_of: PartsOf) -> _Model:
    """The model with linear layers, embeddings and experts that keep their weights in parts; those without parts stay
    as they are.
    """
    return _Store(parts_of).visit("", model)
