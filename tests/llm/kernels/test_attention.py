"""Attention over pages: against the formula written in NumPy, sequence by sequence and head by head.

Kernels of threads run on an OpenCL device, and on the host as a CUDA device, whose threads run in two orders.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from devices import needs_compiler, needs_opencl

import oneir
from oneir.arith import Analyzer
from oneir.ir.expr import Call, Var, as_int, const
from oneir.ir.visitor import Visitor
from oneir.llm.kernels import attention, gpu_attention
from oneir.llm.kernels.attention import PAGE_SIZE
from oneir.target import Target
from oneir.testing import cuda_host
from oneir.tir.expr import BufferLoad
from oneir.tir.stmt import For
from oneir.tir.stmt_functor import substitute

PAGE, LAYERS, PAGES = PAGE_SIZE, 2, 40
RNG = np.random.default_rng(11)


class Processor:
    """Where kernels run, and which."""

    kernels: Any = attention
    device = oneir.cpu()

    def array(self, values: np.ndarray) -> oneir.runtime.Tensor:
        return oneir.runtime.tensor(values, self.device)

    def compiled(self, func: oneir.tir.PrimFunc):
        kind = Target("llvm") if self.device == oneir.cpu() else Target(self.device.type, host="llvm")
        return oneir.build(func.with_attr("global_symbol", "f"), kind)["f"]


class Threads(Processor):
    """A device with threads."""

    kernels = gpu_attention

    def __init__(self, device: oneir.runtime.Device):
        self.device = device


@pytest.fixture(
    params=[
        pytest.param("opencl", marks=needs_opencl),
        pytest.param("forward", marks=needs_compiler),
        pytest.param("backward", marks=needs_compiler),
    ]
)
def threads(request: pytest.FixtureRequest) -> Iterator[Threads]:
    on_host = request.param != "opencl"
    with cuda_host.cuda_on_host(request.param) if on_host else contextlib.nullcontext():
        yield Threads(oneir.cuda() if on_host else oneir.opencl())


class Pages:
    """Pages with noise in them, and sequences that own some, in an order of their own."""

    def __init__(
        self, where: Processor, kv_heads: int, head_dim: int, dtype: str, sequences: Sequence[tuple[int, int]]
    ):
        self.where = where
        shape, size = (LAYERS, PAGES, kv_heads), 40 if dtype == "int8" else 1
        self.keys = where.array((RNG.standard_normal((*shape, head_dim, PAGE)) * size).astype(dtype))
        self.values = where.array((RNG.standard_normal((*shape, PAGE, head_dim)) * size).astype(dtype))
        scales = RNG.random((LAYERS, PAGES, 2, kv_heads, PAGE)).astype("float32") / size
        self.scales = [where.array(scales)] if dtype == "int8" else []
        free = RNG.permutation(PAGES).tolist()
        self.owned = [[free.pop() for _ in range(-(-(start + count) // PAGE))] for start, count in sequences]
        self.positions = np.concatenate([np.arange(start, start + count) for start, count in sequences]).astype("int32")
        self.sequences = np.repeat(np.arange(len(sequences)), [count for _, count in sequences]).astype("int32")
        self.starts = np.cumsum([0, *map(len, self.owned)])[:-1].astype("int32")
        self.table = np.concatenate(self.owned).astype("int32")
        self.lengths = np.array([start + count for start, count in sequences], "int32")

    def places(self) -> list[oneir.runtime.Tensor]:
        return [self.where.array(x) for x in (self.positions, self.sequences, self.starts, self.table)]

    def of(self, sequence: int, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values (positions, kv_heads, head_dim) of a sequence."""
        keys, values = self.keys.numpy()[layer, self.owned[sequence]], self.values.numpy()[layer, self.owned[sequence]]
        for scales in self.scales:
            of_keys, of_values = scales.numpy()[layer, self.owned[sequence]].swapaxes(0, 1)
            keys, values = keys * of_keys[:, :, None], values * of_values[..., None]
        keys, values = keys.transpose(0, 3, 1, 2), values.transpose(0, 2, 1, 3)
        return keys.reshape(-1, *keys.shape[2:]).astype("float64"), values.reshape(-1, *values.shape[2:]).astype(
            "float64"
        )


ATTENTION = [
    (8, 2, 64, None, "float32", False),
    (4, 4, 80, None, "float32", False),
    (6, 2, 16, 20, "float32", False),
    (6, 2, 16, 20, "float32", True),
    (5, 1, 128, None, "float16", True),
    (1, 1, 24, 1, "float16", False),
]
SEQUENCES = [(0, 3), (40, 1), (15, 2), (63, 1), (0, 1), (25, 19), (3, 4)]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window", "dtype", "sinks"),
    [*ATTENTION, (8, 2, 64, None, "int8", False), (3, 1, 32, 20, "int8", True)],
)
def test_attention(heads: int, kv_heads: int, head_dim: int, window: int | None, dtype: str, sinks: bool) -> None:
    # With few queries for each head of keys, neighbouring tokens are computed together: 2 to 8 of one sequence.
    check_attention(Processor(), heads, kv_heads, head_dim, window, dtype, sinks, SEQUENCES)


@pytest.mark.parametrize(("heads", "kv_heads"), [(16, 2), (4, 2), (3, 1)])
def test_attention_with_few_registers(heads: int, kv_heads: int) -> None:
    check_attention(Processor(), heads, kv_heads, 64, None, "float16", False, SEQUENCES, most_lanes=16, most_scores=4)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window", "dtype", "sinks"),
    # More queries for each head of keys than a block of threads takes, and heads of more elements than it has threads.
    [*ATTENTION, (36, 2, 16, None, "float16", False), (4, 2, 160, 100, "float32", True)],
)
def test_attention_of_threads(
    threads: Threads, heads: int, kv_heads: int, head_dim: int, window: int | None, dtype: str, sinks: bool
) -> None:
    check_attention(threads, heads, kv_heads, head_dim, window, dtype, sinks, SEQUENCES)


@pytest.mark.parametrize("position", [0, 31, 400])
def test_attention_of_one_token_whose_positions_blocks_share(threads: Threads, position: int) -> None:
    check_attention(threads, 8, 2, 64, None, "float32", True, [(position, 1)], one=True)
    check_attention(threads, 3, 3, 32, 300, "float16", False, [(position, 1)], one=True)


def test_a_block_meets_several_tiles_of_positions(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_attention, "BLOCKS", 1)
    gpu_attention.paged_attention.cache_clear()
    check_attention(threads, 4, 2, 32, None, "float32", True, [(380, 20), (150, 1)])
    check_attention(threads, 4, 2, 32, 150, "float32", False, [(380, 20), (150, 1)])
    gpu_attention.paged_attention.cache_clear()


def check_attention(
    where: Processor,
    heads: int,
    kv_heads: int,
    head_dim: int,
    window: int | None,
    dtype: str,
    sinks: bool,
    sequences: Sequence[tuple[int, int]],
    **options: int,
) -> None:
    pages = Pages(where, kv_heads, head_dim, dtype, sequences)
    q = RNG.standard_normal((len(pages.positions), heads, head_dim)).astype("float32")
    out = where.array(np.zeros_like(q))
    # Far below and far above all scores, too.
    sink = np.resize(np.float32([-200, 1.5, 200, 0.25, 3]), heads)
    given = [where.array(sink)] * sinks
    kernel = where.kernels.paged_attention(heads, kv_heads, head_dim, 0.3, window, dtype, sinks=sinks, **options)
    func = where.compiled(kernel)
    func(where.array(q), *pages.places(), pages.keys, pages.values, *pages.scales, *given, out, 1)
    for t, (position, sequence) in enumerate(zip(pages.positions, pages.sequences, strict=True)):
        keys, values = pages.of(sequence, 1)
        seen = slice(max(0, position + 1 - (window or 1000)), position + 1)
        for h in range(heads):
            group = h // (heads // kv_heads)
            scores = 0.3 * keys[seen, group] @ q[t, h].astype("float64")
            top = max(scores.max(), sink[h]) if sinks else scores.max()
            weights = np.exp(scores - top)
            expected = weights @ values[seen, group] / (weights.sum() + np.exp(sink[h] - top) * sinks)
            np.testing.assert_allclose(out.numpy()[t, h], expected, rtol=2e-5, atol=2e-5)


ROTARY = [
    (16, 1.0, None, "float32", None),
    (8, 1.5, 20, "float16", None),
    (16, 1.0, None, "float32", 0.5),
]


class _Lines(Visitor):
    """The lines of 64 bytes that are asked for in a page, by its buffer's name, as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[For] = []
        self.found: dict[str, set[int]] = {}

    def visit_For(self, loop: For) -> None:
        self.loops.append(loop)
        self.generic_visit(loop)
        self.loops.pop()

    def visit_Call(self, call: Call) -> None:
        self.generic_visit(call)
        if call.op.name != "tir.prefetch":
            return
        address = call.args[0]
        assert isinstance(address, Call)
        load = address.args[0]
        assert isinstance(load, BufferLoad)
        *_, row, element = load.indices
        width = as_int(load.buffer.shape[-1])
        assert width is not None
        place, analyzer = row * width + element, Analyzer()
        inner: list[tuple[Var, int]] = []
        for loop in self.loops:
            if loop.loop_var.name in ("c", "d", "i", "p") and (extent := as_int(loop.extent)) is not None:
                inner.append((loop.loop_var, extent))
        lines = self.found.setdefault(load.buffer.name, set())
        for values in itertools.product(*(range(extent) for _, extent in inner)):
            at = {var: const(value, var.dtype) for (var, _), value in zip(inner, values, strict=True)}
            number = as_int(analyzer.simplify(substitute(place, at)))
            assert number is not None
            lines.add(number * load.buffer.dtype.bits // 8 // 64)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 1), (4, 2), (2, 2)])
@pytest.mark.parametrize(("lanes", "scores"), [(64, 8), (16, 4)])
def test_whole_pages_are_asked_for(dtype: str, heads: int, kv_heads: int, lanes: int, scores: int) -> None:
    kernel = attention.paged_attention(
        heads, kv_heads, 64, 0.125, dtype=dtype, one=True, most_lanes=lanes, most_scores=scores
    )
    lines = _Lines()
    lines(kernel.body)
    page = set(range(PAGE_SIZE * 64 * np.dtype(dtype).itemsize // 64))
    assert lines.found == {"K": page, "V": page}


@pytest.mark.parametrize(
    ("rotary", "scale", "original", "dtype", "norm_eps"),
    [*ROTARY, (8, 1.5, None, "int8", None), (8, 1.0, None, "int8", 1e-6)],
)
def test_keys_and_values_go_into_pages(
    rotary: int, scale: float, original: int | None, dtype: str, norm_eps: float | None
) -> None:
    check_pages(Processor(), 24, rotary, scale, original, dtype, norm_eps)


@pytest.mark.parametrize(
    ("rotary", "scale", "original", "dtype", "norm_eps"), [*ROTARY, (24, 1.0, None, "float16", 1e-6)]
)
@pytest.mark.parametrize("head_dim", [24, 80])
def test_threads_bring_keys_and_values_into_pages(
    threads: Threads,
    head_dim: int,
    rotary: int,
    scale: float,
    original: int | None,
    dtype: str,
    norm_eps: float | None,
) -> None:
    check_pages(threads, head_dim, rotary, scale, original, dtype, norm_eps)


def check_pages(
    where: Processor,
    head_dim: int,
    rotary: int,
    scale: float,
    original: int | None,
    dtype: str,
    norm_eps: float | None,
) -> None:
    heads, kv_heads = 4, 2
    pages = Pages(where, kv_heads, head_dim, dtype, [(0, 2), (30, 3)])
    before = [pages.keys.numpy().copy(), pages.values.numpy().copy()]
    m = len(pages.positions)
    q, k, v = (RNG.standard_normal((m, h, head_dim)).astype("float32") for h in (heads, kv_heads, kv_heads))
    frequencies = RNG.random((1 if original is None else 2, rotary // 2)).astype("float32")
    turned = where.array(np.zeros_like(q))
    kernel = where.kernels.rotate_and_store(heads, kv_heads, head_dim, rotary, scale, original, dtype, norm_eps)
    func = where.compiled(kernel)
    weights = RNG.random((0 if norm_eps is None else 2, head_dim)).astype("float32")
    given = [np.concatenate([q, k, v], 1), *pages.places(), pages.lengths, frequencies, *weights]
    given = [where.array(x) if isinstance(x, np.ndarray) else x for x in given]
    for x, weight in zip((q, k), weights, strict=False):
        x *= weight / np.sqrt((x.astype("float64") ** 2).mean(-1, keepdims=True) + norm_eps)
    func(*given, pages.keys, pages.values, *pages.scales, turned, 0)
    written = np.zeros((LAYERS, PAGES, PAGE), bool)
    for t, (position, sequence) in enumerate(zip(pages.positions, pages.sequences, strict=True)):
        row = int(original is not None and pages.lengths[sequence] > original)
        angle = np.concatenate([frequencies[row] * position] * 2).astype("float64")

        def rotated(x: np.ndarray, angle: np.ndarray = angle) -> np.ndarray:
            first, second = x[:, : rotary // 2], x[:, rotary // 2 : rotary]
            swapped = np.concatenate([-second, first], 1)
            return np.concatenate([scale * (x[:, :rotary] * np.cos(angle) + swapped * np.sin(angle)), x[:, rotary:]], 1)

        page, slot = pages.owned[sequence][position // PAGE], position % PAGE
        written[0, page, slot] = True
        tolerance = 1e-5 if dtype == "float32" else 1e-3
        np.testing.assert_allclose(turned.numpy()[t], rotated(q[t]), rtol=1e-5, atol=1e-5)
        stored = [pages.keys.numpy()[0, page, :, :, slot], pages.values.numpy()[0, page, :, slot]]
        for kind, (numbers, expected) in enumerate(zip(stored, (rotated(k[t]), v[t]), strict=True)):
            if dtype != "int8":
                np.testing.assert_allclose(numbers, expected, rtol=tolerance, atol=tolerance)
                continue
            scales = pages.scales[0].numpy()[0, page, kind, :, slot][:, None]
            np.testing.assert_allclose(scales[:, 0], np.abs(expected).max(-1) / 127, rtol=1e-5)
            # Half a step, and the rounding of the quotient.
            assert (np.abs(numbers * scales - expected) <= 0.5001 * scales).all()
    after = [pages.keys.numpy(), pages.values.numpy()]
    np.testing.assert_array_equal(
        after[0].transpose(0, 1, 4, 2, 3)[~written], before[0].transpose(0, 1, 4, 2, 3)[~written]
    )
    np.testing.assert_array_equal(
        after[1].transpose(0, 1, 3, 2, 4)[~written], before[1].transpose(0, 1, 3, 2, 4)[~written]
    )
