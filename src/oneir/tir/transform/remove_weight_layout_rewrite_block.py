"""RemoveWeightLayoutRewriteBlock: empties blocks that only change the layout of weights, which arrive in it instead.

A block with the annotation "meta_schedule.layout_rewrite_preproc" copies a parameter, or a constant, into a buffer that
the rest of the function reads. Without it, that buffer is the parameter, whose shape changes for callers, or a constant
rewritten here. The block stays, without accesses, in its loops, where schedules know it; once blocks are lowered,
`RemoveNoOp` removes it with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.container import EMPTY, Array
from ...ir.expr import IntImm, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...runtime.error import InvalidValue
from ...runtime.tensor import tensor
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..index_map import evaluate_on_arrays
from ..stmt import (
    AllocateConst,
    Block,
    BufferStore,
    DeclBuffer,
    Evaluate,
    Stmt,
    is_no_op,
)
from ..stmt_functor import StmtMapper
from .pass_base import PrimFuncPass

ANNOTATION = "meta_schedule.layout_rewrite_preproc"


class RemoveWeightLayoutRewriteBlock(PrimFuncPass):
    """Empties blocks that rewrite weights; with `skip_tensor_rewrite`, constants get the new shape but no values.

    Raises `InvalidValue` for a block that does not copy a parameter or a constant.
    """

    skip_tensor_rewrite: bool = False

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        empty = _Empty()
        body: Stmt = empty(func.body)
        if not empty.rewritten:
            return func
        buffers = dict(func.buffer_map)
        constants: dict[Var, tuple[Buffer, Any]] = {}
        for target, (source, block) in empty.rewritten.items():
            param = next((param for param, buffer in buffers.items() if buffer is source), None)
            if param is not None:
                buffers[param] = target
            elif source.data in empty.constants:
                data = empty.constants[source.data].data.numpy()
                if self.skip_tensor_rewrite:
                    data = np.zeros(_constants(target.shape, block), data.dtype)
                else:
                    data = _copied(data, target, block)
                constants[source.data] = (target, tensor(data))
            else:
                raise InvalidValue(
                    f"block {block.name_hint} rewrites {source.name}, which is neither a parameter nor a constant"
                )
        if constants:
            body = _Constants(constants)(body)
        return func.replace(buffer_map=buffers, body=body)


class _Empty(StmtMapper):
    """Empties the blocks; `rewritten` maps the buffer that each wrote to its source, and the block."""

    def __init__(self) -> None:
        super().__init__()
        self.rewritten: dict[Buffer, tuple[Buffer, Block]] = {}
        self.constants: dict[Var, AllocateConst] = {}

    def visit_AllocateConst(self, node: AllocateConst) -> Any:
        self.constants[node.buffer_var] = node
        return self.generic_visit(node)

    def visit_Block(self, block: Block) -> Any:
        body = block.body
        if block.annotations.get(ANNOTATION) and not is_no_op(body):
            if not isinstance(body, BufferStore) or not isinstance(body.value, BufferLoad):
                raise InvalidValue(f"block {block.name_hint} with {ANNOTATION} must copy a buffer, found {body}")
            self.rewritten[body.buffer] = (body.value.buffer, block)
            return block.replace(reads=EMPTY, writes=EMPTY, body=Evaluate(0))
        body = self.visit(body)
        kept = Array(buffer for buffer in block.alloc_buffers if buffer not in self.rewritten)
        return block.replace(body=body, alloc_buffers=block.alloc_buffers if kept == block.alloc_buffers else kept)


class _Constants(StmtMapper):
    """Replaces constants by rewritten ones."""

    def __init__(self, values: dict[Var, tuple[Buffer, Any]]):
        super().__init__()
        self.values = values

    def visit_AllocateConst(self, node: AllocateConst) -> Any:
        new = self.generic_visit(node)
        if node.buffer_var not in self.values:
            return new
        buffer, data = self.values[node.buffer_var]
        return new.replace(buffer_var=buffer.data, dtype=buffer.dtype, extents=buffer.shape, data=data)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        new = self.generic_visit(node)
        return new.replace(buffer=self.values[node.buffer.data][0]) if node.buffer.data in self.values else new


def _constants(sizes: Sequence[Any], block: Block) -> list[int]:
    """Sizes as numbers."""
    found = [size.value for size in sizes if isinstance(size, IntImm)]
    if len(found) != len(sizes):
        raise InvalidValue(f"block {block.name_hint} rewrites a constant, but its sizes are not all constant")
    return found


def _copied(source: np.ndarray, target: Buffer, block: Block) -> np.ndarray:
    """What a block writes that copies `source`."""
    store: Any = block.body
    extents = _constants([iter_var.dom.extent for iter_var in block.iter_vars if iter_var.dom is not None], block)
    grid = np.indices(extents).reshape(len(extents), math.prod(extents))
    values = {iter_var.var: grid[i] for i, iter_var in enumerate(block.iter_vars)}
    read, written = (
        tuple(np.asarray(evaluate_on_arrays(index, values)) for index in indices)
        for indices in (store.value.indices, store.indices)
    )
    result = np.zeros(_constants(target.shape, block), source.dtype)
    result[written] = source[read]
    return result
