"""The Metal shading language: its text, what it refuses, and run on the host it equals NumPy."""

from __future__ import annotations

import re

import languages
import numpy as np
import pytest
from devices import needs_compiler

import oneir
from oneir import relax
from oneir.runtime.error import CompileError
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS
from oneir.testing.metal_host import MetalOnHost, metal_on_host

CASES = languages.PLAIN | languages.EXACT_FLOATS | languages.SHORT | languages.LONG


def source(mod, target="metal"):
    return oneir.build(mod, Target(target, host="llvm")).inspect_source("metal")


def launched(text, x, order="forward"):
    """What `reverse` makes of an array."""
    y = np.zeros(128, "float16")
    tensors = [x, y] if "void reverse_kernel(device half* A" in text else [y, x]
    MetalOnHost(text).launch("reverse_kernel", [1], [64], [*tensors, x.size], order)
    return y


@T.prim_func
def reverse(a: T.handle, B: T.Buffer((128,), "float16")):
    n = T.int32()
    A = T.match_buffer(a, (n,), "float16")
    for bx in T.thread_binding(1, "blockIdx.x"):
        S = T.alloc_buffer((128,), "float16", scope="shared")
        for tx in T.thread_binding(64, "threadIdx.x"):
            for v in T.vectorized(2):
                with T.block("in"):
                    i = T.axis.spatial(128, tx * 2 + v)
                    S[i] = A[i % n]
        for tx in T.thread_binding(64, "threadIdx.x"):
            for v in T.vectorized(2):
                with T.block("out"):
                    i = T.axis.spatial(128, tx * 2 + v)
                    B[i] = S[127 - i]


def test_the_text_of_a_kernel():
    text = source(reverse)
    assert text.startswith("#include <metal_stdlib>\nusing namespace metal;\n")
    kernel = text[text.index("[[kernel") :]
    head, *body = kernel.splitlines()
    assert head.startswith("[[kernel, max_total_threads_per_threadgroup(64)]] void reverse_kernel(device half* ")
    assert "constant int& n [[buffer(2)]], uint3 blockIdx [[threadgroup_position_in_grid]]" in head
    assert head.endswith("uint3 threadIdx [[thread_position_in_threadgroup]]) {")
    assert "  alignas(16) threadgroup half S[128];" in body
    assert "  threadgroup_barrier(mem_flags::mem_threadgroup);" in body
    assert any(re.search(r"\*\(device packed_half2\*\)\(B \+ .*\) = packed_half2\(\(half\)", line) for line in body)


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_a_vectorized_kernel(order):
    x = languages.random(100, dtype="float16")
    np.testing.assert_array_equal(launched(source(reverse), x, order), np.resize(x, 128)[::-1])


@needs_compiler
def test_a_removed_barrier_is_found():
    text, x = source(reverse), languages.random(128, dtype="float16")
    broken = text.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", "")
    assert not all(np.array_equal(launched(broken, x, order), x[::-1]) for order in ORDERS)


@needs_compiler
def test_reductions_wait_for_a_simd_group_only_where_the_target_has_the_size_of_one():
    case, barrier = languages.PLAIN["sum"], "simdgroup_barrier"
    small, apple = (Target({"kind": "metal", "thread_warp_size": size}) for size in (16, 32))
    assert barrier not in relax.build(case.mod, small).inspect_source("metal")
    assert barrier in relax.build(case.mod, apple).inspect_source("metal")
    with metal_on_host("backward"):
        case.check(languages.run(case, apple, oneir.metal()))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_programs(name):
    with metal_on_host("shuffled") as driver:
        CASES[name].check(languages.run(CASES[name], "metal", oneir.metal()))
        assert driver.launched


# -- refusals --


def test_float64_tensors_are_refused_by_name():
    @T.prim_func
    def f(weights: T.Buffer((32,), "float64")):
        for i in T.thread_binding(32, "threadIdx.x"):
            weights[i] = T.float64(1)

    message = "`weights` in the kernel `f_kernel` has the dtype float64, which Metal does not have; use another"
    with pytest.raises(CompileError, match=message):
        source(f)


def test_float64_operations_are_refused_by_name():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32")):
        for i in T.thread_binding(32, "threadIdx.x"):
            A[i] = T.Cast("float32", T.Cast("float64", A[i]) * T.float64(0.1))

    with pytest.raises(CompileError, match=r"\* T.float64\(0\.1.*in the kernel `f_kernel` has the dtype float64"):
        source(f)


def test_a_graph_of_float64_is_refused():
    case = languages.DOUBLE["float64 to float32"]
    with pytest.raises(
        CompileError, match="`x0` in the kernel `cast__direct_kernel` has the dtype float64, which Metal does not have"
    ):
        relax.build(case.mod, "metal").mod


def test_more_buffers_than_metal_passes_are_refused():
    arrays = [languages.random(4, 4) for _ in range(31)]
    mod = languages.graph(lambda *xs: relax.op.concat(list(xs), 0), *arrays)
    with pytest.raises(CompileError, match="a Metal kernel has at most 31 arguments, found 32: "):
        relax.build(mod, "metal").mod


@pytest.mark.parametrize(
    "tag, scope, message",
    [
        ("clusterIdx.x", "shared", "Metal has no thread axis 'clusterIdx.x'"),
        (
            "threadIdx.x",
            "cluster",
            "Metal has no barrier of the scope 'cluster'; expected 'shared', 'global' or 'warp'",
        ),
    ],
)
def test_unknown_threads_and_barriers_are_refused(tag, scope, message):
    @T.prim_func
    def f(A: T.Buffer((32,), "float32")):
        for i in T.thread_binding(32, tag):
            A[i] = T.float32(1)
            T.evaluate(T.tvm_storage_sync(scope))

    with pytest.raises(CompileError, match=re.escape(message)):
        source(f)
