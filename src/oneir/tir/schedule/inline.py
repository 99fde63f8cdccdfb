"""Inlining: a block's computation becomes part of its consumers or of its producer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...arith import Analyzer, IntervalSet, IterMapLevel, detect_iter_map, inverse_affine_iter_map
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.operators import same_expr, same_exprs
from ..analysis import get_block_read_write_region
from ..block_scope import DepKind, StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad
from ..stmt import Block, BlockRealize, BufferStore, IfThenElse, MatchBufferRegion, Stmt
from ..stmt_functor import ir_transform, post_order_visit, substitute
from .base import ScheduleBase
from .conditions import as_block, check_complete, is_complete, scope_root_of
from .domain import own_domains
from .edit import BlockEdit, ScopeEdit, removable
from .error import PrimitiveError
from .instruction import InstructionKind
from .lookup import is_output
from .random_variable import BlockRV
from .state import ScheduleState

INLINE_BODY = """The body of the inlined block should be in form of
    'A[i, j, k, ...] = f(i, j, k, ...)',
where the indices on the left are distinct atomic variables,
and there should be no variables other than the index variables"""
REVERSE_INLINE_BODY = """The body of the inlined block should be in form of
    `B[...] = g(i, j, k, A[f(i, j, k, ...)] ...)`,
where A is the only buffer the block consumes, whose indices are bijective affine expressions of the block's variables,
and there should be no predicate; what the block iterates over should be covered by the producer block"""


def check_no_init(state: ScheduleState, block: Block) -> None:
    """Raises `PrimitiveError` for a block with an init."""
    if block.init is not None:
        raise PrimitiveError(
            state.mod, "The inlined block should not contain T.init, but found one in block: {0}", block
        )


def check_not_output(state: ScheduleState, block: StmtSRef, scope: StmtSRef) -> None:
    """Raises `PrimitiveError` for a block that writes what its scope does not allocate."""
    if is_output(block.stmt, scope.stmt):
        raise PrimitiveError(state.mod, "The block {0} is an output block", block.stmt)


class BufferInliner(BlockEdit):
    """Rewrites accesses to one buffer; blocks whose accesses change get their regions inferred again."""

    def __init__(self, state: ScheduleState, buffer: Buffer, inlined: Block, scope: Block):
        super().__init__()
        self.state, self.buffer, self.scope = state, buffer, scope
        self.buffers = {r.buffer.data: r.buffer for r in (*inlined.reads, *inlined.writes)}

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_Var(self, var: Var) -> Var:
        if var is self.buffer.data:
            self.raise_opaque()
        return var

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> Any:
        if match.source.buffer is self.buffer:
            self.raise_opaque()
        return self.generic_visit(match)

    def raise_opaque(self) -> None:
        raise PrimitiveError(
            self.state.mod,
            "The buffer to be inlined has opaque access (e.g. `B.data`), or its subregion is matched into other "
            "blocks: {0}",
            self.scope,
        )

    def visit_Block(self, block: Block) -> Any:
        regions = (*block.reads, *block.writes)
        if all(region.buffer is not self.buffer for region in regions):
            return block
        self.buffers.update({r.buffer.data: r.buffer for r in regions})
        new = self.generic_visit(block)
        outer = {data: buffer for data, buffer in self.buffers.items() if buffer not in block.alloc_buffers}
        reads, writes = get_block_read_write_region(new, outer)
        return self.changed(block, new.replace(reads=reads, writes=writes))


class _InlineProducer(BufferInliner):
    """Replaces each load by the value that was stored."""

    def __init__(self, state: ScheduleState, store: BufferStore, inlined: Block, scope: Block):
        super().__init__(state, store.buffer, inlined, scope)
        self.variables, self.value = _stored_value(state, store, inlined)

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        load = self.generic_visit(load)
        if load.buffer is not self.buffer:
            return load
        values = {v: ops.cast(v.dtype, i) for v, i in zip(self.variables, load.indices, strict=True)}
        return substitute(self.value, values)


def _stored_value(state: ScheduleState, store: BufferStore, block: Block) -> tuple[list[Var], PrimExpr]:
    """The stored value as a function of the indices; raises `PrimitiveError` if these are not invertible."""
    trivial = [
        v.var
        for v, index in zip(block.iter_vars, store.indices, strict=False)
        if index is v.var or (is_number(index, 0) and _is_unit(v.dom))
    ]
    if len(trivial) == len(block.iter_vars) == len(store.indices):
        return trivial, store.value
    domains = own_domains(block)
    found = detect_iter_map(
        store.indices, domains, check_level=IterMapLevel.Bijective, simplify_trivial_iterators=False
    )
    if found.errors:
        raise PrimitiveError(state.mod, INLINE_BODY, block)
    variables = [Var(f"ph_{i}", index.dtype) for i, index in enumerate(store.indices)]
    inverse: dict[Any, Any] = dict(inverse_affine_iter_map(found.indices, variables))
    inverse.update(_constants(block))
    return variables, substitute(store.value, inverse)


def _is_unit(domain: Any) -> bool:
    return is_number(domain.extent, 1)


def _constants(block: Block) -> dict[Var, PrimExpr]:
    """The variables of a block that take a single value, which is known."""
    domains = own_domains(block)
    return {var: dom.min for var, dom in domains.items() if _is_unit(dom) and isinstance(dom.min, IntImm)}


def compute_inline(state: ScheduleState, sref: StmtSRef) -> None:
    block = as_block(state, sref)
    check_no_init(state, block)
    buffer = single_write(state, block)
    scope = scope_root_of(state, sref, stage_pipeline=True)
    check_not_output(state, sref, scope)
    check_complete(state, sref, scope)
    if not isinstance(block.body, BufferStore):
        raise PrimitiveError(state.mod, INLINE_BODY, block)
    inliner = _InlineProducer(state, block.body, block, scope.stmt)
    accessors = state.get_block_scope(scope).accessors(buffer)
    others: dict[Stmt, Stmt | None] = {child.stmt: inliner(child.stmt) for child in accessors if child is not sref}
    _remove(state, sref, scope, buffer, others, inliner.reuse)


def can_compute_inline(state: ScheduleState, sref: StmtSRef) -> bool:
    """Whether `compute_inline` applies to a block."""
    try:
        block = as_block(state, sref)
        check_no_init(state, block)
        single_write(state, block)
        scope = scope_root_of(state, sref, stage_pipeline=True)
        check_not_output(state, sref, scope)
        check_complete(state, sref, scope)
        removable(state, sref)
        if not isinstance(block.body, BufferStore):
            return False
        inliner = _InlineProducer(state, block.body, block, scope.stmt)
        for child in state.get_block_scope(scope).accessors(inliner.buffer):
            if child is not sref:
                inliner(child.stmt)
    except PrimitiveError:
        return False
    return True


def _remove(
    state: ScheduleState,
    inlined: StmtSRef,
    scope: StmtSRef,
    buffer: Buffer,
    replaced: dict[Stmt, Stmt | None],
    reuse: dict[Block, Block],
) -> None:
    """Removes a block, and the buffer between it and what it was inlined into, and replaces statements."""
    old: Block = scope.stmt
    new = ScopeEdit({**replaced, removable(state, inlined): None})(old)
    new = new.replace(alloc_buffers=Array(b for b in new.alloc_buffers if b is not buffer))
    state.replace(scope, new, {**reuse, old: new})


def single_write(state: ScheduleState, block: Block) -> Buffer:
    """The buffer that a block writes; raises `PrimitiveError` unless it writes one region."""
    if len(block.writes) != 1:
        raise PrimitiveError(
            state.mod,
            f"The block is only allowed to write a single buffer region, but it writes {len(block.writes)} region(s): "
            "{0}",
            block,
        )
    return block.writes[0].buffer


def reverse_compute_inline(state: ScheduleState, sref: StmtSRef) -> None:
    block = as_block(state, sref)
    check_no_init(state, block)
    scope = scope_root_of(state, sref, stage_pipeline=True)
    buffer = _single_read(state, sref, scope)
    check_complete(state, sref, scope)
    producer = _single_producer(state, sref, scope, buffer)
    check_not_output(state, producer, scope)
    inliner = _InlineConsumer(state, buffer, sref, producer, scope.stmt)
    _remove(state, sref, scope, buffer, {inliner.producer_realize: inliner.realize()}, inliner.reuse)


def _single_read(state: ScheduleState, sref: StmtSRef, scope: StmtSRef) -> Buffer:
    """The only buffer that a block reads and another block of the scope writes; raises `PrimitiveError` otherwise."""
    writers = state.get_block_scope(scope).buffer_writers
    produced = list(dict.fromkeys(r.buffer for r in sref.stmt.reads if r.buffer in writers))
    if len(produced) != 1:
        raise PrimitiveError(
            state.mod,
            "The block is only allowed to read a single buffer region that another block of the scope writes, but it "
            f"reads {len(produced)}: {{0}}",
            sref.stmt,
        )
    return produced[0]


def _single_producer(state: ScheduleState, sref: StmtSRef, scope: StmtSRef, buffer: Buffer) -> StmtSRef:
    dependencies = state.get_block_scope(scope)
    writers = dependencies.buffer_writers[buffer]
    consumers = {d.dst for d in dependencies.get_deps_by_src(writers[0]) if d.kind == DepKind.RAW}
    alone = len(writers) == 1 and consumers == {sref}
    # A producer with an init reads what it has written, though its declared regions do not show it.
    if not alone or writers[0].stmt.init is not None or not is_complete_leaf(state, writers[0], scope):
        raise PrimitiveError(
            state.mod,
            "The consumer block {0} to be inlined is required to have only a single producer block, and the producer "
            "block should be a complete block who has only a single consumer",
            sref.stmt,
        )
    return writers[0]


def is_complete_leaf(state: ScheduleState, sref: StmtSRef, scope: StmtSRef) -> bool:
    """Whether a block is complete and holds no further blocks."""
    return is_complete(state, sref, scope) and not state.child_blocks(sref)


class _InlineConsumer(BufferInliner):
    """Replaces the store of the producer by that of the consumer, computed from the value that the producer stores."""

    def __init__(self, state: ScheduleState, buffer: Buffer, consumer: StmtSRef, producer: StmtSRef, scope: Block):
        super().__init__(state, buffer, consumer.stmt, scope)
        self.consumer: Block = consumer.stmt
        self.store: Any = self.consumer.body
        indices = self._indices(state.realize_of(consumer))
        self.producer_realize = state.realize_of(producer)
        self.values = {} if indices is None else self._invert(indices, self.producer_realize.block)
        if indices is None or (not self.values and self.consumer.iter_vars):
            raise PrimitiveError(state.mod, REVERSE_INLINE_BODY, self.consumer)

    def _indices(self, realize: BlockRealize) -> Array[PrimExpr] | None:
        """The indices by which the consumer reads the buffer, if they are the same everywhere."""
        if not is_number(realize.predicate, 1) or not isinstance(self.store, BufferStore):
            return None
        loads = list(loads_of(self.store, self.buffer))
        if not loads or any(not same_exprs(load.indices, loads[0].indices) for load in loads):
            return None
        return loads[0].indices

    def _invert(self, indices: Array[PrimExpr], producer: Block) -> dict[Var, PrimExpr]:
        """The consumer's variables as functions of the producer's; empty if not invertible, or if some values are not
        covered.
        """
        body = producer.body.then_case if isinstance(producer.body, IfThenElse) else producer.body
        if not isinstance(body, BufferStore) or getattr(producer.body, "else_case", None) is not None:
            return {}
        domains = own_domains(self.consumer)
        found = detect_iter_map(indices, domains, check_level=IterMapLevel.NoCheck, simplify_trivial_iterators=False)
        if not found.indices:
            return {}
        values = _constants(self.consumer)
        values.update(inverse_affine_iter_map(found.indices, body.indices))
        analyzer = Analyzer()
        producer_domains = own_domains(producer)
        for var, dom in domains.items():
            value = values.get(var)
            if value is None:
                return {}
            covered = analyzer.int_set(value, producer_domains)
            assert isinstance(covered, IntervalSet)
            last = dom.min + dom.extent - 1
            if analyzer.can_prove(covered.min_value > dom.min) or analyzer.can_prove(covered.max_value < last):
                return {}
        return {var: analyzer.simplify(value) for var, value in values.items()}

    def visit_BufferStore(self, store: BufferStore) -> Any:
        if store.buffer is not self.buffer:
            return self.generic_visit(store)
        stored = store.value

        def substitute_load(load: Any) -> Any:
            return stored if load.buffer is self.buffer else None

        return ir_transform(substitute(self.store, self.values), substitute_load, None, ["tir.BufferLoad"])

    def realize(self) -> BlockRealize:
        """The producer with the consumer in it, which runs where the consumer has an iteration."""
        old = self.producer_realize
        block = self.visit(old.block)
        condition = self._in_bounds(old.block)
        if is_number(condition, 1):
            return old.replace(block=block)
        if isinstance(block.body, IfThenElse):
            guard = Analyzer().simplify(block.body.condition)
            if not same_expr(guard, condition):
                condition = ops.logical_and(condition, guard)
                block = self.changed(old.block, block.replace(body=block.body.then_case))
        bindings = {v.var: value for v, value in zip(old.block.iter_vars, old.iter_values, strict=True)}
        predicate = Analyzer().simplify(ops.logical_and(old.predicate, substitute(condition, bindings)))
        return old.replace(block=block, predicate=predicate)

    def _in_bounds(self, producer: Block) -> PrimExpr:
        """The condition, over the producer's variables, that the consumer has an iteration."""
        analyzer = Analyzer()
        for v in producer.iter_vars:
            analyzer.bind(v.var, v.dom)
        condition: PrimExpr = IntImm("bool", 1)
        for var, dom in own_domains(self.consumer).items():
            value, end = self.values[var], ops.add(dom.min, dom.extent)
            inside = ops.logical_and(ops.greater_equal(value, dom.min), ops.less(value, end))
            condition = ops.logical_and(condition, inside)
        return analyzer.simplify(condition)


def loads_of(stmt: Any, buffer: Buffer) -> Iterator[BufferLoad]:
    """The loads of a buffer in a statement or expression."""
    found: list[BufferLoad] = []
    post_order_visit(
        stmt, lambda node: found.append(node) if isinstance(node, BufferLoad) and node.buffer is buffer else None
    )
    return iter(found)


COMPUTE_INLINE = InstructionKind("ComputeInline", "compute_inline", compute_inline, ("block",))
REVERSE_COMPUTE_INLINE = InstructionKind(
    "ReverseComputeInline", "reverse_compute_inline", reverse_compute_inline, ("block",)
)


class Inline(ScheduleBase):
    """The part of a schedule that inlines blocks."""

    def compute_inline(self, block: BlockRV | str) -> None:
        """Replaces each use of a block's result by its computation, and removes the block and its buffer.

            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    B[vi] = A[vi] * 2.0
            for i in range(128):
                with T.block("C"):
                    vi = T.axis.spatial(128, i)
                    C[vi] = B[vi] + 1.0

        becomes

            for i in range(128):
                with T.block("C"):
                    vi = T.axis.spatial(128, i)
                    C[vi] = A[vi] * 2.0 + 1.0

        The block must be complete, have no init, write one element of one buffer, at indices from which its variables
        follow, and not be an output of its scope, which must be a stage pipeline. The buffer's pointer must not be
        used. Raises `ScheduleError` otherwise.
        """
        self.apply(COMPUTE_INLINE, [self._block(block)])

    def reverse_compute_inline(self, block: BlockRV | str) -> None:
        """Computes a block right where its only producer stores the block's input, and removes the block and that
        buffer.

            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    B[vi] = A[vi] * 2.0
            for i in range(128):
                with T.block("C"):
                    vi = T.axis.spatial(128, i)
                    C[vi] = B[vi] + 1.0

        becomes, with the block C,

            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    C[vi] = A[vi] * 2.0 + 1.0

        Where the block has fewer iterations than the producer, the producer gets a condition.

        The block must be complete, have no init and no predicate, and read what one complete block with no other
        consumer writes, at indices from which its variables follow. The scope must be a stage pipeline. Raises
        `ScheduleError` otherwise.
        """
        self.apply(REVERSE_COMPUTE_INLINE, [self._block(block)])
