"""The pattern of a TensorIR function: how the elements that it writes depend on those that it reads.

Read off the blocks: loads at the indices of the store are elementwise, at some of them broadcast, at functions of them
injective; what has reduction axes reduces, and multiplies and sums are what elementwise code may be fused behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Add, Cast, IntImm, Mul, PrimExpr, Var
from ...ir.visitor import Visitor, post_order_visit
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, BufferStore, Stmt
from ..operator_facts import OpPattern


def op_pattern_of(func: PrimFunc) -> OpPattern:
    """The pattern of a function; `OPAQUE` for one that is not written in blocks of one store."""
    analyzer = _Analyzer(func)
    analyzer(func.body)
    return OpPattern.OPAQUE if analyzer.opaque or not analyzer.blocks else analyzer.kind


class _Analyzer(Visitor):
    def __init__(self, func: PrimFunc):
        super().__init__()
        self.parameters = set(func.buffer_map.values())
        self.kind = OpPattern.ELEMENTWISE
        self.opaque = False
        self.blocks = 0

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        self.visit(realize.block)

    def visit_Block(self, block: Block) -> None:
        if not block.iter_vars and block.name_hint == "root":
            self.visit(block.body)
            return
        self.blocks += 1
        found = _Accesses()
        found(block.body)
        if len(found.stores) != 1 or found.other:
            self.opaque = True
            return
        self.kind = self._combined(block, found.stores[0], found.loads)

    def _combined(self, block: Block, store: BufferStore, loads: list[BufferLoad]) -> OpPattern:
        pattern = access_pattern(store, loads)
        if pattern is not OpPattern.OPAQUE:
            writes_output = any(w.buffer in self.parameters for w in block.writes)
            if writes_output and self.kind is OpPattern.COMM_REDUCE:
                return OpPattern.OUT_EWISE_FUSABLE  # softmax: a reduction, then elementwise
            return max(self.kind, pattern)
        reduced = {iv.var for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce}
        if not reduced:
            return OpPattern.OPAQUE
        pure = all(_reduces_whole_axes(load.indices, reduced) for load in loads)
        if is_multiply_add(block.body) or not pure:  # products of matrices, convolutions; pooling
            return max(self.kind, OpPattern.OUT_EWISE_FUSABLE)
        return max(self.kind, OpPattern.COMM_REDUCE)


class _Accesses(Visitor):
    """The loads and stores of a block's body, and whether it does anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: list[BufferStore] = []
        self.loads: list[BufferLoad] = []
        self.other = False

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.stores.append(store)
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.loads.append(load)
        for index in load.indices:
            self.visit(index)

    def visit_Stmt(self, stmt: Stmt) -> None:
        self.other = True


def access_pattern(store: BufferStore, loads: Sequence[BufferLoad]) -> OpPattern:
    """How the indices of loads depend on those of the store; `OPAQUE` where they do not depend on them alone."""
    worst, elementwise = OpPattern.ELEMENTWISE, False
    for load in loads:
        if _is_elementwise(store, load):
            elementwise = True
        elif _is_broadcast(store, load):
            worst = max(worst, OpPattern.BROADCAST)
        elif _is_injective(store, load):
            worst = OpPattern.INJECTIVE
        else:
            return OpPattern.OPAQUE
    # With one elementwise operand, as adding a bias has, the others do not change the shape.
    return OpPattern.ELEMENTWISE if worst is OpPattern.BROADCAST and elementwise else worst


def _is_elementwise(store: BufferStore, load: BufferLoad) -> bool:
    return len(store.indices) == len(load.indices) and all(
        (a is b or (isinstance(a, IntImm) and isinstance(b, IntImm) and a.value == b.value)) and _same_extent(m, n)
        for a, b, m, n in zip(store.indices, load.indices, store.buffer.shape, load.buffer.shape, strict=True)
    )


def _is_broadcast(store: BufferStore, load: BufferLoad) -> bool:
    position = 0
    for extent, index in zip(load.buffer.shape, load.indices, strict=True):
        if _is_value(extent, 1) and _is_value(index, 0):
            continue
        while position < len(store.indices) and store.indices[position] is not index:
            position += 1
        if position == len(store.indices) or not _same_extent(store.buffer.shape[position], extent):
            return False
    return True


def _same_extent(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two extents may be the same: padding and slicing at the end read at the indices that they write."""
    return not isinstance(a, IntImm) or not isinstance(b, IntImm) or a.value == b.value


def _is_value(expr: PrimExpr, value: int) -> bool:
    return isinstance(expr, IntImm) and expr.value == value


def _variables(expr: PrimExpr) -> set[Var]:
    found: set[Var] = set()
    post_order_visit(expr, lambda node: found.add(node) if isinstance(node, Var) else None)
    return found


def _is_injective(store: BufferStore, load: BufferLoad) -> bool:
    written = {v for v in store.indices if isinstance(v, Var)}
    if any(not isinstance(i, (Var, IntImm)) for i in store.indices):
        return False
    symbolic = {v for e in (*store.buffer.shape, *load.buffer.shape) for v in _variables(e)}
    return all(_index_variables(index) <= written | symbolic for index in load.indices)


def _index_variables(index: PrimExpr) -> set[Var]:
    """The variables of an index; a load in it counts by its own indices."""
    if isinstance(index, Var):
        return {index}
    found: set[Var] = set()

    class Indices(Visitor):
        def visit_Var(self, var: Var) -> None:
            found.add(var)

        def visit_BufferLoad(self, load: BufferLoad) -> None:
            for inner in load.indices:
                self.visit(inner)

    Indices()(index)
    return found


def is_multiply_add(body: Stmt) -> bool:
    """Whether a block's body is `C[...] = C[...] + A[...] * B[...]`, operands possibly cast."""
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return False
    total, product = body.value.a, body.value.b
    if not isinstance(total, BufferLoad) or total.buffer is not body.buffer or not isinstance(product, Mul):
        return False
    return all(isinstance(_without_cast(factor), BufferLoad) for factor in (product.a, product.b))


def _without_cast(expr: PrimExpr) -> PrimExpr:
    return expr.value if isinstance(expr, Cast) else expr


def _reduces_whole_axes(indices: Sequence[PrimExpr], reduced: set[Var]) -> bool:
    return all(isinstance(i, Var) or not (_variables(i) & reduced) for i in indices)
