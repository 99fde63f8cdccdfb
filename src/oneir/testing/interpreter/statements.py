"""Executing statements.

Execution is a generator, so that the threads of a kernel can take turns: it yields where a thread waits for the others
(see threads.py), and runs to its end where there is nothing to wait for.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...ir import expr as e
from ...ir.container import Array
from ...ir.op import Op
from ...runtime.error import AssertionFailure, InterpreterError
from ...tir import stmt as s
from ...tir.buffer import Buffer
from ...tir.expr import IterVar, IterVarType
from ...tir.function import PrimFunc
from . import threads
from .arguments import bind_parameters
from .arithmetic import Arithmetic
from .calls import Break, Continue, Return
from .expressions import Evaluator, Scope
from .layout import Layout, row_major
from .memory import Memory, Pointer, Region, Violation, storage_dtype, writable_array
from .threads import Arrival

Running = Iterator[list[Arrival]]
# What a printed fragment begins with: a comment, and what the fragment uses from outside.
_DECLARATION = re.compile(r"#|\w+ = T\.(Buffer|bool|int|uint|float|bfloat|handle)\w*\(")


class Execution(Evaluator):
    """One thread running one function; `loops` are the variables of the loops around it, for messages."""

    loops: list[e.Var]

    def __init__(self, functions: Mapping[str, PrimFunc], arithmetic: Arithmetic, check: bool, name: str):
        self.functions, self.arithmetic, self.check, self.name = dict(functions), arithmetic, check, name
        self.variables, self.layouts, self.depths, self.reduced = {}, {}, {}, {}
        self.scopes, self.loops = [], []
        self.place, self.coordinates = (), {}
        self.thread_loops: dict[e.Var, str] = {}
        self.index_functions = {}
        self.facts: dict[s.BlockRealize, tuple[set[e.Var], bool]] = {}
        """What `threads` found in blocks, which each thread executes; one dictionary of all threads."""
        self.shared: dict[Any, Memory] = {}
        self.matched: set[e.Var] = set()
        self.reducer: Any = None
        self.function: PrimFunc | None = None
        self.statement: s.Stmt | None = None
        self.warp: Region | None = None
        self.unwritten: list[InterpreterError] = []
        """Reads of shared memory, since the last barrier, that no thread has written yet."""

    def fork(self) -> Execution:
        """A thread that starts where this one is."""
        thread = copy.copy(self)
        thread.variables, thread.layouts, thread.depths = dict(self.variables), dict(self.layouts), dict(self.depths)
        thread.scopes, thread.loops, thread.reduced = list(self.scopes), list(self.loops), dict(self.reduced)
        thread.thread_loops, thread.matched = dict(self.thread_loops), set(self.matched)
        return thread

    def error(self, violation: Violation, stmt: s.Stmt) -> InterpreterError:
        """What went wrong, and where."""
        if self.unwritten and violation.other is None:
            return self.unwritten[0]
        where = [f"  in: {_first_line(stmt)}"]
        if stmt.span is not None:
            where.append(f"  at: {stmt.span}")
        values = [f"{var.name} = {self.variables[var]}" for var in self.loops]
        values += [f"{tag} = {index}" for tag, index in self.coordinates.items()]
        running = f"  running: {self.name}"
        where.append(f"{running}, {', '.join(values)}" if values else running)
        if self.function is not None:
            where += _underlined(self.function, stmt if violation.node is None else violation.node, violation.other)
        return InterpreterError("\n".join([str(violation), *where]))

    def read_unwritten(self, memory: Memory, violation: Violation) -> None:
        """Raises `Violation`; for shared memory, only once it is known that no thread would have written in time.

        Threads run one after the other, so a later one may still write. Then a barrier is missing, and the conflict of
        the two accesses is reported instead.
        """
        in_threads = any(tag.startswith("threadIdx") for tag in self.coordinates)
        if not (memory.scope.startswith("shared") and in_threads and self.statement is not None):
            raise violation
        if not self.unwritten:
            text = f"{violation}; no thread of the block writes it before the next barrier: write it, or guard the read"
            self.unwritten.append(self.error(Violation(text, violation.node), self.statement))

    # -- functions --

    def run_function(self, func: PrimFunc) -> Iterator[list[Arrival]]:
        """Runs the function whose parameters are bound; returns what it returns."""
        self.function = func
        try:
            yield from self.execute(func.body)
        except Return as leave:
            return leave.value
        return None

    def _callee(self, node: e.Call) -> tuple[Execution, PrimFunc]:
        name = getattr(node.op, "name_hint", str(node.op))
        func = self.functions.get(name)
        if func is None:
            raise Violation(f"the module has no function `{name}`")
        called = Execution(self.functions, self.arithmetic, self.check, name)
        called.place, called.coordinates, called.shared = self.place, self.coordinates, self.shared
        called.unwritten, called.index_functions = self.unwritten, self.index_functions
        bind_parameters(called, func, [self.value(a) for a in node.args])
        return called, func

    def call_function(self, node: e.Call) -> Any:
        called, func = self._callee(node)
        return threads.drive(called.run_function(func))

    # -- dispatch --

    _steps: ClassVar[dict[type, Callable[[Execution, Any], s.Stmt | None]]]
    _compounds: ClassVar[dict[type, Callable[[Execution, Any], Any]]]

    def run(self, stmt: s.Stmt) -> Iterable[list[Arrival]]:
        """Executes a store at once; for anything else, the execution."""
        if type(stmt) is s.BufferStore:
            self.step(stmt)
            return ()
        return self.execute(stmt)

    def step(self, stmt: s.Stmt) -> s.Stmt | None:
        """Executes a statement that no thread waits in; returns the one that follows inside of it."""
        self.statement = stmt
        try:
            return self._steps[type(stmt)](self, stmt)
        except Violation as violation:
            raise self.error(violation, stmt) from None

    def execute(self, stmt: s.Stmt | None) -> Running:
        """Executes a statement; what stands last in it follows here, so that long chains do not nest."""
        while stmt is not None:
            if isinstance(stmt, s.SeqStmt):
                for inner in tuple.__getitem__(stmt.seq, slice(None, -1)):
                    yield from self.run(inner)
                stmt = stmt.seq[-1]
            elif type(stmt) in self._steps and not _waits(stmt):
                stmt = self.step(stmt)
            elif type(stmt) in self._compounds:
                try:
                    stmt = yield from self._compounds[type(stmt)](self, stmt)
                except Violation as violation:
                    raise self.error(violation, stmt) from None
            else:
                raise self.error(Violation(f"{type(stmt).__name__} is no statement that can be executed"), stmt)

    def wait(self, stmt: s.Stmt | None, request: Any = None) -> Running:
        """Waits until all threads of the block have come here; returns what the request got."""
        arrival = Arrival(self, stmt, request)
        yield [arrival]
        self.place = tuple((region.latest, i) for region, i in self.place)
        return arrival.result

    # -- statements that run at once --

    def step_BufferStore(self, stmt: s.BufferStore) -> None:
        mask = None if stmt.predicate is None else self.plain(stmt.predicate)
        self.store(stmt.buffer, stmt.indices, mask, self.value(stmt.value), stmt)

    def step_Evaluate(self, stmt: s.Evaluate) -> None:
        self.value(stmt.value)

    def step_LetStmt(self, stmt: s.LetStmt) -> s.Stmt:
        self.variables[stmt.var] = self.value(stmt.value)
        return stmt.body

    def step_AssertStmt(self, stmt: s.AssertStmt) -> s.Stmt:
        if not self.plain(stmt.condition):
            raise AssertionFailure(f"{self.value(stmt.message)} (in {self.name}: {stmt.condition})")
        return stmt.body

    def step_IfThenElse(self, stmt: s.IfThenElse) -> s.Stmt | None:
        return stmt.then_case if self.plain(stmt.condition) else stmt.else_case

    def step_Allocate(self, stmt: s.Allocate) -> s.Stmt:
        count = 1
        for extent in stmt.extents:
            count *= self.integer(extent)
        annotation = stmt.buffer_var.type_annotation
        scope = getattr(annotation, "storage_scope", "") or "global"
        self.allocate(stmt.buffer_var, stmt.dtype, count, scope)
        return stmt.body

    def step_AllocateConst(self, stmt: s.AllocateConst) -> s.Stmt:
        data = writable_array(stmt.data)
        memory = Memory(data.copy().reshape(-1).view("uint8"), stmt.buffer_var.name)
        self.variables[stmt.buffer_var] = Pointer(memory, 0, stmt.dtype.element)
        return stmt.body

    def step_DeclBuffer(self, stmt: s.DeclBuffer) -> s.Stmt:
        self.declare(stmt.buffer, self.evaluate_layout(stmt.buffer))
        return stmt.body

    def step_BufferRealize(self, stmt: s.BufferRealize) -> s.Stmt:
        low = [self.integer(r.min) for r in stmt.bounds]
        extents = tuple(self.integer(r.extent) for r in stmt.bounds)
        strides = row_major(extents)
        count = 1
        for extent in extents:
            count *= extent
        self.allocate(stmt.buffer.data, stmt.buffer.dtype, count, stmt.buffer.scope())
        shape = tuple(begin + extent for begin, extent in zip(low, extents, strict=True))
        offset = -sum(begin * stride for begin, stride in zip(low, strides, strict=True))
        self.declare(stmt.buffer, Layout(stmt.buffer.dtype, shape, strides, offset))
        return stmt.body

    # -- memory --

    def declare(self, buffer: Buffer, layout: Layout) -> None:
        """Makes a buffer known, as one of which only blocks opened later (past `inside` more) declare their
        accesses."""
        self.layouts[buffer] = layout
        self.depths[buffer] = len(self.scopes)

    def allocate(self, var: e.Var, dtype: Any, count: int, scope: str) -> None:
        """Fresh memory behind a variable; shared memory is the same for all threads of a block."""
        nbytes = count * dtype.lanes * storage_dtype(dtype.element).itemsize
        memory = None
        if scope.startswith("shared") and self.coordinates:
            block = tuple((tag, i) for tag, i in self.coordinates.items() if tag.startswith("blockIdx"))
            memory = self.shared.get((var, block))
            if memory is None:
                memory = self.shared[var, block] = Memory.allocate(nbytes, var.name, scope, self.check)
        else:
            memory = Memory.allocate(nbytes, var.name, scope, self.check)
        memory.home = self.coordinates
        self.variables[var] = Pointer(memory, 0, dtype.element)

    def allocate_buffer(self, buffer: Buffer) -> None:
        """Memory for a buffer that a block allocates."""
        layout = self.evaluate_layout(buffer)
        count = layout.offset + 1 + sum((d - 1) * t for d, t in zip(layout.shape, layout.strides, strict=True))
        self.allocate(buffer.data, buffer.dtype, max(count, 0), buffer.scope())
        self.declare(buffer, layout)

    # -- loops --

    def run_For(self, stmt: s.For) -> Running:
        if stmt.kind == s.ForKind.THREAD_BINDING:
            yield from threads.run_bound_loop(self, stmt)
            return
        begin, extent = self.integer(stmt.min), self.integer(stmt.extent)
        region = None
        if stmt.kind in (s.ForKind.PARALLEL, s.ForKind.VECTORIZED):
            region = Region(f"the {stmt.kind.name.lower()} loop `{stmt.loop_var.name}`", stmt.loop_var)
        yield from self.iterate(stmt.loop_var, range(begin, begin + extent), region, stmt.body)

    def iterate(self, var: e.Var, values: range, region: Region | None, body: s.Stmt) -> Running:
        """Runs a body for each value of a variable; with a region, as unordered iterations."""
        element = storage_dtype(var.dtype).type
        self.loops.append(var)
        depth, scopes, reduced = len(self.place), len(self.scopes), self.reduced
        for i in values:
            self.variables[var] = element(i)
            if region is not None:
                self.place = (*self.place[:depth], (region, i))
            try:
                yield from self.run(body)
            except (Break, Continue) as jump:
                del self.scopes[scopes:]
                self.reduced = reduced
                self.place = self.place[: depth + (region is not None)]
                if isinstance(jump, Break):
                    break
        self.place = self.place[:depth]
        self.loops.pop()

    def run_While(self, stmt: s.While) -> Running:
        scopes = len(self.scopes)
        while self.plain(stmt.condition):
            try:
                yield from self.run(stmt.body)
            except (Break, Continue) as jump:
                del self.scopes[scopes:]
                if isinstance(jump, Break):
                    break

    def run_AttrStmt(self, stmt: s.AttrStmt) -> Iterator[Any]:
        if stmt.attr_key == "thread_extent" and isinstance(stmt.node, IterVar):
            if stmt.node.thread_tag in self.coordinates:
                self.bind_thread(stmt.node)
                return stmt.body
            yield from threads.launch(self, stmt)
            return None
        if stmt.attr_key == "virtual_thread" and isinstance(stmt.node, IterVar):
            var = stmt.node.var
            region = Region(f"the virtual thread `{var.name}`", var)
            yield from self.iterate(var, range(self.integer(stmt.value)), region, stmt.body)
            return None
        if stmt.attr_key == "reduce_scope":
            self.reducer = stmt.node
        return stmt.body

    def bind_thread(self, iter_var: IterVar) -> None:
        """Gives a thread variable this thread's index."""
        element = storage_dtype(iter_var.var.dtype).type
        self.variables[iter_var.var] = element(self.coordinates[iter_var.thread_tag])
        self.thread_loops[iter_var.var] = iter_var.thread_tag

    def run_Evaluate(self, stmt: s.Evaluate) -> Running:
        """A call in which threads wait, or of a function of the module."""
        call = stmt.value
        assert isinstance(call, e.Call)
        if isinstance(call.op, Op):
            yield from threads.run_collective(self, stmt, call)
            return
        called, func = self._callee(call)
        yield from called.run_function(func)

    # -- blocks --

    def run_BlockRealize(self, stmt: s.BlockRealize) -> Running:
        block = stmt.block
        waits = bool(self.coordinates) and threads.writes_for_others(self, stmt)
        if waits:
            yield from self.wait(None)
        if self.plain(stmt.predicate):
            reduced = self.reduced
            starts = self._bind_iterations(stmt)
            if self.thread_loops:
                self.reduced = {**reduced, **threads.reduced_across_threads(self, stmt)}
            scope = self._scope(block)
            if scope is not None:
                self.scopes.append(scope)
            for match in block.match_buffers:
                self.match(match, scope)
            for buffer in block.alloc_buffers:
                self.allocate_buffer(buffer)
            if block.init is not None and starts:
                yield from self.run(block.init)
            yield from self.run(block.body)
            if scope is not None:
                self.scopes.pop()
            self.reduced = reduced
        if waits:
            yield from self.wait(None)

    def _bind_iterations(self, stmt: s.BlockRealize) -> bool:
        """Gives the iteration variables their values; returns whether the reduction starts here."""
        starts = True
        values = [self.value(v) for v in stmt.iter_values]
        for iter_var, value in zip(stmt.block.iter_vars, values, strict=True):
            self.variables[iter_var.var] = value
            if iter_var.dom is None:
                continue
            i, low = int(value), self.integer(iter_var.dom.min)
            if not low <= i < low + self.integer(iter_var.dom.extent):
                raise Violation(
                    f"block `{stmt.block.name_hint}`: the iteration variable `{iter_var.var.name}` is {i}, "
                    f"outside of its domain {iter_var.dom}"
                )
            starts = starts and (iter_var.iter_type != IterVarType.CommReduce or i == low)
        return starts

    def _scope(self, block: s.Block) -> Scope | None:
        """What a block declares, with the present values; None for a root block, which declares nothing."""
        if not self.check or not (block.reads or block.writes or block.iter_vars or self.scopes):
            return None
        reduces = block.init is not None or any(v.iter_type == IterVarType.CommReduce for v in block.iter_vars)
        reads, writes = self._boxes(block.reads), self._boxes(block.writes)
        return Scope(block.name_hint, reads, writes, reduces or not block.iter_vars)

    def _boxes(self, regions: Array[s.BufferRegion]) -> dict[Buffer, list[list[tuple[int, int]]]]:
        boxes: dict[Buffer, list[list[tuple[int, int]]]] = {}
        for region in regions:
            boxes.setdefault(region.buffer, []).append(self.box(region))
        return boxes

    def box(self, region: s.BufferRegion) -> list[tuple[int, int]]:
        """The (begin, end) pairs of a region now."""
        bounds = []
        for r in region.region:
            low = self.integer(r.min)
            bounds.append((low, low + self.integer(r.extent)))
        return bounds

    def match(self, match: s.MatchBufferRegion, scope: Scope | None) -> None:
        """Makes a buffer a view of the region it matches, after checking that it may and that it fits."""
        buffer, source = match.buffer, match.source.buffer
        box, layout, pointer = self.box(match.source), self.layout(source), self.pointer(source)
        for axis, ((low, high), extent) in enumerate(zip(box, layout.shape, strict=True)):
            if low < 0 or high > extent:
                raise Violation(
                    f"out of bounds: `{buffer.name}` matches [{low}, {high}) of dimension {axis} of `{source.name}`, "
                    f"whose extent is {extent}"
                )
        self._check_match(match, scope, [low for low, _ in box], [high - 1 for _, high in box])
        lead = len(box) - len(buffer.shape)
        extents = [high - low for low, high in box]
        strides = layout.strides[lead:]
        offset = layout.offset + sum(low * stride for (low, _), stride in zip(box, layout.strides, strict=True))
        pairs: list[tuple[Any, int]] = [*zip(buffer.shape, extents[lead:], strict=True)]
        pairs += [*zip(buffer.strides, strides, strict=True)] if buffer.strides else []
        if isinstance(buffer.elem_offset, e.Var):
            pairs.append((buffer.elem_offset, offset))
        for declared, found in pairs:
            self._match_value(buffer, declared, found)
        compact = row_major(tuple(extents[lead:]))
        # The stride of a dimension of extent 1 says nothing.
        if not buffer.strides and any(
            d > 1 and a != b for d, a, b in zip(extents[lead:], strides, compact, strict=True)
        ):
            raise Violation(
                f"`{buffer.name}` declares no strides, but the region of `{source.name}` that it matches has gaps"
            )
        self.variables[buffer.data] = pointer
        self.declare(buffer, Layout(buffer.dtype, tuple(extents[lead:]), strides, offset))

    def _check_match(self, match: s.MatchBufferRegion, scope: Scope | None, first: list[int], last: list[int]) -> None:
        source = match.source.buffer
        for outer in self.scopes[self.depths.get(source, 0) :] if scope is not None else ():
            for point in (first, last):
                if not (outer.allows(source, point, False) or outer.allows(source, point, True)):
                    raise Violation(
                        f"undeclared access: block `{outer.name}` matches `{source.name}{point}`, "
                        "which is outside of what it declares to read and write"
                    )

    def _match_value(self, buffer: Buffer, declared: Any, found: int) -> None:
        # A variable of the pattern is defined by each match anew; one from outside has its value already.
        if isinstance(declared, e.Var) and (declared in self.matched or declared not in self.variables):
            self.matched.add(declared)
            self.variables[declared] = storage_dtype(declared.dtype).type(found)
        elif self.integer(declared) != found:
            raise Violation(f"`{buffer.name}` declares {declared} where what it matches has {found}")


def _waits(stmt: s.Stmt) -> bool:
    """Whether an `Evaluate` is a call in which threads may wait."""
    if not isinstance(stmt, s.Evaluate) or not isinstance(stmt.value, e.Call):
        return False
    op = stmt.value.op
    return op.name in threads.COLLECTIVES if isinstance(op, Op) else True


def _underlined(func: PrimFunc, *nodes: Any) -> list[str]:
    """The lines of a function in which some nodes stand, with these underlined."""
    found: list[str] = []
    number, above = 0, ""
    for line in func.script(obj_to_underline=[node for node in nodes if node is not None]).splitlines():
        if line.strip() and not line.strip().strip("^ "):
            found += [f"{number:5} | {above}", f"      | {line}"]
        else:
            number, above = number + 1, line
    return found


def _first_line(stmt: s.Stmt) -> str:
    lines = [line for line in str(stmt).splitlines() if line.strip() and not _DECLARATION.match(line)]
    return lines[0].strip()[:200] if lines else type(stmt).__name__


Execution._steps = {
    getattr(s, name.removeprefix("step_")): method
    for name, method in vars(Execution).items()
    if name.startswith("step_")
}
Execution._compounds = {
    getattr(s, name.removeprefix("run_")): method
    for name, method in vars(Execution).items()
    if name.startswith("run_") and hasattr(s, name.removeprefix("run_"))
}
