"""A module with a cache in pages, exported, compiled and run token by token: against attention to whole lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.frontend import nn
from oneir.relax.frontend.nn.llm.kv_cache import (
    FlashInferPagedKVCache,
    PagedKVCache,
    RopeMode,
    check_thread_limits,
    get_max_num_threads_per_block,
)
from oneir.runtime.error import InvalidValue, UnsupportedError
from oneir.runtime.object import ShapeTuple

LIMITS = ("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size", "support_sliding_window")
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
FACTORS = [1.0, 1.5, 2.0, 4.0]
call = oneir.get_global_func


class Model(nn.Module):
    """Two layers: each adds the attention to what it gets. `split` computes it in its parts."""

    def __init__(self, rope_mode: RopeMode, split: bool = False, kind: Any = "mha", **options: Any):
        self.rope_mode, self.split, self.kind, self.options = rope_mode, split, kind, options

    def create(self, max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window):
        return PagedKVCache.create_generic(
            self.kind, max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window,
            num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, qk_head_dim=HEAD_DIM,
            v_head_dim=HEAD_DIM, rope_mode=self.rope_mode, rope_scale=1, rope_theta=100, dtype="float32", **self.options,
        )  # fmt: skip

    def forward(self, qkv: nn.Tensor, cache: PagedKVCache):
        total = None
        for layer in range(2):
            if self.split:
                q, k, v = nn.op.split(qkv, [HEADS, HEADS + KV_HEADS], axis=2)
                new = cache.self_attention(layer, q, k, v, 0.4)
                old = cache.cross_attention(layer, q, HEAD_DIM, 0.4)
                out, _ = cache.merge_attn_output_inplace(*new, *old)
                again = cache.attention_with_fused_qkv(layer, qkv, HEADS, 0.4)
                out = (out + again) / 2
            else:
                out = cache.attention_with_fused_qkv(layer, qkv, HEADS, 0.4)
            total = out if total is None else total + out
        return total, cache.get_query_positions(qkv.shape[0] * qkv.shape[1])


def compiled(model: Model) -> relax.VirtualMachine:
    none = {"param_mode": "none", "effect_mode": "none"}
    spec = {
        "create": {**dict.fromkeys(LIMITS, int), "$": none},
        "forward": {
            "qkv": nn.spec.Tensor(["b", "n", HEADS + 2 * KV_HEADS, HEAD_DIM], "float32"),
            "cache": nn.spec.Object(object_type=PagedKVCache),
            "$": none,
        },
    }
    mod, _ = model.export_tvm(spec)
    return relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())


def turned(x: np.ndarray, positions: Any, factors: Any = 1) -> np.ndarray:
    n = HEAD_DIM // 2
    angles = np.asarray(positions)[:, None, None] * 100.0 ** (-np.arange(n) / n) / factors
    z = (x[..., :n] + 1j * x[..., n:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], -1)


LONG = {"rope_type": "longrope", "max_position_embeddings": 64, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("rope_mode", "split", "options"),
    [
        (RopeMode.NORMAL, False, {}),
        (RopeMode.INLINE, False, {}),
        (RopeMode.NONE, True, {}),
        (RopeMode.NORMAL, False, {"rope_scaling": LONG, "rope_ext_factors": FACTORS}),
    ],
)
def test_steps_equal_attention_to_lists(rope_mode: RopeMode, split: bool, options: dict[str, Any]) -> None:
    vm = compiled(Model(rope_mode, split, **options))
    cache = vm["create"](*(ShapeTuple([i]) for i in (4, 256, 64, 16, 0)))
    rng = np.random.default_rng(1)
    tokens = {number: np.zeros((0, HEADS + 2 * KV_HEADS, HEAD_DIM)) for number in (3, 5)}
    factors = FACTORS if options else 1
    for number in tokens:
        call("vm.builtin.kv_state_add_sequence")(cache, number)
    for lengths in ({3: 20}, {5: 3}, {3: 1, 5: 1}, {5: 1, 3: 1}, {3: 4, 5: 30}, {3: 1}):
        call("vm.builtin.kv_state_begin_forward")(cache, ShapeTuple(lengths), ShapeTuple(lengths.values()))
        rows = sum(lengths.values())
        shape = (rows, 1) if rows == len(lengths) else (1, rows)
        new = rng.standard_normal((*shape, HEADS + 2 * KV_HEADS, HEAD_DIM)).astype("float32")
        out, positions = vm["forward"](oneir.nd.array(new), cache)
        call("vm.builtin.kv_state_end_forward")(cache)
        begin, flat, results = 0, new.reshape(rows, -1, HEAD_DIM), out.numpy().reshape(rows, HEADS, HEAD_DIM)
        for number, count in lengths.items():
            tokens[number] = np.concatenate([tokens[number], flat[begin : begin + count]])
            length = len(tokens[number])
            assert positions.numpy()[begin : begin + count].tolist() == list(range(length - count, length))
            q, k, v = np.split(tokens[number], [HEADS, HEADS + KV_HEADS], 1)
            if rope_mode != RopeMode.NONE:
                q, k = (turned(x, range(length), factors) for x in (q, k))
            k, v = (np.repeat(x, HEADS // KV_HEADS, 1) for x in (k, v))
            scores = np.where(np.tri(length, dtype=bool), 0.4 * np.einsum("thd,jhd->htj", q, k), -np.inf)
            weights = np.exp(scores)
            wanted = 2 * np.einsum("htj,jhd->thd", weights / weights.sum(-1, keepdims=True), v)
            np.testing.assert_allclose(results[begin : begin + count], wanted[-count:], rtol=1e-4, atol=1e-4)
            begin += count


def test_what_there_is_none_of_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="needs the library FlashInfer"):
        FlashInferPagedKVCache("mha")
    for kind, error, message in (
        ("mla", UnsupportedError, "no kernels for attention of the kind mla"),
        ("other", InvalidValue, "of the kind mha, mla or mha_sliding, found 'other'"),
        (["mha"], InvalidValue, "a kind of attention for each of the 2 layers, found 1"),
    ):
        with pytest.raises(error, match=message):
            compiled(Model(RopeMode.NONE, kind=kind))
    with oneir.target.Target("cuda"), pytest.raises(UnsupportedError, match="expected the target llvm, found cuda"):
        compiled(Model(RopeMode.NONE))


def test_threads_of_targets() -> None:
    assert get_max_num_threads_per_block(oneir.target.Target("cuda")) == 1024
    check_thread_limits(oneir.target.Target("cuda"), 32, 32, 1, 4)
    with pytest.raises(InvalidValue, match=r"cuda max num threads exceeded: 64\*32\*1>1024"):
        check_thread_limits(oneir.target.Target("cuda"), 64, 32, 1, 1)
