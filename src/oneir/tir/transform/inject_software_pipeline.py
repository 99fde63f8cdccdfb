"""InjectSoftwarePipeline: the statements of a loop's body run for different iterations at the same time.

    for i in T.serial(16, annotations={"software_pipeline_stage": [0, 2], "software_pipeline_order": [0, 1]}):
        load(i)
        use(i)

becomes

    for i in T.unroll(2):      # prologue
        load(i)
    for i in range(14):
        load(i + 2)
        use(i)
    for i in T.unroll(2):      # epilogue
        use(i + 14)

A statement of stage s runs s rounds after those of stage 0; "software_pipeline_order" says in which order they stand. A
buffer that the body's block allocates, written in one stage and read in a later one, gets a copy (a version) for each
iteration in which it is alive at the same time; one that the annotation "double_buffer_scope" of a block names has at
least two. What short loops lack of the rounds is left out by the predicates of blocks.

"software_pipeline_async_stages" names stages whose copies may run while the threads compute: their statements stand in
the attribute "async_scope", each round closes groups of copies ("async_commit_queue_scope"), and a statement that
reads what is copied waits ("async_wait_queue_scope") until only newer groups are under way (see `pipeline_async`).
Passes that know no such copies take these attributes for their bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Call, IntImm, PrimExpr, Range, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import InvalidValue
from ..analysis.block_access_region import get_block_read_write_region
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import (
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
    stmt_list,
)
from ..stmt_functor import StmtMapper, renew_stmt, substitute
from .inject_double_buffer import SCOPE as DOUBLE_BUFFER
from .pass_base import PrimFuncPass
from .pipeline_async import Component, Emitted, Waits, find_copies
from .unroll_loop import fold_in

STAGE = "software_pipeline_stage"
ORDER = "software_pipeline_order"
ASYNC = "software_pipeline_async_stages"
_ACCESS_PTR = ops.as_op("tir.tvm_access_ptr")


class InjectSoftwarePipeline(PrimFuncPass):
    """Pipelines loops with the annotations "software_pipeline_stage" and "software_pipeline_order".

    With `expand` true the rounds before and after a loop are written out, so that the counts of waits are constants.

    Raises `InvalidValue` for annotations that do not fit the loop's statements, or contradict their dependences, and
    for blocks that are not opaque.
    """

    expand: bool = False

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        buffers = {b.data: b for b in func.buffer_map.values()}
        return func.with_body(_Inject(buffers, self.expand)(func.body))


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

    def visit_Call(self, node: Call) -> None:
        if node.op is _ACCESS_PTR:  # the regions of blocks say what it accesses
            for arg in node.args[2:]:
                self.visit(arg)
        else:
            self.generic_visit(node)

    def visit_Var(self, var: Var) -> None:
        self.pointers.add(var)

    def visit_Buffer(self, buffer: Buffer) -> None:
        pass


class _Version(Mapper):
    """Redirects accesses to a buffer to the version of it that belongs to the iteration.

    With `whole` true, regions of blocks name all versions.
    """

    def __init__(self, versions: dict[Buffer, int], iteration: PrimExpr, whole: bool):
        super().__init__()
        self.versions, self.iteration, self.whole = versions, iteration, whole
        self.buffers: dict[Buffer, Buffer] = {}
        for buffer, count in versions.items():
            strides: Any = buffer.strides
            if strides:
                strides = Array([ops.multiply(strides[0], buffer.shape[0]), *strides])
            shape = Array([ops.cast(buffer.shape[0].dtype, count), *buffer.shape])
            self.buffers[buffer] = buffer.replace(shape=shape, strides=strides)
        self.by_data = {buffer.data: buffer for buffer in versions}

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

    def visit_Call(self, node: Call) -> Any:
        new: Call = self.generic_visit(node)
        data = node.args[1] if node.op is _ACCESS_PTR else None
        buffer = self.by_data.get(data) if isinstance(data, Var) else None
        if buffer is None:
            return new
        size: Any = self.buffers[buffer].strides[0] if buffer.strides else const(1, buffer.shape[0].dtype)
        for extent in () if buffer.strides else buffer.shape:
            size = ops.multiply(size, extent)
        begin = ops.add(new.args[2], ops.multiply(self.version(buffer), size))
        return new.replace(args=Array(begin if i == 2 else arg for i, arg in enumerate(new.args)))

    def visit_BufferRegion(self, node: BufferRegion) -> Any:
        buffer = node.buffer
        if buffer not in self.buffers:
            return self.generic_visit(node)
        version = Range(self.versions[buffer]) if self.whole else Range.from_min_extent(self.version(buffer), 1)
        return BufferRegion(self.buffers[buffer], Array([version, *[self.visit(part) for part in node.region]]))


class _Pipeline:
    """One loop: its statements with their stages, in the order in which they will stand.

    `buffers` are those around the loop, by their pointers; the pipeline adds those that it allocates.
    """

    def __init__(
        self,
        loop: For,
        blocks: Sequence[Block],
        allocated: Sequence[Buffer],
        doubled: set[Buffer],
        buffers: dict[Var, Buffer],
        expand: bool,
    ):
        self.loop, self.doubled, self.expand = loop, doubled, expand
        stages, order = self.annotation(STAGE, len(blocks)), self.annotation(ORDER, len(blocks))
        if sorted(order) != list(range(len(blocks))):
            raise InvalidValue(
                f"{ORDER} of the loop over {loop.loop_var.name} must be a permutation of 0 to {len(blocks) - 1}, "
                f"found {order}"
            )
        if min(stages) < 0:
            raise InvalidValue(f"{STAGE} of the loop over {loop.loop_var.name} has a negative stage: {stages}")
        asynchronous = {int(stage) for stage in loop.annotations.get(ASYNC, ())}
        self.components: list[Component] = []
        for block, stage, place in zip(blocks, stages, order, strict=True):
            used = _Accesses()
            used.visit(block)
            self.components.append(
                Component(block, stage, place, stage in asynchronous, used.reads, used.writes, used.pointers)
            )
        self.last = max(stages)
        self.check_dependences()
        versions = {buffer: self.versions_of(buffer) for buffer in allocated}
        versions = {buffer: count for buffer, count in versions.items() if count > 1}
        self.version = _Version(versions, ops.subtract(loop.loop_var, loop.min), self.last != 1)
        self.check_pointers()
        self.allocated = [self.version.buffers.get(buffer, buffer) for buffer in allocated]
        self.buffers = {**buffers, **{buffer.data: buffer for buffer in self.allocated}}
        self.ordered = sorted(self.components, key=lambda component: component.order)
        self.copies = find_copies(self.ordered)
        self.analyzer = Analyzer()

    def annotation(self, key: str, count: int) -> list[int]:
        values = [int(value) for value in self.loop.annotations.get(key, ())]
        if len(values) != count:
            raise InvalidValue(
                f"the body of the loop over {self.loop.loop_var.name} has {count} statements, "
                f"but {key} has {len(values)} entries"
            )
        return values

    def check_dependences(self) -> None:
        for reader, reading in enumerate(self.components):
            for writer, writing in enumerate(self.components[:reader]):
                shared = writing.writes & reading.reads
                if shared and (writing.stage, writing.order) > (reading.stage, reading.order):
                    names = ", ".join(sorted(buffer.name for buffer in shared))
                    stages = [component.stage for component in self.components]
                    order = [component.order for component in self.components]
                    raise InvalidValue(
                        f"in the loop over {self.loop.loop_var.name}, statement {reader} reads {names} before "
                        f"statement {writer} writes it: stages {stages} and order {order} contradict that"
                    )

    def check_pointers(self) -> None:
        pointers = {var for component in self.components for var in component.pointers}
        for buffer in self.version.buffers:
            if buffer.data in pointers:
                raise InvalidValue(
                    f"{buffer.name} needs several versions in the pipeline, but is accessed through its pointer"
                )

    def versions_of(self, buffer: Buffer) -> int:
        """How many iterations' contents of a buffer are alive at once."""
        writers = [component for component in self.components if buffer in component.writes]
        readers = [component for component in self.components if buffer in component.reads]
        count = 1
        if writers and readers:
            count = max(r.stage for r in readers) - min(w.stage for w in writers) + 1
            # Where every reader of a later stage stands before the writer, it is done when the writer comes.
            meets = any(
                w.order < r.order and w.stage < r.stage and self.overlap(buffer, w.block, r.block)
                for w in writers
                for r in readers
            )
            count = count if meets or count < 2 else count - 1
        return 2 if count == 1 and writers and buffer in self.doubled else count

    def overlap(self, buffer: Buffer, writer: Block, reader: Block) -> bool:
        """Whether one statement may read what another one writes, in whichever iterations they are."""
        later = {self.loop.loop_var: self.loop.loop_var.copy_with_name("later")}
        span = Range.from_min_extent(self.loop.min, self.loop.extent)
        written = [substitute(region, later) for region in writer.writes if region.buffer is buffer]
        read = [region for region in reader.reads if region.buffer is buffer]
        analyzer = Analyzer()
        for var in (self.loop.loop_var, later[self.loop.loop_var]):
            analyzer.bind(var, span)
        return any(_may_overlap(a, b, analyzer) for a in written for b in read)

    def parts(self) -> list[Stmt]:
        """The rounds before the loop, those of the loop, and those after it."""
        loop, last = self.loop, self.last
        first, end = loop.min, ops.add(loop.min, loop.extent)
        start, after, lowest = ops.add(first, last), end, None
        if last > 1 and not self.analyzer.can_prove(ops.greater_equal(loop.extent, last)):
            # A short loop ends in the rounds before; those after it begin behind them.
            if isinstance(end, IntImm):
                after = ops.maximum(end, start)
            else:
                lowest = start
        return [
            self.part(first, start, True),
            self.part(start, end, False),
            self.part(after, ops.add(end, last), True, lowest),
        ]

    def part(self, start: PrimExpr, end: PrimExpr, around: bool, lowest: PrimExpr | None = None) -> BlockRealize:
        """The rounds from `start` to `end`, in a loop if there are several; the statements of stage s run in round r
        for iteration r - s, if that is one of the loop's and r is at least `lowest`.
        """
        loop, analyzer = self.loop, self.analyzer
        extent = analyzer.simplify(ops.subtract(end, start))
        if analyzer.can_prove(ops.less_equal(extent, 0)):
            return self.block(Evaluate(const(0)))
        single = analyzer.can_prove_equal(extent, const(1, extent.dtype))
        var = loop.loop_var.copy_with_name(loop.loop_var.name)
        moved: dict[Var, PrimExpr] = {}
        counted = Analyzer()
        if not single:
            analyzer.bind(var, Range.from_min_extent(start, extent))
            counted.bind(var, Range.from_min_extent(loop.min, extent))
            moved = {var: ops.add(var, ops.subtract(start, loop.min))}
        at: PrimExpr = start if single else var
        emitted: list[Emitted] = []
        for component in self.ordered:
            iteration = ops.subtract(at, component.stage)
            inside = ops.less(iteration, ops.add(loop.min, loop.extent))
            if around:
                inside = ops.logical_and(analyzer.simplify(ops.less_equal(loop.min, iteration)), inside)
            if lowest is not None:
                inside = ops.logical_and(inside, ops.greater_equal(at, lowest))
            if analyzer.can_prove(ops.logical_not(inside)):
                continue
            inside = substitute(inside, moved)
            iteration = iteration if single else ops.add(iteration, ops.subtract(start, loop.min))
            block = self.version(component.block)
            block = renew_stmt(substitute(block, {loop.loop_var: iteration}))
            emitted.append(Emitted(component, block, inside, iteration))
        placed = Waits(self.copies, counted).place(emitted, extent)
        if not placed:
            return self.block(Evaluate(const(0)))
        stmts: list[Stmt] = []
        blocks = iter(emitted)
        for predicate, body, committed in placed:
            if committed:
                stmts.append(BlockRealize((), predicate, self.block(body).block))
            else:
                block = next(part.block for part in blocks if not part.component.asynchronous)
                stmts.append(BlockRealize((), predicate, block.replace(body=body)))
        rounds = flat_seq(stmts)
        if around and self.expand and isinstance(extent, IntImm):
            rounds = rounds if single else self.written_out(stmts, var, extent.value)
        elif not single:
            annotations = {k: v for k, v in loop.annotations.items() if k not in (STAGE, ORDER, ASYNC)}
            kind = ForKind.UNROLLED if around else loop.kind
            rounds = loop.replace(loop_var=var, extent=extent, kind=kind, body=rounds, annotations=annotations)
        return self.block(rounds)

    def written_out(self, stmts: Sequence[Stmt], var: Var, extent: int) -> Stmt:
        """The rounds of a loop one after the other, without what is known not to run."""
        found: list[Stmt] = []
        for i in range(extent):
            for stmt in stmts:
                copy = fold_in(renew_stmt(stmt), {var: ops.add(self.loop.min, i)})
                predicate = self.analyzer.simplify(copy.predicate)
                if not isinstance(predicate, IntImm) or predicate.value:
                    found.append(copy.replace(predicate=predicate))
        return flat_seq(found)

    def block(self, stmt: Stmt) -> BlockRealize:
        return _as_block(stmt, self.buffers)


class _Inject(StmtMapper):
    def __init__(self, buffers: dict[Var, Buffer], expand: bool):
        super().__init__()
        self.buffers, self.expand = buffers, expand
        self.doubled: set[Buffer] = set()

    def visit_Block(self, node: Block) -> Any:
        self.buffers.update((b.data, b) for b in node.alloc_buffers)
        self.buffers.update((match.buffer.data, match.buffer) for match in node.match_buffers)
        doubled = node.annotations.get(DOUBLE_BUFFER)
        if doubled is not None:
            index = int(doubled)
            if not 0 <= index < len(node.writes):
                raise InvalidValue(
                    f"{DOUBLE_BUFFER} of block {node.name_hint} is the number of one of its {len(node.writes)} written "
                    f"regions; found {index}"
                )
            self.doubled.add(node.writes[index].buffer)
        return self.generic_visit(node)

    def visit_For(self, node: For) -> Any:
        new: For = self.generic_visit(node)
        if STAGE not in new.annotations and ORDER not in new.annotations:
            return new
        name, body, allocated = "", new.body, list[Buffer]()
        if isinstance(new.body, BlockRealize):
            block = new.body.block
            name, body, allocated = block.name_hint, block.body, list(block.alloc_buffers)
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
        found = _flattened(stmt_list(body), allocated)
        self.buffers.update((buffer.data, buffer) for buffer in allocated)
        blocks = [_as_block(stmt, self.buffers).block for stmt in found]
        pipeline = _Pipeline(new, blocks, allocated, self.doubled, self.buffers, self.expand)
        outside = {data: buffer for data, buffer in self.buffers.items() if buffer not in allocated}
        realize = _as_block(SeqStmt(pipeline.parts()), outside, name)
        return realize.replace(block=realize.block.replace(alloc_buffers=Array(pipeline.allocated)))


def _may_overlap(a: BufferRegion, b: BufferRegion, analyzer: Analyzer) -> bool:
    """False where two regions are known to have no element in common."""
    for x, y in zip(a.region, b.region, strict=True):
        if analyzer.can_prove(x.min + x.extent <= y.min) or analyzer.can_prove(y.min + y.extent <= x.min):
            return False
    return True


def _as_block(stmt: Stmt, buffers: dict[Var, Buffer], name: str = "") -> BlockRealize:
    """A statement as a block, with the regions of some buffers that it accesses; a block as it is."""
    if isinstance(stmt, BlockRealize) and isinstance(stmt.predicate, IntImm) and stmt.predicate.value:
        return stmt
    block = Block((), (), (), name, stmt)
    reads, writes = get_block_read_write_region(block, buffers)
    return BlockRealize((), True, block.replace(reads=reads, writes=writes))


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
