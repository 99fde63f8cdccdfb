"""How a kernel can be divided among workers, each of which computes an equal part with its parts of the tensors.

For `C[i, j] += A[i, k] * B[k, j]` and 2 workers there are three divisions: by i (rows of A and C), by j (columns of B
and C), and by k (columns of A and rows of B), where the workers' results C are to be added up.

Nothing but accesses is looked at. A variable of extent E can be divided among n workers if E / n steps of it move each
index by a worker's part of that axis, or not at all, whatever the other variables are; then a worker that runs E / n
steps over its parts does what one worker would do at its place. All that is tied together by such accesses is
divided together, and what is used in any other way (`x[i + 1]`, a mask of `i < j`) cannot be divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..arith import Analyzer
from ..ir import operators as ops
from ..ir.container import Array
from ..ir.expr import Add, Max, Min, Mul, PrimExpr, Var, as_int, const
from ..ir.expr import Range as RangeOf
from ..ir.substitute import substitute
from ..ir.visitor import Mapper, Visitor, post_order_visit
from .buffer import Buffer
from .expr import BufferLoad, IterVar, IterVarType
from .function import PrimFunc
from .schedule.reducer import match_reduction
from .stmt import Block, BlockRealize, BufferRegion, BufferStore, For

Node = Var | tuple[Buffer, int]
"""What is divided or not: a variable of a loop or block, or an axis of a buffer."""


@dataclass(frozen=True)
class Division:
    """One way to divide a kernel. `axes`: for the buffers that are divided, the axis; `variables`: those of which each
    worker runs a part. `combine`: where workers get parts of the sum in `combined`, how these are put together ("sum",
    "prod", "min", "max"); else None.
    """

    parts: int
    axes: dict[Buffer, int]
    variables: frozenset[Var]
    combine: str | None = None
    combined: Buffer | None = None


def divisions(func: PrimFunc, parts: int) -> list[Division]:
    """The ways to divide a kernel among `parts` workers, no two of which divide the same axis of a buffer."""
    accesses = _Accesses(func, parts)
    accesses(func.body)
    return accesses.divisions()


def divide(func: PrimFunc, division: Division) -> PrimFunc:
    """What each worker runs: the kernel over its parts."""
    divider = _Divider(division)
    buffer_map = {param: divider.visit(buffer) for param, buffer in func.buffer_map.items()}
    return func.replace(buffer_map=buffer_map, body=divider(func.body))


_KINDS: dict[type, tuple[str, int | None]] = {Add: ("sum", 0), Mul: ("prod", 1), Min: ("min", None), Max: ("max", None)}
"""How results of a combiner are put together, and from which initial value alone that is right (None: any)."""


class _Accesses(Visitor):
    """Ties variables and axes together, and finds those that cannot be divided."""

    def __init__(self, func: PrimFunc, parts: int):
        super().__init__()
        self.params, self.parts = set(func.buffer_map.values()), parts
        self.parent: dict[Node, Node] = {}
        self.blocked: set[Node] = set()
        self.extents: dict[Var, int | None] = {}
        self.open: list[Var] = []
        """The variables around, of loops and blocks."""
        self.bound: set[Var] = set()
        """Those of loops around that are the value of a block's variable: what is said of that one goes for them."""
        self.reducing: dict[Var, tuple[Buffer, str]] = {}
        self.users: dict[Buffer, set[int]] = {}
        self.block: Block | None = None
        self.blocks: list[set[Var]] = []
        """The variables of each block, and all that are around each store."""

    # -- what is tied together --

    def find(self, node: Node) -> Node:
        """What stands for all that a variable or axis is tied to."""
        while (above := self.parent.get(node, node)) is not node:
            node = above
        return node

    def tie(self, a: Node, b: Node) -> None:
        """Both are divided, or neither is."""
        first, second = self.find(a), self.find(b)
        if first is not second:
            self.parent[first] = second
        self.parent.setdefault(second, second)

    def divisions(self) -> list[Division]:
        """All that can be divided, once everything has been visited."""
        for var, (buffer, _) in self.reducing.items():
            # A part of a sum is no value that anything else in the kernel could use.
            if buffer not in self.params or len(self.users[buffer]) > 1:
                self.blocked.add(var)
        groups: dict[Node, list[Node]] = {}
        for node in [*self.parent, *self.extents]:
            group = groups.setdefault(self.find(node), [])
            if node not in group:
                group.append(node)
        return [d for group in groups.values() if (d := self.division(group)) is not None]

    def division(self, group: list[Node]) -> Division | None:
        """How a group of variables and axes is divided, if it can be."""
        variables = frozenset(node for node in group if isinstance(node, Var))
        axes = {node[0]: node[1] for node in group if isinstance(node, tuple)}
        if not axes or self.blocked.intersection(group) or len(axes) + len(variables) != len(group):
            return None
        if any(buffer.data in self.blocked for buffer in axes):
            return None
        if any(len(variables.intersection(around)) > 1 for around in self.blocks):
            return None  # each worker would run one corner of what they span
        sums = [self.reducing[var] for var in variables if var in self.reducing]
        if len(sums) > 1:
            return None
        buffer, kind = sums[0] if sums else (None, None)
        return Division(self.parts, axes, variables, kind, buffer)

    # -- loops and blocks --

    def declare(self, var: Var, low: PrimExpr, extent: PrimExpr) -> None:
        """A variable with its range."""
        count = as_int(extent)
        self.extents[var] = count
        if as_int(low) != 0 or count is None or count % self.parts:
            self.blocked.add(var)

    def visit_For(self, node: For) -> None:
        self.declare(node.loop_var, node.min, node.extent)
        self.visit(node.min)
        self.visit(node.extent)
        if node.thread_binding is not None:
            self.blocked.add(node.loop_var)
        self.open.append(node.loop_var)
        self.visit(node.body)
        self.open.pop()

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        self.visit(node.predicate)
        block = node.block
        bound, count = set(self.bound), len(self.open)
        for iter_var, value in zip(block.iter_vars, node.iter_values, strict=True):
            dom = iter_var.dom
            assert dom is not None
            self.declare(iter_var.var, dom.min, dom.extent)
            if isinstance(value, Var) and value in self.open and value not in self.bound:
                self.tie(value, iter_var.var)
                self.bound.add(value)
            else:
                self.blocked.add(iter_var.var)
                self.visit(value)
            self.open.append(iter_var.var)
        self.blocks.append({iter_var.var for iter_var in block.iter_vars})
        outer, self.block = self.block, block
        self.sums(block)
        for region in (*block.reads, *block.writes):
            self.region(region)
        for match in block.match_buffers:
            self.opaque(match.source.buffer)
            self.opaque(match.buffer)
        if block.init is not None:
            # An initial value is stored once for all steps of what is reduced.
            spatial = [v for v in self.open if v not in self.reducing]
            self.open, steps = spatial, self.open
            self.visit(block.init)
            self.open = steps
        self.visit(block.body)
        self.block, self.bound = outer, bound
        del self.open[count:]

    def sums(self, block: Block) -> None:
        """The variables that a block reduces over, where it is known how partial results are put together."""
        reduced = [v for v in block.iter_vars if v.iter_type == IterVarType.CommReduce]
        if not reduced:
            return
        found = match_reduction(block)
        if isinstance(found, str) or len(found.results) != 1:
            return
        kind, start = _KINDS.get(type(found.results[0]), (None, None))
        identity = found.identity[0]
        if kind is None or identity.dtype.is_bool:
            return
        if start is not None and getattr(identity, "value", None) != start:
            return
        for iter_var in reduced:
            self.reducing[iter_var.var] = found.buffers[0], kind

    # -- accesses --

    def visit_Var(self, var: Var) -> None:
        # In an index it would have been seen by `access`; here its value counts.
        self.blocked.add(var)

    def visit_Buffer(self, buffer: Buffer) -> None:
        self.opaque(buffer)

    def opaque(self, buffer: Buffer) -> None:
        """A buffer that is used in some other way than element by element."""
        self.blocked.update((buffer, axis) for axis in range(len(buffer.shape)))

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.access(node.buffer, node.indices)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.visit(node.value)
        owners = self.access(node.buffer, node.indices)
        self.blocks.append(set(self.open) - self.bound)
        for var in self.open:
            if var in owners or var in self.bound:
                continue
            summed = self.reducing.get(var)
            if summed is None or summed[0] is not node.buffer:
                self.blocked.add(var)

    def region(self, region: BufferRegion) -> None:
        """A region that a block states must be of single elements where it is divided."""
        for axis, extent in enumerate(region.region):
            whole = self.block is not None and not self.block.iter_vars
            if as_int(extent.extent) != 1 and not whole:
                self.blocked.add((region.buffer, axis))

    def access(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> set[Var]:
        """One access: ties each axis to the variable that moves along it. Returns these variables."""
        self.users.setdefault(buffer, set()).add(id(self.block))
        if buffer.strides or as_int(buffer.elem_offset) != 0:
            self.opaque(buffer)
        values = _Loads(self)
        flat = [values(index) for index in indices]
        owners: set[Var] = set()
        for axis, (index, extent) in enumerate(zip(flat, buffer.shape, strict=True)):
            owner = self.owner(index, as_int(extent))
            if owner is None:
                self.blocked.add((buffer, axis))
            else:
                owners.add(owner)
                self.tie(owner, (buffer, axis))
        return owners

    def owner(self, index: PrimExpr, extent: int | None) -> Var | None:
        """The variable whose steps move an index from one worker's part of an axis to the next one's."""
        found = None
        used: list[Var] = []
        post_order_visit(index, lambda node: used.append(node) if isinstance(node, Var) else None)
        for var in dict.fromkeys(used):
            if var in self.blocked or var not in self.extents:
                continue
            steps = self.extents[var]
            assert steps is not None
            if index is var:
                moved = steps // self.parts
            elif self.moves(index, var, steps, 0):
                continue
            else:
                moved = None if extent is None or extent % self.parts else extent // self.parts
                if moved is None or not self.moves(index, var, steps, moved):
                    moved = None
            if moved is None or extent != moved * self.parts or found is not None:
                self.blocked.add(var)
            else:
                found = var
        return found

    def moves(self, index: PrimExpr, var: Var, steps: int, by: int) -> bool:
        """Whether a worker's steps of a variable move an index by so many elements, wherever it is."""
        analyzer = Analyzer()
        for other, extent in self.extents.items():
            if other is not var and extent is not None:
                analyzer.bind(other, RangeOf(const(0, other.dtype), const(extent, other.dtype)))
        worker = Var("worker", var.dtype)
        analyzer.bind(var, RangeOf(const(0, var.dtype), const(steps // self.parts, var.dtype)))
        analyzer.bind(worker, RangeOf(const(0, var.dtype), const(self.parts, var.dtype)))
        there = substitute(index, {var: ops.add(var, ops.multiply(worker, const(steps // self.parts, var.dtype)))})
        shift = ops.multiply(ops.cast(index.dtype, worker), const(by, index.dtype))
        return analyzer.can_prove_equal(there, ops.add(index, shift))


class _Loads(Mapper):
    """Replaces loads in an index, which are accesses of their own, by variables: what they give moves with nothing."""

    def __init__(self, accesses: _Accesses):
        super().__init__()
        self.accesses = accesses

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        self.accesses.access(node.buffer, node.indices)
        return Var("loaded", node.dtype)


class _Divider(Mapper):
    def __init__(self, division: Division):
        super().__init__()
        self.division = division

    def part(self, extent: PrimExpr) -> PrimExpr:
        """A worker's part of an extent."""
        count = as_int(extent)
        assert count is not None
        return const(count // self.division.parts, extent.dtype)

    def visit_Buffer(self, buffer: Buffer) -> Any:
        found = self._mapped.get(id(buffer))
        if found is None:
            axis = self.division.axes.get(buffer)
            shape = [self.part(e) if i == axis else e for i, e in enumerate(buffer.shape)]
            found = self._mapped[id(buffer)] = buffer, buffer if axis is None else buffer.replace(shape=shape)
        return found[1]

    def visit_For(self, node: For) -> Any:
        if node.loop_var in self.division.variables:
            node = node.replace(extent=self.part(node.extent))
        return self.generic_visit(node)

    def visit_Block(self, node: Block) -> Any:
        iter_vars = [self.iter_var(v) for v in node.iter_vars]
        buffers = [self.visit(b) for b in node.alloc_buffers]
        return self.generic_visit(node.replace(iter_vars=Array(iter_vars), alloc_buffers=Array(buffers)))

    def iter_var(self, iter_var: IterVar) -> IterVar:
        """A variable of a block over a worker's part of its range."""
        dom = iter_var.dom
        if iter_var.var not in self.division.variables or dom is None:
            return iter_var
        return iter_var.replace(dom=RangeOf.from_min_extent(dom.min, self.part(dom.extent)))
