"""Products of few rows with a matrix whose rows lie along the sum: a matrix times a vector, as the matrix is stored.

    C[i, j] += A[i, k] * B[j, k]

Every element of the matrix is used once for each of the few rows, so what counts is how fast it is read: in vectors
along the sum, from several rows far apart at once. Rows that are neighbours would share pages, and processors fetch
ahead in one order within a page. Each sum is a vector until its row is done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.expr import PrimExpr, Var
from ...target.cpu import CPUInfo, cpu_info
from ...target.target import Target
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import BufferStore
from ..analysis.contraction import is_contraction, operands
from ..analysis.leaves import Leaf, leaves, leaves_of, variables
from .base import CPUScheduleRule, largest_divisor, parallelize
from .contraction import follows, in_vectors
from .contraction_axes import variables_of
from .spatial import inline_elementwise, schedule_leaf

FEW_ROWS = 4
"""The most rows of the other operand for which the matrix is read as it is stored, instead of copied into panels."""
STREAMS = 4
"""How many rows of the matrix are read at once."""
SHORT = 4
"""The length to which a vector of sums is halved before its elements are added one by one."""


class DotProducts(CPUScheduleRule):
    """A few rows times a matrix whose rows lie along the sum."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        contractions = [leaf for leaf in leaves_of(func) or () if is_contraction(leaf)]
        # Inlining takes most of the time here, and changes neither the axes of a block nor where it stores.
        if not contractions or not all(map(_sums_along_last, contractions)):
            return None
        sch, info = Schedule(func), cpu_info(target)
        inline_elementwise(sch)
        found = leaves(sch) or []
        plans = {id(leaf): plan_of(leaf, info) for leaf in found if is_contraction(leaf)}
        if None in plans.values():
            return None
        followers = {id(leaf): main for main in found for leaf in found if follows(sch, main, leaf)}
        for leaf in found:
            plan = plans.get(id(leaf))
            if plan is not None:
                after = [other for other in found if followers.get(id(other)) is leaf]
                sum_in_vectors(sch, leaf, plan, after[0] if after else None)
            elif id(leaf) not in followers:
                schedule_leaf(sch, leaf, info.vector_bytes)
        return sch


@dataclass(slots=True)
class Plan:
    """The roles of the axes of a product, as dimensions of its result, and what one step computes."""

    rows: list[int]
    main: int
    """The longest axis of the matrix that does not index the rows."""
    streams: int
    """Rows of the matrix that are read at once."""
    width: int
    """Partial sums of each row."""


def plan_of(leaf: Leaf, info: CPUInfo) -> Plan | None:
    """How a product is computed; None for more rows than `FEW_ROWS`, and for a matrix stored otherwise."""
    *axes, summed = leaf.block.iter_vars
    *extents, depth = leaf.extents
    pair, store = operands(leaf.block), leaf.block.body
    if pair is None or not all(_lies_along(load, summed.var) for load in pair) or not isinstance(store, BufferStore):
        return None
    if not _sums_along_last(leaf) or depth is None:
        return None
    a, b = (variables_of(load) for load in pair)
    own = [
        [i for i, iv in enumerate(axes) if iv.var in used and iv.var not in other] for used, other in ((a, b), (b, a))
    ]
    rows, columns = sorted(own, key=lambda part: math.prod(extents[i] or 1 << 20 for i in part))
    count = math.prod(extents[i] or FEW_ROWS + 1 for i in rows)
    main = max(columns, key=lambda i: extents[i] or 0, default=0)
    extent = extents[main] if columns else None
    most = max(1, info.vector_bytes // store.buffer.dtype.itemsize)
    lanes = min(most, depth & -depth)
    if extent is None or count > FEW_ROWS or lanes < min(most, 4) or depth < 2 * lanes:
        return None
    streams = largest_divisor(extent, max(1, STREAMS // count))
    vectors = largest_divisor(depth // lanes, max(1, STREAMS // (streams * count)))
    return Plan(rows, main, streams, vectors * lanes)


def _lies_along(load: BufferLoad, axis: Var) -> bool:
    """Whether an operand is contiguous along an axis: it is the last index, and in no other."""
    *others, last = load.indices or [None]
    return last is axis and all(axis not in variables(index) for index in others)


def _sums_along_last(leaf: Leaf) -> bool:
    """Whether a block stores at all of its axes but the last one, in order, and these are spatial."""
    store, axes = leaf.block.body, leaf.block.iter_vars[:-1]
    if not isinstance(store, BufferStore) or len(store.indices) != len(axes):
        return False
    spatial = all(iv.iter_type == IterVar.DataPar for iv in axes)
    return spatial and all(index is iv.var for index, iv in zip(store.indices, axes, strict=True))


def sum_in_vectors(sch: Schedule, leaf: Leaf, plan: Plan, follower: Leaf | None) -> None:
    """Adds up vectors for some rows of the matrix, and then their elements; lets what follows do so at once."""
    total, main = leaf.handle, plan.main
    last = sch.cache_write(total, 0, "local") if follower is None else follower.handle
    part = (leaf.extents[main] or 1) // plan.streams

    def far_apart(*axes: PrimExpr) -> list[PrimExpr]:
        return [*axes[:main], axes[main] // part, axes[main] % part, *axes[main + 1 :]]

    # The rows that are read at once are a dimension of the sums.
    sch.transform_block_layout(total, far_apart)
    sch.transform_layout(total, ("write", 0), far_apart)
    sch.transform_block_layout(last, far_apart)
    count = len(leaf.extents)
    steps = [total]
    # Vectors of products are added up to one, that one to a short one, and its elements to the sum.
    widths = plan.width, min(plan.width, SHORT)
    for width in widths:
        _, within = sch.split(sch.get_loops(total)[-1], [None, width])
        steps.insert(1, sch.rfactor(within, count))
    loops = sch.get_loops(last)
    at_once = [main, *(i + (i > main) for i in plan.rows)]
    outer = [loop for i, loop in enumerate(loops) if i not in at_once]
    inner = [loops[i] for i in at_once]
    sch.reorder(*outer, *inner)
    around = parallelize(sch, outer, leaf.work)
    assert around is not None
    for handle in steps:
        sch.set_scope(handle, 0, "local")
        sch.compute_at(handle, around, preserve_unit_loops=True)
    within, *elements = sch.get_loops(total)[-count - 1 :]
    sch.reorder(*elements, within)
    for loop in (*elements, *inner):
        sch.unroll(loop)
    sch.decompose_reduction(total, within)
    _, short, long = steps
    within, step, *elements = sch.get_loops(short)[-count - 2 :]
    sch.reorder(step, *elements, within)
    in_vectors(sch, [step, *elements, within], widths[1])
    sch.decompose_reduction(short, sch.get_loops(short)[-count - 2])
    within, *elements, step = sch.get_loops(long)[-count - 2 :]
    sch.reorder(step, *elements, within)
    in_vectors(sch, [*elements, within], widths[0])
    sch.decompose_reduction(long, step)
