"""Taking padding apart, and adding it."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, matmul, pooling, symbolic_matmul

from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


@T.prim_func
def pad(A: T.Buffer((10, 6), "float32"), B: T.Buffer((16, 6), "float32")):
    for i, j in T.grid(16, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(vi >= 3 and vi < 13, A[vi - 3, vj], T.float32(-1))


def test_decompose_padding():
    @T.prim_func
    def expected(A: T.Buffer((10, 6), "float32"), B: T.Buffer((16, 6), "float32")):
        for i, j in T.grid(16, 6):
            with T.block("B_pad_const"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                B[vi, vj] = T.float32(-1)
        for i, j in T.grid(10, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi + 3, vj] = A[vi, vj]

    def transform(sch):
        block = sch.get_block("B")
        outer = sch.get_loops(block)[0]
        assert sch.can_decompose_padding(block, outer)
        filled = sch.decompose_padding(block, outer)
        assert sch.get(filled).name_hint == "B_pad_const" and sch.get(block).name_hint == "B"
        assert not sch.can_decompose_padding(block, sch.get_loops(block)[0])

    check_schedule(pad, expected, transform)


def test_decompose_padding_inside_of_a_loop():
    @T.prim_func
    def expected(A: T.Buffer((10, 6), "float32"), B: T.Buffer((16, 6), "float32")):
        for j in range(6):
            for i in range(16):
                with T.block("B_pad_const"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads()
                    B[vi, vj] = T.float32(-1)
            for i in range(10):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi + 3, vj] = A[vi, vj]

    def transform(sch):
        i, j = sch.get_loops("B")
        sch.reorder(j, i)
        sch.decompose_padding("B", i)
        assert [sch.get(b).name_hint for b in sch.get_child_blocks(j)] == ["B_pad_const", "B"]

    check_schedule(pad, expected, transform)


def test_decompose_padding_of_a_window():
    check_schedule(pooling, None, lambda sch: sch.decompose_padding("P", sch.get_loops("P")[0]))


def test_decompose_padding_refuses():
    sch = Schedule(chain, error_render_level="fast")
    with pytest.raises(ScheduleError, match="Value of BufferStore expect to be constrained by a padding predicate"):
        sch.decompose_padding("B", sch.get_loops("B")[0])
    with pytest.raises(ScheduleError, match="is required to be an ancestor of block"):
        sch.decompose_padding("B", sch.get_loops("C")[0])

    @T.prim_func
    def pad_with_input(A: T.Buffer((10,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = T.if_then_else(vi >= 3 and vi < 13, A[vi - 3], A[0])

    sch = Schedule(pad_with_input, error_render_level="fast")
    with pytest.raises(ScheduleError, match="Pad value should be constant"):
        sch.decompose_padding("B", sch.get_loops("B")[0])


def test_pad_einsum():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        A_pad = T.alloc_buffer((8, 15))
        B_pad = T.alloc_buffer((15, 12))
        C_pad = T.alloc_buffer((8, 12))
        for i0, i1 in T.grid(8, 15):
            with T.block("A_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                T.reads(A[v0, v1])
                A_pad[v0, v1] = T.if_then_else(v1 < 12, A[v0, v1], T.float32(0))
        for i0, i1 in T.grid(15, 12):
            with T.block("B_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                T.reads(B[v0, v1])
                B_pad[v0, v1] = T.if_then_else(v0 < 12 and v1 < 10, B[v0, v1], T.float32(0))
        for i, j, k in T.grid(8, 12, 15):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_pad[vi, vj] = T.float32(0)
                C_pad[vi, vj] = C_pad[vi, vj] + A_pad[vi, vk] * B_pad[vk, vj]
        for i0, i1 in T.grid(8, 10):
            with T.block("C_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                C[v0, v1] = C_pad[v0, v1]

    check_schedule(matmul, expected, lambda sch: sch.pad_einsum("C", [4, 4, 5]))


def test_pad_einsum_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(6)), "float32")
        B = T.match_buffer(b, (T.int64(6), T.int64(5)), "float32")
        C = T.match_buffer(c, (n, T.int64(5)), "float32")
        A_pad = T.alloc_buffer(((n + T.int64(31)) // T.int64(32) * T.int64(32), T.int64(6)))
        C_pad = T.alloc_buffer(((n + T.int64(31)) // T.int64(32) * T.int64(32), T.int64(5)))
        for i0, i1 in T.grid((n + T.int64(31)) // T.int64(32) * T.int64(32), T.int64(6)):
            with T.block("A_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                T.reads(A[v0, v1])
                A_pad[v0, v1] = T.if_then_else(v0 < n, A[v0, v1], T.float32(0))
        for i, j, k in T.grid((n + T.int64(31)) // T.int64(32) * T.int64(32), T.int64(5), T.int64(6)):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_pad[vi, vj] = T.float32(0)
                C_pad[vi, vj] = C_pad[vi, vj] + A_pad[vi, vk] * B[vk, vj]
        for i0, i1 in T.grid(n, T.int64(5)):
            with T.block("C_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                C[v0, v1] = C_pad[v0, v1]

    check_schedule(symbolic_matmul, expected, lambda sch: sch.pad_einsum("C", [32, 1, 1]))


def test_pad_einsum_refuses():
    sch = Schedule(matmul, error_render_level="fast")
    with pytest.raises(ScheduleError, match=r"It should be a list of 3 positive integers. Got \[4, 4\]"):
        sch.pad_einsum("C", [4, 4])
    with pytest.raises(ScheduleError, match="not a computation of Einsum pattern"):
        Schedule(pooling, error_render_level="fast").pad_einsum("Q", [1, 1, 1, 4, 4])

    @T.prim_func
    def maximum(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 12):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.min_value("float32")
                B[vi] = T.max(B[vi], A[vi, vk])

    with pytest.raises(ScheduleError, match="does not sum products of what is padded with zeros"):
        Schedule(maximum, error_render_level="fast").pad_einsum("B", [1, 5])


def test_decompose_padding_symbolic():
    @T.prim_func
    def before(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(6)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.if_then_else(T.int64(1) <= vj and vj < T.int64(7), A[vi, vj - T.int64(1)], T.float32(0))

    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(6)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B_pad_const"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                B[vi, vj] = T.float32(0)
        for i, j in T.grid(n, T.int64(6)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj + T.int64(1)] = A[vi, vj]

    def transform(sch):
        i, j = sch.get_loops("B")
        assert sch.can_decompose_padding("B", i) and sch.can_decompose_padding("B", j)
        sch.decompose_padding("B", i)

    check_schedule(before, expected, transform)


def test_pad_einsum_refuses_parts():
    @T.prim_func
    def part(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(5):
            with T.block("B"):
                vi = T.axis.spatial(5, i)
                B[vi] = A[vi]

    with pytest.raises(ScheduleError, match="accesses a part of the buffer A only"):
        Schedule(part, error_render_level="fast").pad_einsum("B", [4])
    sch = Schedule(chain, error_render_level="fast")
    sch.compute_at("B", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match=r"tir.Block#0 is expected to be the only statement under its loops"):
        sch.pad_einsum("C", [3, 3])
