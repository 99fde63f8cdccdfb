"""LowerThreadAllreduce: `tvm_thread_allreduce` becomes a tree of sums in shared memory.

                                                red_buf0[tx] = A[tx]
                                                T.tvm_storage_sync("shared")
T.tvm_thread_allreduce(                         if tx < 2:
    1, A[tx], True, R[0], tx)         ->            red_buf0[tx] = red_buf0[tx] + red_buf0[tx + 2]
B[0] = R[0]                                     T.tvm_storage_sync("shared")
                                                ...
                                                B[0] = red_buf0[0]

Within one warp, whose threads run together, barriers of the block are replaced by those of the warp. Where threads of a
warp can read each other's registers (CUDA), they need neither shared memory nor barriers:

T.tvm_thread_allreduce(                         w_32 = A[tx]
    1, A[tx], True, R[0], tx)         ->        other_16 = T.tvm_warp_shuffle_down(mask, w_32, 16, 32, 32)
                                                w_16 = w_32 + other_16
                                                ...
                                                red_buf0[0] = T.tvm_warp_shuffle(mask, w_1, 0, 32, 32)

Several warps that reduce together first do so one by one, and the first one then reduces their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir.expr import Call, Cast, IntImm, PrimExpr, Select, Var, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.operators import equal, floordiv, floormod, minimum
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import InvalidValue, WellFormedError
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad, CommReducer, IterVar
from ..function import PrimFunc
from ..op_vendor import tvm_warp_activemask, tvm_warp_shuffle, tvm_warp_shuffle_down
from ..stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, IfThenElse, LetStmt, Stmt, flat_seq
from .pass_base import PrimFuncPass
from .thread_sync import barrier

_AXES = "xyz"


_SHUFFLING = ("cuda", "nvptx")
"""The kinds of targets whose code generators write shuffles."""


class LowerThreadAllreduce(PrimFuncPass):
    """Writes reductions over threads as trees in shared memory, or, within warps of CUDA, as shuffles.

    `warp_size` None is that of the target; with 1, all steps are those of the block.

    Raises `WellFormedError` for threads whose number is not constant, `InvalidValue` for functions without a target.
    """

    warp_size: int | None = None

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target: Any = func.attrs.get("target")
        if target is None:
            raise InvalidValue(
                "LowerThreadAllreduce needs the target of the function, for the size of a warp; apply BindTarget before"
            )
        warp_size = self.warp_size or int(target.attrs.get("thread_warp_size", 1))
        return func.with_body(_Lowering(warp_size, target.kind.name in _SHUFFLING)(func.body))


@dataclass(frozen=True, slots=True)
class _Thread:
    """A thread index inside of a block."""

    axis: int
    var: Var
    extent: int


@dataclass(frozen=True, slots=True)
class _Request:
    """A call of `tvm_thread_allreduce`: what is reduced, where results go, which threads reduce and which do not."""

    reducer: CommReducer
    values: list[PrimExpr]
    results: list[Buffer]
    reducing: list[_Thread]
    others: list[_Thread]


class _Tree:
    """The statements in which groups of `extent` threads reduce what they put into buffers of shared memory."""

    def __init__(self, request: _Request, warp_size: int):
        self.reducer, self.warp_size = request.reducer, warp_size
        self.analyzer = Analyzer()
        self.index, self.extent = _flat(request.reducing)
        self.group, self.groups = _flat(request.others)
        self.contiguous = _contiguous(request)
        shape = [IntImm(self.group.dtype, self.groups * self.extent)]
        self.buffers = [
            decl_buffer(shape, value.dtype, f"red_buf{i}", scope="shared") for i, value in enumerate(request.values)
        ]

    def element(self, position: PrimExpr) -> PrimExpr:
        """The index of the values of a thread of this group."""
        if isinstance(self.group, IntImm):
            return position
        return self.analyzer.simplify(self.group * self.extent + position)

    def store(self, values: Sequence[PrimExpr]) -> Stmt:
        """Stores new values as those of this thread."""
        place = self.element(self.index)
        return flat_seq([BufferStore(b, value, [place]) for b, value in zip(self.buffers, values, strict=True)])

    def combined(self, position: PrimExpr) -> list[PrimExpr]:
        """The thread's own values, combined with those of another thread of its group."""
        other = self.element(position)
        own = self.element(self.index)
        return list(
            self.reducer.combine(
                [BufferLoad(b, [own]) for b in self.buffers], [BufferLoad(b, [other]) for b in self.buffers]
            )
        )

    def step(self, threads: int, distance: int) -> list[Stmt]:
        """One step of the tree: the first `threads` threads combine their values with those of others."""
        values = self.combined(self.index + distance)
        if len(values) == 1:
            body = self.store(values)
        else:  # each is computed from all, so none is stored before all are
            names = [Var(f"s_{distance}_{i}", value.dtype) for i, value in enumerate(values)]
            body = self.store(names)
            for name, value in zip(names, values, strict=True):
                body = LetStmt(name, value, body)
        return [IfThenElse(self.index < threads, body), barrier("shared")]

    def reduce(self) -> list[Stmt]:
        """The steps until the first thread of each group has the result."""
        width = 1 << (self.extent - 1).bit_length()
        stmts: list[Stmt] = []
        if width > self.extent:
            width //= 2
            stmts += self.step(self.extent - width, width)
        aligned = self.groups == 1 or self.contiguous % self.warp_size == 0
        while width > 1 and (width > self.contiguous or width > self.warp_size or not aligned):
            width //= 2
            stmts += self.step(width, width)
        if width > 1:
            body = self._in_warp(width)
            if self.extent > self.warp_size:
                body = IfThenElse(self.index < self.warp_size, body)
            stmts += [body, barrier("shared")]
        return stmts

    def _in_warp(self, width: int) -> Stmt:
        """The steps of the threads of one warp. All load before any stores, as what one stores another loads.

        A barrier needs every thread of the warp: those that take no part in a step combine their values with
        themselves, which nothing reads.
        """
        stmts: list[Stmt] = []
        while width > 1:
            width //= 2
            loads = self.combined(Select(self.index < width, self.index + width, self.index))
            names = [Var(f"w_{width}_{i}", load.dtype) for i, load in enumerate(loads)]
            body = flat_seq([barrier("warp"), self.store(names), barrier("warp")])
            for name, load in zip(names, loads, strict=True):
                body = LetStmt(name, load, body)
            stmts.append(body)
        return flat_seq(stmts)


class _Shuffles:
    """The statements in which threads of whole warps, or of equal parts of a warp, reduce their values."""

    def __init__(self, request: _Request, warp_size: int):
        self.request, self.warp_size = request, warp_size
        self.index, self.extent = _flat(request.reducing)
        self.group, groups = _flat(request.others)
        threads = self.extent * groups
        # What all threads of a block run has all threads of a warp together; only a last warp may not be whole.
        self.mask: PrimExpr = tvm_warp_activemask()
        if threads < warp_size or threads % warp_size == 0:
            self.mask = const((1 << min(threads, warp_size)) - 1, "uint32")
        self.warps = self.extent // warp_size
        """How many warps reduce together; 0 for a part of one."""
        scope, count = ("shared", groups * self.warps) if self.warps > 1 else ("local", 1)
        self.buffers = [
            decl_buffer([IntImm("int32", count)], value.dtype, f"red_buf{i}", scope=scope)
            for i, value in enumerate(request.values)
        ]

    @staticmethod
    def fit(request: _Request, warp_size: int) -> bool:
        """Whether threads that reduce together follow each other, and are whole warps or an equal part of one."""
        _, extent = _flat(request.reducing)
        whole = warp_size % extent == 0 or (extent % warp_size == 0 and extent <= warp_size**2)
        return whole and _contiguous(request) == extent and all(not value.dtype.lanes > 1 for value in request.values)

    @property
    def first(self) -> PrimExpr:
        """The index of a group's result."""
        return const(0, "int32") if self.warps < 2 else self.place(0)

    def place(self, warp: PrimExpr | int) -> PrimExpr:
        """The index of the result of a warp of this thread's group."""
        return Analyzer().simplify(self.group * self.warps + warp)

    def store(self, place: PrimExpr, values: Sequence[PrimExpr]) -> Stmt:
        return flat_seq([BufferStore(b, value, [place]) for b, value in zip(self.buffers, values, strict=True)])

    def statements(self) -> list[Stmt]:
        """What the threads do; at its end each of them can read the result."""
        if self.warps < 2:
            return [self.reduced(self.request.values, min(self.extent, self.warp_size), self.broadcast)]
        lane, warp = floormod(self.index, self.warp_size), floordiv(self.index, self.warp_size)
        each = self.reduced(
            self.request.values,
            self.warp_size,
            lambda values: IfThenElse(equal(lane, 0), self.store(self.place(warp), values)),
        )
        loads = [BufferLoad(b, [self.place(minimum(self.index, self.warps - 1))]) for b in self.buffers]
        rest = [
            Select(self.index < self.warps, load, identity)
            for load, identity in zip(loads, self.request.reducer.identity_element, strict=True)
        ]
        width = 1 << (self.warps - 1).bit_length()
        last = self.reduced(
            rest, width, lambda values: IfThenElse(equal(self.index, 0), self.store(self.place(0), values))
        )
        # The first barrier is for threads that still read the result of an earlier reduction.
        first_warp = IfThenElse(self.index < self.warp_size, last)
        return [barrier("shared"), each, barrier("shared"), first_warp, barrier("shared")]

    def broadcast(self, values: Sequence[PrimExpr]) -> Stmt:
        """Stores the values of the first thread in all."""
        width = min(self.extent, self.warp_size)
        shuffled = [tvm_warp_shuffle(self.mask, value, 0, width, self.warp_size) for value in values]
        return self.store(const(0, "int32"), shuffled)

    def reduced(self, values: Sequence[PrimExpr], width: int, then: Callable[[Sequence[PrimExpr]], Stmt]) -> Stmt:
        """Each `width` threads reduce their values; the first of them has the result, with which `then` goes on."""
        bound: list[tuple[Var, PrimExpr]] = []

        def named(hint: str, given: Sequence[PrimExpr]) -> list[Var]:
            names = [Var(f"{hint}_{i}", value.dtype) for i, value in enumerate(given)]
            bound.extend(zip(names, given, strict=True))
            return names

        own = named(f"w_{width}", values)
        distance = width // 2
        while distance:
            # Under names, so that each is exchanged once, and by all threads.
            given = [tvm_warp_shuffle_down(self.mask, v, distance, width, self.warp_size) for v in own]
            others = named(f"other_{distance}", given)
            own = named(f"w_{distance}", list(self.request.reducer.combine(own, others)))
            distance //= 2
        body = then(own)
        for var, value in reversed(bound):
            body = LetStmt(var, value, body)
        return body


def _flat(threads: Sequence[_Thread]) -> tuple[PrimExpr, int]:
    """The flat index of a thread over several thread axes, and the number of threads."""
    index: PrimExpr | None = None
    extent = 1
    for thread in threads:
        index = thread.var if index is None else index + thread.var * extent
        extent *= thread.extent
    return (const(0, "int32") if index is None else index), extent


def _contiguous(request: _Request) -> int:
    """The number of consecutive threads that reduce together."""
    extent = 1
    for thread in sorted([*request.reducing, *request.others], key=lambda thread: thread.axis):
        if thread not in request.reducing:
            break
        extent *= thread.extent
    return extent


class _Lowering(Mapper):
    def __init__(self, warp_size: int, shuffling: bool):
        super().__init__()
        self.warp_size, self.shuffling = warp_size, shuffling
        self.threads: list[AttrStmt] = []
        self.reducers: list[CommReducer] = []
        self.results: dict[Var, tuple[Buffer, PrimExpr]] = {}
        """For the data of a result: the buffer in its place, and the value that reading it gives."""

    def visit_AttrStmt(self, stmt: AttrStmt) -> Stmt:
        if stmt.attr_key == "reduce_scope":
            self.reducers.append(stmt.node)
            body = self.visit(stmt.body)
            self.reducers.pop()
            return stmt.replace(body=body)
        if stmt.attr_key == "thread_extent":
            self.threads.append(stmt)
            body = self.visit(stmt.body)
            self.threads.pop()
            return stmt.replace(body=body)
        return self.generic_visit(stmt)

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        call = stmt.value
        if isinstance(call, Call) and isinstance(call.op, Op) and call.op.name == "tir.tvm_thread_allreduce":
            return self._lower(self._request(call))
        return self.generic_visit(stmt)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        # The body is visited first: the calls in it determine the buffer that replaces the memory.
        body = self.visit(stmt.body)
        found = self.results.get(stmt.buffer_var)
        if found is None:
            return stmt.replace(body=body)
        buffer = found[0]
        if buffer.scope() == "shared":
            body = AttrStmt(buffer.data, "volatile_scope", const(1, "int32"), body)
        return stmt.replace(buffer_var=buffer.data, dtype=buffer.dtype, extents=buffer.shape, body=body)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        body = self.visit(stmt.body)
        found = self.results.get(stmt.buffer.data)
        return stmt.replace(body=body, buffer=stmt.buffer if found is None else found[0])

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        found = self.results.get(load.buffer.data)
        return self.generic_visit(load) if found is None else found[1]

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        store = self.generic_visit(store)
        found = self.results.get(store.buffer.data)
        return store if found is None else store.replace(buffer=found[0])

    def _request(self, call: Call) -> _Request:
        reducer = self.reducers[-1]
        count = len(reducer.result)
        condition = self.visit(call.args[count + 1])
        values: list[PrimExpr] = [self.visit(value) for value in call.args[1 : count + 1]]
        if not (isinstance(condition, IntImm) and condition.value):
            values = [
                Select(condition, v, identity) for v, identity in zip(values, reducer.identity_element, strict=True)
            ]
        results: list[Buffer] = []
        for result in call.args[count + 2 : 2 * count + 2]:
            load = result.value if isinstance(result, Cast) else result
            assert isinstance(load, BufferLoad)
            results.append(load.buffer)
        named = call.args[2 * count + 2 :]
        if not all(isinstance(axis, (Var, IntImm)) for axis in named):
            raise WellFormedError(f"a reduction over threads names their variables, found {', '.join(map(str, named))}")
        axes = {axis for axis in named if isinstance(axis, Var)}
        reducing: list[_Thread] = []
        others: list[_Thread] = []
        for attr in self.threads:
            tag, extent = attr.node.thread_tag, attr.value
            if tag.startswith("blockIdx"):
                continue
            if not isinstance(extent, IntImm):
                raise WellFormedError(
                    f"threads that reduce together need a constant extent; {tag} has {extent}: split the loop by a "
                    "constant before it is bound"
                )
            axes.discard(attr.node.var)
            if extent.value > 1:
                thread = _Thread(_AXES.index(tag[-1]), attr.node.var, extent.value)
                (reducing if _reduces(call, attr.node) else others).append(thread)
        if axes:
            names = ", ".join(sorted(axis.name for axis in axes))
            raise WellFormedError(f"a reduction over the threads {names} stands where these are not bound")
        return _Request(
            reducer, values, results, *(sorted(t, key=lambda thread: thread.axis) for t in (reducing, others))
        )

    def _lower(self, request: _Request) -> Stmt:
        if not request.reducing:
            zero = IntImm("int32", 0)
            return flat_seq([BufferStore(b, v, [zero]) for b, v in zip(request.results, request.values, strict=True)])
        if self.shuffling and _Shuffles.fit(request, self.warp_size):
            return self._shuffle(request)
        tree = _Tree(request, self.warp_size)
        known = [self.results[r.data][0] for r in request.results if r.data in self.results]
        if len(known) == len(tree.buffers):
            tree.buffers = known
        # The first barrier is for threads that still read the result of an earlier reduction.
        stmts = [barrier("shared"), tree.store(request.values), barrier("shared"), *tree.reduce()]
        first = tree.element(const(0, tree.index.dtype))
        for result, buffer in zip(request.results, tree.buffers, strict=True):
            self.results[result.data] = (buffer, BufferLoad(buffer, [first]))
        return flat_seq(stmts)

    def _shuffle(self, request: _Request) -> Stmt:
        shuffles = _Shuffles(request, self.warp_size)
        known = [self.results[r.data][0] for r in request.results if r.data in self.results]
        if len(known) == len(shuffles.buffers):
            shuffles.buffers = known
        body = flat_seq(shuffles.statements())
        for result, buffer in zip(request.results, shuffles.buffers, strict=True):
            self.results[result.data] = (buffer, BufferLoad(buffer, [shuffles.first]))
        return body


def _reduces(call: Call, thread: IterVar) -> bool:
    return any(arg is thread.var for arg in call.args)
