"""The program of a schedule, and handles of its blocks and loops that survive its changes.

    state = ScheduleState(mod)
    state.replace(loop_sref, new_loop)  # the blocks below keep their handles

Nodes are immutable: a change makes new nodes for the statements on the path from the changed one to the root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...runtime.error import TypeMismatch, WellFormedError
from ...runtime.object import Object
from ..block_scope import BlockScope, StmtSRef
from ..function import PrimFunc
from ..stmt import (
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)
from .cover import covers_its_reads
from .domain import is_affine_binding


class ScheduleDebugMask(IntEnum):
    """What a schedule checks after each change; any of it checks all handles."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


@dataclass(slots=True, eq=False)
class BlockInfo:
    """The properties of a block that a schedule keeps.

    `affine_binding`: whether the values of its variables are independent digits of loops. `region_cover`: whether
    its producers write all that it reads. `scope` is computed on demand.
    """

    affine_binding: bool
    region_cover: bool = True
    scope: BlockScope | None = None


@dataclass(frozen=True, slots=True)
class CachedFlags:
    """The properties of a block that conditions of primitives ask for."""

    affine_binding: bool
    region_cover: bool
    stage_pipeline: bool


class ScheduleState(Object):
    """The program, a handle for each of its blocks and loops, and what is known of the blocks.

    `debug_mask` other than 0 checks after each change that all of this is consistent. Without `enable_check`, some
    conditions of primitives are taken to hold.
    """

    def __init__(self, mod: PrimFunc | IRModule, *, debug_mask: str | int = "none", enable_check: bool = True):
        match mod:
            case PrimFunc():
                mod = IRModule({"main": mod})
            case IRModule():
                pass
            case _:
                raise TypeMismatch(f"a schedule is made of a PrimFunc or an IRModule, found {type(mod).__name__}")
        masks = {"none": 0, "all": -1}
        self.debug_mask: int = masks.get(debug_mask, 0) if isinstance(debug_mask, str) else int(debug_mask)
        self.enable_check = enable_check
        self.stmt2ref: dict[Stmt, StmtSRef] = {}
        self._block_info: dict[StmtSRef, BlockInfo] = {}
        self._unexamined: list[StmtSRef] = []
        self._mod = mod
        self.roots: dict[StmtSRef, GlobalVar] = {}
        self._changed: set[StmtSRef] = set()
        for var, func in mod.functions.items():
            if isinstance(func, PrimFunc) and isinstance(func.body, BlockRealize):
                self._enter_function(var, func)

    def _enter_function(self, var: GlobalVar, func: PrimFunc) -> None:
        added, _ = self._walk_new(func.body)
        for stmt, parent in added:
            if stmt in self.stmt2ref:
                raise WellFormedError(f"one statement object stands in two places of the function {var.name_hint}")
            self.stmt2ref[stmt] = StmtSRef(stmt, None if parent is None else self.stmt2ref[parent])
        body: Any = func.body
        self.roots[self.stmt2ref[body.block]] = var
        srefs = [self.stmt2ref[stmt] for stmt, _ in added if isinstance(stmt, Block)]
        self._block_info.update((sref, BlockInfo(True)) for sref in srefs)
        self._unexamined += srefs

    @property
    def block_info(self) -> dict[StmtSRef, BlockInfo]:
        """What is known of each block.

        The blocks that a function came with are examined when somebody asks, and before the first change: whoever only
        looks whether a function is for him, as schedule rules do one after the other, needs no proofs.
        """
        srefs, self._unexamined = self._unexamined, []
        for sref in srefs:
            self._block_info[sref].affine_binding = is_affine_binding(self, sref)
        for sref in srefs:
            for consumer in self.child_blocks(sref):
                self._block_info[consumer].region_cover = covers_its_reads(self, sref, consumer)
        return self._block_info

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        if self._changed:
            functions = dict(self._mod.functions)
            for root in self._changed:
                var = self.roots[root]
                func: Any = functions[var]
                functions[var] = func.replace(body=func.body.replace(block=root.stmt))
            self._mod = self._mod.replace(functions=functions)
            self._changed.clear()
        return self._mod

    def update_function(self, var: GlobalVar, func: PrimFunc) -> None:
        """Replaces a function without changing its root block: its parameters, buffers or attributes."""
        self._mod = self.mod.replace(functions={**self.mod.functions, var: func})

    # -- queries --

    def get_sref(self, stmt: Block | For) -> StmtSRef | None:
        """The handle of a block or loop that is part of the program."""
        return self.stmt2ref.get(stmt)

    def root_of(self, sref: StmtSRef) -> StmtSRef:
        """The root block of the function that a statement stands in."""
        while sref.parent is not None:
            sref = sref.parent
        return sref

    def function_of(self, sref: StmtSRef) -> tuple[GlobalVar, PrimFunc]:
        """The function that a statement stands in, and its name."""
        var = self.roots[self.root_of(sref)]
        func: Any = self.mod.functions[var]
        return var, func

    def root_block(self, var: GlobalVar) -> StmtSRef:
        """The root block of a function; raises `WellFormedError` if it has none."""
        for root, name in self.roots.items():
            if name is var or name.name_hint == var.name_hint:
                return root
        raise WellFormedError(f"the function {var.name_hint} has no root block: it cannot be scheduled")

    def realize_of(self, sref: StmtSRef) -> BlockRealize:
        """The realization of a block: the values of its variables and its predicate."""
        if sref.parent is None:
            body: Any = self.function_of(sref)[1].body
            return body
        for stmt in direct_statements(sref.parent.stmt):
            if isinstance(stmt, BlockRealize) and stmt.block is sref.stmt:
                return stmt
        raise AssertionError("a block is not where its handle says")

    def child_blocks(self, sref: StmtSRef) -> list[StmtSRef]:
        """The blocks below a block or a loop, without those that are inside of other blocks, in order."""
        found: list[StmtSRef] = []
        pending = list(reversed(children(sref.stmt)))
        while pending:
            stmt = pending.pop()
            if isinstance(stmt, Block):
                found.append(self.stmt2ref[stmt])
            else:
                pending += reversed(children(stmt))
        return found

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """The dependencies among the blocks directly below a block."""
        info = self._block_info[block_sref]
        if info.scope is None:
            info.scope = BlockScope(self.child_blocks(block_sref))
        return info.scope

    def is_stage_pipeline(self, block_sref: StmtSRef) -> bool:
        """Whether every block directly below a block reads only what was written before."""
        block_info = self.block_info
        return all(block_info[child].region_cover for child in self.get_block_scope(block_sref).blocks)

    def _get_cached_flags(self, block_sref: StmtSRef) -> CachedFlags:
        info = self.block_info[block_sref]
        return CachedFlags(info.affine_binding, info.region_cover, self.is_stage_pipeline(block_sref))

    # -- changes --

    def replace(
        self, src_sref: StmtSRef, tgt_stmt: Stmt, block_sref_reuse: Mapping[Block, Block] | None = None
    ) -> None:
        """Replaces a block or a loop by a statement.

        Loops keep their handles if their variables are the same, blocks that are in `block_sref_reuse` (old to new)
        keep theirs, and so does everything that is identical. The cost is linear in the number of new and removed
        statements, plus, for each enclosing statement, those beside it.
        """
        old_stmt, parent = src_sref.stmt, src_sref.parent
        if old_stmt is tgt_stmt:
            return
        block_info = self.block_info
        added, new_order = self._walk_new(tgt_stmt)
        intact = {stmt for stmt in new_order if stmt in self.stmt2ref}
        removed, old_order = self._walk_old(old_stmt, intact)
        reused = self._reuse(removed, {new: old for old, new in (block_sref_reuse or {}).items()}, added)
        for stmt in removed:
            del self.stmt2ref[stmt]
        entered: list[StmtSRef] = []
        for stmt, above in added:
            enclosing = parent if above is None else self.stmt2ref[above]
            if stmt in intact:
                self.stmt2ref[stmt].parent = enclosing
                continue
            sref = reused.get(stmt)
            if sref is None:
                sref = StmtSRef(stmt)
                if isinstance(stmt, Block):
                    entered.append(sref)
            sref.stmt, sref.parent = stmt, enclosing
            self.stmt2ref[stmt] = sref
        kept = set(reused.values())
        for sref in removed.values():
            if sref not in kept:
                sref.stmt = sref.parent = None
                block_info.pop(sref, None)
        self._replace_above(parent, old_stmt, tgt_stmt)
        for sref in entered:
            block_info[sref] = BlockInfo(True)
        for sref in entered:
            block_info[sref].affine_binding = is_affine_binding(self, sref)
        for stmt, sref in reused.items():
            if isinstance(stmt, Block):
                block_info[sref].scope = None
        if parent is not None and (new_order != old_order or reused):
            block_info[self.scope_of(parent)].scope = None
        if self.debug_mask:
            verify(self)

    def replace_realize(
        self, block_sref: StmtSRef, realize: BlockRealize, block_sref_reuse: Mapping[Block, Block] | None = None
    ) -> None:
        """Replaces a block and the values of its variables; the new block keeps the handle."""
        reuse = {**(block_sref_reuse or {}), block_sref.stmt: realize.block}
        if block_sref.parent is not None:
            self.replace(block_sref, realize, reuse)
            return
        var, func = self.function_of(block_sref)
        self.replace(block_sref, realize.block, reuse)
        self.update_function(var, func.replace(body=realize))

    def scope_of(self, sref: StmtSRef) -> StmtSRef:
        """The nearest block that is the statement itself or around it."""
        while not isinstance(sref.stmt, Block):
            sref = sref.parent
        return sref

    def _walk_new(self, stmt: Stmt) -> tuple[list[tuple[Stmt, Stmt | None]], list[Stmt]]:
        """The blocks and loops from a statement down to those that are known, each with the one around it; and the
        blocks and known statements among them.
        """
        added: list[tuple[Stmt, Stmt | None]] = []
        order: list[Stmt] = []
        pending: list[tuple[Stmt, Stmt | None]] = [(stmt, None)]
        while pending:
            stmt, above = pending.pop()
            if isinstance(stmt, (Block, For)):
                added.append((stmt, above))
                known = stmt in self.stmt2ref
                if known or isinstance(stmt, Block):
                    order.append(stmt)
                if known:
                    continue
                above = stmt
            pending += [(child, above) for child in reversed(children(stmt))]
        return added, order

    def _walk_old(self, stmt: Stmt, intact: set[Stmt]) -> tuple[dict[Stmt, StmtSRef], list[Stmt]]:
        removed: dict[Stmt, StmtSRef] = {}
        order: list[Stmt] = []
        pending = [stmt]
        while pending:
            stmt = pending.pop()
            if stmt in intact:
                order.append(stmt)
                continue
            if isinstance(stmt, (Block, For)):
                removed[stmt] = self.stmt2ref[stmt]
                if isinstance(stmt, Block):
                    order.append(stmt)
            pending += reversed(children(stmt))
        return removed, order

    def _reuse(
        self, removed: Mapping[Stmt, StmtSRef], olds: Mapping[Block, Block], added: list[tuple[Stmt, Stmt | None]]
    ) -> dict[Stmt, StmtSRef]:
        """The handles of old statements for those new ones that take their places."""
        loops = {stmt.loop_var: sref for stmt, sref in removed.items() if isinstance(stmt, For)}
        reused: dict[Stmt, StmtSRef] = {}
        for stmt, _ in added:
            if isinstance(stmt, For):
                sref = loops.pop(stmt.loop_var, None)
            else:
                assert isinstance(stmt, Block)
                old = olds.get(stmt)
                sref = None if old is None else removed.get(old)
            if sref is not None and stmt not in self.stmt2ref:
                reused[stmt] = sref
        return reused

    def _replace_above(self, parent: StmtSRef | None, old: Stmt, new: Stmt) -> None:
        """Makes new nodes for the statements around a changed one."""
        above = parent
        while above is not None:
            stmt = above.stmt
            changed = replace_child(stmt, old, new)
            del self.stmt2ref[stmt]
            self.stmt2ref[changed] = above
            above.stmt = changed
            old, new, above = stmt, changed, above.parent
        self._changed.add(self.stmt2ref[new] if parent is None else self.root_of(parent))

    def duplicate(self) -> tuple[ScheduleState, dict[StmtSRef, StmtSRef]]:
        """A state of the same program with handles of its own, and the new handle for each old one."""
        srefs = {sref: StmtSRef(stmt) for stmt, sref in self.stmt2ref.items()}
        for old, new in srefs.items():
            new.parent = None if old.parent is None else srefs[old.parent]
        other = object.__new__(ScheduleState)
        other.debug_mask, other.enable_check = self.debug_mask, self.enable_check
        other.stmt2ref = {stmt: srefs[sref] for stmt, sref in self.stmt2ref.items()}
        other._block_info = {
            srefs[sref]: BlockInfo(info.affine_binding, info.region_cover) for sref, info in self._block_info.items()
        }
        other._unexamined = [srefs[sref] for sref in self._unexamined]
        other._mod = self.mod
        other.roots = {srefs[root]: var for root, var in self.roots.items()}
        other._changed = set()
        return other, srefs


def children(stmt: Stmt) -> Sequence[Stmt]:
    """The statements that a statement holds; the init of a block counts as part of it and is left out."""
    if isinstance(stmt, (For, Block)):  # which is what most of them are
        return (stmt.body,)
    if isinstance(stmt, SeqStmt):
        return tuple(stmt.seq)
    if isinstance(stmt, BlockRealize):
        return (stmt.block,)
    if isinstance(stmt, IfThenElse):
        return (stmt.then_case,) if stmt.else_case is None else (stmt.then_case, stmt.else_case)
    if isinstance(stmt, (BufferStore, Evaluate)):
        return ()
    body: Any = stmt
    return (body.body,)


def direct_statements(stmt: Stmt) -> Iterator[Stmt]:
    """The statements below a block or a loop down to, and with, the next blocks (their realizations) and loops."""
    pending = list(reversed(children(stmt)))
    while pending:
        found = pending.pop()
        yield found
        if not isinstance(found, (For, BlockRealize)):
            pending += reversed(children(found))


def replace_child(stmt: Any, old: Stmt, new: Stmt) -> Any:
    """A block or loop with a statement below it replaced; a block may be replaced as such or with its realization."""

    def visit(found: Any) -> Any:
        if found is old:
            return new
        if isinstance(found, BlockRealize):
            if found.block is old:
                return found.replace(block=new) if isinstance(new, Block) else new
            return found
        if isinstance(found, (For, BufferStore, Evaluate)):
            return found
        if isinstance(found, SeqStmt):
            return _replace_in_sequence(found, visit)
        if isinstance(found, IfThenElse):
            other = None if found.else_case is None else visit(found.else_case)
            return found.replace(then_case=visit(found.then_case), else_case=other)
        return found.replace(body=visit(found.body))

    return stmt.replace(body=visit(stmt.body))


def _replace_in_sequence(seq: SeqStmt, visit: Any) -> SeqStmt:
    changed: list[Stmt] = []
    for child in seq.seq:
        result = visit(child)
        # A sequence that replaces one statement becomes part of the enclosing sequence.
        changed += result.seq if isinstance(result, SeqStmt) and result is not child else [result]
    return seq.replace(seq=type(seq.seq)(changed)) if changed != list(seq.seq) else seq


def verify(state: ScheduleState) -> None:
    """Checks that the handles are those of the program; raises `AssertionError`."""
    seen = 0
    for root in state.roots:
        pending: list[tuple[Stmt, StmtSRef | None]] = [(root.stmt, None)]
        while pending:
            stmt, parent = pending.pop()
            if isinstance(stmt, (Block, For)):
                sref = state.stmt2ref[stmt]
                assert sref.stmt is stmt and sref.parent is parent, f"the handle of\n{stmt}\nis not in order"
                assert not isinstance(stmt, Block) or sref in state.block_info
                seen, parent = seen + 1, sref
            pending += [(child, parent) for child in children(stmt)]
    assert seen == len(state.stmt2ref), "there are handles of statements that are not in the program"
