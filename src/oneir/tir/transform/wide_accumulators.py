"""WideAccumulators: sums, products and extremes of float16 and bfloat16 are computed in float32.

    y[i] = y[i] + x[i, k]    ->    y_wide[i] = y_wide[i] + T.Cast("float32", x[i, k])
                                   ...
                                   y[i] = T.Cast("float16", y_wide[i])

A bfloat16 has 8 significant bits: 256 + 1 is 256. So the accumulator of a sum or product is a buffer of float32, which
is rounded once, when the reduction is complete. An extreme is exact in both; in float32 its kernel has vectors, where
each comparison in a short float would convert two numbers, and round one.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import Add, IntImm, Max, Min, Mul, PrimExpr, Range, Sub, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, Stmt, flat_seq, stmt_list
from .pass_base import PrimFuncPass

_SHORT = ("float16", "bfloat16")
_WIDE = DataType("float32")


class WideAccumulators(PrimFuncPass):
    """Makes the accumulators of sums, products and extremes of float16 and bfloat16 float32.

    Only a buffer that a single block writes is replaced.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        realize = func.body
        if not isinstance(realize, BlockRealize) or realize.block.iter_vars:
            return func
        root = realize.block
        nests = stmt_list(root.body)
        everything = _Writers()
        everything(root.body)
        if not everything.reduced:
            return func
        allocated = list(root.alloc_buffers)
        stmts: list[Stmt] = []
        for nest in nests:
            found = _Writers()
            found(nest)
            targets = {b: block for b, block in found.reduced.items() if everything.count[b] == 1}
            wide = {b: decl_buffer(b.shape, _WIDE, f"{b.name}_wide") for b in targets}
            allocated += wide.values()
            stmts.append(_Widen({block: wide[b] for b, block in targets.items()})(nest) if wide else nest)
            stmts += [_rounding(target, source) for target, source in wide.items()]
        block = root.replace(body=flat_seq(stmts), alloc_buffers=allocated)
        return func.with_body(realize.replace(block=block))


class _Writers(Visitor):
    """The blocks that write each buffer, and the buffers that results of reductions are in."""

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[Buffer, int] = {}
        self.reduced: dict[Buffer, Block] = {}

    def visit_Block(self, block: Block) -> None:
        for region in block.writes:
            self.count[region.buffer] = self.count.get(region.buffer, 0) + 1
        accumulator = _accumulator(block)
        if accumulator is not None:
            self.reduced[accumulator] = block
        self.generic_visit(block)


def _accumulator(block: Block) -> Buffer | None:
    """The buffer of half-precision floats in which a block accumulates a sum, product or extreme; None if there is
    none.
    """
    body, init = block.body, block.init
    if not (isinstance(body, BufferStore) and isinstance(init, BufferStore) and body.buffer is init.buffer):
        return None
    value = body.value
    if body.buffer.dtype not in _SHORT or not isinstance(value, (Add, Mul, Max, Min)) or not _is_total(value.a, body):
        return None
    return body.buffer


def _is_total(value: PrimExpr, store: BufferStore) -> bool:
    return (
        isinstance(value, BufferLoad) and value.buffer is store.buffer and ops.same_exprs(value.indices, store.indices)
    )


def _widened(value: Any) -> PrimExpr:
    """Arithmetic with its operands cast to float32; any other value cast to float32."""
    if isinstance(value, (Add, Sub, Mul, Max, Min)):
        return type(value)(_widened(value.a), _widened(value.b))
    return ops.cast(_WIDE, value)


class _Widen(Mapper):
    """Redirects accumulation to the wide buffers."""

    def __init__(self, wide: dict[Block, Buffer]):
        super().__init__()
        self.wide = wide

    def visit_Block(self, block: Block) -> Block:
        buffer = self.wide.get(block)
        if buffer is None:
            return self.generic_visit(block)
        body: Any = block.body
        init: Any = block.init
        total = BufferLoad(buffer, body.indices)
        writes = [BufferRegion(buffer, region.region) for region in block.writes]
        return block.replace(
            writes=writes,
            init=BufferStore(buffer, _widened(init.value), init.indices),
            body=BufferStore(buffer, type(body.value)(total, _widened(body.value.b)), body.indices),
        )


def _rounding(target: Buffer, source: Buffer) -> Stmt:
    """Loops that round the elements of a wide buffer into the original one."""
    loops = [Var(f"ax{i}", extent.dtype) for i, extent in enumerate(target.shape)]
    axes = [Var(f"v_ax{i}", extent.dtype) for i, extent in enumerate(target.shape)]
    iter_vars = [
        IterVar(Range.from_min_extent(IntImm(extent.dtype, 0), extent), axis, IterVar.DataPar)
        for axis, extent in zip(axes, target.shape, strict=True)
    ]
    read, write = (BufferRegion.from_point(buffer, axes) for buffer in (source, target))
    body = BufferStore(target, ops.cast(target.dtype, BufferLoad(source, axes)), axes)
    stmt: Stmt = BlockRealize(loops, IntImm("bool", 1), Block(iter_vars, [read], [write], f"{target.name}_round", body))
    for loop, extent in zip(reversed(loops), reversed(list(target.shape)), strict=True):
        stmt = For(loop, IntImm(extent.dtype, 0), extent, ForKind.SERIAL, stmt)
    return stmt
