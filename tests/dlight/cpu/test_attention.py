"""Attention on processors: numbers are those of NumPy in float64, and memory does not grow with the lengths."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import oneir
from oneir import relax, tir
from oneir.dlight.cpu import Attention
from oneir.relax import op
from oneir.relax.op.nn.attention import safe_attention
from oneir.relax.pipeline import legalize_passes
from oneir.target import Target
from oneir.tir.stmt_functor import post_order_visit

RNG = np.random.default_rng(3)


def kernel(build, *shapes, dtype: str = "float32") -> tir.PrimFunc:
    """The fused loops of a graph of one kernel."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(build(*params))
        builder.emit_func_output(output)
    mod = builder.get()
    with Target("llvm"):
        for step in legalize_passes(None):
            mod = step(mod)
    (func,) = [f for f in mod.functions.values() if isinstance(f, tir.PrimFunc)]
    return func.with_attr("global_symbol", "main")


def scheduled(func: tir.PrimFunc) -> tir.PrimFunc:
    schedule = Attention().apply(func, Target("llvm"))
    assert schedule is not None
    return schedule.mod["main"]


def outcome(func: tir.PrimFunc, shape, *inputs: np.ndarray, dtype: str = "float32") -> np.ndarray:
    tensors = [*map(oneir.runtime.tensor, inputs), oneir.runtime.empty(shape, dtype)]
    oneir.build(scheduled(func))["main"](*tensors)
    return tensors[-1].numpy()


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def expected(q, k, v, bias: np.ndarray | float = 0.0, causal: bool = False) -> np.ndarray:
    """The definition, over (batch, length, heads, size)."""
    q, k, v = (x.astype("float64").transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3)


@pytest.mark.parametrize(
    ("queries", "keys", "size"),
    [
        (128, 128, 64),
        (197, 197, 64),
        (7, 1000, 32),
        (33, 7, 80),
        (16, 50, 128),
        (20, 31, 24),
        (40, 77, 48),
        (9, 96, 96),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_numbers_are_those_of_the_definition(queries: int, keys: int, size: int, causal: bool) -> None:
    shapes = (2, queries, 3, size), (2, keys, 3, size), (2, keys, 3, size)
    func = kernel(lambda q, k, v: op.nn.attention(q, k, v, causal_mask="TopLeft" if causal else None), *shapes)
    q, k, v = (random(*shape) for shape in shapes)
    result = outcome(func, q.shape, q, k, v)
    np.testing.assert_allclose(result, expected(q, k, v, causal=causal), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(2, 3, 19, 35), (2, 1, 1, 35), (1, 1, 19, 35)])
def test_a_mask_is_added_to_the_scores(shape: tuple[int, ...]) -> None:
    shapes = (2, 19, 3, 32), (2, 35, 3, 32), (2, 35, 3, 32), shape
    func = kernel(lambda q, k, v, bias: op.nn.attention(q, k, v, bias), *shapes)
    q, k, v, bias = (random(*s) for s in shapes)
    bias[..., 3] = -np.inf
    np.testing.assert_allclose(outcome(func, q.shape, q, k, v, bias), expected(q, k, v, bias), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("mask", [-100.0, -1e9, -np.inf])
def test_masked_keys_have_no_weight_rather_than_a_subnormal_one(mask: float) -> None:
    """What is far below the largest score counts as zero, so that no product takes the slow way of subnormal numbers."""
    shapes = (2, 49, 3, 32), (2, 49, 3, 32), (2, 49, 3, 32), (1, 1, 1, 49)
    q, k, v = (random(*shape) for shape in shapes[:3])
    bias = np.zeros(shapes[3], "float32")
    bias[..., 40:], v[:, 40:] = mask, 1e38
    result = outcome(kernel(lambda q, k, v, bias: op.nn.attention(q, k, v, bias), *shapes), q.shape, q, k, v, bias)
    np.testing.assert_allclose(result, expected(q, k[:, :40], v[:, :40]), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("queries", [1, 20])
def test_weights_of_every_size_are_exact(queries: int) -> None:
    # Values that are rows of an identity give the weights themselves, down to the smallest normal ones.
    shapes = (1, queries, 1, 128), (1, 128, 1, 128), (1, 128, 1, 128), (1, 1, 1, 128)
    q, k = np.zeros(shapes[0], "float32"), np.zeros(shapes[1], "float32")
    v = np.eye(128, dtype="float32")[None, :, None]
    bias = -np.linspace(0, 86, 128, dtype="float32").reshape(shapes[3])
    result = outcome(kernel(lambda q, k, v, bias: op.nn.attention(q, k, v, bias), *shapes), q.shape, q, k, v, bias)
    np.testing.assert_allclose(result, expected(q, k, v, bias), rtol=1e-6)


def test_nan_reaches_the_result() -> None:
    shapes = (1, 20, 2, 32), (1, 31, 2, 32), (1, 31, 2, 32), (1, 1, 20, 31)
    q, k, v = (random(*shape) for shape in shapes[:3])
    bias = np.zeros(shapes[3], "float32")
    bias[0, 0, 3, 17] = np.uint32(0x7FC00123).view("float32")  # Not NumPy's own: its lowest bits are not 0.
    result = outcome(kernel(lambda q, k, v, bias: op.nn.attention(q, k, v, bias), *shapes), q.shape, q, k, v, bias)
    assert (np.isnan(result).all(axis=(0, 2, 3)) == (np.arange(20) == 3)).all()
    assert np.isfinite(result[:, np.arange(20) != 3]).all()


def test_several_heads_of_queries_share_one_of_keys() -> None:
    shapes = (1, 24, 6, 32), (1, 40, 2, 32), (1, 40, 2, 32)
    func = kernel(op.nn.attention, *shapes)
    q, k, v = (random(*shape) for shape in shapes)
    np.testing.assert_allclose(outcome(func, q.shape, q, k, v), expected(q, k, v), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("queries", "keys"), [(1, 7), (7, 19), (50, 50)])
def test_lengths_may_be_known_when_it_runs(queries: int, keys: int) -> None:
    b, n, m = (tir.Var(name, "int64") for name in "bnm")
    func = kernel(op.nn.attention, (b, n, 2, 32), (b, m, 2, 32), (b, m, 2, 32))
    q, k, v = random(2, queries, 2, 32), random(2, keys, 2, 32), random(2, keys, 2, 32)
    np.testing.assert_allclose(outcome(func, q.shape, q, k, v), expected(q, k, v), rtol=2e-5, atol=2e-6)


def test_a_mask_may_have_lengths_that_are_known_when_it_runs() -> None:
    b, n = tir.Var("b", "int64"), tir.Var("n", "int64")
    shapes = (b, n, 3, 32), (b, n, 3, 32), (b, n, 3, 32), (b, 1, n, n)
    func = kernel(lambda q, k, v, bias: op.nn.attention(q, k, v, bias), *shapes)
    q, k, v, bias = (random(*shape) for shape in [(2, 19, 3, 32)] * 3 + [(2, 1, 19, 19)])
    np.testing.assert_allclose(outcome(func, q.shape, q, k, v, bias), expected(q, k, v, bias), rtol=2e-5, atol=2e-6)


def test_queries_before_the_first_key_see_none_and_blocks_of_keys_are_of_any_length() -> None:
    shapes = (1, 70, 2, 32), (1, 600, 2, 32), (1, 600, 2, 32)
    func = kernel(lambda q, k, v: op.nn.attention(q, k, v, causal_mask="BottomRight"), *shapes)
    q, k, v = (random(*shape) for shape in shapes)
    bias = np.where(np.tri(70, 600, 530, dtype=bool), 0, -np.inf)
    np.testing.assert_allclose(outcome(func, q.shape, q, k, v), expected(q, k, v, bias), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("batch", "heads", "size"), [(1, 1, 32), (1, 1, 33), (2, 1, 40), (1, 2, 80), (2, 3, 7)])
def test_heads_may_be_one_and_of_any_size(batch: int, heads: int, size: int) -> None:
    shapes = (batch, 19, heads, size), (batch, 300, heads, size), (batch, 300, heads, size)
    q, k, v = (random(*shape) for shape in shapes)
    result = outcome(kernel(op.nn.attention, *shapes), q.shape, q, k, v)
    np.testing.assert_allclose(result, expected(q, k, v), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("queries", "heads", "kv_heads"), [(1, 4, 4), (3, 2, 2), (1, 8, 2), (1, 16, 2), (40, 8, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_few_queries_and_those_that_share_keys(queries: int, heads: int, kv_heads: int, causal: bool) -> None:
    shapes = (2, queries, heads, 64), (2, 700, kv_heads, 64), (2, 700, kv_heads, 48)
    func = kernel(lambda q, k, v: op.nn.attention(q, k, v, causal_mask="TopLeft" if causal else None), *shapes)
    q, k, v = (random(*shape) for shape in shapes)
    result = outcome(func, (*q.shape[:3], 48), q, k, v)
    np.testing.assert_allclose(result, expected(q, k, v, causal=causal), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("queries", [1, 24])
@pytest.mark.parametrize("safe", [False, True])
def test_a_query_without_keys_is_nan_or_zero(queries: int, safe: bool) -> None:
    shapes = (2, queries, 2, 32), (2, 300, 2, 32), (2, 300, 2, 32), (2, 1, queries, 300)
    compute = safe_attention if safe else op.nn.attention
    q, k, v, bias = (random(*shape) for shape in shapes)
    bias[0, :, 0, :] = -np.inf
    bias[1, :, 0, :299] = -np.inf
    with np.errstate(invalid="ignore"):
        wanted = expected(q, k, v, bias)
    assert np.isnan(wanted[0, 0]).all() and not np.isnan(wanted[1]).any()
    wanted = np.where(np.isnan(wanted), 0, wanted) if safe else wanted
    np.testing.assert_allclose(outcome(kernel(compute, *shapes), q.shape, q, k, v, bias), wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (70, 300)])
def test_half_precision_is_summed_in_float32(dtype: str, queries: int, keys: int) -> None:
    shapes = (1, queries, 2, 64), (1, keys, 2, 64), (1, keys, 2, 64)
    q, k, v = (random(*shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for shape in shapes)
    result = outcome(kernel(op.nn.attention, *shapes, dtype=dtype), q.shape, q, k, v, dtype=dtype).astype("float64")
    # What is left is the rounding of the result: half of the last of 11 or 8 bits.
    bound = 2.0 ** (-11 if dtype == "float16" else -8)
    np.testing.assert_allclose(result, expected(q, k, v), rtol=1.05 * bound, atol=2e-6)


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_lengths_that_turn_out_to_be_zero(batch: int, queries: int, keys: int) -> None:
    b, n, m = (tir.Var(name, "int64") for name in "bnm")
    func = kernel(op.nn.attention, (b, n, 2, 32), (b, m, 2, 32), (b, m, 2, 32))
    q, k, v = random(batch, queries, 2, 32), random(batch, keys, 2, 32), random(batch, keys, 2, 32)
    np.testing.assert_array_equal(outcome(func, q.shape, q, k, v), np.zeros(q.shape))


@pytest.mark.parametrize("queries", [1, 20])
def test_a_processor_without_vectors_has_attention_as_well(queries: int) -> None:
    target = Target("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64")
    schedule = Attention().apply(kernel(op.nn.attention, (1, queries, 2, 32), *[(1, 40, 2, 32)] * 2), target)
    assert schedule is not None
    oneir.build(schedule.mod["main"], target=target)


def test_memory_does_not_grow_with_the_lengths() -> None:
    def allocated(length: int) -> list[int]:
        sizes = []

        def collect(node) -> None:
            if isinstance(node, tir.Allocate):
                sizes.append(int(np.prod([extent.value for extent in node.extents])))

        post_order_visit(scheduled(kernel(op.nn.attention, *[(1, length, 2, 64)] * 3)).body, collect)
        return sizes

    assert allocated(1024) == allocated(4096)
    assert 4 * sum(allocated(1024)) < 512 << 10


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda x: op.nn.softmax(x), [(8, 32)]),
        (lambda x, y: op.matmul(x, y), [(8, 32), (32, 16)]),
        (lambda q, k, v: op.nn.attention(q, k, v), [(1, 20, 2, 600)] * 3),  # a block's keys would not fit into caches
    ],
)
def test_other_functions_are_left_to_other_rules(build, shapes) -> None:
    assert Attention().apply(kernel(build, *shapes), Target("llvm")) is None
