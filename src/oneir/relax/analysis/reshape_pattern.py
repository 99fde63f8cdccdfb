"""Whether a PrimFunc only gives a tensor another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map
from ...ir.expr import IntImm, PrimExpr, Var, const
from ...ir.visitor import post_order_visit
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether a function copies its first buffer to its last one, each element to its index in row-major order.

    It may do so in several steps, as fused reshapes do. Where numbers in memory say how many rows are copied, as those
    of a ragged tensor's parts, they are taken to be all.
    """
    if len(func.params) < 2:
        return False
    source, target = func.buffer_map.get(func.params[0]), func.buffer_map.get(func.params[-1])
    if source is None or target is None or source.dtype != target.dtype:
        return False
    for step in _steps(func.body):
        blocks = _nested_blocks(step)
        store = blocks[-1].body if blocks else None
        if not isinstance(store, BufferStore) or not _is_reshape(blocks, store, source):
            return False
        source = store.buffer
    return source is target


def _steps(body: Stmt) -> Sequence[Stmt]:
    """The statements of a function's body, one after the other."""
    inside = body.block.body if isinstance(body, BlockRealize) and not body.block.iter_vars else None
    return inside.seq if isinstance(inside, SeqStmt) else [body]


def _is_reshape(blocks: Sequence[Block], store: BufferStore, source: Buffer) -> bool:
    """Whether the innermost of nested blocks copies a buffer to another one, of another shape."""
    load, target = store.value, store.buffer
    if not isinstance(load, BufferLoad) or load.buffer is not source or any(b.init is not None for b in blocks):
        return False
    analyzer = Analyzer()
    domains: dict[Var, Any] = {}
    for iter_var in (v for block in blocks for v in block.iter_vars):
        if iter_var.iter_type != iter_var.DataPar:
            return False
        domains[iter_var.var] = iter_var.dom
        analyzer.bind(iter_var.var, iter_var.dom)
    extents = [domain.extent for domain in domains.values()]
    sizes = _product(source.shape), _product(target.shape)
    if any(map(_reads_memory, extents)):
        return analyzer.can_prove_equal(*sizes) and analyzer.can_prove_equal(
            _flat(load.indices, source.shape), _flat(store.indices, target.shape)
        )
    count = _product(extents)
    if not all(analyzer.can_prove_equal(count, size) for size in sizes):
        return False
    if isinstance(count, IntImm) and not count.value:
        # Places without elements are no numbers to any base; and there is nothing to gain.
        return False
    written = _flat(store.indices, target.shape)
    same_place = analyzer.can_prove_equal(_flat(load.indices, source.shape), written)
    if not same_place and not _are_digits(load.indices, source.shape, written, analyzer):
        return False
    # Every element is written once: with as many iterations as elements, none may be written twice.
    if len(set(store.indices)) == len(store.indices) and domains.keys() <= set(store.indices):
        return True
    return not domains or bool(detect_iter_map([written], domains, True, IterMapLevel.Bijective).indices)


def _nested_blocks(stmt: Any) -> list[Block]:
    """The blocks that stand in one another, with loops around them, the innermost last; none if one has a predicate."""
    blocks: list[Block] = []
    while True:
        if isinstance(stmt, For):
            stmt = stmt.body
        elif isinstance(stmt, BlockRealize):
            predicate = stmt.predicate
            if not (isinstance(predicate, IntImm) and predicate.value):
                return []
            blocks.append(stmt.block)
            stmt = stmt.block.body
        else:
            return blocks


def _reads_memory(expr: PrimExpr) -> bool:
    found: list[BufferLoad] = []
    post_order_visit(expr, lambda node: found.append(node) if isinstance(node, BufferLoad) else None)
    return bool(found)


def _product(extents: Sequence[PrimExpr]) -> PrimExpr:
    result = const(1, "int64")
    for extent in extents:
        result = result * extent.astype("int64")
    return result


def _flat(indices: Sequence[PrimExpr], shape: Sequence[PrimExpr]) -> PrimExpr:
    """The row-major index of an element."""
    result = const(0, "int64")
    for index, extent in zip(indices, shape, strict=True):
        result = result * extent.astype("int64") + index.astype("int64")
    return result


def _are_digits(indices: Sequence[PrimExpr], shape: Sequence[PrimExpr], flat: PrimExpr, analyzer: Analyzer) -> bool:
    """Whether indices are the digits of a row-major index, each written as a quotient's remainder.

    With symbolic extents this can be seen where the index that they make together cannot be simplified.
    """
    stride: PrimExpr = const(1, "int64")
    step_by_step = flat
    for position in reversed(range(len(shape))):
        extent, index = shape[position].astype("int64"), indices[position].astype("int64")
        quotients = [flat // stride, step_by_step]
        digits = [quotient % extent for quotient in quotients] + ([] if position else quotients)
        if not any(analyzer.can_prove_equal(index, digit) for digit in digits):
            return False
        stride, step_by_step = stride * extent, step_by_step // extent
    return True
