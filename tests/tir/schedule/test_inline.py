"""Inlining producers and consumers."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, diamond, matmul, symbolic_chain

from oneir.script import from_source
from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


@T.prim_func
def chain_in_c(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for i, j in T.grid(16, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)


def test_compute_inline():
    check_schedule(chain, chain_in_c, lambda sch: sch.compute_inline("B"))


def test_compute_inline_into_two_consumers():
    @T.prim_func
    def expected(A: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
        C2 = T.alloc_buffer((6, 8))
        for i, j in T.grid(6, 8):
            with T.block("C2"):
                vi, vj = T.axis.remap("SS", [i, j])
                C2[vi, vj] = (A[vi, vj] * T.float32(2)) * (A[vi, vj] * T.float32(2))
        for i, j in T.grid(6, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj], C2[vi, vj])
                D[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1) + C2[vi, vj]

    def transform(sch):
        c2, d = sch.get_sref(sch.get_block("C2")), sch.get_sref(sch.get_block("D"))
        sch.compute_inline("B")
        sch.compute_inline("C1")
        assert sch.get_sref(sch.get_block("C2")) is c2 and sch.get_sref(sch.get_block("D")) is d

    check_schedule(diamond, expected, transform)


def test_compute_inline_through_a_layout():
    @T.prim_func
    def before(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        B = T.alloc_buffer((32,))
        for i, j in T.grid(8, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi * 4 + vj] = A[vi * 4 + vj] + T.Cast("float32", vj)
        for i in range(32):
            with T.block("C"):
                vi = T.axis.spatial(32, i)
                C[vi] = B[31 - vi]

    @T.prim_func
    def expected(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        for i in range(32):
            with T.block("C"):
                vi = T.axis.spatial(32, i)
                T.reads(A[(31 - vi) // 4 * 4 + (31 - vi) % 4])
                C[vi] = A[(31 - vi) // 4 * 4 + (31 - vi) % 4] + T.Cast("float32", (31 - vi) % 4)

    check_schedule(before, expected, lambda sch: sch.compute_inline("B"))


def test_compute_inline_symbolic():
    @T.prim_func
    def before(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        B = T.alloc_buffer((n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + T.float32(1)
        for i in range(n):
            with T.block("C"):
                vi = T.axis.spatial(n, i)
                C[vi] = B[vi] * B[vi]

    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        for i in range(n):
            with T.block("C"):
                vi = T.axis.spatial(n, i)
                C[vi] = (A[vi] + T.float32(1)) * (A[vi] + T.float32(1))

    check_schedule(before, expected, lambda sch: sch.compute_inline("B"))


def test_reverse_compute_inline():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.reverse_compute_inline("C"))


def test_reverse_compute_inline_transposes_and_guards():
    @T.prim_func
    def before(A: T.Buffer((8, 6), "float32"), C: T.Buffer((4, 8), "float32")):
        B = T.alloc_buffer((8, 6))
        for i, j in T.grid(8, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
        for i, j in T.grid(4, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vj, vi] * T.float32(3)

    @T.prim_func
    def expected(A: T.Buffer((8, 6), "float32"), C: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(8, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(j < 4)
                C[vj, vi] = (A[vi, vj] + T.float32(1)) * T.float32(3)

    check_schedule(before, expected, lambda sch: sch.reverse_compute_inline("C"))


@pytest.mark.parametrize(
    ("func", "transform", "message"),
    [
        (chain, lambda sch: sch.compute_inline("C"), "The block tir.Block#0 is an output block"),
        (matmul, lambda sch: sch.compute_inline("C"), "The inlined block should not contain T.init"),
        (chain, lambda sch: sch.reverse_compute_inline("B"), "another block of the scope writes, but it reads 0"),
        (diamond, lambda sch: sch.reverse_compute_inline("C1"), "required to have only a single producer block"),
    ],
)
def test_refusals(func, transform, message):
    with pytest.raises(ScheduleError) as error:
        transform(Schedule(func))
    assert message in str(error.value)


def test_compute_inline_refuses_a_body_that_is_no_store():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                if A[vi] > T.float32(0):
                    B[vi] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi]

    with pytest.raises(ScheduleError, match="The body of the inlined block should be in form of"):
        Schedule(before).compute_inline("B")


def test_inline_symbolic():
    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        C = T.match_buffer(c, (n, T.int64(8)), "float32")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)

    check_schedule(symbolic_chain, expected, lambda sch: sch.compute_inline("B"))
    named = expected.script().replace('T.block("C")', 'T.block("B")')
    check_schedule(symbolic_chain, from_source(named), lambda sch: sch.reverse_compute_inline("C"))


def test_reverse_compute_inline_refuses_a_block_of_blocks():
    def transform(sch):
        sch.loop_partition(sch.get_loops("C")[0], [2])
        sch.reverse_compute_inline("C_i_common")

    with pytest.raises(ScheduleError, match="An error occurred in the schedule primitive 'reverse-compute-inline'"):
        transform(Schedule(chain))


@T.prim_func
def sum_of_one(A: T.Buffer((16, 1), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,), "float32")
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, 0]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi] * T.float32(2)


def test_a_producer_with_an_init_is_not_complete_though_all_its_axes_are_spatial():
    """Its update reads what its init wrote: the consumer's expression cannot stand in its place."""
    schedule = Schedule(sum_of_one)
    with pytest.raises(ScheduleError, match="the producer block should be a complete block"):
        schedule.reverse_compute_inline("C")
