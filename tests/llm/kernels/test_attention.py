"""Attention over pages: against the formula written in NumPy, sequence by sequence and head by head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import oneir
from oneir.llm.kernels.attention import PAGE_SIZE, paged_attention, rotate_and_store

PAGE, LAYERS, PAGES = PAGE_SIZE, 2, 40
RNG = np.random.default_rng(11)


class Pages:
    """Pages with noise in them, and sequences that own some, in an order of their own."""

    def __init__(self, kv_heads: int, head_dim: int, dtype: str, sequences: Sequence[tuple[int, int]]):
        shape, size = (LAYERS, PAGES, kv_heads), 40 if dtype == "int8" else 1
        self.keys = oneir.nd.array((RNG.standard_normal((*shape, head_dim, PAGE)) * size).astype(dtype))
        self.values = oneir.nd.array((RNG.standard_normal((*shape, PAGE, head_dim)) * size).astype(dtype))
        scales = RNG.random((LAYERS, PAGES, 2, kv_heads, PAGE)).astype("float32") / size
        self.scales = [oneir.nd.array(scales)] if dtype == "int8" else []
        free = RNG.permutation(PAGES).tolist()
        self.owned = [[free.pop() for _ in range(-(-(start + count) // PAGE))] for start, count in sequences]
        self.positions = np.concatenate([np.arange(start, start + count) for start, count in sequences]).astype("int32")
        self.sequences = np.repeat(np.arange(len(sequences)), [count for _, count in sequences]).astype("int32")
        self.starts = np.cumsum([0, *map(len, self.owned)])[:-1].astype("int32")
        self.table = np.concatenate(self.owned).astype("int32")
        self.lengths = np.array([start + count for start, count in sequences], "int32")

    def places(self) -> list[oneir.nd.NDArray]:
        return [oneir.nd.array(x) for x in (self.positions, self.sequences, self.starts, self.table)]

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


def compiled(func: oneir.tir.PrimFunc):
    return oneir.build(func.with_attr("global_symbol", "f"), "llvm")["f"]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window", "dtype", "sinks"),
    [
        (8, 2, 64, None, "float32", False),
        (4, 4, 80, None, "float32", False),
        (6, 2, 16, 20, "float32", False),
        (6, 2, 16, 20, "float32", True),
        (5, 1, 128, None, "float16", True),
        (1, 1, 24, 1, "float16", False),
        (8, 2, 64, None, "int8", False),
        (3, 1, 32, 20, "int8", True),
    ],
)
def test_attention(heads: int, kv_heads: int, head_dim: int, window: int | None, dtype: str, sinks: bool) -> None:
    # With few queries for each head of keys, neighbouring tokens are computed together: 2 to 8 of one sequence.
    sequences = [(0, 3), (40, 1), (15, 2), (63, 1), (0, 1), (25, 19), (3, 4)]
    pages = Pages(kv_heads, head_dim, dtype, sequences)
    q = RNG.standard_normal((len(pages.positions), heads, head_dim)).astype("float32")
    out = oneir.nd.array(np.zeros_like(q))
    # Far below and far above all scores, too.
    sink = np.resize(np.float32([-200, 1.5, 200, 0.25, 3]), heads)
    given = [oneir.nd.array(sink)] * sinks
    func = compiled(paged_attention(heads, kv_heads, head_dim, 0.3, window, dtype, sinks=sinks))
    func(oneir.nd.array(q), *pages.places(), pages.keys, pages.values, *pages.scales, *given, out, 1)
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


@pytest.mark.parametrize(
    ("rotary", "scale", "original", "dtype", "norm_eps"),
    [
        (16, 1.0, None, "float32", None),
        (8, 1.5, 20, "float16", None),
        (8, 1.5, None, "int8", None),
        (16, 1.0, None, "float32", 0.5),
        (8, 1.0, None, "int8", 1e-6),
    ],
)
def test_keys_and_values_go_into_pages(
    rotary: int, scale: float, original: int | None, dtype: str, norm_eps: float | None
) -> None:
    heads, kv_heads, head_dim = 4, 2, 24
    pages = Pages(kv_heads, head_dim, dtype, [(0, 2), (30, 3)])
    before = [pages.keys.numpy().copy(), pages.values.numpy().copy()]
    m = len(pages.positions)
    q, k, v = (RNG.standard_normal((m, h, head_dim)).astype("float32") for h in (heads, kv_heads, kv_heads))
    frequencies = RNG.random((1 if original is None else 2, rotary // 2)).astype("float32")
    turned = oneir.nd.array(np.zeros_like(q))
    func = compiled(rotate_and_store(heads, kv_heads, head_dim, rotary, scale, original, dtype, norm_eps))
    weights = RNG.random((0 if norm_eps is None else 2, head_dim)).astype("float32")
    given = [np.concatenate([q, k, v], 1), *pages.places(), pages.lengths, frequencies, *weights]
    given = [oneir.nd.array(x) if isinstance(x, np.ndarray) else x for x in given]
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
