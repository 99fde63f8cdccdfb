"""Importing the graphs of ATen's operators that `torch.compile` gives to its backends: a forward or a backward pass.

Their tensors may lie in memory with their dimensions in any order. Parameters and results of the function that is made
are contiguous: they have the dimensions in that order, and are permuted inside of the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.module import IRModule
from ....tir.analysis.variables import variables
from ... import op
from ...expr import Call, Expr, ShapeExpr, Var
from ...expr import Tuple as GraphTuple
from ...struct_info import ShapeStructInfo, TensorStructInfo
from ...transform.lift_transform_params import LIFTED
from .aten import AtenImporter, is_example

_ADVICE = (
    "What to do: write the model with operators that can be imported, or take the part with them out by "
    'torch.compiler.disable. Without options={"fallback": False}, PyTorch runs them.'
)


@dataclass(frozen=True)
class Argument:
    """One parameter of a subgraph's function: what it takes, and how it is passed."""

    place: int
    """The placeholder that it is."""
    kind: str
    """"tensor" or "number"."""
    order: tuple[int, ...] | None = None
    """The order in which a tensor's dimensions are passed; None is their own."""


@dataclass(frozen=True)
class Result:
    """One result of a subgraph: where it comes from, and how it is returned."""

    kind: str
    """"tensor" or "number", the next result of the function; "argument", a placeholder; or "known"."""
    value: Any = None
    """Of a tensor, the order that makes it what PyTorch has, or None; an argument's place; what is known."""


class SubgraphImporter(AtenImporter):
    """Imports one graph; `frozen` has the tensors that become constants, by the index of their placeholder.

    The parameters at the places in `weights` come last. What depends on them alone is taken off while compiling, into
    `main_transform_params`.
    """

    model_kind = "subgraph"
    advice = _ADVICE

    def __init__(self, graph_module: Any, frozen: Mapping[int, Any] | None = None, weights: Sequence[int] = ()):
        super().__init__(graph_module)
        self.frozen = frozen or {}
        self.weights = [i for i in weights if i not in self.frozen]
        self.arguments: list[Argument] = []
        self.results: list[Result] = []

    def run(self) -> IRModule:
        nodes = list(self.graph_module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        for i, node in enumerate(placeholders):
            if i in self.frozen:
                with self.reporting(node, "weight"):
                    self.env[node] = self.shared_constant(self.frozen[i])
        place = {node: i for i, node in enumerate(placeholders)}
        inputs = self.without_known_numbers([node for node in placeholders if node not in self.env])
        inputs = [n for n in inputs if place[n] not in self.weights] + [placeholders[i] for i in self.weights]
        self.read_inputs(inputs)
        orders = self.pass_in_memory_order(inputs)
        by_name = {node.name: node for node in inputs}
        for var in self.inputs:
            node = by_name[var.name]
            kind = "number" if isinstance(var.struct_info, ShapeStructInfo) else "tensor"
            self.arguments.append(Argument(place[node], kind, orders.get(var.name)))
        attrs = {"num_input": len(self.inputs) - len(self.weights), LIFTED: True} if self.weights else {}
        with self.block_builder.function("main", self.inputs, attrs):
            output: Any = None
            with self.body():
                for node in inputs:
                    if node.name in orders:
                        self.env[node] = self.emit(op.permute_dims(self.env[node], list(inverse(orders[node.name]))))
                self.assert_inputs(inputs)
                for node in nodes:
                    if node.op == "output":
                        values = self.results_of(node)
                        self.report()
                        made = self.returned(values, node.args[0], place)
                        output = self.result(made[0] if len(made) == 1 else GraphTuple(made))
                    elif node.op != "placeholder":
                        self.convert(node)
            self.block_builder.emit_func_output(output)
        return self.finished()

    def emit(self, expr: Expr) -> Var:
        """Gives an expression a variable. What permutes dimensions twice permutes them once, or is the tensor itself:
        memory orders and transposed matrices of linear layers' gradients cancel out.
        """
        before = self.permuted(expr)
        inner = None if before is None else self.permuted(self.block_builder.lookup_binding(before[0]))
        if before is not None and inner is not None:
            axes = [inner[1][i] for i in before[1]]
            if axes == sorted(axes):
                return inner[0]
            expr = op.permute_dims(inner[0], axes)
        return super().emit(expr)

    def permuted(self, expr: Expr | None) -> tuple[Var, list[int]] | None:
        """The variable whose dimensions an expression permutes, and their order; None if it is something else."""
        x = expr.args[0] if isinstance(expr, Call) and expr.op is op.permute_dims.op else None
        if not isinstance(expr, Call) or not isinstance(x, Var):
            return None
        axes = expr.attrs["axes"]
        return x, [*reversed(range(self.ndim(x)))] if axes is None else [int(i) for i in axes]

    def pass_in_memory_order(self, nodes: Sequence[Any]) -> dict[str, tuple[int, ...]]:
        """Gives the parameters the order in memory of their tensors; returns that, by name, where it is another."""
        orders: dict[str, tuple[int, ...]] = {}
        made = []
        env = {node.name: node for node in nodes}
        for var in self.inputs:
            node = env[var.name]
            order = memory_order(node.meta.get("val"))
            info = var.struct_info
            if order is not None and isinstance(info, TensorStructInfo) and info.extents is not None:
                orders[var.name] = order
                var = Var(var.name, TensorStructInfo([info.extents[i] for i in order], info.dtype))
                self.env[node] = var
            made.append(var)
        self.inputs = made
        return orders

    def without_known_numbers(self, nodes: list[Any]) -> list[Any]:
        """The inputs without integers that the extents of tensors tell: programs of tensors alone are native."""
        tensors = [node for node in nodes if is_example(node.meta.get("val"))]
        known = {e for node in tensors for e in self.extents(node.meta["val"]) if isinstance(e, Var | PrimExpr)}
        kept = []
        for node in nodes:
            number = node.meta.get("val")
            if type(number).__name__ == "SymInt":
                value = self.symbols.expression(number)
                if value in known or (isinstance(value, PrimExpr) and variables(value) <= known):
                    self.env[node] = value
                    continue
            kept.append(node)
        return kept

    def returned(self, values: Sequence[Any], nodes: Sequence[Any], place: Mapping[Any, int]) -> list[Expr]:
        """What the function returns: tensors in their order in memory, and symbolic integers as shapes."""
        made: list[Expr] = []
        for value, node in zip(values, nodes, strict=True):
            if node in place:
                self.results.append(Result("argument", place[node]))
            elif isinstance(value, PrimExpr):
                self.results.append(Result("number"))
                made.append(ShapeExpr([value]))
            elif isinstance(value, Expr):
                order = memory_order(node.meta.get("val"))
                self.results.append(Result("tensor", None if order is None else inverse(order)))
                made.append(value if order is None else self.emit(op.permute_dims(value, list(order))))
            else:
                self.results.append(Result("known", value))
        return made


def memory_order(example: Any) -> tuple[int, ...] | None:
    """The dimensions of a tensor from the largest stride to the smallest; None if that is their own order."""
    if not is_example(example):
        return None
    # The stride of a dimension of extent 1 means nothing; symbolic extents have the size of the example.
    extents, strides = ([_hint(v) for v in values] for values in (example.shape, example.stride()))
    moved = [i for i, extent in enumerate(extents) if extent != 1]
    by_stride = iter(sorted(moved, key=lambda i: -strides[i]))
    order = [next(by_stride) if i in moved else i for i in range(len(extents))]
    return None if order == sorted(order) else tuple(order)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes another."""
    return tuple(order.index(i) for i in range(len(order)))


def _hint(value: Any) -> int:
    node = getattr(value, "node", None)
    return int(value) if node is None else node.hint if node.hint is not None else 1 << 62
