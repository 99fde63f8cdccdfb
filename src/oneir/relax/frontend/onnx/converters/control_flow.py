"""Conditions, loops and scans: decided or unrolled while importing where that can be, else part of the program."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from .....runtime.error import InvalidValue, ShapeMismatch, UnsupportedError
from .... import op
from ....expr import Expr, If, SeqExpr, Tuple, const
from ....struct_info import TensorStructInfo, TupleStructInfo
from ..dtypes import dtype_name, extents_of
from ..objects import Kind, as_object, joined, kind_of
from ..registry import MISSING, NeedsControlFlow, RanksDiffer, converter
from .repetition import repeated

if TYPE_CHECKING:
    import onnx

    from ..importer import Importer

MOST_STEPS = 4096
"""The most steps that a loop is unrolled to."""


@converter("If")
def if_(g: Importer, condition: Expr, *, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto) -> Any:
    """What one of two graphs computes."""
    known = g.elements(g.reshaped(condition, []))
    if known is not None and isinstance(known[()], (bool, int)):
        return tuple(g.subgraph(then_branch if known[()] else else_branch, []))
    if g.block_builder.current_block_is_dataflow():
        raise NeedsControlFlow
    before = len(g.unsupported)
    found = [_branch(g, graph) for graph in (then_branch, else_branch)]
    branches = [None if b is None else b[0] for b in found]
    kinds = [b[1] for b in found if b is not None]
    imported = next((b for b in branches if b is not None), None)
    if imported is not None and all(isinstance(u.error, (InvalidValue, ShapeMismatch)) for u in g.unsupported[before:]):
        # Models may choose a branch by the shapes of inputs; the other one is then not valid for these shapes.
        reasons = "; ".join(f"{u.description}: {u.error}" for u in g.unsupported[before:])
        del g.unsupported[before:]
        branches = [_failing(g, imported, reasons) if b is None else b for b in branches]
    if any(b is None for b in branches):
        return tuple([MISSING] * len(then_branch.output))
    if _ranks(branches[0]) != _ranks(branches[1]):
        raise RanksDiffer
    both = g.block_builder.emit(If(g.reshaped(condition, []), *branches))
    results = [g.block_builder.emit(both[i]) for i in range(len(then_branch.output))]
    for i, result in enumerate(results):
        if not isinstance(result.struct_info, TensorStructInfo) and (kind := reduce(joined, [k[i] for k in kinds])):
            g.objects[result] = kind
    return tuple(results)


def _ranks(branch: SeqExpr | None) -> list[int]:
    """The numbers of dimensions of what a branch gives."""
    info = None if branch is None else branch.body.struct_info
    assert isinstance(info, TupleStructInfo)
    return [field.ndim if isinstance(field, TensorStructInfo) else -1 for field in info.fields]


def _branch(g: Importer, graph: onnx.GraphProto) -> tuple[SeqExpr, list[Kind]] | None:
    """A branch of the program, whose value is the tuple of a graph's outputs, and what is known of them.

    None if it cannot be imported.
    """
    with g.branch():
        g.block_builder.begin_scope()
        g.block_builder.begin_binding_block()
        try:
            values = g.subgraph(graph, [])
            imported = all(v is not MISSING for v in values)
            kinds = [kind_of(g, v) for v in values] if imported else []
            result = g.block_builder.emit(Tuple([as_object(g, v) for v in values])) if imported else None
        finally:
            blocks = g.block_builder.end_blocks()
            g.block_builder.end_scope()
    return None if result is None else (SeqExpr(blocks, result), kinds)


def _failing(g: Importer, like: SeqExpr, reasons: str) -> SeqExpr:
    """A branch that ends the program with an error, as far as types go with the same results as another one."""
    g.may_fail = True
    info = like.body.struct_info
    assert isinstance(info, TupleStructInfo)
    g.block_builder.begin_scope()
    g.block_builder.begin_binding_block()
    text = f"this branch of the model does not work for inputs of the given shapes: {reasons}"
    g.block_builder.emit(op.assert_op(const(False, "bool"), format=text.replace("{", "(").replace("}", ")")))
    values = []
    for field in info.fields:
        if not isinstance(field, TensorStructInfo) or field.extents is None:
            raise UnsupportedError("a branch that does not work for inputs of the given shapes, beside one that does")
        values.append(g.emit(op.zeros(list(field.extents), field.dtype)))
    result = g.block_builder.emit(Tuple(values))
    blocks = g.block_builder.end_blocks()
    g.block_builder.end_scope()
    return SeqExpr(blocks, result)


def _is_true(g: Importer, value: Any) -> bool | None:
    """Whether a condition holds, as far as that is known."""
    if value is None:
        return True
    known = g.elements(g.reshaped(value, []))
    return bool(known[()]) if known is not None and isinstance(known[()], (bool, int)) else None


@converter("Loop")
def loop(g: Importer, count: Expr | None, condition: Expr | None, *states: Any, body: onnx.GraphProto) -> Any:
    """A graph repeated, up to `count` times and as long as a condition holds: unrolled where both are known."""
    steps = None if count is None else g.elements(g.reshaped(count, []))
    limit: Any = MOST_STEPS + 1 if steps is None else steps[()]
    known = isinstance(limit, int) and (count is None or steps is not None)
    unrolled = _unrolled(g, limit, condition, states, body) if known else None
    return tuple(repeated(g, count, condition, states, body) if unrolled is None else unrolled)


def _unrolled(
    g: Importer, limit: int, condition: Expr | None, states: Sequence[Any], body: onnx.GraphProto
) -> Sequence[Any] | None:
    """What the loop gives; None where it is not known whether it goes on, or if it goes on for long."""
    carried: list[Any] = list(states)
    scanned: list[list[Expr]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    step, holds = 0, _is_true(g, condition)
    while holds and step < limit:
        if step == MOST_STEPS:
            return None
        values = g.subgraph(body, [const(step, "int64"), const(True, "bool"), *carried])
        if any(v is MISSING for v in values):
            return [MISSING] * (len(body.output) - 1)
        carried = values[1 : 1 + len(carried)]
        for rows, value in zip(scanned, values[1 + len(carried) :], strict=True):
            rows.append(value)
        holds = _is_true(g, values[0])
        step += 1
    if holds is None:
        return None
    rows = [_stacked(g, made, body.output[1 + len(carried) + i], 0) for i, made in enumerate(scanned)]
    return (*carried, *rows)


def _stacked(g: Importer, rows: Sequence[Expr], declared: Any, axis: int) -> Expr:
    """What the steps of a loop gave, along a new axis; of no steps, what the graph declares."""
    if rows:
        return g.emit(op.stack(list(rows), axis))
    tensor = declared.type.tensor_type
    extents = extents_of(tensor, g.symbols)
    if extents is None or not all(isinstance(e, int) for e in extents):
        raise UnsupportedError(f"a loop of no steps whose output `{declared.name}` has no declared shape")
    return g.constant(np.zeros([0, *extents]), dtype_name(tensor.elem_type))


@converter("Scan", since=8)
def scan_of_batches(
    g: Importer,
    lengths: Expr | None,
    *inputs: Expr,
    body: onnx.GraphProto,
    num_scan_inputs: int,
    directions: Any = None,
) -> Any:
    """A scan of each element of a batch."""
    if lengths is not None:
        raise UnsupportedError("a Scan over sequences of different lengths")
    states = len(inputs) - num_scan_inputs
    batch = g.static(g.shape(inputs[0])[0], "the size of a batch that is scanned")
    parts = []
    for b in range(batch):
        own = [_slice(g, x, 0, b) for x in inputs]
        parts.append(_scan(g, own, body, states, list(directions or [0] * num_scan_inputs), None, None, None))
    return tuple(g.emit(op.stack(list(values), 0)) for values in zip(*parts, strict=True))


@converter("Scan", since=9)
def scan(
    g: Importer,
    *inputs: Expr,
    body: onnx.GraphProto,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> Any:
    """A graph applied to the slices of tensors, one after the other, with states carried on; unrolled if the number of
    steps is known.
    """
    return _scan(
        g,
        inputs,
        body,
        len(inputs) - num_scan_inputs,
        list(scan_input_directions or [0] * num_scan_inputs),
        scan_input_axes,
        scan_output_axes,
        scan_output_directions,
    )


def _scan(
    g: Importer,
    inputs: Sequence[Expr],
    body: onnx.GraphProto,
    states: int,
    directions: Sequence[int],
    input_axes: Sequence[int] | None,
    output_axes: Sequence[int] | None,
    output_directions: Sequence[int] | None,
) -> tuple[Any, ...]:
    carried: list[Any] = list(inputs[:states])
    scanned = inputs[states:]
    axes = [g.axis(a, g.ndim(x)) for a, x in zip(input_axes or [0] * len(scanned), scanned, strict=True)]
    steps = g.shape(scanned[0])[axes[0]]
    if not isinstance(steps, int) or steps > MOST_STEPS:
        made = _scanned_by_loop(g, carried, scanned, axes, body, directions, steps)
        if any(v is MISSING for v in made):
            return tuple(made)
        for i in range(states, len(made)):
            if output_directions and output_directions[i - states]:
                made[i] = g.emit(op.flip(made[i], 0))
            axis = g.axis(output_axes[i - states], g.ndim(made[i])) if output_axes else 0
            if axis:
                made[i] = g.emit(op.permute_dims(made[i], [*range(1, axis + 1), 0, *range(axis + 1, g.ndim(made[i]))]))
        return tuple(made)
    rows: list[list[Expr]] = [[] for _ in range(len(body.output) - states)]
    for step in range(steps):
        slices = [
            _slice(g, x, a, steps - 1 - step if d else step) for x, a, d in zip(scanned, axes, directions, strict=True)
        ]
        values = g.subgraph(body, [*carried, *slices])
        if any(v is MISSING for v in values):
            return tuple([MISSING] * len(body.output))
        carried = values[:states]
        for made, value in zip(rows, values[states:], strict=True):
            made.append(value)
    outputs = []
    for i, made in enumerate(rows):
        if output_directions and output_directions[i]:
            made.reverse()
        axis = output_axes[i] if output_axes else 0
        outputs.append(_stacked(g, made, body.output[states + i], axis))
    return (*carried, *outputs)


def _scanned_by_loop(
    g: Importer,
    states: Sequence[Any],
    scanned: Sequence[Expr],
    axes: Sequence[int],
    body: onnx.GraphProto,
    directions: Sequence[int],
    steps: Any,
) -> list[Any]:
    """What a scan gives that stays in the program: a Loop whose body first takes the slices of its step."""
    import onnx

    make = onnx.helper
    count = g.of_elements(steps, "int64")
    step, going, last = "the step of the scan", "whether the scan goes on", "the last step of the scan"
    whole = [f"input {i} of the scan" for i in range(len(scanned))]
    nodes = [make.make_node("Sub", [last, step], ["the step from the end"])]
    for i, (name, axis, direction) in enumerate(zip(whole, axes, directions, strict=True)):
        place = "the step from the end" if direction else step
        nodes.append(make.make_node("Gather", [name, place], [body.input[len(states) + i].name], axis=axis))
    loop_body = onnx.GraphProto()
    loop_body.CopyFrom(body)
    del loop_body.node[:], loop_body.input[:], loop_body.output[:]
    loop_body.node.extend([*nodes, *body.node])
    loop_body.input.extend(
        [
            make.make_tensor_value_info(step, onnx.TensorProto.INT64, []),
            make.make_tensor_value_info(going, onnx.TensorProto.BOOL, []),
            *body.input[: len(states)],
        ]
    )
    loop_body.output.extend([loop_body.input[1], *body.output])
    scope = {last: g.emit(op.subtract(count, const(1, "int64"))), **dict(zip(whole, scanned, strict=True))}
    with g.scope(ChainMap(scope, g.env)):
        return repeated(g, count, None, states, loop_body)


def _slice(g: Importer, x: Expr, axis: int, index: int) -> Expr:
    shape = g.shape(x)
    one = g.emit(op.strided_slice(x, [axis], [index], [index + 1], assume_inbound=True))
    return g.reshaped(one, [*shape[:axis], *shape[axis + 1 :]])
