"""What exists, layouts that loops walk in order, and where an intrinsic would fit."""

from __future__ import annotations

import pytest
from schedule_programs import chain, conv2d, matmul, softmax

from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import IndexMap, Schedule, ScheduleError, const
from oneir.tir.schedule.analysis import (
    get_auto_tensorize_mapping_info,
    get_tensorize_loop_mapping,
    has_block,
    is_output_block,
    suggest_index_map,
)
from oneir.tir.stmt_functor import substitute


@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), "float32", offset_factor=1)
    B = T.match_buffer(b, (4, 4), "float32", offset_factor=1)
    C = T.match_buffer(c, (4, 4), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])
        T.writes(C[0:4, 0:4])
        for i, j, k in T.grid(4, 4, 4):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_which_blocks_there_are():
    sch = Schedule(chain)
    assert has_block(sch, "B") and has_block(sch, "root") and not has_block(sch, "X")
    assert not is_output_block(sch, sch.get_block("B")) and is_output_block(sch, sch.get_block("C"))
    with pytest.raises(ScheduleError, match="does not operate on the root block"):
        is_output_block(sch, sch.get_block("root"))
    block = sch.get_block("B")
    sch.compute_inline(block)
    assert not has_block(sch, "B")
    with pytest.raises(InvalidValue, match="the block does not exist any more"):
        is_output_block(sch, block)


def suggested(func, reorder, buffer=0):
    """The suggested layout for a read of the block of a function whose loops were split by 4 and reordered."""
    sch = Schedule(func)
    block = sch.get_block("C")
    parts = [sch.split(loop, [None, 4]) for loop in sch.get_loops(block)]
    sch.reorder(*reorder(*parts))
    read = sch.get(block).reads[buffer]
    values = dict(
        zip(
            [v.var for v in sch.get(block).iter_vars],
            sch.state.realize_of(sch.get_sref(block)).iter_values,
            strict=True,
        )
    )
    indices = [substitute(r.min, values) for r in read.region]
    loops = [sch.get(loop) for loop in sch.get_loops(block)]
    return suggest_index_map(read.buffer, indices, loops, const(True))


def test_a_layout_in_the_order_of_the_loops():
    @T.prim_func
    def square(A: T.Buffer((16, 8), "float32"), B: T.Buffer((8, 16), "float32"), C: T.Buffer((16, 16), "float32")):
        for i, j, k in T.grid(16, 16, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    found = suggested(square, lambda i, j, k: (i[0], j[0], k[0], i[1], j[1], k[1]))
    # Tiles of 4 by 4, one after the other.
    expected = [(i // 4, k // 4, i % 4, k % 4) for i in range(16) for k in range(8)]
    assert [tuple(int(x) for x in found.map_indices([i, k])) for i in range(16) for k in range(8)] == expected
    same = suggested(square, lambda i, j, k: (*i, *j, *k))
    assert sorted(map(str, same.map_shape([16, 8]))) == ["2", "4", "4", "4"]


def test_no_layout_for_windows():
    sch = Schedule(conv2d)
    block = sch.get(sch.get_block("C"))
    loops = [sch.get(loop) for loop in sch.get_loops("C")]
    i, j, _o, k, l, c = [loop.loop_var for loop in loops]
    assert suggest_index_map(block.reads[0].buffer, [i + k, j + l, c], loops, const(True)) is None


def test_the_loops_of_an_intrinsic():
    @T.prim_func
    def even(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
        for k, i, j in T.grid(12, 8, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    sch = Schedule(even)
    info = get_tensorize_loop_mapping(sch, sch.get_block("C"), product)
    assert {sref.stmt.loop_var.name: loop.loop_var.name for sref, loop in info.loop_map.items()} == {
        "i": "i",
        "j": "j",
        "k": "k",
    }
    assert [(loop.loop_var.name, i) for loop, i in info.desc_loop_indexer.items()] == [("i", 0), ("j", 1), ("k", 2)]
    assert info.block_iter_paddings is None
    for loop in sch.get_loops("C"):
        sch.split(loop, [None, 4])
    assert not get_tensorize_loop_mapping(sch, sch.get_block("C"), product).loop_map


def test_loops_that_do_not_fit_an_intrinsic():
    sch = Schedule(matmul)
    assert get_tensorize_loop_mapping(sch, sch.get_block("C"), product) is None
    padded = get_tensorize_loop_mapping(sch, sch.get_block("C"), product, allow_padding=True)
    assert padded.block_iter_paddings == [1, 4, 1]
    sch = Schedule(softmax)
    assert get_tensorize_loop_mapping(sch, sch.get_block("E"), product) is None


def test_variables_that_are_fused_for_an_intrinsic():
    @T.prim_func
    def convolution(
        A: T.Buffer((2, 6, 5, 2), "float32"), W: T.Buffer((3, 2, 2, 4), "float32"), C: T.Buffer((2, 4, 4, 4), "float32")
    ):
        for n, i, j, o, k, l, c in T.grid(2, 4, 4, 4, 3, 2, 2):
            with T.block("C"):
                vn, vi, vj, vo, vk, vl, vc = T.axis.remap("SSSSRRR", [n, i, j, o, k, l, c])
                with T.init():
                    C[vn, vi, vj, vo] = T.float32(0)
                C[vn, vi, vj, vo] = C[vn, vi, vj, vo] + A[vn, vi + vk, vj + vl, vc] * W[vk, vl, vc, vo]

    sch = Schedule(convolution)
    info = get_auto_tensorize_mapping_info(sch, sch.get_block("C"), product)
    (mapping,) = info.mappings
    expected = IndexMap.from_func(
        lambda n, i, j, o, k, l, c: (n * 16 + i * 4 + j, o, k * 4 + l * 2 + c), index_dtype="int32"
    )
    assert_structural_equal(mapping, expected)
    assert {mine.name: other.name for mine, other in info.lhs_buffer_map.items()} == {"C": "C", "A": "A", "W": "B"}
    assert [v.var.name for v in info.rhs_iters] == ["vi", "vj", "vk"] and len(info.lhs_iters) == 7
    assert all(len(indices) == 2 for indices in info.rhs_buffer_indices.values())


def test_a_batch_stays():
    @T.prim_func
    def batched(
        A: T.Buffer((3, 4, 8), "float32"), B: T.Buffer((3, 8, 4), "float32"), C: T.Buffer((3, 4, 4), "float32")
    ):
        for b, i, j, k in T.grid(3, 4, 4, 8):
            with T.block("C"):
                vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
                with T.init():
                    C[vb, vi, vj] = T.float32(0)
                C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vb, vk, vj]

    sch = Schedule(batched)
    info = get_auto_tensorize_mapping_info(sch, sch.get_block("C"), product)
    assert_structural_equal(info.mappings[0], IndexMap.from_func(lambda b, i, j, k: (b, i, j, k), index_dtype="int32"))


def test_what_computes_something_else_has_no_mapping():
    sch = Schedule(chain)
    assert get_auto_tensorize_mapping_info(sch, sch.get_block("B"), product) is None
