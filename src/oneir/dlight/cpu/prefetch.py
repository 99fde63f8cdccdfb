"""Weights that pass by once are asked for some kilobytes before they are multiplied.

    for g in range(64):                          for g in range(64):
        y += x[g] * weight[p, g, 0:512]    ->        T.prefetch(&weight[p, g + 16, 0]), ...
                                                     y += x[g] * weight[p, g, 0:512]

Processors recognise a stream, but not across pages, and not far ahead of loops that do much with little. Past the end
of a panel the next one follows; past the end of an array nothing is read, since no prefetch fails.

Where many rows run past a panel, each tile of rows asks for its part of the next one, which then is in the second-level
cache when the first rows meet it. Of products of 128 and 197 rows by weights of 768 x 768 to 3072 x 768, which were in
memory, most took 0.75 to 0.9 of the time on one thread of an Emerald Rapids.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.expr import Call, PrimExpr, Var, as_int, const
from ...ir.visitor import Mapper
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.op import address_of
from ...tir.stmt import Evaluate, For, flat_seq
from ...tir.stmt_functor import loads, substitute
from ..analysis.leaves import Leaf

LINE = 64
"""Bytes that a processor reads at once."""
AHEAD = 9216
"""Bytes between what is asked for and what is multiplied. Measured on a thread of a Zen 5, of 2 to 36 KiB: Q4_0 is read
at 46 GB/s, where it was at 39 by AVX-512 and at 34 by AVX2."""


def with_prefetches(func: PrimFunc, loop_var: Var, leaves: Sequence[Leaf], places: Mapping[Var, PrimExpr]) -> PrimFunc:
    """The function with prefetches in the loop over `loop_var`: of the parameters of which these blocks read whole
    lines in each iteration. `places` says where axes of the blocks begin in an iteration; others begin at 0.
    """
    starts = {iv.var: places.get(iv.var, const(0, iv.var.dtype)) for leaf in leaves for iv in leaf.block.iter_vars}
    given = set(func.buffer_map.values())
    steps = {
        load: step
        for leaf in leaves
        for load in loads(leaf.block.body)
        if load.buffer in given and (step := _step(load, starts, loop_var)) is not None
    }
    if not steps:
        return func
    ahead = -(-AHEAD // sum(step * load.buffer.dtype.bits // 8 for load, step in steps.items()))
    starts = {axis: substitute(start, {loop_var: loop_var + ahead}) for axis, start in starts.items()}
    calls = [Evaluate(call) for load, step in steps.items() for call in _prefetches(load, starts, step)]
    return in_front(func, loop_var, calls)


def _step(load: BufferLoad, starts: Mapping[Var, PrimExpr], loop_var: Var) -> int | None:
    """The elements from where one iteration begins to read to where the next one does; None for less than a line."""
    place: PrimExpr = const(0, load.indices[0].dtype)
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        place = place * extent + substitute(index, starts)
    step = as_int(Analyzer().simplify(substitute(place, {loop_var: loop_var + 1}) - place))
    return None if step is None or step * load.buffer.dtype.bits // 8 < LINE else step


def next_panel(
    load: BufferLoad,
    start: Mapping[Var, PrimExpr],
    tiles: Sequence[tuple[PrimExpr, int | None]],
    steps: Sequence[tuple[PrimExpr, int]],
    width: int,
) -> list[Evaluate]:
    """What a step of a sum asks for, so that all tiles of rows ask for all of the panel that `load` reads from at
    `start`, of which a step reads `width` elements.

    `tiles` are the numbers of a tile along the axes of rows and how many there are, and `steps` the same of a step;
    the last ones are next to each other. Each tile asks for its part. Where the number of tiles is unknown, the first
    ones ask for two lines in each step, and later ones for the same lines, which is cheap.
    """
    extents = [extent for _, extent in tiles if extent is not None]
    line = LINE * 8 // load.buffer.dtype.bits
    if len(extents) == len(tiles):
        of_step = -(-width // math.prod(extents))
        number = _flat([value for value, _ in tiles], extents)
    else:
        of_step = 2 * line
        number = sum((value for value, _ in tiles), const(0, "int64")) % -(-width // of_step)
    values, counts = zip(*steps, strict=True)
    analyzer = Analyzer()
    *outer, last = (analyzer.simplify(substitute(index, start)) for index in load.indices)
    place = analyzer.simplify(last + (number * math.prod(counts) + _flat(values, counts)) * of_step)
    elements = [BufferLoad(load.buffer, [*outer, place + i]) for i in range(0, of_step, line)]
    return [Evaluate(prefetch(element, 2)) for element in elements]


def _flat(values: Sequence[PrimExpr], extents: Sequence[int]) -> PrimExpr:
    """The number of an iteration of axes, counted in the order of their loops."""
    place: PrimExpr = const(0, "int64")
    for value, extent in zip(values, extents, strict=True):
        place = place * extent + value
    return place


def prefetch(element: BufferLoad, locality: int) -> PrimExpr:
    """A call that reads the line of an element into caches: the first-level one by 3, the second-level one by 2."""
    flags = [const(0), const(locality), const(1)]  # to read it, as data
    return Call("void", "tir.prefetch", [address_of(element), *flags])


def _prefetches(load: BufferLoad, starts: Mapping[Var, PrimExpr], step: int) -> list[PrimExpr]:
    """Those of one array in an iteration."""
    *outer, last = (substitute(index, starts) for index in load.indices)
    places = range(0, step, 8 * LINE // load.buffer.dtype.bits)
    return [prefetch(BufferLoad(load.buffer, [*outer, last + i]), 3) for i in places]


def in_front(func: PrimFunc, loop_var: Var, statements: Sequence[Evaluate]) -> PrimFunc:
    """The function with statements in front of the body of a loop."""
    return func.replace(body=_Insert(loop_var, statements)(func.body))


class _Insert(Mapper):
    """Puts statements in front of a loop's body."""

    def __init__(self, loop_var: Var, statements: Sequence[Evaluate]):
        super().__init__()
        self.loop_var, self.statements = loop_var, statements

    def visit_For(self, loop: For) -> Any:
        if loop.loop_var is not self.loop_var:
            return self.generic_visit(loop)
        return loop.replace(body=flat_seq([*self.statements, loop.body]))
