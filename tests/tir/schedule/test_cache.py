"""Caches, and where buffers lie."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, diamond, matmul, symbolic, symbolic_chain

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_cache_read_of_a_parameter():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        A_local = T.alloc_buffer((8, 12), scope="local")
        for ax0, ax1 in T.grid(8, 12):
            with T.block("A_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_local[v0, v1] = A[v0, v1]
        for i, j, k in T.grid(8, 10, 12):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A_local[vi, vk] * B[vk, vj]

    check_schedule(matmul, expected, lambda sch: sch.cache_read("C", 0, "local"))
    check_schedule(matmul, expected, lambda sch: sch.cache_read("C", "A", "local"))


def test_cache_read_for_some_consumers_stands_before_the_first():
    @T.prim_func
    def expected(A: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
        B = T.alloc_buffer((6, 8))
        C1 = T.alloc_buffer((6, 8))
        C2 = T.alloc_buffer((6, 8))
        B_shared = T.alloc_buffer((6, 8), scope="shared")
        for i, j in T.grid(6, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(6, 8):
            with T.block("C1"):
                vi, vj = T.axis.remap("SS", [i, j])
                C1[vi, vj] = B[vi, vj] + T.float32(1)
        for ax0, ax1 in T.grid(6, 8):
            with T.block("B_shared"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B_shared[v0, v1] = B[v0, v1]
        for i, j in T.grid(6, 8):
            with T.block("C2"):
                vi, vj = T.axis.remap("SS", [i, j])
                C2[vi, vj] = B_shared[vi, vj] * B_shared[vi, vj]
        for i, j in T.grid(6, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C1[vi, vj] + C2[vi, vj]

    check_schedule(diamond, expected, lambda sch: sch.cache_read("C2", 0, "shared", ["C2"]))


def test_cache_read_inside_of_a_loop_copies_what_it_needs():
    def transform(sch):
        i, _j = sch.get_loops("C")
        sch.compute_at("B", i)
        cache = sch.cache_read("C", 0, "local")
        assert [sch.get(loop).loop_var.name for loop in sch.get_loops(cache)] == ["i", "ax0", "ax1"]
        assert [sch.get(loop).extent.value for loop in sch.get_loops(cache)] == [16, 1, 8]

    check_schedule(chain, None, transform)


def test_cache_write():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        B_local = T.alloc_buffer((16, 8), "float32", scope="local")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B_local[vi, vj] = A[vi, vj] * T.float32(2)
        for ax0, ax1 in T.grid(16, 8):
            with T.block("B_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0, v1] = B_local[v0, v1]
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.cache_write("B", 0, "local"))


def test_a_tile_of_the_result_is_written_back_at_once():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        C_local = T.alloc_buffer((8, 10), scope="local")
        for i_0 in range(2):
            for i_1, j, k in T.grid(4, 10, 12):
                with T.block("C"):
                    vi = T.axis.spatial(8, i_0 * 4 + i_1)
                    vj, vk = T.axis.remap("SR", [j, k])
                    with T.init():
                        C_local[vi, vj] = T.float32(0)
                    C_local[vi, vj] = C_local[vi, vj] + A[vi, vk] * B[vk, vj]
            for ax0, ax1 in T.grid(4, 10):
                with T.block("C_local"):
                    v0 = T.axis.spatial(8, i_0 * 4 + ax0)
                    v1 = T.axis.spatial(10, ax1)
                    C[v0, v1] = C_local[v0, v1]

    def transform(sch):
        outer, _ = sch.split(sch.get_loops("C")[0], [None, 4])
        sch.reverse_compute_at(sch.cache_write("C", 0, "local"), outer)

    check_schedule(matmul, expected, transform)


def test_cache_write_of_a_part_holds_the_part_only():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((10,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi + 1] = A[vi]

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((10,), "float32")):
        B_local = T.alloc_buffer((8,), scope="local")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B_local[vi] = A[vi]
        for ax0 in range(8):
            with T.block("B_local"):
                v0 = T.axis.spatial(8, ax0)
                B[1 + v0] = B_local[v0]

    check_schedule(before, expected, lambda sch: sch.cache_write("B", 0, "local"))


def test_cache_read_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        A_shared = T.alloc_buffer((n, T.int64(8)), scope="shared")
        for ax0, ax1 in T.grid(n, T.int64(8)):
            with T.block("A_shared"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_shared[v0, v1] = A[v0, v1]
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A_shared[vi, vj] + T.float32(1)

    check_schedule(symbolic, expected, lambda sch: sch.cache_read("B", 0, "shared"))


def test_memory_and_alignment():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32", scope="shared")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"buffer_dim_align": [[0, 0, 32, 8]]})
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        sch.set_scope("B", "B", "shared")
        sch.storage_align("B", 0, 0, 16, 4)
        sch.storage_align("B", 0, -2, 32, 8)

    check_schedule(chain, expected, transform)


def test_unsafe_set_dtype():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float16")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.Cast("float16", A[vi, vj] * T.float32(2))
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.Cast("float32", B[vi, vj]) + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.unsafe_set_dtype("B", 0, "float16"), numbers=False)


def test_unsafe_set_dtype_changes_views_too():
    def program(dtype, cast, back):
        @T.prim_func
        def func(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
            B = T.alloc_buffer((16,), dtype)
            for i in range(16):
                with T.block("B"):
                    vi = T.axis.spatial(16, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    one = T.match_buffer(B[vi], (), dtype, offset_factor=1)
                    one[()] = cast(A[vi] * T.float32(2))
            for i in range(16):
                with T.block("C"):
                    vi = T.axis.spatial(16, i)
                    T.reads(B[vi])
                    T.writes(C[vi])
                    other = T.match_buffer(B[vi], (), dtype, offset_factor=1)
                    C[vi] = back(other[()]) + T.float32(1)

        return func

    before = program("float32", lambda value: value, lambda value: value)
    expected = program("float16", lambda value: T.Cast("float16", value), lambda value: T.Cast("float32", value))
    check_schedule(before, expected, lambda sch: sch.unsafe_set_dtype("B", 0, "float16"), numbers=False)


def test_refusals():
    sch = Schedule(chain)
    with pytest.raises(ScheduleError, match=r"`read_buffer_index` 3 is out of range: the block tir.Block#0 reads 1"):
        sch.cache_read("B", 3, "local")
    with pytest.raises(InvalidValue, match="the block B reads no buffer 'X'; it reads"):
        sch.cache_read("B", "X", "local")
    with pytest.raises(InvalidValue, match="'cupboard' is no storage scope"):
        sch.cache_write("B", 0, "cupboard")
    with pytest.raises(ScheduleError, match="Expected the buffer C to be allocated by a block of the function"):
        sch.set_scope("C", 0, "shared")
    with pytest.raises(ScheduleError, match="is not allocated within the current function"):
        sch.storage_align("C", 0, 0, 32, 0)
    with pytest.raises(ScheduleError, match="The input `factor` of storage_align is expected to be a positive"):
        sch.storage_align("B", 0, 0, 0, 0)
    with pytest.raises(ScheduleError, match=r"`axis` is required to be in \[-2, 2\) for storage_align"):
        sch.storage_align("B", 0, 2, 32, 0)


def test_cache_write_refuses_a_buffer_with_two_writers():
    @T.prim_func
    def before(B: T.Buffer((16,), "float32")):
        for i in range(8):
            with T.block("first"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.float32(1)
        for i in range(8):
            with T.block("second"):
                vi = T.axis.spatial(8, i)
                B[vi + 8] = T.float32(2)

    with pytest.raises(ScheduleError, match="The buffer B is expected to be written by single block, but got 2"):
        Schedule(before).cache_write("first", 0, "local")


def test_cache_inplace():
    @T.prim_func
    def before(A: T.Buffer((8, 4), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi, 0:4])
                T.writes(A[vi, 0:4])
                for j in range(4):
                    A[vi, j] = A[vi, j] + T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((8, 4), "float32")):
        A_local = T.alloc_buffer((8, 4), scope="local")
        for i in range(8):
            for ax0, ax1 in T.grid(1, 4):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, i + ax0)
                    v1 = T.axis.spatial(4, ax1)
                    A_local[v0, v1] = A[v0, v1]
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                T.reads(A_local[vi, 0:4])
                T.writes(A_local[vi, 0:4])
                for j in range(4):
                    A_local[vi, j] = A_local[vi, j] + T.float32(1)
            for ax0, ax1 in T.grid(1, 4):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, i + ax0)
                    v1 = T.axis.spatial(4, ax1)
                    A[v0, v1] = A_local[v0, v1]

    check_schedule(before, expected, lambda sch: sch.cache_inplace("A", 0, "local"))
    with pytest.raises(ScheduleError, match="does not both read & write target buffer A"):
        Schedule(matmul).cache_inplace("C", 0, "local")
    with pytest.raises(ScheduleError, match="reads the buffer A that it writes: a cache would not hold what it reads"):
        Schedule(before).cache_write("A", 0, "local")


def test_cache_index():
    @T.prim_func
    def before(A: T.Buffer((4, 12), "float32"), B: T.Buffer((16, 12), "float32")):
        for i, j in T.grid(16, 12):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi // 4, vj] * A[vi // 4, vj // 3 * 3]

    @T.prim_func
    def expected(A: T.Buffer((4, 12), "float32"), B: T.Buffer((16, 12), "float32")):
        index_var_0 = T.alloc_buffer((16,), "int32")
        for ax0 in range(16):
            with T.block("index_0"):
                v0 = T.axis.spatial(16, ax0)
                index_var_0[v0] = v0 // 4
        for i, j in T.grid(16, 12):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi // 4, vj // 3 * 3 : vj // 3 * 3 + (vj % 3 + 1)], index_var_0[vi])
                B[vi, vj] = A[index_var_0[vi], vj] * A[index_var_0[vi], vj // 3 * 3]

    def all_of_them(sch):
        assert [sch.get(b).name_hint for b in sch.cache_index("B", "global")] == ["index_0", "index_1"]

    def twice(sch):
        assert len(sch.cache_index("B", "global", 2)) == 1

    text = check_schedule(before, None, all_of_them).mod["main"].script()
    assert "A[index_var_1[vi], vj] * A[index_var_1[vi], index_var_0[vj]]" in text
    check_schedule(before, expected, twice)
    check_schedule(chain, chain, lambda sch: sch.cache_index("B", "global"))
    with pytest.raises(InvalidValue, match="'cupboard' is no storage scope"):
        Schedule(before).cache_index("B", "cupboard")

    def of_a_block_of_blocks(sch):
        sch.cache_index(sch.blockize(sch.get_loops("B")[1]), "global")

    with pytest.raises(ScheduleError, match=r"The body of the block tir.Block#0 is expected to be one store"):
        of_a_block_of_blocks(Schedule(before, error_render_level="fast"))
    with pytest.raises(ScheduleError, match="does not operate on the root block"):
        Schedule(before, error_render_level="fast").cache_index("root", "global")


def test_cache_write_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        B_local = T.alloc_buffer((n, T.int64(8)), scope="local")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B_local[vi, vj] = A[vi, vj] + T.float32(1)
        for ax0, ax1 in T.grid(n, T.int64(8)):
            with T.block("B_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0, v1] = B_local[v0, v1]

    check_schedule(symbolic, expected, lambda sch: sch.cache_write("B", "B", "local"))


def test_cache_write_for_some_consumers():
    def transform(sch):
        sch.cache_write("B", 0, "local", consumer_blocks=["C2"])
        assert [r.buffer.name for r in sch.get(sch.get_block("C1")).reads] == ["B"]
        assert [r.buffer.name for r in sch.get(sch.get_block("C2")).reads] == ["B_local"]

    check_schedule(diamond, None, transform)


def test_memory_symbolic():
    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        C = T.match_buffer(c, (n, T.int64(8)), "float32")
        B = T.alloc_buffer((n, T.int64(8)), "float32", scope="shared")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"buffer_dim_align": [[0, 0, 16, 1]]})
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(n, T.int64(8)):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        sch.storage_align("B", "B", axis=-2, factor=16, offset=1)
        sch.set_scope("B", 0, "shared")

    check_schedule(symbolic_chain, expected, transform)


def test_unsafe_set_dtype_symbolic():
    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        C = T.match_buffer(c, (n, T.int64(8)), "float32")
        B = T.alloc_buffer((n, T.int64(8)), "float64")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.Cast("float64", A[vi, vj] * T.float32(2))
        for i, j in T.grid(n, T.int64(8)):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.Cast("float32", B[vi, vj]) + T.float32(1)

    check_schedule(symbolic_chain, expected, lambda sch: sch.unsafe_set_dtype("B", "B", "float64"))
    with pytest.raises(ScheduleError, match="Expected the buffer C to be allocated by a block, but it is a parameter"):
        Schedule(symbolic_chain).unsafe_set_dtype("C", 0, "float16")


def test_cache_inplace_symbolic():
    @T.prim_func
    def before(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            with T.block("A"):
                vi = T.axis.spatial(n, i)
                A[vi] = A[vi] + T.float32(1)

    @T.prim_func
    def expected(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        A_shared = T.alloc_buffer((n,), scope="shared")
        for i in range(n):
            for ax0 in range(T.int64(1)):
                with T.block("A_shared"):
                    v0 = T.axis.spatial(n, i + ax0)
                    A_shared[v0] = A[v0]
            with T.block("A"):
                vi = T.axis.spatial(n, i)
                A_shared[vi] = A_shared[vi] + T.float32(1)
            for ax0 in range(T.int64(1)):
                with T.block("A_shared"):
                    v0 = T.axis.spatial(n, i + ax0)
                    A[v0] = A_shared[v0]

    check_schedule(before, expected, lambda sch: sch.cache_inplace("A", "A", "shared"))
    sch = Schedule(before, error_render_level="fast")
    with pytest.raises(ScheduleError, match=r"`read_buffer_index` 1 is out of range: the block tir.Block#0 reads 1"):
        sch.cache_inplace("A", 1, "shared")
    with pytest.raises(InvalidValue, match="'cupboard' is no storage scope"):
        sch.cache_inplace("A", 0, "cupboard")


def test_cache_index_symbolic():
    @T.prim_func
    def before(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n * T.int64(4),), "float32")
        for i in range(n * T.int64(4)):
            with T.block("B"):
                vi = T.axis.spatial(n * T.int64(4), i)
                B[vi] = A[vi // T.int64(4)]

    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n * T.int64(4),), "float32")
        index_var_0 = T.alloc_buffer((n * T.int64(4),), "int64", scope="local")
        for ax0 in range(n * T.int64(4)):
            with T.block("index_0"):
                v0 = T.axis.spatial(n * T.int64(4), ax0)
                index_var_0[v0] = v0 // T.int64(4)
        for i in range(n * T.int64(4)):
            with T.block("B"):
                vi = T.axis.spatial(n * T.int64(4), i)
                T.reads(A[vi // T.int64(4)], index_var_0[vi])
                B[vi] = A[index_var_0[vi]]

    def transform(sch):
        (table,) = sch.cache_index("B", "local")
        assert sch.get(table).writes[0].buffer.scope() == "local"

    check_schedule(before, expected, transform)


def test_a_cache_of_padding_is_guarded():
    @T.prim_func
    def before(A: T.Buffer((6,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.if_then_else(vi >= 1 and vi < 7, A[vi - 1], T.float32(0))

    check_schedule(
        before,
        None,
        lambda sch: sch.cache_read(sch.get_child_blocks(sch.blockize(sch.get_loops("B")[0]))[0], 0, "local"),
    )
