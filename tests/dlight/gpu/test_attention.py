"""Attention as one kernel: equal to NumPy in several orders of threads, with masks, unknown lengths and half precision."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from devices import needs_compiler

import oneir
from oneir import relax
from oneir.dlight.gpu import Attention
from oneir.script import relax as R
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, CudaOnHost, cuda_on_host

ONE = "attention__direct_kernel"


def attention(q, k, v, dtype="float32", causal=None, bias=None):
    """A graph of one attention; shapes are (batch, length, heads, depth)."""
    bb = relax.BlockBuilder()
    given = {"q": q, "k": k, "v": v} | ({"bias": bias} if bias else {})
    args = [relax.Var(name, R.Tensor(shape, dtype)) for name, shape in given.items()]
    with bb.function("main", args):
        with bb.dataflow():
            out = bb.emit_output(relax.op.nn.attention(*args, causal_mask=causal))
        bb.emit_func_output(out)
    return bb.get()


def expected(q, k, v, causal=None, bias=None):
    """In float64."""
    q, k, v = (x.astype("float64").transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = scores if bias is None else scores + bias
    queries, keys = scores.shape[-2:]
    if causal:
        scores[..., ~np.tri(queries, keys, 0 if causal == "TopLeft" else keys - queries, dtype=bool)] = -np.inf
    with np.errstate(invalid="ignore"):  # a query whose keys are all masked
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def random(shape, seed, dtype="float32"):
    values = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def kernels(ex):
    """The names of the kernels, in order."""
    return re.findall(r"(\w+_kernel\w*)\(", ex.inspect_source("cuda"))


def check(ex, arrays, wanted, order="forward", rtol=1e-5, atol=1e-6):
    with cuda_on_host(order):
        dev = oneir.cuda()
        found = relax.VirtualMachine(ex, dev)["main"](*[oneir.nd.array(x, dev) for x in arrays]).numpy()
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=rtol, atol=atol)


CASES = {
    "no whole tiles": ((2, 70, 3, 32), (2, 50, 3, 32), (2, 50, 3, 32), None),
    "few queries": ((2, 3, 2, 16), (2, 65, 2, 16), (2, 65, 2, 16), None),
    "values of another length": ((1, 33, 2, 40), (1, 40, 2, 40), (1, 40, 2, 24), None),
    "long heads": ((1, 20, 2, 128), (1, 40, 2, 128), (1, 40, 2, 128), None),
    "causal": ((2, 40, 2, 16), (2, 40, 2, 16), (2, 40, 2, 16), "TopLeft"),
    "causal, more keys": ((2, 20, 2, 16), (2, 45, 2, 16), (2, 45, 2, 16), "BottomRight"),
}


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_one_kernel_equals_numpy(name, order):
    *shapes, causal = CASES[name]
    ex = relax.build(attention(*shapes, causal=causal), "cuda")
    assert kernels(ex) == [ONE]
    arrays = [random(shape, seed) for seed, shape in enumerate(shapes)]
    check(ex, arrays, expected(*arrays, causal=causal), order)


@needs_compiler
def test_a_bias_masks_and_a_query_without_keys_is_nan():
    shape = (1, 33, 2, 16)
    bias = random((1, 2, 33, 33), 5)
    bias[np.random.default_rng(6).random(bias.shape) < 0.3] = -np.inf
    bias[:, :, 0, :32] = -np.inf  # a whole tile
    bias[:, :, 1, :] = -np.inf
    arrays = [random(shape, seed) for seed in range(3)]
    ex = relax.build(attention(shape, shape, shape, bias=bias.shape), "cuda")
    assert kernels(ex) == ["attention_bias__direct_kernel"]
    wanted = expected(*arrays, bias=bias)
    assert np.isnan(wanted[:, 1]).all() and not np.isnan(wanted[:, 2:]).any()
    check(ex, [*arrays, bias], wanted)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    shape = (2, 20, 2, 64)
    arrays = [random(shape, seed, dtype) for seed in range(3)]
    ex = relax.build(attention(shape, shape, shape, dtype), "cuda")
    assert kernels(ex) == [ONE]
    bound = 2e-3 if dtype == "float16" else 2e-2
    check(ex, arrays, expected(*arrays), rtol=bound, atol=bound)


@needs_compiler
def test_lengths_that_are_symbolic():
    n, m = oneir.tir.Var("n", "int64"), oneir.tir.Var("m", "int64")
    ex = relax.build(attention((2, n, 2, 16), (2, m, 2, 16), (2, m, 2, 16)), "cuda")
    assert kernels(ex) == [ONE]
    for queries, keys in ((1, 1), (32, 32), (40, 71)):
        shapes = [(2, queries, 2, 16), (2, keys, 2, 16), (2, keys, 2, 16)]
        arrays = [random(shape, seed) for seed, shape in enumerate(shapes)]
        check(ex, arrays, expected(*arrays))


@needs_compiler
def test_each_barrier_is_needed():
    """Removing any is found in some order of threads: memory is read that holds nothing, or results are wrong."""
    shape = (2, 40, 2, 16)
    text = relax.build(attention(shape, shape, shape), "cuda").inspect_source("cuda")
    arrays = [random(shape, seed) for seed in range(3)]
    wanted = expected(*arrays)
    q, k, v = arrays
    head = re.search(ONE + r"\((.*?)\)", text)[1]
    by_name = {"q": q, "k": k, "v": v}

    def runs(program, order):
        out = np.zeros(shape, "float32")
        names = [param.split()[-1] for param in head.split(",")]
        program.launch(ONE, [2, 4], [128], [by_name.get(name, out) for name in names], order)
        return np.allclose(out, wanted, rtol=1e-5, atol=1e-6)

    assert all(runs(CudaOnHost(text), order) for order in ORDERS)
    barrier = "__syncthreads();"
    pieces = text.split(barrier)
    assert len(pieces) == 5
    for place in range(4):
        planted = barrier.join(pieces[: place + 1]) + barrier.join(pieces[place + 1 :])
        program = CudaOnHost(planted)
        assert not all(runs(program, order) for order in ORDERS), place


def test_what_it_is_not_for():
    def rule(target, *args, **kwargs):
        mod = relax.transform.LegalizeOps()(attention(*args, **kwargs))
        (func,) = [func for var, func in mod.functions_items() if var.name_hint == "attention"]
        return Attention().apply(func, Target(target))

    shape = (2, 40, 2, 64)
    assert rule("cuda", shape, shape, shape) is not None
    assert rule("cuda", shape, shape, shape, "float64") is None  # it computes in float32
    assert rule({"kind": "cuda", "max_shared_memory_per_block": 4096}, shape, shape, shape) is None
    assert rule("llvm", shape, shape, shape) is None
