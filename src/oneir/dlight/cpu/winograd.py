"""Convolutions of 3×3 weights with fewer products: Winograd's minimal filtering.

A tile of m×m results needs (m + 2)² products for each pair of channels instead of 9 m²:

    Y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A

The weights' part is computed while compiling. The data's part V and the results' part are sums of a few elements; what
is between them is one matrix product over channels for each of the (m + 2)² places in a tile, a contraction as any.

The points of interpolation decide the error: 0, ±3/4, ±3/2 and infinity make that of 4×4 tiles about a fifth of what
0, ±1, ±2 give, and their products are exact in float32.
(S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, arXiv:1509.09308.)

V and the products are several times as large as image and results. Where an image has enough tiles, they are therefore
those of a band at a time, which is a row of tiles and one group of channels: then they stay in the second-level cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.dtype import DataType
from ...ir.expr import Add, FloatImm, IntImm, PrimExpr, Range, Var, as_int, const
from ...ir.visitor import Mapper
from ...runtime.tensor import Tensor, empty
from ...target.cpu import CPUInfo
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.op import if_then_else
from ...tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    SeqStmt,
    Stmt,
    stmt_list,
)
from ...tir.stmt_functor import loads, substitute
from ..analysis.leaves import extent_of
from .bands import BANDS
from .depthwise import group_of
from .register_tile import panel_of_rows

Extent = int | PrimExpr

POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.75, -0.75, 1.5, -1.5)}
"""The finite points of interpolation, by the size of a tile of results."""


_FLOATS = ("float32", "float16", "bfloat16")
"""Of images. Transformed, those of half precision are float32, as weights and products are, and so are results until
they are stored."""


@functools.cache
def matrices(tile: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Aᵀ, G and Bᵀ for tiles of so many results and three weights."""
    points = POINTS[tile]
    size = tile + 2
    a, g, b = np.zeros((size, tile)), np.zeros((size, 3)), np.zeros((size, size))
    for i, point in enumerate(points):
        others = [other for j, other in enumerate(points) if j != i]
        a[i] = point ** np.arange(tile)
        g[i] = point ** np.arange(3) / np.prod([point - other for other in others])
        b[i, :-1] = np.poly(others)[::-1]
    a[-1, -1] = g[-1, -1] = 1.0
    b[-1] = np.poly(points)[::-1]
    return a.T, g, b


@dataclass(frozen=True)
class Winograd:
    """Weights as tiles of results of `tile`×`tile` want them: (m + 2, m + 2, `groups`, panels, channels, `width`).

    `axes` are the dimensions of the weights that are channels of the result, of the data, and the two of the window.
    Panels and channels are those of a group.
    """

    axes: tuple[int, int, int, int]
    tile: int
    width: int
    groups: int

    def shape(self, shape: Sequence[PrimExpr]) -> list[PrimExpr]:
        """The shape in memory of weights of that shape."""
        results, channels = (shape[axis] for axis in self.axes[:2])
        assert isinstance(results, IntImm)
        size, panels = self.tile + 2, -(-results.value // self.groups // self.width)
        known = [const(extent, results.dtype) for extent in (size, size, self.groups, panels, self.width)]
        return [*known[:4], channels, known[4]]

    def in_memory(self, data: np.ndarray) -> Tensor:
        """Weights transformed, in double precision until the end, panel by panel: float32, also of shorter floats."""
        _, g, _ = matrices(self.tile)
        size = self.tile + 2
        weights = data.transpose(self.axes)
        results, channels = len(weights) // self.groups, weights.shape[1]
        panels = -(-results // self.width)
        packed = empty((size, size, self.groups, panels, channels, self.width), "float32")
        memory = np.asarray(packed)
        for group, panel in np.ndindex(self.groups, panels):
            first = panel * self.width
            part = weights[group * results :][first : min(first + self.width, results)]
            count = len(part)
            windows = np.ascontiguousarray(part.transpose(2, 3, 1, 0), np.float64)
            # One dimension of the window after the other: BLAS computes so small products at once, without threads.
            rows = (g @ windows.reshape(3, -1)).reshape(size, 3, -1)
            memory[:, :, group, panel, :, :count] = (g @ rows).reshape(size, size, channels, count)
            memory[:, :, group, panel, :, count:] = 0
        return packed


WEIGHT, BETWEEN = 13, 12
"""What an element of weights costs, and one of V or of the products, which is written and read in the caches and for
which about six additions are made: as many products as that, for each multiply-add of vectors that begins in a cycle.

On an Emerald Rapids with two, 24 fit 15 convolutions in three forms; there, with 26 for weights, ResNet-50, RegNet,
Inception and DenseNet take 0.95 to 1.0 of the time that they take with 16, which is what weights in a cache cost. On a
Zen 4 with one, ResNet-50 and MobileViT take 0.95 of the time that they take with 26 and 24. Of 81 convolutions there,
their weights in a cache, these choose forms that take 1.13 of the best ones' time, where 26 and 24 took 1.31. What is
left are images of 7×7: weights cost next to nothing there (1.03 with 6), but whole models took as long with 6.
"""


def winograd_for(
    block: Block, data: BufferLoad, weight: BufferLoad, depth: Var, channel: Var, info: CPUInfo
) -> Winograd | None:
    """The transformation that makes a convolution, perhaps of groups of channels, fastest; None where the direct form
    is fastest, and for other functions.
    """
    window = _window(block, data, weight, depth, channel)
    lanes = info.vector_bytes // 4
    extents = {iv.var: extent_of(iv) for iv in block.iter_vars}
    channels, results = as_int(extents[depth]), as_int(extents[channel])
    if window is None or data.dtype not in _FLOATS or channels is None or results is None or lanes < 4:
        return None
    groups = _groups(data, depth, channel, channels, results)
    image = data.indices[0]
    if groups is None or groups * channels % lanes or results % (groups * lanes) or not isinstance(image, Var):
        return None
    results //= groups
    (_, rows), (_, columns) = window
    images = as_int(extents[image]) or 1
    height, width = _usual(extents[rows]), _usual(extents[columns])

    of_weight, of_between = WEIGHT * info.multiply_adds, BETWEEN * info.multiply_adds

    def time(tile: int) -> int:
        # In products of one element, for one group.
        if tile == 1:
            return 9 * channels * results * (images * height * width + of_weight)
        places = (tile + 2) ** 2
        tiles = images * -(-height // tile) * -(-width // tile)
        of_tile = channels * results + of_between * (channels + results)
        return places * (tiles * of_tile + of_weight * channels * results)

    tile = min((1, 2, 4), key=time)
    if tile == 1:
        return None
    tiles = int(images * -(-height // tile) * -(-width // tile))
    places = {var: i for i, var in enumerate(weight.indices)}
    (first, _), (second, _) = window
    axes = (places[channel], places[depth], places[first], places[second])
    return Winograd(axes, tile, panel_of_rows(tiles, 4 * groups * channels, results, channels, info, 4), groups)


def _groups(data: BufferLoad, depth: Var, channel: Var, channels: int, results: int) -> int | None:
    """The groups of channels of a convolution, one where each result reads all channels; None for other indices."""
    index = next(index for index in data.indices if depth in variables(index))
    if index is depth:
        return 1
    size = group_of(index, channel)
    if size is None or results % size:
        return None
    expected = ops.floordiv(channel, size) * channels + depth
    return results // size if Analyzer().can_prove_equal(index, expected) else None


def _usual(extent: PrimExpr) -> int:
    """An extent of an image; an assumed one for images of symbolic size, as if they were 256 elements high and wide."""
    known = as_int(Analyzer().simplify(substitute(extent, dict.fromkeys(variables(extent), _index(256)))))
    return max(known or 1, 1)


def _window(
    block: Block, data: BufferLoad, weight: BufferLoad, depth: Var, channel: Var
) -> tuple[tuple[Var, Var], tuple[Var, Var]] | None:
    """For both dimensions of a 3×3 window with steps of one, the axis within the window and that of the result."""
    summed = {iv.var: as_int(extent_of(iv)) for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce}
    found = []
    for index in data.indices:
        if isinstance(index, Add) and isinstance(index.a, Var) and isinstance(index.b, Var):
            within, along = (index.b, index.a) if index.b in summed else (index.a, index.b)
            if within not in summed or along in summed or summed[within] != 3:
                return None
            found.append((within, along))
        elif not isinstance(index, Var) and not {depth, channel} <= variables(index):
            return None
    if len(found) != 2 or len(summed) != 3 or depth not in summed or len(data.indices) != 4:
        return None
    if not all(isinstance(index, Var) for index in weight.indices) or len(weight.indices) != 4:
        return None
    return found[0], found[1]


TILES_OF_BAND, TILES_OF_SMALL_BAND = 14, 7
"""From how many tiles on a row of them is a band: of weights that are read again for each band from the third-level
cache, and of those that stay in the second. Measured on Zen 4: bands take 0.75 to 0.85 of the time for images of 147 x
147 and 71 x 71 in Inception, 0.84 for 56 x 56 in ResNet-50.
"""
BALANCE = 0.9
"""What part of their time threads must have bands to compute."""


def in_winograd_form(func: PrimFunc, weight: Buffer, form: Winograd, info: CPUInfo) -> PrimFunc:
    """A function with a convolution, channels last, that reads transformed weights."""
    assert isinstance(func.body, BlockRealize)
    root = func.body.block
    statements = stmt_list(root.body)
    place = next(i for i, stmt in enumerate(statements) if weight in _read(stmt))
    block = _block(statements[place])
    store = block.body
    assert isinstance(store, BufferStore)
    data = next(load for load in loads(store.value) if load.buffer not in (weight, store.buffer))
    made = _Maker(store.buffer, data.buffer, weight, form, info)
    allocated = [b for b in root.alloc_buffers if b is not store.buffer] + made.allocated
    replaced = {weight: made.weights}
    if store.buffer in root.alloc_buffers:
        replaced[store.buffer] = made.result
    else:
        made.statements.append(made.copy(made.result, store.buffer))
    rest = [_Replace(replaced)(stmt) for stmt in statements[place + 1 :]]
    body = SeqStmt([*statements[:place], *made.statements, *rest])
    root = root.replace(body=body, alloc_buffers=Array(allocated))
    buffer_map = {param: replaced.get(b, b) if b is weight else b for param, b in func.buffer_map.items()}
    return func.replace(body=func.body.replace(block=root), buffer_map=buffer_map)


def _block(stmt: Stmt) -> Block:
    while isinstance(stmt, For):
        stmt = stmt.body
    assert isinstance(stmt, BlockRealize)
    return stmt.block


def _read(stmt: Stmt) -> list[Buffer]:
    return [region.buffer for region in _block(stmt).reads]


class _Replace(Mapper):
    def __init__(self, buffers: dict[Buffer, Buffer]):
        super().__init__()
        self.buffers = buffers

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)


class _Maker:
    """The blocks of a convolution in Winograd's form, and their buffers. Data and results have their channels last."""

    def __init__(self, result: Buffer, data: Buffer, weight: Buffer, form: Winograd, info: CPUInfo):
        self.form, self.lanes = form, info.vector_bytes // 4
        self.size = form.tile + 2
        self.analyzer = Analyzer()
        images, height, width, last = result.shape
        self.results, self.channels = _int(last) // form.groups, _int(data.shape[-1]) // form.groups
        self.down, self.across = (self.known((e + (form.tile - 1)) // form.tile) for e in (height, width))
        self.images, self.rows, self.groups = images, self.down, _index(form.groups)
        """Of a band: images, rows of tiles and groups of channels. All of them are one, or a row of a group is."""
        self.count = _index(1)
        if self.has_bands(info):
            self.count = self.known(images * self.down * form.groups)
            self.images = self.rows = self.groups = _index(1)
        tiles = self.known(self.images * self.rows * self.across)
        places = [self.count, self.size, self.size, tiles]
        panels = -(-self.results // form.width)
        self.weights = self.buffer([self.size, self.size, form.groups, panels, self.channels, form.width], weight.name)
        self.transformed = self.buffer([*places, self.known(self.groups * self.channels)], "winograd_data")
        self.products = self.buffer([*places, self.groups, self.results], "winograd_products")
        whole = [images, self.known(self.down * form.tile), self.known(self.across * form.tile), last]
        self.result = self.buffer(whole, result.name, dtype=result.dtype)
        self.allocated = [self.transformed, self.products, self.result]
        self.statements: list[Stmt] = []
        needed = [images, self.known(whole[1] + 2), self.known(whole[2] + 2), data.shape[-1]]
        if not all(map(self.analyzer.can_prove_equal, data.shape, needed)):
            padded = self.buffer(needed, "winograd_padded")
            self.allocated.append(padded)
            self.statements.append(self.copy(data, padded))
            data = padded
        grid = [self.count, self.images, self.rows, self.across]
        vectors = self.known(self.groups * self.channels // self.lanes)
        self.statements += [
            self.block("winograd_data", [*grid, vectors], self.data_tile(data)),
            self.block("winograd_products", [*self.products.shape, self.channels], self.contraction, summed=1),
            self.block("winograd_result", [*grid, self.groups, self.results // self.lanes], self.result_tile),
        ]

    def has_bands(self, info: CPUInfo) -> bool:
        """Whether a row of tiles of a group of channels is enough to be computed by itself."""
        extents = [as_int(extent) for extent in (self.images, self.down, self.across)]
        if None in extents or self.channels % self.lanes:
            return False
        images, down, across = (extent or 0 for extent in extents)
        bands = images * down * self.form.groups
        rounds = -(-bands // info.num_cores)
        weights = 4 * self.size**2 * self.channels * self.results
        between = 4 * self.size**2 * bands * across * (self.channels + self.results)
        least = TILES_OF_SMALL_BAND if weights <= info.l2_bytes else TILES_OF_BAND
        return across >= least and 2 * between > info.l2_bytes and bands > BALANCE * rounds * info.num_cores

    def of_band(self, band: Var) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """The first image, row of tiles, and group of channels of a band."""
        if as_int(self.count) == 1:
            return _index(0), _index(0), _index(0)
        images, rows = self.result.shape[0], self.down
        return self.known(band // rows % images), self.known(band % rows), self.known(band // (rows * images))

    def known(self, extent: Any) -> PrimExpr:
        """An extent, simplified."""
        return self.analyzer.simplify(extent)

    def buffer(
        self, shape: Sequence[Extent], name: str, scope: str = "global", dtype: DataType | str = "float32"
    ) -> Buffer:
        """A buffer, of float32 unless said otherwise."""
        return decl_buffer([_extent(extent) for extent in shape], dtype, name, scope=scope)

    def block(self, name: str, extents: Sequence[Extent], make: Callable[[list[Var]], tuple], summed: int = 0) -> Stmt:
        """A nest of loops around a block whose fields `make` gives: reads, writes, body, buffers and init."""
        axes, loops = [], []
        for i, extent in enumerate(extents):
            kind = IterVar.CommReduce if i >= len(extents) - summed else IterVar.DataPar
            axes.append(IterVar(Range(_index(0), _extent(extent)), Var(f"v_i{i}", "int64"), kind))
            self.analyzer.bind(axes[-1].var, axes[-1].dom)
            loops.append(Var(f"i{i}", "int64"))
        reads, writes, body, buffers, init = make([axis.var for axis in axes])
        # Blocks of the convolution itself begin with the axis of bands.
        notes = {BANDS: 1} if extents[0] is self.count and as_int(self.count) != 1 else {}
        block = Block(axes, reads, writes, name, body, init=init, alloc_buffers=buffers, annotations=notes)
        stmt: Stmt = BlockRealize(list(loops), const(True, "bool"), block)
        for var, extent in zip(reversed(loops), reversed(extents), strict=True):
            stmt = For(var, _index(0), _extent(extent), ForKind.SERIAL, stmt)
        return stmt

    def copy(self, source: Buffer, target: Buffer) -> Stmt:
        """A copy of the elements that the source has; zeros elsewhere."""

        def make(axes: list[Var]) -> tuple:
            value: PrimExpr = ops.cast(target.dtype, BufferLoad(source, axes))
            outside = [
                ops.less(axis, have)
                for axis, have, want in zip(axes, source.shape, target.shape, strict=True)
                if not self.analyzer.can_prove_greater_equal(have - want, 0)
            ]
            if outside:
                value = if_then_else(functools.reduce(ops.logical_and, outside), value, const(0, target.dtype))
            point = [BufferRegion.from_point(buffer, axes) for buffer in (source, target)]
            return [point[0]], [point[1]], BufferStore(target, value, axes), [], None

        return self.block(f"{target.name}_copy", list(target.shape), make)

    def contraction(self, axes: list[Var]) -> tuple:
        """For each place in a tile: the sum over channels."""
        *outer, channel = axes
        band, row, column, tile, group, result = outer
        first = self.of_band(band)[2]
        panel = [row, column, self.known(first + group), result // self.form.width, channel, result % self.form.width]
        left = BufferLoad(
            self.transformed, [band, row, column, tile, self.known(self.within(group, self.channels) + channel)]
        )
        right = BufferLoad(self.weights, panel)
        total = BufferLoad(self.products, outer)
        reads = [BufferRegion.from_point(load.buffer, load.indices) for load in (left, right)]
        writes = [BufferRegion.from_point(self.products, outer)]
        init = BufferStore(self.products, FloatImm("float32", 0.0), outer)
        return reads, writes, BufferStore(self.products, total + left * right, outer), [], init

    def within(self, group: PrimExpr, size: int) -> PrimExpr:
        """The first channel of a group of a band, of groups of `size` channels."""
        return _index(0) if as_int(self.groups) == 1 else group * size

    def tile_of(self, axes: Sequence[Var]) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """The image, the row of tiles in it, and the number of a tile in its band."""
        band, image, row, across = axes
        first_image, first_row, _ = self.of_band(band)
        tile = self.known((image * self.rows + row) * self.across + across)
        return self.known(first_image + image), self.known(first_row + row), tile

    def data_tile(self, data: Buffer) -> Callable[[list[Var]], tuple]:
        """V = Bᵀ d B."""
        size, step, lanes = self.size, self.form.tile, self.lanes

        def make(axes: list[Var]) -> tuple:
            *grid, vector = axes
            band, _, _, across = grid
            (image, down, tile), within = self.tile_of(grid), vector * lanes
            first = self.known(self.of_band(band)[2] * self.channels + within)
            line = self.buffer([size, lanes], "line", "local")
            half = self.buffer([size, size, lanes], "half", "local")

            def load(row: PrimExpr, column: PrimExpr, lane: Var) -> PrimExpr:
                place = [image, down * step + row, across * step + column, first + lane]
                return ops.cast("float32", BufferLoad(data, place))

            def save(row: PrimExpr, column: PrimExpr, lane: Var, value: PrimExpr) -> Stmt:
                return BufferStore(self.transformed, value, [band, row, column, tile, within + lane])

            body = self.transform(matrices(step)[2], load, save, line, half)
            reads = [_region(data, [image, down * step, across * step, first], [1, size, size, lanes])]
            writes = [_region(self.transformed, [band, _index(0), _index(0), tile, within], [1, size, size, 1, lanes])]
            return reads, writes, body, [line, half], None

        return make

    def result_tile(self, axes: list[Var]) -> tuple:
        """Y = Aᵀ M A."""
        size, step, lanes = self.size, self.form.tile, self.lanes
        *grid, group, vector = axes
        band, _, _, across = grid
        (image, down, tile), within = self.tile_of(grid), vector * lanes
        first = self.known(self.of_band(band)[2] * self.results + self.within(group, self.results) + within)
        line = self.buffer([size, lanes], "line", "local")
        half = self.buffer([step, size, lanes], "half", "local")

        def load(row: PrimExpr, column: PrimExpr, lane: Var) -> PrimExpr:
            return BufferLoad(self.products, [band, row, column, tile, group, within + lane])

        def save(row: PrimExpr, column: PrimExpr, lane: Var, value: PrimExpr) -> Stmt:
            place = [image, down * step + row, across * step + column, first + lane]
            return BufferStore(self.result, ops.cast(self.result.dtype, value), place)

        body = self.transform(matrices(step)[0], load, save, line, half)
        start = [band, _index(0), _index(0), tile, group, within]
        reads = [_region(self.products, start, [1, size, size, 1, 1, lanes])]
        writes = [_region(self.result, [image, down * step, across * step, first], [1, step, step, lanes])]
        return reads, writes, body, [line, half], None

    def transform(self, matrix: np.ndarray, load: Callable, save: Callable, line: Buffer, half: Buffer) -> Stmt:
        """`matrix` times a square of vectors times its transposition: columns first, then rows.

        Columns and rows are unrolled loops, so that passes walk over one of each.
        """
        out, size = matrix.shape
        column, row, place = (Var(name, "int64") for name in ("column", "row", "place"))

        def from_line(i: int, lane: Var) -> PrimExpr:
            return BufferLoad(line, [_index(i), lane])

        def from_half(i: int, lane: Var) -> PrimExpr:
            return BufferLoad(half, [row, _index(i), lane])

        # Each element is read once, so that its place is simplified once.
        read = self.vector(
            lambda lane: load(place, column, lane), lambda lane, value: BufferStore(line, value, [place, lane])
        )
        columns = self.times(matrix, from_line, lambda i, lane, value: BufferStore(half, value, [i, column, lane]))
        rows = self.times(matrix, from_half, lambda i, lane, value: save(row, i, lane, value))
        return SeqStmt(
            [
                _unrolled(column, size, SeqStmt([_unrolled(place, size, read), *columns])),
                _unrolled(row, out, SeqStmt(rows)),
            ]
        )

    def times(
        self, matrix: np.ndarray, load: Callable[[int, Var], PrimExpr], save: Callable[[PrimExpr, Var, PrimExpr], Stmt]
    ) -> list[Stmt]:
        """`matrix` times a column of vectors."""
        return [
            self.vector(
                lambda lane, row=row: combination(row, lambda i: load(i, lane)),
                lambda lane, value, place=place: save(_index(place), lane, value),
            )
            for place, row in enumerate(matrix)
        ]

    def vector(self, value: Callable[[Var], PrimExpr], store: Callable[[Var, PrimExpr], Stmt]) -> Stmt:
        """One statement for a vector of channels."""
        lane = Var("lane", "int64")
        return For(lane, _index(0), _index(self.lanes), ForKind.VECTORIZED, store(lane, value(lane)))


def _unrolled(var: Var, extent: int, body: Stmt) -> Stmt:
    return For(var, _index(0), _index(extent), ForKind.UNROLLED, body)


def combination(row: np.ndarray, element: Callable[[int], PrimExpr]) -> PrimExpr:
    """The sum of elements times the coefficients of a row, without products for ±1 and 0."""
    total: PrimExpr | None = None
    # A term with the coefficient 1 comes first, so that nothing needs a negation.
    for i in sorted(np.flatnonzero(row), key=lambda i: (row[i] != 1.0, row[i] < 0)):
        term, factor = element(int(i)), float(row[i])
        if total is None:
            total = term if factor == 1.0 else term * FloatImm("float32", factor)
            continue
        if abs(factor) != 1.0:
            term = term * FloatImm("float32", abs(factor))
        total = total + term if factor > 0 else total - term
    assert total is not None
    return total


def _int(extent: PrimExpr) -> int:
    assert isinstance(extent, IntImm)
    return extent.value


def _extent(extent: Extent) -> PrimExpr:
    return _index(extent) if isinstance(extent, int) else extent


def _index(value: int) -> PrimExpr:
    return const(value, "int64")


def _region(buffer: Buffer, starts: Sequence[PrimExpr], extents: Sequence[int]) -> BufferRegion:
    return BufferRegion(buffer, [Range.from_min_extent(s, _index(e)) for s, e in zip(starts, extents, strict=True)])
