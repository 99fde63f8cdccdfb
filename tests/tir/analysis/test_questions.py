"""Questions about functions: what is free, pure, large, costly, out of bounds; where buffers are used."""

from __future__ import annotations

import pytest

import oneir
from oneir import tir
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InvalidValue, WellFormedError
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.tir import analysis


@T.prim_func
def matmul_relu(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "float32")):
    C = T.alloc_buffer((8, 8))
    for i, j in T.grid(8, 8):
        for k in range(8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))


def loops(func):
    found = {}
    post_order_visit(func.body, lambda n: found.setdefault(n.loop_var.name, n) if isinstance(n, tir.For) else None)
    return found


def blocks(func):
    found = {}
    post_order_visit(func.body, lambda n: found.setdefault(n.name_hint, n) if isinstance(n, tir.Block) else None)
    return found


def buffers(func):
    found = {}
    post_order_visit(func.body, lambda n: found.setdefault(n.name, n) if isinstance(n, tir.Buffer) else None)
    return found


# -- where buffers are used --


def test_the_lowest_scope_around_all_accesses():
    lca = analysis.detect_buffer_access_lca(matmul_relu)
    by_name = {buffer.name: scope for buffer, scope in lca.items()}
    assert by_name["A"] is by_name["B"] is blocks(matmul_relu)["C"]
    assert by_name["C"] is loops(matmul_relu)["j"]
    assert by_name["D"] is blocks(matmul_relu)["D"]


def test_a_reduction_is_used_outside_of_its_loops():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 8):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]

    by_name = {buffer.name: scope for buffer, scope in analysis.detect_buffer_access_lca(func).items()}
    assert by_name["C"] is loops(func)["i"]
    assert by_name["A"] is blocks(func)["C"]


def test_an_access_in_two_places_of_the_function_and_none():
    A = tir.decl_buffer((4,), "float32", "A")
    B = tir.decl_buffer((4,), "float32", "B")
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    body = tir.SeqStmt(
        [tir.For(v, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(A, 0.0, [v])) for v in (i, j)],
    )
    lca = analysis.detect_buffer_access_lca(tir.PrimFunc([A, B], body))
    assert lca == {A: None}


# -- variables --


def test_free_variables_come_in_the_order_of_their_use():
    n, m, i, x = tir.Var("n", "int32"), tir.Var("m", "int32"), tir.Var("i", "int32"), tir.Var("x", "int32")
    A = tir.decl_buffer((n,), "int32", "A")
    loop = tir.For(i, 0, m, tir.ForKind.SERIAL, tir.BufferStore(A, tir.Let(x, i, x + m), [i]))
    assert analysis.undefined_vars(loop) == [m, A.data, n]
    assert analysis.undefined_vars(loop, [A.data, m]) == [n]
    assert analysis.undefined_vars(tir.PrimFunc([A, m], loop)) == []
    assert analysis.undefined_vars(i + n) == [i, n]


def test_every_variable_of_a_program_in_ssa_form_is_defined_once():
    assert analysis.verify_ssa(matmul_relu)
    i = tir.Var("i", "int32")
    A = tir.decl_buffer((4,), "int32", "A")
    loop = tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(A, i, [i]))
    assert not analysis.verify_ssa(tir.PrimFunc([A], tir.SeqStmt([loop, loop])))


def test_deep_equality_is_over_the_same_variables():
    x, y = tir.Var("x", "int32"), tir.Var("x", "int32")
    assert analysis.expr_deep_equal(x * 2 + 1, x * 2 + 1)
    assert not analysis.expr_deep_equal(x * 2 + 1, y * 2 + 1)
    assert not analysis.expr_deep_equal(x + 1, x + 2)


# -- effects --


def test_a_function_is_pure_when_it_writes_to_nothing_but_its_own_memory():
    @T.prim_func
    def pure(A: T.Buffer((8,), "float32")) -> T.float32:
        total = T.alloc_buffer((1,))
        total[0] = T.float32(0)
        for i in range(8):
            total[0] = total[0] + T.exp(A[i])
        T.ret(total[0])

    assert analysis.is_pure_function(pure)
    assert analysis.assert_pure_function(pure)
    assert not analysis.is_pure_function(matmul_relu)
    with pytest.raises(WellFormedError, match="`matmul_relu` is not pure: it writes to `D`"):
        analysis.assert_pure_function(matmul_relu)


def test_a_call_of_unknown_effect_is_not_pure():
    @T.prim_func
    def func(n: T.int32):
        T.evaluate(T.call_extern("int32", "launch", n))

    with pytest.raises(WellFormedError, match="`func` is not pure: it calls"):
        analysis.assert_pure_function(func)


# -- sizes and costs --


def test_allocated_bytes_are_those_alive_at_once():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        outer = T.decl_buffer((16,))
        for i in range(8):
            first = T.decl_buffer((8,), "float16")
            first[0] = T.float16(1)
        for i in range(8):
            second = T.decl_buffer((4,), "int8", scope="shared")
            second[0] = T.int8(1)
        outer[0] = A[0]

    assert analysis.calculate_allocated_bytes(func) == {"main": {"global": 64 + 16, "shared": 4}}
    mod = oneir.ir.IRModule({"f": func, "g": matmul_relu})
    assert analysis.calculate_allocated_bytes(mod) == {"f": {"global": 80, "shared": 4}, "g": {"global": 256}}


def test_operations_are_counted_once_for_each_iteration():
    assert analysis.estimate_tir_flops(matmul_relu) == 8 * 8 * 8 * 2 + 8 * 8
    assert analysis.estimate_tir_flops(oneir.ir.IRModule({"f": matmul_relu, "g": matmul_relu})) == 2 * 1088

    @T.prim_func
    def vectors(A: T.Buffer((8,), "float32"), n: T.int32):
        for i in T.serial(n):
            if i > 2:
                A[0:8] = T.exp(A[0:8]) + T.Broadcast(T.float32(1), 8)
            else:
                A[i] = A[i] * 2.0

    assert analysis.estimate_tir_flops(vectors) == 1 + 16


def test_the_anchor_is_the_costliest_reduction():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((8, 64), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
            for i in range(8):
                for k in range(4):
                    with T.block("short"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        with T.init():
                            C[vi] = T.float32(0)
                        C[vi] = C[vi] + A[vi, vk]
                for k in range(64):
                    with T.block("long"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        with T.init():
                            D[vi] = T.float32(0)
                        D[vi] = D[vi] + A[vi, vk]

    assert analysis.find_anchor_block(Module).name_hint == "long"
    assert analysis.find_anchor_block(oneir.ir.IRModule({"main": matmul_relu})).name_hint == "C"


def test_without_reductions_only_a_single_block_is_an_anchor():
    @T.prim_func
    def one(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = T.float32(0)

    @T.prim_func
    def two(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = T.float32(0)
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.float32(0)

    assert analysis.find_anchor_block(oneir.ir.IRModule({"main": one})).name_hint == "A"
    assert analysis.find_anchor_block(oneir.ir.IRModule({"main": two})) is None


# -- bounds --


def test_accesses_that_certainly_leave_their_buffer_are_named():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            A[i] = B[i + 1]
            A[i - 2] = T.float32(0)
            A[n] = T.if_then_else(i < 7, B[i + 1], T.float32(0))

    with pytest.raises(InvalidValue) as error:
        analysis.OOBChecker()(oneir.ir.IRModule({"main": func}))
    assert str(error.value).splitlines() == [
        "out of bounds: `main`: dimension 0 of `B` has 8 elements; the index i + 1 reaches 8",
        "`main`: dimension 0 of `A` has 8 elements; the index i - 2 reaches -2",
    ]


def test_a_module_within_bounds_passes():
    mod = oneir.ir.IRModule({"main": matmul_relu})
    assert analysis.OOBChecker()(mod) is mod
