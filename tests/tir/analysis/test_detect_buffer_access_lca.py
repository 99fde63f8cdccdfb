"""detect_buffer_access_lca: the lowest loop or block around all accesses to a buffer."""

from __future__ import annotations

from oneir.script import tir as T
from oneir.tir.analysis import detect_buffer_access_lca


@T.prim_func
def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8, 8))
    S = T.alloc_buffer((8,))
    for i in range(8):
        for j in range(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for k in range(8):
            with T.block("S"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + B[vi, vk]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = S[vi]


def test_loops_blocks_and_the_root():
    lowest = {buffer.name: stmt for buffer, stmt in detect_buffer_access_lca(func).items()}
    root = func.body.block
    outer = root.body.seq[0]
    assert lowest["B"] is outer
    assert lowest["S"] is root
    assert lowest["A"] is outer.body.seq[0].body.block
    assert lowest["C"] is root.body.seq[1].body.block


def test_what_a_reduction_writes_lives_outside_of_its_loops():
    @T.prim_func
    def total(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 8):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]

    lowest = {buffer.name: stmt for buffer, stmt in detect_buffer_access_lca(total).items()}
    loop = total.body.block.body
    assert lowest["C"] is loop
    assert lowest["A"] is loop.body.body.block
