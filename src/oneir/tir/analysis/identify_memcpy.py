"""Which loops copy memory: those that store what they load, contiguous elements in the same order."""

from __future__ import annotations

import math
from typing import Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map
from ...arith.int_set import is_infinite
from ...ir.container import Array
from ...ir.expr import PrimExpr, Range, StringImm, Var
from ...ir.visitor import Visitor
from ...runtime.registry import register_global_func
from ..expr import BufferLoad
from ..stmt import BufferRegion, BufferStore, For, Stmt
from .block_access_region import domain_touched


def identify_memcpy(loop: For) -> tuple[BufferRegion, BufferRegion] | str:
    """The source and the destination of the copy that a nest of loops makes, or why it makes none.

    A copy is one store of one load. Over the nest, the flat indices of each are contiguous, every element is met once,
    and an element has the same place in both; the order of the iterations and the shapes of the buffers do not
    matter. Variables of loops around the nest are parameters of the regions.
    """
    stmt: Stmt = loop
    domains: dict[Var, Range] = {}
    while isinstance(stmt, For):
        domains[stmt.loop_var] = Range.from_min_extent(stmt.min, stmt.extent)
        stmt = stmt.body
    if not isinstance(stmt, BufferStore):
        return f"Expected innermost loop to have BufferStore body, but instead found {type(stmt).__name__}"
    load = stmt.value
    if not isinstance(load, BufferLoad):
        return f"Expected BufferStore's value to be BufferLoad, but instead found {load}"
    if load.buffer.data is stmt.buffer.data:
        return f"Expected different memory for src and dst, but instead found {load.buffer.data} for both"
    places: list[PrimExpr] = []
    for name, access in (("src", load), ("dst", stmt)):
        found = _place(name, access, domains)
        if isinstance(found, str):
            return found
        places.append(found)
    source, target = places
    analyzer = Analyzer()
    for var, domain in domains.items():
        analyzer.bind(var, domain)
    if not analyzer.can_prove_equal(source, target):
        return f"Element {target} of dst comes from a different source element, {source}"
    return (
        BufferRegion(load.buffer, domain_touched(loop, load.buffer, True, False)),
        BufferRegion(stmt.buffer, domain_touched(loop, stmt.buffer, False, True)),
    )


def _place(name: str, access: BufferLoad | BufferStore, domains: dict[Var, Range]) -> PrimExpr | str:
    """The flat index of an access less its least value, or why those of all iterations are not contiguous."""
    if access.predicate is not None or any(index.dtype.lanes != 1 for index in access.indices):
        return f"Expected accesses of single elements, but instead found one of a vector of {name}"
    offsets = access.buffer.offset_of(access.indices)
    if len(offsets) != 1:
        return f"Expected flattened dimension of {name} to be 1, but instead found {len(offsets)}"
    [offset] = offsets
    errors = detect_iter_map([offset], domains, check_level=IterMapLevel.Bijective).errors
    if errors:
        return f"Index {offset} of {name} does not form a bijective transform of the loops: {errors[0]}"
    analyzer = Analyzer()
    values: Any = analyzer.int_set(offset, domains)
    if is_infinite(values.min_value) or is_infinite(values.max_value):
        return f"Expected bounds of the index {offset} of {name}, but found none"
    iterations = analyzer.simplify(math.prod((domain.extent for domain in domains.values()), start=1))
    touched = analyzer.simplify(values.max_value - values.min_value + 1)
    if not analyzer.can_prove_equal(touched, iterations):
        return f"Mismatch between loop iterations ({iterations}) and number of {name} indices touched ({touched})"
    return offset - values.min_value


@register_global_func("tir.analysis._identify_memcpy")
def _identify_memcpy(stmt: Stmt) -> Array[Any]:
    """What `identify_memcpy` says of each loop, outer loops first: an array of two regions, or a text."""
    loops = _Loops()
    loops(stmt)
    return Array(
        StringImm(found) if isinstance(found, str) else Array(found) for found in map(identify_memcpy, loops.found)
    )


class _Loops(Visitor):
    """The loops of a statement, each before those inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[For] = []

    def visit_For(self, loop: For) -> None:
        self.found.append(loop)
        self.visit(loop.body)
