"""The cache in pages against plain lists of tokens: attention and contents after random operations."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pytest

import oneir
from oneir.relax.frontend.nn.llm import kv_cache as kernels
from oneir.relax.frontend.nn.llm.kv_cache import AttnKind, RopeMode
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch, UnsupportedError

LAYERS, HEADS, KV_HEADS, HEAD_DIM, PAGE, THETA, SCALE = 2, 2, 1, 8, 4, 100.0, 0.4
call = oneir.get_global_func
NO_SCALING = ()


@lru_cache
def kernel(name: str, *args: Any) -> Any:
    func = getattr(kernels, name)(*({} if arg == NO_SCALING else arg for arg in args))
    return oneir.build(func.with_attr("global_symbol", "main"))["main"]


def arguments(rope_mode: int, window: bool, capacity: int = 400, sequences: int = 8, kinds: Any = None) -> list[Any]:
    shape, none = (KV_HEADS, HEADS, HEAD_DIM, "float32"), NO_SCALING
    return [
        (sequences, capacity, 60, PAGE, int(window)), (0, LAYERS), HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM,
        kinds or (int(AttnKind.MHA),) * LAYERS, False, int(rope_mode), 1.0, THETA, None,
        oneir.nd.array(np.zeros((), "float32")),
        kernel("_kv_cache_transpose_append", KV_HEADS, HEAD_DIM, "float32", PAGE), None,
        ["tir", kernel("_attention_prefill_ragged_cpu", KV_HEADS, HEADS, HEAD_DIM, HEAD_DIM, "float32", none)],
        ["tir", kernel("_attention_prefill_cpu", *shape, False, none, PAGE)],
        ["tir", kernel("_attention_decode_cpu", *shape, False, none, PAGE)],
        ["tir", kernel("_attention_prefill_cpu", *shape, True, none, PAGE)],
        ["tir", kernel("_attention_decode_cpu", *shape, True, none, PAGE)],
        ["tir", kernel("tree_attn_with_paged_kv_cache_cpu", *shape, none, PAGE)],
        ["tir", kernel("tree_attn_cpu", *shape, none)], [], [kernel("_merge_state_inplace_cpu", "float32")],
        kernel("llama_rope_with_position_map", THETA, 1.0, HEAD_DIM, HEADS, KV_HEADS, "float32", none),
        kernel("_copy_single_page_cpu", KV_HEADS, PAGE, HEAD_DIM, "float32"),
        kernel("_kv_cache_debug_get_kv", LAYERS, KV_HEADS, HEAD_DIM, "float32"),
        kernel("_compact_kv_copy_cpu", KV_HEADS, HEAD_DIM, "float32", PAGE),
    ]  # fmt: skip


def create(*args: Any, **kwargs: Any) -> Any:
    return call("vm.builtin.paged_attention_kv_cache_create")(*arguments(*args, **kwargs))


def turned(x: np.ndarray, positions: Any) -> np.ndarray:
    n = HEAD_DIM // 2
    z = (x[..., :n] + 1j * x[..., n:]) * np.exp(
        1j * np.asarray(positions)[:, None, None] * THETA ** (-np.arange(n) / n)
    )
    return np.concatenate([z.real, z.imag], -1)


def attention(q: np.ndarray, keys: np.ndarray, values: np.ndarray, sees: np.ndarray) -> np.ndarray:
    """Of rows (rows, heads, head_dim) to what they see (rows, positions) of one key head."""
    scores = SCALE * np.einsum("thd,jd->thj", q, keys[:, 0])
    weights = np.exp(np.where(sees[:, None], scores, -np.inf))
    return np.einsum("thj,jd->thd", weights / weights.sum(-1, keepdims=True), values[:, 0])


class Model:
    """A cache, and next to it the keys and values of each sequence as lists: (layers, 2, tokens, heads, head_dim)."""

    def __init__(self, seed: int, rope_mode: RopeMode, window: bool = False, **options: Any):
        self.rng = np.random.default_rng(seed)
        self.cache = create(rope_mode, window, **options)
        self.rope = RopeMode.INLINE if window and rope_mode == RopeMode.NORMAL else rope_mode
        self.tokens: dict[int, np.ndarray] = {}
        self.windows: dict[int, tuple[int, int]] = {}

    def state(self, name: str, *args: Any) -> Any:
        return call(f"vm.builtin.kv_state_{name}")(self.cache, *args)

    def cached(self, name: str, *args: Any) -> Any:
        return call(f"vm.builtin.attention_kv_cache_{name}")(self.cache, *args)

    def add(self, number: int) -> None:
        self.state("add_sequence", number)
        self.tokens[number] = np.zeros((LAYERS, 2, 0, KV_HEADS, HEAD_DIM), "float32")

    def fork(self, parent: int, child: int, position: int) -> None:
        self.state("fork_sequence", parent, child, position)
        tokens = self.tokens[parent]
        self.tokens[child] = tokens if position < 0 else tokens[:, :, :position]

    def pop(self, number: int, count: int) -> None:
        self.state("popn", number, count)
        self.tokens[number] = self.tokens[number][:, :, : self.tokens[number].shape[2] - count]

    def remove(self, number: int) -> None:
        self.state("remove_sequence", number)
        del self.tokens[number]
        self.windows.pop(number, None)

    def step(self, numbers: list[int], lengths: list[int], trees: list[list[int]] | None = None) -> None:
        """A step in all layers, compared. `trees` are the whole trees; their last nodes are new."""
        rows = sum(lengths)
        parents = None if trees is None else [*chain(*(t[-n:] for t, n in zip(trees, lengths, strict=True)))]
        self.state("begin_forward", tuple(numbers), tuple(lengths), parents if parents is None else tuple(parents))
        new = self.rng.standard_normal((LAYERS, rows, HEADS + 2 * KV_HEADS, HEAD_DIM)).astype("float32")
        positions = self.cached("get_query_positions").numpy()
        begin = np.cumsum([0, *lengths])
        for i, number in enumerate(numbers):
            own = slice(begin[i], begin[i + 1])
            k, v = new[:, own, HEADS : HEADS + KV_HEADS], new[:, own, HEADS + KV_HEADS :]
            before = self.tokens[number].shape[2] - (len(trees[i]) - lengths[i] if trees else 0)
            depth = list(range(lengths[i]))
            if trees:
                depths: list[int] = []
                for parent in trees[i]:
                    depths.append(depths[parent] + 1 if parent >= 0 else 0)
                depth = depths[-lengths[i] :]
            assert positions[own].tolist() == [before + d for d in depth]
            if self.rope == RopeMode.NORMAL:
                k = np.stack([turned(x, positions[own]) for x in k])
            self.tokens[number] = np.concatenate([self.tokens[number], np.stack([k, v], 1)], 2)
        for layer in range(LAYERS):
            out = oneir.nd.array(np.zeros((rows, HEADS, HEAD_DIM), "float32"))
            self.cached("attention_with_fused_qkv", layer, SCALE, oneir.nd.array(new[layer]), out)
            for i, number in enumerate(numbers):
                own = slice(begin[i], begin[i + 1])
                keys, values = self.tokens[number][layer]
                count = len(keys)
                q = new[layer, own, :HEADS]
                if self.rope != RopeMode.NONE:
                    q = turned(q, positions[own])
                if self.rope == RopeMode.INLINE:
                    keys = turned(keys, range(count))
                sees = np.tri(lengths[i], count, count - lengths[i], bool)
                if trees:
                    nodes = len(trees[i])
                    mask = np.zeros((nodes, nodes), bool)
                    for node, parent in enumerate(trees[i]):
                        mask[node] = mask[parent] if parent >= 0 else False
                        mask[node, node] = True
                    sees[:, count - nodes :] = mask[-lengths[i] :]
                np.testing.assert_allclose(out.numpy()[own], attention(q, keys, values, sees), rtol=1e-4, atol=1e-4)
        self.state("end_forward")
        for number in numbers:
            window, sinks = self.windows.get(number, (0, 0))
            if window and self.tokens[number].shape[2] > window:
                tokens = self.tokens[number]
                kept = [tokens[:, :, :sinks], tokens[:, :, tokens.shape[2] - window + sinks :]]
                self.tokens[number] = np.concatenate(kept, 2)

    def check(self, number: int, start: int = 0) -> None:
        """What the cache has of a sequence."""
        tokens = self.tokens[number]
        count = tokens.shape[2] - start
        keys, values = (np.zeros((LAYERS, count, KV_HEADS, HEAD_DIM), "float32") for _ in range(2))
        to = [oneir.nd.array(x) for x in (keys, values)]
        self.cached("debug_get_kv", number, start, start + count, *to)
        for found, wanted in zip(to, tokens.swapaxes(0, 1), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted[:, start:], rtol=1e-5, atol=1e-5)

    def check_counts(self) -> None:
        assert self.cached("get_total_sequence_length") == sum(t.shape[2] for t in self.tokens.values())
        assert self.cached("empty") == (not self.tokens)

    def length(self, number: int) -> int:
        return self.tokens[number].shape[2]

    def random_operation(self) -> str:
        rng, numbers = self.rng, list(self.tokens)
        free = next(n for n in range(9) if n not in self.tokens)
        choice = rng.random()
        if not numbers or (choice < 0.08 and len(numbers) < 8):
            self.add(free)
            return "add"
        one = int(rng.choice(numbers))
        if choice < 0.16 and len(numbers) < 8 and one not in self.windows:
            self.fork(one, free, int(rng.integers(-1, self.length(one) + 1)))
            return "fork"
        if choice < 0.3 and one not in self.windows:
            self.pop(one, int(rng.integers(0, self.length(one) + 1)))
            return "pop"
        if choice < 0.4 or self.length(one) > 80:
            self.remove(one)
            return "remove"
        some = rng.permutation(numbers)[: int(rng.integers(1, 4))].tolist()
        lengths = [1] * len(some) if choice < 0.7 else rng.integers(1, 20, len(some)).tolist()
        try:
            self.step(some, lengths)
        except InvalidValue as error:
            assert "pages of 4 tokens" in str(error)
            self.remove(one)
            return "full"
        return "step"


@pytest.mark.parametrize(
    ("rope_mode", "operations"), [(RopeMode.NONE, 10_000), (RopeMode.NORMAL, 400), (RopeMode.INLINE, 400)]
)
def test_random_operations_equal_lists(rope_mode: RopeMode, operations: int) -> None:
    model = Model(1, rope_mode)
    done: dict[str, int] = {}
    for i in range(operations):
        kind = model.random_operation()
        done[kind] = done.get(kind, 0) + 1
        model.check_counts()
        if model.tokens and i % 5 == 0:
            model.check(int(model.rng.choice(list(model.tokens))))
    assert done.keys() >= {"add", "fork", "pop", "remove", "step"}, done
    model.state("clear")
    assert model.cached("get_num_available_pages") == 100 and model.cached("empty")


def test_pages_run_out_and_nothing_has_changed() -> None:
    model = Model(2, RopeMode.NONE, capacity=20)
    model.add(0)
    model.step([0], [13])
    model.add(1)
    with pytest.raises(InvalidValue, match="needs 2 pages of 4 tokens, and 1 are left"):
        model.state("begin_forward", (1,), (5,))
    model.step([1], [4])
    model.check(0)
    model.check(1)


@pytest.mark.parametrize("rope_mode", [RopeMode.NONE, RopeMode.NORMAL, RopeMode.INLINE])
def test_windows_with_sinks(rope_mode: RopeMode) -> None:
    model = Model(3, rope_mode, window=True)
    for number, (window, sinks) in enumerate([(10, 3), (9, 0), (17, 5), (0, 0)]):
        model.add(number)
        if window:
            model.cached("enable_sliding_window_for_seq", number, window, sinks)
            model.windows[number] = (window, sinks)
    for lengths in ([4, 1, 9, 3], [20, 8, 1, 1], *[[1] * 4] * 30, [5, 12, 30, 2]):
        model.step([0, 1, 2, 3], lengths)
        for number in range(4):
            model.check(number)
    used = 100 - model.cached("get_num_available_pages")
    assert used <= sum(-(-n // PAGE) for n in (model.length(3),)) + (3 + 4 + 6 + 2)
    with pytest.raises(InvalidValue, match="has a window, so it cannot be forked"):
        model.state("fork_sequence", 0, 7)
    with pytest.raises(InvalidValue, match="has a window that has moved"):
        model.state("popn", 0, 1)
    with pytest.raises(InvalidValue, match="larger than its sinks, found 4 with 4"):
        model.cached("enable_sliding_window_for_seq", 3, 4, 4)


@pytest.mark.parametrize("rope_mode", [RopeMode.NONE, RopeMode.NORMAL, RopeMode.INLINE])
def test_some_layers_have_windows(rope_mode: RopeMode) -> None:
    """Nothing is dropped: what a layer with a window sees is as if its cache had been cut before the step."""
    rng = np.random.default_rng(4)
    cache = create(rope_mode, False, kinds=(int(AttnKind.MHA), int(AttnKind.MHA_SLIDING)))
    call("vm.builtin.kv_state_add_sequence")(cache, 5)
    window, sinks = 9, 2
    call("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")(cache, 5, window, sinks)
    tokens = np.zeros((LAYERS, 2, 0, KV_HEADS, HEAD_DIM))
    for length in (7, 1, 8, 1, 1, 5):
        before = tokens.shape[2]
        call("vm.builtin.kv_state_begin_forward")(cache, (5,), (length,))
        new = rng.standard_normal((LAYERS, length, HEADS + 2 * KV_HEADS, HEAD_DIM)).astype("float32")
        pair = np.stack([new[:, :, HEADS : HEADS + KV_HEADS], new[:, :, HEADS + KV_HEADS :]], 1)
        tokens = np.concatenate([tokens, pair], 2)
        for layer in range(LAYERS):
            out = oneir.nd.array(np.zeros((length, HEADS, HEAD_DIM), "float32"))
            call("vm.builtin.attention_kv_cache_attention_with_fused_qkv")(
                cache, layer, SCALE, oneir.nd.array(new[layer]), out
            )
            left = max(before - window, 0) if layer else 0
            kept = [*range(min(sinks, before if left else 0)), *range((sinks if left else 0) + left, before + length)]
            q, (keys, values) = new[layer, :, :HEADS], tokens[layer]
            keys, positions = keys[kept], np.array(kept)
            if rope_mode == RopeMode.INLINE:
                positions = np.arange(len(kept)) + left
            if rope_mode != RopeMode.NONE:
                q, keys = turned(q, np.arange(before, before + length)), turned(keys, positions)
            sees = np.tri(length, len(kept), len(kept) - length, bool)
            np.testing.assert_allclose(out.numpy(), attention(q, keys, values[kept], sees), rtol=1e-4, atol=1e-4)
        call("vm.builtin.kv_state_end_forward")(cache)


@pytest.mark.parametrize("rope_mode", [RopeMode.NONE, RopeMode.NORMAL])
def test_trees_are_extended_and_accepted(rope_mode: RopeMode) -> None:
    model = Model(5, rope_mode)
    for number in range(3):
        model.add(number)
    model.step([0, 1, 2], [7, 1, 4])
    model.step([0, 1, 2], [3, 1, 4], [[-1, 0, 0], [-1], [-1, 0, 1, 1]])
    with pytest.raises(InvalidValue, match="cannot be continued: its last tokens are a tree"):
        model.state("begin_forward", (0,), (1,))
    with pytest.raises(InvalidValue, match="cannot be forked: its last tokens are a tree"):
        model.state("fork_sequence", 0, 9)
    trees = [[-1, 0, 0, 2, 1, 2], [-1, 0, 0], [-1, 0, 1, 1, 0, 4]]
    model.step([0, 1, 2], [3, 2, 2], trees)
    leaves = [5, 2, 3]
    model.cached("commit_accepted_token_tree_nodes", (0, 1, 2), tuple(leaves))
    for number, (tree, leaf) in enumerate(zip(trees, leaves, strict=True)):
        path = [leaf]
        while tree[path[0]] >= 0:
            path.insert(0, tree[path[0]])
        begin = model.length(number) - len(tree)
        model.tokens[number] = model.tokens[number][:, :, [*range(begin), *(begin + node for node in path)]]
        model.check(number)
    model.step([2, 0, 1], [1, 1, 1])
    model.step([0], [4], [[-1, 0, 1, 2]])  # a chain needs not be accepted, but may be
    model.cached("commit_accepted_token_tree_nodes", (0,), (1,))
    model.tokens[0] = model.tokens[0][:, :, :-2]
    model.step([0, 1], [2, 3])
    model.cached("commit_accepted_token_tree_nodes", (1,), (-1,))
    model.check(1)
    with pytest.raises(InvalidValue, match=r"parents to come before their children, or to be -1, found \[-1, 1\]"):
        model.state("begin_forward", (0,), (2,), (-1, 1))


def test_old_and_new_tokens_merged_are_all() -> None:
    model = Model(6, RopeMode.NONE)
    for number in range(2):
        model.add(number)
    model.step([0], [21])
    model.state("begin_forward", (0, 1), (3, 4))
    new = model.rng.standard_normal((7, HEADS + 2 * KV_HEADS, HEAD_DIM)).astype("float32")
    q, k, v = (oneir.nd.array(x.copy()) for x in np.split(new, [HEADS, HEADS + KV_HEADS], 1))
    results = []
    for name, given in (("self_attention", (q, k, v)), ("cross_attention", (q,))):
        out, lse = (oneir.nd.array(np.zeros((7, HEADS, *d), "float32")) for d in ((HEAD_DIM,), ()))
        model.cached(name, 1, SCALE, *given, out, lse)
        results += [out, lse]
    merged, _ = model.cached("merge_attn_output_inplace", *results)
    whole = oneir.nd.array(np.zeros((7, HEADS, HEAD_DIM), "float32"))
    model.cached("attention_with_fused_qkv", 1, SCALE, oneir.nd.array(new), whole)
    np.testing.assert_allclose(merged.numpy(), whole.numpy(), rtol=1e-5, atol=1e-5)
    model.state("end_forward")


def test_what_there_is_none_of_is_refused() -> None:
    model = Model(7, RopeMode.NONE)
    model.add(0)
    for name, args, kind, message in (
        ("kv_state_add_sequence", (0,), InvalidValue, "the sequence 0 is in the cache already"),
        ("kv_state_remove_sequence", (3,), InvalidValue, r"the sequence 3 is not in the cache; there are \[0\]"),
        ("kv_state_popn", (0, 1), InvalidValue, "cannot drop 1 tokens of the sequence 0, which has 0"),
        ("kv_state_fork_sequence", (0, 1, 2), InvalidValue, "of 0 tokens cannot be forked at position 2"),
        ("kv_state_begin_forward", ((0, 0), (1, 1)), InvalidValue, "each sequence once in a step"),
        ("kv_state_begin_forward", ((0,), (0,)), InvalidValue, "at least one new token"),
        ("kv_state_begin_forward", ((0,), (61,)), InvalidValue, "at most 60 new tokens in a step"),
        ("attention_kv_cache_get_query_positions", (), InvalidValue, "outside of a step"),
        ("attention_kv_cache_enable_sliding_window_for_seq", (0, 8, 1), InvalidValue, "without support_sliding_window"),
        ("attention_kv_cache_append_mla_kv", (0, None), UnsupportedError, "no compressed keys"),
        ("attention_kv_cache_commit_accepted_token_tree_nodes", ((0,), (1,)), InvalidValue, "there is no leaf 1"),
    ):
        with pytest.raises(kind, match=message):
            call(f"vm.builtin.{name}")(model.cache, *args)
    with pytest.raises(TypeMismatch, match="kv_state_clear: expected a KVState, found 3"):
        call("vm.builtin.kv_state_clear")(3)
    model.state("begin_forward", (0,), (2,))
    wrong = oneir.nd.array(np.zeros((2, 3, HEAD_DIM), "float32"))
    with pytest.raises(ShapeMismatch, match=r"expected qkv of shape \(2, 4, 8\) and dtype float32"):
        model.cached("attention_with_fused_qkv", 0, SCALE, wrong, wrong)
    given = arguments(RopeMode.NONE, False)
    for place, value, message in (
        (7, True, "not transferred to other machines"),
        (6, (1, 1), "no compressed keys"),
        (1, (0, 1, 2), "all layers in one part"),
        (16, ["flashinfer", 1, 2], "f_prefill as a kernel of the back end tir"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            call("vm.builtin.paged_attention_kv_cache_create")(*given[:place], value, *given[place + 1 :])
