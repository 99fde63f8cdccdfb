"""Filling the padding: the elements that a new layout adds.

The padding of an input is assumed to hold its value; a block that writes the whole buffer writes the padding as well;
otherwise a new block fills it after the last write.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, const
from ...ir.operators import same_expr
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..index_map import IndexMap
from ..op import assume, if_then_else
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, ForKind, Stmt
from ..stmt_functor import substitute
from .domain import domain_of, loops_above
from .edit import ScopeEdit, as_list
from .state import ScheduleState

if TYPE_CHECKING:
    from .layout import RemapBuffer


def pad_layout(
    state: ScheduleState,
    site: StmtSRef,
    edit: RemapBuffer,
    inverse: IndexMap,
    padding: PrimExpr,
    pad_value: IndexMap,
    is_parameter: bool,
) -> None:
    """Changes the layout of a buffer, and fills what is padding."""
    old, new = edit.old, edit.new
    variables = [Var(f"axis{i}", dim.dtype) for i, dim in enumerate(new.shape)]
    padding = substitute(padding, dict(zip(inverse.initial_indices, variables, strict=True)))
    writers = [b for b in _leaves(state, site) if any(w.buffer is old for w in b.stmt.writes)]
    block: Block = site.stmt
    if not writers:
        filled = ScopeEdit({}, {block: (0, _assumptions(new, variables, padding, pad_value))})(block)
    elif len(writers) == 1 and _writes_row_by_row(state, writers[0], old):
        top = _top(writers[0], site)
        stmt, written = _padded_writer(writers[0].stmt, new, inverse, padding, pad_value, variables)
        edit.changed(writers[0].stmt, written)
        filled = ScopeEdit({top: stmt})(block)
    else:
        position = as_list(block.body).index(_top(writers[-1], site)) + 1
        filled = ScopeEdit({}, {block: (position, _filling(new, variables, padding, pad_value))})(block)
    changed = edit(filled)
    edit.changed(block, changed)
    if is_parameter:
        var, func = state.function_of(site)
        buffers = {param: new if b is old else b for param, b in func.buffer_map.items()}
        state.update_function(var, func.replace(buffer_map=buffers))
    state.replace(site, changed, edit.reuse)


def _leaves(state: ScheduleState, site: StmtSRef) -> list[StmtSRef]:
    """The blocks below a block that hold no others."""
    found: list[StmtSRef] = []
    for child in state.child_blocks(site):
        found += _leaves(state, child) or [child]
    return found


def _top(sref: StmtSRef, site: StmtSRef) -> Any:
    """The statement of a block's body that another block stands in."""
    inner = sref
    while inner.parent is not site:
        inner = inner.parent
    stmt = inner.stmt
    return next(s for s in as_list(site.stmt.body) if stmt in (s, getattr(s, "block", None)))


def _writes_row_by_row(state: ScheduleState, writer: StmtSRef, buffer: Buffer) -> bool:
    """Whether a block stores each element of a buffer once, in order, under loops that hold nothing else."""
    block, realize = writer.stmt, state.realize_of(writer)
    loops = list(loops_above(writer.parent))[::-1]
    body = block.body
    return (
        isinstance(body, BufferStore)
        and body.buffer is buffer
        and block.init is None
        and all(r.buffer is not buffer for r in block.reads)
        and len(block.iter_vars) == len(body.indices) == len(loops)
        and is_number(realize.predicate, 1)
        and all(v.iter_type == IterVar.DataPar for v in block.iter_vars)
        and all(v.var is index for v, index in zip(block.iter_vars, body.indices, strict=True))
        and all(value is loop.stmt.loop_var for value, loop in zip(realize.iter_values, loops, strict=True))
        and all(same_expr(domain_of(v).extent, dim) for v, dim in zip(block.iter_vars, buffer.shape, strict=True))
        and all(outer.stmt.body is inner.stmt for outer, inner in itertools.pairwise(loops))
        and isinstance(loops[-1].stmt.body, BlockRealize)
    )


def _iteration(buffer: Buffer, variables: list[Var]) -> list[IterVar]:
    """Variables of a block that runs over a buffer."""
    return [
        IterVar(Range.from_min_extent(const(0, v.dtype), dim), Var(f"v_{v.name}", v.dtype), IterVar.DataPar)
        for v, dim in zip(variables, buffer.shape, strict=True)
    ]


def _nest(buffer: Buffer, variables: list[Var], realize: BlockRealize) -> Stmt:
    """Loops over a buffer."""
    stmt: Stmt = realize
    for var, dim in reversed(list(zip(variables, buffer.shape, strict=True))):
        stmt = For(var, const(0, var.dtype), dim, ForKind.SERIAL, stmt)
    return stmt


def _assumptions(buffer: Buffer, variables: list[Var], padding: PrimExpr, pad_value: IndexMap) -> Stmt:
    """A block of `T.assume` calls that state which value the padding of an input has."""
    iters = _iteration(buffer, variables)
    point: list[Any] = [v.var for v in iters]
    value = pad_value.map_indices(point)[0]
    inside = substitute(padding, dict(zip(variables, point, strict=True)))
    known = ops.logical_or(ops.logical_not(inside), ops.equal(BufferLoad(buffer, point), value))
    body = Evaluate(assume(known))
    block = Block(iters, [BufferRegion.from_point(buffer, point)], (), f"buffer_{buffer.name}_assumptions", body)
    return _nest(buffer, variables, BlockRealize(variables, IntImm("bool", 1), block))


def _filling(buffer: Buffer, variables: list[Var], padding: PrimExpr, pad_value: IndexMap) -> Stmt:
    """A block that fills the padding."""
    iters = _iteration(buffer, variables)
    point: list[Any] = [v.var for v in iters]
    body = BufferStore(buffer, pad_value.map_indices(point)[0], point)
    block = Block(iters, (), [BufferRegion.from_point(buffer, point)], f"buffer_{buffer.name}_padding", body)
    return _nest(buffer, variables, BlockRealize(variables, padding, block))


def _padded_writer(
    block: Block, buffer: Buffer, inverse: IndexMap, padding: PrimExpr, pad_value: IndexMap, variables: list[Var]
) -> tuple[Stmt, Block]:
    """The writer of a buffer as one that runs over the new layout, and writes the padding too."""
    iters = _iteration(buffer, variables)
    point: list[Any] = [v.var for v in iters]
    renamed: dict[Var, Any] = dict(zip(inverse.initial_indices, point, strict=True))
    olds: dict[Var, Any] = {
        v.var: substitute(index, renamed) for v, index in zip(block.iter_vars, inverse.final_indices, strict=True)
    }
    store: Any = block.body
    inside = substitute(padding, dict(zip(variables, point, strict=True)))
    value = if_then_else(inside, pad_value.map_indices(point)[0], substitute(store.value, olds))
    new = block.replace(
        iter_vars=Array(iters),
        reads=Array(substitute(r, olds) for r in block.reads),
        writes=Array([BufferRegion.from_point(buffer, point)]),
        body=BufferStore(buffer, value, point),
    )
    return _nest(buffer, variables, BlockRealize(variables, IntImm("bool", 1), new)), new
