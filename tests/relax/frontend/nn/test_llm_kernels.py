"""Attention over pages, ragged tensors and trees of tokens: against the formula in NumPy, row by row and head by head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pytest

import oneir
from oneir.relax.frontend.nn.llm import kv_cache, tree_attn
from oneir.runtime.error import InvalidValue
from oneir.testing.interpreter import interpret

PAGE, PAGES = 16, 30
RNG = np.random.default_rng(5)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
Sees = Callable[[int, int], bool]


def expected(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, sees: Sees, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The result and the logarithm of the sum of weights, to the base 2, of rows of one sequence."""
    rows, heads, _ = q.shape
    group = heads // keys.shape[1]
    out, lse = np.zeros((rows, heads, values.shape[2])), np.full((rows, heads), -5e4)
    for t, h in np.ndindex(rows, heads):
        seen = [j for j in range(len(keys)) if sees(t, j)]
        if seen:
            scores = scale * keys[seen, h // group].astype("float64") @ q[t, h].astype("float64")
            weights = np.exp(scores - scores.max())
            out[t, h] = weights @ values[seen, h // group].astype("float64") / weights.sum()
            lse[t, h] = (scores.max() + np.log(weights.sum())) / np.log(2)
    return out, lse


def turned(x: np.ndarray, positions: Any, theta: float, scaling: dict[str, Any]) -> np.ndarray:
    """x (rows, heads, n), whose halves are complex numbers, turned by their positions."""
    n = x.shape[-1] // 2
    frequencies = theta ** (-np.arange(n) / n)
    if scaling:
        wave = 2 * np.pi / frequencies
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = np.clip((scaling["original_max_position_embeddings"] / wave - low) / (high - low), 0, 1)
        frequencies = (1 - smooth) * frequencies / scaling["factor"] + smooth * frequencies
    angles = np.exp(1j * np.asarray(positions)[:, None, None] * frequencies)
    z = (x[..., :n] + 1j * x[..., n:]) * angles
    return np.concatenate([z.real, z.imag], -1)


@dataclass
class Cache:
    """Pages with noise in them, of which each sequence has some, in an order of their own."""

    kv_heads: int
    head_dim: int
    dtype: str
    lengths: list[int]
    pages: np.ndarray = field(init=False)
    owned: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        shape = (PAGES, 2, self.kv_heads, PAGE, self.head_dim)
        self.pages = RNG.standard_normal(shape).astype(self.dtype)
        free = RNG.permutation(PAGES).tolist()
        self.owned = [[free.pop() for _ in range(-(-length // PAGE))] for length in self.lengths]

    def table(self) -> list[np.ndarray]:
        indptr = np.cumsum([0, *map(len, self.owned)])
        return [indptr.astype("int32"), np.array([*chain(*self.owned)] or [0], "int32")]

    def last(self) -> np.ndarray:
        """How many positions the last page of each sequence has."""
        return np.array([(length - 1) % PAGE + 1 if length else 0 for length in self.lengths], "int32")

    def of(self, sequence: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values (positions, heads, head_dim) of a sequence."""
        pages = self.pages[self.owned[sequence]].swapaxes(2, 3).astype("float64")
        keys, values = (pages[:, i].reshape(-1, self.kv_heads, self.head_dim) for i in (0, 1))
        return keys[: self.lengths[sequence]], values[: self.lengths[sequence]]


def run(func: oneir.tir.PrimFunc, *args: Any) -> None:
    name = func.attrs["global_symbol"]
    oneir.build(func)[name](*args)


def check(found: np.ndarray, wanted: np.ndarray, dtype: str) -> None:
    tolerance = 2e-5 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=tolerance, atol=tolerance)


def i32(*values: int) -> np.ndarray:
    return np.array(values, "int32")


SHAPES = [(8, 2, 64, "float32"), (3, 3, 24, "float32"), (5, 1, 40, "float16"), (16, 1, 128, "float16")]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "dtype"), SHAPES)
def test_one_row_for_each_sequence(heads: int, kv_heads: int, head_dim: int, dtype: str) -> None:
    cache = Cache(kv_heads, head_dim, dtype, [1, 16, 37, 0, 100])
    q = RNG.standard_normal((5, heads, head_dim)).astype(dtype)
    out, lse = np.full_like(q, 9), np.full((5, heads), 9, "float32")
    func = kv_cache._attention_decode_cpu(kv_heads, heads, head_dim, dtype, False, {})
    run(func, q, cache.pages, *cache.table(), cache.last(), i32(*[0] * 5), i32(*[0] * 5), out, lse, 0, 1.0, 1e4, 0.2)
    for b in range(5):
        wanted = expected(q[b : b + 1], *cache.of(b), lambda t, j: True, 0.2)
        check(out[b], wanted[0][0], dtype)
        check(lse[b], wanted[1][0], dtype)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "dtype"), SHAPES)
@pytest.mark.parametrize("causal", [0, 1])
def test_rows_see_what_comes_before_them(heads: int, kv_heads: int, head_dim: int, dtype: str, causal: int) -> None:
    lengths, rows = [5, 33, 40, 7], [5, 2, 0, 1]
    cache = Cache(kv_heads, head_dim, dtype, lengths)
    q = RNG.standard_normal((sum(rows) + 2, heads, head_dim)).astype(dtype)  # two rows belong to no sequence
    out, lse = np.full_like(q, 9), np.full(q.shape[:2], 9, "float32")
    indptr = np.cumsum([0, *rows]).astype("int32")
    func = kv_cache._attention_prefill_cpu(kv_heads, heads, head_dim, dtype, False, {})
    nothing = np.zeros(len(q), "int32")
    places = (*cache.table(), cache.last(), i32(0, 0, 0, 0), nothing)
    run(func, q, indptr, cache.pages, *places, out, lse, causal, 0, 1.0, 1e4, 0.2)
    for b, (length, count) in enumerate(zip(lengths, rows, strict=True)):
        own = slice(indptr[b], indptr[b + 1])
        before = length - count

        def sees(t: int, j: int, before: int = before) -> bool:
            return not causal or j <= before + t

        wanted = expected(q[own], *cache.of(b), sees, 0.2)
        check(out[own], wanted[0], dtype)
        check(lse[own], wanted[1], dtype)
    assert (out[-2:] == 9).all()


@pytest.mark.parametrize("scaling", [{}, LLAMA3])
def test_windows_with_sinks_turned_where_they_are(scaling: dict[str, Any]) -> None:
    heads, kv_heads, head_dim, theta = 4, 2, 32, 500.0
    lengths, begin, sinks, rows = [40, 20, 9], [21, 0, 3], [5, 0, 3], [3, 1, 2]
    cache = Cache(kv_heads, head_dim, "float32", lengths)
    q = RNG.standard_normal((sum(rows), heads, head_dim)).astype("float32")
    indptr = np.cumsum([0, *rows]).astype("int32")
    out, lse = np.empty_like(q), np.empty(q.shape[:2], "float32")
    info = np.array([cache.last(), begin, sinks], "int32")
    kept = [[*range(s), *range(b, n)] for n, b, s in zip(lengths, begin, sinks, strict=True)]
    positions = np.concatenate([np.arange(len(k) - r, len(k)) for k, r in zip(kept, rows, strict=True)]).astype("int32")
    func = kv_cache._attention_prefill_cpu(kv_heads, heads, head_dim, "float32", True, scaling)
    offsets = i32(0, 0, 0)
    places = (*cache.table(), info, offsets, positions)
    run(func, q, indptr, cache.pages, *places, out, lse, 1, 1, 1.0, theta, 0.2)
    q = turned(q, positions, theta, scaling)
    for b in range(3):
        own = slice(indptr[b], indptr[b + 1])
        keys, values = (x[kept[b]] for x in cache.of(b))
        keys = turned(keys, np.arange(len(kept[b])), theta, scaling)
        before = len(kept[b]) - rows[b]
        wanted = expected(q[own], keys, values, lambda t, j, before=before: j <= before + t, 0.2)
        check(out[own], wanted[0], "float32")
        check(lse[own], wanted[1], "float32")


def test_rows_of_ragged_tensors() -> None:
    heads, kv_heads, d_qk, d_v = 4, 2, 24, 40
    q_indptr, kv_indptr = i32(0, 3, 3, 7), i32(0, 20, 25, 29)
    q = RNG.standard_normal((7, heads, d_qk)).astype("float32")
    keys, values = (RNG.standard_normal((29, kv_heads, d)).astype("float32") for d in (d_qk, d_v))
    out, lse = np.empty((7, heads, d_v), "float32"), np.empty((7, heads), "float32")
    func = kv_cache._attention_prefill_ragged_cpu(kv_heads, heads, d_qk, d_v, "float32", {})
    positions, offsets = np.arange(7, dtype="int32") + 3, i32(0, 2, 5)
    run(func, q, q_indptr, keys, values, kv_indptr, positions, offsets, out, lse, 1, 1, 0.5, 1e3, 0.3)
    for b in (0, 2):
        own, theirs = slice(*q_indptr[b : b + 2]), slice(*kv_indptr[b : b + 2])
        rows, count = own.stop - own.start, theirs.stop - theirs.start
        wanted = expected(
            turned(q[own], 0.5 * positions[own], 1e3, {}),
            turned(keys[theirs], 0.5 * (offsets[b] + np.arange(count)), 1e3, {}),
            values[theirs],
            lambda t, j, before=count - rows: j <= before + t,
            0.3,
        )
        check(out[own], wanted[0], "float32")
        check(lse[own], wanted[1], "float32")


def walk(parents: list[int]) -> np.ndarray:
    """The places of nodes and of the ends of their descendants, in a walk that goes down first."""
    order = np.zeros((len(parents), 2), "int32")
    count = 0

    def visit(node: int) -> None:
        nonlocal count
        order[node, 0] = count
        count += 1
        for child, parent in enumerate(parents):
            if parent == node:
                visit(child)
        order[node, 1] = count

    for node, parent in enumerate(parents):
        if parent == -1:
            visit(node)
    return order


def ancestors(parents: list[int], node: int) -> set[int]:
    return {node} | (ancestors(parents, parents[node]) if parents[node] >= 0 else set())


TREES = [[-1, 0, 0, 1, 1, 2, -1], [-1], [-1, -1, 1, 2, 0]]


def test_trees_of_their_own_tokens() -> None:
    heads, kv_heads, head_dim = 4, 2, 16
    indptr = np.cumsum([0, *map(len, TREES)]).astype("int32")
    total = int(indptr[-1])
    q, keys, values = (RNG.standard_normal((total, h, head_dim)).astype("float16") for h in (heads, kv_heads, kv_heads))
    out, lse = np.empty_like(q), np.empty(q.shape[:2], "float32")
    order = np.concatenate([walk(tree) for tree in TREES])
    positions = RNG.integers(0, 50, total).astype("int32")
    func = tree_attn.tree_attn_cpu(kv_heads, heads, head_dim, "float16", {})
    run(func, q, indptr, keys, values, indptr, positions, indptr, order, out, lse, 1, 1.0, 1e4, 0.25)
    q, keys = turned(q, positions, 1e4, {}), turned(keys, positions, 1e4, {})
    for b, tree in enumerate(TREES):
        own = slice(indptr[b], indptr[b + 1])
        wanted = expected(q[own], keys[own], values[own], lambda t, j, tree=tree: j in ancestors(tree, t), 0.25)
        check(out[own], wanted[0], "float16")
        check(lse[own], wanted[1], "float16")


def test_trees_behind_what_is_in_pages() -> None:
    heads, kv_heads, head_dim = 4, 2, 16
    lengths, rows = [7 + 20, 1 + 0, 5 + 16], [4, 1, 5]  # the first three nodes of the first tree were computed before
    cache = Cache(kv_heads, head_dim, "float32", lengths)
    q = RNG.standard_normal((sum(rows), heads, head_dim)).astype("float32")
    indptr, nodes = (np.cumsum([0, *x]).astype("int32") for x in (rows, map(len, TREES)))
    out, lse = np.empty_like(q), np.empty(q.shape[:2], "float32")
    order = np.concatenate([walk(tree) for tree in TREES])
    func = tree_attn.tree_attn_with_paged_kv_cache_cpu(kv_heads, heads, head_dim, "float32", {})
    places = (*cache.table(), cache.last(), i32(0, 0, 0), np.zeros(len(q), "int32"))
    run(func, q, indptr, cache.pages, *places, out, lse, 0, 1.0, 1e4, 0.25, nodes, order)
    for b, tree in enumerate(TREES):
        own, before = slice(indptr[b], indptr[b + 1]), lengths[b] - len(tree)
        first = len(tree) - rows[b]

        def sees(t: int, j: int, tree: list[int] = tree, before: int = before, first: int = first) -> bool:
            return j < before or j - before in ancestors(tree, first + t)

        wanted = expected(q[own], *cache.of(b), sees, 0.25)
        check(out[own], wanted[0], "float32")
        check(lse[own], wanted[1], "float32")


def test_interpreter_agrees() -> None:
    cache = Cache(1, 20, "float32", [18, 3])
    q = RNG.standard_normal((3, 2, 20)).astype("float32")
    func = kv_cache._attention_prefill_cpu(1, 2, 20, "float32", False, {})
    results = []
    for call in (lambda *args: run(func, *args), lambda *args: interpret(func, *args)):
        out, lse = np.zeros_like(q), np.zeros((3, 2), "float32")
        places = (*cache.table(), cache.last(), i32(0, 0), i32(16, 17, 2))
        call(q, i32(0, 2, 3), cache.pages, *places, out, lse, 1, 1, 1.0, 1e4, 0.3)
        results.append((out, lse))
    for native, interpreted in zip(*results, strict=True):
        check(native, interpreted, "float32")


def test_two_results_become_one() -> None:
    keys, values = (RNG.standard_normal((30, 2, 16)) for _ in range(2))
    q = RNG.standard_normal((3, 4, 16))
    parts = [expected(q, keys[s], values[s], lambda t, j: True, 0.3) for s in (slice(0, 11), slice(11, 30), slice(0))]
    for first, second in ((0, 1), (2, 1), (1, 2)):
        v, s = parts[first][0].astype("float32"), parts[first][1].astype("float32")
        other = [x.astype("float32") for x in parts[second]]
        run(kv_cache._merge_state_inplace_cpu("float32"), v, s, *other)
        whole = expected(q, keys, values, lambda t, j: True, 0.3) if {first, second} == {0, 1} else parts[1]
        check(v, whole[0], "float32")
        check(s, whole[1], "float32")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_into_pages_and_out_of_them(dtype: str) -> None:
    kv_heads, head_dim = 2, 8
    pages = RNG.standard_normal((6, 2, kv_heads, PAGE, head_dim)).astype(dtype)
    model = pages.copy()
    keys, values = (RNG.standard_normal((5, kv_heads, head_dim)).astype(dtype) for _ in range(2))
    places = i32(3, 95, -1, 40, 16)
    run(kv_cache._kv_cache_transpose_append(kv_heads, head_dim, dtype), pages, keys, values, places)
    for place, k, v in zip(places, keys, values, strict=True):
        if place >= 0:
            model[place // PAGE, :, :, place % PAGE] = k, v
    np.testing.assert_array_equal(pages, model)

    run(kv_cache._copy_single_page_cpu(kv_heads, PAGE, head_dim, dtype), pages, 5, 1, 9)
    model[1, :, :, :9] = model[5, :, :, :9]
    np.testing.assert_array_equal(pages, model)

    moves = [[(17, 16), (20, 17), (33, 18)], [], [(90, 81), (91, 82)]]
    indptr = np.cumsum([0, *map(len, moves)]).astype("int32")
    pairs = np.array([*chain(*moves)], "int32").T.copy()
    run(kv_cache._compact_kv_copy_cpu(kv_heads, head_dim, dtype), pages, indptr, pairs, 3)
    for source, target in chain(*moves):
        model[target // PAGE, :, :, target % PAGE] = model[source // PAGE, :, :, source % PAGE]
    np.testing.assert_array_equal(pages, model)

    got = np.zeros((2, 3, 4, kv_heads, head_dim), dtype)
    some = i32(95, 3, 17, 40)
    func = kv_cache._kv_cache_debug_get_kv(3, kv_heads, head_dim, dtype)
    run(func, pages, some, *got, 1)
    np.testing.assert_array_equal(got[:, 1], model[some // PAGE, :, :, some % PAGE].swapaxes(0, 1))
    assert not got[:, [0, 2]].any()


def test_pages_of_any_size() -> None:
    size = oneir.tir.Var("page_size", "int64")
    pages = RNG.standard_normal((3, 2, 1, 7, 4)).astype("float32")
    model = pages.copy()
    run(kv_cache._copy_single_page_cpu(1, size, 4, "float32"), pages, 0, 2, 5)
    model[2, :, :, :5] = model[0, :, :, :5]
    np.testing.assert_array_equal(pages, model)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidValue, match="a multiple of that of key heads, found 5 and 2"):
        kv_cache._attention_decode_cpu(2, 5, 16, "float32", False, {})


def test_kernels_are_built_under_the_default_name() -> None:
    """As callers do it: the name in the module is not that in the function, and the module has one function."""
    func = kv_cache._merge_state_inplace_cpu("float32")
    mod = oneir.IRModule({"main": func})
    built = oneir.build(mod["main"])
    v, s = np.ones((1, 1, 4), "float32"), np.zeros((1, 1), "float32")
    built.main(v, s, np.full_like(v, 3), np.zeros_like(s))
    np.testing.assert_allclose(v, 2)
    np.testing.assert_allclose(s, 1)
    assert func.attrs["global_symbol"] == built.entry_name
