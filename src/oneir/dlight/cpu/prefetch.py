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
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir.expr import Call, PrimExpr, Var, as_int, const
from ...ir.visitor import Mapper
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.op import address_of
from ...tir.stmt import BlockRealize, Evaluate, For, flat_seq
from ...tir.stmt_functor import loads, substitute
from ..analysis.leaves import Leaf, variables

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
    return func.replace(body=_Insert(loop_var, calls)(func.body))


def _step(load: BufferLoad, starts: Mapping[Var, PrimExpr], loop_var: Var) -> int | None:
    """The elements from where one iteration begins to read to where the next one does; None for less than a line."""
    place: PrimExpr = const(0, load.indices[0].dtype)
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        place = place * extent + substitute(index, starts)
    step = as_int(Analyzer().simplify(substitute(place, {loop_var: loop_var + 1}) - place))
    return None if step is None or step * load.buffer.dtype.bits // 8 < LINE else step


@dataclass(slots=True)
class PanelByPanel:
    """A block that sums products of rows and of panels of a parameter, where all rows run past one panel after the
    other: `C[i, j] += A[i, k] * B[j // 32, k, j % 32]`.
    """

    name: str
    load: BufferLoad
    vector: int
    """The position among the block's axes of that along a panel, as of the following ones."""
    width: int
    rows: Mapping[int, int]
    """The extents of the axes of the rows, the outermost first."""
    row_tile: int
    """Rows of the last of these axes that are computed at once."""
    reduction: Mapping[int, int]
    """Those of the axes of the sum, in the order of their loops."""


def with_next_panels(func: PrimFunc, products: Sequence[PanelByPanel]) -> PrimFunc:
    """The function in which each tile of rows asks for its part of the panel that comes next."""
    found = {product.name: product for product in products}
    return func.replace(body=_NextPanels(found)(func.body)) if found else func


class _NextPanels(Mapper):
    """Puts prefetches in front of what the innermost loop over a block's sum does."""

    def __init__(self, products: Mapping[str, PanelByPanel]):
        super().__init__()
        self.products = products
        self.block: BlockRealize | None = None
        self.inside: list[Var] = []

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        if realize.block.name_hint not in self.products:
            return self.generic_visit(realize)
        self.block, self.inside = realize, []
        return realize

    def visit_For(self, loop: For) -> Any:
        loop = self.generic_visit(loop)
        if self.block is None:
            return loop
        product = self.products[self.block.block.name_hint]
        values = self.block.iter_values
        if not any(loop.loop_var in variables(values[i]) for i in product.reduction):
            self.inside.append(loop.loop_var)
            return loop
        realize, self.block = self.block, None
        first = {var: const(0, var.dtype) for var in self.inside}
        calls = _next_panel(product, realize, [substitute(value, first) for value in values])
        return loop.replace(body=flat_seq([*calls, loop.body]))


def _next_panel(product: PanelByPanel, realize: BlockRealize, values: Sequence[PrimExpr]) -> list[Evaluate]:
    """What one step of the sum asks for. `values` are those of the block's axes where a tile begins.

    A row has so many elements of the panel to ask for, and each step of its tile's sum so many of those of the tile.
    """
    axes, load = realize.block.iter_vars, product.load
    steps, rows = math.prod(product.reduction.values()), math.prod(product.rows.values())
    of_row = -(-steps * product.width // rows)
    of_step = -(-of_row * product.row_tile // steps)
    place = _flat(values, product.rows) * of_row + _flat(values, product.reduction) * of_step
    start = {axis.var: const(0, axis.var.dtype) for axis in axes}
    start[axes[product.vector].var] = values[product.vector] + product.width
    analyzer = Analyzer()
    *outer, last = (analyzer.simplify(substitute(index, start)) for index in load.indices)
    place = analyzer.simplify(last + place)
    line = LINE * 8 // load.buffer.dtype.bits
    elements = [BufferLoad(load.buffer, [*outer, place + i]) for i in range(0, of_step, line)]
    return [Evaluate(prefetch(element, 2)) for element in elements]


def _flat(values: Sequence[PrimExpr], extents: Mapping[int, int]) -> PrimExpr:
    """The number of an iteration of these axes, counted in the order of their loops."""
    place: PrimExpr = const(0, "int64")
    for i, extent in extents.items():
        place = place * extent + values[i]
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


class _Insert(Mapper):
    """Puts statements in front of a loop's body."""

    def __init__(self, loop_var: Var, statements: Sequence[Evaluate]):
        super().__init__()
        self.loop_var, self.statements = loop_var, statements

    def visit_For(self, loop: For) -> Any:
        if loop.loop_var is not self.loop_var:
            return self.generic_visit(loop)
        return loop.replace(body=flat_seq([*self.statements, loop.body]))
