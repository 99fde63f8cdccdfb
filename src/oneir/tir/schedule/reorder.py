"""Changing the order of nested loops, and of a block's variables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..block_scope import StmtSRef
from ..stmt import For
from .base import ScheduleBase
from .conditions import as_block, as_loop, check_affine_binding, only_spatial_and_reduction, scope_root_of
from .domain import loops_above, uses
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, LoopRV
from .state import ScheduleState


def reorder(state: ScheduleState, srefs: list[StmtSRef]) -> None:
    loops = [as_loop(state, sref) for sref in srefs]
    if len(loops) <= 1:
        return
    for i, loop in enumerate(loops):
        if srefs[i] in srefs[:i]:
            raise PrimitiveError(state.mod, "Loop {0} appears in the input array for multiple times.", loop)
    line = line_of(state, srefs)
    for block in state.child_blocks(line[-1]):
        if not only_spatial_and_reduction(block.stmt):
            raise PrimitiveError(
                state.mod,
                "The block {0} under the loops to be reordered have block iter type other than data-parallel or "
                "reduction",
                block.stmt,
            )
        if block.stmt.iter_vars:
            check_affine_binding(state, block.stmt)
    moved = iter(loops)
    order: list[For] = [next(moved) if sref in srefs else sref.stmt for sref in line]
    check_independent(state, order)
    stmt = line[-1].stmt.body
    for loop in reversed(order):
        stmt = loop.replace(body=stmt)
    state.replace(line[0], stmt)


def line_of(state: ScheduleState, srefs: list[StmtSRef]) -> list[StmtSRef]:
    """The nested loops from the outermost to the innermost of some.

    Raises `PrimitiveError` unless each is the only statement in the one before.
    """
    lowest = max(srefs, key=lambda sref: len(list(loops_above(sref))))
    line = [lowest]
    missing = set(srefs) - {lowest}
    for outer in loops_above(lowest.parent):
        if not missing:
            break
        line.append(outer)
        missing.discard(outer)
    if missing:
        scope_root_of(state, srefs[0])
        _check_no_branches(state, srefs)
        raise PrimitiveError(state.mod, "The loops are not in a line because they are not under the same scope.")
    line.reverse()
    for outer, inner in itertools.pairwise(line):
        if outer.stmt.body is not inner.stmt:
            _raise_branch(state, outer)
    return line


def _check_no_branches(state: ScheduleState, srefs: list[StmtSRef]) -> None:
    """Raises `PrimitiveError` for loops of one scope that are not nested."""
    paths = [list(loops_above(sref))[::-1] for sref in srefs]
    if all(path[0].parent is paths[0][0].parent for path in paths):
        common = None
        for level in zip(*paths, strict=False):
            if any(sref is not level[0] for sref in level):
                break
            common = level[0]
        _raise_branch(state, common or paths[0][0].parent)


def _raise_branch(state: ScheduleState, sref: StmtSRef) -> None:
    raise PrimitiveError(
        state.mod,
        "The loops are not in a line because there is a non-single-branch stmt in between. Problematic stmt: {0}",
        sref.stmt,
    )


def check_independent(state: ScheduleState, order: list[For]) -> None:
    """Raises `PrimitiveError` for a loop whose range depends on a loop that would become an inner one."""
    inner = {loop.loop_var for loop in order}
    for loop in order:
        found = [var for var in (uses(loop.min, inner), uses(loop.extent, inner)) if var is not None]
        if found:
            raise PrimitiveError(
                state.mod,
                f"Outer Loop {{0}}'s `min` or `extent` is dependent on an inner loop {found[0].name} in the new order",
                loop,
            )
        inner.discard(loop.loop_var)


def reorder_block_iter_var(state: ScheduleState, sref: StmtSRef, new_order: list[int]) -> None:
    block = as_block(state, sref)
    count = len(block.iter_vars)
    if sorted(new_order) != list(range(count)):
        raise PrimitiveError(
            state.mod,
            f"The new order {list(new_order)} is no permutation of the {count} iteration variables of the block {{0}}",
            block,
        )
    realize = state.realize_of(sref)
    new = block.replace(iter_vars=type(block.iter_vars)(block.iter_vars[i] for i in new_order))
    values = type(realize.iter_values)(realize.iter_values[i] for i in new_order)
    state.replace_realize(sref, realize.replace(iter_values=values, block=new))


REORDER = InstructionKind("Reorder", "reorder", reorder, ("*",))
REORDER_BLOCK_ITER_VAR = InstructionKind(
    "ReorderBlockIterVar", "reorder_block_iter_var", reorder_block_iter_var, ("block",), ("new_order",)
)


class Reorder(ScheduleBase):
    """The part of a schedule that reorders."""

    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Reorders nested loops; loops between them that are not named keep their positions.

        `reorder(k, i)` turns

            for i, j, k in T.grid(8, 4, 2):

        into

            for k, j, i in T.grid(2, 4, 8):

        The loops must be nested with nothing beside them, none may have a range that depends on an inner
        one, and the variables of the blocks below must be data parallel or reductions, with affine values. Raises
        `ScheduleError` otherwise.
        """
        self.apply(REORDER, ordered_loops)

    def reorder_block_iter_var(self, block: BlockRV, new_order: Sequence[int]) -> None:
        """Reorders the variables of a block: the one that was `new_order[0]`-th comes first.

        vi, vj, vk = T.axis.remap("SSR", [i, j, k])     ->     vj, vk, vi = T.axis.remap("SRS", [j, k, i])

        The new order must be a permutation of the positions. Raises `ScheduleError` otherwise.
        """
        self.apply(REORDER_BLOCK_ITER_VAR, [block], [[int(i) for i in new_order]])
