"""InjectVirtualThread: statements are replicated for each virtual thread, and so is memory private to a thread.

    with T.attr(vt, "virtual_thread", 2):
        x = alloc(1)                                x = alloc(2)
        x[0] = A[vt]            ->                  x[0] = A[0]
        B[vt] = x[0]                                x[1] = A[1]
                                                    B[0] = x[0]
                                                    B[1] = x[1]

A statement that does not depend on the thread runs once. Those that do run for each thread, one statement after the
other, so that threads go through serial loops together and meet at barriers. Memory whose contents are the same for all
threads is shared by those called "vthread"; each of others ("cthread") has all memory for itself, and `tvm_context_id`
is its number.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Broadcast, Call, IntImm, Let, PrimExpr, Ramp, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import InvalidValue
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    flat_seq,
)
from ..stmt_functor import StmtMapper, renew_stmt, substitute
from .pass_base import PrimFuncPass

ACCESS_PTR, CONTEXT_ID = ops.as_op("tir.tvm_access_ptr"), ops.as_op("tir.tvm_context_id")
UNROLLED_THREADS = 16
"""Up to so many threads are written out; more become a loop."""


class InjectVirtualThread(PrimFuncPass):
    """Replicates statements for each virtual thread, and memory whose contents differ between threads.

    Raises `InvalidValue` for a number of threads that is no constant, and for memory that is not flat.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Inject()(func.body))


class _Depends(Visitor):
    """Finds the variables and allocations whose values depend on the virtual thread.

    A later statement may make an earlier one depend on the thread, so walks are repeated up to a fixed point.
    """

    def __init__(self, thread: Var, shares: bool):
        super().__init__()
        self.shares = shares
        self.touched: set[Var] = {thread}
        self.private: set[Var] = set()
        self.found = self.under = False

    def learn(self, stmt: Stmt) -> None:
        before = -1
        while len(self.touched) != before:
            before = len(self.touched)
            self.visit(stmt)

    def on_thread(self, *nodes: Any) -> bool:
        """Whether expressions or statements use variables or memory that depend on the thread."""
        outer, self.found = self.found, False
        for node in nodes:
            if node is not None:
                self.visit(node)
        found, self.found = self.found, outer or self.found
        return found

    def scoped(self, deciding: bool, *bodies: Any) -> None:
        outer, self.under = self.under, self.under or deciding
        for body in bodies:
            if body is not None:
                self.visit(body)
        self.under = outer

    def visit_Var(self, var: Var) -> None:
        self.found = self.found or var in self.touched

    def visit_Buffer(self, buffer: Buffer) -> None:
        self.found = self.found or buffer.data in self.touched

    def visit_Allocate(self, node: Allocate) -> None:
        self.private.add(node.buffer_var)
        if not self.shares:
            self.touched.add(node.buffer_var)
        self.generic_visit(node)

    def visit_Call(self, node: Call) -> None:
        self.found = self.found or (node.op is CONTEXT_ID and not self.shares)
        self.generic_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        depends = self.on_thread(node.value, *node.indices, node.predicate)
        data = node.buffer.data
        if data in self.private and (depends or self.under):
            self.touched.add(data)
        self.visit(node.buffer)

    def visit_LetStmt(self, node: LetStmt | Let) -> None:
        if self.on_thread(node.value):
            self.touched.add(node.var)
        self.visit(node.body)

    visit_Let = visit_LetStmt

    def visit_Evaluate(self, node: Evaluate) -> None:
        if self.on_thread(node.value) or self.under:
            taken = _Pointers()
            taken.visit(node.value)
            self.touched |= taken.found & self.private  # a call may write to memory whose address it gets

    def visit_For(self, node: For) -> None:
        deciding = self.on_thread(node.min, node.extent)
        if deciding:
            self.touched.add(node.loop_var)
        self.scoped(deciding, node.body)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.scoped(self.on_thread(node.condition), node.then_case, node.else_case)

    def visit_While(self, node: While) -> None:
        self.scoped(self.on_thread(node.condition), node.body)


class _Pointers(Visitor):
    """The memory that a call may write."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Var] = set()

    def visit_Call(self, node: Call) -> None:
        mask = node.args[4] if node.op is ACCESS_PTR else None
        if not isinstance(mask, IntImm) or mask.value & Buffer.WRITE:
            self.generic_visit(node)

    def visit_Var(self, var: Var) -> None:
        self.found.add(var)

    def visit_Buffer(self, buffer: Buffer) -> None:
        self.found.add(buffer.data)


class _Replicate(Mapper):
    """Replicates statements for each thread, the innermost ones where possible."""

    def __init__(self, thread: Var, count: int, depends: _Depends):
        super().__init__()
        self.thread, self.count, self.depends = thread, count, depends
        self.sizes: dict[Var, PrimExpr] = {}
        self.inside = False

    def for_each(self, node: Stmt) -> Stmt:
        """The statement once for each thread; nested ones go with it."""
        self.inside = True
        body = self.visit(node)
        self.inside = False
        if self.count > UNROLLED_THREADS:
            var = self.thread.copy_with_name(f"{self.thread.name}_s")
            return For(var, 0, self.count, ForKind.SERIAL, renew_stmt(substitute(body, {self.thread: var})))
        values = (const(i, self.thread.dtype) for i in range(self.count))
        return flat_seq([renew_stmt(substitute(body, {self.thread: value})) for value in values])

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        new = self.generic_visit(node)
        return node if new is node else flat_seq(new.seq)

    def visit_Evaluate(self, node: Evaluate) -> Any:
        return self.deciding(node, node)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        alone = self.inside or not self.depends.on_thread(node)
        return self.access(node) if alone else self.for_each(node)

    def deciding(self, node: Any, *parts: Any) -> Any:
        alone = self.inside or not self.depends.on_thread(*parts)
        return self.generic_visit(node) if alone else self.for_each(node)

    def visit_For(self, node: For) -> Any:
        return self.deciding(node, node.min, node.extent)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        return self.deciding(node, node.condition)

    def visit_While(self, node: While) -> Any:
        return self.deciding(node, node.condition)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        return self.deciding(node, node.value)

    def visit_Allocate(self, node: Allocate) -> Any:
        if node.buffer_var not in self.depends.touched or self.inside:
            return self.generic_visit(node)
        if len(node.extents) != 1:
            raise InvalidValue(
                f"memory {node.buffer_var.name} of virtual threads must have one dimension, found "
                f"{len(node.extents)}: run FlattenBuffer first"
            )
        size = self.sizes[node.buffer_var] = self.visit(node.extents[0])
        return node.replace(extents=Array([ops.multiply(size, self.count)]), body=self.visit(node.body))

    def visit_Buffer(self, buffer: Buffer) -> Any:
        size = self.sizes.get(buffer.data)
        if size is None:
            return self._visit_shared(buffer)
        found = self._mapped.get(id(buffer))
        if found is None:
            whole = buffer.replace(shape=Array([ops.multiply(size, self.count)]))
            found = self._mapped[id(buffer)] = (buffer, whole)
        return found[1]

    def access(self, node: Any) -> Any:
        new = self.generic_visit(node)
        size = self.sizes.get(node.buffer.data)
        if size is None:
            return new
        (index,) = new.indices
        offset = ops.multiply(self.thread, size)
        if isinstance(index, Ramp):
            index = index.replace(base=ops.add(offset, index.base))
        elif index.dtype.is_scalar:
            index = ops.add(offset, index)
        else:
            index = ops.add(Broadcast(offset, index.dtype.lanes), index)
        return new.replace(indices=Array([index]))

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return self.access(node)

    def visit_Call(self, node: Call) -> Any:
        if node.op is CONTEXT_ID and not self.depends.shares:
            return ops.cast(node.dtype, self.thread)
        new: Call = self.generic_visit(node)
        data = node.args[1] if node.op is ACCESS_PTR else None
        size = self.sizes.get(data) if isinstance(data, Var) else None
        if size is None:
            return new
        begin = ops.add(new.args[2], ops.multiply(self.thread, size))
        return new.replace(args=Array(begin if i == 2 else arg for i, arg in enumerate(new.args)))


class _Inject(StmtMapper):
    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        node = self.generic_visit(node)
        if node.attr_key != "virtual_thread":
            return node
        thread = node.node.var if isinstance(node.node, IterVar) else node.node
        if not isinstance(node.value, IntImm):
            raise InvalidValue(f"the number of virtual threads {thread.name} must be a constant, found {node.value}")
        shares = not isinstance(node.node, IterVar) or node.node.thread_tag.startswith("vthread")
        depends = _Depends(thread, shares)
        depends.learn(node.body)
        return _Replicate(thread, node.value.value, depends)(node.body)
