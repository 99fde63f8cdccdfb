"""Moving blocks to their consumers and producers."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, diamond, symbolic_chain

from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_compute_at():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i in range(16):
            for ax0 in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.compute_at("B", sch.get_loops("C")[0]))


def test_compute_at_keeps_loops_of_one_iteration_when_told():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i in range(16):
            for ax0, ax1 in T.grid(1, 8):
                with T.block("B"):
                    vi = T.axis.spatial(16, i + ax0)
                    vj = T.axis.spatial(8, ax1)
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.compute_at("B", sch.get_loops("C")[0], preserve_unit_loops=True))


def test_compute_at_an_uneven_tile():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i_0 in range(4):
            for ax0, ax1 in T.grid(5, 8):
                with T.block("B"):
                    vi = T.axis.spatial(16, i_0 * 5 + ax0)
                    vj = T.axis.spatial(8, ax1)
                    T.where(i_0 * 5 + ax0 < 16)
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            for i_1, j in T.grid(5, 8):
                with T.block("C"):
                    vi = T.axis.spatial(16, i_0 * 5 + i_1)
                    vj = T.axis.spatial(8, j)
                    T.where(i_0 * 5 + i_1 < 16)
                    C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        outer, _ = sch.split(sch.get_loops("C")[0], [None, 5])
        sch.compute_at("B", outer)

    check_schedule(chain, expected, transform)


@T.prim_func
def convolution(A: T.Buffer((18,), "float32"), W: T.Buffer((3,), "float32"), C: T.Buffer((16,), "float32")):
    P = T.alloc_buffer((18,))
    for i in range(18):
        with T.block("P"):
            vi = T.axis.spatial(18, i)
            P[vi] = A[vi] * T.float32(2)
    for i, k in T.grid(16, 3):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + P[vi + vk] * W[vk]


def test_compute_at_of_overlapping_windows():
    @T.prim_func
    def expected(A: T.Buffer((18,), "float32"), W: T.Buffer((3,), "float32"), C: T.Buffer((16,), "float32")):
        P = T.alloc_buffer((18,))
        for i_0 in range(4):
            for ax0 in range(6):
                with T.block("P"):
                    vi = T.axis.spatial(18, i_0 * 4 + ax0)
                    P[vi] = A[vi] * T.float32(2)
            for i_1, k in T.grid(4, 3):
                with T.block("C"):
                    vi = T.axis.spatial(16, i_0 * 4 + i_1)
                    vk = T.axis.reduce(3, k)
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + P[vi + vk] * W[vk]

    def transform(sch):
        outer, _ = sch.split(sch.get_loops("C")[0], [None, 4])
        sch.compute_at("P", outer)

    check_schedule(convolution, expected, transform)


def test_reverse_compute_at():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i_0, j in T.grid(4, 8):
            for i_1 in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(16, i_0 * 4 + i_1)
                    vj = T.axis.spatial(8, j)
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            for ax0 in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(16, i_0 * 4 + ax0)
                    vj = T.axis.spatial(8, j)
                    C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        i, j = sch.get_loops("B")
        i0, i1 = sch.split(i, [None, 4])
        sch.reorder(i0, j, i1)
        sch.reverse_compute_at("C", j)

    check_schedule(chain, expected, transform)


def test_compute_at_symbolic():
    @T.prim_func
    def before(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(4)), "float32")
        C = T.match_buffer(c, (n, T.int64(4)), "float32")
        B = T.alloc_buffer((n, T.int64(4)), "float32")
        for i, j in T.grid(n, T.int64(4)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
        for i, j in T.grid(n, T.int64(4)):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] * B[vi, vj]

    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(4)), "float32")
        C = T.match_buffer(c, (n, T.int64(4)), "float32")
        B = T.alloc_buffer((n, T.int64(4)), "float32")
        for i in range(n):
            for ax0 in range(T.int64(4)):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
            for j in range(T.int64(4)):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] * B[vi, vj]

    check_schedule(before, expected, lambda sch: sch.compute_at("B", sch.get_loops("C")[0]))


def test_where_among_the_statements_of_the_loop():
    def transform(index):
        def inner(sch):
            i, _j = sch.get_loops("D")
            sch.compute_at("C2", i)
            sch.compute_at("C1", i, index=index)
            order = [sch.get(b).name_hint for b in sch.get_child_blocks(i)]
            assert order == (["C1", "C2", "D"] if index in (-2, 0) else ["C2", "C1", "D"])

        return inner

    for index in (-1, -2, 0, 1):
        check_schedule(diamond, None, transform(index))


@pytest.mark.parametrize(
    ("func", "transform", "message"),
    [
        (chain, lambda sch: sch.compute_at("C", sch.get_loops("B")[0]), "The block tir.Block#0 is an output block"),
        (
            diamond,
            lambda sch: sch.compute_at("B", sch.get_loops("C2")[0]),
            "there are 1 consumer(s) not satisfying the constraint. List of the consumer(s): tir.Block#0",
        ),
        (diamond, lambda sch: sch.reverse_compute_at("D", sch.get_loops("C1")[0]), "there are 1 producer(s) not"),
        (chain, lambda sch: sch.compute_at("B", sch.get_loops("B")[0]), "loop not to be the ancestor of block"),
        (
            chain,
            lambda sch: sch.compute_at("B", sch.get_loops("C")[0], index=3),
            "cannot be inserted at position 3: the valid positions are 0 to 0",
        ),
    ],
)
def test_refusals(func, transform, message):
    with pytest.raises(ScheduleError) as error:
        transform(Schedule(func))
    assert message in str(error.value)


def test_indices_converted_to_another_dtype_are_not_inverted():
    @T.prim_func
    def converted(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,), "float32")
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for i in T.serial(T.int64(8)):
            with T.block("C"):
                v = T.axis.spatial(T.int64(8), i)
                C[v] = B[T.Cast("int32", v)]

    sch = Schedule(converted)
    with pytest.raises(ScheduleError, match="be worked out"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])


def test_reverse_compute_at_symbolic():
    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        C = T.match_buffer(c, (n, T.int64(8)), "float32")
        B = T.alloc_buffer((n, T.int64(8)), "float32")
        for i in range(n):
            for j in range(T.int64(8)):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            for ax0 in range(T.int64(8)):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(symbolic_chain, expected, lambda sch: sch.reverse_compute_at("C", sch.get_loops("B")[0]))


def test_reverse_compute_at_refuses_what_the_producers_do_not_reach():
    @T.prim_func
    def padded(A: T.Buffer((8,), "float32"), C: T.Buffer((12,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] * T.float32(2)
        for i in range(12):
            with T.block("C"):
                vi = T.axis.spatial(12, i)
                C[vi] = T.if_then_else(vi < 8, B[vi], T.float32(0))

    sch = Schedule(padded, error_render_level="fast")
    with pytest.raises(ScheduleError, match="The loops do not reach all iterations of the block"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])


def test_compute_at_refuses_a_block_that_uses_loops_around_it():
    sch = Schedule(diamond, error_render_level="fast")
    sch.loop_partition(sch.get_loops("C1")[1], [2])
    with pytest.raises(ScheduleError, match=r"The block tir.Block#0 follows the loops i otherwise than by values"):
        sch.compute_at("C1_j_common", sch.get_loops("D")[0])


@T.prim_func
def row_sums(A: T.Buffer((4, 45), "float32"), B: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 45):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]


def test_compute_at_keeps_the_condition_of_a_block():
    @T.prim_func
    def expected(A: T.Buffer((4, 45), "float32"), B: T.Buffer((4,), "float32")):
        B_rf = T.alloc_buffer((8, 4))
        for i in range(4):
            for ax0, ax1 in T.grid(8, 6):
                with T.block("B_rf"):
                    vk_1, vi, vk_0 = T.axis.remap("SSR", [ax0, i, ax1])
                    T.where(ax1 * 8 + ax0 < 45)
                    with T.init():
                        B_rf[vk_1, vi] = T.float32(0)
                    B_rf[vk_1, vi] = B_rf[vk_1, vi] + A[vi, vk_0 * 8 + vk_1]
            for k_1 in range(8):
                with T.block("B"):
                    vk_1, vi = T.axis.remap("RS", [k_1, i])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + B_rf[vk_1, vi]

    def transform(sch):
        _, inner = sch.split(sch.get_loops("B")[1], [None, 8])
        partial = sch.rfactor(inner, 0)
        sch.compute_at(partial, sch.get_loops("B")[0])

    check_schedule(row_sums, expected, transform)


def test_fused_symbolic_loops_need_no_condition():
    @T.prim_func
    def rows(a: T.handle, c: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m, T.int64(8)), "float32")
        C = T.match_buffer(c, (n, m, T.int64(8)), "float32")
        B = T.alloc_buffer((n, m), "float32")
        for i, j, k in T.grid(n, m, T.int64(8)):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    B[vi, vj] = T.float32(0)
                B[vi, vj] = B[vi, vj] + A[vi, vj, vk]
        for i, j, k in T.grid(n, m, T.int64(8)):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                C[vi, vj, vk] = A[vi, vj, vk] - B[vi, vj]

    sch = Schedule(rows)
    sch.compute_at("B", sch.fuse(*sch.get_loops("C")[:2]))
    # i < n and j < m hold for i = fused // m and j = fused % m, since the loop over n * m has iterations only where m > 0.
    assert "T.where" not in sch.mod.script()
