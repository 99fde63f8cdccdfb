"""Conditions, loops and scans, whose parts are graphs of their own.

A loop is a function that calls itself:

    while_loop(states, captured, extents) =
        if condition(states, captured): while_loop(step(states, captured), captured, extents)
        else: states

Steps of a known number are unrolled if that is not long; else a counter and the rows of the results are states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .....ir.expr import IntImm, PrimExpr
from .....runtime.error import UnsupportedError
from .....tir.analysis.variables import variables
from .... import op
from ....copy_function import copy_with_new_vars
from ....expr import Call, Expr, Function, If, SeqExpr, ShapeExpr, Tuple, Var
from ....struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .. import operators
from ..aten import AtenImporter
from ..dtypes import as_operand
from ..importer import as_shape, fields_of, is_tensor
from ..registry import call_converter, converter, find_converter
from .indexing import select

if TYPE_CHECKING:
    from torch import fx

MOST_NODES = 2048
"""The most nodes that a scan is unrolled to."""


@converter("cond")
def cond(
    g: AtenImporter,
    condition: Any,
    true_graph: fx.GraphModule,
    false_graph: fx.GraphModule,
    operands: Sequence[Any] = (),
) -> Any:
    """What one of two graphs computes."""
    if isinstance(condition, (bool, int)):
        return g.subgraph(true_graph if condition else false_graph, operands)
    branches = [_scope(g, lambda graph=graph: g.subgraph(graph, operands)) for graph in (true_graph, false_graph)]
    return tuple(fields_of(g.emit(If(_flag(g, condition), *branches))))


@converter("with_effects")
def with_effects(g: AtenImporter, token: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """The token, and the results of an operator with effects, whose order PyTorch keeps by tokens."""
    name, overload = operators.name_of(target)
    function = find_converter(name, overload)
    if function is None:
        raise UnsupportedError(f"the importer has no converter for the operator {name}.{overload}")
    made = call_converter(function, g, args, kwargs)
    return (token, *made) if isinstance(made, tuple) else (token, made)


def _flag(g: AtenImporter, condition: Any) -> Expr:
    """A condition, which may be one of symbolic integers, as a tensor without dimensions."""
    if isinstance(condition, (list, tuple)):
        (condition,) = condition
    if isinstance(condition, PrimExpr):
        condition = condition.astype("int64")
    return g.reshaped(g.emit(as_operand(condition, "bool")), [])


def _scope(g: AtenImporter, values: Callable[[], Sequence[Any]]) -> SeqExpr:
    """A branch of the program, whose value is the tuple of what `values` emits."""
    builder = g.block_builder
    builder.begin_scope()
    builder.begin_binding_block()
    try:
        result = g.emit(Tuple([_as_value(v) for v in values()]))
    finally:
        blocks = builder.end_blocks()
        builder.end_scope()
    return SeqExpr(blocks, result)


def _as_value(value: Any) -> Expr:
    """A tensor, or a symbolic integer as a shape."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (int, PrimExpr)) and not isinstance(value, bool):
        return ShapeExpr([value])
    raise UnsupportedError(f"a part of the program that is run under a condition gives {value!r}; give tensors")


@converter("while_loop")
def while_loop(
    g: AtenImporter,
    cond_graph: fx.GraphModule,
    body_graph: fx.GraphModule,
    carried: Sequence[Any],
    captured: Sequence[Any] = (),
) -> Any:
    """The states after the last step of a loop, whose condition is a graph."""
    examples = [n.meta.get("val") for n in body_graph.graph.nodes if n.op == "placeholder"][: len(carried)]
    infos = [_state_info(g, example) for example in examples]
    return _loop(
        g,
        list(carried),
        infos,
        list(captured),
        lambda states, others: g.subgraph(cond_graph, [*states, *others]),
        lambda states, others: g.subgraph(body_graph, [*states, *others]),
    )


def _state_info(g: AtenImporter, example: Any) -> StructInfo:
    """What holds of a state in every step."""
    if type(example).__name__ == "SymInt":
        return ShapeStructInfo([g.symbols.expression(example)])
    if not hasattr(example, "shape"):
        raise UnsupportedError(f"a loop that carries {example!r} from step to step; carry tensors and integers")
    return g.tensor_info(example)


def _loop(
    g: AtenImporter,
    carried: list[Any],
    infos: Sequence[StructInfo],
    captured: list[Any],
    goes_on: Callable[[Sequence[Any], Sequence[Any]], Any],
    step: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
) -> tuple[Any, ...]:
    """Emits the first call of a function that calls itself; `infos` hold of the states in every step."""
    builder = g.block_builder
    tensors = [x for x in captured if isinstance(x, Expr)]
    symbols = list(dict.fromkeys(v for x in [*carried, *captured] for v in _symbols_of(x)))
    params = [Var(f"state{i}", info) for i, info in enumerate(infos)]
    inner = [Var(f"captured{i}", x.struct_info) for i, x in enumerate(tensors)]
    extents = Var("extents", ShapeStructInfo(symbols))
    result = TupleStructInfo([_known_outside(info, set(symbols)) for info in infos])
    whole = [*params, *inner, extents]
    callee = builder.add_func(
        copy_with_new_vars(Function(whole, SeqExpr([], Tuple(params)), result, True, {})), "while_loop"
    )
    states = [_in_body(p) for p in params]
    names = iter(inner)
    others = [next(names) if isinstance(x, Expr) else x for x in captured]

    def call(values: Sequence[Any], rest: Sequence[Expr]) -> Call:
        return Call(callee, [*map(_as_value, values), *rest, ShapeExpr(symbols)])

    builder.begin_scope(whole)
    builder.begin_binding_block()
    try:
        more = _flag(g, goes_on(states, others))
        taken = _scope(g, lambda: fields_of(g.emit(call(step(states, others), inner))))
        chosen = g.emit(If(more, taken, _scope(g, lambda: params)))
    finally:
        blocks = builder.end_blocks()
        builder.end_scope()
    builder.update_func(callee, copy_with_new_vars(Function(whole, SeqExpr(blocks, chosen), result, True, {})))
    return tuple(fields_of(g.emit(call(carried, tensors))))


def _in_body(param: Var) -> Any:
    """A state as nodes see it."""
    info = param.struct_info
    return info.values[0] if isinstance(info, ShapeStructInfo) and info.values else param


def _symbols_of(value: Any) -> list[Any]:
    """The symbolic variables in a value, or in its shape."""
    parts = [value] if isinstance(value, PrimExpr) else value.struct_info.extents if is_tensor(value) else []
    return [v for part in parts or () for v in sorted(variables(part), key=lambda v: v.name)]


def _known_outside(info: StructInfo, symbols: set[Any]) -> StructInfo:
    """The struct info of a last state for the caller, who knows the extents that depend on its own symbols only."""
    if isinstance(info, ShapeStructInfo):
        return ShapeStructInfo(ndim=info.ndim)
    assert isinstance(info, TensorStructInfo)
    known = all(variables(e) <= symbols for e in info.extents or ())
    return info if known else TensorStructInfo(dtype=info.dtype, ndim=info.ndim)


@converter("scan")
def scan(
    g: AtenImporter, graph: fx.GraphModule, init: Sequence[Any], xs: Sequence[Expr], captured: Sequence[Any] = ()
) -> Any:
    """A graph applied to the rows of tensors, one after the other, with states carried on: states, then results."""
    return _scan(g, graph, list(init), list(xs), list(captured), lambda carried, rows: [*carried, *rows])


@converter("map_impl")
def map_(g: AtenImporter, graph: fx.GraphModule, xs: Sequence[Expr], captured: Sequence[Any] = ()) -> Any:
    """A graph applied to each row of tensors."""
    return _scan(g, graph, [], list(xs), list(captured), lambda _, rows: list(rows))


def _scan(
    g: AtenImporter,
    graph: fx.GraphModule,
    carried: list[Any],
    xs: list[Expr],
    captured: list[Any],
    arguments: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
) -> tuple[Any, ...]:
    steps = g.shape(xs[0])[0]
    count = len(carried)
    if isinstance(steps, int) and 0 < steps * len(graph.graph.nodes) <= MOST_NODES:
        made: list[list[Any]] = []
        for i in range(steps):
            values = list(g.subgraph(graph, [*arguments(carried, [select(g, x, 0, i) for x in xs]), *captured]))
            carried = values[:count]
            made.append(values[count:])
        return (*carried, *(g.emit(op.stack(list(rows), 0)) for rows in zip(*made, strict=True)))
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    examples = [node.meta["val"] for node in output.args[0]]
    rows = [g.tensor_info(example) for example in examples[count:]]
    wholes = [TensorStructInfo([steps, *(row.extents or ())], row.dtype) for row in rows]
    index = g.symbols.fresh("i")
    infos = [ShapeStructInfo([index]), *(g.tensor_info(example) for example in examples[:count]), *wholes]
    start = [0, *carried, *(g.emit(op.zeros(as_shape(info.extents), info.dtype)) for info in wholes)]

    def step(states: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        place, *rest = states
        slices = [select(g, x, 0, place) for x in others[: len(xs)]]
        values = list(g.subgraph(graph, [*arguments(rest[:count], slices), *others[len(xs) :]]))
        filled = [_with_row(g, x, place, row) for x, row in zip(rest[count:], values[count:], strict=True)]
        return [place + 1, *values[:count], *filled]

    limit = steps if isinstance(steps, PrimExpr) else IntImm("int64", steps)
    _, *last = _loop(g, start, infos, [*xs, *captured], lambda states, _: states[0] < limit, step)
    return tuple(last)


def _with_row(g: AtenImporter, x: Expr, place: PrimExpr, row: Expr) -> Expr:
    """x with one row replaced."""
    return g.emit(op.slice_scatter(x, op.expand_dims(row, 0), place, place + 1, 1, axis=0))


@converter("associative_scan")
def associative_scan(g: AtenImporter, graph: fx.GraphModule, xs: Sequence[Expr], captured: Sequence[Any] = ()) -> Any:
    """What a graph makes of each row and all rows before it."""
    steps = g.static(g.shape(xs[0])[0], "the number of rows that are scanned")
    last: list[Any] = [select(g, x, 0, 0) for x in xs]
    made = [last]
    for i in range(1, steps):
        last = list(g.subgraph(graph, [*last, *(select(g, x, 0, i) for x in xs), *captured]))
        made.append(last)
    return tuple(g.emit(op.stack(list(rows), 0)) for rows in zip(*made, strict=True))
