"""StorageRewrite: allocations that are not in use at the same time share their memory.

    with T.allocate([1024], "float32") as a:        a = T.allocate([1024], "float32")
        ... a ...                              ->   ... a ...
        with T.allocate([1024], "float32") as b:    ... a, in the place of b ...
            ... b, not a ...

Memory is shared within one region: the function, the body of a parallel loop, a kernel. What is allocated in an
iteration of a parallel loop is that iteration's own.

Memory of a scope with a tag ("local.L0A") belongs to a unit of a processor that has one block of it: it is shared by
all dtypes, and a region has one allocation of it, in which each storage has its offset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.dtype import DataType
from ...ir.expr import Add, IntImm, Let, Mul, PrimExpr, Ramp, Sub, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.type import PointerType
from ...ir.visitor import Mapper, Visitor
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, AllocateConst, AttrStmt, BufferStore, DeclBuffer, For, ForKind, LetStmt, Stmt, While
from .pass_base import PrimFuncPass
from .pointer_value_type_rewrite import as_vectors

SMALL_BYTES = 1024
"""Memory up to this size stays where it is: it becomes registers or lies on the stack, where sharing gains nothing."""
_REGION_ATTRIBUTES = ("thread_extent", "virtual_thread", "device_scope")


class StorageRewrite(PrimFuncPass):
    """Lets allocations with disjoint lifetimes share memory, in place where a statement overwrites what it reads.

    Allocations that depend on nothing inside move to the beginning of their region; unused ones go; memory that is only
    accessed as vectors of one length becomes memory of vectors, as by `PointerValueTypeRewrite`. With `keep_small`, as
    in default pipelines, memory that becomes registers or lies on the stack stays where it is: up to `SMALL_BYTES`, and
    that of a single thread or of a warp; and all memory keeps its dtype, since vectors are loaded from any.
    """

    keep_small: bool = False

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        liveness = _Liveness()
        liveness(func.body)
        rewrite = _Rewrite(liveness, self.keep_small)
        storages = rewrite.plan(liveness.open[0])
        if storages or rewrite.moved or liveness.regions:
            func = func.with_body(rewrite.fill(storages, func.body))
        return func if self.keep_small else as_vectors(func)


def _scope(node: Allocate) -> str:
    annotation = node.buffer_var.type_annotation
    return annotation.storage_scope if isinstance(annotation, PointerType) else ""


@dataclass(eq=False)
class _Lifetime:
    """An allocation, the numbers of the first and the last statement that use it, and those statements.

    `depth` is the number of loops around the allocation. A use deeper down counts for the whole of the outermost loop
    that does not hold the allocation.
    """

    node: Allocate
    depth: int
    first: int = -1
    last: int = -1
    first_stmt: Stmt | None = None
    last_stmt: Stmt | None = None

    @property
    def elements(self) -> int | None:
        """The number of elements, where it is constant."""
        known = [e.value for e in self.node.extents if isinstance(e, IntImm)]
        return math.prod(known) if len(known) == len(self.node.extents) else None

    @property
    def tag(self) -> str:
        """The storage scope, where it is one with a tag of its own."""
        scope = _scope(self.node)
        return scope if scope.partition(".")[2] not in ("", "dyn", "workspace", "vtcm") else ""


@dataclass(eq=False)
class _Region:
    """A part of the function that one thread runs: what it allocates, which variables it defines."""

    depth: int
    allocations: list[_Lifetime] = field(default_factory=list[_Lifetime])
    defined: set[Var] = field(default_factory=set[Var])


class _Liveness(Visitor):
    """Numbers the statements and notes the lifetime of every allocation."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [_Region(0)]
        self.regions: dict[int, _Region] = {}
        self.lives: dict[Var, _Lifetime] = {}
        self.pinned: set[Var] = set()
        self.escaping: set[Var] = set()
        """Memory whose pointer is used other than by loads and stores."""
        self.step = 0
        self.stmt: Stmt | None = None
        self.loops: list[tuple[int, Stmt, set[Var]]] = []

    def visit_Var(self, var: Var) -> None:
        self.escaping.add(var)
        self.use(var)

    def use(self, var: Var) -> None:
        life = self.lives.get(var)
        if life is None:
            return
        step, stmt = self.step, self.stmt
        if len(self.loops) > life.depth:
            step, stmt, used = self.loops[life.depth]
            used.add(var)
        if life.first < 0:
            life.first, life.first_stmt = step, stmt
        life.last, life.last_stmt = self.step, stmt

    def visit_Stmt(self, node: Stmt) -> None:
        self.step += 1
        self.stmt = node
        self.generic_visit(node)

    def visit_Allocate(self, node: Allocate) -> None:
        life = self.lives[node.buffer_var] = _Lifetime(node, len(self.loops))
        self.open[-1].allocations.append(life)
        self.visit_Stmt(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.visit(node.body)  # a declaration is no use

    def visit_AllocateConst(self, node: AllocateConst) -> None:
        self.open[-1].defined.add(node.buffer_var)
        self.visit_Stmt(node)

    def visit_LetStmt(self, node: LetStmt) -> None:
        self.define(node)
        self.visit_Stmt(node)

    def visit_Let(self, node: Let) -> None:
        self.define(node)
        self.generic_visit(node)

    def define(self, node: LetStmt | Let) -> None:
        self.open[-1].defined.add(node.var)
        if node.value.dtype.is_handle:
            _Collect(self.pinned)(node.value)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if isinstance(node.node, Var):
            self.pinned.add(node.node)
        if node.attr_key in _REGION_ATTRIBUTES:
            self.region(node)
        else:
            self.visit_Stmt(node)

    def visit_Buffer(self, buffer: Any) -> None:
        pass  # a load or a store is a use, not that its buffer has a pointer

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.use(node.buffer.data)
        node.visit_children(self.visit)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.step += 1
        self.stmt = node
        self.use(node.buffer.data)
        node.visit_children(self.visit)

    def visit_For(self, node: For) -> None:
        self.open[-1].defined.add(node.loop_var)
        if node.kind is ForKind.PARALLEL:
            self.region(node)
        else:
            self.loop(node)

    def visit_While(self, node: While) -> None:
        self.loop(node)

    def loop(self, node: Stmt) -> None:
        self.step += 1
        self.stmt = node
        self.loops.append((self.step, node, set()))
        self.generic_visit(node)
        for var in self.loops.pop()[2]:
            self.lives[var].last = self.step
        self.stmt = node

    def region(self, node: Stmt) -> None:
        """A part run by one thread: its allocations live inside of it; for outer allocations it counts as a loop."""
        region = self.regions[id(node)] = _Region(len(self.loops) + 1)
        self.open.append(region)
        self.loop(node)
        self.open.pop()
        self.open[-1].defined |= region.defined


class _Collect(Visitor):
    def __init__(self, found: set[Var]):
        super().__init__()
        self.found = found

    def visit_Var(self, var: Var) -> None:
        self.found.add(var)


def _linear(expr: PrimExpr, scale: int, terms: list[tuple[int, Var]]) -> bool:
    """Adds the terms of a linear expression to `terms`, up to constants; false when it is not linear."""
    if isinstance(expr, IntImm):
        return True
    if isinstance(expr, Var):
        terms.append((scale, expr))
        return True
    if isinstance(expr, Add):
        return _linear(expr.a, scale, terms) and _linear(expr.b, scale, terms)
    if isinstance(expr, Sub):
        return _linear(expr.a, scale, terms) and isinstance(expr.b, IntImm)
    if isinstance(expr, Mul) and isinstance(expr.b, IntImm):
        return _linear(expr.a, scale * expr.b.value, terms)
    return False


def _flat_index(node: BufferStore) -> PrimExpr | None:
    """The index of an access as one number, where the extents of its buffer are constant."""
    index, buffer = node.indices[0] if node.indices else None, node.buffer
    for position, extent in zip(node.indices[1:], buffer.shape[1:], strict=True):
        if index is None or buffer.strides or not isinstance(extent, IntImm) or not position.dtype.is_scalar:
            return None
        index = ops.add(ops.multiply(index, extent), position)
    return index


def _same_place(load: BufferLoad, store: BufferStore) -> bool:
    """Whether a load and a store have equal indices, of buffers of equal shapes where they have several."""
    pairs = [(load.indices, store.indices)]
    if len(load.indices) > 1:
        pairs.append((load.buffer.shape, store.buffer.shape))
    return all(len(a) == len(b) and all(map(ops.same_expr, a, b)) for a, b in pairs)


class _InPlace(Visitor):
    """Whether `new` can take the memory of `old` in a statement: new[i] is written once, from old[i] alone."""

    def __init__(self, old: Var, new: Var):
        super().__init__()
        self.old, self.new = old, new
        self.loops: dict[Var, int] = {}
        self.allowed: BufferStore | None = None
        self.stores = 0
        self.legal = True

    def visit_For(self, node: For) -> None:
        extent = node.extent.value if isinstance(node.extent, IntImm) else 0
        self.loops[node.loop_var] = extent
        self.generic_visit(node)
        del self.loops[node.loop_var]

    def visit_While(self, node: While) -> None:
        self.legal = False

    def visit_Var(self, var: Var) -> None:
        self.legal = self.legal and var is not self.old and var is not self.new

    def visit_Buffer(self, buffer: Any) -> None:
        pass

    def visit_BufferStore(self, node: BufferStore) -> None:
        data = node.buffer.data
        if data is self.new:
            self.stores += 1
            index = _flat_index(node)
            self.legal = self.legal and index is not None and self.writes_each_once(index)
            self.allowed = node
        self.legal = self.legal and data is not self.old
        self.generic_visit(node)
        self.allowed = None

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        data = node.buffer.data
        if data is self.old:
            same = self.allowed is not None and _same_place(node, self.allowed)
            self.legal = self.legal and same
        self.legal = self.legal and data is not self.new
        self.generic_visit(node)

    def writes_each_once(self, index: PrimExpr) -> bool:
        """Whether no two iterations of the loops here have the same index: each stride exceeds the span of the smaller
        ones.
        """
        terms: list[tuple[int, Var]] = []
        reach = 0
        if isinstance(index, Ramp):
            if not (isinstance(index.stride, IntImm) and index.stride.value == 1 and isinstance(index.lanes, int)):
                return False
            index, reach = index.base, index.lanes - 1
        if not _linear(index, 1, terms) or any(scale <= 0 for scale, _ in terms):
            return False
        inner = sorted(((scale, var) for scale, var in terms if var in self.loops), key=lambda term: term[0])
        if {var for _, var in inner} != set(self.loops) or len(inner) != len(self.loops):
            return False
        for scale, var in inner:
            if scale <= reach or self.loops[var] <= 0:
                return False
            reach += scale * (self.loops[var] - 1)
        return True


@dataclass(eq=False)
class _Storage:
    """Memory, and the allocations that use it one after the other. The size is in bits, or symbolic."""

    users: list[_Lifetime]
    size: Any

    def fits(self, life: _Lifetime) -> bool:
        """Whether an allocation can follow the last user."""
        last = self.users[-1]
        a, b = last.node, life.node
        same_dtype = a.dtype is b.dtype and a.buffer_var.type_annotation == b.buffer_var.type_annotation
        if not same_dtype and not (life.tag and life.tag == last.tag):
            return False
        if (last.elements is None) != (life.elements is None):
            return False
        if life.elements is None and not (same_dtype and ops.same_expr(self.size, _symbolic_size(b))):
            return False
        if (len(a.extents) > 1 or len(b.extents) > 1) and not _same_extents(a, b):
            return False
        if last.last < life.first:
            return True
        if last.last_stmt is not life.first_stmt or last.elements != life.elements or last.first > life.first:
            return False
        check = _InPlace(a.buffer_var, b.buffer_var)
        check(life.first_stmt)
        return same_dtype and check.legal and check.stores == 1

    @property
    def extents(self) -> list[PrimExpr]:
        """The extents of the memory, in elements of the first user."""
        node = self.users[0].node
        if len(node.extents) > 1:
            return list(node.extents)
        if isinstance(self.size, PrimExpr):
            return [self.size]
        return [ops.cast(node.extents[0].dtype, -(-self.size // _bits(node.dtype)))]


def _bits(dtype: DataType) -> int:
    """The size of an element in memory; numbers of less than 8 bits are packed."""
    return dtype.bits * dtype.lanes if dtype.bits < 8 and dtype.code != "bool" else dtype.itemsize * 8


def _same_extents(a: Allocate, b: Allocate) -> bool:
    return len(a.extents) == len(b.extents) and all(map(ops.same_expr, a.extents, b.extents))


def _symbolic_size(node: Allocate) -> PrimExpr:
    size = node.extents[0]
    for extent in node.extents[1:]:
        size = ops.multiply(size, extent)
    return size


def _movable(life: _Lifetime, region: _Region, pinned: set[Var], keep_small: bool) -> bool:
    """Whether an allocation may stand at the beginning of its region."""
    node, annotation = life.node, life.node.buffer_var.type_annotation
    if life.first < 0 or node.annotations or node.buffer_var in pinned or not isinstance(annotation, PointerType):
        return False
    if keep_small and _scope(node).split(".")[0] not in ("", "global", "shared"):
        return False
    if not (isinstance(node.condition, IntImm) and node.condition.value):
        return False
    if life.elements is not None:
        return not keep_small or life.elements * node.dtype.itemsize > SMALL_BYTES
    used: set[Var] = set()
    for extent in node.extents:
        _Collect(used)(extent)
    return not used & region.defined


def _shareable(life: _Lifetime) -> bool:
    """Whether memory may be shared at all: that of one thread, and numbers of at most 32 bits, are registers."""
    registers = _scope(life.node).split(".")[0] not in ("", "global", "shared")
    scalar = life.elements is not None and life.elements * _bits(life.node.dtype) <= 32
    return bool(life.tag) or not (registers or scalar)


def _assign(lives: list[_Lifetime]) -> list[_Storage]:
    """Linear-scan allocation: each allocation, in the order of first use, takes the best free memory or else new."""
    storages: list[_Storage] = []
    for life in sorted(lives, key=lambda life: life.first):
        size = None if life.elements is None else life.elements * _bits(life.node.dtype)
        free = [s for s in storages if s.fits(life)] if _shareable(life) else []
        if not free:
            storages.append(_Storage([life], _symbolic_size(life.node) if size is None else size))
            continue
        if size is None:
            best = free[0]
        else:
            # Best fit: the smallest that is large enough, else the largest, which then grows.
            best = min(free, key=lambda s: (s.size < size, s.size if s.size >= size else -s.size))
            best.size = max(best.size, size)
        best.users.append(life)
    return storages


class _Rewrite(Mapper):
    """Moves allocations, merged, to the beginning of their region."""

    def __init__(self, liveness: _Liveness, keep_small: bool):
        super().__init__()
        self.liveness = liveness
        self.keep_small = keep_small
        self.merged: dict[Var, Var] = {}
        self.offsets: dict[Var, int] = {}
        """Where in the memory of its tagged scope an allocation begins, in bits."""
        self.moved: set[Var] = set()
        self.unused: set[Var] = set()

    def plan(self, region: _Region) -> list[_Storage]:
        pinned, keep_small = self.liveness.pinned, self.keep_small
        unused = [v.node.buffer_var for v in region.allocations if v.first < 0 and v.node.buffer_var not in pinned]
        self.unused.update(unused)
        self.moved.update(unused)
        lives = [life for life in region.allocations if _movable(life, region, pinned, keep_small)]
        kept = self.join_tagged(
            [s for s in _assign(lives) if not keep_small or len(s.users) > 1 or s.users[0].depth > region.depth]
        )
        for storage in kept:
            owner = storage.users[0].node.buffer_var
            for life in storage.users:
                self.moved.add(life.node.buffer_var)
                if life.node.buffer_var is not owner:
                    self.merged[life.node.buffer_var] = owner
        return kept

    def join_tagged(self, storages: list[_Storage]) -> list[_Storage]:
        """Makes one storage of those of a tagged scope, each at an offset that is a multiple of its elements."""
        kept: list[_Storage] = []
        blocks: dict[str, _Storage] = {}
        for storage in storages:
            tag = storage.users[0].tag
            flat = not isinstance(storage.size, PrimExpr) and all(
                len(life.node.extents) == 1 and life.node.buffer_var not in self.liveness.escaping
                for life in storage.users
            )
            block = blocks.get(tag) if tag and flat else None
            if block is None:
                kept.append(storage)
                if tag and flat:
                    blocks[tag] = storage
                continue
            step = math.lcm(*(_bits(life.node.dtype) for life in storage.users))
            offset = -(-block.size // step) * step
            self.offsets.update((life.node.buffer_var, offset) for life in storage.users)
            block.users += storage.users
            block.size = offset + storage.size
        return kept

    def fill(self, storages: list[_Storage], body: Stmt) -> Stmt:
        body = self.visit(body)
        for storage in reversed(storages):
            node = storage.users[0].node
            body = Allocate(node.buffer_var, node.dtype, storage.extents, node.condition, body)
        return body

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        return self.visit(node.body) if node.buffer.data in self.unused else self.generic_visit(node)

    def visit_Buffer(self, buffer: Buffer) -> Any:
        """The buffer over the memory that is shared; one that begins at an offset is as much longer."""
        if buffer.data not in self.offsets:
            return self._visit_shared(buffer)
        found = self._mapped.get(id(buffer))
        if found is None:
            shape = Array([ops.add(buffer.shape[0], self.elements_before(buffer))])
            found = self._mapped[id(buffer)] = (buffer, buffer.replace(data=self.visit(buffer.data), shape=shape))
        return found[1]

    def elements_before(self, buffer: Buffer) -> int:
        """How many elements of a buffer lie in front of it in the memory of its scope."""
        return self.offsets.get(buffer.data, 0) // _bits(buffer.dtype)

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return self.shifted(node, self.generic_visit(node))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        return self.shifted(node, self.generic_visit(node))

    def shifted(self, node: BufferLoad | BufferStore, new: Any) -> Any:
        """An access, with its index in the memory of its scope."""
        before = self.elements_before(node.buffer)
        return new.replace(indices=Array([ops.add(new.indices[0], before)])) if before else new

    def visit_Var(self, var: Var) -> Any:
        return self.merged.get(var, var)

    def visit_Allocate(self, node: Allocate) -> Any:
        return self.visit(node.body) if node.buffer_var in self.moved else self.generic_visit(node)

    def visit_For(self, node: For) -> Any:
        region = self.liveness.regions.get(id(node))
        if region is None:
            return self.generic_visit(node)
        storages = self.plan(region)
        low, extent = self.visit(node.min), self.visit(node.extent)
        return node.replace(min=low, extent=extent, body=self.fill(storages, node.body))

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        region = self.liveness.regions.get(id(node))
        if region is None:
            return self.generic_visit(node)
        storages = self.plan(region)
        return node.replace(value=self.visit(node.value), body=self.fill(storages, node.body))
