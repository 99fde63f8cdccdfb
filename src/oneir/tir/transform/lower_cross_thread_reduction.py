"""LowerCrossThreadReduction: a reduction over threads becomes a partial result of each and `tvm_thread_allreduce`.

for tx in T.thread_binding(32, "threadIdx.x"):      for tx in T.thread_binding(32, "threadIdx.x"):
    for k in range(4):                                  in_thread_B[0] = 0
        with T.block("B"):                              for k in range(4):
            vk = T.axis.reduce(128, tx * 4 + k)             in_thread_B[0] += A[tx * 4 + k]
            ... B[0] += A[vk]                   ->      cross_thread_B[0] = the sum of all threads' in_thread_B[0]
                                                        if tx == 0:
                                                            B[0] = cross_thread_B[0]
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import Array, map_array
from ...ir.expr import And, Call, IntImm, PrimExpr, Range, Var, const, pointer_to
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, post_order_visit, pre_order_visit
from ...runtime.error import WellFormedError
from ..buffer import Buffer
from ..expr import BufferLoad, CommReducer, IterVar
from ..function import PrimFunc
from ..op import reinterpret
from ..schedule.domain import is_affine, uses
from ..schedule.reducer import Reduction, match_reduction
from ..stmt import (
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    SeqStmt,
    Stmt,
    flat_seq,
)
from ..stmt_functor import substitute
from .pass_base import PrimFuncPass


class LowerCrossThreadReduction(PrimFuncPass):
    """Makes blocks that reduce over loops bound to `threadIdx` calls of `tvm_thread_allreduce`.

    Each thread first reduces its own values, where there are several; then all threads get the result, and the first
    one stores it, or all of them where each has memory of its own. Raises `WellFormedError` for reductions
    that threads cannot do together.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        bound = False

        def look(node: Any) -> None:
            nonlocal bound
            bound = bound or (isinstance(node, For) and node.thread_binding is not None)

        post_order_visit(func.body, look)
        if not bound:
            return func
        try:
            return func.with_body(_Lowering()(func.body))
        except _ConditionViolated as violated:
            text = func.script(obj_to_underline=[violated.stmt])
            raise WellFormedError(f"{violated}\n{text}") from None


def _is_thread(loop: For) -> bool:
    return loop.thread_binding is not None and loop.thread_binding.thread_tag.startswith("threadIdx.")


_MOVABLE = (ForKind.SERIAL, ForKind.UNROLLED, ForKind.THREAD_BINDING)


class _ConditionViolated(Exception):
    """A condition of the pass that does not hold, and the statement that breaks it."""

    def __init__(self, message: str, stmt: Stmt):
        super().__init__(message)
        self.stmt = stmt


class _Lowering(Mapper):
    """Replaces loops that begin a reduction over threads; `path` are the statements around the current one."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[Stmt] = []
        self.allocated: list[list[Buffer]] = []
        """For each block around, the buffers that it has to allocate."""
        self.replaced: dict[For, Stmt] = {}
        self.results: dict[Buffer, dict[str, Range]] = {}
        """What threads reduced in this kernel, with the threads that did."""

    def visit_PrimExpr(self, expr: Any) -> Any:
        return expr

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_Stmt(self, stmt: Stmt) -> Any:
        self.path.append(stmt)
        new = self.generic_visit(stmt)
        self.path.pop()
        return new

    def visit_For(self, loop: For) -> Stmt:
        self.path.append(loop)
        body = self.visit(loop.body)
        self.path.pop()
        tag = "" if loop.thread_binding is None else loop.thread_binding.thread_tag
        threads = [outer for outer in self._loops() if outer.thread_binding is not None]
        if tag.startswith("blockIdx") or (_is_thread(loop) and not any(map(_is_kernel, threads))):
            self.results = {}
        return self.replaced.pop(loop, None) or loop.replace(body=body)

    def visit_Block(self, block: Block) -> Block:
        self.path.append(block)
        self.allocated.append([])
        init = None if block.init is None else self.visit(block.init)
        body = self.visit(block.body)
        new = self.allocated.pop()
        self.path.pop()
        allocated = Array((*block.alloc_buffers, *new)) if new else block.alloc_buffers
        return block.replace(init=init, body=body, alloc_buffers=allocated)

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        loops = self._reduction_loops(realize)
        if any(loop.thread_binding is not None for loop in loops):
            self.replaced[loops[0]] = self._lower(realize, loops)
            return realize
        missing = self._threads_to_choose_from(realize.block)
        if missing:
            return _by_one_thread(realize, missing)
        return realize.replace(block=self.visit(realize.block))

    def _loops(self) -> list[For]:
        return [stmt for stmt in self.path if isinstance(stmt, For)]

    # -- detection --

    def _reduction_loops(self, realize: BlockRealize) -> list[For]:
        """The loops over which a reduction block reduces, from the outside in; none for other blocks."""
        scope = next((stmt for stmt in reversed(self.path) if isinstance(stmt, Block)), None)
        if scope is None or not _reduces(realize.block):
            return []
        pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        values = [value for v, value in pairs if v.iter_type == IterVar.CommReduce]
        loops = [loop for loop in self._loops() if any(uses(value, {loop.loop_var}) is not None for value in values)]
        if not any(loop.thread_binding is not None for loop in loops):
            return []
        inside = self.path[self.path.index(scope) + 1 :]
        domains = {s.loop_var: Range.from_min_extent(s.min, s.extent) for s in inside if isinstance(s, For)}
        return loops if is_affine(realize, domains) and _alone_writes(scope, realize.block) else []

    def _check(self, block: Block, loops: list[For]) -> Reduction:
        """The reduction of a block that threads can share; raises `_ConditionViolated` for other blocks."""
        self._check_between(block, loops)
        for loop in loops:
            if loop.thread_binding is not None and not _is_thread(loop):
                raise _ConditionViolated(
                    "Cross-thread reduction requires all the reduction-related loops that are bound to GPU thread axes "
                    f"to only be bound to `threadIdx.x/y/z`. Loop `{loop.loop_var.name}` of block "
                    f"`{block.name_hint}` is bound to {loop.thread_binding.thread_tag}; thread blocks cannot reduce "
                    "together, so use rfactor to reduce in two kernels",
                    loop,
                )
        reduction = match_reduction(block)
        if isinstance(reduction, str):
            raise _ConditionViolated(reduction.format(block=f"`{block.name_hint}`"), block)
        if len({buffer.scope() == "local" for buffer in reduction.buffers}) > 1:
            raise _ConditionViolated(
                "Cross-thread reduction requires all reduction buffers to be all local or all non-local; block "
                f"`{block.name_hint}` reduces into both; use set_scope to give them one scope",
                block,
            )
        _check_last(block, loops[0])
        return reduction

    def _between(self, loops: list[For]) -> list[Stmt]:
        """The statements between the outermost reduction loop and the block that are no reduction loops."""
        return [stmt for stmt in self.path[self.path.index(loops[0]) :] if stmt not in loops]

    def _check_between(self, block: Block, loops: list[For]) -> None:
        """Raises `_ConditionViolated` unless loops between those of the reduction can be moved around them.

        Statements before the block, in sequences, stay where they are; then no loop can move over them.
        """
        variables = {loop.loop_var for loop in loops}
        between = self._between(loops)
        sequence = any(isinstance(stmt, SeqStmt) for stmt in between)
        for stmt in between:
            if isinstance(stmt, SeqStmt):
                continue
            if (
                sequence
                or not isinstance(stmt, For)
                or stmt.kind not in _MOVABLE
                or any(uses(bound, variables) is not None for bound in (stmt.min, stmt.extent))
            ):
                raise _ConditionViolated(
                    "Cross-thread reduction requires all the reduction-related loops to be the deepest among all "
                    f"statements outside the desired block. Between those of block `{block.name_hint}` stands another "
                    "statement; reorder the loops so that the reduction loops are innermost",
                    stmt,
                )

    def _threads_to_choose_from(self, block: Block) -> dict[str, Range]:
        """The threads that all hold the same result, of which one must write it to memory that they share."""
        if any(region.buffer.scope() == "local" for region in block.writes):
            return {}
        missing: dict[str, Range] = {}
        for region in block.reads:
            missing.update(self.results.get(region.buffer, {}))
        for loop in self._loops():
            if loop.thread_binding is not None:
                missing.pop(loop.thread_binding.thread_tag, None)
        return missing

    # -- lowering --

    def _lower(self, realize: BlockRealize, loops: list[For]) -> Stmt:
        block = realize.block
        reduction = self._check(block, loops)
        threads = [loop for loop in loops if loop.thread_binding is not None]
        always = isinstance(realize.predicate, IntImm) and realize.predicate.value
        crossed = [_scratchpad(buffer, "cross_thread_") for buffer in reduction.buffers]
        partial: list[Buffer] = []
        stmts: list[Stmt] = []
        if len(threads) < len(loops) or not always:
            partial = [_scratchpad(buffer, "in_thread_") for buffer in reduction.buffers]
            start = reduction.start(partial, [IntImm("int32", 0)])
            stmts.append(_opaque(f"{block.name_hint}_in_thread_init", (), _whole(partial), start))
        in_thread = _in_thread(realize, reduction, partial) if partial else None
        moved = [stmt for stmt in self._between(loops) if isinstance(stmt, For)]
        inner = _InThread(realize, in_thread, moved)(loops[0])
        stmts += [inner] if inner is not None else []
        stmts.append(_across_threads(realize, reduction, partial, crossed, threads))
        stmts.append(_write_back(realize, reduction, crossed, loops))
        self.allocated[-1] += [*crossed, *partial]
        used = {loop.thread_binding.thread_tag: loop for loop in threads if loop.thread_binding is not None}
        ranges = {tag: Range.from_min_extent(loop.min, loop.extent) for tag, loop in used.items()}
        self.results.update((buffer, ranges) for buffer in reduction.buffers)
        body = flat_seq(stmts)
        for loop in reversed([*moved, *threads]):
            body = loop.replace(body=body)
        return body


def _is_kernel(loop: For) -> bool:
    tag = loop.thread_binding.thread_tag if loop.thread_binding is not None else ""
    return tag.startswith(("blockIdx", "threadIdx"))


def _reduces(block: Block) -> bool:
    """Whether a block has an init, only spatial and reduction variables, and indices of writes without the latter."""
    kinds = (IterVar.DataPar, IterVar.CommReduce)
    if block.init is None or any(v.iter_type not in kinds for v in block.iter_vars):
        return False
    reduced = {v.var for v in block.iter_vars if v.iter_type == IterVar.CommReduce}
    written = [e for region in block.writes for r in region.region for e in (r.min, r.extent)]
    return all(uses(e, reduced) is None for e in written)


def _alone_writes(scope: Block, block: Block) -> bool:
    """Whether no other block in a scope writes what a block writes."""
    written = {region.buffer for region in block.writes}
    writers: list[Block] = []

    def look(node: Any) -> bool:
        if isinstance(node, Block):
            if any(region.buffer in written for region in node.writes):
                writers.append(node)
            return False
        return not isinstance(node, PrimExpr)

    pre_order_visit(scope.body, look)
    return len(writers) == 1


def _check_last(block: Block, loop: For) -> None:
    """Raises `_ConditionViolated` if blocks follow the reduction in its loops: they would run before the threads
    synchronize.
    """
    seen = False

    def look(node: Any) -> bool:
        nonlocal seen
        if isinstance(node, Block):
            if seen:
                raise _ConditionViolated(
                    "Cross-thread reduction cannot be applied when the reduction block isn't the last block under its "
                    f"first reduction-related loop; move block `{node.name_hint}` out of the loop "
                    f"`{loop.loop_var.name}`",
                    node,
                )
            seen = node is block
            return False
        return not isinstance(node, PrimExpr)

    pre_order_visit(loop, look)


def _scratchpad(buffer: Buffer, prefix: str) -> Buffer:
    """One element for each thread."""
    name = prefix + buffer.name
    return Buffer(Var(name, pointer_to(buffer.dtype, "local")), buffer.dtype, (1,), (1,), name=name)


def _whole(buffers: list[Buffer]) -> Array[BufferRegion]:
    return Array(BufferRegion(buffer, [Range(0, 1)]) for buffer in buffers)


def _opaque(name: str, reads: Any, writes: Any, body: Stmt) -> BlockRealize:
    return BlockRealize((), True, Block((), reads, writes, name, body))


class _IntoScratchpads(Mapper):
    """Redirects accesses to buffers to their scratchpads."""

    def __init__(self, scratchpads: dict[Buffer, Buffer]):
        super().__init__()
        self.scratchpads = scratchpads

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        found = self.scratchpads.get(load.buffer)
        return self.generic_visit(load) if found is None else BufferLoad(found, [0])

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        found = self.scratchpads.get(store.buffer)
        return self.generic_visit(store) if found is None else BufferStore(found, self.visit(store.value), [0])


def _in_thread(realize: BlockRealize, reduction: Reduction, partial: list[Buffer]) -> BlockRealize:
    """The block that reduces the values of one thread."""
    block = realize.block
    body = _IntoScratchpads(dict(zip(reduction.buffers, partial, strict=True)))(block.body)
    name = f"{block.name_hint}_in_thread"
    return realize.replace(block=block.replace(writes=_whole(partial), name_hint=name, body=body, init=None))


class _InThread(Mapper):
    """The reduction loops without those of threads, around another block, or around nothing: then None.

    `moved` are loops between them that stand elsewhere.
    """

    def __init__(self, source: BlockRealize, target: BlockRealize | None, moved: list[For]):
        super().__init__()
        self.source, self.target, self.moved = source, target, moved

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        return self.target if realize is self.source else realize

    def visit_For(self, loop: For) -> Any:
        body = self.visit(loop.body)
        if body is None:
            return None
        left_out = loop in self.moved or (loop.thread_binding is not None and _has_reductions(body))
        return body if left_out else loop.replace(body=body)

    def visit_SeqStmt(self, seq: SeqStmt) -> Any:
        stmts = [new for new in map_array(seq.seq, self.visit) if new is not None]
        return flat_seq(stmts) if stmts else None

    def visit_PrimExpr(self, expr: Any) -> Any:
        return expr


def _has_reductions(stmt: Stmt) -> bool:
    found: list[Block] = []

    def look(node: Any) -> bool:
        if isinstance(node, Block) and any(v.iter_type == IterVar.CommReduce for v in node.iter_vars):
            found.append(node)
        return not isinstance(node, PrimExpr)

    pre_order_visit(stmt, look)
    return bool(found)


def _across_threads(
    realize: BlockRealize, reduction: Reduction, partial: list[Buffer], crossed: list[Buffer], threads: list[For]
) -> Stmt:
    """The block that combines the partial results of all threads, by `tvm_thread_allreduce`."""
    block = realize.block
    sources: list[Any] = [BufferLoad(buffer, [0]) for buffer in partial] or reduction.added
    results = [BufferLoad(buffer, [0]) for buffer in crossed]
    count = const(len(crossed), "uint32")
    axes = [loop.loop_var for loop in threads]
    call = Call("handle", "tir.tvm_thread_allreduce", [count, *sources, IntImm("bool", 1), *results, *axes])
    reducer = CommReducer(reduction.lhs, reduction.rhs, reduction.results, reduction.identity)
    body = AttrStmt(reducer, "reduce_scope", reinterpret("handle", const(0, "uint64")), Evaluate(call))
    name = f"{block.name_hint}_cross_thread"
    if partial:
        return _opaque(name, _whole(partial), _whole(crossed), body)
    return BlockRealize(realize.iter_values, True, Block(block.iter_vars, block.reads, _whole(crossed), name, body))


def _write_back(realize: BlockRealize, reduction: Reduction, crossed: list[Buffer], loops: list[For]) -> Stmt:
    """The block that stores the result; memory that the threads share is written by the first of them."""
    block = realize.block
    kept = [
        (v.replace(var=v.var.copy_with_name(v.var.name)), v.var, value)
        for v, value in zip(block.iter_vars, realize.iter_values, strict=True)
        if v.iter_type != IterVar.CommReduce
    ]
    renamed = {old: new.var for new, old, _ in kept}
    indices = [substitute(index, renamed) for index in reduction.indices]
    region = [substitute(r, renamed) for r in block.writes[0].region]
    stores = [BufferStore(b, BufferLoad(c, [0]), indices) for b, c in zip(reduction.buffers, crossed, strict=True)]
    predicate: PrimExpr = IntImm("bool", 1)
    reduced = {loop.loop_var for loop in loops}
    for clause in _clauses(realize.predicate):
        if uses(clause, reduced) is None:
            predicate = ops.logical_and(predicate, clause)
    if reduction.buffers[0].scope() != "local":
        for loop in loops:
            if loop.thread_binding is not None:
                predicate = ops.logical_and(predicate, ops.equal(loop.loop_var, const(0, loop.loop_var.dtype)))
    writes = [BufferRegion(buffer, region) for buffer in reduction.buffers]
    name = f"{block.name_hint}_write_back"
    new = Block([v for v, _, _ in kept], _whole(crossed), writes, name, flat_seq(stores))
    return BlockRealize([value for _, _, value in kept], predicate, new)


def _clauses(predicate: PrimExpr) -> list[PrimExpr]:
    """The conjuncts of a condition."""
    if isinstance(predicate, And):
        return [*_clauses(predicate.a), *_clauses(predicate.b)]
    return [predicate]


def _by_one_thread(realize: BlockRealize, threads: dict[str, Range]) -> Stmt:
    """A block run by the first of some threads."""
    predicate = realize.predicate
    loops: list[tuple[Var, str, Range]] = []
    for tag, domain in threads.items():
        var = Var(f"t{tag[-1]}", domain.min.dtype)
        predicate = ops.logical_and(ops.equal(var, domain.min), predicate)
        loops.append((var, tag, domain))
    body: Stmt = realize.replace(predicate=predicate)
    for var, tag, domain in loops:
        thread = IterVar(None, Var("", var.dtype), IterVar.ThreadIndex, tag)
        body = For(var, domain.min, domain.extent, ForKind.THREAD_BINDING, body, thread)
    return body
