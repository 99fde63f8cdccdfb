"""Taking the init out of a reduction, and reducing in two steps."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, matmul, symbolic_matmul

from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_decompose_reduction():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for i in range(8):
            for j_init in range(10):
                with T.block("C_init"):
                    vi, vj = T.axis.remap("SS", [i, j_init])
                    T.reads()
                    C[vi, vj] = T.float32(0)
            for j, k in T.grid(10, 12):
                with T.block("C_update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    def transform(sch):
        block = sch.get_block("C")
        init = sch.decompose_reduction(block, sch.get_loops(block)[1])
        assert sch.get(init).name_hint == "C_init" and sch.get(block).name_hint == "C_update"

    check_schedule(matmul, expected, transform)


def test_decompose_reduction_of_an_init_that_reads():
    @T.prim_func
    def shifted(A: T.Buffer((8, 12), "float32"), S: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 12):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = S[vi]
                C[vi] = C[vi] + A[vi, vk]

    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), S: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C_init"):
                vi = T.axis.spatial(8, i)
                T.reads(S[vi])
                C[vi] = S[vi]
            for k in range(12):
                with T.block("C_update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    T.reads(C[vi], A[vi, vk])
                    C[vi] = C[vi] + A[vi, vk]

    def transform(sch):
        sch.decompose_reduction(sch.get_block("C"), sch.get_loops(sch.get_block("C"))[1])

    check_schedule(shifted, expected, transform)


def test_decompose_reduction_keeps_the_conditions_that_concern_the_init():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for i, j_0_init, j_1_init in T.grid(8, 3, 4):
            with T.block("C_init"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(10, j_0_init * 4 + j_1_init)
                T.where(j_0_init * 4 + j_1_init < 10)
                T.reads()
                C[vi, vj] = T.float32(0)
        for i, j_0, j_1, k_0, k_1 in T.grid(8, 3, 4, 3, 5):
            with T.block("C_update"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(10, j_0 * 4 + j_1)
                vk = T.axis.reduce(12, k_0 * 5 + k_1)
                T.where(j_0 * 4 + j_1 < 10 and k_0 * 5 + k_1 < 12)
                T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    def transform(sch):
        i, j, k = sch.get_loops("C")
        sch.split(j, [None, 4])
        sch.split(k, [None, 5])
        sch.decompose_reduction("C", i)

    after = check_schedule(matmul, None, transform).mod["main"]
    # The loop over rows belongs to both parts.
    text = after.script()
    assert "for i_init, j_0_init, j_1_init in T.grid(8, 3, 4):" in text
    assert "T.where(j_0_init * 4 + j_1_init < 10)" in text
    assert "T.where(j_0 * 4 + j_1 < 10 and k_0 * 5 + k_1 < 12)" in text


@T.prim_func
def total(a: T.handle, B: T.Buffer((), "float32")):
    n = T.int32()
    A = T.match_buffer(a, (n, 32), "float32")
    for i, k in T.grid(n, 32):
        with T.block("B"):
            vi, vk = T.axis.remap("RR", [i, k])
            with T.init():
                B[()] = T.float32(0)
            B[()] = B[()] + A[vi, vk]


def test_rfactor():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        C_rf = T.alloc_buffer((8, 10, 4))
        for i, j, k_0, k_1 in T.grid(8, 10, 3, 4):
            with T.block("C_rf"):
                vk_1, vi, vj, vk_0 = T.axis.remap("SSSR", [k_1, i, j, k_0])
                with T.init():
                    C_rf[vi, vj, vk_1] = T.float32(0)
                C_rf[vi, vj, vk_1] = C_rf[vi, vj, vk_1] + A[vi, vk_0 * 4 + vk_1] * B[vk_0 * 4 + vk_1, vj]
        for i, j, k_1 in T.grid(8, 10, 4):
            with T.block("C"):
                vk_1, vi, vj = T.axis.remap("RSS", [k_1, i, j])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + C_rf[vi, vj, vk_1]

    def transform(sch):
        _, inner = sch.split(sch.get_loops("C")[2], [None, 4])
        sch.rfactor(inner, -1)

    check_schedule(matmul, expected, transform)


def test_rfactor_of_a_symbolic_sum():
    @T.prim_func
    def expected(a: T.handle, B: T.Buffer((), "float32")):
        n = T.int32()
        A = T.match_buffer(a, (n, 32), "float32")
        B_rf = T.alloc_buffer((n,))
        for i, k in T.grid(n, 32):
            with T.block("B_rf"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B_rf[vi] = T.float32(0)
                B_rf[vi] = B_rf[vi] + A[vi, vk]
        for i in range(n):
            with T.block("B"):
                vi = T.axis.reduce(n, i)
                with T.init():
                    B[()] = T.float32(0)
                B[()] = B[()] + B_rf[vi]

    def transform(sch):
        block = sch.get_block("B")
        first = sch.rfactor(sch.get_loops(block)[0], 0)
        assert sch.get(first).name_hint == "B_rf" and sch.get(block).name_hint == "B"

    check_schedule(total, expected, transform)


def test_regions_of_partial_sums_have_the_dtype_of_their_indices():
    @T.prim_func
    def sums(A: T.Buffer((T.int64(4), T.int64(32)), "float32"), B: T.Buffer((T.int64(4),), "float32")):
        for i, k in T.grid(T.int64(4), T.int64(32)):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    sch = Schedule(sums)
    _, inner = sch.split(sch.get_loops("B")[1], [None, 8])
    block = sch.get(sch.rfactor(inner, 0))
    assert {r.extent.dtype for region in block.writes for r in region.region} == {"int64"}


def test_rfactor_of_several_values_at_once():
    @T.prim_func
    def argmax(
        idx: T.Buffer((4, 32), "int32"),
        val: T.Buffer((4, 32), "float32"),
        best: T.Buffer((4,), "int32"),
        value: T.Buffer((4,), "float32"),
    ):
        for i, k in T.grid(4, 32):
            with T.block("argmax"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    best[vi] = -1
                    value[vi] = T.min_value("float32")
                v_best: T.int32 = T.Select(value[vi] >= val[vi, vk], best[vi], idx[vi, vk])
                v_value: T.float32 = T.Select(value[vi] >= val[vi, vk], value[vi], val[vi, vk])
                best[vi] = v_best
                value[vi] = v_value

    def transform(sch):
        outer, _ = sch.split(sch.get_loops("argmax")[1], [8, None])
        sch.rfactor(outer, 0)

    text = check_schedule(argmax, None, transform).mod["main"].script()
    assert (
        "v_best_rf: T.int32 = T.Select(value_rf[vk_0, vi] >= val[vi, vk_0 * 4 + vk_1], best_rf[vk_0, vi], idx[vi, vk_0 * 4 + vk_1])"
        in text
    )
    assert "v_value: T.float32 = T.Select(value[vi] >= value_rf[vk_0, vi], value[vi], value_rf[vk_0, vi])" in text


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            lambda sch: (sch.reorder(*sch.get_loops("C")[::-1]), sch.decompose_reduction("C", sch.get_loops("C")[1])),
            "expect the loop tir.For#0 to be higher than all the loops related to reduce block var",
        ),
        (lambda sch: sch.rfactor(sch.get_loops("C")[0], 0), "is required not to be touched by any data parallel"),
        (lambda sch: sch.rfactor(sch.get_loops("C")[2], 3), "is required to be in [-3, 2] for rfactor"),
        (
            lambda sch: (sch.unroll(sch.get_loops("C")[2]), sch.rfactor(sch.get_loops("C")[2], 0)),
            "is required to be `Serial`. However, the kind of tir.For#0 is `Unrolled`",
        ),
        (lambda sch: sch.rfactor(sch.fuse(*sch.get_loops("C")[1:]), 0), "is touched by both some data parallel"),
    ],
)
def test_refusals(transform, message):
    with pytest.raises(ScheduleError) as error:
        transform(Schedule(matmul))
    assert message in str(error.value)


def test_what_is_no_reduction_is_refused():
    with pytest.raises(ScheduleError, match="is not a reduction block - it violates condition #1"):
        sch = Schedule(chain)
        sch.decompose_reduction("B", sch.get_loops("B")[0])

    @T.prim_func
    def odd(A: T.Buffer((32,), "float32"), B: T.Buffer((), "float32")):
        for k in range(32):
            with T.block("B"):
                vk = T.axis.reduce(32, k)
                with T.init():
                    B[()] = T.float32(0)
                B[()] = A[vk] - B[()]

    with pytest.raises(ScheduleError, match="No matched reducer for identity and combiner"):
        sch = Schedule(odd)
        sch.rfactor(sch.get_loops("B")[0], 0)


def test_decompose_reduction_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(6)), "float32")
        B = T.match_buffer(b, (T.int64(6), T.int64(5)), "float32")
        C = T.match_buffer(c, (n, T.int64(5)), "float32")
        for i_init, j_init in T.grid(n, T.int64(5)):
            with T.block("C_init"):
                vi, vj = T.axis.remap("SS", [i_init, j_init])
                T.reads()
                C[vi, vj] = T.float32(0)
        for i, j, k in T.grid(n, T.int64(5), T.int64(6)):
            with T.block("C_update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    check_schedule(symbolic_matmul, expected, lambda sch: sch.decompose_reduction("C", sch.get_loops("C")[0]))


def test_rfactor_keeps_conditions_on_what_is_not_reduced():
    def transform(sch):
        sch.split(sch.get_loops("C")[1], [None, 4])
        sch.rfactor(sch.get_loops("C")[3], 0)

    text = check_schedule(matmul, None, transform).mod["main"].script()
    assert text.count("T.where(j_0 * 4 + j_1 < 10)") == 2


def test_rfactor_skips_iterations_that_are_never_reached():
    def transform(sch):
        outer, _ = sch.split(sch.get_loops("C")[2], [4, 5])
        sch.rfactor(outer, 0)

    text = check_schedule(matmul, None, transform).mod["main"].script()
    assert "T.where(k_0 < 3)" in text
