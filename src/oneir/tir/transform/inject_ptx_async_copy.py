"""InjectPTXAsyncCopy: copies from global to shared memory that run while the threads compute.

    for v in T.vectorized(8):                                T.ptx_cp_async("float16", S.data, i * 8,
        S[i * 8 + v] = T.if_then_else(i * 8 + v < n,   ->        A.data, i * 8, 16, T.min(T.max(n - i * 8, 0), 8) * 2)
                                      A[i * 8 + v], 0)

Vectors and elements of 4, 8 or 16 bytes are copied likewise. Only what stands in the attribute "async_scope" is copied
so. "async_commit_queue_scope" closes a group of copies behind its body; "async_wait_queue_scope" waits before its body
till no more than "async_wait_inflight_count" groups are under way; InjectSoftwarePipeline writes them.
"""

from __future__ import annotations

from typing import Any

from ...arith.constraint import conjuncts
from ...ir import operators as ops
from ...ir.expr import LT, Broadcast, Call, FloatImm, IntImm, PrimExpr, Ramp, Range
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.type import PointerType, PrimType
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import address_of
from ..op_vendor import ptx_commit_group, ptx_cp_async, ptx_wait_group
from ..stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, Stmt, flat_seq
from ..stmt_functor import substitute
from .analyzed import IF_THEN_ELSE, AnalyzedMapper, uses
from .pass_base import PrimFuncPass
from .pipeline_async import ASYNC_COMMIT, ASYNC_INFLIGHT, ASYNC_SCOPE, ASYNC_WAIT

_SIZES = (4, 8, 16)
"""The bytes that one instruction copies."""
_MOST_GROUPS = 7
"""Groups that a wait leaves under way; to wait for more is right as well."""


class InjectPTXAsyncCopy(PrimFuncPass):
    """Turns copies of neighbouring elements from global to shared memory into `ptx_cp_async`, for flat buffers: loops
    that are vectorized, vectors, and elements of at least 4 bytes.

    A copy that has another form, or whose condition leaves out other elements than the last ones, stays as it is.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Inject()(func.body))


class _Inject(AnalyzedMapper):
    def __init__(self) -> None:
        super().__init__()
        self.asynchronous = False

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key == ASYNC_SCOPE:
            outer, self.asynchronous = self.asynchronous, True
            body = self.visit(node.body)
            self.asynchronous = outer
            return body
        if node.attr_key == ASYNC_COMMIT:
            return flat_seq([self.visit(node.body), Evaluate(ptx_commit_group())])
        if node.attr_key == ASYNC_WAIT:
            count: Any = node.body
            assert isinstance(count, AttrStmt) and count.attr_key == ASYNC_INFLIGHT
            newer = self.analyzer.simplify(count.value)
            # The instruction takes a constant; to wait for all is right as well.
            newer = min(newer.value, _MOST_GROUPS) if isinstance(newer, IntImm) else 0
            return flat_seq([Evaluate(ptx_wait_group(newer)), self.visit(count.body)])
        return super().visit_AttrStmt(node)

    def visit_For(self, node: For) -> Any:
        if self.asynchronous and node.kind == ForKind.VECTORIZED and isinstance(node.body, BufferStore):
            found = self.copy(node, node.body)
            if found is not None:
                return found
        return super().visit_For(node)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        found = self.copy_of_vector(node) if self.asynchronous else None
        return self.generic_visit(node) if found is None else found

    def copied(self, store: BufferStore) -> tuple[list[Any], BufferLoad] | None:
        """The load that a store copies, and its conditions; None where it does something else."""
        conditions, load = _masked(store.value)
        if not isinstance(load, BufferLoad) or load.buffer.scope() not in ("", "global") or load.predicate:
            return None
        if not store.buffer.scope().startswith("shared") or store.predicate:
            return None
        if store.buffer.dtype != load.buffer.dtype or len(store.indices) != 1 or len(load.indices) != 1:
            return None
        return conditions, load

    def copy(self, loop: For, store: BufferStore) -> Stmt | None:
        """The copy that a loop over neighbouring elements is; None for another loop."""
        found = self.copied(store)
        if found is None or not isinstance(loop.extent, IntImm) or not store.value.dtype.is_scalar:
            return None
        conditions, load = found
        lanes = loop.extent.value
        if not isinstance(loop.min, IntImm) or loop.min.value:
            return None
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), allow_override=True)
        target, source = (self.first(node.indices[0], loop) for node in (store, load))
        valid = self.valid(conditions, loop, lanes)
        if target is None or source is None or valid is None:
            return None
        return _copy(store, load, target, source, lanes, valid)

    def copy_of_vector(self, store: BufferStore) -> Stmt | None:
        """The copy that a store of an element or a vector is; None for another store."""
        found = self.copied(store)
        if found is None:
            return None
        conditions, load = found
        target, source = (self.start(node.indices[0]) for node in (store, load))
        conditions = [c.value if isinstance(c, Broadcast) else c for c in conditions]
        if target is None or source is None or not all(c.dtype.is_scalar for c in conditions):
            return None
        lanes = store.value.dtype.lanes
        valid: PrimExpr = IntImm("int32", lanes)
        for condition in conditions:
            valid = Call("int32", IF_THEN_ELSE, [condition, valid, IntImm("int32", 0)])
        return _copy(store, load, target, source, lanes, valid)

    def start(self, index: PrimExpr) -> PrimExpr | None:
        """The first of the elements that an index names; None if they are no neighbours."""
        if index.dtype.is_scalar:
            return index
        index = index if isinstance(index, Ramp) else self.analyzer.simplify(index)
        known = isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1
        return index.base if known and isinstance(index, Ramp) else None

    def first(self, index: PrimExpr, loop: For) -> PrimExpr | None:
        """The first of neighbouring indices; None if they are not neighbours."""
        var = loop.loop_var
        first = self.analyzer.simplify(substitute(index, {var: IntImm(var.dtype, 0)}))
        return first if self.analyzer.can_prove_equal(index - first, ops.cast(index.dtype, var)) else None

    def valid(self, conditions: list[Any], loop: For, lanes: int) -> PrimExpr | None:
        """How many of the first elements satisfy the conditions; None where that is not known to be all that do."""
        var = loop.loop_var
        result: Any = IntImm("int32", lanes)
        alike: list[PrimExpr] = []
        for condition in conditions:
            # Neighbours may share a quotient, as of `(i * 8 + var) // 32`.
            shared = self.analyzer.simplify(condition) if uses(condition, {var}) else condition
            if not uses(shared, {var}):
                alike.append(shared)
                continue
            first = self.first(condition.a, loop) if isinstance(condition, LT) else None
            if first is None or uses(condition.b, {var}):
                return None
            bound = self.analyzer.simplify(condition.b - first)
            limited = ops.maximum(ops.minimum(bound, lanes), 0)
            result = ops.minimum(result, ops.cast("int32", limited)) if not isinstance(result, IntImm) else limited
        result = ops.cast("int32", result)
        for condition in alike:
            result = Call("int32", IF_THEN_ELSE, [condition, result, IntImm("int32", 0)])
        return result


def _copy(
    store: BufferStore, load: BufferLoad, target: PrimExpr, source: PrimExpr, lanes: int, valid: PrimExpr
) -> Stmt | None:
    """A copy of neighbouring elements, of which the first `valid` are loaded; None if it has another size."""
    dtype = load.buffer.dtype
    size = dtype.itemsize
    if lanes * size not in _SIZES:
        return None
    count = None if isinstance(valid, IntImm) and valid.value == lanes else valid * size
    places = (*_place(store.buffer, target), *_place(load.buffer, source))
    return Evaluate(ptx_cp_async(str(dtype), *places, lanes * size, count))


def _place(buffer: Buffer, index: PrimExpr) -> tuple[PrimExpr, Any]:
    """A pointer, and the number of an element behind it."""
    pointer = buffer.data.type_annotation
    if isinstance(pointer, PointerType) and pointer.element_type == PrimType(str(buffer.dtype)):
        return buffer.data, index
    return address_of(BufferLoad(buffer, [index])), 0  # memory that is declared for elements of another kind


def _masked(value: Any) -> tuple[list[Any], Any]:
    """The conditions under which a value is loaded, which is zero without them, and the load."""
    conditions: list[Any] = []
    while isinstance(value, Call) and value.op is IF_THEN_ELSE:
        condition, then, otherwise = value.args
        otherwise = otherwise.value if isinstance(otherwise, Broadcast) else otherwise
        if not isinstance(otherwise, (IntImm, FloatImm)) or otherwise.value != 0:
            return [], None
        conditions += conjuncts(condition)
        value = then
    return conditions, value
