"""Statements as LLVM instructions: loops, stores, branches, memory, checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from ...ir import expr as e
from ...ir import operators as ops
from ...ir.dtype import BOOL
from ...ir.op import Op
from ...ir.visitor import post_order_visit
from ...runtime.error import CompileError
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad
from ...tir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    stmt_list,
)
from ...tir.stmt_functor import loads
from ...tir.transform.analyzed import reads
from ...tir.transform.mark_reductions import REDUCTION_UPDATE
from ..index_arithmetic import is_index_arithmetic
from .expr import alignment, is_contiguous, where
from .intrinsics import CallEmitter, is_on_host
from .types import literal, memory_scalar, memory_suffix_of, memory_type, register_type, with_lanes

MAX_UNROLLED = 128
"""Instructions that an unrolled loop may have, without those that compute indices."""
MAX_UNROLLED_REDUCTION = 16
"""Iterations of a reduction of scalars beyond which it stays a loop, which LLVM vectorizes."""
MAX_UNROLLED_ALONG_MEMORY = 8
"""Iterations over neighbouring elements beyond which a loop stays one, which LLVM vectorizes. On a Zen 4, sums of 16
neighbours took 3.7 times as long unrolled, and those of 8 two thirds of the time."""
MAX_UNROLLED_BYTES = 128
"""Bytes of an accumulator beyond which its loop stays one: reading 2 KiB an iteration, processors stop prefetching."""
ITERATIONS_AT_ONCE = (4, 2)
"""How many iterations of a loop of vectors may become one where there are too many to unroll it in full."""
MAX_UNROLLED_VECTORS = 32
"""Iterations of a loop beyond which it stays one where LLVM makes vectors of it."""
MEMORY_ALIGNMENT = 64
"""Bytes to which allocated memory is aligned."""


class StmtEmitter(CallEmitter):
    """Emits statements. `loops` holds the labels for `continue` and `break` of the enclosing loops, innermost last."""

    loops: list[tuple[str, str]]
    device_id: e.PrimExpr
    """The device that kernels are launched on."""
    reassociate: bool
    """Whether the statement is the update of a reduction, whose additions may be reassociated."""
    bindings: dict[e.Var, e.PrimExpr]
    """The values of variables that `LetStmt`s bind."""
    loop_carried: set[e.Var]
    """Variables of loops with a dependence between iterations that LLVM does not see; see `hidden_dependences`."""

    def stmt(self, node: Stmt) -> None:
        """Emits one statement; nothing when it cannot be reached."""
        if self.w.reachable:
            self._handle(node)

    def parallel(self, node: For) -> None:
        """Emits a loop whose iterations run on several threads."""
        raise NotImplementedError

    def compute_scope(self, node: AttrStmt) -> None:
        """Emits the body of a packed function, as a function of its own."""
        raise NotImplementedError

    def fail(self, kind: str, message: str) -> None:
        """Returns from the function with an error: the name of its class, such as `ValueError`, and a message."""
        raise NotImplementedError

    # -- sequence and scope --

    def stmt_Evaluate(self, node: Evaluate) -> None:
        value = node.value
        if isinstance(value, (e.IntImm, e.Var)):
            return
        if isinstance(value, e.Call) and isinstance(value.op, Op):
            target = {"tir.continue_loop": 0, "tir.break_loop": 1}.get(value.op.name)
            if target is not None:
                if not self.loops:
                    raise CompileError(f"{value.op.name} stands outside of a loop{where(node)}")
                self.w.leave(f"br label %{self.loops[-1][target]}")
                return
        self.expr(value)

    def stmt_LetStmt(self, node: LetStmt) -> None:
        if not is_index_arithmetic(node.value, self.data_variables):
            self.data_variables.add(node.var)
        # What a reduction of several values adds up has a name before it is stored.
        value = self.updated(node.value) if self.reassociate else self.expr(node.value)
        self.define(node.var, value)
        self.bindings[node.var] = node.value
        if not is_workspace(node.value):
            self.stmt(node.body)
            return
        if is_on_host(node.value):
            self.own_memory.add(node.var)
        self.workspaces.append(self.freeing(node.value, value))
        self.stmt(node.body)
        self.workspaces.pop()

    workspaces: list[str]
    """The calls that free workspaces, if the statement being emitted returns from the function."""

    def stmt_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == "compute_scope":
            self.compute_scope(node)
        elif node.attr_key in ("thread_extent", "virtual_thread"):
            raise CompileError(
                f"a loop bound to {getattr(node.node, 'thread_tag', 'a thread')} cannot run on the CPU; "
                f"use T.parallel{where(node)}"
            )
        elif node.attr_key == "device_id":
            outer, self.device_id = self.device_id, node.value
            self.stmt(node.body)
            self.device_id = outer
        elif node.attr_key == REDUCTION_UPDATE:
            outer, self.reassociate = self.reassociate, True
            self.stmt(node.body)
            self.reassociate = outer
        else:
            if node.attr_key == "pragma_import_llvm":
                self.import_llvm(node)
            self.stmt(node.body)

    def import_llvm(self, node: AttrStmt) -> None:
        """Links a module of LLVM IR, given as text, into this one."""
        text = getattr(node.value, "value", None)
        if not isinstance(text, str):
            raise CompileError(f"pragma_import_llvm expects LLVM IR as text, found {node.value}{where(node)}")
        self.w.module.imports[text] = None

    def stmt_AssertStmt(self, node: AssertStmt) -> None:
        w = self.w
        holds, fails = w.label("holds"), w.label("fails")
        w.branch(self.expr(node.condition), holds, fails, likely=True)
        w.start(fails)
        kind = "AssertionError"
        message = node.message.value if isinstance(node.message, e.StringImm) else str(node.message)
        prefix = message.split(":", 1)[0]
        if prefix.endswith("Error") and prefix.isidentifier():
            kind, message = prefix, message[len(prefix) + 1 :].strip()
        with w.scope():
            self.fail(kind, message)
        w.start(holds)
        self.stmt(node.body)

    # -- memory --

    def stmt_Allocate(self, node: Allocate) -> None:
        count = 1
        for extent in node.extents:
            if not isinstance(extent, e.IntImm):
                raise CompileError(
                    f"`{node.buffer_var.name}` has no constant size; "
                    f"LowerTVMBuiltin gives it memory of the runtime{where(node)}"
                )
            count *= extent.value
        element = memory_scalar(node.dtype)
        self.own_memory.add(node.buffer_var)
        self.define(
            node.buffer_var, self.w.stack(f"[{max(1, count * node.dtype.lanes)} x {element}]", MEMORY_ALIGNMENT)
        )
        self.stmt(node.body)

    own_memory: set[e.Var]

    def stmt_AllocateConst(self, node: AllocateConst) -> None:
        data = node.data.numpy() if hasattr(node.data, "numpy") else node.data
        raw = data.tobytes()
        name = f"@const.{len(self.w.module.globals)}"
        text = "".join(f"\\{b:02X}" for b in raw)
        self.w.module.globals.append(
            f'{name} = private unnamed_addr constant [{len(raw)} x i8] c"{text}", align {MEMORY_ALIGNMENT}'
        )
        self.define(node.buffer_var, name)
        self.stmt(node.body)

    def stmt_BufferStore(self, node: BufferStore) -> None:
        w, dtype = self.w, node.value.dtype
        index = self.flat_index(node)
        value = self.to_memory(self.accumulated(node) if self.reassociate else self.expr(node.value), dtype)
        llvm_type, align = memory_type(dtype), alignment(node.buffer.dtype)
        if index.dtype.is_scalar:
            self.loop_carried |= self.hidden_dependences(node, index)
            w.emit(f"store {llvm_type} {value}, ptr {self.element_address(node.buffer, index)}, align {align}")
            return
        mask = None if node.predicate is None else self.expr(node.predicate)
        if is_contiguous(index):
            address = self.element_address(node.buffer, index.base)
            if mask is None:
                w.emit(f"store {llvm_type} {value}, ptr {address}, align {align}")
                return
            lanes = register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
            function = w.module.declare(
                f"llvm.masked.store.{memory_suffix_of(dtype)}.p0", "void", f"{llvm_type}, ptr, {lanes}"
            )
            w.emit(f"call void {function}({llvm_type} {value}, ptr align {align} {address}, {lanes} {mask})")
            return
        self._scatter(node, index, value, mask)

    def hidden_dependences(self, node: BufferStore, index: e.PrimExpr) -> set[e.Var]:
        """The loop variables over which an update may access one element more than once: those in a non-linear index.

        for i in range(24):
            C[i % 4] = C[i % 4] + A[i]

        LLVM 22.1 vectorizes such a loop with scatters where the processor has them: it takes a load and a store at one
        non-linear address for independent of other iterations, so of lanes with equal indices only one is stored.
        """
        found: set[e.Var] = set()
        pending: list[tuple[Any, bool]] = [(index, False)]
        while pending:
            part, inside = pending.pop()
            if isinstance(part, e.Var):
                if inside:
                    found.add(part)
                if part in self.bindings:
                    pending.append((self.bindings[part], inside))
            elif isinstance(part, (e.Add, e.Sub, e.Mul)):
                pending += [(part.a, inside), (part.b, inside)]
            elif isinstance(part, e.Cast):
                pending.append((part.value, inside))
            elif not isinstance(part, e.IntImm):
                variables: list[Any] = []
                post_order_visit(part, lambda n, into=variables: into.append(n) if n.is_variable else None)
                pending += [(variable, True) for variable in variables]
        return found if found and self.depends_on(node.value, node.buffer.data) else set()

    def depends_on(self, value: e.PrimExpr, data: e.Var) -> bool:
        """Whether a value is computed from a load of `data`, also through variables that are bound to one."""
        if reads(value, data):
            return True
        bound: list[e.PrimExpr] = []
        post_order_visit(
            value, lambda n: bound.append(self.bindings[n]) if n.is_variable and n in self.bindings else None
        )
        return any(self.depends_on(v, data) for v in bound)

    def accumulated(self, node: BufferStore) -> str:
        """The value that a reduction's update stores."""
        value = node.value
        total = value.a if isinstance(value, (e.Add, e.Mul, e.Max, e.Min)) else None
        if not isinstance(total, BufferLoad) or total.buffer is not node.buffer:
            return self.expr(value)
        if not all(map(ops.same_expr, total.indices, node.indices)):
            return self.expr(value)
        return self.updated(value)

    def updated(self, value: Any) -> str:
        """The updated value of a scalar accumulator. Sums and products may be reassociated, so LLVM vectorizes them."""
        dtype = value.dtype
        kinds = (e.Add, e.Mul, e.Max, e.Min)
        if not (dtype.is_float and dtype.is_scalar and isinstance(value, kinds) and isinstance(value.a, BufferLoad)):
            return self.expr(value)
        a, b = self.expr(value.a), self.expr(value.b)
        if isinstance(value, (e.Add, e.Mul)):
            return self.binary(type(value), dtype, a, b, "reassoc ")
        kind, llvm_type = type(value).__name__.lower(), register_type(dtype)
        function = self.w.module.declare(
            f"llvm.{kind}imum.{memory_suffix_of(dtype)}", llvm_type, f"{llvm_type}, {llvm_type}"
        )
        return self.w.pure(f"call nsz {llvm_type} {function}({llvm_type} {a}, {llvm_type} {b})")

    def _scatter(self, node: BufferStore, index: e.PrimExpr, value: str, mask: str | None) -> None:
        """Stores to a vector of indices; of lanes with equal indices, the last one is stored."""
        w, dtype = self.w, node.value.dtype
        pointers, align = self.addresses(node.buffer, index), alignment(node.buffer.dtype)
        if dtype.scalable or mask is not None:
            lanes = register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
            mask = mask or self.splat(BOOL.with_lanes(dtype.lanes, dtype.scalable), "true")
            llvm_type, pointer_type = memory_type(dtype), with_lanes("ptr", dtype)
            scalable = "nx" if dtype.scalable else ""
            name = f"llvm.masked.scatter.{memory_suffix_of(dtype)}.{scalable}v{dtype.lanes}p0"
            function = w.module.declare(name, "void", f"{llvm_type}, {pointer_type}, {lanes}")
            w.emit(
                f"call void {function}({llvm_type} {value}, {pointer_type} align {align} {pointers}, {lanes} {mask})"
            )
            return
        for i in range(dtype.lanes):
            address = w.pure(f"extractelement {with_lanes('ptr', dtype)} {pointers}, i64 {i}")
            item = w.pure(f"extractelement {memory_type(dtype)} {value}, i64 {i}")
            w.emit(f"store {memory_scalar(dtype)} {item}, ptr {address}, align {align}")

    # -- control --

    def stmt_IfThenElse(self, node: IfThenElse) -> None:
        w = self.w
        then, end = w.label("then"), w.label("end")
        other = w.label("else") if node.else_case is not None else end
        w.branch(self.expr(node.condition), then, other)
        w.start(then)
        with w.scope():
            self.stmt(node.then_case)
        w.jump(end)
        if node.else_case is not None:
            w.start(other)
            with w.scope():
                self.stmt(node.else_case)
            w.jump(end)
        w.start(end)

    def stmt_For(self, node: For) -> None:
        if node.kind == ForKind.PARALLEL:
            self.parallel(node)
            return
        if node.kind == ForKind.THREAD_BINDING:
            raise CompileError(
                f"the loop over `{node.loop_var.name}` is bound to a thread; the CPU has none{where(node)}"
            )
        outer, known = self.in_index, self.data_variables
        self.in_index = is_index_arithmetic(node.min, known) and is_index_arithmetic(node.extent, known)
        begin = self.expr(node.min)
        end = begin if isinstance(node.extent, e.IntImm) and node.extent.value <= 0 else self._loop_end(node, begin)
        self.in_index = outer
        nonempty = isinstance(node.extent, e.IntImm) and node.extent.value > 0
        self.loop(node.loop_var, begin, end, node.body, nonempty, *unrollings(node))

    def _loop_end(self, node: For, begin: str) -> str:
        if isinstance(node.min, e.IntImm) and isinstance(node.extent, e.IntImm):
            return literal(node.loop_var.dtype, node.min.value + node.extent.value)
        return self.binary(e.Add, node.loop_var.dtype, begin, self.expr(node.extent))

    def loop(
        self,
        var: e.Var,
        begin: str,
        end: str,
        body: Stmt,
        nonempty: bool,
        unrollings: Sequence[int] = (),
        few_vectors: bool = False,
    ) -> None:
        """A counted loop over [begin, end), tested at its end, and before it unless `nonempty`.

        LLVM makes one iteration of as many as the first of `unrollings` says of which that is not too long; or else,
        with `few_vectors`, it unrolls the loop in full once its iterations are over vectors.
        """
        w, llvm_type = self.w, register_type(var.dtype)
        sign = "s" if var.dtype.code == "int" else "u"
        head, step, done = w.label("loop"), w.label("step"), w.label("done")
        if not nonempty:
            w.branch(w.pure(f"icmp {sign}lt {llvm_type} {begin}, {end}"), head, done)
        else:
            w.jump(head)
        before = w.block
        w.start(head)
        counter, following = w.name("i"), w.name("next")
        w.emit(f"{counter} = phi {llvm_type} [{begin}, %{before}], [{following}, %{step}]")
        self.define(var, counter)
        self.loops.append((step, done))
        size = w.size
        with w.scope():
            self.stmt(body)
        size = w.size - size
        self.loops.pop()
        w.jump(step)
        w.start(step)
        w.emit(f"{following} = add n{sign}w {llvm_type} {counter}, 1")
        again = w.value(f"icmp {sign}lt {llvm_type} {following}, {end}")
        count = next((count for count in unrollings if count * size <= MAX_UNROLLED), 1)
        if var in self.loop_carried:
            hint = w.module.no_vectorize()
        elif count > 1:
            hint = w.module.unroll(count)
            w.unwritten += (count - 1) * size
        elif few_vectors:
            # A few vectors need no loop; what they have in common with others then leaves the loop around them.
            hint = w.module.unroll_vectors()
        else:
            hint = ""
        w.emit(f"br i1 {again}, label %{head}, label %{done}{hint}")
        w.start(done)

    def stmt_While(self, node: While) -> None:
        w = self.w
        head, body, done = w.label("while"), w.label("body"), w.label("done")
        w.jump(head)
        w.start(head)
        self.loops.append((head, done))
        with w.scope():
            w.branch(self.expr(node.condition), body, done)
            w.start(body)
            self.stmt(node.body)
        self.loops.pop()
        w.jump(head)
        w.start(done)


def unrollings(loop: For) -> tuple[list[int], bool]:
    """How many iterations of a loop may become one, best first; and whether it is short once it is over vectors.

    LLVM does not unroll on its own account: that takes up to half of its time, most of it for loops that it has
    vectorized, which gain nothing. It unrolls in full before it vectorizes: so what is around a short loop can become
    vectors, and a reduction over scalars, or a loop over neighbouring elements, can only where it stays a loop.
    """
    if not isinstance(loop.extent, e.IntImm):
        return [], False
    extent = loop.extent.value
    is_reduction, of_vectors, along_memory = False, True, False
    for stmt in stmt_list(loop.body):
        if isinstance(stmt, AttrStmt) and stmt.attr_key == REDUCTION_UPDATE:
            is_reduction, stmt = True, stmt.body
        if not isinstance(stmt, BufferStore) or stmt.value.dtype.lanes == 1:
            of_vectors = False
            along_memory = along_memory or runs_along_memory(stmt, loop.loop_var)
        elif is_reduction and stmt.value.dtype.itemsize > MAX_UNROLLED_BYTES:
            return [], False
    is_short = extent <= MAX_UNROLLED_VECTORS
    if of_vectors:
        return [extent, *(count for count in ITERATIONS_AT_ONCE if extent % count == 0)], is_short
    most = MAX_UNROLLED_ALONG_MEMORY if along_memory else MAX_UNROLLED_REDUCTION if is_reduction else extent
    return ([extent], is_short) if extent <= most else ([], is_short and not is_reduction)


def runs_along_memory(stmt: Stmt, loop_var: e.Var) -> bool:
    """Whether a statement stores to the next element in each iteration of a loop, or only loads that."""
    if not isinstance(stmt, BufferStore):
        return False
    place = stmt.indices[-1]
    if loop_var in variables(place):
        return is_next(place, loop_var)
    return any(is_next(load.indices[-1], loop_var) for load in loads(stmt.value))


def is_next(index: e.PrimExpr, loop_var: e.Var) -> bool:
    """Whether an index is one more in each iteration of a loop."""
    if isinstance(index, e.Add):
        moved, other = (index.a, index.b) if loop_var in variables(index.a) else (index.b, index.a)
        return is_next(moved, loop_var) and loop_var not in variables(other)
    return index is loop_var


def is_workspace(value: object) -> TypeGuard[e.Call]:
    """Whether an expression allocates a workspace."""
    return isinstance(value, e.Call) and isinstance(value.op, Op) and value.op.name == "tir.TVMBackendAllocWorkspace"
