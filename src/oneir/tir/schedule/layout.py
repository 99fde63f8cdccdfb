"""Layouts of buffers and of blocks: new indices for the same elements, new variables for the same iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...arith.iter_map import is_number
from ...ir.container import Array, is_sequence
from ...ir.expr import PrimExpr, Range, Var, const
from ...runtime.error import InvalidValue, TypeMismatch
from ..analysis import get_block_read_write_region
from ..analysis.variables import variables
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..index_map import IndexMap
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, MatchBufferRegion, Stmt
from ..stmt_functor import substitute
from .base import ScheduleBase
from .buffers import allocation_of, buffer_index, nth_region
from .conditions import as_block, check_self_contained
from .domain import domain_of, loops_above, own_domains
from .edit import BlockEdit, SubstituteEdit
from .error import PrimitiveError
from .instruction import Code, InstructionKind
from .padding import pad_layout
from .random_variable import BlockRV
from .reduction import only_block
from .split_fuse import check_starts_at_zero
from .state import ScheduleState

BUFFER_TYPES = ("read", "write")


class RemapBuffer(BlockEdit):
    """Replaces a buffer by another, accessed at the indices that a map gives; regions are inferred again."""

    def __init__(self, old: Buffer, new: Buffer, index_map: IndexMap):
        super().__init__()
        self.old, self.new, self.index_map = old, new, index_map
        self.domains: dict[Var, Range] = {}

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_For(self, loop: For) -> Any:
        self.domains[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        return self.generic_visit(loop)

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        return self._access(self.generic_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        return self._access(self.generic_visit(store))

    def _access(self, node: Any) -> Any:
        if node.buffer is not self.old:
            return node
        mapped = self.index_map.map_indices(node.indices)
        analyzer = Analyzer()
        for var in variables(*mapped):
            if var in self.domains:
                analyzer.bind(var, self.domains[var])
        indices = [analyzer.simplify(i) for i in mapped]
        return node.replace(buffer=self.new, indices=Array(indices))

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return region

    def visit_Block(self, block: Block) -> Any:
        self.domains.update(own_domains(block))
        new = self.generic_visit(block)
        if self.old in new.alloc_buffers:
            new = new.replace(alloc_buffers=Array(self.new if b is self.old else b for b in new.alloc_buffers))
        if any(r.buffer is self.old for r in (*block.reads, *block.writes)):
            reads, writes = get_block_read_write_region(new, {self.new.data: self.new})
            new = new.replace(reads=self._regions(block.reads, reads), writes=self._regions(block.writes, writes))
        return self.changed(block, new)

    def _regions(self, olds: Sequence[BufferRegion], found: Sequence[BufferRegion]) -> Array[BufferRegion]:
        whole = BufferRegion.full(self.new)
        return Array((found[0] if found else whole) if r.buffer is self.old else r for r in olds)


class ReplaceBuffer(BlockEdit):
    """Replaces a buffer by another over the same memory."""

    def __init__(self, old: Buffer, new: Buffer):
        super().__init__()
        self.old, self.new = old, new

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.new if buffer is self.old else buffer

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> Any:
        return match.replace(source=self.visit(match.source))

    def visit_Block(self, block: Block) -> Any:
        allocated = [self.new if b is self.old else b for b in block.alloc_buffers]
        new = self.generic_visit(block)
        if self.old in block.alloc_buffers:
            new = new.replace(alloc_buffers=Array(allocated))
        return self.changed(block, new)


def defining_site(state: ScheduleState, sref: StmtSRef, buffer: Buffer) -> tuple[StmtSRef, bool]:
    """The block that allocates a buffer, or the root block for a parameter; and whether the buffer is a parameter.

    Raises `PrimitiveError` for a buffer that a `match_buffer` defines.
    """
    above = sref
    while above is not None:
        if isinstance(above.stmt, Block) and any(m.buffer is buffer for m in above.stmt.match_buffers):
            raise PrimitiveError(
                state.mod,
                f"The input buffer {buffer.name} is defined in `match_buffer` of a block, it is expected to be a "
                "function parameter or allocated by a block.",
            )
        above = above.parent
    site = allocation_of(state, sref, buffer)
    return (state.root_of(sref), True) if site is None else (site, False)


def apply_remap(
    state: ScheduleState, site: StmtSRef, edit: BlockEdit, old: Buffer, new: Buffer, is_parameter: bool
) -> None:
    """Rewrites the body of a block, and the parameter of the function if the buffer is one."""
    block: Block = site.stmt
    changed = edit(block)
    if is_parameter:
        var, func = state.function_of(site)
        buffers = {param: new if b is old else b for param, b in func.buffer_map.items()}
        state.update_function(var, func.replace(buffer_map=buffers))
    state.replace(site, changed, edit.reuse)


def transform_layout(
    state: ScheduleState,
    sref: StmtSRef,
    index_map: IndexMap,
    buffer_index: int,
    buffer_index_type: int,
    pad_value: IndexMap | None,
    assume_injective_transform: bool,
) -> None:
    buffer = nth_region(state, as_block(state, sref), buffer_index, write=bool(buffer_index_type)).buffer
    site, is_parameter = defining_site(state, sref, buffer)
    try:
        shape = index_map.map_shape(buffer.shape)
    except InvalidValue as error:
        raise PrimitiveError(state.mod, f"The layout of the buffer {buffer.name} has no shape: {error}") from None
    new = buffer.replace(shape=shape, strides=Array(), axis_separators=Array())
    edit = RemapBuffer(buffer, new, index_map)
    if not assume_injective_transform:
        inverse, padding = index_map.non_surjective_inverse(buffer.shape)
        if not is_number(padding, 0):
            if pad_value is None:
                raise PrimitiveError(
                    state.mod,
                    f"The transformation {index_map} applied on buffer {buffer.name} of shape {list(buffer.shape)} "
                    f"would result in shape {list(new.shape)}.  However, this would introduce padding wherever "
                    f"{padding} is true.",
                )
            check_pad_value(state, buffer, pad_value)
            pad_layout(state, site, edit, inverse, padding, pad_value, is_parameter)
            return
    apply_remap(state, site, edit, buffer, new, is_parameter)


def check_pad_value(state: ScheduleState, buffer: Buffer, pad_value: IndexMap) -> None:
    """Raises `PrimitiveError` unless a padding value is one value of the buffer's dtype."""
    values = pad_value.final_indices
    if len(values) != 1:
        raise PrimitiveError(
            state.mod,
            f"Pad value is specified as {pad_value} which has {len(values)} outputs, but should only have one",
        )
    if values[0].dtype != buffer.dtype:
        raise PrimitiveError(
            state.mod,
            f"Buffer {buffer.name} has elements of type {buffer.dtype}, but the transformation fills padding with "
            f"{values[0]}, which is of type {values[0].dtype}",
        )


def set_axis_separator(
    state: ScheduleState, sref: StmtSRef, buffer_index: int, buffer_index_type: int, axis_separators: list[int]
) -> None:
    block = as_block(state, sref)
    buffer = nth_region(state, block, buffer_index, write=bool(buffer_index_type)).buffer
    ndim = len(buffer.shape)
    ends = [0, *axis_separators, ndim]
    if ends != sorted(ends):
        raise PrimitiveError(
            state.mod,
            f"The buffer {buffer.name} has {ndim} axes, so its axis separators are expected to be numbers between 0 "
            f"and {ndim} in increasing order, found {axis_separators}",
            block,
        )
    site, is_parameter = defining_site(state, sref, buffer)
    new = buffer.replace(axis_separators=Array(axis_separators))
    apply_remap(state, site, ReplaceBuffer(buffer, new), buffer, new, is_parameter)


# -- blocks --


def transform_block_layout(state: ScheduleState, sref: StmtSRef, index_map: IndexMap) -> None:
    block = as_block(state, sref)
    loops = list(loops_above(sref.parent))[::-1]
    for loop in loops:
        check_starts_at_zero(state, loop.stmt)
    if loops:
        only_block(state, loops[0])
    check_self_contained(state, sref)
    realize = state.realize_of(sref)
    check_trivial_binding(state, realize)
    if len(index_map.initial_indices) != len(block.iter_vars):
        raise PrimitiveError(
            state.mod,
            f"The index map {index_map} can't be applied to block iters of {{0}} because the number of parameters "
            f"mismatch. Expected: {len(index_map.initial_indices)}, actual: {len(block.iter_vars)}",
            block,
        )
    old_vars = [v.var for v in block.iter_vars]
    extents = [domain_of(v).extent for v in block.iter_vars]
    shape = index_map.map_shape(extents)
    kinds = {v.var: v.iter_type for v in block.iter_vars}
    new_vars: list[IterVar] = []
    for i, (value, extent) in enumerate(zip(index_map.map_indices(old_vars), shape, strict=True)):
        found = {kinds[var] for var in variables(value) if var in kinds}
        if len(found) > 1:
            raise PrimitiveError(
                state.mod,
                f"Cannot detect the block iter type for new iter value {value} in {{0}} because it contains more than "
                "one type of original iter vars.",
                block,
            )
        var = Var(f"v{i}", extent.dtype)
        # A constant is no part of any axis, and so data parallel.
        kind = found.pop() if found else IterVar.DataPar
        new_vars.append(IterVar(Range.from_min_extent(const(0, extent.dtype), extent), var, kind))
    try:
        inverse = index_map.inverse(extents).map_indices([v.var for v in new_vars])
    except InvalidValue:
        raise PrimitiveError(state.mod, f"The index map {index_map} is not bijective affine.") from None
    edit = _SimplifiedAccess(dict(zip(old_vars, inverse, strict=True)), new_vars)
    new = edit.visit(block)
    new = edit.changed(block, new.replace(iter_vars=Array(new_vars)))
    loop_vars = [Var(f"ax{i}", v.dtype) for i, v in enumerate(new_vars)]
    predicate = _moved_predicate(state, realize, [loop.stmt for loop in loops], new_vars, inverse, loop_vars)
    stmt: Stmt = realize.replace(iter_values=Array(loop_vars), predicate=predicate, block=new)
    for var, v in reversed(list(zip(loop_vars, new_vars, strict=True))):
        stmt = For(var, const(0, var.dtype), domain_of(v).extent, ForKind.SERIAL, stmt)
    if loops or loop_vars:
        state.replace(loops[0] if loops else sref, stmt, edit.reuse)
    else:
        state.replace(sref, new, edit.reuse)


def _moved_predicate(
    state: ScheduleState,
    realize: BlockRealize,
    loops: Sequence[For],
    new_vars: Sequence[IterVar],
    inverse: Sequence[PrimExpr],
    variables: Sequence[Var],
) -> PrimExpr:
    """The predicate of a block in terms of its new loops.

    Raises `PrimitiveError` if it uses loops that are not values of the block's variables.
    """
    moved = {v.var: loop for v, loop in zip(new_vars, variables, strict=True)}
    values: dict[Any, Any] = {
        loop: substitute(value, moved) for loop, value in zip(realize.iter_values, inverse, strict=True)
    }
    for loop in loops:
        if loop.loop_var not in values and not is_number(loop.extent, 1):
            raise PrimitiveError(
                state.mod, "The loop {0} is followed by no variable of the block {1}", loop, realize.block
            )
        values.setdefault(loop.loop_var, loop.min)
    return Analyzer().simplify(substitute(realize.predicate, values))


def check_trivial_binding(state: ScheduleState, realize: BlockRealize) -> None:
    """Raises `PrimitiveError` unless the values of a block's variables are loop variables, or 0 for one of extent 1."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    if not all(
        isinstance(value, Var) or (is_number(value, 0) and is_number(domain_of(v).extent, 1)) for v, value in pairs
    ):
        raise PrimitiveError(
            state.mod,
            "The binding values of the {0} are not variables of outer loops.",
            realize.block,
        )


class _SimplifiedAccess(SubstituteEdit):
    """Substitutes variables, and simplifies the indices of accesses."""

    def __init__(self, values: Mapping[Var, Any], variables: Sequence[IterVar]):
        super().__init__(values)
        self.analyzer = Analyzer()
        for v in variables:
            self.analyzer.bind(v.var, domain_of(v))

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        return self._access(load, self.generic_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        return self._access(store, self.generic_visit(store))

    def _access(self, old: Any, new: Any) -> Any:
        if new.indices is old.indices:
            return new
        return new.replace(indices=Array(self.analyzer.simplify(i) for i in new.indices))

    def visit_Range(self, r: Range) -> Any:
        low, extent = self.visit(r.min), self.visit(r.extent)
        if low is r.min and extent is r.extent:
            return r
        return Range.from_min_extent(self.analyzer.simplify(low), self.analyzer.simplify(extent))


def _index_map(index_map: Any, ndim: int, dtype: str) -> tuple[IndexMap, list[int]]:
    if isinstance(index_map, IndexMap):
        return index_map, []
    if not callable(index_map):
        raise TypeMismatch(f"expected an IndexMap or a function of the indices, found {index_map!r}")
    return IndexMap.from_func_with_separators(index_map, ndim=ndim, index_dtype=dtype)


def default_dtype(block: Block) -> str:
    """The dtype of the indices of a block."""
    for v in block.iter_vars:
        return v.dtype
    for region in (*block.reads, *block.writes):
        for r in region.region:
            return r.min.dtype
    return "int64"


def buffer_access(block: Block, buffer: Any) -> tuple[int, int]:
    """A buffer given as ("read", 0), by name, or as such: its position, and 0 for a read, 1 for a write."""
    if is_sequence(buffer) and len(buffer) == 2 and isinstance(buffer[0], str):
        if buffer[0] not in BUFFER_TYPES:
            raise InvalidValue(f'a buffer is given as ("read", position) or ("write", position), found {buffer!r}')
        return int(buffer[1]), BUFFER_TYPES.index(buffer[0])
    if not isinstance(buffer, (str, Buffer)):
        raise TypeMismatch(f'expected ("read", position), ("write", position), a name or a buffer, found {buffer!r}')
    for kind, regions in ((1, block.writes), (0, block.reads)):
        if any(r.buffer is buffer or r.buffer.name == buffer for r in regions):
            return buffer_index(block, buffer, write=bool(kind)), kind
    name = buffer if isinstance(buffer, str) else buffer.name
    known = [r.buffer.name for r in (*block.reads, *block.writes)]
    raise InvalidValue(f"the block {block.name_hint} accesses no buffer {name!r}; it accesses {known}")


def render_buffer(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments with a buffer given as ("read", 0)."""
    rest = {name: v for name, v in values.items() if name not in ("buffer_index", "buffer_index_type")}
    return {**rest, "buffer": Code(f'("{BUFFER_TYPES[values["buffer_index_type"]]}", {values["buffer_index"]})')}


TRANSFORM_LAYOUT = InstructionKind(
    "TransformLayout",
    "transform_layout",
    transform_layout,
    ("block", "index_map"),
    ("buffer_index", "buffer_index_type", "pad_value", "assume_injective_transform"),
    order=("block", "buffer", "index_map", "pad_value", "assume_injective_transform"),
    render=render_buffer,
)
TRANSFORM_BLOCK_LAYOUT = InstructionKind(
    "TransformBlockLayout", "transform_block_layout", transform_block_layout, ("block", "index_map")
)
SET_AXIS_SEPARATOR = InstructionKind(
    "SetAxisSeparator",
    "set_axis_separator",
    set_axis_separator,
    ("block",),
    ("buffer_index", "buffer_index_type", "axis_separators"),
    order=("block", "buffer", "axis_separators"),
    render=render_buffer,
)

BufferArgument = tuple[str, int] | str | Buffer


class Layout(ScheduleBase):
    """The part of a schedule that changes layouts. Buffers are given as ("read", 0), by name, or as such."""

    def transform_layout(
        self,
        block: BlockRV | str,
        buffer: BufferArgument,
        index_map: IndexMap | Callable[..., Any],
        pad_value: int | float | PrimExpr | IndexMap | Callable[..., Any] | None = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        """Changes the layout of a buffer: the element that was at `indices` is at `index_map(*indices)`.

            for i, j in T.grid(128, 128):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * 2.0

        becomes, with `lambda i, j: (i // 16, j // 16, i % 16, j % 16)` for the buffer B,

            for i, j in T.grid(128, 128):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi // 16, vj // 16, vi % 16, vj % 16] = A[vi, vj] * 2.0

        All accesses in the function change, and the parameter, if the buffer is one. Where the new layout has more
        elements than the old one, `pad_value` (a value, or a function of the new indices) is the value of these.
        `IndexMap.AXIS_SEPARATOR` in the result of the map separates groups of axes.

        Raises `ScheduleError` if the layout adds elements and there is no `pad_value`, unless
        `assume_injective_transform`.
        """
        handle = self._block(block)
        stmt: Block = self.get(handle)
        index, kind = buffer_access(stmt, buffer)
        target = nth_region(self.state, stmt, index, write=bool(kind)).buffer
        mapped, separators = _index_map(index_map, len(target.shape), default_dtype(stmt))
        padding = _pad_map(pad_value, target, len(mapped.final_indices), default_dtype(stmt))
        self.apply(TRANSFORM_LAYOUT, [handle, mapped], [index, kind, padding, assume_injective_transform])
        if separators:
            self.apply(SET_AXIS_SEPARATOR, [handle], [index, kind, separators])

    def transform_block_layout(self, block: BlockRV | str, index_map: IndexMap | Callable[..., Any]) -> None:
        """Replaces the variables of a block by a bijective function of them, and the loops around it by loops over the
        new ones.

            for i, j in T.grid(16, 16):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * 2.0

        becomes, with `lambda i, j: (i * 16 + j,)`,

            for ax0 in range(256):
                with T.block("B"):
                    v0 = T.axis.spatial(256, ax0)
                    B[v0 // 16, v0 % 16] = A[v0 // 16, v0 % 16] * 2.0

        The loops around the block must hold nothing else, start at 0, and be the values of its variables, where those
        with a single value may be bound to 0. Raises `ScheduleError` otherwise.
        """
        handle = self._block(block)
        stmt: Block = self.get(handle)
        mapped, _ = _index_map(index_map, len(stmt.iter_vars), default_dtype(stmt))
        self.apply(TRANSFORM_BLOCK_LAYOUT, [handle, mapped])

    def set_axis_separator(
        self, block: BlockRV | str, buffer: BufferArgument, axis_separators: Sequence[int] | None
    ) -> None:
        """Sets the axes before which a buffer is split when it is flattened, into one dimension for each group of axes.

        B = T.alloc_buffer((128, 128))     ->     B = T.alloc_buffer((128, 128), axis_separators=[1])

        Separators are positions of axes in increasing order, from 0 to the number of axes.
        """
        handle = self._block(block)
        index, kind = buffer_access(self.get(handle), buffer)
        self.apply(SET_AXIS_SEPARATOR, [handle], [index, kind, [int(a) for a in axis_separators or ()]])


def _pad_map(pad_value: Any, buffer: Buffer, ndim: int, dtype: str) -> IndexMap | None:
    if pad_value is None or isinstance(pad_value, IndexMap):
        return pad_value
    if callable(pad_value):
        return IndexMap.from_func(pad_value, ndim=ndim, index_dtype=dtype)
    value = pad_value if isinstance(pad_value, PrimExpr) else const(pad_value, buffer.dtype)
    return IndexMap.from_func(lambda *indices: value, ndim=ndim, index_dtype=dtype)
