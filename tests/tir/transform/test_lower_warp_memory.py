"""LowerWarpMemory: a warp's buffer is registers of its threads; what another thread holds is exchanged, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_compiler

from oneir import build, cuda, nd
from oneir.ir import IRModule
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue, WellFormedError
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, cuda_on_host
from oneir.tir.transform import BindTarget, LowerWarpMemory


def lowered(func):
    return LowerWarpMemory()(BindTarget(Target("cuda"))(IRModule({"main": func})))["main"]


def test_own_elements_are_registers():
    @T.prim_func
    def before(A: T.Buffer((32, 4), "float32"), B: T.Buffer((32, 4), "float32")):
        for tx in T.thread_binding(32, "threadIdx.x"):
            with T.block(""):
                T.reads(A[tx, 0:4])
                T.writes(B[tx, 0:4])
                W = T.alloc_buffer((2, 32, 4), "float32", scope="warp")
                for i in range(4):
                    W[1, tx, i] = A[tx, i]
                for i in range(4):
                    B[tx, i] = W[1, tx, i] + T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((32, 4), "float32"), B: T.Buffer((32, 4), "float32")):
        for tx in T.thread_binding(32, "threadIdx.x"):
            with T.block(""):
                T.reads(A[tx, 0:4])
                T.writes(B[tx, 0:4])
                W = T.alloc_buffer((2, 4), "float32", scope="local")
                for i in range(4):
                    W[1, i] = A[tx, i]
                for i in range(4):
                    B[tx, i] = W[1, i] + T.float32(1)

    after = lowered(before).without_attr("target").without_attr("global_symbol")
    assert_structural_equal(after, expected.without_attr("global_symbol"))


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_other_threads_elements_are_exchanged(order):
    @T.prim_func
    def turned(A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16")):
        for bx in T.thread_binding(1, "blockIdx.x"):
            for tx in T.thread_binding(64, "threadIdx.x"):
                with T.block(""):
                    T.reads(A[tx])
                    T.writes(B[tx])
                    W = T.alloc_buffer((32,), "float16", scope="warp")
                    W[tx % 32] = A[tx]
                    B[tx] = W[(tx * 5 + 3) % 32]

    ex = build(turned, Target("cuda", host="llvm"))
    text = ex.inspect_source("cuda")
    assert "__shared__" not in text and text.count("oneir_shuffle(") == 2
    a = np.arange(64, dtype="float16")
    with cuda_on_host(order):
        b = nd.array(np.zeros_like(a), cuda())
        ex["turned"](nd.array(a, cuda()), b)
        place = np.arange(64)
        np.testing.assert_array_equal(b.numpy(), place // 32 * 32 + (place * 5 + 3) % 32)


def warp_buffer(shape, store, load):
    @T.prim_func
    def func(A: T.Buffer((32,), "float32")):
        for tx in T.thread_binding(32, "threadIdx.x"):
            with T.block(""):
                T.reads(A[tx])
                T.writes(A[tx])
                W = T.alloc_buffer(shape, "float32", scope="warp")
                with T.block("store"):
                    T.reads(A[tx])
                    T.writes(W[0, 0])
                    to = T.meta_var(store(tx))
                    W[to[0], to[1]] = A[tx]
                with T.block("load"):
                    T.reads(W[0, 0])
                    T.writes(A[tx])
                    source = T.meta_var(load(tx))
                    A[tx] = W[source[0], source[1]]

    return func


@pytest.mark.parametrize(
    ("shape", "store", "load", "error", "message"),
    [
        ((16, 2), lambda t: (t, 0), lambda t: (t, 0), InvalidValue, "expected 32, the threads of a warp"),
        ((32, 2), lambda t: (31 - t, 0), lambda t: (t, 0), WellFormedError, "only its own elements of `W`"),
        ((32, 2), lambda t: (t, 0), lambda t: (31 - t, t % 2), WellFormedError, "whose number differs between"),
    ],
)
def test_what_registers_cannot_hold(shape, store, load, error, message):
    with pytest.raises(error, match=message):
        lowered(warp_buffer(shape, store, load))


def test_a_target_is_needed():
    func = warp_buffer((32, 2), lambda t: (t, 0), lambda t: (t, 0))
    with pytest.raises(InvalidValue, match="apply BindTarget before"):
        LowerWarpMemory()(IRModule({"main": func}))
