"""ExactExtremes: maxima and minima, and their indices, that are exact for infinities, extreme values and NaN.

    with T.init():                                     with T.init():
        y[i] = T.float32(-3.4028234663852886e+38)  ->      y[i] = T.float32("-inf")
    y[i] = T.max(y[i], x[i, k])                        y[i] = T.max(y[i], x[i, k])

The tensor expressions of maxima have the smallest finite number as identity, and those of argmax the index -1, as TVM's
have. With these, the maximum of negative infinities is finite and its index -1, and NaN does not propagate. This pass
makes the identity the infinity and the index 0, and NaN win against all numbers, as in NumPy. Padding that only maxima
read becomes the infinity as well.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import EQ, GT, LT, And, Call, FloatImm, IntImm, Max, Min, Or, Select, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import infinity, isnan, max_value, min_value
from ..stmt import Block, BufferStore, LetStmt, SeqStmt, Stmt
from .pass_base import PrimFuncPass


class ExactExtremes(PrimFuncPass):
    """Makes max, min, argmax and argmin reductions exact for infinities and NaN."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        body = _Exact()(func.body)
        readers = _Readers()
        readers(body)
        if {1} in readers.kinds.values() or {-1} in readers.kinds.values():
            body = _Padding(readers.kinds, set(func.buffer_map.values()))(body)
        return func.with_body(body)


class _Exact(Mapper):
    def visit_Block(self, block: Block) -> Block:
        block = self.generic_visit(block)
        if block.init is None:
            return block
        body = block.body
        if isinstance(body, BufferStore) and isinstance(body.value, (Max, Min)):
            return block.replace(init=_started(block.init, body, isinstance(body.value, Max)))
        place = ArgExtreme.of(body)
        return block if place is None else place.exact(block)


def _started(init: Stmt, update: BufferStore, largest: bool) -> Stmt:
    """The init of a maximum (or minimum), with the infinity in place of the last finite number."""
    if isinstance(init, BufferStore) and init.buffer is update.buffer and isinstance(init.value, FloatImm):
        dtype = init.value.dtype
        last: Any = min_value(dtype) if largest else max_value(dtype)
        if init.value.value == last.value:
            unlimited = infinity(dtype)
            return init.replace(value=ops.negative(unlimited) if largest else unlimited)
    return init


class ArgExtreme:
    """The update of an argmax or argmin: an index and a value."""

    def __init__(self, first: LetStmt, second: LetStmt, stores: list[BufferStore]):
        self.first, self.second, self.stores = first, second, stores
        self.keep: Any = first.value
        self.best: Any = second.value

    @staticmethod
    def of(body: Stmt) -> ArgExtreme | None:
        """The update that the body of a block is; None if it is another statement."""
        if not (isinstance(body, LetStmt) and isinstance(body.body, LetStmt) and isinstance(body.body.body, SeqStmt)):
            return None
        stores = list(body.body.body.seq)
        if len(stores) != 2 or not all(isinstance(s, BufferStore) for s in stores):
            return None
        found = ArgExtreme(body, body.body, [s for s in stores if isinstance(s, BufferStore)])
        return found if found._matches() else None

    def _matches(self) -> bool:
        keep, best = self.keep, self.best
        if not (isinstance(keep, Select) and isinstance(best, Select) and isinstance(keep.condition, Or)):
            return False
        better, equal = keep.condition.a, keep.condition.b
        return (
            isinstance(better, (GT, LT))
            and isinstance(equal, And)
            and isinstance(equal.a, EQ)
            and isinstance(equal.b, (GT, LT))
            and isinstance(better.a, BufferLoad)
            and better.a.buffer is self.stores[1].buffer
            and ops.same_expr(better, best.condition)
            and ops.same_expr(better.a, equal.a.a)
            and ops.same_expr(better.b, equal.a.b)
        )

    def exact(self, block: Block) -> Block:
        """The block with an init that loses against every element, and with NaN winning against every number."""
        keep, best = self.keep, self.best
        better, (equal, nearer) = best.condition, (keep.condition.b.a, keep.condition.b.b)
        init = block.init
        if isinstance(init, SeqStmt) and len(init.seq) == 2:
            place, value = init.seq
            if isinstance(place, BufferStore) and isinstance(place.value, IntImm) and isinstance(nearer, LT):
                place = place.replace(value=const(0, place.value.dtype))
            init = SeqStmt([place, _started(value, self.stores[1], isinstance(better, GT))])
        if not better.a.dtype.is_float:
            return block.replace(init=init)
        so_far, element = isnan(better.a), isnan(better.b)
        wins = ops.logical_or(better, ops.logical_and(so_far, ops.logical_not(element)))
        same = ops.logical_or(equal, ops.logical_and(so_far, element))
        chosen = keep.replace(condition=ops.logical_or(wins, ops.logical_and(same, nearer)))
        value = best.replace(condition=ops.logical_or(better, so_far))
        body = self.first.replace(value=chosen, body=self.second.replace(value=value))
        return block.replace(init=init, body=body)


class _Readers(Visitor):
    """For each buffer, the kinds of its uses: operand of a maximum (1), of a minimum (-1), or other (0)."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[Buffer, set[int]] = {}
        self.element: Any = None

    def visit_BufferStore(self, store: BufferStore) -> None:
        value = store.value
        if isinstance(value, (Max, Min)) and isinstance(value.a, BufferLoad) and value.a.buffer is store.buffer:
            self.element = value.b
            if isinstance(value.b, BufferLoad):
                self.kinds.setdefault(value.b.buffer, set()).add(1 if isinstance(value, Max) else -1)
        self.generic_visit(store)
        self.element = None

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        if load is not self.element:
            self.kinds.setdefault(load.buffer, set()).add(0)
        self.generic_visit(load)


class _Padding(Mapper):
    """Makes the padding of buffers that only maxima (or minima) read infinite."""

    def __init__(self, readers: dict[Buffer, set[int]], given: set[Buffer]):
        super().__init__()
        self.readers, self.given = readers, given

    def visit_BufferStore(self, store: BufferStore) -> Any:
        value: Any = store.value
        kinds = self.readers.get(store.buffer, set())
        chooses = isinstance(value, Call) and value.op is Op.get("tir.if_then_else")
        if store.buffer in self.given or kinds not in ({1}, {-1}) or not chooses:
            return store
        condition, inside, outside = value.args
        last: Any = min_value(outside.dtype) if kinds == {1} else max_value(outside.dtype)
        if not isinstance(outside, FloatImm) or outside.value != last.value:
            return store
        unlimited = infinity(outside.dtype)
        outside = ops.negative(unlimited) if kinds == {1} else unlimited
        return store.replace(value=value.replace(args=[condition, inside, outside]))
