"""Bands: blocks that compute a part of their results at a time, so that what is between them stays in a cache.

    for band in T.parallel(14):                       for band in T.parallel(14):
        V[band, ...] = transformed(x[...])                V[band, ...] = transformed(x[...])
    for band in T.parallel(14):                  ->       M[band, ...] += V[band, ...] * U[...]
        M[band, ...] += V[band, ...] * U[...]

The first axis of such blocks is that of bands, and no block reads what another band's has computed.
"""

from __future__ import annotations

from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import BlockRealize, BufferStore, For, SeqStmt, Stmt, stmt_list
from ...tir.stmt_functor import substitute
from ..analysis.leaves import Leaf

BANDS = "cpu.bands"
"""The annotation of blocks whose first axis is that of bands, and of the loops over it."""


def has_bands(leaf: Leaf) -> bool:
    """Whether the first axis of a block is that of bands."""
    return BANDS in leaf.block.annotations


def begin_bands(sch: Schedule, found: list[Leaf]) -> set[str]:
    """Runs the loops over bands on several threads, and moves blocks into them that only make what a block of bands
    reads, elementwise, as padding does. Returns the names of those.
    """
    loops = {leaf.block.name_hint: leaf.loops[0] for leaf in found if has_bands(leaf)}
    for loop in loops.values():
        sch.parallel(loop)
        sch.annotate(loop, BANDS, 1)
    moved: set[str] = set()
    for leaf in [leaf for leaf in found if loops and _is_elementwise(leaf) and not has_bands(leaf)]:
        consumers = [sch.get(consumer).name_hint for consumer in sch.get_consumers(leaf.handle)]
        if len(consumers) == 1 and consumers[0] in loops:
            sch.compute_at(leaf.handle, loops[consumers[0]])
            moved.add(leaf.block.name_hint)
    return moved


def _is_elementwise(leaf: Leaf) -> bool:
    return not leaf.reduces and isinstance(leaf.block.body, BufferStore)


def with_joined_bands(func: PrimFunc) -> PrimFunc:
    """The function with one loop over bands instead of one for each block; these loops follow each other."""
    assert isinstance(func.body, BlockRealize)
    root = func.body.block
    bodies: list[Stmt] = []
    rest: list[Stmt] = []
    place, loop = 0, None
    for stmt in stmt_list(root.body):
        if isinstance(stmt, For) and BANDS in stmt.annotations:
            place, loop = (len(rest), stmt) if loop is None else (place, loop)
            bodies.append(substitute(stmt.body, {stmt.loop_var: loop.loop_var}))
        else:
            rest.append(stmt)
    if loop is None:
        return func
    rest.insert(place, loop.replace(body=SeqStmt(bodies), annotations={}))
    body = SeqStmt(rest) if len(rest) > 1 else rest[0]
    return func.replace(body=func.body.replace(block=root.replace(body=body)))
