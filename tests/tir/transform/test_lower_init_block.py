"""LowerInitBlock: an init becomes a conditional that holds in the first iteration of the reduction."""

from __future__ import annotations

from pass_checks import check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import LowerInitBlock


def test_init_runs_where_every_reduction_variable_is_at_its_first_value():
    @T.prim_func
    def before(A: T.Buffer((4, 4, 4), "float32"), C: T.Buffer((4,), "float32")):
        for i, j, k in T.grid(4, 4, 4):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SRR", [i, j, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vj, vk]

    @T.prim_func
    def expected(A: T.Buffer((4, 4, 4), "float32"), C: T.Buffer((4,), "float32")):
        for i, j, k in T.grid(4, 4, 4):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SRR", [i, j, k])
                T.reads(A[vi, vj, vk])
                T.writes(C[vi])
                if vj == 0 and vk == 0:
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vj, vk]

    check(LowerInitBlock(), before, expected)


def test_a_reduction_that_starts_elsewhere_compares_with_its_start():
    @T.prim_func
    def before(A: T.Buffer((10,), "float32"), C: T.Buffer((1,), "float32")):
        for k in range(2, 10):
            with T.block("C"):
                vk = T.axis.reduce((2, 10), k)
                with T.init():
                    C[0] = T.float32(0)
                C[0] = C[0] + A[vk]

    @T.prim_func
    def expected(A: T.Buffer((10,), "float32"), C: T.Buffer((1,), "float32")):
        for k in range(2, 10):
            with T.block("C"):
                vk = T.axis.reduce((2, 10), k)
                T.reads(A[vk])
                T.writes(C[0])
                if vk == 2:
                    C[0] = T.float32(0)
                C[0] = C[0] + A[vk]

    check(LowerInitBlock(), before, expected)


def test_a_function_without_init_is_left_alone():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = T.float32(0)

    unchanged(LowerInitBlock(), func)
