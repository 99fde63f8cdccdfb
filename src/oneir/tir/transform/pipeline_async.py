"""Groups of asynchronous copies in a software pipeline, and what waits for them.

The statements of an asynchronous stage close groups of copies; those that follow one another without a statement
between that reads what they copy close one together. A statement that reads what a stage copies waits until only so
many groups are under way as are newer than the one that it reads: the iteration that the stage copies for last (its
head), less the iteration of the reader. Where that is not known, it waits for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import Call, PrimExpr, Var, const
from ...ir.operators import same_expr
from ..buffer import Buffer
from ..stmt import AttrStmt, Block, SeqStmt, Stmt
from .analyzed import IF_THEN_ELSE

ASYNC_SCOPE = "async_scope"
ASYNC_COMMIT = "async_commit_queue_scope"
ASYNC_WAIT = "async_wait_queue_scope"
ASYNC_INFLIGHT = "async_wait_inflight_count"


@dataclass(eq=False)
class Component:
    """A statement of the pipeline's loop; it runs `stage` rounds after those of stage 0."""

    block: Block
    stage: int
    order: int
    asynchronous: bool
    reads: set[Buffer] = field(default_factory=set[Buffer])
    writes: set[Buffer] = field(default_factory=set[Buffer])
    pointers: set[Var] = field(default_factory=set[Var])


@dataclass(eq=False)
class Copies:
    """What the statements of one asynchronous stage copy."""

    written: set[Buffer] = field(default_factory=set[Buffer])
    groups: dict[Buffer, int] = field(default_factory=dict[Buffer, int])
    """The group, of those that one round closes, in which a buffer is copied."""
    members: dict[int, int] = field(default_factory=dict[int, int])
    """The group that a statement belongs to, by the statement's order."""
    head: PrimExpr | None = field(default_factory=lambda: const(-1, "int32"))
    """The last iteration whose copies have begun; None where that is not known."""


def find_copies(components: Sequence[Component]) -> dict[int, Copies]:
    """The asynchronous stages of a pipeline, whose statements are given in order."""
    found: dict[int, Copies] = {}
    for component in components:
        if component.asynchronous:
            found.setdefault(component.stage, Copies()).written |= component.writes
    read: set[int] = set()
    count: dict[int, int] = {}
    for component in components:
        stage = component.stage
        if component.asynchronous:
            copies = found[stage]
            if stage not in count or stage in read or copies.written & component.reads:
                count[stage] = count.get(stage, 0) + 1
            read.discard(stage)
            copies.members[component.order] = count[stage] - 1
            copies.groups.update(dict.fromkeys(component.writes, count[stage] - 1))
        read.update(s for s, copies in found.items() if s <= stage and copies.written & component.reads)
    return found


@dataclass(eq=False)
class Emitted:
    """A statement of the pipeline in one of its parts: where it runs, and for which iteration."""

    component: Component
    block: Block
    predicate: PrimExpr
    iteration: PrimExpr


@dataclass(eq=False)
class _Local:
    """What one part of the pipeline copies in a stage."""

    head: PrimExpr | None = None
    predicate: PrimExpr | None = None
    seen: set[Buffer] = field(default_factory=set[Buffer])
    waits: tuple[int, PrimExpr] | None = None


class Waits:
    """Puts the waits and groups of copies into one part of a pipeline: the rounds before, in, or after its loop."""

    def __init__(self, copies: Mapping[int, Copies], analyzer: Analyzer):
        self.copies, self.analyzer = copies, analyzer
        self.locals = {stage: _Local() for stage in copies}

    def place(self, parts: Sequence[Emitted], extent: PrimExpr) -> list[tuple[PrimExpr, Stmt, bool]]:
        """For each statement of a part its predicate, its body, and whether that closes a group; `extent` is how many
        rounds the part has.
        """
        for part in parts:
            if part.component.asynchronous:
                self._produce(part)
        for i, part in enumerate(parts):
            if part.component.asynchronous:
                self.locals[part.component.stage].seen |= part.component.writes
            self._wait(i, part)
        bodies = [part.block.body for part in parts]
        for i, part in enumerate(parts):
            if part.component.asynchronous:
                bodies[i] = _attr(ASYNC_SCOPE, const(1), bodies[i])
        for stage, local in self.locals.items():
            if local.waits is not None:
                at, count = local.waits
                if local.predicate is not None and not self.analyzer.can_prove(local.predicate):
                    count = Call("int32", IF_THEN_ELSE, [local.predicate, count, const(0)])
                bodies[at] = _attr(ASYNC_WAIT, const(stage), _attr(ASYNC_INFLIGHT, count, bodies[at]))
        placed = self._grouped(parts, bodies)
        self._advance(extent)
        return placed

    def _produce(self, part: Emitted) -> None:
        local = self.locals[part.component.stage]
        local.head = part.iteration
        known = local.predicate
        if known is None or self.analyzer.can_prove(known):
            local.predicate = part.predicate
        elif not same_expr(known, part.predicate):
            local.predicate = self.analyzer.simplify(ops.logical_and(known, part.predicate))

    def _wait(self, i: int, part: Emitted) -> None:
        for stage, copies in self.copies.items():
            read = copies.written & part.component.reads
            if stage > part.component.stage or not read:
                continue
            local = self.locals[stage]
            heads: list[PrimExpr | None] = [copies.head]
            if local.head is not None:
                # By group, the last iteration that is copied when the reader comes.
                newest = {copies.groups[b]: 0 if b in local.seen else 1 for b in read if b in copies.groups}
                heads = [ops.subtract(local.head, behind) for behind in newest.values()]
            count: PrimExpr = const(0)
            for head in heads:
                if head is None or not self.analyzer.can_prove(ops.greater_equal(head, 0)):
                    count = const(0)
                    break
                count = ops.add(count, self.analyzer.simplify(ops.subtract(head, part.iteration)))
            count = ops.cast("int32", count)
            if local.waits is None:
                local.waits = (i, count)
            elif self.analyzer.can_prove(ops.less(count, local.waits[1])):
                local.waits = (local.waits[0], count)

    def _grouped(self, parts: Sequence[Emitted], bodies: Sequence[Stmt]) -> list[tuple[PrimExpr, Stmt, bool]]:
        placed: list[tuple[PrimExpr, Stmt, bool]] = []
        last: tuple[int, int] | None = None
        group: list[Stmt] = []
        for part, body in zip(parts, bodies, strict=True):
            component = part.component
            if not component.asynchronous:
                placed.append((part.predicate, body, False))
                last = None
                continue
            own = (component.stage, self.copies[component.stage].members[component.order])
            group = [*group, body] if own == last else [body]
            committed = _attr(ASYNC_COMMIT, const(own[0]), SeqStmt(group) if len(group) > 1 else body)
            placed[len(placed) - (own == last) :] = [(part.predicate, committed, True)]
            last = own
        return placed

    def _advance(self, extent: PrimExpr) -> None:
        """Moves the heads to where they are after a part."""
        for stage, local in self.locals.items():
            copies = self.copies[stage]
            if local.head is None:
                continue
            known = local.predicate is not None and self.analyzer.can_prove(local.predicate)
            copies.head = ops.add(copies.head, extent) if known and copies.head is not None else None


def _attr(key: str, value: PrimExpr, body: Stmt) -> AttrStmt:
    return AttrStmt(const(0), key, value, body)
