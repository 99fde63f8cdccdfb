"""Evaluates expressions, and checks every access to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir import expr as e
from ...ir.dtype import DataType
from ...ir.op import Op
from ...ir.visitor import Dispatch
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Shuffle
from ...tir.function import PrimFunc
from ...tir.op import TFlushesSubnormals
from .arithmetic import Arithmetic, IndexFunction, index_function, is_vector
from .calls import CALLS
from .layout import Layout, lane_count, row_major
from .memory import Memory, Place, Pointer, Violation, all_offsets, divergence, storage_dtype

_MOST_CONSTANTS = 10_000
_INTEGER_CONSTANTS: dict[tuple[DataType, int], Any] = {}


class Scope:
    """The regions that a running block declares, by buffer, as boxes of (begin, end) pairs."""

    __slots__ = ("name", "reads", "reads_own_writes", "writes")

    def __init__(self, name: str, reads: Any, writes: Any, reads_own_writes: bool):
        self.name, self.reads, self.writes, self.reads_own_writes = name, reads, writes, reads_own_writes

    def allows(self, buffer: Buffer, point: Sequence[int], writes: bool) -> bool:
        """Whether the block may access an element."""
        boxes = self.writes.get(buffer, ()) if writes else self.reads.get(buffer, ())
        if _inside(boxes, point):
            return True
        return not writes and self.reads_own_writes and _inside(self.writes.get(buffer, ()), point)


def _updated_within(scopes: Sequence[Scope], buffer: Buffer, point: Sequence[int]) -> bool:
    """Whether nested blocks all declare a write of an element and the innermost is a reduction, which reads what it
    writes.
    """
    reduces = scopes[-1].reads_own_writes
    return reduces and all(_inside(scope.writes.get(buffer, ()), point) for scope in scopes)


def _inside(boxes: Any, point: Sequence[int]) -> bool:
    for box in boxes:  # for every access that is interpreted: generators would take twice the time
        for i, (low, high) in zip(point, box, strict=True):
            if not low <= i < high:
                break
        else:
            return True
    return False


class Evaluator(Dispatch):
    """Evaluates expressions in the state of one thread.

    A subclass executes statements and keeps the state: `variables` has values and pointers; `layouts` the buffers that
    were declared, with in `depths` how many blocks were open then; `scopes` the open blocks; `place` and `coordinates`
    say which iterations and threads these are.
    """

    arithmetic: Arithmetic
    functions: dict[str, PrimFunc]
    check: bool
    variables: dict[e.Var, Any]
    layouts: dict[Buffer, Layout]
    depths: dict[Buffer, int]
    scopes: list[Scope]
    place: Place
    reduced: dict[Buffer, frozenset[e.Var]]
    coordinates: dict[str, int]
    index_functions: dict[e.PrimExpr, IndexFunction | None]
    """How indices are computed that were computed before; one dictionary of all threads."""

    value = Dispatch._handle
    """The value of an expression."""

    def plain(self, node: Any) -> Any:
        """The value of an expression as a bare NumPy value."""
        return self.arithmetic.plain(self.value(node))

    def integer(self, node: Any) -> int:
        """The value of a scalar integer expression."""
        if type(node) is e.IntImm:
            return node.value
        return int(self.value(node))

    @classmethod
    def _method_for(cls, node_class: type) -> Callable[[Any, Any], Any]:
        for base in node_class.__mro__:
            method = getattr(cls, f"value_{base.__name__}", None)
            if method is not None:
                return method
        raise Violation(f"{node_class.__name__} is no expression that can be evaluated")

    # -- leaves --

    def value_Var(self, node: e.Var) -> Any:
        found = self.variables.get(node, self)
        if found is self:
            raise Violation(f"the variable `{node.name}` is used where it is not defined")
        return found

    def value_IntImm(self, node: e.IntImm) -> Any:
        key = node.dtype, node.value
        found = _INTEGER_CONSTANTS.get(key)
        if found is None:
            if len(_INTEGER_CONSTANTS) >= _MOST_CONSTANTS:
                _INTEGER_CONSTANTS.clear()
            found = _INTEGER_CONSTANTS[key] = self.arithmetic.constant(*key)
        return found

    def value_FloatImm(self, node: e.FloatImm) -> Any:
        return self.arithmetic.constant(node.dtype, node.value)

    def value_StringImm(self, node: e.StringImm) -> str:
        return node.value

    # -- arithmetic --

    def value_BinaryOpExpr(self, node: Any) -> Any:
        function: Any = self.index_functions.get(node, self)
        if function is self:
            function = index_function(node, self.index_functions)
        if function is not None:
            try:
                return function(self.variables)
            except KeyError:
                pass  # a variable is not defined, which `value_Var` says
        return self.arithmetic.binary(type(node), node.dtype, self.value(node.a), self.value(node.b))

    def value_CmpExpr(self, node: Any) -> Any:
        a, b = self.value(node.a), self.value(node.b)
        if node.a.dtype.is_handle:
            same = (a is None and b is None) or (a is not None and b is not None and a.address == b.address)
            return np.bool_(same if isinstance(node, e.EQ) else not same)
        return self.arithmetic.compare(type(node), a, b)

    def value_And(self, node: e.And) -> Any:
        a = self.plain(node.a)
        if is_vector(a):
            return a & self.plain(node.b)
        return self.plain(node.b) if a else a

    def value_Or(self, node: e.Or) -> Any:
        a = self.plain(node.a)
        if is_vector(a):
            return a | self.plain(node.b)
        return a if a else self.plain(node.b)

    def value_Not(self, node: e.Not) -> Any:
        return np.logical_not(self.plain(node.a))

    def value_Select(self, node: e.Select) -> Any:
        return self.arithmetic.select(
            self.value(node.condition), self.value(node.true_value), self.value(node.false_value)
        )

    def value_Cast(self, node: e.Cast) -> Any:
        value = self.value(node.value)
        if node.dtype.is_handle or node.value.dtype.is_handle:
            return self._cast_pointer(value, node.dtype)
        return self.arithmetic.cast(value, node.value.dtype, node.dtype)

    def _cast_pointer(self, value: Any, target: DataType) -> Any:
        if target.is_handle:
            if isinstance(value, Pointer) or value is None:
                return value
            if int(value) == 0:
                return None
            raise Violation("an integer other than 0 is no pointer")
        if target.is_bool:
            return np.bool_(value is not None)
        return self.arithmetic.constant(target, 0 if value is None else value.address)

    def value_Let(self, node: e.Let) -> Any:
        self.variables[node.var] = self.value(node.value)
        return self.value(node.body)

    # -- vectors --

    def value_Ramp(self, node: e.Ramp) -> Any:
        base, stride = self.value(node.base), self.value(node.stride)
        lanes = np.arange(lane_count(node.dtype)).astype(storage_dtype(node.dtype.element))
        return base + stride * lanes

    def value_Broadcast(self, node: e.Broadcast) -> Any:
        return self.arithmetic.broadcast(self.value(node.value), lane_count(node.dtype))

    def value_Shuffle(self, node: Shuffle) -> Any:
        return self.arithmetic.shuffle([self.value(v) for v in node.vectors], [self.integer(i) for i in node.indices])

    # -- calls --

    def value_Call(self, node: e.Call) -> Any:
        if not isinstance(node.op, Op):
            return self.call_function(node)
        reference = node.op.get_attr("reference")
        if reference is not None:
            args = [self.value(a) for a in node.args]
            return self.arithmetic.apply(reference, node.dtype.element, args, bool(TFlushesSubnormals.of(node.op)))
        handler = CALLS.get(node.op.name)
        if handler is None:
            raise Violation(
                f"the operator {node.op.name} has no NumPy reference, and is none that the interpreter knows"
            )
        return handler(self, node)

    def call_function(self, node: e.Call) -> Any:
        """A call of a function of the module."""
        raise NotImplementedError

    # -- memory --

    def layout(self, buffer: Buffer) -> Layout:
        """The layout of a buffer. Buffers that no statement declares are views of their data pointer."""
        found = self.layouts.get(buffer)
        if found is not None:
            return found
        layout = self.evaluate_layout(buffer)
        parts = (*buffer.shape, *buffer.strides, buffer.elem_offset)
        if all(isinstance(part, e.IntImm) for part in parts):
            self.layouts[buffer] = layout
        return layout

    def evaluate_layout(self, buffer: Buffer) -> Layout:
        """The layout that the fields of a buffer describe now."""
        shape = tuple(self.integer(d) for d in buffer.shape)
        strides = tuple(self.integer(s) for s in buffer.strides) if buffer.strides else row_major(shape)
        if buffer.buffer_type == "auto_broadcast":
            strides = tuple(0 if d == 1 else s for d, s in zip(shape, strides, strict=True))
        return Layout(buffer.dtype, shape, strides, self.integer(buffer.elem_offset))

    def pointer(self, buffer: Buffer) -> Pointer:
        """Where a buffer's data is, for this thread."""
        pointer = self.value_Var(buffer.data)
        if not isinstance(pointer, Pointer):
            raise Violation(f"the data of buffer `{buffer.name}` is a null pointer")
        memory = pointer.memory
        if memory.scope == "global" or not self.coordinates:
            return pointer
        return Pointer(self.private_memory(memory), pointer.offset, pointer.dtype)

    def private_memory(self, memory: Memory) -> Memory:
        """The copy, of memory allocated around a kernel, that this thread (or its block, for shared memory) sees."""
        shared = memory.scope.startswith("shared")
        key = tuple(
            (tag, index)
            for tag, index in self.coordinates.items()
            if tag not in memory.home and tag.startswith("blockIdx" if shared else ("blockIdx", "threadIdx", "vthread"))
            # Matrix fragments and warp memory belong to all threads of a warp.
            if not (tag == "threadIdx.x" and memory.scope.startswith(("warp", "wmma", "m16n8k8")))
        )
        if not key:
            return memory
        copy = memory.private.get(key)
        if copy is None:
            copy = memory.private[key] = Memory.allocate(len(memory.bytes), memory.name, memory.scope, self.check)
            copy.home = self.coordinates
        return copy

    def locate(self, buffer: Buffer, indices: Any, mask: Any, writes: bool) -> tuple[Memory, Layout, list[int]]:
        """The byte offsets of the scalars that an access covers, after checking its bounds and the regions of the
        block.

        Lanes that `mask` leaves out have the offset -1.
        """
        layout = self.layout(buffer)
        values = [self.value(i) for i in indices]
        pointer = self.pointer(buffer)
        base = pointer.offset + layout.offset * layout.itemsize * layout.lanes
        if not values or not is_vector(values[-1]):
            point = [int(v) for v in values]
            index = self._checked_index(buffer, layout, point, writes)
            if layout.lanes == 1:
                return pointer.memory, layout, [base + index * layout.itemsize]
            return pointer.memory, layout, all_offsets(base, [index], layout.itemsize, layout.lanes)
        outer, offsets = [int(v) for v in values[:-1]], []
        for lane, last in enumerate(values[-1].tolist()):
            if mask is not None and not mask[lane]:
                offsets += [-1] * layout.lanes
                continue
            index = self._checked_index(buffer, layout, [*outer, last], writes)
            offsets += all_offsets(base, [index], layout.itemsize, layout.lanes)
        return pointer.memory, layout, offsets

    def _checked_index(self, buffer: Buffer, layout: Layout, point: list[int], writes: bool) -> int:
        index = 0
        for axis, (i, extent, stride) in enumerate(zip(point, layout.shape, layout.strides, strict=True)):
            if not 0 <= i < extent:
                raise Violation(
                    f"out of bounds: `{buffer.name}{point}` is {'written' if writes else 'read'}, "
                    f"but dimension {axis} has the extent {extent}"
                )
            index += i * stride
        if self.scopes:
            scopes = self.scopes[self.depths.get(buffer, 0) :]
            for scope in scopes:
                if not (scope.allows(buffer, point, writes) or (not writes and _updated_within(scopes, buffer, point))):
                    kind = "writes" if writes else "reads"
                    raise Violation(
                        f"undeclared access: block `{scope.name}` {kind} `{buffer.name}{point}`, "
                        f"which is outside of the {kind} that it declares"
                    )
        return index

    def touch(self, buffer: Buffer, memory: Memory, offset: int, node: Any, changes: bool = True) -> None:
        """Records one access. Raises `Violation` for a race with an access of another iteration or thread.

        Virtual threads of one thread may all write the same value: the statement will run once.
        """
        place, writes = self.place, not isinstance(node, BufferLoad)
        if self.reduced and buffer in self.reduced:
            hidden = self.reduced[buffer]
            place = tuple(entry for entry in place if entry[0].loop_var not in hidden)
        found = memory.touch(offset, place, writes, node)
        if found is not None:
            earlier, kind, other = found
            depth = divergence(earlier, place)
            region, i = earlier[depth]
            if region.members == "virtual threads" and not changes:
                return
            j = place[depth][1]
            raise Violation(
                f"race: one element of `{buffer.name}` is {kind} by iteration {i} "
                f"and {'written' if writes else 'read'} by iteration {j} of {region.name}, in no order; "
                f"{region.remedy(memory.scope, writes and kind == 'written')}",
                node,
                other,
            )

    def value_BufferLoad(self, node: BufferLoad) -> Any:
        mask = None if node.predicate is None else self.plain(node.predicate)
        memory, layout, offsets = self.locate(node.buffer, node.indices, mask, False)
        element = layout.element
        lanes = []
        for offset in offsets:
            if offset < 0:
                lanes.append(self.arithmetic.plain(self.arithmetic.constant(element, 0)))
                continue
            lanes.append(memory.read(element, offset))
            if self.check:
                if not memory.holds_value(element, offset):
                    point = [self.plain(i).tolist() for i in node.indices]
                    text = f"uninitialised: `{node.buffer.name}{point}` is read, but was never written"
                    self.read_unwritten(memory, Violation(text, node))
                if self.place:
                    self.touch(node.buffer, memory, offset, node)
        value = lanes[0] if node.dtype.is_scalar else np.array(lanes, storage_dtype(element))
        if memory.errors:
            return self.arithmetic.with_error(value, [memory.errors.get(offset) for offset in offsets])
        return value

    def read_unwritten(self, memory: Memory, violation: Violation) -> None:
        """A read of memory that holds no value there."""
        raise violation

    def store(self, buffer: Buffer, indices: Any, mask: Any, value: Any, node: Any) -> None:
        """Writes a value, scalar or vector; `node` is the statement that does."""
        memory, layout, offsets = self.locate(buffer, indices, mask, True)
        plain = self.arithmetic.plain(value)
        lanes = plain if is_vector(plain) else [plain]
        for lane, offset in enumerate(offsets):
            if offset < 0:
                continue
            if self.check and self.place:
                held = memory.holds_value(layout.element, offset)
                self.touch(buffer, memory, offset, node, not held or memory.read(layout.element, offset) != lanes[lane])
            memory.write(layout.element, offset, lanes[lane])
            error = self.arithmetic.error_of(value, lane)
            if error is not None:
                memory.errors[offset] = error
            elif memory.errors:
                memory.errors.pop(offset, None)
