"""Which blocks are an attention: products of queries and keys, their softmax, and products with values."""

from __future__ import annotations

from dataclasses import dataclass

from ...tir.expr import IterVar
from ...tir.schedule import Schedule
from ...tir.stmt import BufferStore
from .contraction import is_contraction, operands
from .leaves import Leaf, leaves, reduces
from .recomputation import stays_small


@dataclass(slots=True)
class Chain:
    """The blocks of an attention in order, by name."""

    scores: str
    softmax: list[str]
    result: str


def inline_elementwise_blocks(sch: Schedule) -> None:
    """Inlines elementwise blocks, but not softmax weights: a product would compute each exponential again and again."""
    while any(_inline(sch, leaf) for leaf in leaves(sch) or ()):
        pass


def _inline(sch: Schedule, leaf: Leaf) -> bool:
    consumers = sch.get_consumers(leaf.handle)
    if leaf.reduces or not consumers or not isinstance(leaf.block.body, BufferStore) or _is_weight(sch, leaf):
        return False
    if not stays_small(leaf.block, [sch.get(consumer) for consumer in consumers]):
        return False
    sch.compute_inline(leaf.handle)
    return True


def _is_weight(sch: Schedule, leaf: Leaf) -> bool:
    """Whether a block computes softmax weights: from a reduction that is no product, for another reduction."""
    producers = [sch.get(p) for p in sch.get_producers(leaf.handle)]
    consumers = [sch.get(c) for c in sch.get_consumers(leaf.handle)]
    after = any(reduces(p) and operands(p) is None for p in producers)
    return after and any(reduces(c) for c in consumers)


def chain_of(found: list[Leaf]) -> Chain | None:
    """The parts of an attention; None for other functions."""
    names = [leaf.block.name_hint for leaf in found]
    kinds = [(leaf.reduces, is_contraction(leaf)) for leaf in found]
    product, reduction, elementwise = (True, True), (True, False), (False, False)
    if kinds[:6] != [product, reduction, elementwise, reduction, elementwise, product] or len(found) > 7:
        return None
    if any(leaf.reduces or not isinstance(leaf.block.body, BufferStore) for leaf in found[6:]):
        return None
    for leaf in found[:6]:
        kinds_of_axes = [iv.iter_type for iv in leaf.block.iter_vars]
        reducing = kinds_of_axes.count(IterVar.CommReduce)
        if reducing > 1 or (reducing and kinds_of_axes[-1] != IterVar.CommReduce):
            return None
    for leaf in (found[0], found[5]):
        store = leaf.block.body
        spatial = [iv.var for iv in leaf.block.iter_vars[:-1]]
        if not isinstance(store, BufferStore) or len(spatial) < 3 or list(store.indices) != spatial:
            return None
    return Chain(names[0], names[1:5], names[5])
