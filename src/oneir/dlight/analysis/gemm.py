"""Matrix by matrix: which axes of a block are those of `C[S, I, J] += A[S, I, K] * B[S, J, K]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ...arith.iter_map import is_number
from ...ir.expr import IntImm, PrimExpr, Var
from ...runtime.error import InvalidValue
from ...tir.expr import IterVar
from ...tir.index_map import IndexMap
from ...tir.schedule import BlockRV, Schedule
from ...tir.schedule.domain import domain_of
from ...tir.stmt import Block
from .access import collect_vars_used_in_prim_expr


class IterKind(Enum):
    """What an axis is of `C[S, I, J] += A[S, I, K] * B[S, J, K]`; `kIter_T` is one of extent 1."""

    kIter_S = 0
    kIter_I = 1
    kIter_J = 2
    kIter_K = 3
    kIter_T = 4


@dataclass
class IterTrait:
    """An axis: its kind and extent."""

    kind: IterKind
    extent: PrimExpr


_S, _I, _J, _K, _T = IterKind


def make_iter_fusion_index_map(traits: Sequence[IterTrait], kind_order: Sequence[IterKind]) -> IndexMap:
    """The map from axes to one axis of each kind, in order: axes of one kind are fused, those of extent 1 go.

    Raises `InvalidValue` for an axis of a kind that is not in the order.
    """
    inputs = [Var(f"i{position}", trait.extent.dtype) for position, trait in enumerate(traits)]
    fused: dict[IterKind, PrimExpr] = {}
    for var, trait in zip(inputs, traits, strict=True):
        if trait.kind is _T:
            continue
        if trait.kind not in kind_order:
            raise InvalidValue(
                f"expected axes of the kinds {[kind.name for kind in kind_order]}; found {trait.kind.name}"
            )
        fused[trait.kind] = fused[trait.kind] * trait.extent + var if trait.kind in fused else var
    zero = IntImm(traits[0].extent.dtype, 0)
    return IndexMap(inputs, [fused.get(kind, zero) for kind in kind_order], None)


def detect_iter_traits(
    block: Block,
) -> tuple[list[IterTrait], list[IterTrait], list[IterTrait], list[IterTrait]] | None:
    """The axes of A, of B, of C and of the block, where it is `C[S, I, J] += A[S, I, K] * B[S, J, K]`; else None."""
    if len(block.reads) != 2 or len(block.writes) != 1:
        return None
    used: list[set[Var]] = []
    for access in (*block.reads, *block.writes):
        if not all(is_number(r.extent, 1) for r in access.region):
            return None
        used.append({var for r in access.region for var in collect_vars_used_in_prim_expr(r.min)})
    traits: dict[Var, IterTrait] = {}
    for iv in block.iter_vars:
        kind = _kind_of(iv, *(iv.var in axes for axes in used))
        if kind is None:
            return None
        traits[iv.var] = IterTrait(kind, domain_of(iv).extent)
    if not {_I, _J, _K} <= {trait.kind for trait in traits.values()}:
        return None
    a, b, c = ([trait for var, trait in traits.items() if var in axes] for axes in used)
    return a, b, c, list(traits.values())


def _kind_of(axis: IterVar, in_a: bool, in_b: bool, in_c: bool) -> IterKind | None:
    """The kind of an axis that A, B and C use or not."""
    if is_number(domain_of(axis).extent, 1):
        return _T
    if axis.iter_type == IterVar.DataPar:
        return {(True, True, True): _S, (True, False, True): _I, (False, True, True): _J}.get((in_a, in_b, in_c))
    return _K if axis.iter_type == IterVar.CommReduce and in_a and in_b and not in_c else None


def get_index_map(block: Block) -> tuple[IndexMap, IndexMap, IndexMap, IndexMap] | None:
    """The maps of the axes of a block, A, B and C to `SIJK`, `SIK`, `SJK` and `SIJ`; None for another block."""
    traits = detect_iter_traits(block)
    if traits is None:
        return None
    a, b, c, all_axes = traits
    return (
        make_iter_fusion_index_map(all_axes, [_S, _I, _J, _K]),
        make_iter_fusion_index_map(a, [_S, _I, _K]),
        make_iter_fusion_index_map(b, [_S, _J, _K]),
        make_iter_fusion_index_map(c, [_S, _I, _J]),
    )


def get_reduction_blocks(sch: Schedule, blocks: Sequence[BlockRV]) -> list[BlockRV] | None:
    """The only block with reduction axes, in a list, if all axes of the others are spatial; else None."""
    kinds = [{iv.iter_type for iv in sch.get(block).iter_vars} for block in blocks]
    both, spatial = {IterVar.CommReduce, IterVar.DataPar}, {IterVar.DataPar}
    if not all(kind in (both, spatial) for kind in kinds):
        return None
    found = [block for block, kind in zip(blocks, kinds, strict=True) if kind == both]
    return found if len(found) == 1 else None


def get_in_out_dtypes(block: Block) -> tuple[str, str]:
    """The dtypes of the first buffer that a block reads and of the first that it writes.

    Raises `InvalidValue` for a block without either.
    """
    if not block.reads or not block.writes:
        raise InvalidValue(f"expected a block that reads and writes buffers; found `{block.name_hint}`")
    return block.reads[0].buffer.dtype, block.writes[0].buffer.dtype
