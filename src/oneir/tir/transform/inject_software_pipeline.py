"""InjectSoftwarePipeline: the statements of a loop's body run for different iterations at the same time.

    for i in T.serial(16, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
        load(i)
        use(i)

becomes

    load(0)                    # prologue
    for i in range(15):
        load(i + 1)
        use(i)
    use(15)                    # epilogue

A statement of stage s runs s rounds after those of stage 0; "software_pipeline_order" says in which order they stand. A
buffer that the body's block allocates, written in one stage and read in a later one, gets a copy (a version) for each
iteration in which it is alive at the same time.

"software_pipeline_async_stages" names stages whose copies may run while the threads compute: their statements stand in
the attribute "async_scope", each round closes a group of copies ("async_commit_queue_scope"), and a statement of a
later stage that reads what is copied waits ("async_wait_queue_scope") until only newer groups are under way. A round
that copies nothing closes an empty group, so that the number of newer groups is the same in all rounds. Passes that
know no such copies take these attributes for their bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import InvalidValue
from ..analysis.block_access_region import get_block_read_write_region
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import (
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    flat_seq,
    stmt_list,
)
from ..stmt_functor import StmtMapper, renew_stmt, substitute
from .pass_base import PrimFuncPass
from .unroll_loop import fold_in

STAGE = "software_pipeline_stage"
ORDER = "software_pipeline_order"
ASYNC = "software_pipeline_async_stages"
ASYNC_SCOPE = "async_scope"
ASYNC_COMMIT = "async_commit_queue_scope"
ASYNC_WAIT = "async_wait_queue_scope"
ASYNC_INFLIGHT = "async_wait_inflight_count"


class InjectSoftwarePipeline(PrimFuncPass):
    """Pipelines loops with the annotations "software_pipeline_stage" and "software_pipeline_order".

    Raises `InvalidValue` for annotations that do not fit the loop's statements, or contradict their dependences, and
    for blocks that are not opaque.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Inject({b.data: b for b in func.buffer_map.values()})(func.body))


class _Accesses(Visitor):
    """The buffers that a statement reads and writes; one used by its pointer counts as both."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: set[Buffer] = set()
        self.writes: set[Buffer] = set()
        self.pointers: set[Var] = set()

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.reads.add(node.buffer)
        for index in node.indices:
            self.visit(index)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.writes.add(node.buffer)
        for expr in (node.value, *node.indices):
            self.visit(expr)

    def visit_Block(self, node: Block) -> None:
        """The regions that a block declares count too, since its opaque calls do not show what they access."""
        self.reads.update(region.buffer for region in node.reads)
        self.writes.update(region.buffer for region in node.writes)
        for match in node.match_buffers:
            self.reads.add(match.source.buffer)
            self.writes.add(match.source.buffer)
        if node.init is not None:
            self.visit(node.init)
        self.visit(node.body)

    def visit_Var(self, var: Var) -> None:
        self.pointers.add(var)

    def visit_Buffer(self, buffer: Buffer) -> None:
        pass


class _Version(Mapper):
    """Redirects accesses to a buffer to the version of it that belongs to the iteration."""

    def __init__(self, versions: dict[Buffer, int], iteration: PrimExpr):
        super().__init__()
        self.versions, self.iteration = versions, iteration
        self.buffers: dict[Buffer, Buffer] = {}
        for buffer, count in versions.items():
            strides: Any = buffer.strides
            if strides:
                strides = Array([ops.multiply(strides[0], buffer.shape[0]), *strides])
            shape = Array([ops.cast(buffer.shape[0].dtype, count), *buffer.shape])
            self.buffers[buffer] = buffer.replace(shape=shape, strides=strides)

    def version(self, buffer: Buffer) -> PrimExpr:
        return ops.floormod(self.iteration, self.versions[buffer])

    def visit_Buffer(self, buffer: Buffer) -> Any:
        return buffer  # the nodes that access it change it together with their indices

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return self.access(self.generic_visit(node), node)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        return self.access(self.generic_visit(node), node)

    def access(self, new: Any, old: Any) -> Any:
        if old.buffer not in self.buffers:
            return new
        return new.replace(buffer=self.buffers[old.buffer], indices=Array([self.version(old.buffer), *new.indices]))

    def visit_BufferRegion(self, node: BufferRegion) -> Any:
        if node.buffer not in self.buffers:
            return self.generic_visit(node)
        version = Range.from_min_extent(self.version(node.buffer), 1)
        region = [version, *[self.visit(part) for part in node.region]]
        return BufferRegion(self.buffers[node.buffer], Array(region))


class _Pipeline:
    """One loop: its statements with their stages, in the order in which they will stand."""

    def __init__(self, loop: For, statements: list[Stmt], allocated: Sequence[Buffer]):
        self.loop, self.statements = loop, statements
        self.stages = self.annotation(STAGE)
        self.order = self.annotation(ORDER)
        if sorted(self.order) != list(range(len(statements))):
            raise InvalidValue(
                f"{ORDER} of the loop over {loop.loop_var.name} must be a permutation of 0 to {len(statements) - 1}, "
                f"found {self.order}"
            )
        if min(self.stages) < 0:
            raise InvalidValue(f"{STAGE} of the loop over {loop.loop_var.name} has a negative stage: {self.stages}")
        self.asynchronous = {int(stage) for stage in loop.annotations.get(ASYNC, ())}
        self.accesses = [_Accesses() for _ in statements]
        for access, statement in zip(self.accesses, statements, strict=True):
            access.visit(statement)
        self.check_dependences()
        versions = {buffer: self.versions_of(buffer) for buffer in allocated}
        versions = {buffer: count for buffer, count in versions.items() if count > 1}
        self.version = _Version(versions, ops.subtract(loop.loop_var, loop.min))
        self.check_pointers()
        self.allocated = [self.version.buffers.get(buffer, buffer) for buffer in allocated]
        self.statements = [self.version(statement) for statement in statements]

    def annotation(self, key: str) -> list[int]:
        values = [int(value) for value in self.loop.annotations.get(key, ())]
        if len(values) != len(self.statements):
            raise InvalidValue(
                f"the body of the loop over {self.loop.loop_var.name} has {len(self.statements)} statements, "
                f"but {key} has {len(values)} entries"
            )
        return values

    def check_dependences(self) -> None:
        for reader, reading in enumerate(self.accesses):
            for writer in range(reader):
                shared = self.accesses[writer].writes & reading.reads
                late = self.stages[writer], self.order[writer]
                if shared and late > (self.stages[reader], self.order[reader]):
                    names = ", ".join(sorted(buffer.name for buffer in shared))
                    raise InvalidValue(
                        f"in the loop over {self.loop.loop_var.name}, statement {reader} reads {names} before "
                        f"statement {writer} writes it: stages {self.stages} and order {self.order} contradict that"
                    )

    def check_pointers(self) -> None:
        pointers = {var for access in self.accesses for var in access.pointers}
        for buffer in self.version.buffers:
            if buffer.data in pointers:
                raise InvalidValue(
                    f"{buffer.name} needs several versions in the pipeline, but is accessed through its pointer"
                )

    def versions_of(self, buffer: Buffer) -> int:
        """How many iterations' contents of a buffer are alive at once."""
        writers = [i for i, access in enumerate(self.accesses) if buffer in access.writes]
        readers = [i for i, access in enumerate(self.accesses) if buffer in access.reads]
        if not writers or not readers:
            return 1
        count = max(self.stages[r] for r in readers) - min(self.stages[w] for w in writers) + 1
        # Where every reader of a later stage stands before the writer, it is done when the writer comes.
        meets = any(
            self.order[w] < self.order[r] and self.stages[w] < self.stages[r] and self.overlap(buffer, w, r)
            for w in writers
            for r in readers
        )
        return count if meets or count < 2 else count - 1

    def overlap(self, buffer: Buffer, writer: int, reader: int) -> bool:
        """Whether one statement may read what another one writes, in whichever iterations they are."""
        later = {self.loop.loop_var: self.loop.loop_var.copy_with_name("later")}
        span = Range.from_min_extent(self.loop.min, self.loop.extent)
        written = [substitute(region, later) for region in _regions(self.statements[writer], buffer)[1]]
        read = _regions(self.statements[reader], buffer)[0]
        analyzer = Analyzer()
        for var in (self.loop.loop_var, later[self.loop.loop_var]):
            analyzer.bind(var, span)
        return any(_may_overlap(a, b, analyzer) for a in written for b in read)

    def emit(self, buffers: dict[Var, Buffer]) -> Stmt:
        """The pipeline; `buffers` are those around it."""
        loop, last = self.loop, max(self.stages)
        annotations = {k: v for k, v in loop.annotations.items() if k not in (STAGE, ORDER, ASYNC)}
        prologue = [self.round(loop.min, t, range(t + 1), loop.extent) for t in range(last)]
        var = loop.loop_var.copy_with_name(loop.loop_var.name)
        rounds = ops.maximum(ops.subtract(loop.extent, last), 0)
        body = self.round(var, last, range(last + 1))
        rounds_run = loop.replace(loop_var=var, extent=rounds, body=body, annotations=annotations)
        none = isinstance(rounds, IntImm) and rounds.value == 0
        around = dict(buffers)
        parts = [_as_block(part, around) for part in prologue]
        parts.append(_block("", Evaluate(const(0)) if none else rounds_run, buffers))
        end = ops.add(loop.min, loop.extent)
        for t in range(last):
            ending = _as_block(self.round(end, t, range(t + 1, last + 1)), around)
            enough = ops.greater_equal(ops.add(loop.extent, t), last)  # else the prologue has been there
            if not isinstance(enough, IntImm):
                parts.append(IfThenElse(enough, ending))
            elif enough.value:
                parts.append(ending)
        return flat_seq(parts)

    def round(self, base: PrimExpr, t: int, stages: range, extent: PrimExpr | None = None) -> Stmt:
        """The statements of some stages, each for iteration base + t - stage.

        With `extent`, base is the first iteration, and a short loop may have none of that number.
        """
        out: list[Stmt] = []
        for i in self.ordered:
            statement = self.statement(i, base, t, extent) if self.stages[i] in stages else None
            if i == self.last_of(self.stages[i]) and self.stages[i] in self.asynchronous:
                statement = _attr(ASYNC_COMMIT, self.stages[i], Evaluate(const(0)) if statement is None else statement)
            if statement is not None:
                out.append(statement)
        return flat_seq(out)

    def statement(self, i: int, base: PrimExpr, t: int, extent: PrimExpr | None) -> Stmt | None:
        """One statement in a round; None in a round that is not in a short loop."""
        shift = t - self.stages[i]
        iteration = ops.add(base, shift) if shift >= 0 else ops.subtract(base, -shift)
        statement = renew_stmt(fold_in(self.statements[i], {self.loop.loop_var: iteration}))
        if self.stages[i] in self.asynchronous:
            statement = _attr(ASYNC_SCOPE, 1, statement)
        for stage, count in self.waits(i).items():
            statement = _attr(ASYNC_WAIT, stage, _attr(ASYNC_INFLIGHT, count, statement))
        inside = const(True) if extent is None else ops.less(shift, extent)
        if isinstance(inside, IntImm):
            return statement if inside.value else None
        return IfThenElse(inside, statement)

    @property
    def ordered(self) -> list[int]:
        """The statements as they stand in a round."""
        return sorted(range(len(self.statements)), key=self.order.__getitem__)

    def last_of(self, stage: int) -> int:
        """The last statement of a stage in a round."""
        return [i for i in self.ordered if self.stages[i] == stage][-1]

    def waits(self, i: int) -> dict[int, int]:
        """By stage whose copies a statement reads, how many groups are newer than the one that it reads."""
        found: dict[int, int] = {}
        for writer, access in enumerate(self.accesses):
            stage = self.stages[writer]
            if writer != i and stage in self.asynchronous and access.writes & self.accesses[i].reads:
                if stage == self.stages[i]:
                    raise InvalidValue(
                        f"in the loop over {self.loop.loop_var.name}, statement {i} reads what statement {writer} of "
                        f"the same asynchronous stage {stage} copies: let it be of a later stage"
                    )
                closed = self.order[self.last_of(stage)] < self.order[i]
                found[stage] = self.stages[i] - stage - (0 if closed else 1)
        return found


class _Inject(StmtMapper):
    def __init__(self, buffers: dict[Var, Buffer]):
        super().__init__()
        self.buffers = buffers

    def visit_Block(self, node: Block) -> Any:
        self.buffers.update((b.data, b) for b in node.alloc_buffers)
        self.buffers.update((match.buffer.data, match.buffer) for match in node.match_buffers)
        return self.generic_visit(node)

    def visit_For(self, node: For) -> Any:
        new: For = self.generic_visit(node)
        if STAGE not in new.annotations and ORDER not in new.annotations:
            return new
        if not isinstance(new.body, BlockRealize):
            return self.without_block(new)
        block = new.body.block
        if block.iter_vars or block.init is not None or block.match_buffers:
            raise InvalidValue(
                f"block {block.name_hint} in the pipelined loop over {new.loop_var.name} is not opaque: run "
                "LowerInitBlock, ConvertBlocksToOpaque and LowerMatchBuffer first"
            )
        if not (isinstance(new.body.predicate, IntImm) and new.body.predicate.value):
            raise InvalidValue(
                f"block {block.name_hint} in the pipelined loop over {new.loop_var.name} has a predicate: "
                f"{new.body.predicate}"
            )
        allocated = list(block.alloc_buffers)
        statements = self.statements(stmt_list(block.body), allocated)
        pipeline = _Pipeline(new, statements, allocated)
        own = {buffer.data: buffer for buffer in pipeline.allocated}
        body = pipeline.emit({**self.buffers, **own})
        outside = {data: buffer for data, buffer in self.buffers.items() if data not in own}
        pipelined = _block(block.name_hint, body, outside).block
        pipelined = block.replace(
            body=body, reads=pipelined.reads, writes=pipelined.writes, alloc_buffers=Array(pipeline.allocated)
        )
        return new.body.replace(block=pipelined)

    def without_block(self, loop: For) -> Stmt:
        """A pipeline whose statements stand in the loop itself."""
        allocated: list[Buffer] = []
        pipeline = _Pipeline(loop, self.statements(stmt_list(loop.body), allocated), allocated)
        if not allocated:
            return pipeline.emit(self.buffers)
        own = {buffer.data: buffer for buffer in pipeline.allocated}
        realize = _block("", pipeline.emit({**self.buffers, **own}), self.buffers)
        return realize.replace(block=realize.block.replace(alloc_buffers=Array(pipeline.allocated)))

    def statements(self, found: list[Stmt], allocated: list[Buffer]) -> list[Stmt]:
        """The statements of a pipeline, each in a block where one of them came out of a block."""
        flat = _flattened(found, allocated)
        self.buffers.update((buffer.data, buffer) for buffer in allocated)
        if len(flat) == len(found):
            return flat
        return [stmt if isinstance(stmt, BlockRealize) else _block("", stmt, self.buffers) for stmt in flat]


def _regions(stmt: Stmt, buffer: Buffer) -> tuple[list[BufferRegion], list[BufferRegion]]:
    """The regions of a buffer that a statement reads, and those that it writes."""
    block = (stmt if isinstance(stmt, BlockRealize) else _block("", stmt, {buffer.data: buffer})).block
    reads, writes = ([part for part in parts if part.buffer is buffer] for parts in (block.reads, block.writes))
    return reads, writes


def _may_overlap(a: BufferRegion, b: BufferRegion, analyzer: Analyzer) -> bool:
    """False where two regions are known to have no element in common."""
    for x, y in zip(a.region, b.region, strict=True):
        if analyzer.can_prove(x.min + x.extent <= y.min) or analyzer.can_prove(y.min + y.extent <= x.min):
            return False
    return True


def _as_block(stmt: Stmt, buffers: dict[Var, Buffer]) -> Stmt:
    """Several statements as a block; one statement as it is."""
    return _block("", stmt, buffers) if isinstance(stmt, SeqStmt) else stmt


def _flattened(stmts: list[Stmt], allocated: list[Buffer]) -> list[Stmt]:
    """The statements of a pipeline: those of a block among them count one by one, and what it allocates is added."""
    out: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, BlockRealize) and isinstance(stmt.block.body, SeqStmt):
            block, always = stmt.block, isinstance(stmt.predicate, IntImm) and stmt.predicate.value
            if always and not block.iter_vars and not block.match_buffers and block.init is None:
                allocated.extend(block.alloc_buffers)
                out += stmt_list(block.body)
                continue
        out.append(stmt)
    return out


def _attr(key: str, value: int, body: Stmt) -> AttrStmt:
    return AttrStmt(const(0), key, const(value), body)


def _block(name: str, body: Stmt, buffers: dict[Var, Buffer]) -> BlockRealize:
    """A block of a statement, with the regions of some buffers that it accesses."""
    block = Block((), (), (), name, body)
    reads, writes = get_block_read_write_region(block, buffers)
    return BlockRealize((), True, block.replace(reads=reads, writes=writes))
