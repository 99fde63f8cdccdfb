"""Other layouts of buffers and blocks, and caches in the order of a block's iterations."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain, matmul, symbolic

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import IndexMap, Schedule, ScheduleError


@T.prim_func
def transpose(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 8), "float32")):
    for i, j in T.grid(12, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi] * T.float32(2)


def test_transform_layout():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((4, 2, 4, 4), "float32")
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi // 4, vj // 4, vi % 4, vj % 4] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi // 4, vj // 4, vi % 4, vj % 4] + T.float32(1)

    sch = check_schedule(
        chain, expected, lambda sch: sch.transform_layout("B", "B", lambda i, j: (i // 4, j // 4, i % 4, j % 4))
    )
    assert sch.trace.as_python()[1] == (
        'sch.transform_layout(block=b0, buffer=("write", 0), index_map=lambda i, j: (i // 4, j // 4, i % 4, j % 4,), '
        "pad_value=None, assume_injective_transform=False)"
    )


def test_transform_layout_of_a_parameter():
    @T.prim_func
    def expected(A: T.Buffer((12, 8), "float32"), B: T.Buffer((12, 8), "float32")):
        for i, j in T.grid(12, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    check_schedule(
        transpose, expected, lambda sch: sch.transform_layout("B", ("read", 0), lambda i, j: (j, i)), numbers=False
    )


def test_transform_layout_with_padding():
    @T.prim_func
    def before(A: T.Buffer((14,), "float32"), C: T.Buffer((14,), "float32")):
        B = T.alloc_buffer((14,))
        for i in range(14):
            with T.block("B"):
                vi = T.axis.spatial(14, i)
                B[vi] = A[vi] * T.float32(2)
        for i in range(14):
            with T.block("C"):
                vi = T.axis.spatial(14, i)
                C[vi] = B[vi] * T.float32(3)

    def blocked(i):
        return i // 4, i % 4

    written = check_schedule(before, None, lambda sch: sch.transform_layout("B", "B", blocked, pad_value=0))
    text = written.mod["main"].script()
    assert "for axis0, axis1 in T.grid(4, 4):" in text
    assert (
        "T.if_then_else(v_axis0 == 3 and 2 <= v_axis1, T.float32(0.0), A[v_axis0 * 4 + v_axis1] * T.float32(2.0))"
        in text
    )

    def after_a_split(sch):
        sch.split(sch.get_loops("B")[0], [2, 7])
        sch.transform_layout("B", "B", blocked, pad_value=lambda a, b: T.float32(1))

    text = check_schedule(before, None, after_a_split).mod["main"].script()
    assert 'with T.block("buffer_B_padding"):' in text and "T.where(axis0 == 3 and 2 <= axis1)" in text
    assumed = check_schedule(
        before, None, lambda sch: sch.transform_layout("B", "A", blocked, pad_value=0), numbers=False
    )
    text = assumed.mod["main"].script()
    assert "T.assume(not (v_axis0 == 3 and 2 <= v_axis1) or A[v_axis0, v_axis1] == T.float32(0.0))" in text
    sch = Schedule(before, error_render_level="fast")
    with pytest.raises(ScheduleError, match=r"would result in shape \[4, 4\].  However, this would introduce padding"):
        sch.transform_layout("B", "B", blocked)
    sch.transform_layout("B", "B", blocked, assume_injective_transform=True)


def test_transform_layout_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(2), T.int64(4)), "float32")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj // T.int64(4), vj % T.int64(4)] = A[vi, vj] + T.float32(1)

    check_schedule(
        symbolic,
        expected,
        lambda sch: sch.transform_layout("B", ("write", 0), lambda i, j: (i, j // 4, j % 4)),
        numbers=False,
    )


def test_transform_block_layout():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 8), "float32")):
        for ax0 in range(96):
            with T.block("B"):
                v0 = T.axis.spatial(96, ax0)
                B[v0 // 8, v0 % 8] = A[v0 % 8, v0 // 8] * T.float32(2)

    check_schedule(transpose, expected, lambda sch: sch.transform_block_layout("B", lambda i, j: (i * 8 + j,)))


def test_transform_block_layout_of_a_single_row():
    """A variable with a single value may be bound to it instead of to its loop; one with several may not be."""

    @T.prim_func
    def row(A: T.Buffer((1, 8, 12), "float32"), B: T.Buffer((1, 8, 12), "float32")):
        for i, j, k in T.grid(1, 8, 12):
            with T.block("B"):
                vi = T.axis.spatial(1, 0)
                vj, vk = T.axis.remap("SS", [j, k])
                B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)

    def transform(sch):
        sch.transform_block_layout("B", lambda i, j, k: (i, j * 12 + k))

    text = check_schedule(row, None, transform).mod["main"].script()
    assert "for ax0, ax1 in T.grid(1, 96):" in text and 'v0, v1 = T.axis.remap("SS", [ax0, ax1])' in text

    sch = Schedule(row, error_render_level="fast")
    sch.split(sch.get_loops("B")[1], [2, 4])
    with pytest.raises(ScheduleError, match="not variables of outer loops"):
        sch.transform_block_layout("B", lambda i, j, k: (i, j * 12 + k))


def test_transform_block_layout_of_a_reduction():
    def transform(sch):
        sch.transform_block_layout("C", lambda i, j, k: (i * 10 + j, k))

    text = check_schedule(matmul, None, transform).mod["main"].script()
    assert "for ax0, ax1 in T.grid(80, 12):" in text and "C[v0 // 10, v0 % 10]" in text


def test_transform_block_layout_with_a_constant_axis():
    """A constant is data parallel, so a reduction to a scalar gets an axis that may be bound to threads."""

    def transform(sch):
        sch.transform_block_layout("C", lambda i, j, k: (0, i * 10 + j, k))

    text = check_schedule(matmul, None, transform).mod["main"].script()
    assert "for ax0, ax1, ax2 in T.grid(1, 80, 12):" in text
    assert 'v0, v1, v2 = T.axis.remap("SSR", [ax0, ax1, ax2])' in text


def test_set_axis_separator():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8), "float32", axis_separators=[1])
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)

    check_schedule(chain, expected, lambda sch: sch.set_axis_separator("B", "B", [1]))
    check_schedule(
        chain, expected, lambda sch: sch.transform_layout("B", "B", lambda i, j: [i, IndexMap.AXIS_SEPARATOR, j])
    )


def test_set_axis_separator_of_a_parameter_symbolic():
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32", axis_separators=[1])
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    check_schedule(symbolic, expected, lambda sch: sch.set_axis_separator("B", ("read", 0), [1]))
    check_schedule(expected, symbolic, lambda sch: sch.set_axis_separator("B", "A", None))


def test_set_axis_separator_refuses():
    sch = Schedule(chain, error_render_level="fast")
    with pytest.raises(ScheduleError, match=r"buffer B has 2 axes, .* in increasing order, found \[2, 1\]"):
        sch.set_axis_separator("B", "B", [2, 1])
    with pytest.raises(ScheduleError, match=r"numbers between 0 and 2 .* found \[3\]"):
        sch.set_axis_separator("B", "B", [3])
    with pytest.raises(ScheduleError, match=r"found \[-1\]"):
        sch.set_axis_separator("B", "B", [-1])
    with pytest.raises(ScheduleError, match=r"`read_buffer_index` 3 is out of range: the block tir.Block#0 reads 1"):
        sch.set_axis_separator("B", ("read", 3), [1])
    with pytest.raises(InvalidValue, match="the block B accesses no buffer 'C'; it accesses"):
        sch.set_axis_separator("B", "C", [1])


def test_reindex():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 8), "float32")):
        A_reindex = T.alloc_buffer((12, 8))
        B_reindex = T.alloc_buffer((12, 8))
        for ax0, ax1 in T.grid(12, 8):
            with T.block("A_reindex_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_reindex[v0, v1] = A[v1, v0]
        for i, j in T.grid(12, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B_reindex[vi, vj] = A_reindex[vi, vj] * T.float32(2)
        for ax0, ax1 in T.grid(12, 8):
            with T.block("B_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v0, v1] = B_reindex[v0, v1]

    def transform(sch):
        sch.reindex("B", ("read", 0))
        sch.reindex("B", "B")

    check_schedule(transpose, expected, transform)


def test_reindex_of_a_reduction_keeps_the_variables_that_are_used():
    def transform(sch):
        copy = sch.reindex("C", ("read", 1))
        assert [sch.get(loop).extent.value for loop in sch.get_loops(copy)] == [10, 12]
        assert "B_reindex[vj, vk]" in sch.mod.script()

    check_schedule(matmul, None, transform)


def test_reindex_cache():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 8), "float32")):
        A_shared = T.alloc_buffer((96,), scope="shared")
        B_local = T.alloc_buffer((8, 12), scope="local")
        for i, j in T.grid(12, 8):
            with T.block("A_shared"):
                vi, vj = T.axis.remap("SS", [i, j])
                A_shared[vj * 12 + vi] = A[vj, vi]
        for i, j in T.grid(12, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B_local[vj, vi] = A_shared[vj * 12 + vi] * T.float32(2)
        for i, j in T.grid(12, 8):
            with T.block("B_local"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = B_local[vj, vi]

    def transform(sch):
        sch.reindex_cache_read("B", 0, "shared", lambda i, j: j * 12 + i)
        sch.reindex_cache_write("B", "B", "local", lambda i, j: (j, i))

    check_schedule(transpose, expected, transform)


def test_refusals():
    sch = Schedule(chain, error_render_level="fast")
    with pytest.raises(InvalidValue, match="the block B accesses no buffer 'X'; it accesses"):
        sch.transform_layout("B", "X", lambda i, j: (j, i))
    with pytest.raises(InvalidValue, match=r"a buffer is given as .*, found"):
        sch.transform_layout("B", ("both", 0), lambda i, j: (j, i))
    with pytest.raises(ScheduleError, match="is not bijective affine"):
        sch.transform_block_layout("B", lambda i, j: (i + j,))
    with pytest.raises(ScheduleError, match="contains more than one type of original iter vars"):
        Schedule(matmul, error_render_level="fast").transform_block_layout("C", lambda i, j, k: (i, j * 12 + k))
    sch.split(sch.get_loops("B")[0], [4, 4])
    with pytest.raises(ScheduleError, match=r"The binding values of the tir.Block#0 are not variables of outer loops"):
        sch.transform_block_layout("B", lambda i, j: (j, i))

    @T.prim_func
    def twice(A: T.Buffer((9,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + A[vi + 1]

    with pytest.raises(ScheduleError, match="at the same indices everywhere, found 2 accesses at different ones"):
        Schedule(twice, error_render_level="fast").reindex("B", "A")
    with pytest.raises(ScheduleError, match="is not a single point, which violates the prerequisite of reindex_cache"):
        Schedule(twice, error_render_level="fast").reindex_cache_read("B", 0, "shared", lambda i: i)


def test_layouts_of_blocks_and_copies_symbolic():
    @T.prim_func
    def swapped(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        for ax0, ax1 in T.grid(T.int64(8), n):
            with T.block("B"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v1, v0] = A[v1, v0] + T.float32(1)

    check_schedule(symbolic, swapped, lambda sch: sch.transform_block_layout("B", lambda i, j: (j, i)))

    @T.prim_func
    def reindexed(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        A_reindex = T.alloc_buffer((T.int64(8), n))
        for ax0, ax1 in T.grid(T.int64(8), n):
            with T.block("A_reindex_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                A_reindex[v0, v1] = A[v1, v0]
        for ax0, ax1 in T.grid(T.int64(8), n):
            with T.block("B"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                B[v1, v0] = A_reindex[v0, v1] + T.float32(1)

    def transform(sch):
        sch.transform_block_layout("B", lambda i, j: (j, i))
        sch.reindex("B", "A")

    check_schedule(symbolic, reindexed, transform)

    @T.prim_func
    def cached(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)), "float32")
        B = T.match_buffer(b, (n, T.int64(8)), "float32")
        A_shared = T.alloc_buffer((T.int64(8), n), scope="shared")
        B_local = T.alloc_buffer((n * T.int64(8),), scope="local")
        for i, j in T.grid(n, T.int64(8)):
            with T.block("A_shared"):
                vi, vj = T.axis.remap("SS", [i, j])
                A_shared[vj, vi] = A[vi, vj]
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B_local[vi * T.int64(8) + vj] = A_shared[vj, vi] + T.float32(1)
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B_local"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = B_local[vi * T.int64(8) + vj]

    def both(sch):
        sch.reindex_cache_read("B", "A", "shared", lambda i, j: (j, i))
        sch.reindex_cache_write("B", 0, "local", lambda i, j: i * 8 + j)

    check_schedule(symbolic, cached, both)


def test_copies_of_uneven_tiles_are_guarded():
    def transform(sch):
        sch.split(sch.get_loops("B")[0], [None, 5])
        sch.reindex_cache_write("B", 0, "local", lambda i, j: (j, i))

    text = check_schedule(transpose, None, transform).mod["main"].script()
    assert text.count("T.where(i_0 * 5 + i_1 < 12)") == 2


def test_copies_refuse_padding_and_conditions():
    @T.prim_func
    def padding(A: T.Buffer((6,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.if_then_else(vi >= 1 and vi < 7, A[vi - 1], T.float32(0))

    for transform in (
        lambda sch: sch.reindex("B", "A"),
        lambda sch: sch.reindex_cache_read("B", "A", "local", lambda i: i),
    ):
        with pytest.raises(
            ScheduleError, match=r"accesses the buffer A at .*, which is outside of it for some iterations"
        ):
            transform(Schedule(padding, error_render_level="fast"))

    @T.prim_func
    def half(B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                T.where(i >= 4)
                B[vi] = T.float32(1)

    with pytest.raises(ScheduleError, match=r"The block tir.Block#0 runs only where i >= 4, not everywhere"):
        Schedule(half, error_render_level="fast").reindex("B", ("write", 0))


def test_transform_block_layout_keeps_conditions():
    @T.prim_func
    def before(B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(j <= i)
                B[vi, vj] = T.float32(1)

    text = (
        check_schedule(before, None, lambda sch: sch.transform_block_layout("B", lambda i, j: (j, i)), numbers=False)
        .mod["main"]
        .script()
    )
    assert "T.where(ax0 <= ax1)" in text
