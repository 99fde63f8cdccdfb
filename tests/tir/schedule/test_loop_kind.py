"""How loops run: parallel, vectorized, unrolled, bound to threads; and annotations."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, matmul, symbolic

from oneir.runtime.error import TypeMismatch
from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_kinds():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i in T.parallel(16):
            for j in T.vectorized(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
        for i in range(16):
            for j in T.unroll(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        i, j = sch.get_loops("B")
        sch.parallel(i)
        sch.vectorize(j)
        sch.unroll(sch.get_loops("C")[1])

    check_schedule(chain, expected, transform)


def test_bind():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i in T.thread_binding(n, thread="blockIdx.x"):
            for j in T.thread_binding(T.int64(8), thread="threadIdx.x"):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)

    def transform(sch):
        i, j = sch.get_loops("B")
        sch.bind(i, "blockIdx.x")
        sch.bind(j, "threadIdx.x")

    check_schedule(symbolic, expected, transform)


def test_parallel_after_a_guarded_symbolic_split():
    def transform(sch):
        i, j = sch.get_loops("B")
        fused = sch.fuse(i, j)
        outer, inner = sch.split(fused, [None, 128])
        sch.parallel(outer)
        sch.vectorize(inner)

    check_schedule(symbolic, None, transform)


def test_annotations():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i in T.serial(16, annotations={"pragma": 1}):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.block_attr({"name": "x", "list": [1, 2]})
                    B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        block = sch.get_block("B")
        sch.annotate(sch.get_loops(block)[0], "pragma", 1)
        sch.annotate(block, "gone", 1)
        sch.annotate(block, "name", "x")
        sch.annotate(block, "name", "what was said first stays")
        sch.annotate(block, "list", [1, 2])
        sch.unannotate(block, "gone")

    check_schedule(chain, expected, transform)


def test_refusals():
    sch = Schedule(matmul)
    k = sch.get_loops("C")[2]
    with pytest.raises(ScheduleError, match=r'The "parallel" cannot be fulfilled with regard to block tir.Block#0'):
        sch.parallel(k)
    with pytest.raises(ScheduleError, match=r'(?s)The "bind" cannot be fulfilled.*contains k does not meet'):
        sch.bind(k, "blockIdx.x")
    sch.bind(k, "threadIdx.x")
    assert sch.get(k).thread_binding.thread_tag == "threadIdx.x"
    with pytest.raises(ScheduleError, match=r"The block tir.Block#0 does not have the annotation `missing`"):
        sch.unannotate(sch.get_block("C"), "missing")


def test_parallel_refuses_a_block_that_updates_in_place():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = A[vi] + T.float32(1)

    sch = Schedule(before)
    with pytest.raises(ScheduleError, match=r"(?s)does not have compact dataflow.*violates condition #3 as a complete"):
        sch.parallel(sch.get_loops("A")[0])


def test_what_is_written_elsewhere_too_runs_in_any_order():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(8):
            with T.block("first"):
                vi = T.axis.spatial(16, i)
                B[vi] = T.float32(0)
        for i in range(16):
            with T.block("second"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(3)

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in T.vectorized(8):
            with T.block("first"):
                vi = T.axis.spatial(16, i)
                B[vi] = T.float32(0)
        for i in T.parallel(16):
            with T.block("second"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(3)

    def transform(sch):
        sch.vectorize(sch.get_loops("first")[0])
        sch.parallel(sch.get_loops("second")[0])

    check_schedule(before, expected, transform)


def test_what_is_written_twice_below_a_loop_keeps_its_order():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(8):
            with T.block("first"):
                vi = T.axis.spatial(16, i)
                B[vi] = T.float32(0)
            with T.block("second"):
                vi = T.axis.spatial(16, i + 1)
                B[vi] = A[vi]

    sch = Schedule(before)
    with pytest.raises(ScheduleError, match=r"(?s)does not have compact dataflow.*violates condition #2 as a complete"):
        sch.parallel(sch.get_loops("first")[0])


def test_a_consumer_that_reads_more_than_was_written_is_no_stage_pipeline():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,), "float32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
        for i in range(16):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = B[vi]

    sch = Schedule(before)
    with pytest.raises(ScheduleError, match=r"The scope tir.Block#0 is not a stage pipeline"):
        sch.parallel(sch.get_loops("B")[0])
    unchecked = Schedule(before, enable_check=False)
    unchecked.parallel(unchecked.get_loops("B")[0])


def test_unroll_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i in T.parallel(n):
            for j in T.unroll(T.int64(8)):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)

    def transform(sch):
        i, j = sch.get_loops("B")
        sch.parallel(i)
        sch.unroll(j)

    check_schedule(symbolic, expected, transform)


def test_annotations_of_loops_of_symbolic_extent():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i in T.serial(n, annotations={"key": {"a": [1, 2], "b": "text"}}):
            for j in range(T.int64(8)):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)

    def transform(sch):
        i, j = sch.get_loops("B")
        sch.annotate(i, "key", {"a": [1, 2], "b": "text"})
        sch.annotate(j, "gone", 1)
        sch.unannotate(j, "gone")

    check_schedule(symbolic, expected, transform)
    sch = Schedule(symbolic)
    with pytest.raises(ScheduleError, match=r"The loop tir.For#0 does not have the annotation `key`"):
        sch.unannotate(sch.get_loops("B")[0], "key")
    with pytest.raises(TypeMismatch, match="expected a block of the schedule or the name of one, found 3"):
        sch.get_loops(3)


def test_unroll_refuses_a_block():
    sch = Schedule(symbolic)
    with pytest.raises(ScheduleError, match=r"The primitive expects a loop, found the block tir.Block#0"):
        sch.unroll(sch.get_block("B"))
