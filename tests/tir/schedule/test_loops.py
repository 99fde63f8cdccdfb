"""Adding, merging and partitioning loops; the order of a block's variables."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, diamond, matmul, symbolic, symbolic_chain

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


def test_add_unit_loop():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for u, i, j, k, u_1 in T.grid(1, 8, 10, 12, 1):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    def transform(sch):
        inner = sch.add_unit_loop(sch.get_block("C"))
        assert sch.get(inner).loop_var.name == "u"
        sch.add_unit_loop(sch.get_loops("C")[0])

    check_schedule(matmul, expected, transform)


def test_merge():
    @T.prim_func
    def expected(A: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
        B = T.alloc_buffer((6, 8))
        C1 = T.alloc_buffer((6, 8))
        C2 = T.alloc_buffer((6, 8))
        for i, j in T.grid(6, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i_m, j_m in T.grid(6, 8):
            with T.block("C1"):
                vi, vj = T.axis.remap("SS", [i_m, j_m])
                C1[vi, vj] = B[vi, vj] + T.float32(1)
            with T.block("C2"):
                vi, vj = T.axis.remap("SS", [i_m, j_m])
                C2[vi, vj] = B[vi, vj] * B[vi, vj]
        for i, j in T.grid(6, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C1[vi, vj] + C2[vi, vj]

    def transform(sch):
        merged = sch.merge(sch.get_loops("C1")[1], sch.get_loops("C2")[1])
        assert sch.get(merged).loop_var.name == "j_m"

    check_schedule(diamond, expected, transform)


def test_merge_of_a_producer_and_its_consumer():
    def transform(sch):
        merged = sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
        assert [sch.get(b).name_hint for b in sch.get_child_blocks(merged)] == ["B", "C"]

    check_schedule(chain, None, transform)


def test_merge_refuses():
    sch = Schedule(diamond, error_render_level="fast")
    with pytest.raises(ScheduleError, match="nesting depth must be same"):
        sch.merge(sch.get_loops("C1")[0], sch.get_loops("C2")[1])
    sch.split(sch.get_loops("C1")[0], [2, 3])
    with pytest.raises(ScheduleError, match=r"`extent` must be same, but not: tir.For#0 has 2, tir.For#1 has 6"):
        sch.merge(sch.get_loops("C1")[0], sch.get_loops("C2")[0])
    with pytest.raises(ScheduleError, match="stands between them and uses their buffers"):
        sch.merge(sch.get_loops("B")[0], sch.get_loops("D")[0])

    @T.prim_func
    def shifted(A: T.Buffer((9,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((9,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi + 1] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[7 - vi + 1]

    sch = Schedule(shifted)
    with pytest.raises(ScheduleError, match=r"uses what other iterations of tir.Block#0 write to the buffer B"):
        sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])


def test_loop_partition():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8))
        with T.block("B_i_common"):
            T.reads(A[0:16, 0:8])
            T.writes(B[0:16, 0:8])
            with T.block("B_i0_partition"):
                T.reads(A[0:2, 0:8])
                T.writes(B[0:2, 0:8])
                for i0, j in T.grid(2, 8):
                    with T.block("B_i0"):
                        vi, vj = T.axis.remap("SS", [i0, j])
                        B[vi, vj] = A[vi, vj] * T.float32(2)
            with T.block("B_i1_partition"):
                T.reads(A[2:16, 0:8])
                T.writes(B[2:16, 0:8])
                for i1 in range(2, 16):
                    for j in range(8):
                        with T.block("B_i1"):
                            vi = T.axis.spatial((2, 16), i1)
                            vj = T.axis.spatial(8, j)
                            B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    def transform(sch):
        first, second = sch.loop_partition(sch.get_loops("B")[0], [2])
        assert sch.get(first).extent.value == 2 and sch.get(second).min.value == 2

    check_schedule(chain, expected, transform)
    check_schedule(chain, expected, lambda sch: sch.loop_partition(sch.get_loops("B")[0], [2, None]))


def test_loop_partition_symbolic():
    def transform(sch):
        parts = sch.loop_partition(sch.get_loops("B")[1], [3, 4])
        assert [sch.get(part).extent.value for part in parts] == [3, 4, 1]

    check_schedule(symbolic, None, transform)


def test_loop_partition_refuses_too_many_iterations():
    sch = Schedule(chain)
    with pytest.raises(ScheduleError, match=r"The sum of factors 20 is larger than the extent 16 of loop tir.For#0"):
        sch.loop_partition(sch.get_loops("B")[0], [10, 10])


def test_reorder_block_iter_var():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
        for i, j, k in T.grid(8, 10, 12):
            with T.block("C"):
                vj, vk, vi = T.axis.remap("SRS", [j, k, i])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    check_schedule(matmul, expected, lambda sch: sch.reorder_block_iter_var(sch.get_block("C"), [1, 2, 0]))
    check_schedule(
        matmul, matmul, lambda sch: [sch.reorder_block_iter_var(sch.get_block("C"), [1, 2, 0]) for _ in range(3)]
    )
    with pytest.raises(ScheduleError, match=r"The new order \[0, 1\] is no permutation of the 3 iteration variables"):
        sch = Schedule(matmul)
        sch.reorder_block_iter_var(sch.get_block("C"), [0, 1])


def test_add_unit_loop_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i, u, j in T.grid(n, 1, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    check_schedule(symbolic, expected, lambda sch: sch.add_unit_loop(sch.get_loops("B")[1]))
    sch = Schedule(symbolic)
    with pytest.raises(ScheduleError, match=r"Cannot add loops on top of the root block tir.Block#0"):
        sch.add_unit_loop(sch.get_block("root"))


def test_merge_symbolic():
    @T.prim_func
    def expected(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        C = T.match_buffer(c, (n, T.int64(8)), "float32")
        B = T.alloc_buffer((n, T.int64(8)), "float32")
        for i_m in range(n):
            for j in range(T.int64(8)):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i_m, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            for j in range(T.int64(8)):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i_m, j])
                    C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(symbolic_chain, expected, lambda sch: sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0]))


def test_merge_refuses_one_loop_and_loops_around_one_another():
    sch = Schedule(chain)
    i, j = sch.get_loops("B")
    with pytest.raises(InvalidValue, match="two or more different loops are merged, found 1"):
        sch.merge(i, i)
    with pytest.raises(ScheduleError, match="must not be inside of each other"):
        sch.merge(i, j)


def test_loop_partition_of_a_symbolic_loop():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i in range(n):
            with T.block("B_j_common"):
                T.reads(A[i, T.int64(0) : T.int64(8)])
                T.writes(B[i, T.int64(0) : T.int64(8)])
                with T.block("B_j0_partition"):
                    T.reads(A[i, T.int64(0) : T.int64(5)])
                    T.writes(B[i, T.int64(0) : T.int64(5)])
                    for j0 in range(T.int64(5)):
                        with T.block("B_j0"):
                            vi, vj = T.axis.spatial(n, i), T.axis.spatial(T.int64(5), j0)
                            B[vi, vj] = A[vi, vj] + T.float32(1)
                with T.block("B_j1_partition"):
                    T.reads(A[i, T.int64(5) : T.int64(8)])
                    T.writes(B[i, T.int64(5) : T.int64(8)])
                    for j1 in range(T.int64(5), T.int64(8)):
                        with T.block("B_j1"):
                            vi, vj = T.axis.spatial(n, i), T.axis.spatial((T.int64(5), T.int64(8)), j1)
                            B[vi, vj] = A[vi, vj] + T.float32(1)

    for factors in ([5], [5, 3], [None, 3], [-1, 3]):
        check_schedule(symbolic, expected, lambda sch, f=factors: sch.loop_partition(sch.get_loops("B")[1], f))


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([None, None], "Only one factor can be specified as -1 or none"),
        ([0, None], "All the constant factors are required to be positive. However, the factor 0 is 0"),
        ([16, None], "The sum of factors 16 leaves nothing of the extent 16 of loop tir.For#0"),
        ([8, 10], "The sum of factors 18 is larger than the extent 16 of loop tir.For#0"),
    ],
)
def test_loop_partition_refuses_factors(factors, message):
    sch = Schedule(chain)
    with pytest.raises(ScheduleError) as error:
        sch.loop_partition(sch.get_loops("B")[0], factors)
    assert message in str(error.value)


def test_loop_partition_refuses_loops():
    sch = Schedule(matmul)
    i, j, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match=r"The block tir.Block#1 reduces over the loop tir.For#0 to partition"):
        sch.loop_partition(k, [2])
    sch.annotate(j, "key", 1)
    with pytest.raises(ScheduleError, match=r"the loop tir.For#0 has annotation or thread binding"):
        sch.loop_partition(j, [2])
    first, second = sch.loop_partition(i, [3])
    with pytest.raises(ScheduleError, match=r"The loop tir.For#0 does not start with 0"):
        sch.loop_partition(second, [3])
    sch.loop_partition(first, [1])


def test_what_stands_in_a_partition_cannot_follow_the_loops_around_it():
    sch = Schedule(chain)
    _i, j = sch.get_loops("C")
    part, _ = sch.loop_partition(j, [2])
    (block,) = sch.get_child_blocks(part)
    with pytest.raises(ScheduleError, match="follows the loops i otherwise than by values of its variables"):
        sch.reindex(block, ("read", 0))
    with pytest.raises(ScheduleError, match="follows the loops i otherwise"):
        sch.read_at(part, block, 0, "local")
    check_schedule(
        chain,
        None,
        lambda sch: sch.cache_read(
            sch.get_child_blocks(sch.loop_partition(sch.get_loops("C")[1], [2])[0])[0], 0, "local"
        ),
    )


def test_reorder_block_iter_var_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vj, vi = T.axis.remap("SS", [j, i])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    check_schedule(symbolic, expected, lambda sch: sch.reorder_block_iter_var(sch.get_block("B"), (1, 0)))
