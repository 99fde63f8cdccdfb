"""The roles of the axes of a contraction: which are vectors, which rows, and what is summed.

C[i, j] += A[i, k] * B[k, j]        j: vectors of B and C; i: rows; k: the sum
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from ...ir.expr import Add, IntImm, Mul, PrimExpr, Var
from ...target.cpu import CPUInfo
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad, IterVar
from ...tir.stmt import BufferStore
from ...tir.tensor_intrin.x86 import VECTOR_BYTES, BFLOAT16_PAIRS_DOT_16x2_INTRIN, byte_dot_name
from ..analysis.contraction import dot_length, has_room, operands, panel_width, summed_in_words
from ..analysis.leaves import Leaf

ROWS_IF_UNKNOWN = 1 << 10
"""The extent that a symbolic one is taken to be. A guess: large enough that whole tiles are what counts."""


MOST_VECTORS = 8
"""Of a tile: larger ones only make the code of the unrolled loops longer."""


@dataclass(slots=True)
class Axes:
    """The role of each loop of a contraction, as its position in the nest."""

    vector: int
    rows: int | None
    columns: int | None
    """A further axis of the vector operand, such as the output rows of a convolution."""
    others: list[int]
    reduction: list[int]
    panel: int | None
    """The number of elements of a panel, if the vector operand is stored in panels, or in one with zeros at its end."""
    dots: Dots | None = None
    """The dot products that compute it, if the processor has some."""


@dataclass(slots=True)
class Dots:
    """An instruction that adds a few products to each sum of a vector."""

    intrin: str
    axis: int
    """The axis of the sum along which the elements of a word lie together."""
    lanes: int
    """The sums of a vector."""
    length: int
    """The products for each sum."""


def contraction_axes(leaf: Leaf, info: CPUInfo) -> Axes | None:
    """The role of each loop; None where no axis can be vectorized."""
    found = operands(leaf.block)
    store = leaf.block.body
    if found is None or not isinstance(store, BufferStore) or not store.indices:
        return None
    last = store.indices[-1]
    positions = {iv.var: i for i, iv in enumerate(leaf.block.iter_vars)}
    if not isinstance(last, Var) or last not in positions:
        return None
    vectors = [op for op in found if is_strided_in(op, last) or panel_width(op, last)]
    scalars = [op for op in found if last not in variables_of(op)]
    if len(vectors) != 1 or len(scalars) != 1:
        return None
    vector_uses, scalar_uses = variables_of(vectors[0]), variables_of(scalars[0])
    spatial = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.DataPar]
    reduction = [i for i, iv in enumerate(leaf.block.iter_vars) if iv.iter_type == IterVar.CommReduce]
    shared = [v for v in spatial if v in scalar_uses and v not in vector_uses]
    rows = axis_of_rows({positions[v]: leaf.extents[positions[v]] for v in shared})
    along = [v for v in spatial if v is not last and v in vector_uses and v not in scalar_uses]
    columns = _largest(leaf, along, positions)
    taken = {positions[last], rows, columns}
    others = [positions[v] for v in spatial if positions[v] not in taken]
    dots = dots_of(vectors[0], scalars[0], positions, info)
    panel = panel_width(vectors[0], last)
    if panel is None and columns is None and dots is None:
        panel = _row_of_vectors(leaf, positions[last], vectors[0], info)
    return Axes(positions[last], rows, columns, others, reduction, panel, dots)


def _row_of_vectors(leaf: Leaf, position: int, vector: BufferLoad, info: CPUInfo) -> int | None:
    """The elements of the vectors that an axis fills but for a part of the last one, if rows of the operand have that
    many: then they are the only panel. None otherwise, and for more than `MOST_VECTORS` vectors.
    """
    extent, lanes = leaf.extents[position], max(1, info.vector_bytes // leaf.block.writes[0].buffer.dtype.itemsize)
    if extent is None or extent % lanes == 0:
        return None
    whole = -(-extent // lanes) * lanes
    fits = whole <= MOST_VECTORS * lanes and has_room(vector, leaf.block.iter_vars[position].var, whole)
    return whole if fits else None


def dots_of(vector: BufferLoad, scalar: BufferLoad, positions: dict[Var, int], info: CPUInfo) -> Dots | None:
    """The dot products of operands in words along a sum; None for others, and on a processor without them."""
    depth, length = summed_in_words(vector), dot_length(vector.buffer.dtype)
    if depth is None or length is None or _addend(scalar, depth) is not depth:
        return None
    if vector.buffer.dtype == "bfloat16":
        name, vector_bytes = BFLOAT16_PAIRS_DOT_16x2_INTRIN if info.has_bfloat16_dots else None, 64
    else:
        name = None if info.byte_dots is None else byte_dot_name(info.byte_dots)
        vector_bytes = VECTOR_BYTES.get(info.byte_dots or "", 0)
    return None if name is None else Dots(name, positions[depth], vector_bytes // 4, length)


def vector_operand(leaf: Leaf) -> BufferLoad:
    """The operand that is read in vectors: the one that the last index of the result occurs in."""
    found = operands(leaf.block)
    store = leaf.block.body
    assert found is not None and isinstance(store, BufferStore)
    return next(op for op in found if store.indices[-1] in variables_of(op))


def row_operand(leaf: Leaf) -> BufferLoad:
    """The other operand, of which elements are read one by one."""
    found, vectors = operands(leaf.block), vector_operand(leaf)
    assert found is not None
    return next(op for op in found if op is not vectors)


def variables_of(load: BufferLoad) -> set[Var]:
    """The variables that a load's indices depend on."""
    return variables(*load.indices)


def is_strided_in(load: BufferLoad, var: Var) -> bool:
    """Whether a step of the variable is a step to the next element, or a known number of elements further."""
    last = _addend(load, var)
    return last is var or (isinstance(last, Mul) and last.a is var and isinstance(last.b, IntImm))


def _addend(load: BufferLoad, var: Var) -> PrimExpr | None:
    """What the variable adds to the last index; None if another index depends on it, too."""
    if not load.indices or any(var in variables(index) for index in load.indices[:-1]):
        return None
    last = load.indices[-1]
    while isinstance(last, Add):
        last = last.a if var in variables(last.a) else last.b
    return last


Axis = TypeVar("Axis")


def axis_of_rows(extents: Mapping[Axis, int | None]) -> Axis | None:
    """The axis of which several rows share the vectors: the innermost one, unless another is much larger.

    `extents` are those of the axes that could be it, outermost first.
    """
    assumed = {axis: extent or ROWS_IF_UNKNOWN for axis, extent in extents.items()}
    most = max(assumed.values(), default=1)
    return next((axis for axis in reversed(assumed) if assumed[axis] >= min(most, 4) and assumed[axis] > 1), None)


def _largest(leaf: Leaf, candidates: list[Var], positions: dict[Var, int]) -> int | None:
    """The axis of the largest known extent above 1."""
    known = [(leaf.extents[positions[v]] or 0, -positions[v]) for v in candidates]
    best = max(known, default=(0, 0))
    return -best[1] if best[0] > 1 else None


def in_memory_order(leaf: Leaf, axes: Axes) -> list[int]:
    """The axes of a reduction in the order in which the operand that is read in vectors lies in memory."""
    vector = vector_operand(leaf)
    place = {var: i for i, index in enumerate(vector.indices) for var in variables(index)}
    return sorted(axes.reduction, key=lambda i: place.get(leaf.block.iter_vars[i].var, -1))


def is_row(leaf: Leaf, position: int) -> bool:
    """Whether the operand that is read in vectors does not depend on an axis."""
    return leaf.block.iter_vars[position].var not in variables_of(vector_operand(leaf))
