"""What inlining costs: a value that is read at several places is computed at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Call, Var
from ...ir.visitor import Visitor
from ...tir.expr import BufferLoad
from ...tir.stmt import Block, BufferStore
from ...tir.stmt_functor import loads, substitute

MOST_RECOMPUTED = 64
"""What an element may cost besides the first time, if consumers read it at several places: a node of an expression
costs 1, a call such as an exponential 16."""
MOST_NODES = 4096
"""The nodes of an expression to which inlining may lead: chains that use a value twice double it with each link."""


def stays_small(block: Block, consumers: Sequence[Block]) -> bool:
    """Whether a block can be inlined without computing much again, or expressions too long to handle."""
    if not isinstance(block.body, BufferStore):
        return True
    most = max((len(consumer.iter_vars) for consumer in consumers), default=0)
    axes = [Var(f"v{i}", "int64") for i in range(most)]
    count, distinct = 0, []
    for consumer in consumers:
        named = {iv.var: ops.cast(iv.var.dtype, axis) for iv, axis in zip(consumer.iter_vars, axes, strict=False)}
        for load in loads(consumer.body):
            if load.buffer is block.body.buffer:
                count += 1
                indices = [substitute(index, named) for index in load.indices]
                if not any(ops.same_exprs(indices, other) for other in distinct):
                    distinct.append(indices)
    if count < 2:
        return True
    size = _Size()
    size(block.body.value)
    return size.nodes * count <= MOST_NODES and (len(distinct) - 1) * size.cost <= MOST_RECOMPUTED


class _Size(Visitor):
    """Counts the nodes of an expression, and what they cost; the indices of loads count as nodes only."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = self.cost = 0

    def generic_visit(self, node: Any) -> Any:
        self.nodes += 1
        self.cost += 16 if isinstance(node, Call) else 1
        return super().generic_visit(node)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        cost = self.cost
        self.generic_visit(load)
        self.cost = cost + 1
