"""Threads: the iterations of thread-bound loops, run by turns between barriers.

Every thread of a block runs until it waits or ends, one after the other. When all wait at the same statement, they go
on. So two accesses of different threads are ordered exactly when a barrier stands between them, which is what the
record of accesses in memory.py sees: at a barrier, the region that the threads share is replaced by a new one.

Threads come from loops bound to threads, which may be nested, and from attributes `thread_extent`, of which the
outermost launches all. As long as there are blocks, barriers are not there yet; a block that writes shared memory, or
reduces across threads, is then an unordered set of iterations of its own, between two barriers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...ir import expr as e
from ...ir.visitor import post_order_visit, pre_order_visit
from ...tir import stmt as s
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar, IterVarType
from .calls import ThreadReturn
from .memory import Region, Violation, storage_dtype

if TYPE_CHECKING:
    from .statements import Execution

COLLECTIVES = frozenset(["tir.tvm_storage_sync", "tir.tvm_thread_allreduce"])
"""Operators in which the threads of a block wait for each other."""


_MOVE = "; all threads of a block have to come to a barrier: move it out of what only some of them execute"


class Arrival:
    """A thread that waits at a statement (None for a barrier that nobody wrote), with what it asks for."""

    __slots__ = ("execution", "request", "result", "stmt")

    def __init__(self, execution: Execution, stmt: s.Stmt | None, request: Any):
        self.execution, self.stmt, self.request = execution, stmt, request
        self.result: Any = None


def drive(running: Iterator[list[Arrival]]) -> Any:
    """Runs something to its end where there is but one thread; returns its result."""
    while True:
        try:
            arrivals = next(running)
        except StopIteration as stop:
            return stop.value
        resolve(arrivals)


def resolve(arrivals: list[Arrival]) -> None:
    """Lets all threads of a block go on; those that reduce get their results."""
    first = arrivals[0]
    for other in arrivals:
        stmt = other.stmt or first.stmt
        if stmt is not None and other.stmt is not first.stmt:
            places = f"{_thread(first)} waits at {_text(first.stmt)}, {_thread(other)} at {_text(other.stmt)}"
            raise other.execution.error(Violation(f"divergent barrier: {places}{_MOVE}", stmt, first.stmt), stmt)
    if first.request is not None:
        _reduce(arrivals)


def _thread(arrival: Arrival) -> str:
    coordinates = arrival.execution.coordinates
    return "thread (" + ", ".join(f"{tag} = {i}" for tag, i in coordinates.items()) + ")"


def _text(stmt: s.Stmt | None) -> str:
    return "the end of a block that writes shared memory" if stmt is None else f"`{str(stmt).strip()}`"


def run_threads(
    parent: Execution, members: list[tuple[Execution, Iterator[list[Arrival]]]], region: Region, outermost: bool
) -> Any:
    """Runs threads by turns. An outermost group lets them pass barriers; an inner one waits with its parent."""
    running, ended = members, None
    waiting: list[tuple[tuple[Execution, Iterator[list[Arrival]]], list[Arrival]]] = []
    while running:
        in_warps: list[tuple[Execution, Iterator[list[Arrival]]]] = []
        for execution, body in running:
            try:
                arrivals = next(body)
            except StopIteration:
                ended = execution
                continue
            if not _waits_for_warp(arrivals):
                waiting.append(((execution, body), arrivals))
            else:
                in_warps.append((execution, body))
        if in_warps:
            # Threads that wait for their warp go on while others wait for the block.
            for warp in {execution.warp.latest for execution, _ in in_warps if execution.warp is not None}:
                warp.renew()
            running = in_warps
            continue
        if parent.unwritten:
            raise parent.unwritten[0]
        if not waiting:
            return
        arrivals = [arrival for _, found in waiting for arrival in found]
        if ended is not None and arrivals[0].stmt is not None:
            places = (
                f"{_thread(arrivals[0])} waits, {_thread(Arrival(ended, None, None))} has ended without coming there"
            )
            stmt = arrivals[0].stmt
            raise arrivals[0].execution.error(Violation(f"divergent barrier: {places}{_MOVE}", stmt, stmt), stmt)
        if outermost:
            resolve(arrivals)
        else:
            yield arrivals
            parent.place = tuple((r.latest, i) for r, i in parent.place)
        region.renew()
        region = region.latest
        running, waiting = [thread for thread, _ in waiting], []


def _waits_for_warp(arrivals: list[Arrival]) -> bool:
    stmt = arrivals[0].stmt
    return arrivals[0].execution.warp is not None and stmt is not None and _is_warp_barrier(stmt)


def _is_warp_barrier(node: Any) -> bool:
    call = node.value if isinstance(node, s.Evaluate) else None
    if not isinstance(call, e.Call) or getattr(call.op, "name", "") != "tir.tvm_storage_sync":
        return False
    scope = call.args[0]
    return isinstance(scope, e.StringImm) and scope.value == "warp"


def _body(thread: Execution, body: s.Stmt) -> Iterator[list[Arrival]]:
    try:
        yield from thread.execute(body)
    except ThreadReturn:
        return


# -- loops bound to threads --


def run_bound_loop(run: Execution, loop: s.For) -> Iterator[list[Arrival]]:
    """A loop bound to a thread index. Inside of a loop over the same index, each thread runs its own iteration."""
    assert loop.thread_binding is not None
    tag, var = loop.thread_binding.thread_tag, loop.loop_var
    begin, extent = run.integer(loop.min), run.integer(loop.extent)
    run.thread_loops[var] = tag
    if tag in run.coordinates and not tag.startswith("vthread"):
        index = run.coordinates[tag]
        if index < extent:
            yield from _iteration(run, loop, begin + index)
        return
    if not run.coordinates:
        run.shared = {}
    kinds = {"threadIdx": "threads", "blockIdx": "blocks"}
    region = Region(f"the loop `{var.name}` bound to {tag}", var, kinds.get(tag.split(".")[0], "virtual threads"))
    outer, place = run.coordinates, run.place
    if tag.startswith("blockIdx"):
        for i in range(extent):
            run.coordinates = {**outer, tag: i}
            run.place = (*run.place[: len(place)], (region, i))
            yield from _iteration(run, loop, begin + i)
        run.coordinates, run.place = outer, run.place[: len(place)]
        return
    members = []
    for i in range(extent):
        thread = run.fork()
        thread.coordinates, thread.place = {**outer, tag: i}, (*place, (region, i))
        thread.loops.append(var)
        members.append((thread, _iteration(thread, loop, begin + i)))
    outermost = all(t.startswith("blockIdx") for t in outer)
    yield from run_threads(run, members, region, outermost)


def _iteration(run: Execution, loop: s.For, i: int) -> Iterator[list[Arrival]]:
    value = storage_dtype(loop.loop_var.dtype).type(i)
    run.variables[loop.loop_var] = value
    if loop.thread_binding is not None:
        run.variables[loop.thread_binding.var] = value
    yield from _body(run, loop.body)


def writes_for_others(run: Execution, realize: s.BlockRealize) -> bool:
    """Whether a block, one without blocks inside, writes what other threads may read."""
    if not any(tag.startswith("threadIdx") for tag in run.coordinates):
        return False
    block = realize.block
    if not any(r.buffer.scope().startswith("shared") for r in block.writes) and not reduced_across_threads(
        run, realize
    ):
        return False
    return not _facts_of(run, realize)[1]


def reduced_across_threads(run: Execution, realize: s.BlockRealize) -> dict[Buffer, frozenset[e.Var]]:
    """The buffers in which a block combines what several threads compute, with the loop variables of these threads."""
    hidden = frozenset(_facts_of(run, realize)[0] & run.thread_loops.keys())
    return {r.buffer: hidden for r in realize.block.writes} if hidden else {}


def _facts_of(run: Execution, realize: s.BlockRealize) -> tuple[set[e.Var], bool]:
    """The variables that a block's reductions run over, and whether there are blocks inside of it."""
    facts = run.facts.get(realize)
    if facts is None:
        block, used, inner = realize.block, set[e.Var](), list[s.Block]()
        for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if iter_var.iter_type == IterVarType.CommReduce:
                post_order_visit(value, lambda node: used.add(node) if isinstance(node, e.Var) else None)
        pre_order_visit(block.body, lambda node: not (isinstance(node, s.Block) and inner.append(node) is None))
        facts = run.facts[realize] = used, bool(inner)
    return facts


# -- kernels --


def launch(run: Execution, attr: s.AttrStmt) -> Iterator[list[Arrival]]:
    """A kernel: its blocks one after the other, the threads of each by turns."""
    extents: dict[str, int] = {}
    in_warps = False

    def collect(node: Any) -> None:
        nonlocal in_warps
        in_warps = in_warps or _is_warp_barrier(node)
        if isinstance(node, s.AttrStmt) and node.attr_key == "thread_extent" and isinstance(node.node, IterVar):
            extents[node.node.thread_tag] = run.integer(node.value)

    post_order_visit(attr, collect)
    run.shared = {}
    grid = [tag for tag in sorted(extents, reverse=True) if tag.startswith("blockIdx")]
    block = [tag for tag in sorted(extents, reverse=True) if not tag.startswith("blockIdx")]
    outer, place = run.coordinates, run.place
    grid_region = Region("the blocks of the kernel", members="blocks")
    warp_size = _warp_size(run) if in_warps else 0
    for position in itertools.product(*(range(extents[tag]) for tag in grid)):
        of_block = {**outer, **dict(zip(grid, position, strict=True))}
        region = Region("the warps of the block" if in_warps else "the threads of the block", members="threads")
        members = []
        indices = list(itertools.product(*(range(extents[tag]) for tag in block)))
        warps = [Region("the threads of the warp", members="threads") for _ in indices[::warp_size]] if in_warps else []
        for number, index in enumerate(indices):
            thread = run.fork()
            thread.coordinates = {**of_block, **dict(zip(block, index, strict=True))}
            thread.place = (*place, (grid_region, position), (region, index))
            if in_warps:
                thread.warp = warps[number // warp_size]
                thread.place = (*place, (grid_region, position), (region, number // warp_size), (thread.warp, index))
            members.append((thread, _body(thread, attr)))
        yield from run_threads(run, members, region, True)


def _warp_size(run: Execution) -> int:
    """How many threads run together; 32 where the function does not say what it is for."""
    target = None if run.function is None else run.function.attrs.get("target")
    return 32 if target is None else int(target.attrs.get("thread_warp_size", 1))


# -- what threads do together --


def run_collective(run: Execution, stmt: s.Evaluate, call: e.Call) -> Iterator[list[Arrival]]:
    """A barrier, or a reduction over threads."""
    if call.op.name == "tir.tvm_storage_sync":
        yield from run.wait(stmt)
        return
    count = run.integer(call.args[0])
    values = [run.value(a) for a in call.args[1 : count + 1]]
    takes_part = bool(run.plain(call.args[count + 1]))
    results, axes = call.args[count + 2 : 2 * count + 2], call.args[2 * count + 2 :]
    reduced = {_tag_of(run, axis) for axis in axes}
    group = tuple((tag, i) for tag, i in run.coordinates.items() if tag not in reduced)
    combined = yield from run.wait(stmt, (group, values if takes_part else None, run.reducer))
    for target, value in zip(results, combined, strict=True):
        if isinstance(target, BufferLoad):
            run.store(target.buffer, target.indices, None, value, stmt)
        else:
            pointer = run.value(target)
            pointer.memory.write(pointer.dtype, pointer.offset, run.arithmetic.plain(value))


def _tag_of(run: Execution, axis: Any) -> str:
    """The thread index that a variable stands for."""
    tag = run.thread_loops.get(axis)
    if tag is None:
        raise Violation(f"`{axis}` is no thread variable that is bound here")
    return tag


def _reduce(arrivals: list[Arrival]) -> None:
    """Combines the values of the threads of each group, in the order of the threads."""
    groups: dict[Any, list[Arrival]] = {}
    for arrival in arrivals:
        groups.setdefault(arrival.request[0], []).append(arrival)
    for members in groups.values():
        run, reducer = members[0].execution, members[0].request[2]
        total = [run.value(identity) for identity in reducer.identity_element]
        for member in members:
            values = member.request[1]
            if values is not None:
                run.variables.update(zip(reducer.lhs, total, strict=True))
                run.variables.update(zip(reducer.rhs, values, strict=True))
                total = [run.value(r) for r in reducer.result]
        for member in members:
            member.result = total
