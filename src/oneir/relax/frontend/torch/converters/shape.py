"""Operators that move elements and change none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..... import topi
from .....ir import operators
from .....ir.expr import IntImm, PrimExpr
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, Tuple, const
from ....struct_info import ShapeStructInfo
from ..dtypes import cast, unified
from ..importer import Importer, as_shape, fields_of, is_symbolic, is_tensor
from ..registry import NotDecomposable, converter, scalars_as_vectors


def flat(values: Sequence[Any]) -> list[Any]:
    """Integers that were given one by one or as one list."""
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        return list(values[0])
    return list(values)


def product(extents: Sequence[Any]) -> Any:
    """The product of extents."""
    result: Any = 1
    for extent in extents:
        result = result * extent
    return result


@converter("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias")
def reshape(g: Importer, x: Expr, *shape: Any, size: Any = None) -> Expr:
    """The elements in another shape, of which one extent may be -1."""
    extents = flat(shape) if size is None else list(size)
    if not all(isinstance(e, (int, PrimExpr)) for e in extents):
        raise UnsupportedError(f"view as another dtype, {extents}; use .to(dtype), or reinterpret the data before")
    if -1 in extents and g.expected is not None:
        return g.emit(op.reshape(x, as_shape(g.expected)))
    return g.emit(op.reshape(x, extents if -1 in extents else as_shape(extents)))


@converter("view_as", "reshape_as")
def reshape_as(g: Importer, x: Expr, other: Expr) -> Expr:
    """The elements in the shape of another tensor."""
    return g.emit(op.reshape(x, as_shape(g.shape(other))))


@converter("flatten")
def flatten(g: Importer, x: Expr, start_dim: int = 0, end_dim: int = -1) -> Expr:
    """Neighbouring dimensions as one."""
    shape = g.shape(x)
    if not shape:
        return g.emit(op.reshape(x, [1]))
    first, last = g.axis(x, start_dim), g.axis(x, end_dim)
    return g.emit(op.reshape(x, as_shape([*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]])))


@converter("unflatten")
def unflatten(g: Importer, x: Expr, dim: int, sizes: Any) -> Expr:
    """A dimension as several."""
    shape, place = g.shape(x), g.axis(x, dim)
    return g.emit(op.reshape(x, [*shape[:place], *sizes, *shape[place + 1 :]]))


@converter("unsqueeze", "unsqueeze_copy")
def unsqueeze(g: Importer, x: Expr, dim: int) -> Expr:
    """A new dimension of extent 1."""
    return g.emit(op.expand_dims(x, dim))


@converter("squeeze", "squeeze_copy")
def squeeze(g: Importer, x: Expr, *dim: Any) -> Expr:
    """The tensor without dimensions of extent 1: all, or those given that have it."""
    shape = g.shape(x)
    if not dim or dim[0] is None:
        return g.emit(op.squeeze(x)) if 1 in shape else x
    places = [d for d in flat(dim) if shape and shape[g.axis(x, d)] == 1 and not is_symbolic(shape[g.axis(x, d)])]
    return g.emit(op.squeeze(x, places)) if places else x


@converter("permute", "permute_copy")
def permute(g: Importer, x: Expr, *dims: Any) -> Expr:
    """The dimensions in another order."""
    return g.emit(op.permute_dims(x, flat(dims)))


@converter("transpose", "swapaxes", "swapdims", "transpose_copy")
def transpose(g: Importer, x: Expr, dim0: int, dim1: int) -> Expr:
    """Two dimensions exchanged."""
    axes = list(range(g.ndim(x)))
    first, second = g.axis(x, dim0), g.axis(x, dim1)
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return g.emit(op.permute_dims(x, axes))


@converter("t", "t_copy", "numpy_T", "mT", "mH", "matrix_H", "adjoint")
def matrix_transpose(g: Importer, x: Expr) -> Expr:
    """The last two dimensions exchanged."""
    return x if g.ndim(x) < 2 else transpose(g, x, -2, -1)


@converter("movedim", "moveaxis")
def movedim(g: Importer, x: Expr, source: Any, destination: Any) -> Expr:
    """The tensor with dimensions moved to other positions."""
    sources = [g.axis(x, d) for d in ([source] if isinstance(source, int) else source)]
    targets = [g.axis(x, d) for d in ([destination] if isinstance(destination, int) else destination)]
    order = [d for d in range(g.ndim(x)) if d not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        order.insert(target, origin)
    return g.emit(op.permute_dims(x, order))


@converter("expand", "broadcast_to", "expand_copy")
def expand(g: Importer, x: Expr, *sizes: Any, size: Any = None, implicit: bool = False) -> Expr:
    """The tensor repeated along dimensions of extent 1 and new ones in front; -1 leaves a dimension as it is."""
    wanted, shape = (flat(sizes) if size is None else list(size)), g.shape(x)
    new = len(wanted) - len(shape)
    extents = [shape[i - new] if isinstance(e, int) and e == -1 else e for i, e in enumerate(wanted)]
    return g.emit(op.broadcast_to(x, as_shape(extents)))


@converter("expand_as")
def expand_as(g: Importer, x: Expr, other: Expr) -> Expr:
    """The tensor in the shape of another."""
    return g.emit(op.broadcast_to(x, as_shape(g.shape(other))))


@converter("repeat", "tile")
def tile(g: Importer, x: Expr, *dims: Any) -> Expr:
    """The whole tensor several times along each dimension."""
    times = [d.value if isinstance(d, IntImm) else d for d in flat(dims)]
    if not any(is_symbolic(t) for t in times):
        return g.emit(op.tile(x, times))
    # Each dimension behind one that counts the repetitions.
    shape = g.shape(x)
    shape = [1] * (len(times) - len(shape)) + shape
    times = [1] * (len(shape) - len(times)) + times
    apart = [extent for own in shape for extent in (1, own)]
    together = [extent for both in zip(times, shape, strict=True) for extent in both]
    repeated = op.broadcast_to(op.reshape(x, as_shape(apart)), as_shape(together))
    return g.emit(op.reshape(repeated, as_shape([t * e for t, e in zip(times, shape, strict=True)])))


@converter("repeat_interleave.self_int", "repeat_interleave")
def repeat_interleave(
    g: Importer, x: Expr, repeats: Any = None, dim: int | None = None, *, output_size: Any = None
) -> Expr:
    """Each element repeated: a number of times, or for each element the number that a tensor has."""
    if not is_tensor(repeats):
        return g.emit(op.repeat(x, g.static(repeats, "repeats"), dim))
    if dim is None:
        x, dim = g.emit(op.reshape(x, [-1])), 0
    length = g.shape(x)[g.axis(x, dim)]
    repeats = g.emit(op.broadcast_to(repeats, as_shape([length])))
    return g.emit(op.take(x, repeated_places(g, repeats, output_size=output_size), g.axis(x, dim)))


@converter("repeat_interleave.Tensor")
def repeated_places(g: Importer, repeats: Expr, *, output_size: Any = None) -> Expr:
    """Indices for repetition: `repeats[0]` times 0, then `repeats[1]` times 1, and so on."""
    ends = g.emit(op.cumsum(op.astype(repeats, "int64"), 0))
    if output_size is None:
        last = g.emit(op.tensor_to_shape(op.reshape(op.max(ends), [1])))
        output_size = g.symbols.fresh("count")
        g.block_builder.match_cast(last, ShapeStructInfo([output_size]))
    places = op.expand_dims(op.arange(0, output_size, 1, "int64"), 1)
    return g.emit(op.sum(op.astype(op.less_equal(op.expand_dims(ends, 0), places), "int64"), 1))


@converter("cat", "concat", "concatenate")
def cat(g: Importer, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """Tensors one after the other along a dimension."""
    return g.emit(op.concat(unified(*_without_placeholders(g, tensors)), axis=dim))


def _without_placeholders(g: Importer, tensors: Sequence[Expr]) -> list[Expr]:
    """The tensors to concatenate: PyTorch ignores those of shape (0,)."""
    kept = [t for t in tensors if g.shape(t) != [0]]
    return kept or list(tensors)


@converter("stack")
def stack(g: Importer, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """Tensors along a new dimension."""
    return g.emit(op.stack(unified(*tensors), axis=dim))


converter("hstack")(lambda g, tensors: cat(g, tensors, 0 if g.ndim(tensors[0]) == 1 else 1))
converter("vstack")(lambda g, tensors: stack(g, tensors, 0) if g.ndim(tensors[0]) == 1 else cat(g, tensors, 0))


def _extent(g: Importer, x: Expr, dim: int) -> int:
    return g.static(g.shape(x)[g.axis(x, dim)], f"the extent of dimension {dim}, which is cut,")


def cut(g: Importer, x: Expr, sizes: Sequence[Any], dim: int) -> Any:
    """Pieces of the given sizes along a dimension, as a tuple."""
    if len(sizes) == 1:
        return (x,)
    if any(is_symbolic(size) for size in sizes):
        ends = list(accumulate(sizes))
        place = g.axis(x, dim)
        bounds = zip([0, *ends], ends, strict=False)
        return tuple(g.emit(op.strided_slice(x, [place], [begin], [end])) for begin, end in bounds)
    places: list[int] = []
    for size in sizes[:-1]:
        places.append((places[-1] if places else 0) + size)
    even = len(set(sizes)) == 1
    return g.emit(op.split(x, len(sizes) if even else places, dim))


@converter(
    "split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "unsafe_split", "unsafe_split_with_sizes"
)
def split(g: Importer, x: Expr, split_size_or_sections: Any, dim: int = 0) -> Any:
    """A dimension cut into pieces of one size, the last maybe smaller, or of the given sizes."""
    if isinstance(split_size_or_sections, (list, tuple)):
        return cut(g, x, split_size_or_sections, dim)
    if is_symbolic(g.shape(x)[g.axis(x, dim)]) and g.expected_parts is not None:
        return cut(g, x, [shape[g.axis(x, dim)] for shape in g.expected_parts], dim)
    size, extent = g.static(split_size_or_sections, "the size of a piece"), _extent(g, x, dim)
    return cut(g, x, _sizes(extent, size), dim)


def _sizes(extent: int, size: int) -> list[int]:
    return [min(size, extent - begin) for begin in range(0, extent, size)] or [extent]


@converter("chunk", "unsafe_chunk")
def chunk(g: Importer, x: Expr, chunks: int, dim: int = 0) -> Any:
    """A dimension cut into at most so many pieces of one size."""
    symbolic = g.shape(x)[g.axis(x, dim)]
    if is_symbolic(symbolic) and g.block_builder.analyzer.can_prove_equal(symbolic % chunks, 0):
        return cut(g, x, [g.block_builder.analyzer.simplify(symbolic // chunks)] * chunks, dim)
    if is_symbolic(g.shape(x)[g.axis(x, dim)]) and g.expected_parts is not None:
        return cut(g, x, [shape[g.axis(x, dim)] for shape in g.expected_parts], dim)
    extent = _extent(g, x, dim)
    return cut(g, x, _sizes(extent, -(-extent // chunks)), dim)


@converter("tensor_split")
def tensor_split(g: Importer, x: Expr, indices_or_sections: Any, dim: int = 0) -> Any:
    """A dimension split into a number of pieces, the first ones longer by one, or at given indices."""
    if is_tensor(indices_or_sections):
        raise NotDecomposable("tensor_split at places that are data gives tensors whose shapes depend on data")
    extent = _extent(g, x, dim)
    if isinstance(indices_or_sections, (list, tuple)):
        places = [0, *(min(p % (extent + 1) if p < 0 else p, extent) for p in indices_or_sections), extent]
        return cut(g, x, [b - a for a, b in pairwise(places)], dim)
    each, longer = divmod(extent, indices_or_sections)
    return cut(g, x, [each + (i < longer) for i in range(indices_or_sections)], dim)


@converter("unbind", "unbind_copy")
def unbind(g: Importer, x: Expr, dim: int = 0) -> Any:
    """The slices along a dimension, each without it."""
    count = _extent(g, x, dim)
    if count == 1:
        return (g.emit(op.squeeze(x, [dim])),)
    pieces = g.emit(op.split(x, count, dim))
    return g.emit(Tuple([g.emit(op.squeeze(piece, [dim])) for piece in fields_of(pieces)]))


def _split_at(name: str, axis: int) -> None:
    def convert(g: Importer, x: Expr, indices_or_sections: Any) -> Any:
        return tensor_split(g, x, indices_or_sections, 0 if g.ndim(x) == 1 else axis)

    converter(name)(convert)


_split_at("vsplit", 0)
_split_at("hsplit", 1)
_split_at("dsplit", 2)
converter("ravel")(lambda g, x: g.emit(op.reshape(x, as_shape([product(g.shape(x))]))))


def _at_least(rank: int) -> None:
    """A tensor of at least so many dimensions; new ones have extent 1, the third one is the last."""

    def one(g: Importer, x: Expr) -> Expr:
        shape = g.shape(x)
        missing = rank - len(shape)
        if missing <= 0:
            return x
        after = 1 if rank == 3 and shape else 0
        return g.reshaped(x, [*[1] * (missing - after), *shape, *[1] * after])

    def convert(g: Importer, *tensors: Any) -> Any:
        return one(g, tensors[0]) if is_tensor(tensors[0]) else tuple(one(g, x) for x in flat(tensors))

    converter(f"atleast_{rank}d")(convert)


for _rank in (1, 2, 3):
    _at_least(_rank)


@converter("cartesian_prod")
def cartesian_prod(g: Importer, *tensors: Any) -> Expr:
    """All combinations of the elements of vectors, a row each."""
    values = flat(tensors)
    if len(values) == 1:
        return values[0]
    grids = fields_of(meshgrid(g, values))
    return g.emit(op.stack([op.reshape(grid, as_shape([product(g.shape(grid))])) for grid in grids], 1))


@converter("as_strided", "as_strided_copy")
def as_strided(g: Importer, x: Expr, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Expr:
    """Elements of the memory of x by strides; x must be contiguous and cover its whole storage."""
    places = _strided_places(g, size, stride, storage_offset)
    elements = op.reshape(x, as_shape([product(g.shape(x))]))
    found = g.emit(op.take(elements, const(places.reshape(-1), "int64"), axis=0))
    return g.reshaped(found, places.shape)


@converter("as_strided_scatter", "prims::as_strided_scatter")
def as_strided_scatter(
    g: Importer, x: Expr, src: Expr, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> Expr:
    """x with the elements that as_strided takes replaced."""
    places = _strided_places(g, size, stride, storage_offset)
    elements = op.reshape(x, as_shape([product(g.shape(x))]))
    values = op.reshape(src, as_shape([places.size]))
    made = op.scatter_elements(elements, const(places.reshape(-1), "int64"), values, axis=0)
    return g.reshaped(g.emit(made), g.shape(x))


def _strided_places(g: Importer, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any) -> np.ndarray:
    """Where in memory the elements are that as_strided takes."""
    if not g.is_contiguous:
        raise NotDecomposable("as_strided of a view; use indexing, or x.contiguous() before")
    sizes, strides = ([g.static(v, "a size or stride of as_strided") for v in values] for values in (size, stride))
    places = np.full(sizes, g.static(storage_offset or 0, "the offset of as_strided"), "int64")
    for axis, step in enumerate(strides):
        places += step * np.arange(sizes[axis]).reshape([-1, *[1] * (len(sizes) - axis - 1)])
    return places


@converter("flip")
@scalars_as_vectors
def flip(g: Importer, x: Expr, *dims: Any) -> Expr:
    """The elements in reverse order along dimensions."""
    for dim in flat(dims):
        x = g.emit(op.flip(x, dim))
    return x


converter("fliplr")(lambda g, x: flip(g, x, 1))
converter("flipud")(lambda g, x: flip(g, x, 0))


@converter("roll")
@scalars_as_vectors
def roll(g: Importer, x: Expr, shifts: Any, dims: Any = ()) -> Expr:
    """The elements moved along dimensions, those that leave at one end entering at the other."""
    shape = g.shape(x)
    amounts = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    places = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if not places:
        rolled = roll(g, g.emit(op.reshape(x, [-1])), amounts, [0])
        return g.emit(op.reshape(rolled, as_shape(shape)))
    for amount, dim in zip(amounts, places, strict=True):
        extent = _extent(g, x, dim)
        amount = g.static(amount, "shifts") % max(extent, 1)
        if amount:
            axis = g.axis(x, dim)
            front = g.emit(op.strided_slice(x, [axis], [0], [extent - amount], [1]))
            back = g.emit(op.strided_slice(x, [axis], [extent - amount], [extent], [1]))
            x = g.emit(op.concat([back, front], axis=axis))
    return x


@converter("pixel_shuffle")
def pixel_shuffle(g: Importer, x: Expr, upscale_factor: int) -> Expr:
    """Channels as pixels of larger images."""
    return g.emit(op.nn.pixel_shuffle(x, upscale_factor))


@converter("pixel_unshuffle")
def pixel_unshuffle(g: Importer, x: Expr, downscale_factor: int) -> Expr:
    """Pixels as channels of smaller images."""
    *batch, channels, height, width = g.shape(x)
    factor, n = downscale_factor, len(batch)
    parts = [*batch, channels, height // factor, factor, width // factor, factor]
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    moved = op.permute_dims(op.reshape(x, as_shape(parts)), order)
    out = [*batch, channels * factor * factor, height // factor, width // factor]
    return g.emit(op.reshape(moved, as_shape(out)))


@converter("channel_shuffle")
def channel_shuffle(g: Importer, x: Expr, groups: int) -> Expr:
    """Channels of groups in turn."""
    batch, channels, *rest = g.shape(x)
    parts = op.reshape(x, as_shape([batch, groups, channels // groups, *rest]))
    moved = op.permute_dims(parts, [0, 2, 1, *range(3, 3 + len(rest))])
    return g.emit(op.reshape(moved, as_shape([batch, channels, *rest])))


@converter("meshgrid")
def meshgrid(g: Importer, *tensors: Any, indexing: str | None = None) -> Expr:
    """The coordinates of a grid."""
    if isinstance(tensors[-1], str):
        indexing, tensors = tensors[-1], tensors[:-1]
    vectors = [g.reshaped(x, [1]) if g.is_scalar(x) else x for x in flat(tensors)]
    return g.emit(op.meshgrid(vectors, indexing=indexing or "ij"))


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


@converter("pad", "constant_pad_nd")
def pad(g: Importer, x: Expr, pad: Sequence[Any], mode: str | float = "constant", value: float | None = None) -> Expr:
    """Elements before and after dimensions, the last one's first: [before, after, before of the one before it, ...]."""
    if not isinstance(mode, str):
        mode, value = "constant", mode
    if mode not in _PAD_MODES:
        raise UnsupportedError(f"pad with mode={mode!r}; modes are {', '.join(_PAD_MODES)}")
    if mode == "constant" and any(is_symbolic(a) for a in pad):
        missing = [0] * (2 * g.ndim(x) - len(pad))
        amounts = [*pad, *missing][::-1]
        return g.emit(g.block_builder.call_te(topi.nn.pad, x, amounts[1::2], amounts[::2], value or 0))
    amounts = [g.static(a, "padding") for a in pad]
    pairs = [amounts[i : i + 2] for i in range(0, len(amounts), 2)]
    pairs += [[0, 0]] * (g.ndim(x) - len(pairs))
    fewer = [[min(a, 0) for a in pair] for pair in pairs]
    more = [[max(a, 0) for a in pair] for pair in pairs]
    if mode in ("constant", "circular"):
        return _widened(g, _cropped(g, x, fewer), more, mode, value)
    # What is reflected or replicated is what PyTorch would repeat without the negative amounts.
    return _cropped(g, _widened(g, x, more, mode, value), fewer)


def _widened(g: Importer, x: Expr, pairs: list[list[int]], mode: str, value: float | None) -> Expr:
    width = [a for pair in reversed(pairs) for a in pair]
    if not any(width):
        return x
    if g.dtype(x) == "bool":
        value = bool(value)
    return g.emit(op.nn.pad(x, width, mode, 0.0 if value is None else value))


def _cropped(g: Importer, x: Expr, pairs: list[list[int]]) -> Expr:
    """Negative padding takes elements away."""
    shape, n = g.shape(x), g.ndim(x)
    axes = [n - 1 - i for i, pair in enumerate(pairs) if any(pair)]
    if not axes:
        return x
    begin = [-pairs[n - 1 - a][0] for a in axes]
    end = [shape[a] + pairs[n - 1 - a][1] for a in axes]
    return g.emit(op.strided_slice(x, axes, begin, end))


for _name, _mode in (("reflection_pad", "reflect"), ("replication_pad", "replicate")):
    for _rank in (1, 2, 3):
        converter(f"{_name}{_rank}d")(lambda g, x, padding, _mode=_mode: pad(g, x, padding, _mode))


@converter(
    "contiguous",
    "clone",
    "detach",
    "lift_fresh_copy",
    "lift_fresh",
    "alias",
    "identity",
    "requires_grad",
    "cpu",
    "cuda",
    "positive",
    "resolve_conj",
    "resolve_neg",
    "alias_copy",
    "data",
    "real",
    "conj",
    "conj_physical",
    "_conj",
    "_conj_physical",
    "lift",
)
def identity(g: Importer, x: Expr, *args: Any) -> Expr:
    """x itself."""
    return x


@converter("sym_size", "size")
def size(g: Importer, x: Expr, dim: int | None = None) -> Any:
    """The extent of a dimension, or all."""
    shape = g.shape(x)
    return shape if dim is None else shape[g.axis(x, dim)]


@converter("numel", "sym_numel")
def numel(g: Importer, x: Expr) -> Any:
    """The number of elements."""
    return product(g.shape(x))


converter("sym_max")(lambda g, a, b: operators.maximum(a, b))
converter("sym_min")(lambda g, a, b: operators.minimum(a, b))


converter("dim", "ndimension")(lambda g, x: g.ndim(x))


@converter("item", "_local_scalar_dense")
def item(g: Importer, x: Expr) -> Expr:
    """The element of a tensor that has one."""
    return g.emit(op.take(g.reshaped(x, [1]), const(0, "int64"), axis=0))


@converter("broadcast_tensors")
def broadcast_tensors(g: Importer, *tensors: Any) -> Any:
    """Tensors repeated to one shape."""
    values = flat(tensors)
    shape = broadcast_shape([g.shape(value) for value in values])
    return tuple(expand(g, value, shape) for value in values)


def broadcast_shape(shapes: Sequence[list[Any]]) -> list[Any]:
    """The shape that shapes broadcast to; extents that are not known to be 1 are taken to agree."""
    result: list[Any] = []
    for own in shapes:
        result = [1] * (len(own) - len(result)) + result
        offset = len(result) - len(own)
        for i, extent in enumerate(own):
            if isinstance(result[offset + i], int) and result[offset + i] == 1:
                result[offset + i] = extent
    return result


@converter("copy")
def copy(g: Importer, x: Expr, source: Expr) -> Expr:
    """The source in the shape and dtype of x."""
    source = cast(source, g.dtype(x))
    return source if g.shape(source) == g.shape(x) else g.emit(op.broadcast_to(source, as_shape(g.shape(x))))


@converter(
    "_assert_tensor_metadata",
    "complex::_assert_tensor_metadata",
    "_assert_async",
    "_assert_scalar",
    "_linalg_check_errors",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
    "_assert",
)
def checked_while_tracing(g: Importer, *args: Any, **kwargs: Any) -> None:
    """An assertion of PyTorch about its example inputs, which struct info expresses already."""
