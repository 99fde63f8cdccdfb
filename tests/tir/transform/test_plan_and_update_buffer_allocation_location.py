"""PlanAndUpdateBufferAllocationLocation: memory moves inwards only where no iteration needs another one's values."""

from __future__ import annotations

from pass_checks import apply, check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import PlanAndUpdateBufferAllocationLocation


def test_memory_of_one_iteration_moves_into_the_loop():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        for i in T.parallel(8):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * 2.0
            for j0, j1 in T.grid(4, 2):
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    vj = T.axis.spatial(8, j0 * 2 + j1)
                    C[vi, vj] = B[vi, vj] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in T.parallel(8):
            with T.block(""):
                T.reads(A[i, 0:8])
                T.writes(C[i, 0:8])
                B = T.alloc_buffer((8, 8))
                for j in range(8):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj] = A[vi, vj] * 2.0
                for j0, j1 in T.grid(4, 2):
                    with T.block("C"):
                        vi = T.axis.spatial(8, i)
                        vj = T.axis.spatial(8, j0 * 2 + j1)
                        C[vi, vj] = B[vi, vj] + 1.0

    check(PlanAndUpdateBufferAllocationLocation(), before, expected)


def test_writes_of_neighbouring_columns_cover_a_row_together():
    @T.prim_func
    def before(A: T.Buffer((8, 3), "float32"), C: T.Buffer((8, 3), "float32")):
        B = T.alloc_buffer((8, 3))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi, 0] = A[vi, 2]
                B[vi, 1] = A[vi, 0]
                B[vi, 2] = A[vi, 1]
            for j in range(3):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((8, 3), "float32"), C: T.Buffer((8, 3), "float32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[i, 0:3])
                T.writes(C[i, 0:3])
                B = T.alloc_buffer((8, 3))
                with T.block("B"):
                    vi = T.axis.spatial(8, i)
                    B[vi, 0] = A[vi, 2]
                    B[vi, 1] = A[vi, 0]
                    B[vi, 2] = A[vi, 1]
                for j in range(3):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        C[vi, vj] = B[vi, vj] + 1.0

    check(PlanAndUpdateBufferAllocationLocation(), before, expected)


def test_writes_with_a_column_between_them_do_not_cover_a_row():
    @T.prim_func
    def before(A: T.Buffer((8, 3), "float32"), C: T.Buffer((8, 3), "float32")):
        B = T.alloc_buffer((8, 3))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi, 0] = A[vi, 2]
                B[vi, 2] = A[vi, 1]
            for j in range(3):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + 1.0

    unchanged(PlanAndUpdateBufferAllocationLocation(), before)


def test_writes_under_a_condition_do_not_cover_a_row():
    @T.prim_func
    def before(A: T.Buffer((8, 2), "float32"), C: T.Buffer((8, 2), "float32")):
        B = T.alloc_buffer((8, 2))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi, 0] = A[vi, 1]
                if A[vi, 0] > T.float32(0):
                    B[vi, 1] = A[vi, 0]
            for j in range(2):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + 1.0

    unchanged(PlanAndUpdateBufferAllocationLocation(), before)


def test_a_reduction_keeps_its_memory_outside_of_its_loops():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            for k in range(8):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi]

    @T.prim_func
    def expected(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[i, 0:8])
                T.writes(C[i])
                B = T.alloc_buffer((8,))
                for k in range(8):
                    with T.block("B"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        with T.init():
                            B[vi] = T.float32(0)
                        B[vi] = B[vi] + A[vi, vk]
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    C[vi] = B[vi]

    check(PlanAndUpdateBufferAllocationLocation(), before, expected)


def test_the_loop_over_which_is_reduced_may_stand_outside_of_all_accesses():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for k in range(8):
            for i in range(8):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]
            for i in range(8):
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    C[vi] = B[vi]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_a_prefix_sum_carries_values():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((9,))
        B[0] = T.float32(0)
        for i in range(8):
            with T.block("B"):
                vi = T.axis.opaque(8, i)
                B[vi + 1] = B[vi] + A[vi]
            with T.block("C"):
                vi = T.axis.opaque(8, i)
                C[vi] = B[vi + 1]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_a_counter_updated_in_place_carries_values():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        total = T.alloc_buffer((1,))
        for i in range(8):
            if i == 0:
                total[0] = T.float32(0)
            total[0] = total[0] + A[i]
            C[i] = total[0]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_writes_with_gaps_cover_nothing():
    @T.prim_func
    def func(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 7), "float32")):
        B = T.alloc_buffer((8,))
        for j in range(8):
            B[j] = T.float32(0)
        for i in range(4):
            for j in range(4):
                B[j * 2] = A[i, j]
            for j in range(7):
                C[i, j] = B[j]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_a_conditional_write_covers_nothing():
    @T.prim_func
    def func(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(4):
            for j in range(8):
                if i % 2 == 0:
                    B[j] = A[i, j]
            for j in range(8):
                C[i, j] = B[j]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_a_triangle_does_not_cover_its_square():
    @T.prim_func
    def func(C: T.Buffer((4, 4, 4), "float32")):
        B = T.alloc_buffer((4, 4))
        for i, j in T.grid(4, 4):
            B[i, j] = T.float32(1)
        for r in range(4):
            for i in range(4):
                for j in range(i + 1):
                    B[i, j] = T.float32(2)
            for i, j in T.grid(4, 4):
                C[r, i, j] = B[i, j]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_the_same_indices_in_a_shorter_loop_cover_nothing():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            for j in range(4):
                with T.block("B"):
                    B[j] = A[i, j]
            for k in range(8):
                with T.block("C"):
                    C[i, k] = B[k]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_a_diagonal_does_not_cover_its_square():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        for i in range(8):
            for j in range(8):
                with T.block("B"):
                    B[j, j] = A[i, j]
            for k, m in T.grid(8, 8):
                with T.block("C"):
                    C[i, k, m] = B[k, m]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_a_square_covers_its_diagonal():
    @T.prim_func
    def before(A: T.Buffer((8, 8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        for i in range(8):
            for j, m in T.grid(8, 8):
                with T.block("B"):
                    B[j, m] = A[i, j, m]
            for k in range(8):
                with T.block("C"):
                    C[i, k] = B[k, k]

    @T.prim_func
    def expected(A: T.Buffer((8, 8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[i, 0:8, 0:8])
                T.writes(C[i, 0:8])
                B = T.alloc_buffer((8, 8))
                for j, m in T.grid(8, 8):
                    with T.block("B"):
                        B[j, m] = A[i, j, m]
                for k in range(8):
                    with T.block("C"):
                        C[i, k] = B[k, k]

    check(PlanAndUpdateBufferAllocationLocation(), before, expected)


def test_conditions_that_only_keep_indices_in_bounds_do_no_harm():
    @T.prim_func
    def before(A: T.Buffer((13,), "float32"), C: T.Buffer((13,), "float32")):
        B = T.alloc_buffer((13,))
        for i in range(4):
            for j in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(13, i * 4 + j)
                    T.where(i * 4 + j < 13)
                    B[vi] = A[vi] * 2.0
            for j in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(13, i * 4 + j)
                    T.where(i * 4 + j < 13)
                    C[vi] = B[vi]

    @T.prim_func
    def expected(A: T.Buffer((13,), "float32"), C: T.Buffer((13,), "float32")):
        for i in range(4):
            with T.block(""):
                T.reads(A[i * 4 : i * 4 + 4])
                T.writes(C[i * 4 : i * 4 + 4])
                B = T.alloc_buffer((13,))
                for j in range(4):
                    with T.block("B"):
                        vi = T.axis.spatial(13, i * 4 + j)
                        T.where(i * 4 + j < 13)
                        B[vi] = A[vi] * 2.0
                for j in range(4):
                    with T.block("C"):
                        vi = T.axis.spatial(13, i * 4 + j)
                        T.where(i * 4 + j < 13)
                        C[vi] = B[vi]

    check(PlanAndUpdateBufferAllocationLocation(), before, expected, numbers=False)


def test_memory_that_is_used_by_pointer_stays():
    @T.prim_func
    def func(C: T.Buffer((4, 8), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(4):
            for j in range(8):
                B[j] = T.float32(1)
            T.evaluate(T.call_extern("int32", "touch", B.data))
            for j in range(8):
                C[i, j] = B[j]

    unchanged(PlanAndUpdateBufferAllocationLocation(), func)


def test_memory_that_nothing_uses_goes():
    @T.prim_func
    def before(C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(4):
            C[i] = T.float32(1)

    after = apply(PlanAndUpdateBufferAllocationLocation(), before)
    assert not after.body.block.alloc_buffers
    assert "alloc_buffer" not in after.script()


def test_memory_that_threads_share_is_allocated_outside_of_them():
    @T.prim_func
    def before(A: T.Buffer((4, 32), "float32"), C: T.Buffer((4, 32), "float32")):
        S = T.alloc_buffer((4, 32), scope="shared")
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("S"):
                    vb, vt = T.axis.remap("SS", [b, t])
                    S[vb, vt] = A[vb, vt]
                with T.block("C"):
                    vb, vt = T.axis.remap("SS", [b, t])
                    C[vb, vt] = S[vb, 31 - vt]

    after = apply(PlanAndUpdateBufferAllocationLocation(), before)
    outer = after.body.block.body
    assert outer.thread_binding.thread_tag == "blockIdx.x"
    assert [buffer.name for buffer in outer.body.block.alloc_buffers] == ["S"]


def test_vectors_of_a_view_are_covered_by_what_was_written():
    @T.prim_func
    def before(A: T.Buffer((8, 16), "float32"), C: T.Buffer((8, 16), "float32")):
        B = T.alloc_buffer((8, 16))
        for i, j in T.grid(8, 2):
            for k in range(8):
                with T.block("B"):
                    vi = T.axis.spatial(8, i)
                    vj = T.axis.spatial(16, j * 8 + k)
                    B[vi, vj] = A[vi, vj] * 2.0
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi, vj * 8 : vj * 8 + 8])
                T.writes(C[vi, vj * 8 : vj * 8 + 8])
                part = T.match_buffer(B[vi, vj * 8 : vj * 8 + 8], (8,), offset_factor=1)
                C[vi, T.ramp(vj * 8, 1, 8)] = part[T.ramp(0, 1, 8)]

    moved = apply(PlanAndUpdateBufferAllocationLocation(), before).script()
    assert moved.index("for i, j in") < moved.index("B = T.alloc_buffer")
