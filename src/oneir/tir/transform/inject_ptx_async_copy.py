"""InjectPTXAsyncCopy: copies from global to shared memory that run while the threads compute.

    for v in T.vectorized(8):                                T.ptx_cp_async("float16", S[i * 8], 0,
        S[i * 8 + v] = T.if_then_else(i * 8 + v < n,   ->        A[i * 8], 0, 16, T.min(T.max(n - i * 8, 0), 8) * 2)
                                      A[i * 8 + v], 0)

(an element stands for its address there). Only what stands in the attribute "async_scope" is copied so.
"async_commit_queue_scope" closes a group of copies behind its body; "async_wait_queue_scope" waits before its body till
no more than "async_wait_inflight_count" groups are under way; InjectSoftwarePipeline writes them.
"""

from __future__ import annotations

from typing import Any

from ...arith.constraint import conjuncts
from ...ir import operators as ops
from ...ir.expr import LT, Call, FloatImm, IntImm, PrimExpr, Range
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import address_of
from ..op_vendor import ptx_commit_group, ptx_cp_async, ptx_wait_group
from ..stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, Stmt, flat_seq
from ..stmt_functor import substitute
from .analyzed import IF_THEN_ELSE, AnalyzedMapper, uses
from .inject_software_pipeline import ASYNC_COMMIT, ASYNC_INFLIGHT, ASYNC_SCOPE, ASYNC_WAIT
from .pass_base import PrimFuncPass

_SIZES = (4, 8, 16)
"""The bytes that one instruction copies."""


class InjectPTXAsyncCopy(PrimFuncPass):
    """Turns vectorized copies from global to shared memory into `ptx_cp_async`, for flat buffers.

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
            return flat_seq([Evaluate(ptx_wait_group(count.value)), self.visit(count.body)])
        return super().visit_AttrStmt(node)

    def visit_For(self, node: For) -> Any:
        if self.asynchronous and node.kind == ForKind.VECTORIZED and isinstance(node.body, BufferStore):
            found = self.copy(node, node.body)
            if found is not None:
                return found
        return super().visit_For(node)

    def copy(self, loop: For, store: BufferStore) -> Stmt | None:
        """The copy that a loop over neighbouring elements is; None for another loop."""
        dtype, buffer = store.value.dtype, store.buffer
        if not isinstance(loop.extent, IntImm) or not buffer.scope().startswith("shared") or store.predicate:
            return None
        lanes, size = loop.extent.value, dtype.bits // 8
        if lanes * size not in _SIZES or not isinstance(loop.min, IntImm) or loop.min.value:
            return None
        conditions, load = _masked(store.value)
        if not isinstance(load, BufferLoad) or load.buffer.scope() not in ("", "global") or load.predicate:
            return None
        if buffer.dtype != load.buffer.dtype or len(store.indices) != 1 or len(load.indices) != 1:
            return None
        target, source = (self.first(node.indices[0], loop) for node in (store, load))
        valid = self.valid(conditions, loop, lanes)
        if target is None or source is None or valid is None:
            return None
        count = None if isinstance(valid, IntImm) and valid.value == lanes else valid * size
        pointers = address_of(BufferLoad(buffer, [target])), 0, address_of(BufferLoad(load.buffer, [source])), 0
        return Evaluate(ptx_cp_async(str(dtype), *pointers, lanes * size, count))

    def first(self, index: PrimExpr, loop: For) -> PrimExpr | None:
        """The first of neighbouring indices; None if they are not neighbours."""
        var = loop.loop_var
        first = self.analyzer.simplify(substitute(index, {var: IntImm(var.dtype, 0)}))
        self.analyzer.bind(var, Range.from_min_extent(loop.min, loop.extent), allow_override=True)
        return first if self.analyzer.can_prove_equal(index - first, ops.cast(index.dtype, var)) else None

    def valid(self, conditions: list[Any], loop: For, lanes: int) -> PrimExpr | None:
        """How many of the first elements satisfy the conditions; None where that is not known to be all that do."""
        var = loop.loop_var
        result: Any = IntImm("int32", lanes)
        alike: list[PrimExpr] = []
        for condition in conditions:
            if not uses(condition, {var}):
                alike.append(condition)
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


def _masked(value: Any) -> tuple[list[Any], Any]:
    """The conditions under which a value is loaded, which is zero without them, and the load."""
    conditions: list[Any] = []
    while isinstance(value, Call) and value.op is IF_THEN_ELSE:
        condition, then, otherwise = value.args
        if not isinstance(otherwise, (IntImm, FloatImm)) or otherwise.value != 0:
            return [], None
        conditions += conjuncts(condition)
        value = then
    return conditions, value
