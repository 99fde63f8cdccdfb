"""Copies of what an iteration accesses, and regions that are said instead of worked out."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, matmul, pooling, symbolic, symbolic_chain

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_read_at():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        A_shared = T.alloc_buffer((16, 8), "float32", scope="shared")
        for i in range(16):
            with T.block("A_shared"):
                v0 = T.axis.spatial(16, i)
                T.reads(A[v0, 0:8])
                T.writes(A_shared[v0, 0:8])
                T.block_attr({"auto_copy": True})
                for ax0, ax1 in T.grid(1, 8):
                    A_shared[v0 + ax0, ax1] = A[v0 + ax0, ax1]
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A_shared[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.read_at(sch.get_loops("B")[0], "B", 0, "shared"))


def test_write_at():
    def transform(sch):
        outer, _ = sch.split(sch.get_loops("C")[0], [2, 4])
        copy = sch.write_at(outer, "C", 0, "local")
        assert [sch.get(b).name_hint for b in sch.get_child_blocks(outer)] == ["C", "C_local"]
        assert "T.writes(C[v0 * 4:v0 * 4 + 4, 0:10])" in sch.get(copy).script()

    check_schedule(matmul, None, transform)


def test_read_at_refuses_what_the_loop_does_not_read():
    sch = Schedule(chain, error_render_level="fast")
    with pytest.raises(ScheduleError, match=r"The buffer A is expected to be read under the loop tir.For#0"):
        sch.read_at(sch.get_loops("C")[0], "B", 0, "shared")


def test_annotate_buffer_access():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, 0:8])
                T.writes(B[vi, vj])
                T.block_attr({"explicit_read_region": [0]})
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(
        chain,
        expected,
        lambda sch: sch.annotate_buffer_access(sch.get_block("B"), 0, "read", lambda vi, vj: (vi, (0, 8))),
    )


def test_annotate_buffer_access_of_a_window():
    @T.prim_func
    def before(A: T.Buffer((10,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + A[vi + 2]

    @T.prim_func
    def expected(A: T.Buffer((10,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi : vi + 5])
                T.writes(B[vi])
                T.block_attr({"explicit_read_region": [0]})
                B[vi] = A[vi] + A[vi + 2]

    check_schedule(before, expected, lambda sch: sch.annotate_buffer_access("B", 0, "read", lambda vi: [(vi, vi + 5)]))


def test_unsafe_hide_buffer_access():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    # The interpreter refuses a block that reads what it does not declare.
    check_schedule(chain, expected, lambda sch: sch.unsafe_hide_buffer_access("C", "read", [0]), numbers=False)


def test_unsafe_hide_buffer_access_of_what_is_not_read():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), W: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                T.reads(W[0:4], A[vi])
                T.writes(B[vi])
                B[vi] = A[vi] + T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), W: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi])
                T.writes(B[vi])
                B[vi] = A[vi] + T.float32(1)

    check_schedule(before, expected, lambda sch: sch.unsafe_hide_buffer_access("B", "read", [0]))


def test_unsafe_hide_buffer_access_symbolic():
    @T.prim_func
    def before(a: T.handle, w: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        W = T.match_buffer(w, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                T.reads(A[vi])
                T.writes(B[vi], W[vi])
                B[vi] = A[vi] + T.float32(1)

    @T.prim_func
    def expected(a: T.handle, w: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        T.match_buffer(w, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                T.reads(A[vi])
                T.writes(B[vi])
                B[vi] = A[vi] + T.float32(1)

    check_schedule(before, expected, lambda sch: sch.unsafe_hide_buffer_access("B", "write", [1]))


def test_refusals():
    sch = Schedule(chain, error_render_level="fast")
    with pytest.raises(InvalidValue, match="a buffer is read or written, found 'both'"):
        sch.annotate_buffer_access("B", 0, "both", lambda vi, vj: (vi, vj))
    with pytest.raises(ScheduleError, match="A region of the buffer A has 2 ranges, found 1"):
        sch.annotate_buffer_access("B", 0, "read", lambda vi, vj: (vi,))
    with pytest.raises(ScheduleError, match=r"`write_buffer_index` 1 is out of range: the block tir.Block#0 writes 1"):
        sch.annotate_buffer_access("B", 1, "write", lambda vi, vj: (vi, vj))
    with pytest.raises(ScheduleError, match="should either be 'read' or 'write', got both instead"):
        sch.unsafe_hide_buffer_access("B", "both", [0])
    with pytest.raises(ScheduleError, match="integers between 0 and 0, got 4 instead"):
        sch.unsafe_hide_buffer_access("B", "read", [4])


def test_write_at_copies_a_row_at_a_time():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        C_local = T.alloc_buffer((16, 8), "float32", scope="local")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i in range(16):
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C_local[vi, vj] = B[vi, vj] + T.float32(1)
            with T.block("C_local"):
                v0 = T.axis.spatial(16, i)
                T.reads(C_local[v0, 0:8])
                T.writes(C[v0, 0:8])
                T.block_attr({"auto_copy": True})
                for ax0, ax1 in T.grid(1, 8):
                    C[v0 + ax0, ax1] = C_local[v0 + ax0, ax1]

    check_schedule(chain, expected, lambda sch: sch.write_at(sch.get_loops("C")[0], "C", "C", "local"))


def test_read_at_and_write_at_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        A_shared = T.alloc_buffer((n, T.int64(8)), scope="shared")
        B_local = T.alloc_buffer((n, T.int64(8)), scope="local")
        for i in range(n):
            with T.block("A_shared"):
                v0 = T.axis.spatial(n, i)
                T.reads(A[v0, T.int64(0) : T.int64(8)])
                T.writes(A_shared[v0, T.int64(0) : T.int64(8)])
                T.block_attr({"auto_copy": True})
                for ax0, ax1 in T.grid(T.int64(1), T.int64(8)):
                    A_shared[v0 + ax0, ax1] = A[v0 + ax0, ax1]
            for j in range(T.int64(8)):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B_local[vi, vj] = A_shared[vi, vj] + T.float32(1)
            with T.block("B_local"):
                v0 = T.axis.spatial(n, i)
                T.reads(B_local[v0, T.int64(0) : T.int64(8)])
                T.writes(B[v0, T.int64(0) : T.int64(8)])
                T.block_attr({"auto_copy": True})
                for ax0, ax1 in T.grid(T.int64(1), T.int64(8)):
                    B[v0 + ax0, ax1] = B_local[v0 + ax0, ax1]

    def transform(sch):
        i, _ = sch.get_loops("B")
        sch.read_at(i, "B", "A", "shared")
        sch.write_at(i, "B", "B", "local")

    check_schedule(symbolic, expected, transform)


def test_read_at_leaves_out_what_is_not_there():
    def transform(sch):
        outer, _ = sch.split(sch.get_loops("B")[0], [None, 5])
        sch.read_at(outer, "B", 0, "local")

    text = check_schedule(chain, None, transform).mod["main"].script()
    assert "if v0 * 5 + ax0 < 16:" in text
    text = (
        check_schedule(pooling, None, lambda sch: sch.read_at(sch.get_loops("P")[1], "P", 0, "local"))
        .mod["main"]
        .script()
    )
    assert "if 0 <= v1 - 1 + ax1 and v1 - 1 + ax1 < 6" in text


def test_write_at_refuses_what_is_not_written():
    @T.prim_func
    def even(A: T.Buffer((8,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi * 2] = A[vi]

    def refused(func, transform):
        with pytest.raises(ScheduleError) as error:
            transform(Schedule(func, error_render_level="fast"))
        return str(error.value)

    message = refused(even, lambda sch: sch.write_at(sch.split(sch.get_loops("B")[0], [2, 4])[0], "B", 0, "local"))
    assert "The blocks under the loop tir.For#0 are not known to write all of the region" in message

    def after_its_init(sch):
        sch.decompose_reduction("C", sch.get_loops("C")[0])
        sch.write_at(sch.get_loops("C_update")[0], "C_update", 0, "local")

    assert "reads the buffer C that it writes, and the loop tir.For#1 does not write before" in refused(
        matmul, after_its_init
    )


def test_write_at_of_what_threads_sum_up_together():
    """Each of 4×5 threads writes one element of the tile that they share."""

    def scheduled(axis, memory="shared", columns=5):
        sch = Schedule(matmul, error_render_level="fast")
        i, j, k = sch.get_loops("C")
        bx, tx = sch.split(i, [None, 4])
        by, ty = sch.split(j, [None, columns])
        sch.reorder(bx, by, *((k, tx, ty) if axis == "k" else (tx, ty, k)))
        for loop, tag in ((bx, "blockIdx.x"), (by, "blockIdx.y"), (tx, "threadIdx.x"), (ty, "threadIdx.y")):
            sch.bind(loop, tag)
        return sch, sch.write_at(k if axis == "k" else ty, "C", 0, memory)

    sch, copy = scheduled("ty")
    (region,) = sch.get(copy).writes
    assert [int(part.extent) for part in region.region] == [4, 5]
    _, own = scheduled("ty", "local")
    assert own is not None
    _, partial = scheduled("k")  # each iteration adds to what the ones before have left in the copy
    assert partial is not None
    with pytest.raises(ScheduleError, match="are not known to write all of the region"):
        scheduled("ty", columns=4)  # some threads of the last tile write nothing


def test_annotate_buffer_access_symbolic():
    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        C = T.match_buffer(c, (n, T.int64(8)), "float32")
        B = T.alloc_buffer((n, T.int64(8)), "float32")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, T.int64(0) : T.int64(8)])
                T.writes(B[vi, vj])
                T.block_attr({"explicit_read_region": [0], "explicit_write_region": [0]})
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(n, T.int64(8)):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        sch.annotate_buffer_access("B", 0, "write", lambda vi, vj: ((vi, vi + 1), (vj, vj + 1)))
        sch.annotate_buffer_access("B", 0, "read", lambda vi, vj: ((vi, vi + 1), (0, 8)))

    check_schedule(symbolic_chain, expected, transform)


def test_unsafe_hide_buffer_access_of_all_reads():
    def transform(sch):
        sch.unsafe_hide_buffer_access("C", "read", [0, 1])
        sch.unsafe_hide_buffer_access("C", "write", [])
        block = sch.get(sch.get_block("C"))
        assert not block.reads and len(block.writes) == 1

    check_schedule(matmul, None, transform, numbers=False)
