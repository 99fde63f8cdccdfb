"""LowerOpaqueBlock: blocks become their bodies."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, unchanged

from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.tir.transform import LowerOpaqueBlock


def same(after, expected):
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))


def test_memory_becomes_an_allocation_and_a_predicate_a_branch():
    @T.prim_func
    def before(A: T.Buffer((14,), "float32"), C: T.Buffer((14,), "float32")):
        for i in range(4):
            with T.block("outer"):
                T.reads(A[i * 4 : i * 4 + 4])
                T.writes(C[i * 4 : i * 4 + 4])
                B = T.alloc_buffer((4,))
                for j in range(4):
                    with T.block("B"):
                        T.where(i * 4 + j < 14)
                        T.reads(A[i * 4 + j])
                        T.writes(B[j])
                        B[j] = A[i * 4 + j] * 2.0
                for j in range(4):
                    with T.block("C"):
                        T.where(i * 4 + j < 14)
                        T.reads(B[j])
                        T.writes(C[i * 4 + j])
                        C[i * 4 + j] = B[j]

    @T.prim_func
    def expected(A: T.Buffer((14,), "float32"), C: T.Buffer((14,), "float32")):
        for i in range(4):
            B = T.decl_buffer((4,))
            for j in range(4):
                if i * 4 + j < 14:
                    B[j] = A[i * 4 + j] * 2.0
            for j in range(4):
                if i * 4 + j < 14:
                    C[i * 4 + j] = B[j]

    check(LowerOpaqueBlock(), before, expected)


def test_loops_of_one_iteration_go_unless_they_are_annotated():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32")):
        for i in range(1):
            for j in T.serial(1, annotations={"keep": 1}):
                for k in range(2, 3):
                    with T.block("A"):
                        T.reads()
                        T.writes(A[i + j + k])
                        A[i + j + k] = T.float32(0)

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32")):
        for j in T.serial(1, annotations={"keep": 1}):
            A[T.Add(T.Add(0, j), 2)] = T.float32(0)

    check(LowerOpaqueBlock(), before, expected)


def test_pragmas_become_attributes_and_other_annotations_stay():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32")):
        for i in T.serial(4, annotations={"pragma_unroll": 1, "note": "here"}):
            with T.block("A"):
                T.reads()
                T.writes(A[i])
                A[i] = T.float32(0)

    after = apply(LowerOpaqueBlock(), before)
    attribute = after.body
    assert (attribute.attr_key, attribute.value.value) == ("pragma_unroll", 1)
    assert attribute.node is attribute.body.loop_var
    assert dict(attribute.body.annotations) == {"note": "here"}


def test_a_bound_loop_launches_its_thread():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("A"):
                T.reads()
                T.writes(A[tx])
                A[tx] = T.float32(0)

    after = apply(LowerOpaqueBlock(), before)
    assert (after.body.attr_key, after.body.value.value) == ("thread_extent", 4)
    assert after.body.node.thread_tag == "threadIdx.x"
    assert after.body.node.var is after.body.body.indices[0]


def test_memory_with_strides_has_rows_with_gaps():
    @T.prim_func
    def before(C: T.Buffer((4, 4), "float32")):
        with T.block("root"):
            T.reads()
            T.writes(C[0:4, 0:4])
            B = T.alloc_buffer((4, 4), strides=[6, 1])
            for i, j in T.grid(4, 4):
                B[i, j] = T.float32(1)
            for i, j in T.grid(4, 4):
                C[i, j] = B[i, j]

    after = apply(LowerOpaqueBlock(), before)
    assert [extent.value for extent in after.body.extents] == [4, 6]


def test_a_block_with_variables_is_refused():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = T.float32(0)

    with pytest.raises(WellFormedError, match=r"block `A` is not opaque; run LowerInitBlock, ConvertBlocksToOpaque"):
        apply(LowerOpaqueBlock(), func)


def test_a_function_without_blocks_is_left_alone():
    @T.prim_func(private=True)
    def func(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.float32(0)

    unchanged(LowerOpaqueBlock(), apply(LowerOpaqueBlock(), func))
