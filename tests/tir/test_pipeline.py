"""The default pipeline: what it leaves, and that it keeps what a program computes and the rules of TensorIR."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import tir
from oneir.ir.transform import PassContext
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import NotRegistered
from oneir.script import tir as T
from oneir.tir.analysis import verify_well_formed
from oneir.tir.pipeline import default_tir_passes, get_tir_pipeline, register_tir_pipeline

rng = np.random.default_rng(3)


@T.prim_func
def tiled(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), D: T.Buffer((16, 16), "float32")):
    C = T.alloc_buffer((16, 16))
    for i0 in T.parallel(4):
        for j0, k, i1 in T.grid(2, 16, 4):
            for j1 in T.vectorized(8):
                with T.block("C"):
                    vi = T.axis.spatial(16, i0 * 4 + i1)
                    vj = T.axis.spatial(16, j0 * 8 + j1)
                    vk = T.axis.reduce(16, k)
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        for i1, j in T.grid(4, 16):
            with T.block("D"):
                vi = T.axis.spatial(16, i0 * 4 + i1)
                vj = T.axis.spatial(16, j)
                D[vi, vj] = T.max(C[vi, vj], T.float32(0))


@T.prim_func
def ragged(a: T.handle, c: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i0 in range((n + 3) // 4):
        with T.block("rows"):
            v = T.axis.spatial((n + 3) // 4, i0)
            B = T.alloc_buffer((n, m))
            for i1, j in T.grid(4, m):
                with T.block("B"):
                    T.where(v * 4 + T.Cast("int64", i1) < n)
                    vi = T.axis.spatial(n, v * 4 + T.Cast("int64", i1))
                    vj = T.axis.spatial(m, j)
                    B[vi, vj] = A[vi, vj] + T.float32(1)
            for i1, j in T.grid(4, m):
                with T.block("C"):
                    T.where(v * 4 + T.Cast("int64", i1) < n)
                    vi = T.axis.spatial(n, v * 4 + T.Cast("int64", i1))
                    vj = T.axis.reduce(m, j)
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + B[vi, vj]


@pytest.mark.parametrize("func", [tiled, ragged], ids=lambda f: f.attrs["global_symbol"])
def test_every_pass_keeps_the_rules(func):
    mod = oneir.ir.IRModule({"main": func})
    for step in default_tir_passes():
        mod = step(mod)
        assert verify_well_formed(mod), step.info.name


def test_nothing_is_left_that_the_code_generator_does_not_know():
    lowered = get_tir_pipeline()(oneir.ir.IRModule({"main": tiled}))["main"]
    kinds, ranks = set(), set()

    def look(node):
        kinds.add(type(node))
        if isinstance(node, (tir.BufferLoad, tir.BufferStore)):
            ranks.add(len(node.indices))

    post_order_visit(lowered.body, look)
    assert not kinds & {tir.Block, tir.BlockRealize, tir.BufferRealize}
    assert ranks == {1}


def test_an_accumulator_is_as_large_as_its_tile():
    lowered = get_tir_pipeline()(oneir.ir.IRModule({"main": tiled}))["main"]
    sizes = []
    post_order_visit(lowered.body, lambda n: sizes.append(n.extents[0].value) if isinstance(n, tir.Allocate) else None)
    assert sizes == [4 * 16]


@pytest.mark.parametrize("options", [{}, {"tir.instrument_bound_checkers": True}, {"tir.disable_vectorize": True}])
def test_native_results(options):
    a, b = rng.standard_normal((2, 16, 16), dtype="float32")
    d = np.zeros((16, 16), "float32")
    with PassContext(config=options):
        oneir.build(tiled)(a, b, d)
    np.testing.assert_allclose(d, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (7, 5), (33, 2), (0, 3)])
def test_symbolic_shapes_with_predicates(shape):
    a = rng.standard_normal(shape, dtype="float32")
    c = np.zeros(shape[0], "float32")
    oneir.build(ragged)(a, c)
    np.testing.assert_allclose(c, (a + 1).sum(1), rtol=1e-5, atol=1e-5)


def test_an_assertion_may_be_switched_off():
    @T.prim_func
    def func(A: T.Buffer((1,), "int32")):
        assert A[0] > 0, "expected a positive number"
        A[0] = 7

    a = np.array([-1], "int32")
    with pytest.raises(AssertionError, match="expected a positive number"):
        oneir.build(func)(a)
    with PassContext(config={"tir.disable_assert": True}):
        oneir.build(func)(a)
    assert a[0] == 7


def test_a_pipeline_of_one_s_own():
    seen = []
    mark = oneir.tir.transform.Apply(lambda f: seen.append(f) or f)
    register_tir_pipeline("test.mine", lambda: [mark])
    mod = oneir.ir.IRModule({"main": tiled})
    assert get_tir_pipeline("test.mine")(mod) is mod
    assert seen == [tiled]


def test_an_unknown_pipeline_is_refused():
    with pytest.raises(NotRegistered, match=r"no TensorIR pipeline 'fast'; there are default"):
        get_tir_pipeline("fast")
