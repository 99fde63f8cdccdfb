"""Blocks that transpose, square by square in registers.

    for j, i in T.grid(16, 16):          rows[j, 0:16] = A[j0 + j, i0 : i0 + 16]      for each j
        B[i0 + i, j0 + j] =        ->    columns of rows, by log2(16) steps of shuffles
            A[j0 + j, i0 + i]            B[i0 + i, j0 : j0 + 16] = columns[i]         for each i

Element by element, each vector that is written would be put together of as many loads as it has lanes. What is computed
of the elements is computed of rows, before they are transposed. Squares that are not whole, at the ends of axes, are
computed element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.container import Array
from ...ir.dtype import DataType
from ...ir.expr import (
    Add,
    Call,
    CallEffectKind,
    Cast,
    ConstExpr,
    Div,
    Max,
    Min,
    Mul,
    PrimExpr,
    Ramp,
    Sub,
    Var,
    as_int,
    const,
)
from ...ir.op import Op
from ...ir.visitor import Mapper
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, Shuffle, expr_array
from ...tir.op import effect_of
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    Stmt,
    flat_seq,
)
from ...tir.stmt_functor import renew_stmt, substitute
from ...topi.loops import allocate, loop

SQUARES = "cpu.squares"
"""Annotation of the outer one of two loops: how many rows and columns are transposed together."""

LEAST, MOST = 4, 16
"""Rows of a square: fewer gain nothing over elements, and more than 16 vectors fill the registers."""


def transposes(block: Block, read: Var, write: Var) -> bool:
    """Whether a block computes what lies along `write` in memory of what lies along `read`, in vectors along `read`."""
    store = block.body
    if not isinstance(store, BufferStore) or store.buffer.dtype == "bool" or _start(store.indices[-1]) is not write:
        return False
    found = _loads_along(store.value, read)
    return bool(found) and not any(write in variables(load.indices[-1]) for load in found)


def _start(index: PrimExpr) -> PrimExpr:
    """The variable to which an index adds a constant, or the index itself."""
    while isinstance(index, Add) and as_int(index.b) is not None:
        index = index.a
    return index


def _loads_along(value: PrimExpr, read: Var) -> list[BufferLoad] | None:
    """The loads of a value of what lies along `read`; None where it reads in another order along it, and where a
    condition depends on it.
    """
    if isinstance(value, ConstExpr):
        return []
    if isinstance(value, BufferLoad):
        if read not in variables(value):
            return []
        others = any(read in variables(index) for index in value.indices[:-1])
        return None if others or value.buffer.dtype == "bool" or _start(value.indices[-1]) is not read else [value]
    if isinstance(value, Cast):
        parts = [value.value]
    elif isinstance(value, (Add, Sub, Mul, Div, Min, Max)):
        parts = [value.a, value.b]
    elif isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == "tir.if_then_else":
        condition, *parts = value.args
        if read in variables(condition):
            return None
    elif isinstance(value, Call) and effect_of(value) == CallEffectKind.Pure:
        parts = list(value.args)
    else:
        return None
    found = [_loads_along(part, read) for part in parts]
    return None if None in found else [load for loads in found if loads for load in loads]


def rows_of_squares(extents: Sequence[int | None], itemsize: int, vector_bytes: int) -> int | None:
    """How many rows and columns the squares of two axes have: as many as a vector has lanes, or fewer where a fifth of
    the elements or more would be in none. None where that is so for all.
    """
    rows = min(vector_bytes // max(itemsize, 4), MOST)
    while rows >= LEAST:
        known = [extent for extent in extents if extent is not None]
        part = 1.0
        for extent in known:
            part *= extent // rows * rows / extent
        if part > 0.8:
            return rows
        rows //= 2
    return None


def mark_squares(sch: Schedule, outer: LoopRV, rows: int) -> None:
    """Marks the loop along what is written, around one along what is read and a block: both are multiples of `rows`."""
    sch.annotate(outer, SQUARES, rows)


def with_squares(sch: Schedule) -> Schedule:
    """The schedule with squares of the marked loops transposed in registers; they are no longer marked."""
    func = sch.mod["main"]
    body = _Squares()(func.body)
    return sch if body is func.body else Schedule(func.replace(body=body))


class _Squares(Mapper):
    def visit_For(self, loop: For) -> Any:
        rows = as_int(loop.annotations.get(SQUARES))
        return self.generic_visit(loop) if rows is None else _square_by_square(loop, rows)


def _square_by_square(write: For, rows: int) -> Stmt:
    """The loops along what is written and what is read, in steps of squares."""
    read = write.body
    assert isinstance(read, For) and isinstance(read.body, BlockRealize)
    realize, axes, dtype = read.body, (write, read), write.loop_var.dtype
    starts = [Var(axis.loop_var.name, dtype) for axis in axes]

    def at(*places: PrimExpr | int) -> dict[Var, PrimExpr]:
        """The values of the loops' variables at a place of a square."""
        triples = zip(axes, starts, places, strict=True)
        return {axis.loop_var: start * rows + place for axis, start, place in triples}

    body = _square(realize, at, rows, dtype)
    if as_int(realize.predicate) is None:
        each = loop(
            const(0, dtype),
            const(rows, dtype),
            lambda j: loop(const(0, dtype), const(rows, dtype), lambda i: substitute(realize, at(j, i))),
        )
        body = IfThenElse(substitute(realize.predicate, at(rows - 1, rows - 1)), body, renew_stmt(each))
    for axis, start in reversed(list(zip(axes, starts, strict=True))):
        body = axis.replace(loop_var=start, extent=const((as_int(axis.extent) or 0) // rows, dtype), body=body)
        body = body.replace(annotations={k: v for k, v in axis.annotations.items() if k != SQUARES})
    return body


def _square(realize: BlockRealize, at: Callable[..., dict[Var, PrimExpr]], rows: int, dtype: DataType) -> Stmt:
    """One square, as a block without axes."""
    block = realize.block
    store = block.body
    assert isinstance(store, BufferStore)
    values = {iv.var: value for iv, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    store = substitute(store, values)
    square, spare = (
        decl_buffer([const(rows, dtype)] * 2, store.buffer.dtype, name, scope="local") for name in ("square", "spare")
    )
    exchanged, columns = transposed(square, spare)

    def over(body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop(const(0, dtype), const(rows, dtype), body, "lane", ForKind.VECTORIZED)

    def loaded(j: int) -> Stmt:
        return over(lambda lane: BufferStore(square, substitute(store.value, at(j, lane)), [const(j, dtype), lane]))

    def stored(i: int) -> Stmt:
        def element(lane: PrimExpr) -> Stmt:
            indices = [substitute(index, at(lane, i)) for index in store.indices]
            return BufferStore(store.buffer, columns[const(i, dtype), lane], indices)

        return over(element)

    body = allocate([square, spare], *(loaded(j) for j in range(rows)), exchanged, *(stored(i) for i in range(rows)))
    reads, writes = ([BufferRegion.full(r.buffer) for r in regions] for regions in (block.reads, block.writes))
    return BlockRealize([], const(True), Block([], reads, writes, block.name_hint, body))


def vectors(rows: Buffer, lanes: int, dtype: str) -> list[BufferLoad]:
    """The rows of a buffer as vectors."""
    return [BufferLoad(rows, [const(i, dtype), Ramp(const(0, dtype), const(1, dtype), lanes)]) for i in range(lanes)]


def crossed(lanes: int, apart: int) -> tuple[Array, Array]:
    """The lanes of a pair of vectors with those exchanged that lie across: of places whose bit `apart` is 0, and 1."""
    low = [lane if not lane & apart else lanes + lane - apart for lane in range(lanes)]
    return expr_array(low), expr_array([place + apart for place in low])


def transposed(square: Buffer, spare: Buffer) -> tuple[Stmt, Buffer]:
    """What makes columns of the rows of a square, and which of the two buffers of its shape they are in then.

    A row is a vector. Of rows and lanes that are apart by a power of two, those that lie across are exchanged, for each
    power; LLVM keeps all of it in registers.
    """
    lanes, dtype = as_int(square.shape[0]) or 1, square.shape[0].dtype
    steps: list[Stmt] = []
    size = lanes // 2
    while size:
        low, high = crossed(lanes, size)
        rows = vectors(square, lanes, dtype)
        for i in range(lanes):
            if not i & size:
                pair = [rows[i], rows[i + size]]
                steps.append(BufferStore(spare, Shuffle(pair, low), rows[i].indices))
                steps.append(BufferStore(spare, Shuffle(pair, high), rows[i + size].indices))
        square, spare, size = spare, square, size // 2
    return flat_seq(steps), square
