"""InjectPTXAsyncCopy: vectorized copies to shared memory need no registers; which other copies stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_compiler
from pass_checks import apply

from oneir import build, cuda, nd
from oneir.ir import IRModule
from oneir.ir.operators import as_op, same_expr
from oneir.ir.transform import Sequential
from oneir.ir.visitor import post_order_visit
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, cuda_on_host
from oneir.tir.transform import InjectPTXAsyncCopy, VectorizeLoop

COPY = as_op("tir.ptx_cp_async")


def copy(lanes, value, extent="shared"):
    """A copy of neighbouring elements in the scope of asynchronous ones."""

    @T.prim_func
    def func(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (256,), "float16")
        tx = T.launch_thread("threadIdx.x", 8)
        data = T.allocate([256], "float16", extent)
        S = T.decl_buffer((256,), "float16", data=data, scope=extent)
        with T.attr(0, "async_scope", 1):
            for v in T.vectorized(lanes):
                S[tx * lanes + v] = value(A, tx * lanes, v, n)

    return func


CONDITIONS = {
    "none": lambda A, i, v, n: A[i + v],
    "an end": lambda A, i, v, n: T.if_then_else(i + v < n, A[i + v], T.float16(0)),
    "a row of neighbours": lambda A, i, v, n: T.if_then_else((i + v) // 16 < n, A[i + v], T.float16(0)),
    "an end and one for all": lambda A, i, v, n: T.if_then_else(T.And(n < 100, i + v < n), A[i + v], T.float16(0)),
}
OTHERS = {
    "a step of two": lambda A, i, v, n: A[i + v * 2],
    "arithmetic": lambda A, i, v, n: A[i + v] + T.float16(1),
    "another value": lambda A, i, v, n: T.if_then_else(i + v < n, A[i + v], T.float16(1)),
    "a beginning": lambda A, i, v, n: T.if_then_else(n < i + v, A[i + v], T.float16(0)),
    "a row that ends between": lambda A, i, v, n: T.if_then_else((i + v) // 4 < n, A[i + v], T.float16(0)),
    "a part that differs": lambda A, i, v, n: T.if_then_else((i + v) % 2 < n, A[i + v], T.float16(0)),
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_copies(lanes, condition):
    after = apply(InjectPTXAsyncCopy(), copy(lanes, CONDITIONS[condition]))
    text = after.script()
    assert "T.vectorized" not in text and "async_scope" not in text
    (call,) = copies(after)
    data, at, source, first, size, *valid = call.args
    assert (data.name, source.name, int(size)) == ("data", "A", 2 * lanes) and same_expr(at, first)
    assert bool(valid) == (condition != "none")


def copies(func):
    found = []
    post_order_visit(func.body, lambda n: found.append(n) if getattr(n, "op", None) is COPY else None)
    return found


@pytest.mark.parametrize(("dtype", "lanes", "size"), [("float32", 1, 4), ("float32", 4, 16), ("float16", 8, 16)])
@pytest.mark.parametrize("masked", [False, True])
def test_copies_of_vectors_and_elements(dtype, lanes, size, masked):
    def value(A, i, n):
        return T.if_then_else(n > 3, A[i], getattr(T, dtype)(0)) if masked else A[i]

    @T.prim_func
    def func(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (256,), dtype)
        tx = T.launch_thread("threadIdx.x", 8)
        data = T.allocate([256], dtype, "shared")
        S = T.decl_buffer((256,), dtype, data=data, scope="shared")
        with T.attr(0, "async_scope", 1):
            for v in T.vectorized(lanes):
                S[tx * lanes + v] = value(A, tx * lanes + v, n)

    after = apply(Sequential([VectorizeLoop(), InjectPTXAsyncCopy()]), func)
    (call,) = copies(after)
    assert call.dtype == dtype and int(call.args[4]) == size and same_expr(call.args[1], call.args[3])
    assert len(call.args) == (6 if masked else 5)


@pytest.mark.parametrize("stride", [0, 2])
def test_other_vectors_are_stored(stride):
    @T.prim_func
    def func(a: T.handle):
        A = T.match_buffer(a, (256,), "float16")
        data = T.allocate([256], "float16", "shared")
        S = T.decl_buffer((256,), "float16", data=data, scope="shared")
        with T.attr(0, "async_scope", 1):
            S[T.Ramp(0, 1, 8)] = A[T.Ramp(0, 2, 8)] if stride else T.Broadcast(A[0], 8)

    assert not copies(apply(InjectPTXAsyncCopy(), func))


@pytest.mark.parametrize("value", OTHERS)
def test_other_values_are_stored(value):
    text = apply(InjectPTXAsyncCopy(), copy(8, OTHERS[value])).script()
    assert "ptx_cp_async" not in text and "T.vectorized" in text


@pytest.mark.parametrize(("lanes", "scope"), [(1, "shared"), (16, "shared"), (8, "local")])
def test_other_sizes_and_memories_are_stored(lanes, scope):
    assert "ptx_cp_async" not in apply(InjectPTXAsyncCopy(), copy(lanes, CONDITIONS["none"], scope)).script()


def pipelined(extent, stages):
    """Each round copies a row, and adds it to the result some rounds later."""

    @T.prim_func
    def sums(A: T.Buffer((extent, 256), "float16"), B: T.Buffer((256,), "float16")):
        for bx in T.thread_binding(1, "blockIdx.x"):
            for tx in T.thread_binding(32, "threadIdx.x"):
                with T.block("all"):
                    T.reads(A[0:extent, 0:256])
                    T.writes(B[0:256])
                    for i in T.serial(
                        extent,
                        annotations={
                            "software_pipeline_stage": [0, stages],
                            "software_pipeline_order": [0, 1],
                            "software_pipeline_async_stages": [0],
                        },
                    ):
                        with T.block("round"):
                            T.reads(A[i, 0:256])
                            T.writes(B[0:256])
                            S = T.alloc_buffer((256,), "float16", scope="shared")
                            with T.block("copy"):
                                T.reads(A[i, 0:256])
                                T.writes(S[0:256])
                                for v in T.vectorized(8):
                                    S[tx * 8 + v] = A[i, tx * 8 + v]
                            with T.block("add"):
                                T.reads(S[0:256])
                                T.writes(B[0:256])
                                for v in range(8):
                                    B[v * 32 + tx] = B[v * 32 + tx] + S[255 - (v * 32 + tx)]

    return sums.with_attr("global_symbol", f"sums_{extent}_{stages}")


@needs_compiler
def test_rounds_wait_for_what_they_read():
    """Copies arrive on the host only where they are waited for; short loops have fewer rounds than stages."""
    plans = [(extent, stages) for extent in (1, 2, 3, 7) for stages in (1, 2, 3)]

    ex = build(IRModule({f"sums_{e}_{s}": pipelined(e, s) for e, s in plans}), Target("cuda", host="llvm"))
    text = ex.inspect_source("cuda")
    assert "oneir_cp_async_wait<3>();" in text and "oneir_cp_async16(" in text
    for order in ORDERS:
        with cuda_on_host(order):
            for extent, stages in plans:
                a = np.random.default_rng(0).integers(-9, 9, (extent, 256)).astype("float16")
                b = nd.array(np.zeros(256, "float16"), cuda())
                ex[f"sums_{extent}_{stages}"](nd.array(a, cuda()), b)
                np.testing.assert_array_equal(b.numpy(), a.sum(0)[::-1])


def test_a_wait_whose_count_is_not_known_waits_for_all():
    @T.prim_func
    def func(n: T.int32):
        T.attr(0, "async_wait_queue_scope", 0)
        T.attr(0, "async_wait_inflight_count", n)
        T.evaluate(n)

    assert "T.ptx_wait_group(0)" in apply(InjectPTXAsyncCopy(), func).script()
