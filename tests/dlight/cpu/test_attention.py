"""Attention on processors: numbers are those of NumPy in float64, and memory for scores grows with the keys only."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax, tir
from oneir.dlight.cpu import Attention
from oneir.relax import op
from oneir.relax.pipeline import legalize_passes
from oneir.target import Target
from oneir.tir.stmt_functor import post_order_visit

RNG = np.random.default_rng(3)


def kernel(build, *shapes) -> tir.PrimFunc:
    """The fused loops of a graph of one kernel."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, "float32")) for i, s in enumerate(shapes)]
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


def outcome(func: tir.PrimFunc, shape, *inputs: np.ndarray) -> np.ndarray:
    tensors = [*map(oneir.runtime.tensor, inputs), oneir.runtime.empty(shape, "float32")]
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
    [(128, 128, 64), (197, 197, 64), (7, 1000, 32), (33, 7, 80), (16, 50, 128), (20, 31, 24)],
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


@pytest.mark.parametrize("length", [128, 512])
def test_scores_take_memory_for_a_few_queries_only(length: int) -> None:
    func = scheduled(kernel(op.nn.attention, *[(1, length, 2, 64)] * 3))
    mod = oneir.ir.IRModule({"main": func})
    for step in ("LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque"):
        mod = getattr(tir.transform, step)()(mod)
    mod = tir.transform.CompactBufferAllocation()(mod)
    sizes = []

    def collect(node) -> None:
        if isinstance(node, tir.Block):
            sizes.extend(
                int(np.prod([extent.value for extent in b.shape if isinstance(extent, tir.IntImm)]))
                for b in node.alloc_buffers
            )

    post_order_visit(mod["main"].body, collect)
    assert max(sizes) == 2 * length * 64  # the keys in panels


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda x: op.nn.softmax(x), [(8, 32)]),
        (lambda x, y: op.matmul(x, y), [(8, 32), (32, 16)]),
        (lambda q, k, v: op.nn.attention(q, k, v), [(1, 20, 2, 33)] * 3),  # no vectors
    ],
)
def test_other_functions_are_left_to_other_rules(build, shapes) -> None:
    assert Attention().apply(kernel(build, *shapes), Target("llvm")) is None
