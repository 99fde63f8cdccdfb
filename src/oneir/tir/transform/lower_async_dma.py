"""LowerAsyncDMA: copies that an engine for direct memory access makes while the processor computes.

    with T.attr(0, "async_commit_queue_scope", 0):       T.dma_copy(0, T.address_of(S[0]), T.address_of(A[64]), 256, 0)
        for i in range(64):
            S[i] = A[64 + i]                         ->
    with T.attr(0, "async_wait_queue_scope", 0):         T.dma_wait(0, 1)
        with T.attr(0, "async_wait_inflight_count", 1):
            ...                                          ...

InjectSoftwarePipeline writes the attributes. Several copies of one scope are a group, between `dma_start_group` and
`dma_end_group`, which counts as one.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..analysis.identify_memcpy import identify_memcpy
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import address_of
from ..op_vendor import dma_copy, dma_end_group, dma_start_group, dma_wait
from ..stmt import AttrStmt, Evaluate, For, SeqStmt, Stmt, flat_seq
from .pass_base import PrimFuncPass
from .pipeline_async import ASYNC_COMMIT, ASYNC_INFLIGHT, ASYNC_WAIT

_BYPASS = "tir.experimental_dma_bypass_cache"


class LowerAsyncDMA(PrimFuncPass):
    """Turns loops of asynchronous scopes into `dma_copy`, and what waits for them into `dma_wait`, for flat buffers.

    With the option "tir.experimental_dma_bypass_cache", copies bypass the processor's caches. Waits for a queue that no
    copy was made of stay as they are. The runtime of a processor with such an engine has to provide the calls; the
    targets of this project have none. Raises `WellFormedError` for a loop that is no copy of contiguous elements.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Lower(bool(ctx.config.get(_BYPASS, False)))(func.body))


register_config_option(_BYPASS, bool)


class _Lower(Mapper):
    def __init__(self, bypass: bool) -> None:
        super().__init__()
        self.bypass = bypass
        self.queue: int | None = None
        self.used: set[int] = set()
        self.copies = 0

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        new = self.generic_visit(node)
        return node if new is node else flat_seq(new.seq)

    def visit_For(self, node: For) -> Any:
        if self.queue is None:
            return self.generic_visit(node)
        found = identify_memcpy(node)
        if isinstance(found, str):
            raise WellFormedError(f"LowerAsyncDMA expects copies of contiguous elements in queue {self.queue}: {found}")
        source, target = found
        if len(source.region) != 1 or len(target.region) != 1:
            raise WellFormedError(
                f"LowerAsyncDMA expects flat buffers, found a copy of `{source.buffer.name}` to "
                f"`{target.buffer.name}`: run FlattenBuffer before"
            )
        self.used.add(self.queue)
        self.copies += 1
        to, start = (address_of(BufferLoad(r.buffer, [r.region[0].min])) for r in (target, source))
        dtype = source.buffer.dtype
        size = ops.multiply(target.region[0].extent, dtype.bits * dtype.lanes // 8)
        return Evaluate(dma_copy(self.queue, to, start, size, self.bypass))

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        queue = node.value.value if isinstance(node.value, IntImm) else None
        if node.attr_key == ASYNC_COMMIT and queue is not None:
            return self.committed(node, queue)
        count = node.body
        if node.attr_key != ASYNC_WAIT or queue not in self.used or not isinstance(count, AttrStmt):
            return self.generic_visit(node)
        if count.attr_key != ASYNC_INFLIGHT:
            return self.generic_visit(node)
        return flat_seq([Evaluate(dma_wait(queue, count.value)), self.visit(count.body)])

    def committed(self, node: AttrStmt, queue: int) -> Stmt:
        """The copies of one scope."""
        self.queue, self.copies = queue, 0
        new = self.generic_visit(node)
        self.queue = None
        if self.copies < 2:
            return new
        return flat_seq([Evaluate(dma_start_group(queue)), new, Evaluate(dma_end_group(queue))])
