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


def test_blocks_of_threads_have_global_memory_in_common():
    @T.prim_func
    def kernel(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        S = T.alloc_buffer((8, 8), scope="shared")
        for bx in T.thread_binding(8, "blockIdx.x"):
            for tx in T.thread_binding(8, "threadIdx.x"):
                with T.block("S"):
                    vi, vj = T.axis.remap("SS", [bx, tx])
                    S[vi, vj] = A[vi, vj]
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [bx, tx])
                    C[vi, vj] = S[vi, vj]

    lowest = {buffer.name: stmt for buffer, stmt in detect_buffer_access_lca(kernel).items()}
    launch = kernel.body.block.body
    assert lowest["A"] is launch and lowest["C"] is launch
    assert lowest["S"] is launch.body


def test_a_view_is_an_access_of_the_block_that_has_it():
    @T.prim_func
    def viewed(A: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block("row"):
                vi = T.axis.spatial(8, i)
                T.reads()
                T.writes(A[vi, 0:8])
                row = T.match_buffer(A[vi, 0:8], (8,), offset_factor=1)
                for j in range(8):
                    row[j] = T.float32(1)

    lowest = {buffer.name: stmt for buffer, stmt in detect_buffer_access_lca(viewed).items()}
    assert lowest["A"] is viewed.body.block.body.body.block
