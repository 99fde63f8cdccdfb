"""estimate_tir_bytes: the arguments' bytes, each argument once, and no more elements than there are accesses."""

from __future__ import annotations

from oneir.script import tir as T
from oneir.tir.analysis import estimate_tir_bytes


def test_an_argument_counts_once_however_often_it_is_read():
    @T.prim_func
    def matmul(A: T.Buffer((16, 32), "float32"), B: T.Buffer((32, 8), "float16"), C: T.Buffer((16, 8), "float32")):
        for i, j, k in T.grid(16, 8, 32):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * T.Cast("float32", B[vk, vj])

    assert estimate_tir_bytes(matmul) == 16 * 32 * 4 + 32 * 8 * 2 + 16 * 8 * 4


def test_of_a_table_only_the_gathered_rows_count():
    @T.prim_func
    def take(table: T.Buffer((30000, 64), "float32"), rows: T.Buffer((4,), "int64"), out: T.Buffer((4, 64), "float32")):
        for i, j in T.grid(4, 64):
            with T.block("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                out[vi, vj] = table[rows[vi], vj]

    assert estimate_tir_bytes(take) == 4 * 64 * 4 + 4 * 8 + 4 * 64 * 4


def test_lanes_of_a_vector_count_and_memory_inside_does_not():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        inside = T.alloc_buffer((16,), "float32")
        for i in range(2):
            inside[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(i * 8, 1, 8)]
        for i in range(2):
            B[T.Ramp(i * 8, 1, 8)] = inside[T.Ramp(i * 8, 1, 8)]

    assert estimate_tir_bytes(func) == 2 * 8 * 4 + 2 * 8 * 4


def test_what_a_view_reads_counts_as_a_whole():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((1,), "float32")):
        view = T.decl_buffer((8, 8), "float32", data=A.data)
        B[0] = view[0, 0]

    assert estimate_tir_bytes(func) == 4 + 4


def test_sizes_that_are_not_known_have_no_number():
    @T.prim_func
    def func(a: T.handle, B: T.Buffer((1,), "float32")):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B[0] = A[0]

    assert estimate_tir_bytes(func) is None
