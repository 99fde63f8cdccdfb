"""BindUnboundStatements: what nobody has scheduled for a device with threads runs there all the same.

for i in T.parallel(n):        ->      for bx in T.thread_binding(ceildiv(n, 64), "blockIdx.x"):
    f(i)                                   for tx in T.thread_binding(64, "threadIdx.x"):
                                               if bx * 64 + tx < n:
                                                   f(bx * 64 + tx)
g()                            ->      for bx in T.thread_binding(1, "blockIdx.x"):
                                           g()

A parallel loop has a thread for each iteration; any other statement has one thread alone, which is slow, but right.
Memory that an iteration allocates, and whose size is not known or large, is allocated before, for all of them at once.
"""

from __future__ import annotations

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import Broadcast, IntImm, PrimExpr, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ...target.target import Target
from ..analysis import undefined_vars
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar, IterVarType
from ..function import PrimFunc
from ..stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from ..stmt_functor import substitute
from .annotate_device_regions import DEVICE_SCOPES
from .pass_base import PrimFuncPass

THREADS = 64
"""Threads of a block for a parallel loop: enough for a warp of any device, few enough that blocks spread over it."""
SCRATCH_BYTES = 1024
"""Bytes of its own up to which a thread has memory that is allocated with it: more than registers, far less than a page
of each of the thousands of threads that run at the same time."""


class BindUnboundStatements(PrimFuncPass):
    """Binds statements of device functions that are bound to no threads; runs on functions without blocks.

    Functions for the host, and for targets without threads, are left as they are.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target: Target | None = func.attrs.get("target")
        if target is None or "gpu" not in target.keys:
            return func
        return func.with_body(_bound(func.body))


class _Touches(Visitor):
    """Whether a statement reads or writes memory."""

    found = False

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.found = True

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.found = True


def _is_device_scope(stmt: Stmt) -> bool:
    return isinstance(stmt, AttrStmt) and stmt.attr_key in DEVICE_SCOPES


class _Regions(Visitor):
    """Whether a statement has parts that are bound to threads, or parallel loops that are in no other loop."""

    found = False

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if _is_device_scope(node):
            self.found = True
        else:
            self.generic_visit(node)

    def visit_For(self, node: For) -> None:
        if node.kind is ForKind.PARALLEL:
            self.found = True
        elif not self.found:
            inner = _Bound()
            inner(node.body)
            self.found = inner.found


class _Bound(Visitor):
    """Whether a part of a statement is bound to threads."""

    found = False

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        self.found = self.found or _is_device_scope(node)
        self.generic_visit(node)


def _finds(visitor: _Touches | _Regions, stmt: Stmt) -> bool:
    visitor(stmt)
    return visitor.found


def _bound(stmt: Stmt) -> Stmt:
    """The statement, in which all that touches memory is bound: region by region, or whole where it has none."""
    if _is_device_scope(stmt) or not _finds(_Touches(), stmt):
        return stmt
    if isinstance(stmt, For) and stmt.kind is ForKind.PARALLEL:
        return _in_threads(stmt)
    if not _finds(_Regions(), stmt):
        scratch = _Scratch(const(0), const(1), set())
        body = scratch.visit(stmt)
        return scratch.around(_bind(Var("blockIdx_x", "int32"), "blockIdx.x", const(1), body))
    if isinstance(stmt, SeqStmt):
        return stmt.replace(seq=[_bound(part) for part in stmt.seq])
    if isinstance(stmt, IfThenElse):
        other = None if stmt.else_case is None else _bound(stmt.else_case)
        return stmt.replace(then_case=_bound(stmt.then_case), else_case=other)
    assert isinstance(stmt, (DeclBuffer, AttrStmt, Allocate, LetStmt, For, AssertStmt, While)), type(stmt)
    return stmt.replace(body=_bound(stmt.body))


class _Scratch(Mapper):
    """The body of one thread: its parallel loops are serial, its large memory is part `thread` of what all share.

    `inner` are variables that only the thread knows: memory whose size depends on them stays where it is.
    """

    def __init__(self, thread: PrimExpr, threads: PrimExpr, inner: set[Var]):
        super().__init__()
        self.thread, self.threads, self.inner = thread, threads, inner
        self.sizes: dict[Var, PrimExpr] = {}
        """Elements of memory that each thread has."""
        self.taken: list[Allocate] = []
        self.buffers: dict[Buffer, Buffer] = {}

    def around(self, stmt: Stmt) -> Stmt:
        """The statement with the memory of all threads allocated."""
        for node in reversed(self.taken):
            size = self.sizes[node.buffer_var]
            count = ops.multiply(ops.cast("int64", self.threads), ops.cast("int64", size))
            stmt = Allocate(node.buffer_var, node.dtype, [count], node.condition, stmt)
        return stmt

    def visit_For(self, node: For) -> Stmt:
        self.inner.add(node.loop_var)
        node = self.generic_visit(node)
        return node.replace(kind=ForKind.SERIAL) if node.kind is ForKind.PARALLEL else node

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        self.inner.add(node.var)
        return self.generic_visit(node)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        size: PrimExpr = const(1)
        for extent in node.extents:
            size = ops.multiply(size, extent)
        is_small = isinstance(size, IntImm) and size.value * node.dtype.itemsize <= SCRATCH_BYTES
        if is_small or self.inner & set(undefined_vars(size)):
            return self.generic_visit(node)
        self.sizes[node.buffer_var] = size
        self.taken.append(node)
        return self.visit(node.body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        return node.replace(buffer=self.buffer(node.buffer), body=self.visit(node.body))

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        node = self.generic_visit(node)
        return node.replace(buffer=self.buffer(node.buffer), indices=self.indices(node))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        node = self.generic_visit(node)
        return node.replace(buffer=self.buffer(node.buffer), indices=self.indices(node))

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer with the elements of all threads, if each has its own."""
        if buffer.data not in self.sizes:
            return buffer
        if buffer not in self.buffers:
            extent = ops.multiply(ops.cast("int64", self.threads), ops.cast("int64", self.sizes[buffer.data]))
            self.buffers[buffer] = buffer.replace(shape=[extent])
        return self.buffers[buffer]

    def indices(self, access: BufferLoad | BufferStore) -> list[PrimExpr]:
        """The indices of an access, in the thread's own part."""
        size = self.sizes.get(access.buffer.data)
        if size is None:
            return list(access.indices)
        (index,) = access.indices
        start = ops.multiply(ops.cast("int64", self.thread), ops.cast("int64", size))
        if index.dtype.lanes > 1:
            index = ops.cast(DataType("int64").with_lanes(index.dtype.lanes), index)
            return [ops.add(Broadcast(start, index.dtype.lanes), index)]
        return [ops.add(start, ops.cast("int64", index))]


def _in_threads(loop: For) -> Stmt:
    """A parallel loop with a thread for each iteration."""
    dtype = loop.loop_var.dtype
    block, thread = Var("blockIdx_x", "int32"), Var("threadIdx_x", "int32")
    place = ops.add(ops.multiply(ops.cast(dtype, block), const(THREADS, dtype)), ops.cast(dtype, thread))
    scratch = _Scratch(place, loop.extent, {loop.loop_var})
    body = substitute(scratch.visit(loop.body), {loop.loop_var: ops.add(loop.min, place)})
    guarded = IfThenElse(ops.less(place, loop.extent), body)
    blocks = ops.floordiv(ops.add(loop.extent, const(THREADS - 1, dtype)), const(THREADS, dtype))
    inner = _bind(thread, "threadIdx.x", const(THREADS), guarded)
    return scratch.around(_bind(block, "blockIdx.x", ops.cast("int32", blocks), inner))


def _bind(var: Var, tag: str, extent: object, body: Stmt) -> Stmt:
    axis = IterVar(None, var, IterVarType.ThreadIndex, tag)
    return AttrStmt(axis, "thread_extent", extent, body)
