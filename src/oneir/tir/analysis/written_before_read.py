"""Loop-carried values in memory: for each read of a buffer, whether earlier writes of the same iteration cover it.

for i in range(8):
    t[i % 2] = A[i]          # covers the read below, in every iteration
    B[i] = t[i % 2]

`t[i] = t[i - 1] + A[i]` reads what another iteration has written, so `t` must exist outside of the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...arith import Analyzer, IntervalSet
from ...arith.constraint import conjuncts, reads_memory
from ...arith.int_set import is_infinite
from ...ir import operators as ops
from ...ir.expr import GE, LT, BinaryOpExpr, IntImm, PrimExpr, Ramp, Range, Var
from ...ir.visitor import Visitor, post_order_visit
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, DeclBuffer, For, IfThenElse, LetStmt, Stmt, While
from ..stmt_functor import substitute


@dataclass(frozen=True, eq=False)
class Frame:
    """One level of the path to an access: a loop, a block, its init, or a branch; `conditions` hold inside."""

    node: For | BlockRealize | IfThenElse | While
    conditions: tuple[PrimExpr, ...] = ()
    is_init: bool = False
    is_certain: bool = True
    """Whether it is entered whenever the conditions hold."""


@dataclass(frozen=True, eq=False)
class Access:
    """One load or store: its path, and the first and last index of each dimension in terms of loops."""

    path: tuple[Frame, ...]
    first: tuple[PrimExpr, ...]
    last: tuple[PrimExpr, ...]
    is_write: bool


@dataclass
class Accesses:
    """All accesses to one buffer, in the order in which one iteration makes them."""

    buffer: Buffer
    owner: Block
    accesses: list[Access] = field(default_factory=list[Access])
    is_opaque: bool = False
    """Whether its pointer is used by itself, so that not all accesses are known."""


class AccessCollector(Visitor):
    """Finds the accesses to every buffer that a block allocates."""

    def __init__(self) -> None:
        super().__init__()
        self.analyzer = Analyzer()
        self.by_buffer: dict[Buffer, Accesses] = {}
        self.pointers: dict[Var, Accesses] = {}
        self.views: dict[Buffer, BufferRegion] = {}
        self.values: dict[Var, PrimExpr] = {}
        self.path: tuple[Frame, ...] = ()

    def inside(self, frame: Frame, *nodes: Any) -> None:
        """Visits nodes one level deeper."""
        outer = self.path
        self.path = (*outer, frame)
        for node in nodes:
            self.visit(node)
        self.path = outer

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        begin, extent = substitute(loop.min, self.values), substitute(loop.extent, self.values)
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(begin, extent), allow_override=True)
        self.inside(Frame(loop), loop.body)

    def visit_While(self, node: While) -> None:
        self.visit(node.condition)
        self.inside(Frame(node, is_certain=False), node.body)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.visit(node.condition)
        condition = substitute(node.condition, self.values)
        self.inside(Frame(node, tuple(conjuncts(condition))), node.then_case)
        if node.else_case is not None:
            self.inside(Frame(node, (ops.logical_not(condition),)), node.else_case)

    def visit_LetStmt(self, node: LetStmt) -> None:
        self.visit(node.value)
        self.values[node.var] = substitute(node.value, self.values)
        self.visit(node.body)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        for value in realize.iter_values:
            self.visit(value)
        self.visit(realize.predicate)
        block = realize.block
        predicate = substitute(realize.predicate, self.values)
        for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
            self.values[iter_var.var] = substitute(value, self.values)
        for buffer in block.alloc_buffers:
            self.by_buffer[buffer] = self.pointers[buffer.data] = Accesses(buffer, block)
        for match in block.match_buffers:
            self.views[match.buffer] = match.source
            source = self.pointers.get(match.source.buffer.data)
            if source is not None:
                self.pointers[match.buffer.data] = source
        frame = Frame(realize, tuple(c for c in conjuncts(predicate) if not isinstance(c, IntImm)))
        if block.init is not None:
            outer = self.path
            self.path = (*outer, frame)
            self.inside(Frame(realize, is_init=True), block.init)
            self.path = outer
        self.inside(frame, block.body)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        for index in load.indices:
            self.visit(index)
        if load.predicate is not None:
            self.visit(load.predicate)
        self.access(load.buffer, load.indices, is_write=False)

    def visit_BufferStore(self, store: BufferStore) -> None:
        for index in store.indices:
            self.visit(index)
        self.visit(store.value)
        if store.predicate is not None:
            # Only some of the lanes are written, so the store covers nothing.
            self.visit(store.predicate)
            self.path = (*self.path, Frame(While(store.predicate, store), is_certain=False))
        self.access(store.buffer, store.indices, is_write=True)
        if store.predicate is not None:
            self.path = self.path[:-1]

    def access(self, buffer: Buffer, indices: Iterable[PrimExpr], is_write: bool) -> None:
        known = self.pointers.get(buffer.data)
        if known is None:
            return
        while buffer in self.views:
            source = self.views[buffer]
            indices = _through_view(source, list(indices))
            buffer = source.buffer
        if buffer is not known.buffer:
            known.is_opaque = True
            return
        first: list[PrimExpr] = []
        last: list[PrimExpr] = []
        for index in indices:
            index = substitute(index, self.values)
            if not index.dtype.is_scalar:
                index = self.analyzer.simplify(index)  # sums with the start of a view become ramps
            if isinstance(index, Ramp) and isinstance(index.lanes, int):
                first.append(index.base)
                last.append(ops.add(index.base, ops.multiply(index.stride, index.lanes - 1)))
                # Lanes with a stride other than 1 do not cover all elements between the first and the last.
                known.is_opaque |= getattr(index.stride, "value", None) != 1
            else:
                known.is_opaque |= not index.dtype.is_scalar
                first.append(index)
                last.append(index)
        known.accesses.append(Access(self.path, tuple(first), tuple(last), is_write))

    def visit_Buffer(self, buffer: Buffer) -> None:
        """The buffer of an access: its data pointer does not count as used by itself."""

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.visit(node.buffer.data)
        self.visit(node.body)

    def visit_Var(self, var: Var) -> None:
        known = self.pointers.get(var)
        if known is not None:
            known.is_opaque = True
            known.accesses.append(Access(self.path, (), (), is_write=False))


def _through_view(source: BufferRegion, indices: list[PrimExpr]) -> list[PrimExpr]:
    lead = len(source.region) - len(indices)
    inner = [ops.add(r.min, i) for r, i in zip(source.region[lead:], indices, strict=True)]
    return [*(r.min for r in source.region[:lead]), *inner]


def common_path(paths: Iterable[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    """The frames that all paths begin with."""
    iterator = iter(paths)
    common = next(iterator)
    for path in iterator:
        count = 0
        while count < min(len(common), len(path)) and common[count] is path[count]:
            count += 1
        common = common[:count]
    return common


def reads_own_writes(known: Accesses, analyzer: Analyzer) -> bool:
    """Whether each read of a buffer is provably covered by earlier writes in the same iteration of their common loops.

    Then no loop around all accesses carries values of the buffer from one iteration to the next. The loops of a
    reduction, which update one value, count as one iteration.
    """
    if known.is_opaque:
        return False
    written, boxes = _Written(), dict[tuple[int, int], _Box | None]()
    for access in known.accesses:
        if access.is_write:
            written.add(access)
            continue
        writes = list(written.candidates(access))
        one_covers = any(_covers(write, access, known.buffer, analyzer, boxes) for write in writes)
        if not one_covers and not _cover_together(writes, access, known.buffer, analyzer, boxes):
            return False
    return True


class _Written:
    """Writes indexed by their constant indices: unrolled code has many, of which few can cover a read."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], dict[tuple[int, ...], list[Access]]] = {}

    def add(self, write: Access) -> None:
        """Adds a write."""
        numbers = _numbers(write)
        group = self.groups.setdefault(tuple(numbers), {})
        group.setdefault(tuple(numbers.values()), []).append(write)

    def candidates(self, read: Access) -> Iterator[Access]:
        """The writes that may cover a read: those whose constant indices do not differ from the read's."""
        numbers = _numbers(read)
        for axes, group in self.groups.items():
            if all(axis in numbers for axis in axes):
                yield from group.get(tuple(numbers[axis] for axis in axes), ())
            else:
                for writes in group.values():
                    yield from writes


def _numbers(access: Access) -> dict[int, int]:
    """The dimensions in which an access has a constant index, and that index."""
    return {
        axis: first.value
        for axis, (first, last) in enumerate(zip(access.first, access.last, strict=True))
        if isinstance(first, IntImm) and isinstance(last, IntImm) and first.value == last.value
    }


def reduction_loops(path: tuple[Frame, ...]) -> set[Var]:
    """The reduction loops of the blocks whose inits are on a path."""
    found: set[Var] = set()
    for frame in path:
        if frame.is_init and isinstance(frame.node, BlockRealize):
            for iter_var, value in zip(frame.node.block.iter_vars, frame.node.iter_values, strict=True):
                if iter_var.iter_type == IterVar.CommReduce:
                    found.update(_variables(value))
    return found


def _variables(expr: PrimExpr) -> Iterator[Var]:
    found: list[Var] = []
    post_order_visit(expr, lambda node: found.append(node) if isinstance(node, Var) else None)
    return iter(found)


def _loops(frames: Iterable[Frame]) -> dict[Var, For]:
    return {frame.node.loop_var: frame.node for frame in frames if isinstance(frame.node, For)}


_Range = tuple[PrimExpr, PrimExpr, bool, bool]
"""The first and the last index of a dimension that is written, and whether these are the buffer's own."""
_Box = list[_Range]


def _covers(
    write: Access, read: Access, buffer: Buffer, analyzer: Analyzer, boxes: dict[tuple[int, int], _Box | None]
) -> bool:
    """Whether a write before a read covers all elements that it reads.

    `boxes` keeps what a write covers, by its id and the number of loops and blocks that it shares with a read.
    """
    common = len(common_path((write.path, read.path)))
    inner, reading = _loops(write.path[common:]), _loops(read.path[common:])
    reduced = reduction_loops(write.path)
    if any(not frame.is_certain for frame in write.path[common:]) or not _starts_reductions(write, analyzer):
        return False
    if _is_renamed(write, read, inner, reading, reduced):
        return _runs(write, read, common, inner, buffer, analyzer)
    key = id(write), common
    if key not in boxes:
        boxes[key] = _box_of(write, inner, reduced, buffer, analyzer)
    box = boxes[key]
    if box is None or not _runs(write, read, common, inner, buffer, analyzer):
        return False
    return _contains(box, read, reading, analyzer)


def _cover_together(
    writes: list[Access],
    read: Access,
    buffer: Buffer,
    analyzer: Analyzer,
    boxes: dict[tuple[int, int], _Box | None],
) -> bool:
    """Whether writes of neighbouring parts, as unrolled code has them, cover all elements that a read reads.

    `boxes` has what each of them covers by itself.
    """
    found: dict[int, _Box] = {}
    for write in writes:
        common = len(common_path((write.path, read.path)))
        box = boxes.get((id(write), common))
        if box is None or not _runs(write, read, common, _loops(write.path[common:]), buffer, analyzer):
            continue
        whole = found.get(common)
        found[common] = box if whole is None else _joined(whole, box, analyzer) or box
    return any(_contains(box, read, _loops(read.path[common:]), analyzer) for common, box in found.items())


def _joined(a: _Box, b: _Box, analyzer: Analyzer) -> _Box | None:
    """What two writes cover, of which the second begins, along one dimension, where the first ends; None for others."""
    differing = [axis for axis, (x, y) in enumerate(zip(a, b, strict=True)) if not _same_range(x, y, analyzer)]
    if len(differing) != 1:
        return None
    (axis,) = differing
    (low, end, from_first, _), (start, high, _, to_last) = a[axis], b[axis]
    if not analyzer.can_prove_equal(start, end + 1):
        return None
    return [*a[:axis], (low, high, from_first, to_last), *a[axis + 1 :]]


def _same_range(x: _Range, y: _Range, analyzer: Analyzer) -> bool:
    return x is y or (analyzer.can_prove_equal(x[0], y[0]) and analyzer.can_prove_equal(x[1], y[1]))


def _contains(box: _Box, read: Access, reading: dict[Var, For], analyzer: Analyzer) -> bool:
    """Whether a read in such loops reads elements of a box only."""
    domains: Any = {var: IntervalSet(loop.min, loop.min + loop.extent - 1) for var, loop in reading.items()}

    def range_of(index: PrimExpr) -> Any:
        return analyzer.int_set(index, domains)

    for axis, (low, high, from_first, to_last) in enumerate(box):
        if reads_memory(read.first[axis]):
            return False
        # Reads are in bounds, so writing all of a dimension is enough.
        if not (from_first or _at_most(low, range_of(read.first[axis]).min_value, analyzer)):
            return False
        if not (to_last or _at_most(range_of(read.last[axis]).max_value, high, analyzer)):
            return False
    return True


def _box_of(write: Access, inner: dict[Var, For], reduced: set[Var], buffer: Buffer, analyzer: Analyzer) -> _Box | None:
    """What a write covers; None where that is not certain."""
    written = _written_box(write, inner, reduced, analyzer)
    if written is None:
        return None
    return [
        (low, high, analyzer.can_prove(low <= 0), analyzer.can_prove(high >= extent - 1))
        for (low, high), extent in zip(written, buffer.shape, strict=True)
    ]


def _is_renamed(write: Access, read: Access, inner: dict[Var, For], reading: dict[Var, For], reduced: set[Var]) -> bool:
    """Whether a read has the indices of a write, but for the names of their loops: the usual case, and a fast one.

    Each inner loop of the write stands for a loop of the read with the same range, so that an iteration of the write
    has exactly the indices of an iteration of the read.
    """
    names: dict[Var, Var] = {}

    def same(written: Any, other: Any) -> bool:
        if isinstance(written, Var):
            loop = inner.get(written)
            if loop is None:
                return written is other and written not in reduced
            if written not in names and isinstance(other, Var) and other in reading:
                begin, extent = reading[other].min, reading[other].extent
                if ops.same_expr(loop.min, begin) and ops.same_expr(loop.extent, extent):
                    names[written] = other
            return names.get(written) is other
        if type(written) is not type(other):
            return False
        if isinstance(written, IntImm):
            return ops.same_expr(written, other)
        return isinstance(written, BinaryOpExpr) and same(written.a, other.a) and same(written.b, other.b)

    if not all(map(same, (*write.first, *write.last), (*read.first, *read.last))):
        return False
    others = (loop.extent for var, loop in inner.items() if var not in names)
    return all(isinstance(extent, IntImm) and extent.value >= 1 for extent in others)


def _at_most(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    return not (is_infinite(a) or is_infinite(b)) and analyzer.can_prove(ops.less_equal(a, b))


def _starts_reductions(write: Access, analyzer: Analyzer) -> bool:
    """Whether the inits that contain a write run in the first iteration of their reduction loops."""
    loops = _loops(write.path)
    for frame in write.path:
        if not (frame.is_init and isinstance(frame.node, BlockRealize)):
            continue
        for iter_var, value in zip(frame.node.block.iter_vars, frame.node.iter_values, strict=True):
            if iter_var.iter_type != IterVar.CommReduce:
                continue
            at_first = substitute(value, {v: loops[v].min for v in _variables(value) if v in loops})
            if iter_var.dom is None or not analyzer.can_prove_equal(at_first, iter_var.dom.min):
                return False
    return True


def _written_box(
    write: Access, inner: dict[Var, For], reduced: set[Var], analyzer: Analyzer
) -> list[tuple[PrimExpr, PrimExpr]] | None:
    """The first and last index of each dimension of a write whose inner loops write all indices between.

    None where that is not certain. An index may be a sum of loops, each spanning the step of the next; each loop may
    occur in one dimension only.
    """
    unused = dict(inner)
    box: list[tuple[PrimExpr, PrimExpr]] = []
    for first, last in zip(write.first, write.last, strict=True):
        if reads_memory(first):
            return None
        used = list(dict.fromkeys(_variables(first)))
        if any(var in reduced for var in used):
            return None
        steps: list[tuple[int, For]] = []
        for var in used:
            if var not in inner:
                continue
            if unused.pop(var, None) is None:
                return None
            step = analyzer.simplify(substitute(first, {var: var + 1}) - first)
            if not isinstance(step, IntImm) or step.value == 0:
                return None
            steps.append((step.value, inner[var]))
        width = analyzer.simplify(last - first + 1)
        if not isinstance(width, IntImm) or not _is_dense(width.value, steps):
            return None
        ends = [(loop.loop_var, loop.min, loop.min + loop.extent - 1, step) for step, loop in steps]
        low = substitute(first, {v: begin if step > 0 else end for v, begin, end, step in ends})
        high = substitute(last, {v: end if step > 0 else begin for v, begin, end, step in ends})
        if any(var in inner for bound in (low, high) for var in _variables(bound)):
            return None
        box.append((analyzer.simplify(low), analyzer.simplify(high)))
    return box if all(analyzer.can_prove(loop.extent >= 1) for loop in unused.values()) else None


def _is_dense(width: int, steps: list[tuple[int, For]]) -> bool:
    """Whether sums of loops with these steps, each the start of `width` elements, leave no gap."""
    steps = sorted(steps, key=lambda item: abs(item[0]))
    for i, (step, loop) in enumerate(steps):
        if abs(step) > width:
            return False
        if i + 1 < len(steps):
            if not isinstance(loop.extent, IntImm) or loop.extent.value < 1:
                return False
            width += abs(step) * (loop.extent.value - 1)
    return True


def _runs(write: Access, read: Access, common: int, inner: dict[Var, For], buffer: Buffer, analyzer: Analyzer) -> bool:
    """Whether the conditions of a write hold in all iterations whose elements a read uses."""
    known = [condition for frame in read.path[common:] for condition in frame.conditions]
    for frame in write.path[common:]:
        for condition in frame.conditions:
            if reads_memory(condition):
                return False
            shared = not any(var in inner for var in _variables(condition))
            if shared and any(ops.same_expr(condition, other) for other in known):
                continue
            if not (_keeps_in_bounds(condition, write, buffer, analyzer) or analyzer.can_prove(condition)):
                return False
    return True


def _keeps_in_bounds(condition: PrimExpr, write: Access, buffer: Buffer, analyzer: Analyzer) -> bool:
    """Whether a condition only keeps an index from leaving the buffer."""
    if not isinstance(condition, (LT, GE)):
        return False
    for index, extent in zip(write.last, buffer.shape, strict=True):
        if index.dtype is condition.a.dtype and analyzer.can_prove_equal(index, condition.a):
            bound = condition.b >= extent if isinstance(condition, LT) else condition.b <= 0
            return analyzer.can_prove(bound)
    return False


def collect_accesses(body: Stmt) -> AccessCollector:
    """The accesses to all buffers that blocks in a statement allocate."""
    collector = AccessCollector()
    collector(body)
    return collector
