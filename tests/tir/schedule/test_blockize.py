"""Blocks of loops, and tensor intrinsics in their place."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, matmul, symbolic

from oneir.runtime.error import NotRegistered
from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError, TensorIntrin


def test_blockize():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i_0 in range(4):
            with T.block("B_o"):
                vi_o = T.axis.spatial(4, i_0)
                vj_o = T.axis.spatial(1, 0)
                T.reads(A[vi_o * 4 : vi_o * 4 + 4, 0:8])
                T.writes(B[vi_o * 4 : vi_o * 4 + 4, 0:8])
                for i_1, j in T.grid(4, 8):
                    with T.block("B"):
                        vi_i, vj_i = T.axis.remap("SS", [i_1, j])
                        B[vi_o * 4 + vi_i, vj_i] = A[vi_o * 4 + vi_i, vj_i] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        block = sch.get_block("B")
        _, inner = sch.split(sch.get_loops(block)[0], [None, 4])
        outer = sch.blockize(inner)
        assert sch.get(outer).name_hint == "B_o" and sch.get(block).name_hint == "B"
        assert [sch.get(b) for b in sch.get_child_blocks(outer)] == [sch.get(block)]

    check_schedule(chain, expected, transform)


def test_blockize_of_a_reduction_takes_the_init_along():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for i, k_0 in T.grid(8, 3):
            with T.block("C_o"):
                vi_o = T.axis.spatial(8, i)
                vj_o = T.axis.spatial(1, 0)
                vk_o = T.axis.reduce(3, k_0)
                T.reads(A[vi_o, vk_o * 4 : vk_o * 4 + 4], B[vk_o * 4 : vk_o * 4 + 4, 0:10])
                T.writes(C[vi_o, 0:10])
                with T.init():
                    for j in range(10):
                        with T.block("C_init"):
                            vj = T.axis.spatial(10, j)
                            T.reads()
                            T.writes(C[vi_o, vj])
                            C[vi_o, vj] = T.float32(0)
                for j, k_1 in T.grid(10, 4):
                    with T.block("C"):
                        vj, vk = T.axis.remap("SR", [j, k_1])
                        T.reads(C[vi_o, vj], A[vi_o, vk_o * 4 + vk], B[vk_o * 4 + vk, vj])
                        T.writes(C[vi_o, vj])
                        C[vi_o, vj] = C[vi_o, vj] + A[vi_o, vk_o * 4 + vk] * B[vk_o * 4 + vk, vj]

    def transform(sch):
        i, j, k = sch.get_loops("C")
        k0, k1 = sch.split(k, [None, 4])
        sch.reorder(i, k0, j, k1)
        sch.blockize(j)

    check_schedule(matmul, expected, transform)


def test_blockize_of_several_blocks():
    def transform(sch):
        sch.compute_at("B", sch.get_loops("C")[0])
        both = sch.blockize([sch.get_block("B"), sch.get_block("C")])
        assert sch.get(both).name_hint == "outer_B_C_"
        assert [sch.get(b).name_hint for b in sch.get_child_blocks(both)] == ["B", "C"]

    check_schedule(chain, None, transform)


def test_blockize_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i in range(n):
            with T.block("B_o"):
                vi_o = T.axis.spatial(n, i)
                vj_o = T.axis.spatial(T.int64(1), T.int64(0))
                T.reads(A[vi_o, T.int64(0) : T.int64(8)])
                T.writes(B[vi_o, T.int64(0) : T.int64(8)])
                for j in range(T.int64(8)):
                    with T.block("B"):
                        vj = T.axis.spatial(T.int64(8), j)
                        B[vi_o, vj] = A[vi_o, vj] + T.float32(1)

    check_schedule(symbolic, expected, lambda sch: sch.blockize(sch.get_loops("B")[1]))


def test_blockize_refuses_what_cannot_be_divided():
    def transform(sch):
        i, j = sch.get_loops("B")
        _outer, inner = sch.split(sch.fuse(i, j), [None, 3])
        sch.blockize(inner)

    with pytest.raises(ScheduleError, match="can not be blockized by the loops starting at"):
        transform(Schedule(chain))
    sch = Schedule(chain)
    sch.compute_at("B", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="is required to have only one child block, but it has 2"):
        sch.blockize(sch.get_loops("C")[0])


@T.prim_func
def add_row(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8,), "float32", offset_factor=1)
    B = T.match_buffer(b, (8,), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(A[0:8])
        T.writes(B[0:8])
        for j in range(8):
            with T.block(""):
                vj = T.axis.spatial(8, j)
                B[vj] = A[vj] * T.float32(2)


@T.prim_func
def add_row_vector(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8,), "float32", offset_factor=1)
    B = T.match_buffer(b, (8,), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(A[0:8])
        T.writes(B[0:8])
        for j in T.vectorized(8):
            B[j] = A[j] * T.float32(2)


TensorIntrin.register("test_double_row", add_row, add_row_vector, override=True)


def test_tensorize():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32")
        for i in range(16):
            with T.block("B_o"):
                vi_o = T.axis.spatial(16, i)
                vj_o = T.axis.spatial(1, 0)
                T.reads(A[vi_o, 0:8])
                T.writes(B[vi_o, 0:8])
                A_1 = T.match_buffer(A[vi_o, 0:8], (8,), offset_factor=1)
                B_1 = T.match_buffer(B[vi_o, 0:8], (8,), offset_factor=1)
                for j in T.vectorized(8):
                    B_1[j] = A_1[j] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.tensorize(sch.get_loops("B")[1], "test_double_row"))
    check_schedule(chain, expected, lambda sch: sch.tensorize(sch.blockize(sch.get_loops("B")[1]), "test_double_row"))


def test_tensorize_refuses_what_computes_something_else():
    sch = Schedule(chain)
    with pytest.raises(ScheduleError, match="doesn't match the tensor intrin test_double_row"):
        sch.tensorize(sch.get_loops("C")[1], "test_double_row")
    with pytest.raises(ScheduleError, match="doesn't match the tensor intrin test_double_row"):
        sch.tensorize(sch.get_loops("B")[0], "test_double_row")
    with pytest.raises(NotRegistered, match="no tensor intrinsic 'nothing' is registered"):
        sch.tensorize(sch.get_loops("B")[0], "nothing")


def test_blockize_of_several_blocks_refuses_other_loops():
    @T.prim_func
    def before(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj]
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi, 0]

    sch = Schedule(before, error_render_level="fast")
    with pytest.raises(ScheduleError, match="follow the loops around the blocks to put together in another way"):
        sch.blockize([sch.get_block("B"), sch.get_block("C")])
    sch = Schedule(chain, error_render_level="fast")
    _, part = sch.loop_partition(sch.get_loops("B")[0], [2])
    with pytest.raises(ScheduleError, match=r"The variables of the block tir.Block#0 are expected to start at 0"):
        sch.blockize(part)


def test_tensorize_symbolic():
    @T.prim_func
    def before(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i in range(n):
            with T.block("B_o"):
                vi_o = T.axis.spatial(n, i)
                vj_o = T.axis.spatial(1, 0)
                T.reads(A[vi_o, 0:8])
                T.writes(B[vi_o, 0:8])
                A_1 = T.match_buffer(A[vi_o, 0:8], (8,), offset_factor=1)
                B_1 = T.match_buffer(B[vi_o, 0:8], (8,), offset_factor=1)
                for j in T.vectorized(8):
                    B_1[j] = A_1[j] * T.float32(2)

    check_schedule(before, expected, lambda sch: sch.tensorize(sch.get_loops("B")[1], "test_double_row"))
