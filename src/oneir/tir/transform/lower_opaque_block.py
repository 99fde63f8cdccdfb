"""LowerOpaqueBlock: opaque blocks become plain statements; what they allocate becomes allocations."""

from __future__ import annotations

import itertools
from typing import Any

from ...ir.container import Array
from ...ir.dtype import BOOL
from ...ir.expr import IntImm, PrimExpr, Range, Var, as_int, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..buffer import Buffer
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, BlockRealize, DeclBuffer, For, ForKind, IfThenElse, Stmt
from .pass_base import PrimFuncPass


class LowerOpaqueBlock(PrimFuncPass):
    """Replaces opaque blocks by their bodies, with allocations, conditions and pragmas as statements.

    Raises `WellFormedError` for a block that is not opaque.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_LowerOpaque()(func.body))


class _LowerOpaque(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Var, Any] = {}

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        block = realize.block
        if block.iter_vars or block.init is not None or block.match_buffers:
            raise WellFormedError(
                f"block `{block.name_hint}` is not opaque; "
                "run LowerInitBlock, ConvertBlocksToOpaque and LowerMatchBuffer first"
            )
        body = self.visit(block.body)
        for buffer in reversed(block.alloc_buffers):
            body = allocation(self.visit(buffer), body)
        predicate = self.visit(realize.predicate)
        if not (isinstance(predicate, IntImm) and predicate.value):
            body = IfThenElse(predicate, body)
        return body

    def visit_For(self, loop: For) -> Stmt:
        pragmas = {k: v for k, v in loop.annotations.items() if k.startswith("pragma_")}
        kept = {k: v for k, v in loop.annotations.items() if k not in pragmas}
        if loop.kind == ForKind.THREAD_BINDING:
            return self._pragmas(loop, pragmas, self.thread(loop))
        unit = isinstance(loop.extent, IntImm) and loop.extent.value == 1 and not kept
        if unit and loop.kind in (ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED):
            self.values[loop.loop_var] = self.visit(loop.min)
            return self._pragmas(loop, pragmas, self.visit(loop.body))
        loop = self.generic_visit(loop)
        if pragmas:
            loop = loop.replace(annotations=kept)
        return self._pragmas(loop, pragmas, loop)

    def thread(self, loop: For) -> Stmt:
        """A loop bound to a thread as the attribute that launches it."""
        binding = loop.thread_binding
        assert binding is not None
        extent = self.visit(loop.extent)
        domain = Range.from_min_extent(self.visit(loop.min), extent)
        thread = IterVar(domain, loop.loop_var, IterVar.ThreadIndex, binding.thread_tag)
        key = "virtual_thread" if binding.thread_tag.startswith("vthread") else "thread_extent"
        return AttrStmt(thread, key, extent, self.visit(loop.body))

    def _pragmas(self, loop: For, pragmas: dict[str, Any], body: Stmt) -> Stmt:
        for key, value in reversed(pragmas.items()):
            body = AttrStmt(loop.loop_var, key, value, body)
        return body


def allocation(buffer: Buffer, body: Stmt) -> Stmt:
    """`body` with memory for a buffer around it."""
    return Allocate(buffer.data, buffer.dtype, _extents(buffer), IntImm(BOOL, 1), DeclBuffer(buffer, body))


def _extents(buffer: Buffer) -> Array[PrimExpr]:
    """The extents of a buffer's memory: rows with their gaps, or in one dimension where strides make no rows."""
    if not buffer.strides:
        return buffer.shape
    strides = [as_int(stride) or 0 for stride in buffer.strides]
    rows = [wide // narrow if narrow and wide % narrow == 0 else 0 for wide, narrow in itertools.pairwise(strides)]
    if strides[-1] != 1 or not all(
        row >= (as_int(dim) or row + 1) for row, dim in zip(rows, buffer.shape[1:], strict=True)
    ):
        return buffer.get_flattened_buffer().shape
    return Array([buffer.shape[0], *[const(row, buffer.shape[0].dtype) for row in rows]])
