"""ConvertBlocksToOpaque: the values bound to a block's variables take their place."""

from __future__ import annotations

import pytest
from pass_checks import check, unchanged

import oneir
from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.tir.transform import ConvertBlocksToOpaque


def test_values_take_the_place_of_variables_in_body_and_regions():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i, j in T.grid(5, 4):
            with T.block("C"):
                v = T.axis.spatial(16, i * 4 + j)
                T.where(i * 4 + j < 16)
                C[v] = A[15 - v] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i, j in T.grid(5, 4):
            with T.block("C"):
                T.where(i * 4 + j < 16)
                T.reads(A[15 - (i * 4 + j)])
                T.writes(C[i * 4 + j])
                C[i * 4 + j] = A[15 - (i * 4 + j)] + 1.0

    check(ConvertBlocksToOpaque(), before, expected)


def test_nested_blocks_are_written_in_terms_of_the_outer_loops():
    @T.prim_func
    def before(C: T.Buffer((4, 4), "int32")):
        for i in range(4):
            with T.block("row"):
                vi = T.axis.spatial(4, i)
                for j in range(4):
                    with T.block("cell"):
                        vii = T.axis.spatial(4, vi)
                        vj = T.axis.spatial(4, j)
                        C[vii, vj] = vii * 4 + vj

    @T.prim_func
    def expected(C: T.Buffer((4, 4), "int32")):
        for i in range(4):
            with T.block("row"):
                T.reads()
                T.writes(C[i, 0:4])
                for j in range(4):
                    with T.block("cell"):
                        T.reads()
                        T.writes(C[i, j])
                        C[i, j] = i * 4 + j

    check(ConvertBlocksToOpaque(), before, expected)


def test_shapes_of_memory_inside_are_rewritten_too():
    @T.prim_func
    def before(C: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                B = T.alloc_buffer((vi + 1,))
                B[vi] = T.float32(1)
                C[vi] = B[vi]

    @T.prim_func
    def expected(C: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("C"):
                T.reads()
                T.writes(C[i])
                B = T.alloc_buffer((i + 1,))
                B[i] = T.float32(1)
                C[i] = B[i]

    check(ConvertBlocksToOpaque(), before, expected)


def test_a_block_that_still_has_an_init_is_refused():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32"), C: T.Buffer((1,), "float32")):
        for k in range(4):
            with T.block("C"):
                vk = T.axis.reduce(4, k)
                with T.init():
                    C[0] = T.float32(0)
                C[0] = C[0] + A[vk]

    with pytest.raises(WellFormedError, match="block `C` still has an init; run LowerInitBlock first"):
        ConvertBlocksToOpaque()(oneir.ir.IRModule({"main": func}))


def test_opaque_blocks_are_left_alone():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                T.reads()
                T.writes(A[i])
                A[i] = T.float32(0)

    unchanged(ConvertBlocksToOpaque(), func)
