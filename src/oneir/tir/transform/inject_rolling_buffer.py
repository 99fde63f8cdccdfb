"""InjectRollingBuffer: a realized buffer whose tiles overlap becomes circular, and no element is computed twice.

for i in range(4):                                        realize(P[0:6])
    realize(P[i * 4 : i * 4 + 6])                         for i in range(4):
    attr(P, "rolling_buffer_scope", True)             ->      for a in range(6):
    for a in range(6):                                            if T.likely(i < 1 or a >= 2):
        P[i * 4 + a] = ...                                            P[(i * 4 + a) % 6] = ...
    for j, k in grid(4, 3): ... P[i * 4 + j + k]              for j, k in grid(4, 3): ... P[(i * 4 + j + k) % 6]

`Schedule.rolling_buffer` does the same with the buffers of blocks.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Call, IntImm, PrimExpr, Range, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import InvalidValue
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..schedule.rolling_buffer import Roll, step_of_tile
from ..stmt import AttrStmt, BufferRealize, BufferStore, For, IfThenElse, Stmt
from ..stmt_functor import substitute
from .pass_base import PrimFuncPass

ROLLING_SCOPE = "rolling_buffer_scope"


class InjectRollingBuffer(PrimFuncPass):
    """Makes the realized buffers circular that the attribute "rolling_buffer_scope" marks.

    The buffer moves out of the outermost loop along which its tiles overlap. Raises `InvalidValue` where the start of
    a tile is no multiple of one loop variable, or no tiles overlap.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        marked = _Marked()
        marked(func.body)
        return func.with_body(_Inject(marked.buffers)(func.body)) if marked.buffers else func


class _Marked(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.buffers: set[Buffer] = set()

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == ROLLING_SCOPE:
            self.buffers.add(node.node)
        self.generic_visit(node)


class _Inject(Mapper):
    def __init__(self, marked: set[Buffer]):
        super().__init__()
        self.marked = marked
        self.loops: list[Var] = []
        self.rolls: dict[Buffer, Roll] = {}
        self.attributes: dict[Buffer, list[AttrStmt]] = {}
        self.hoisted: dict[Var, list[BufferRealize]] = {}
        self.analyzer = Analyzer()

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_For(self, node: For) -> Any:
        self.loops.append(node.loop_var)
        body: Stmt = self.generic_visit(node)
        self.loops.pop()
        for realize in self.hoisted.pop(node.loop_var, []):
            body = realize.replace(body=body)
            for attribute in self.attributes.get(realize.buffer, []):
                body = attribute.replace(body=body)
        return body

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if not isinstance(node.node, Buffer) or node.node not in self.marked:
            return self.generic_visit(node)
        if node.attr_key != ROLLING_SCOPE:
            self.attributes.setdefault(node.node, []).insert(0, node)
        return self.visit(node.body)

    def visit_BufferRealize(self, node: BufferRealize) -> Any:
        buffer = node.buffer
        if buffer not in self.marked:
            return self.generic_visit(node)
        simplify = self.analyzer.simplify
        node = node.replace(
            bounds=Array(Range.from_min_extent(simplify(r.min), simplify(r.extent)) for r in node.bounds)
        )
        roll = self.rolls[buffer] = self.roll_of(node)
        loop = roll.loops[roll.axis]
        assert loop is not None
        outer = self.loops[: self.loops.index(loop)]
        bounds: list[Range] = []
        for axis, (bound, moved) in enumerate(zip(node.bounds, roll.loops, strict=True)):
            if axis == roll.axis:
                bound = Range.from_min_extent(const(0, bound.extent.dtype), bound.extent)
            elif moved is not None and moved not in outer:
                bound = Range(buffer.shape[axis])  # What moves along it in the loop needs all of it.
            bounds.append(bound)
        self.hoisted.setdefault(loop, []).append(node.replace(bounds=Array(bounds)))
        return self.visit(node.body)

    def roll_of(self, node: BufferRealize) -> Roll:
        loops: list[Var | None] = []
        overlaps: list[int] = []
        for bound in node.bounds:
            step = step_of_tile(bound.min)
            if step is None and not isinstance(bound.min, IntImm):
                raise InvalidValue(
                    f"a tile of a rolling buffer starts at a multiple of one loop variable; found {bound.min} in the "
                    f"bounds of `{node.buffer.name}`"
                )
            loops.append(None if step is None else step[0])
            overlaps.append(
                bound.extent.value - step[1] if step is not None and isinstance(bound.extent, IntImm) else 0
            )
        for loop in self.loops:
            for axis, (moved, overlap) in enumerate(zip(loops, overlaps, strict=True)):
                if moved is loop and overlap > 0:
                    return Roll(axis, node.bounds[axis].extent, loops, overlaps)
        raise InvalidValue(
            f"`{node.buffer.name}` cannot roll: its tiles, {', '.join(map(str, node.bounds))}, overlap along no loop "
            "around them"
        )

    def at(self, roll: Roll, indices: Array[PrimExpr]) -> Array[PrimExpr]:
        return Array(ops.floormod(index, roll.extent) if i == roll.axis else index for i, index in enumerate(indices))

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        new = self.generic_visit(node)
        roll = self.rolls.get(node.buffer)
        return new if roll is None else new.replace(indices=self.at(roll, new.indices))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        new = self.generic_visit(node)
        roll = self.rolls.get(node.buffer)
        if roll is None:
            return new
        stmt: Stmt = new.replace(indices=self.at(roll, new.indices))
        for index, loop, overlap in zip(node.indices, roll.loops, roll.overlaps, strict=True):
            if loop is None or overlap <= 0:
                continue
            # Where its tile would start if the loop stood at 0: the elements before `overlap` are there already.
            within = self.analyzer.simplify(substitute(index, {loop: const(0, loop.dtype)}))
            fresh = ops.logical_or(ops.less(loop, 1), ops.greater_equal(within, overlap))
            stmt = IfThenElse(Call("bool", ops.as_op("tir.likely"), [fresh]), stmt)
        return stmt
