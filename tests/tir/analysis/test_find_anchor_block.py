"""find_anchor_block: the reduction that costs most."""

from __future__ import annotations

from oneir.ir.module import IRModule
from oneir.script import tir as T
from oneir.tir.analysis import find_anchor_block


def test_the_largest_reduction():
    @T.prim_func
    def func(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16,), "float32"), D: T.Buffer((1,), "float32")):
        for i, k in T.grid(16, 16):
            with T.block("rows"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
        for k in range(16):
            with T.block("all"):
                vo = T.axis.spatial(1, 0)
                vk = T.axis.reduce(16, k)
                with T.init():
                    D[vo] = T.float32(0)
                D[vo] = D[vo] + C[vk]

    block = find_anchor_block(IRModule({"main": func}))
    assert block is not None
    assert block.name_hint == "rows"


def test_the_only_block_and_several_without_reduction():
    @T.prim_func
    def one(A: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("one"):
                vi = T.axis.spatial(16, i)
                A[vi] = T.float32(0)

    @T.prim_func
    def two(A: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("first"):
                vi = T.axis.spatial(16, i)
                A[vi] = T.float32(0)
        for i in range(16):
            with T.block("second"):
                vi = T.axis.spatial(16, i)
                A[vi] = T.float32(1)

    block = find_anchor_block(IRModule({"main": one}))
    assert block is not None
    assert block.name_hint == "one"
    assert find_anchor_block(IRModule({"main": two})) is None
