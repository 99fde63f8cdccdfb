"""Reordering nested loops: the result, and what is refused."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import matmul, symbolic

from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_reorder_moves_the_named_loops_and_leaves_the_others():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for k, j, i in T.grid(12, 10, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    def transform(sch):
        i, j, k = sch.get_loops("C")
        sch.reorder(k, i)
        assert [sch.get(loop).loop_var.name for loop in (i, j, k)] == ["i", "j", "k"]

    check_schedule(matmul, expected, transform)


def test_reorder_after_an_uneven_split():
    def transform(sch):
        i, j, k = sch.get_loops("C")
        j0, j1 = sch.split(j, [None, 4])
        k0, k1 = sch.split(k, [5, None])
        sch.reorder(k0, j1, k1, i, j0)
        assert [sch.get(loop).loop_var.name for loop in sch.get_loops("C")] == ["k_0", "j_1", "k_1", "i", "j_0"]

    check_schedule(matmul, None, transform)


def test_reorder_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for j, i in T.grid(T.int64(8), n):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    def transform(sch):
        i, j = sch.get_loops("B")
        sch.reorder(j, i)

    check_schedule(symbolic, expected, transform)


@T.prim_func
def branches(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for i in range(4):
        for j in range(4):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float32(1)
        for j in range(4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.float32(2)


@T.prim_func
def triangle(A: T.Buffer((4, 4), "float32")):
    for i in range(4):
        for j in range(i + 1):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(4, j)
                A[vi, vj] = T.float32(1)


@T.prim_func
def scan(A: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("A"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.scan(4, j)
            A[vi, vj] = T.float32(1)


def refused(func, transform):
    with pytest.raises(ScheduleError) as error:
        transform(Schedule(func, error_render_level="fast"))
    return str(error.value)


def test_reorder_refuses():
    message = refused(branches, lambda sch: sch.reorder(sch.get_loops("A")[1], sch.get_loops("A")[0]))
    assert "there is a non-single-branch stmt in between" in message
    message = refused(branches, lambda sch: sch.reorder(sch.get_loops("A")[1], sch.get_loops("B")[1]))
    assert "there is a non-single-branch stmt in between" in message
    message = refused(triangle, lambda sch: sch.reorder(*sch.get_loops("A")[::-1]))
    assert message == "Outer Loop tir.For#0's `min` or `extent` is dependent on an inner loop i in the new order"
    message = refused(scan, lambda sch: sch.reorder(*sch.get_loops("A")[::-1]))
    assert "block iter type other than data-parallel or reduction" in message
    message = refused(matmul, lambda sch: sch.reorder(*[sch.get_loops("C")[0]] * 2))
    assert message == "Loop tir.For#0 appears in the input array for multiple times."
