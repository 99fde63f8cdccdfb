"""ThreadSync: inserts barriers between statements whose accesses to shared memory would otherwise race.

    S[tx] = A[tx]                       S[tx] = A[tx]
    B[tx] = S[31 - tx]        ->        T.tvm_storage_sync("shared")
                                        B[tx] = S[31 - tx]

Statements of a kernel are looked at in order, those of a loop twice, since an iteration follows another. A barrier goes
before a statement that reads what was written, or writes what was read, since the last barrier; in dynamic memory, of
which `MergeSharedMemoryAllocations` makes one allocation, also before one that writes other memory than what was read.
Accesses of one element are no conflict where the index determines the thread, so that one thread makes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...arith import IterMapLevel, detect_iter_map
from ...ir.dtype import DataType
from ...ir.expr import Call, IntImm, PrimExpr, Range, StringImm, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.operators import same_expr
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import WellFormedError
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..schedule.domain import uses
from ..stmt import AttrStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt, While
from .pass_base import PrimFuncPass

READ, WRITE, BARRIER = "read", "write", "barrier"


class ThreadSync(PrimFuncPass):
    """Inserts `T.tvm_storage_sync(storage_scope)` where threads exchange values through memory of that scope.

    Runs on functions without blocks. Raises `WellFormedError` where a barrier would stand in a condition that differs
    between threads.
    """

    storage_scope: str

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        scope = self.storage_scope
        merged = scope == "shared.dyn" or (scope == "shared" and bool(ctx.config.get("tir.merge_static_smem", False)))
        planner = _Planner(scope, merged)
        try:
            planner(func.body)
        except _Divergent as divergent:
            text = func.script(obj_to_underline=[divergent.stmt, divergent.condition])
            raise WellFormedError(
                f"Cannot insert syncs inside condition: the underlined statement needs a barrier for {scope} memory "
                "before it, but only some threads come by; take what other threads write or read out of the underlined "
                f"condition\n{text}"
            ) from None
        return func.with_body(_Inserter(planner.barriers, scope)(func.body)) if planner.barriers else func


@dataclass(frozen=True, slots=True)
class _Access:
    """An access of one statement: to the element at `point`, or to several if that is None."""

    kind: str
    data: Var | None = None
    dtype: DataType | None = None
    point: tuple[PrimExpr, ...] | None = None
    threads: tuple[IterVar, ...] = ()
    guarded: bool = False
    """Whether only some threads get here."""
    swapped: bool = False
    """Whether it fills the half of a double buffer that is read only in the next iteration."""


@dataclass(slots=True)
class _Entry:
    """A statement with its accesses, in order."""

    stmt: Stmt
    accesses: list[_Access]


class _Planner(Visitor):
    """Finds the statements that need a barrier before them."""

    def __init__(self, scope: str, merged: bool):
        super().__init__()
        self.scope, self.merged = scope, merged
        self.barriers: dict[Stmt, None] = {}
        self.threads: list[IterVar] = []
        self.extents: dict[Var, PrimExpr] = {}
        self.entries: list[_Entry] = []
        self.accesses: list[_Access] = []
        self.copied: dict[Var, None] = {}
        """The memory that asynchronous copies write."""
        self.conditions: list[Stmt] = []
        """The conditions around that may differ between threads."""

    # -- collecting --

    def _summary(self, stmt: Stmt, *parts: Any, loop: For | None = None) -> _Entry:
        """A compound statement as one entry, with barriers planned between the statements inside."""
        found = list(self._flush())
        for part in parts:
            outer, self.entries = self.entries, []
            self.visit(part)
            found += self._plan(self.entries, loop)
            self.entries = outer
        return _Entry(stmt, found)

    def _flush(self) -> list[_Access]:
        found, self.accesses = self.accesses, []
        return found

    def _add(self, entry: _Entry) -> None:
        if entry.accesses:
            self.entries.append(entry)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        if stmt.attr_key == "thread_extent" and isinstance(stmt.node, IterVar):
            self.threads.append(stmt.node)
            self.extents[stmt.node.var] = stmt.value
            if len(self.threads) == 1:
                self._summary(stmt, stmt.body)
            else:
                self.visit(stmt.body)
            self.threads.pop()
        elif stmt.attr_key == "double_buffer_write":
            entry = self._summary(stmt, stmt.body)
            entry.accesses = [
                replace(a, swapped=True) if a.kind == WRITE and a.data is stmt.node else a for a in entry.accesses
            ]
            self._add(entry)
        else:
            self.visit(stmt.body)

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        if self._counts(stmt.buffer.data):
            self._record(WRITE, stmt.buffer.data, stmt.buffer.dtype, stmt.indices)
        self.generic_visit(stmt)
        self._add(_Entry(stmt, self._flush()))

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        self.visit(stmt.value)
        self._add(_Entry(stmt, self._flush()))

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self.visit(stmt.value)
        self._add(_Entry(stmt, self._flush()))
        self.visit(stmt.body)

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        entry = self._summary(loop, loop.body, loop=loop)
        entry.accesses = [_over(access, loop) for access in entry.accesses]
        self._add(entry)

    def visit_While(self, stmt: While) -> None:
        self._conditional(stmt, stmt.condition, stmt.body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        cases = [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
        self._conditional(stmt, stmt.condition, *cases)

    def _conditional(self, stmt: Stmt, condition: PrimExpr, *cases: Stmt) -> None:
        self.visit(condition)
        diverges = not self._same_for_all(condition)
        self.conditions += [stmt] if diverges else []
        entry = self._summary(stmt, *cases)
        if diverges:
            self.conditions.pop()
        self._add(entry)

    def _same_for_all(self, condition: PrimExpr) -> bool:
        """Whether a condition holds for all threads of a block or for none."""
        if not self.threads:  # on the host, before a launch
            return True
        if isinstance(condition, Call) and _name(condition) == "tir.tvm_thread_invariant":
            return True
        within = {t.var for t in self.threads if not t.thread_tag.startswith("blockIdx")}
        return uses(condition, within) is None and not self._loads(condition)

    def _loads(self, condition: PrimExpr) -> bool:
        pending: list[Any] = [condition]
        while pending:
            node = pending.pop()
            if isinstance(node, (BufferLoad, Call)):
                return True
            node.visit_children(pending.append)
        return False

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        if self._counts(load.buffer.data):
            self._record(READ, load.buffer.data, load.buffer.dtype, load.indices)
        self.generic_visit(load)

    def visit_Call(self, call: Call) -> None:
        name = _name(call)
        if name == "tir.tvm_storage_sync":
            scope = call.args[0]
            if isinstance(scope, StringImm) and scope.value != "warp":
                self.accesses.append(_Access(BARRIER))
        elif name == "tir.address_of":
            call.args[0].visit_children(self.visit)
        elif name == "tir.tvm_access_ptr" and isinstance(call.args[1], Var):
            kind, data, _, _, flag = call.args
            mask = flag.value if isinstance(flag, IntImm) else 3
            if self._counts(data):
                for bit, does in ((1, READ), (2, WRITE)):
                    if mask & bit:
                        self._record(does, data, kind.dtype, None)
            self.generic_visit(call)
        elif name == "tir.ptx_wait_group":  # what was copied is written now, not where the copy began
            for data in self.copied:
                self._record(WRITE, data, DataType("uint8"), None)
        else:
            facts: dict[int, str] = (call.op.get_attr("pointer_accesses") if isinstance(call.op, Op) else None) or {}
            for position, accesses in facts.items():
                data = _memory(call.args[position])
                if data is not None and self._counts(data):
                    if name == "tir.ptx_cp_async":
                        self.copied[data] = None
                    for access in accesses:
                        self._record(READ if access == "r" else WRITE, data, DataType("uint8"), None)
            self.generic_visit(call)

    def _counts(self, data: Any) -> bool:
        """Whether a barrier of this scope orders accesses to some memory."""
        scope = getattr(data.type_annotation, "storage_scope", "") or "global"
        return bool(self.threads) and scope == self.scope

    def _record(self, kind: str, data: Any, dtype: DataType, indices: Sequence[PrimExpr] | None) -> None:
        known = indices is not None and dtype.is_scalar and all(index.dtype.is_scalar for index in indices)
        point = tuple(indices) if indices is not None and known else None
        access = _Access(kind, data, dtype, point, tuple(self.threads), bool(self.conditions))
        self.accesses.append(access)

    # -- planning --

    def _plan(self, entries: Sequence[_Entry], loop: For | None) -> list[_Access]:
        """Inserts barriers between statements. Returns the accesses that barriers outside must order: those before the
        first barrier and those after the last one.
        """
        pending: list[_Access] = []
        for entry in entries:
            if entry.stmt in self.barriers or self._conflict(pending, entry, None):
                self._put_barrier(entry.stmt)
                pending = []
            pending = _after(pending, entry)
        if loop is not None:
            for entry in entries:
                if not pending or entry.stmt in self.barriers:
                    break
                if self._conflict(pending, entry, loop):
                    self._put_barrier(entry.stmt)
                    break
                pending = [] if any(a.kind == BARRIER for a in entry.accesses) else pending
        head: list[_Access] = []
        tail: list[_Access] | None = None
        for entry in entries:
            before = [_Access(BARRIER)] if entry.stmt in self.barriers else []
            for access in (*before, *entry.accesses):
                if access.kind == BARRIER:
                    if tail is None:
                        head.append(access)
                    tail = []
                else:
                    (head if tail is None else tail).append(access)
        return head + (tail or [])

    def _put_barrier(self, stmt: Stmt) -> None:
        if self.conditions:
            raise _Divergent(stmt, self.conditions[-1])
        self.barriers[stmt] = None

    def _conflict(self, pending: Sequence[_Access], entry: _Entry, loop: For | None) -> bool:
        """Whether a statement may access, before any barrier in it, memory of pending accesses of other threads."""
        for access in entry.accesses:
            if access.kind == BARRIER:
                return False
            if any(p.kind != access.kind and self._unordered(p, access, loop) for p in pending):
                return True
        return False

    def _unordered(self, first: _Access, second: _Access, loop: For | None) -> bool:
        """Whether two accesses may be ones of one element by different threads."""
        if first.data is not second.data:
            # Where allocations become one, what is written may take the place of what was read last.
            return self.merged and second.kind == WRITE
        if self._own_element(first, second, loop):
            return False
        return not (first.swapped and second.kind == READ and loop is None)

    def _own_element(self, first: _Access, second: _Access, loop: For | None) -> bool:
        """Whether both accesses are of the same element, which is one thread's own."""
        point, threads = first.point, second.threads
        if point is None or second.point is None or first.dtype is not second.dtype or not threads:
            return False
        if not all(same_expr(a, b) for a, b in zip(point, second.point, strict=True)):
            return False
        if any(uses(index, {threads[-1].var}) is None for index in point):
            return False
        if first.guarded or second.guarded:
            # Without a condition, threads that share an element store the same; with one, only some store.
            within = [t.var for t in threads if t.thread_tag.startswith("threadIdx") and self._many(t.var)]
            if any(all(uses(index, {var}) is None for index in point) for var in within):
                return False
        moves = loop is not None and any(uses(index, {loop.loop_var}) is not None for index in point)
        return loop is None or not moves or self._distinct(point, loop, threads)

    def _many(self, thread: Var) -> bool:
        extent = self.extents[thread]
        return not (isinstance(extent, IntImm) and extent.value == 1)

    def _distinct(self, point: Sequence[PrimExpr], loop: For, threads: Sequence[IterVar]) -> bool:
        """Whether no two threads touch one element in different iterations of a loop."""
        domains = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent)}
        for thread in threads:
            within = thread.thread_tag.startswith("threadIdx")
            if within and any(uses(index, {thread.var}) is not None for index in point):
                domains[thread.var] = Range(0, self.extents[thread.var])
        return bool(detect_iter_map(point, domains, True, IterMapLevel.Bijective).indices)


def _memory(pointer: PrimExpr) -> Var | None:
    """The memory that an argument points to; None for a `tvm_access_ptr`, which says itself what is accessed."""
    if isinstance(pointer, Call) and _name(pointer) == "tir.address_of":
        load: Any = pointer.args[0]
        return load.buffer.data
    return pointer if isinstance(pointer, Var) else None


def _name(call: Call) -> str:
    return call.op.name if isinstance(call.op, Op) else ""


def _over(access: _Access, loop: For) -> _Access:
    """An access in all iterations of a loop."""
    moves = access.point is not None and any(uses(index, {loop.loop_var}) is not None for index in access.point)
    return replace(access, point=None if moves else access.point, swapped=False)


def _after(pending: list[_Access], entry: _Entry) -> list[_Access]:
    """The accesses not yet ordered by a barrier after a statement."""
    for access in entry.accesses:
        pending = [] if access.kind == BARRIER else [*pending, access]
    return pending


class _Divergent(Exception):
    """A barrier is needed under a condition that differs between threads."""

    def __init__(self, stmt: Stmt, condition: Stmt):
        super().__init__("a barrier is needed inside of a condition")
        self.stmt, self.condition = stmt, condition


class _Inserter(Mapper):
    def __init__(self, barriers: dict[Stmt, None], scope: str):
        super().__init__()
        self.barriers, self.scope = barriers, scope

    def visit_PrimExpr(self, expr: Any) -> Any:
        return expr

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_Stmt(self, stmt: Stmt) -> Any:
        new = self.generic_visit(stmt)
        if stmt not in self.barriers:
            return new
        return SeqStmt([barrier(self.scope), *(new.seq if isinstance(new, SeqStmt) else [new])])

    def visit_SeqStmt(self, seq: SeqStmt) -> Stmt:
        stmts: list[Stmt] = []
        for stmt in seq.seq:
            new = self.visit(stmt)
            stmts += new.seq if isinstance(new, SeqStmt) else [new]
        same = len(stmts) == len(seq.seq) and all(a is b for a, b in zip(stmts, seq.seq, strict=True))
        return seq if same else SeqStmt(stmts)


def barrier(scope: str) -> Evaluate:
    """The statement in which threads wait for each other."""
    return Evaluate(Call("int32", "tir.tvm_storage_sync", [StringImm(scope)]))
