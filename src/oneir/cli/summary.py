"""What is in a module, as data and as text: functions, inputs and results, weights, operators."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..ir.expr import GlobalVar, IntImm
from ..ir.module import IRModule
from ..ir.op import Op
from ..relax.expr import OUTPUT_NAMES, Call, Constant, ExternFunc, Function
from ..relax.expr_functor import PyExprVisitor
from ..relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..tir.analysis import undefined_vars
from ..tir.function import PrimFunc
from ..tir.transform.make_packed_api import _extent as extent_text
from .console import counted, size_text, table


@dataclass
class Value:
    """An input or a result; `shape` is None where not even the number of dimensions is known."""

    name: str
    type: str
    dtype: str | None = None
    shape: list[int | str] | None = None

    def __str__(self) -> str:
        if self.type != "tensor":
            return self.type
        return f"{self.dtype}[{'...' if self.shape is None else ', '.join(map(str, self.shape))}]"


@dataclass
class Weights:
    """The constants of a function; one that stands in several places counts once."""

    tensors: int = 0
    numbers: int = 0
    bytes: int = 0


@dataclass
class GraphSummary:
    """What is in a graph function. `operators` has how often each is called, most often first."""

    name: str
    inputs: list[Value]
    outputs: list[Value]
    symbolic: list[str]
    weights: Weights = field(default_factory=Weights)
    operators: dict[str, int] = field(default_factory=dict)


@dataclass
class Summary:
    """What is in a module: its graphs, and its loops as their signatures."""

    graphs: list[GraphSummary]
    loops: list[str]

    def as_json(self) -> dict[str, Any]:
        """The summary as what JSON has."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [_graph_text(graph) for graph in self.graphs]
        if self.loops:
            shown = self.loops[:_MOST_LOOPS]
            rest = [f"  ... {len(self.loops) - len(shown)} more"] if len(self.loops) > len(shown) else []
            head = counted(len(self.loops), "function of loops", "functions of loops")
            parts.append("\n".join([head, *(f"  {loop}" for loop in shown), *rest]))
        return "\n\n".join(parts) or "an empty module"


_MOST_LOOPS = 20


def summarize(mod: IRModule) -> Summary:
    """What is in a module."""
    graphs = [_summary(v.name_hint, f) for v, f in mod.functions_items() if isinstance(f, Function)]
    return Summary(graphs, [_signature(v.name_hint, f) for v, f in mod.functions_items() if isinstance(f, PrimFunc)])


def _summary(name: str, func: Function) -> GraphSummary:
    counter = _Counter()
    counter.visit_expr(func)
    symbols: dict[str, None] = {}
    for param in func.params:
        _symbols(param.struct_info, symbols)
    return GraphSummary(
        name,
        [_value(param.name_hint, param.struct_info) for param in func.params],
        [_value(n, info) for n, info in zip(names_of_results(func), _flat(func.ret_struct_info), strict=False)],
        list(symbols),
        counter.weights(),
        dict(counter.operators.most_common()),
    )


class _Counter(PyExprVisitor):
    """Counts the calls of operators and what is called otherwise, and the constants."""

    def __init__(self) -> None:
        self.operators: Counter[str] = Counter()
        self.constants: dict[int, Any] = {}

    def visit_call_(self, op: Call) -> None:
        callee = op.op
        if isinstance(callee, Op):
            self.operators[callee.name] += 1
        elif isinstance(callee, ExternFunc):
            self.operators[f"the packed function {callee.global_symbol}"] += 1
        elif isinstance(callee, GlobalVar):
            self.operators[f"the function {callee.name_hint}"] += 1
        for arg in op.args:
            self.visit_expr(arg)

    def visit_constant_(self, op: Constant) -> None:
        self.constants[id(op.data)] = op.data

    def weights(self) -> Weights:
        """What the constants are together."""
        data = self.constants.values()
        return Weights(len(data), sum(d.size for d in data), sum(d.nbytes for d in data))


def _flat(info: StructInfo) -> list[StructInfo]:
    """The values in a result, those in tuples one by one."""
    return [part for f in info.fields for part in _flat(f)] if isinstance(info, TupleStructInfo) else [info]


def names_of_results(func: Function) -> Iterator[str]:
    """The names of the results that the model gives, then ones of their positions."""
    given = [str(name) for name in func.attrs.get(OUTPUT_NAMES, ())]
    yield from given
    yield from (f"output_{i}" for i in itertools.count(len(given)))


def _value(name: str, info: StructInfo) -> Value:
    if not isinstance(info, TensorStructInfo):
        return Value(name, str(info).removeprefix("R."))
    shape: list[int | str] | None = [*["?"] * info.ndim] if info.ndim >= 0 else None
    if info.extents is not None:
        shape = [e.value if isinstance(e, IntImm) else str(extent_text(e)) for e in info.extents]
    return Value(name, "tensor", str(info.dtype) if info.dtype != "void" else "unknown", shape)


def _symbols(info: StructInfo, found: dict[str, None]) -> None:
    """The names of the symbolic variables in struct info, in their order."""
    if isinstance(info, TupleStructInfo):
        for part in info.fields:
            _symbols(part, found)
    extents = info.extents if isinstance(info, TensorStructInfo) else None
    if isinstance(info, ShapeStructInfo):
        extents = info.values
    for extent in extents or ():
        for var in undefined_vars(extent):
            found.setdefault(var.name_hint)


def _signature(name: str, func: PrimFunc) -> str:
    parts = []
    for param in func.params:
        if param in func.buffer_map:
            buffer = func.buffer_map[param]
            parts.append(f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]")
        else:
            parts.append(f"{param.name_hint}: {param.dtype}")
    return f"{name}({', '.join(parts)})"


def _graph_text(graph: GraphSummary) -> str:
    rows = [("input", v.name, str(v)) for v in graph.inputs] + [("output", v.name, str(v)) for v in graph.outputs]
    lines = [f"graph {graph.name}", table(rows, "<<<", "  ")]
    if graph.symbolic:
        lines.append(f"  symbolic  {', '.join(graph.symbolic)}: any extent, known when the model runs")
    weights = graph.weights
    if weights.tensors:
        tensors = counted(weights.tensors, "tensor")
        lines.append(f"  weights   {tensors}, {counted(weights.numbers, 'number')}, {size_text(weights.bytes)}")
    calls = sum(graph.operators.values())
    lines.append(f"  {counted(calls, 'call')} of {counted(len(graph.operators), 'operator')}:")
    lines.append(table([(count, name) for name, count in graph.operators.items()], "><", "    "))
    return "\n".join(lines)
