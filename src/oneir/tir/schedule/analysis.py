"""Queries for those who write schedules: which blocks exist, the order in which loops access a buffer, which loops a
tensor intrinsic can replace.

has_block(sch, "C")
suggest_index_map(buffer, indices, loops, predicate)  # a layout in which the loops access contiguous elements
get_tensorize_loop_mapping(sch, block, intrin.desc)  # which loops the intrinsic can replace
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer, IterMapLevel, IterSumExpr, detect_iter_map
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, const
from ...ir.operators import same_exprs
from ...ir.visitor import deep_recursion
from ...runtime.object import Object
from ..analysis.variables import variables
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..index_map import IndexMap
from ..stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt
from .conditions import scope_root_of
from .domain import domain_of
from .lookup import is_output
from .random_variable import BlockRV
from .schedule import Schedule
from .tensorize import Matcher, Mismatch


def has_block(sch: Schedule, block_name: str) -> bool:
    """Whether a function of the module has a block of that name."""
    return any(isinstance(stmt, Block) and stmt.name_hint == block_name for stmt in sch.state.stmt2ref)


def is_output_block(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block writes what the block around it does not allocate."""
    sref = sch.get_sref(block)
    return is_output(sref.stmt, scope_root_of(sch.state, sref).stmt)


def suggest_index_map(
    buffer: Buffer, indices: Sequence[PrimExpr], loops: Sequence[For], predicate: PrimExpr
) -> IndexMap | None:
    """A layout of a buffer in which nested loops, given from the outside in, access its elements in order of addresses.

    For `A[i0 * 4 + i1, j]` under the loops i0, j, i1 it is `lambda i, j: (i // 4, j, i % 4)`, in terms of the index
    into the flattened buffer. None if the access does not take the index apart into digits of the loops.
    """
    domains = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    depth = {loop.loop_var: i for i, loop in enumerate(loops)}
    found = detect_iter_map([_flat(buffer, indices)], domains, predicate, IterMapLevel.Surjective, may_overlap=False)
    if not found.indices:
        return None
    splits = _digits(found.indices[0])
    if splits is None:
        return None
    keys = [(depth[split.source.source], -split.lower_factor.value) for split in splits]
    order = sorted(range(len(splits)), key=keys.__getitem__)

    def mapped(*places: Any) -> list[Any]:
        rest = _flat(buffer, places)
        digits: list[PrimExpr] = []
        for split in reversed(splits):
            digits.append(ops.floormod(rest, split.extent))
            rest = ops.floordiv(rest, split.extent)
        digits.reverse()
        return [digits[i] for i in order]

    return IndexMap.from_func(mapped, ndim=len(buffer.shape), index_dtype=indices[0].dtype)


def _digits(total: IterSumExpr) -> list[Any] | None:
    """The digits of loop variables whose sum a value is, from the outside in; None if it has other terms."""
    found: list[Any] = []
    for split in total.args:
        source = split.source.source
        if isinstance(source, IterSumExpr):
            inner = _digits(source) if is_number(split.lower_factor, 1) else None
            if inner is None:
                return None
            found += inner
        elif isinstance(split.lower_factor, IntImm):
            found.append(split)
        else:
            return None
    return found


def _flat(buffer: Buffer, indices: Sequence[Any]) -> PrimExpr:
    """The index into the flattened buffer."""
    result: PrimExpr = const(0, indices[0].dtype)
    for dim, index in zip(buffer.shape, indices, strict=True):
        result = result * dim + index
    return result


class TensorizeInfo(Object):
    """Which loops a tensor intrinsic can replace.

    `loop_map`: the loop of the description for each such loop. `desc_loop_indexer`: the positions of the description's
    loops, from the outside in. `block_iter_paddings`: what the extents of the block's variables must be multiples of;
    None if they are.
    """

    def __init__(
        self, loop_map: Mapping[StmtSRef, For], desc_loop_indexer: Mapping[For, int], paddings: list[int] | None
    ):
        self.loop_map, self.desc_loop_indexer, self.block_iter_paddings = loop_map, desc_loop_indexer, paddings


def get_tensorize_loop_mapping(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """The loops around a block that correspond to the loops of an intrinsic's description, innermost first.

    A loop may be longer by a factor, in which case it is to be split; with `allow_padding`, by any factor. Loops whose
    variable is only a part of the value of a block's variable correspond to none. None if the block does not match.
    """
    state, sref = sch.state, sch.get_sref(block)
    realize, (wanted, desc_loops) = state.realize_of(sref), _description(desc_func)
    loops = _loops_alone(sref)
    analyzer = Analyzer()
    if any(not analyzer.can_prove_equal(loop.stmt.min, 0) for loop in loops):
        return None
    kinds = [v.iter_type for v in realize.block.iter_vars]
    loop_map: dict[StmtSRef, For] = {}
    paddings: dict[int, int] = {}
    position = len(kinds)
    for wanted_var, wanted_value in reversed(list(zip(wanted.block.iter_vars, wanted.iter_values, strict=True))):
        desc_loop = _loop_of(wanted_value, desc_loops, analyzer)
        if desc_loop is None or not isinstance(desc_loop.extent, IntImm):
            return None
        position = next((i for i in reversed(range(position)) if kinds[i] == wanted_var.iter_type), -1)
        if position < 0:
            return None
        rest = [loop for loop in loops if loop not in loop_map]
        mine = _loop_of(realize.iter_values[position], [loop.stmt for loop in rest], analyzer, loops)
        if mine is not None:
            if not isinstance(mine.extent, IntImm):
                return None
            if mine.extent.value % desc_loop.extent.value != 0:
                if not allow_padding:
                    return None
                paddings[position] = desc_loop.extent.value
            loop_map[state.stmt2ref[mine]] = desc_loop
    return TensorizeInfo(
        loop_map,
        {loop: i for i, loop in enumerate(desc_loops)},
        [paddings.get(i, 1) for i in range(len(kinds))] if paddings else None,
    )


def _description(func: PrimFunc) -> tuple[BlockRealize, list[For]]:
    """The block of an intrinsic's description that computes, and the loops around it."""
    body: Any = func.body
    stmt: Stmt = body.block.body
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    assert isinstance(stmt, BlockRealize), "the description of an intrinsic is loops around a block"
    return stmt, loops


def _loops_alone(sref: StmtSRef) -> list[StmtSRef]:
    """The loops around a block, from the outside in, up to one that holds more than one statement."""
    loops: list[StmtSRef] = []
    above = sref.parent
    while above is not None and isinstance(above.stmt, For) and not isinstance(above.stmt.body, SeqStmt):
        loops.insert(0, above)
        above = above.parent
    return loops


def _loop_of(
    value: PrimExpr, loops: Sequence[For], analyzer: Analyzer, others: Sequence[StmtSRef] | None = None
) -> For | None:
    """The loop whose variable a value is, apart from terms that depend on no loop."""
    loop_vars = {loop.loop_var for loop in loops} if others is None else {sref.stmt.loop_var for sref in others}
    for loop in loops:
        if loop_vars.isdisjoint(variables(analyzer.simplify(value - loop.loop_var))):
            return loop
    return None


class AutoTensorizeMappingInfo(Object):
    """How the variables of a block map to those of an intrinsic.

    `mappings`: index maps for the block's variables. `lhs_buffer_map`: the description's buffer for each of the block.
    `rhs_buffer_indices`: the indices of the description's buffers. `lhs_iters`, `rhs_iters`: the variables.
    """

    def __init__(
        self,
        mappings: Sequence[IndexMap],
        lhs_buffer_map: Mapping[Buffer, Buffer],
        rhs_buffer_indices: Mapping[Buffer, Array[PrimExpr]],
        lhs_iters: Array[IterVar],
        rhs_iters: Array[IterVar],
    ):
        self.mappings = list(mappings)
        self.lhs_buffer_map, self.rhs_buffer_indices = lhs_buffer_map, rhs_buffer_indices
        self.lhs_iters, self.rhs_iters = lhs_iters, rhs_iters


class _Shapes(Matcher):
    """Compares what two blocks compute, whatever the indices are, as long as a buffer is accessed by the same ones."""

    def __init__(self) -> None:
        super().__init__()
        self.indices: dict[Buffer, Array[PrimExpr]] = {}

    def buffer(self, mine: Buffer, wanted: Buffer) -> None:
        if self.buffers.setdefault(wanted, mine) is not mine or mine.dtype != wanted.dtype:
            raise Mismatch(f"the buffer {mine.name} is no {wanted.name}")

    def access(self, mine: BufferLoad | BufferStore, wanted: BufferLoad | BufferStore) -> None:
        self.buffer(mine.buffer, wanted.buffer)
        for access in (mine, wanted):
            if not same_exprs(self.indices.setdefault(access.buffer, access.indices), access.indices):
                raise Mismatch(f"the buffer {access.buffer.name} is accessed at different indices")


def get_auto_tensorize_mapping_info(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc
) -> AutoTensorizeMappingInfo | None:
    """How the variables of a block can be fused into those of an intrinsic that computes the same for each element.

    Variables that index the same buffers, and are of the same kind, as one of the description are fused into it, in
    their order; those that index others stay. A convolution of n, h, w, co, rh, rw, ci becomes with a matrix product
    of m, n, k: (fuse(n, h, w), co, fuse(rh, rw, ci)). None if the blocks compute different things, or where two
    variables of the description index the same buffers.
    """
    mine: Block = sch.get_sref(block).stmt
    wanted = _description(desc_func)[0].block
    shapes = _Shapes()
    try:
        with deep_recursion:
            shapes.node(mine.body, wanted.body)
    except Mismatch:
        return None
    others = {ours: theirs for theirs, ours in shapes.buffers.items()}
    roles: dict[Any, list[Var]] = {}
    for v in wanted.iter_vars:
        roles.setdefault((v.iter_type, _users(v.var, shapes, others.values())), []).append(v.var)
    if any(len(same) > 1 for same in roles.values()):
        return None
    fused: dict[Var, PrimExpr] = {v.var: const(0, v.dtype) for v in wanted.iter_vars}
    places = [v.var.copy_with_name(v.var.name) for v in mine.iter_vars]
    kept: list[PrimExpr] = []
    for v, place in zip(mine.iter_vars, places, strict=True):
        users = frozenset(others[buffer] for buffer in _users(v.var, shapes, others))
        role = roles.get((v.iter_type, users))
        if role is None:
            kept.append(place)
        else:
            fused[role[0]] = fused[role[0]] * domain_of(v).extent + place
    analyzer = Analyzer()
    mapping = IndexMap(places, [*kept, *(analyzer.simplify(fused[v.var]) for v in wanted.iter_vars)])
    indices = {theirs: shapes.indices[theirs] for theirs in shapes.buffers}
    return AutoTensorizeMappingInfo([mapping], others, indices, mine.iter_vars, wanted.iter_vars)


def _users(var: Var, shapes: _Shapes, buffers: Any) -> frozenset[Buffer]:
    """The buffers that a variable indexes."""
    return frozenset(buffer for buffer in buffers if var in variables(*shapes.indices[buffer]))
