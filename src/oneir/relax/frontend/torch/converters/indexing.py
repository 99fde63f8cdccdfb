"""Operators that read or write parts of tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....ir.expr import IntImm
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, Tuple, const
from ....struct_info import TensorStructInfo, TupleStructInfo
from ..dtypes import as_operand, is_float
from ..importer import Importer, as_shape, is_symbolic, is_tensor
from ..registry import converter, scalars_as_vectors
from .shape import broadcast_shape, matrix_transpose, product


@converter("select", "select_copy")
@scalars_as_vectors
def select(g: Importer, x: Expr, dim: int, index: Any) -> Expr:
    """The slice at an index, without the dimension."""
    place = g.axis(x, dim)
    if not is_symbolic(index):
        index = g.static(index, "the index")
        index = g.shape(x)[place] + index if index < 0 else index
    if is_symbolic(index):
        piece = op.strided_slice(x, [place], [index], [index + 1])
        return g.emit(op.squeeze(piece, [place]))
    return g.emit(op.take(x, const(index, "int64"), place))


def bounded(value: Any, extent: Any, default: Any) -> Any:
    """A bound of a slice in [0, extent], as Python's slices take it."""
    if value is None:
        return default
    if is_symbolic(value):
        return value
    if isinstance(value, IntImm):
        value = value.value
    if is_symbolic(extent):
        return extent if value >= sys.maxsize else extent + value if value < 0 else value
    return max(min(value + extent if value < 0 else value, extent), 0)


@converter("slice", "slice_copy")
def slice_(g: Importer, x: Expr, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Expr:
    """The slice [start:end:step] along a dimension."""
    place = g.axis(x, dim)
    extent = g.shape(x)[place]
    begin, stop = bounded(start, extent, 0), bounded(end, extent, extent)
    if step == 1 and not is_symbolic(begin) and begin == 0 and _same(stop, extent):
        return x
    if not any(map(is_symbolic, (begin, stop, extent))):
        # Bounds that are known are those that PyTorch gives; the operator cuts them off itself.
        begin, stop = start or 0, sys.maxsize if end is None else end
    return g.emit(op.strided_slice(x, [place], [begin], [stop], [step]))


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


@converter("narrow", "narrow_copy")
@scalars_as_vectors
def narrow(g: Importer, x: Expr, dim: int, start: Any, length: Any) -> Expr:
    """`length` elements from `start` on."""
    return slice_(g, x, dim, start, start + length)


@converter("index_select")
@scalars_as_vectors
def index_select(g: Importer, x: Expr, dim: int, index: Expr) -> Expr:
    """The slices at indices."""
    return g.emit(op.take(x, index, dim))


@converter("take")
def take(g: Importer, x: Expr, index: Expr) -> Expr:
    """The elements of the flat tensor at indices."""
    places = g.emit(op.astype(index, "int32"))
    return g.emit(op.take(x if g.ndim(x) == 1 else op.reshape(x, [-1]), places))


@converter("gather")
@scalars_as_vectors
def gather(g: Importer, x: Expr, dim: int, index: Expr, *, sparse_grad: bool = False) -> Expr:
    """The elements at indices along one dimension, one index for each element of the result."""
    if 0 in g.shape(index):
        return g.emit(op.zeros(as_shape(g.shape(index)), g.dtype(x)))  # of any number of dimensions
    return g.emit(op.gather_elements(x, index, axis=dim))


@converter("take_along_dim")
@scalars_as_vectors
def take_along_dim(g: Importer, x: Expr, indices: Expr, dim: int | None = None) -> Expr:
    """As gather, of the flat tensor if no dimension is given."""
    if dim is None:
        flat = op.reshape(x, [-1])
        return g.emit(op.gather_elements(flat, op.reshape(indices, [-1]), axis=0))
    place = g.axis(x, dim)
    have, want = (list(g.shape(v)) for v in (x, indices))
    own = have[place], want[place]
    have[place] = want[place] = 1
    common = broadcast_shape([have, want])
    have, want = ([*common[:place], extent, *common[place + 1 :]] for extent in own)
    # Unlike gather, it takes indices that count from the end.
    dtype = g.dtype(indices)
    extent = const(own[0], dtype) if isinstance(own[0], int) else op.shape_to_tensor(as_shape([own[0]]))
    counted = op.add(indices, op.astype(extent, dtype))
    indices = g.emit(op.where(op.less(indices, const(0, dtype)), counted, indices))
    return gather(g, g.broadcast(x, have), dim, g.broadcast(indices, want))


def places_of(g: Importer, x: Expr) -> list[Expr]:
    """For each dimension, where in it the elements are that are not zero; how many there are is a new symbol."""
    count = g.ndim(x)
    extents = [count, g.symbols.fresh("count")]
    places = g.block_builder.match_cast(g.emit(op.nonzero(x)), TensorStructInfo(extents, "int64"))
    return [g.emit(op.take(places, const(i, "int64"), 0)) for i in range(count)]


def _index_groups(g: Importer, x: Expr, indices: Sequence[Any]) -> tuple[list[int], list[Expr]]:
    """The dimensions that tensors index, and those tensors."""
    axes, tensors, axis = [], [], 0
    for index in indices:
        found = [index]
        if index is not None and g.dtype(index) in ("bool", "uint8"):
            # A mask over several dimensions is an index of each.
            found = places_of(g, index)
        for part in found:
            if part is not None:
                axes.append(axis)
                tensors.append(part)
            axis += 1
    return axes, tensors


@converter("index")
def index_tensor(g: Importer, x: Expr, indices: Sequence[Any]) -> Expr:
    """The elements at indices, which are tensors broadcast against each other; None leaves a dimension as it is."""
    axes, tensors = _index_groups(g, x, indices)
    if not axes:
        return x
    leading = axes == list(range(len(axes)))
    rest = [d for d in range(g.ndim(x)) if d not in axes]
    found = g.emit(op.index_tensor(x if leading else op.permute_dims(x, [*axes, *rest]), tensors))
    if leading or axes != list(range(axes[0], axes[-1] + 1)):
        return found  # indices that are apart put their dimensions first
    own = g.ndim(found) - len(rest)
    front = [own + i for i in range(axes[0])]
    back = range(own + axes[0], g.ndim(found))
    return g.emit(op.permute_dims(found, [*front, *range(own), *back]))


@converter("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    g: Importer, x: Expr, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> Expr:
    """x with values at indices."""
    if len(indices) == 1 and indices[0] is not None and g.dtype(indices[0]) == "bool":
        return _masked_put(g, x, indices[0], values, accumulate)
    axes, tensors = _index_groups(g, x, indices)
    values = as_operand(values, g.dtype(x))
    if axes == list(range(len(axes))):
        return g.emit(op.index_put(x, tuple(tensors), values, accumulate=accumulate))
    # The dimensions that are indexed come first, those of the values in the same order.
    shape = g.shape(x)
    rest = [d for d in range(len(shape)) if d not in axes]
    index_shape = broadcast_shape([g.shape(index) for index in tensors])
    before = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    left = [shape[d] for d in rest]
    extents = as_shape([*left[:before], *index_shape, *left[before:]])
    whole = op.broadcast_to(values, extents)
    if len(axes) == len(index_shape) == 1:
        slices = g.reshaped(tensors[0], [*index_shape, *[1] * len(left[before:])])
        slices = g.emit(op.broadcast_to(slices, extents))
        return g.emit(op.scatter_elements(x, slices, whole, axes[0], "add" if accumulate else "update"))
    places = range(before, before + len(index_shape))
    whole = op.permute_dims(whole, [*places, *(i for i in range(len(left) + len(index_shape)) if i not in places)])
    made = op.index_put(op.permute_dims(x, [*axes, *rest]), tuple(tensors), g.emit(whole), accumulate=accumulate)
    return g.emit(op.permute_dims(made, np.argsort([*axes, *rest]).tolist()))


def _masked_put(g: Importer, x: Expr, mask: Expr, values: Any, accumulate: bool) -> Expr:
    """x with values where a mask over its first dimensions holds: one for all, or one after the other."""
    values = g.emit(as_operand(values, g.dtype(x)))
    shape, covered = g.shape(x), g.shape(mask)
    rest = shape[len(covered) :]
    count = g.ndim(values) - len(rest)
    whole = g.emit(op.reshape(mask, as_shape([*covered, *[1] * len(rest)])))
    if count <= 0 or g.shape(values)[0] == 1:
        chosen = g.reshaped(values, g.shape(values)[max(count, 0) :])
    else:
        # The n-th element of the mask that holds has the n-th value.
        flags = op.reshape(mask, as_shape([product(covered)]))
        places = op.subtract(op.cumsum(op.astype(flags, "int32"), 0), const(1, "int32"))
        chosen = op.take(values, op.maximum(places, const(0, "int32")), axis=0, mode="clip")
        chosen = op.reshape(chosen, as_shape([*covered, *g.shape(values)[1:]]))
    return g.emit(op.where(whole, op.add(x, chosen) if accumulate else chosen, x))


_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
}


@converter("scatter")
@scalars_as_vectors
def scatter(
    g: Importer, x: Expr, dim: int, index: Expr, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Expr:
    """x with elements of `src`, or a value, at an index of one dimension."""
    updates = src if src is not None else value
    if not is_tensor(updates):
        updates = op.full_like(index, const(updates, g.dtype(x)), g.dtype(x))
    else:
        updates = _fitted(g, updates, index)
    reduction = "update" if reduce is None else _REDUCTIONS[reduce]
    return g.emit(op.scatter_elements(x, index, updates, axis=dim, reduction=reduction))


def _fitted(g: Importer, src: Expr, index: Expr) -> Expr:
    """The part of `src` that an index of a smaller shape speaks of."""
    have, want = g.shape(src), g.shape(index)
    axes = [i for i, (a, b) in enumerate(zip(have, want, strict=True)) if not _same(a, b)]
    if not axes:
        return src
    return op.strided_slice(src, axes, [0] * len(axes), [want[i] for i in axes])


@converter("scatter_add")
@scalars_as_vectors
def scatter_add(g: Importer, x: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    """x with elements of `src` added at an index of one dimension."""
    return scatter(g, x, dim, index, src, reduce="add")


_NEUTRAL = {"sum": 0, "prod": 1, "mean": 0, "amax": None, "amin": None}


def _neutral(reduce: str, dtype: str) -> Any:
    """The number that a reduction starts from."""
    known = _NEUTRAL[reduce]
    if known is not None:
        return known
    lowest = reduce == "amax"
    if is_float(dtype):
        return float("-inf") if lowest else float("inf")
    if dtype == "bool":
        return not lowest
    info = np.iinfo(dtype)
    return int(info.min if lowest else info.max)


@converter("scatter_reduce")
@scalars_as_vectors
def scatter_reduce(
    g: Importer, x: Expr, dim: int, index: Expr, src: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    """x combined with elements of `src` at an index of one dimension; without x's own if they are not included."""
    if not include_self:
        start = op.full_like(index, const(_neutral(reduce, g.dtype(x)), g.dtype(x)), g.dtype(x))
        start = g.emit(op.scatter_elements(x, index, start, axis=dim))
    else:
        start = x
    if reduce != "mean":
        return scatter(g, start, dim, index, src, reduce=reduce)
    total = scatter(g, start, dim, index, src, reduce="sum")
    ones = g.emit(op.full_like(index, const(1, "int64"), "int64"))
    own = g.emit(op.full_like(x, const(1, "int64"), "int64"))
    if not include_self:
        own = g.emit(op.scatter_elements(own, index, op.zeros_like(ones), axis=dim))
    count = g.emit(op.maximum(op.scatter_elements(own, index, ones, axis=dim, reduction="add"), const(1, "int64")))
    divide = op.divide if is_float(g.dtype(x)) else op.floor_divide
    return g.emit(divide(total, op.astype(count, g.dtype(x))))


def _along(g: Importer, x: Expr, dim: int, index: Expr, source: Expr) -> tuple[Expr, Expr]:
    """An index of slices as an index of elements; and where those come from, a tensor of the same shape."""
    shape, place = g.shape(x), g.axis(x, dim)
    count = g.shape(index)[0] if g.ndim(index) else 1
    wanted = [*shape[:place], count, *shape[place + 1 :]]
    spread = [1] * len(shape)
    spread[place] = count
    whole = g.emit(op.broadcast_to(op.reshape(index, as_shape(spread)), as_shape(wanted)))
    if g.ndim(source) == 0:
        source = g.emit(op.broadcast_to(source, as_shape(wanted)))
    return whole, source


@converter("index_copy")
@scalars_as_vectors
def index_copy(g: Importer, x: Expr, dim: int, index: Expr, source: Expr) -> Expr:
    """x with slices of `source` at indices."""
    whole, source = _along(g, x, dim, index, source)
    return g.emit(op.scatter_elements(x, whole, source, axis=g.axis(x, dim)))


@converter("index_fill")
@scalars_as_vectors
def index_fill(g: Importer, x: Expr, dim: int, index: Expr, value: Any) -> Expr:
    """x with one value in the slices at indices."""
    filling = g.emit(as_operand(value, g.dtype(x)))
    return index_copy(g, x, dim, index, g.reshaped(filling, []))


@converter("index_reduce")
@scalars_as_vectors
def index_reduce(
    g: Importer, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    """x combined with slices of `source` at indices."""
    whole, source = _along(g, x, dim, index, source)
    return scatter_reduce(g, x, dim, whole, source, reduce, include_self=include_self)


@converter("put")
def put(g: Importer, x: Expr, index: Expr, source: Expr, accumulate: bool = False) -> Expr:
    """x with elements of `source` at indices of the flat tensor."""
    shape = g.shape(x)
    flat, places, values = (g.emit(op.reshape(v, as_shape([product(g.shape(v))]))) for v in (x, index, source))
    made = op.scatter_elements(flat, places, values, axis=0, reduction="add" if accumulate else "update")
    return g.emit(op.reshape(made, as_shape(shape)))


@converter("index_add")
@scalars_as_vectors
def index_add(g: Importer, x: Expr, dim: int, index: Expr, source: Expr, *, alpha: Any = 1) -> Expr:
    """x with slices of `source` added at indices."""
    if alpha != 1:
        source = g.emit(op.multiply(source, const(alpha, g.dtype(source))))
    whole, source = _along(g, x, dim, index, source)
    return g.emit(op.scatter_elements(x, whole, source, axis=g.axis(x, dim), reduction="add"))


@converter("slice_scatter")
def slice_scatter(
    g: Importer, x: Expr, src: Expr, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Expr:
    """x with `src` in the slice [start:end:step]."""
    extent = g.shape(x)[g.axis(x, dim)]
    begin, stop = bounded(start, extent, 0), bounded(end, extent, extent)
    if step == 1 and not is_symbolic(begin) and begin == 0 and _same(stop, extent):
        return src
    return g.emit(op.slice_scatter(x, src, begin, stop, step, axis=dim))


@converter("linalg_diagonal")
def linalg_diagonal(g: Importer, x: Expr, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Expr:
    """A diagonal of two dimensions, as the last one."""
    shape, first, second = g.shape(x), g.axis(x, dim1), g.axis(x, dim2)
    rows, columns = (g.static(shape[a], "an extent of a diagonal") for a in (first, second))
    places = np.flatnonzero(np.eye(rows, columns, offset, dtype=bool))
    rest = [a for a in range(g.ndim(x)) if a not in (first, second)]
    flat = op.reshape(op.permute_dims(x, [*rest, first, second]), as_shape([*(shape[a] for a in rest), rows * columns]))
    return g.emit(op.take(flat, const(places, "int64"), len(rest)))


@converter("diagonal_scatter")
def diagonal_scatter(g: Importer, x: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    """x with `src` in a diagonal of two dimensions."""
    shape, first, second = g.shape(x), g.axis(x, dim1), g.axis(x, dim2)
    rows, columns = (g.static(shape[a], "an extent of a diagonal") for a in (first, second))
    on = np.eye(rows, columns, offset, dtype=bool)
    start = max(-offset, 0)
    places = np.clip(np.arange(rows) - start, 0, max(min(rows - start, columns - max(offset, 0)) - 1, 0))
    spread = op.take(src, const(places, "int64"), g.ndim(src) - 1)
    rest = [a for a in range(g.ndim(x)) if a not in (first, second)]
    moved = op.permute_dims(x, [*rest, first, second])
    made = g.emit(op.where(const(on, "bool"), op.expand_dims(spread, -1), moved))
    return g.emit(op.permute_dims(made, np.argsort([*rest, first, second]).tolist()))


@converter("select_scatter")
def select_scatter(g: Importer, x: Expr, src: Expr, dim: int, index: Any) -> Expr:
    """x with `src` at an index."""
    extent = g.shape(x)[g.axis(x, dim)]
    begin = bounded(index, extent, 0)
    return g.emit(op.slice_scatter(x, op.expand_dims(src, dim), begin, begin + 1, 1, axis=dim))


@converter("masked_scatter")
def masked_scatter(g: Importer, x: Expr, mask: Expr, source: Expr) -> Expr:
    """x with the elements of `source`, in their order, where the mask holds."""
    shape = broadcast_shape([g.shape(x), g.shape(mask)])
    x, mask = (g.emit(op.broadcast_to(v, as_shape(shape))) for v in (x, mask))
    flags = op.reshape(mask, as_shape([product(shape)]))
    places = op.subtract(op.cumsum(op.astype(flags, "int32"), 0), const(1, "int32"))
    elements = op.reshape(source, as_shape([product(g.shape(source))]))
    found = op.take(elements, op.maximum(places, const(0, "int32")), axis=0, mode="clip")
    return g.emit(op.where(mask, op.reshape(found, as_shape(g.shape(x))), x))


@converter("getitem")
def getitem(g: Importer, x: Any, index: Any) -> Any:
    """An element of a tuple, or a part of a tensor by Python's indexing."""
    if isinstance(x, (list, tuple)):
        return x[index]
    if isinstance(x, Tuple):
        return x.fields[index]
    if isinstance(x.struct_info, TupleStructInfo):
        return g.emit(x[index])
    return index_like_python(g, x, index if isinstance(index, tuple) else (index,))


def index_like_python(g: Importer, x: Expr, index: tuple[Any, ...]) -> Expr:
    """x[index]: integers, slices, None, an ellipsis, and tensors."""
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    whole = (slice(None),) * (g.ndim(x) - used)
    if Ellipsis in [i for i in index if not is_tensor(i)]:
        at = next(k for k, i in enumerate(index) if i is Ellipsis)
        index = index[:at] + whole + index[at + 1 :]
    axis, tensors = 0, []
    for part in index:
        if part is None:
            x = g.emit(op.expand_dims(x, axis))
            tensors.append(None)
            axis += 1
        elif isinstance(part, slice):
            x = slice_(g, x, axis, part.start, part.stop, 1 if part.step is None else part.step)
            tensors.append(None)
            axis += 1
        elif is_tensor(part):
            tensors.append(part)
            axis += 1
        else:
            x = select(g, x, axis, part)
    return x if all(t is None for t in tensors) else index_tensor(g, x, tensors)


@converter("setitem")
def setitem(g: Importer, x: Expr, index: Any, value: Any) -> Expr:
    """Raises `UnsupportedError`: traced modules do not show which other values share the written memory."""
    raise UnsupportedError(
        "writing into a part of a tensor; use torch.where or torch.slice_scatter, or import by torch.export"
    )


@converter("getattr")
def getattr_(g: Importer, x: Any, name: str) -> Any:
    """What a traced module asks of a tensor."""
    if name == "shape":
        return g.shape(x)
    if name == "dtype":
        return g.dtype(x)
    if name == "ndim":
        return g.ndim(x)
    if name in ("T", "mT"):
        return matrix_transpose(g, x)
    if name in ("device", "requires_grad", "layout"):
        return None
    if name == "data":
        return x
    raise UnsupportedError(f"the attribute `{name}` of a tensor")
