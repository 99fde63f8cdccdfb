"""Splitting and fusing loops: the resulting loops, the values of block variables, and what is refused."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, matmul, symbolic

from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_split_evenly_infers_the_missing_factor():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i_0, i_1, j in T.grid(4, 4, 8):
            with T.block("B"):
                vi = T.axis.spatial(16, i_0 * 4 + i_1)
                vj = T.axis.spatial(8, j)
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        i, _j = sch.get_loops("B")
        outer, inner = sch.split(i, [None, 4])
        assert sch.get(outer).extent.value == 4 and sch.get(inner).loop_var.name == "i_1"

    check_schedule(chain, expected, transform)


def test_split_unevenly_guards_the_block():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for i, j_0, j_1, k in T.grid(8, 3, 4, 12):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(10, j_0 * 4 + j_1)
                vk = T.axis.reduce(12, k)
                T.where(j_0 * 4 + j_1 < 10)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    check_schedule(matmul, expected, lambda sch: sch.split(sch.get_loops("C")[1], [None, 4]))


def test_split_of_a_symbolic_extent():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i_0, i_1, j in T.grid((n + T.int64(31)) // T.int64(32), T.int64(32), T.int64(8)):
            with T.block("B"):
                vi = T.axis.spatial(n, i_0 * T.int64(32) + i_1)
                vj = T.axis.spatial(T.int64(8), j)
                T.where(i_0 * T.int64(32) + i_1 < n)
                B[vi, vj] = A[vi, vj] + T.float32(1)

    check_schedule(symbolic, expected, lambda sch: sch.split(sch.get_loops("B")[0], [None, 32]))


def test_split_keeps_loops_of_one_iteration_unless_told():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]

    @T.prim_func
    def kept(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i_0, i_1 in T.grid(8, 1):
            with T.block("B"):
                vi = T.axis.spatial(8, i_0 + i_1)
                B[vi] = A[vi]

    @T.prim_func
    def dropped(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i_0, i_1 in T.grid(8, 1):
            with T.block("B"):
                vi = T.axis.spatial(8, i_0)
                B[vi] = A[vi]

    check_schedule(before, kept, lambda sch: sch.split(sch.get_loops("B")[0], [8, 1]))
    check_schedule(before, dropped, lambda sch: sch.split(sch.get_loops("B")[0], [8, 1], preserve_unit_iters=False))


def test_split_without_a_guard():
    def transform(sch):
        sch.split(sch.get_loops("C")[1], [None, 4], disable_predication=True)
        assert "T.where" not in sch.mod.script()

    check_schedule(matmul, None, transform, numbers=False)


def test_fuse():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for i_j_fused, k in T.grid(80, 12):
            with T.block("C"):
                vi = T.axis.spatial(8, i_j_fused // 10)
                vj = T.axis.spatial(10, i_j_fused % 10)
                vk = T.axis.reduce(12, k)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    check_schedule(matmul, expected, lambda sch: sch.fuse(*sch.get_loops("C")[:2]))


def test_fusing_what_was_split_gives_the_loop_again():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i_0_i_1_fused, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i_0_i_1_fused, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.fuse(*sch.split(sch.get_loops("B")[0], [4, 4])))


def test_fuse_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i_j_fused in range(n * T.int64(8)):
            with T.block("B"):
                vi = T.axis.spatial(n, i_j_fused // T.int64(8))
                vj = T.axis.spatial(T.int64(8), i_j_fused % T.int64(8))
                B[vi, vj] = A[vi, vj] + T.float32(1)

    check_schedule(symbolic, expected, lambda sch: sch.fuse(*sch.get_loops("B")))


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda sch: sch.split(sch.get_loops("C")[0], [None, None]), "Only one factor can be specified as -1 or none"),
        (
            lambda sch: sch.split(sch.get_loops("C")[0], [2, 3]),
            "not larger than or equal to the extent of loop tir.For#0",
        ),
        (lambda sch: sch.split(sch.get_loops("C")[0], [0, None]), "are required to be positive"),
        (lambda sch: sch.fuse(sch.get_loops("C")[0], sch.get_loops("C")[2]), "is not the parent of the inner loop"),
        (
            lambda sch: sch.split((sch.bind(sch.get_loops("C")[0], "threadIdx.x"), sch.get_loops("C")[0])[1], [2, 4]),
            "has annotation or thread binding",
        ),
    ],
)
def test_refusals(transform, message):
    sch = Schedule(matmul)
    with pytest.raises(ScheduleError, match=r"An error occurred in the schedule primitive") as error:
        transform(sch)
    assert message in str(error.value)


def test_fuse_refuses_loops_with_something_between():
    @T.prim_func
    def before(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            for j in range(4):
                with T.block("A"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = T.float32(1)
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = T.float32(2)

    sch = Schedule(before)
    with pytest.raises(ScheduleError) as error:
        sch.fuse(*sch.get_loops("A"))
    text = str(error.value)
    assert "the inner loop tir.For#1 is not the only child of outer loop tir.For#0" in text
    assert "# tir.For#0" in text and "^^^" in text


def test_loops_without_iterations_fuse_to_one_without():
    @T.prim_func
    def empty(A: T.Buffer((4, 0, 3), "float32"), B: T.Buffer((4, 0, 3), "float32")):
        for i, j, k in T.grid(4, 0, 3):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                B[vi, vj, vk] = A[vi, vj, vk]

    schedule = Schedule(empty)
    fused = schedule.fuse(*schedule.get_loops("B"))
    assert schedule.get(fused).extent.value == 0
