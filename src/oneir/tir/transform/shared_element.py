"""Whether the lanes of a vectorized loop must run one after the other, because of an element that they share.

for i in T.vectorized(8):
    C[0] = A[i]              # every lane stores here ...
    B[i] = C[0]              # ... and reads what it stored: not what the last lane did

One statement that stores to such an element may run for all lanes before the next statement does, which is how it
becomes a serial loop of its own. As soon as others use the element, or an inner loop comes back to it in a way that
depends on the order, the whole loop is one that runs lane by lane. So is one whose lanes load what others store, at a
distance that is known: B[i + 1] = B[i].
"""

from __future__ import annotations

from typing import Any

from ...arith.analyzer import Analyzer
from ...ir import operators as ops
from ...ir.expr import Add, IntImm, Let, Max, Min, Mul, Sub, Var
from ...ir.structural import structural_equal
from ...ir.visitor import Visitor, post_order_visit
from ..expr import BufferLoad
from ..stmt import Allocate, BufferStore, DeclBuffer, For, LetStmt, Stmt, While
from ..stmt_functor import substitute
from .analyzed import reads, uses


def lanes_are_ordered(loop: For) -> bool:
    """Whether running each statement of a loop for all lanes at once could change what the loop computes."""
    walk = _Walk(loop)
    walk(loop.body)
    return walk.ordered or any(walk.users[data] > 1 for data in walk.shared) or _carries(loop, walk)


def _carries(loop: For, walk: _Walk) -> bool:
    """Whether a lane loads what another one stores, as in B[i + 1] = B[i]: constant distances are known."""
    analyzer, var = Analyzer(), loop.loop_var
    for store in walk.stores:
        for load in walk.loads.get(store.buffer.data, ()):
            if load.buffer is not store.buffer or structural_equal(load.indices, store.indices):
                continue
            if not structural_equal(load.indices[:-1], store.indices[:-1]):
                continue
            old, new = load.indices[-1], store.indices[-1]
            if not new.dtype.is_scalar or new.dtype is not old.dtype:
                continue
            distance = analyzer.simplify(new - old)
            if not isinstance(distance, IntImm) or distance.value == 0:
                continue  # unknown, or the lane's own element by indices of another form
            stride = analyzer.simplify(substitute(new, {var: ops.add(var, 1)}) - new)
            if not isinstance(stride, IntImm) or stride.value == 0 or distance.value % stride.value:
                continue
            if isinstance(loop.extent, IntImm) and abs(distance.value // stride.value) >= loop.extent.value:
                continue
            return True
    return False


class _Walk(Visitor):
    """Finds memory that is stored to at indices equal in all lanes, and counts the statements that use it."""

    def __init__(self, loop: For):
        self.lane = {loop.loop_var}
        """The loop variable, and what is bound to a value that it makes."""
        self.shared: set[Var] = set()
        self.own: set[Var] = set()
        self.users: dict[Var, int] = {}
        self.inner_loops = 0
        self.ordered = False
        self.stores: list[BufferStore] = []
        self.loads: dict[Var, list[BufferLoad]] = {}

    def visit(self, node: Any) -> None:
        if isinstance(node, Stmt):
            super().visit(node)
        else:
            self.count(node)

    def count(self, node: Any) -> None:
        """Counts one user of all memory that a statement or an expression mentions."""
        mentioned: set[Var] = set()

        def check(n: Any) -> None:
            if isinstance(n, (BufferLoad, BufferStore)):
                mentioned.add(n.buffer.data)
                if isinstance(n, BufferLoad):
                    self.loads.setdefault(n.buffer.data, []).append(n)
            elif n.is_variable:
                mentioned.add(n)
            elif isinstance(n, Let) and uses(n.value, self.lane):
                self.lane.add(n.var)

        post_order_visit(node, check)
        for data in mentioned:
            self.users[data] = self.users.get(data, 0) + 1

    def visit_For(self, node: For) -> None:
        self.repeated(node)

    def visit_While(self, node: While) -> None:
        self.repeated(node)

    def repeated(self, node: For | While) -> None:
        self.inner_loops += 1
        self.generic_visit(node)
        self.inner_loops -= 1

    def visit_LetStmt(self, node: LetStmt) -> None:
        if uses(node.value, self.lane):
            self.lane.add(node.var)
        self.generic_visit(node)

    def visit_Allocate(self, node: Allocate) -> None:
        self.own.add(node.buffer_var)
        self.generic_visit(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.visit(node.body)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.count(node)
        data = node.buffer.data
        if data not in self.own and node.indices:
            self.stores.append(node)
        if data in self.own or any(uses(index, self.lane) for index in node.indices):
            return
        self.shared.add(data)
        if self.inner_loops and reads(node.value, data) and not _accumulates(node):
            self.ordered = True


def _accumulates(store: BufferStore) -> bool:
    """Whether a store adds to an element, or multiplies it or takes an extremum: the order of such steps is free."""
    value = store.value
    if not isinstance(value, (Add, Sub, Mul, Min, Max)):
        return False
    sides = [(value.a, value.b)] if isinstance(value, Sub) else [(value.a, value.b), (value.b, value.a)]
    return any(
        isinstance(old, BufferLoad)
        and old.buffer is store.buffer
        and structural_equal(old.indices, store.indices)
        and not reads(new, store.buffer.data)
        for old, new in sides
    )
