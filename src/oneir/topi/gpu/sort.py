"""Sorting along an axis by blocks of threads: stable, by merging, with NaN greater than any number.

    each block sorts a tile of neighbours        in shared memory
    pairs of sorted runs become one              a kernel for each round, until there is one run

An element finds its place in the merged run alone: its rank in its own run, and, by bisection, in the other one. So all
elements move at the same time, and equal ones keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, StringImm, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from ...tir.buffer import Buffer, decl_buffer
from ...tir.op import if_then_else
from ...tir.stmt import AssertStmt, Evaluate, IfThenElse, Stmt, While, flat_seq
from ..index import is_empty, is_equal, ravel, require_axis, require_ndim, shape_text, size_of, unravel
from ..loops import allocate, let, loop, scalar, store
from ..sort import precedes, topk_shape
from .threads import ceil_div, launch

_LARGEST_TILE = 256
"""Elements, and threads, of a block."""
_PLACE = "int32"
"""The dtype of places along the axis."""
_MOST = 1 << 30
"""Elements along the axis: the end of a pair of runs still is a place."""


def sort(data: Tensor, axis: int = -1, is_ascend: Any = 1) -> Tensor:
    """The elements along an axis in ascending or descending order; see `topi.sort`."""
    axis = require_axis(axis, data.ndim, "sort")
    out = decl_buffer(data.shape, data.dtype, "out_buf")
    return _sorted(data, axis, bool(is_ascend), [out], [], "sort_gpu")[0]


def sort_ir(
    data: Buffer,
    values_out: Buffer,
    values_out_swap: Buffer,
    axis: int,
    is_ascend: Any,
    indices_out: Buffer | None = None,
    indices_out_swap: Buffer | None = None,
) -> Stmt:
    """The kernels that write the sorted elements of `data` and, where they are wanted, their indices: for `te.extern`.

    All buffers have the shape of `data`. The sort allocates its memory itself: the buffers for swapping are not used.
    """
    axis = require_axis(axis, len(data.shape), "sort_ir")
    outs = [values_out] if indices_out is None else [values_out, indices_out]
    for buffer in outs:
        if not all(is_equal(x, y) for x, y in zip(buffer.shape, data.shape, strict=True)):
            raise ShapeMismatch(
                f"topi.gpu.sort_ir: expected buffers of the shape {shape_text(data.shape)}, found `{buffer.name}` of "
                f"{shape_text(buffer.shape)}"
            )
    return Evaluate(0) if is_empty(data.shape) else _Sort(data, axis, bool(is_ascend), 1, outs, None).statement()


def argsort(
    data: Tensor, valid_count: Tensor | None = None, axis: int = -1, is_ascend: Any = 1, dtype: str = "float32"
) -> Tensor:
    """The indices of the elements along an axis in ascending or descending order; see `topi.argsort`."""
    axis = require_axis(axis, data.ndim, "argsort")
    if valid_count is not None:
        require_ndim(valid_count, 1, "argsort", "valid_count")
        dtype = "int32"
    out = decl_buffer(data.shape, dtype, "out_buf")
    return _sorted(data, axis, bool(is_ascend), [], [out], "argsort_gpu", valid_count)[0]


def topk(
    data: Tensor, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """The k largest elements along an axis, the smallest with `is_ascend`, in order; see `topi.topk`."""
    shape, axis = topk_shape(data, k, axis, ret_type)
    values = [] if ret_type == "indices" else [decl_buffer(shape, data.dtype, "value_buf")]
    indices = [] if ret_type == "values" else [decl_buffer(shape, dtype, "indices_buf")]
    outputs = _sorted(data, axis, bool(is_ascend), values, indices, "topk_gpu")
    return outputs if ret_type == "both" else outputs[0]


def _sorted(
    data: Tensor,
    axis: int,
    is_ascend: bool,
    values: list[Buffer],
    indices: list[Buffer],
    name: str,
    valid_count: Tensor | None = None,
) -> list[Tensor]:
    """Tensors of the sorted elements and of their indices, cut to the extents of the given output buffers."""
    outputs = [*values, *indices]
    known, wanted = as_int(data.shape[axis]), outputs[0].shape[axis]
    if known is not None and known > _MOST:
        raise InvalidValue(f"topi.gpu: expected at most {_MOST} elements along axis {axis}, found {known}")

    def body(ins: Any, outs: Any) -> Stmt:
        if is_empty(data.shape):
            return Evaluate(0)
        counts = None if valid_count is None else ins[1]
        stmt = _Sort(ins[0], axis, is_ascend, len(values), outs, counts).statement()
        if known is not None:
            return stmt
        many = f"{name}: expected at most {_MOST} elements along axis {axis}, found {data.shape[axis]}"
        stmt = AssertStmt(ops.less_equal(data.shape[axis], _MOST), StringImm(many), stmt)
        if is_equal(wanted, data.shape[axis]):
            return stmt
        enough = f"topk: expected k of at most the number of elements along axis {axis}, found {wanted}"
        return AssertStmt(ops.less_equal(wanted, data.shape[axis]), StringImm(enough), stmt)

    made = te.extern(
        [b.shape for b in outputs] if len(outputs) > 1 else [list(outputs[0].shape)],
        [data] if valid_count is None else [data, valid_count],
        body,
        name=name,
        dtype=[b.dtype for b in outputs],
        out_buffers=outputs,
        tag=name,
    )
    return made if isinstance(made, list) else [made]


class _Sort:
    """Writes the kernels. What is sorted are pairs of a key and, where indices are wanted, its place."""

    def __init__(
        self,
        source: Buffer,
        axis: int,
        is_ascend: bool,
        value_count: int,
        outs: Sequence[Buffer],
        counts: Buffer | None,
    ):
        self.source, self.axis, self.is_ascend = source, axis, is_ascend
        self.value_count, self.outs, self.counts = value_count, outs, counts
        self.others = [*source.shape[:axis], *source.shape[axis + 1 :]]
        self.dtype = source.shape[axis].dtype
        self.rows = size_of(self.others) if self.others else const(1, self.dtype)
        self.extent = source.shape[axis]
        known = as_int(self.extent)
        fitting = _LARGEST_TILE if known is None else 1 << max(0, known - 1).bit_length()
        self.tile = min(max(fitting, 2), _LARGEST_TILE)
        self.is_one_tile = known is not None and known <= self.tile
        self.fields: list[tuple[str, str]] = [("keys", source.dtype)]
        if len(outs) > value_count:
            self.fields.append(("order", _PLACE))

    def statement(self) -> Stmt:
        """All kernels, and the host's loop around those that merge runs."""
        if self.is_one_tile:
            return self._tiles(self._write)
        size = as_int(ops.multiply(self.rows, self.extent))
        index = _PLACE if size is not None and 2 * size < 1 << 31 else self.dtype
        shape = [const(2, index), ops.cast(index, self.rows), ops.cast(index, self.extent)]
        runs = [decl_buffer(shape, dtype, name) for name, dtype in self.fields]

        def keep(row: PrimExpr, place: PrimExpr, fields: list[PrimExpr]) -> Stmt:
            return flat_seq([store(run, (0, row, place), field) for run, field in zip(runs, fields, strict=True)])

        rounds = self._rounds()
        merging = loop(const(0, "int32"), rounds, lambda number: self._merged(runs, number), "round")

        def write(row: PrimExpr, place: PrimExpr) -> Stmt:
            return self._write(row, place, [run[rounds % 2, row, place] for run in runs])

        return allocate(runs, self._tiles(keep), merging, self._everywhere(write))

    def _rounds(self) -> PrimExpr:
        """How often pairs of runs are merged: the logarithm of the number of tiles, rounded up."""
        known = as_int(self.extent)
        if known is not None:
            return const((-(-known // self.tile) - 1).bit_length(), _PLACE)
        tiles = ceil_div(self.extent, self.tile)
        rounds = ops.subtract(tiles.dtype.bits, tir_op.clz(ops.subtract(tiles, 1)))
        return if_then_else(ops.greater(tiles, 1), rounds, const(0, _PLACE))  # none where the axis is empty

    def _everywhere(self, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        """A thread for each place of each row."""
        tiles = ceil_div(ops.cast(_PLACE, self.extent), self.tile)

        def one(block: PrimExpr, thread: PrimExpr) -> Stmt:
            row, place = ops.floordiv(block, tiles), ops.floormod(block, tiles) * self.tile + thread
            return let("row", row, lambda r: let("place", place, lambda p: body(r, p)))

        return launch(ops.multiply(ops.cast(_PLACE, self.rows), tiles), self.tile, one)

    def _count(self, row: PrimExpr) -> PrimExpr:
        """How many elements of a row are sorted: the first ones."""
        extent = ops.cast(_PLACE, self.extent)
        if self.counts is None:
            return extent
        before = ravel(unravel(ops.cast(self.dtype, row), self.others)[: self.axis], self.source.shape[: self.axis])
        return ops.minimum(ops.cast(_PLACE, self.counts[before]), extent)

    def _at(self, row: PrimExpr, place: PrimExpr) -> tuple[Any, ...]:
        rest = unravel(ops.cast(self.dtype, row), self.others) if self.others else []
        return (*rest[: self.axis], ops.cast(self.dtype, place), *rest[self.axis :])

    def _write(self, row: PrimExpr, place: PrimExpr, fields: list[PrimExpr]) -> Stmt:
        """Writes what stands at a place to the results, as far as they reach."""
        stmts = [
            IfThenElse(
                ops.less(place, ops.cast(_PLACE, out.shape[self.axis])),
                store(out, self._at(row, place), fields[0] if n < self.value_count else fields[1]),
            )
            for n, out in enumerate(self.outs)
        ]
        return flat_seq(stmts)

    def _tiles(self, write: Callable[[PrimExpr, PrimExpr, list[PrimExpr]], Stmt]) -> Stmt:
        """Sorts each tile in shared memory, and writes it."""
        shared = [decl_buffer((self.tile,), dtype, name, scope="shared") for name, dtype in self.fields]
        held = [scalar(f"own_{name}", dtype) for name, dtype in self.fields]
        rounds = self.tile.bit_length() - 1

        def one(row: PrimExpr, place: PrimExpr) -> Stmt:
            # The place in the tile, whose size is a power of two.
            mine = ops.bitwise_and(place, self.tile - 1)
            first = ops.subtract(place, mine)
            inside = ops.less(place, ops.cast(_PLACE, self.extent))
            source = [self.source[self._at(row, place)], place]
            loads = [store(field, (mine,), source[n]) for n, field in enumerate(shared)]
            count = ops.minimum(ops.subtract(self._count(row), first), self.tile)
            search = _Search(mine, count, self.is_ascend)

            def merge(number: PrimExpr) -> Stmt:
                width = ops.shift_left(const(1, _PLACE), number)
                hold = [store(own, (0,), field[mine]) for own, field in zip(held, shared, strict=True)]
                move = [store(field, (search.place,), own[0]) for own, field in zip(held, shared, strict=True)]
                find = search.statement(width, held[0][0], lambda i: shared[0][i])
                return flat_seq([IfThenElse(inside, flat_seq([*hold, find])), IfThenElse(inside, flat_seq(move))])

            sort = loop(const(0, _PLACE), const(rounds, _PLACE), merge, "round")
            last = IfThenElse(inside, write(row, place, [field[mine] for field in shared]))
            return allocate([*shared, *held, *search.buffers], IfThenElse(inside, flat_seq(loads)), sort, last)

        return self._everywhere(one)

    def _merged(self, runs: list[Buffer], number: PrimExpr) -> Stmt:
        """Merges pairs of runs of `tile << number` elements, from one half of the memory into the other."""
        half, width = number % 2, ops.shift_left(const(self.tile, _PLACE), number)

        def one(row: PrimExpr, place: PrimExpr) -> Stmt:
            search = _Search(place, self._count(row), self.is_ascend)
            find = search.statement(width, runs[0][half, row, place], lambda i: runs[0][half, row, i])
            move = [store(run, (1 - half, row, search.place), run[half, row, place]) for run in runs]
            merge = allocate(search.buffers, find, *move)
            return IfThenElse(ops.less(place, ops.cast(_PLACE, self.extent)), merge)

        return self._everywhere(one)


class _Search:
    """Where an element stands once its run and the other one of the pair are merged.

    Elements from `count` on stay where they are.
    """

    def __init__(self, place: PrimExpr, count: PrimExpr, is_ascend: bool):
        self.start, self.count, self.is_ascend = place, count, is_ascend
        self.low, self.high = scalar("low", _PLACE), scalar("high", _PLACE)
        self.buffers = [self.low, self.high]

    @property
    def place(self) -> PrimExpr:
        """The new place, after the statement."""
        return self.low[0]

    def statement(self, width: PrimExpr, mine: PrimExpr, key: Callable[[PrimExpr], PrimExpr]) -> Stmt:
        """Finds the place; runs have `width` elements, a power of two. `mine` is the element's own key."""
        place, low, high = self.start, self.low, self.high
        is_first = ops.equal(ops.bitwise_and(place, width), 0)
        pair = ops.subtract(place, ops.bitwise_and(place, ops.subtract(width * 2, 1)))
        second = ops.minimum(pair + width, self.count)
        begin = if_then_else(is_first, second, pair)
        end = if_then_else(is_first, ops.minimum(second + width, self.count), pair + width)

        def bisect(middle: PrimExpr) -> Stmt:
            other = key(middle)
            # Of equal elements, those of the first run stand before those of the second.
            before = if_then_else(
                is_first,
                precedes(other, mine, self.is_ascend),
                ops.logical_not(precedes(mine, other, self.is_ascend)),
            )
            return IfThenElse(before, store(low, (0,), middle + 1), store(high, (0,), middle))

        middle = ops.shift_right(low[0] + high[0], const(1, _PLACE))
        steps = [
            store(low, (0,), begin),
            store(high, (0,), end),
            While(ops.less(low[0], high[0]), let("middle", middle, bisect)),
            store(low, (0,), place + low[0] - begin - if_then_else(is_first, const(0, _PLACE), width)),
        ]
        return IfThenElse(ops.less(place, self.count), flat_seq(steps), store(low, (0,), place))
