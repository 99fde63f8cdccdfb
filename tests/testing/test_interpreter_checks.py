"""Every check of the interpreter finds a planted mistake, and says what, where and in which iteration."""

from __future__ import annotations

import numpy as np
import pytest

from oneir.runtime.error import InterpreterError
from oneir.script import tir as T
from oneir.testing import interpret


def refused(func, *args, match, **options):
    with pytest.raises(InterpreterError, match=match) as caught:
        interpret(func, *args, **options)
    return str(caught.value)


def ints(*shape):
    return np.zeros(shape, "int32")


# -- bounds --


def test_out_of_bounds_names_buffer_index_extent_and_iteration():
    @T.prim_func
    def f(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 8), "int32")):
        for i, j in T.grid(4, 8):
            B[i, j] = A[i, j + 1]

    text = refused(
        f, ints(4, 8), ints(4, 8), match=r"out of bounds: `A\[0, 8\]` is read, but dimension 1 has the extent 8"
    )
    assert "in: B[i, j] = A[i, j + 1]" in text
    assert "running: f, i = 0, j = 7" in text
    assert "test_interpreter_checks.py:" in text


def test_bounds_are_checked_even_when_nothing_else_is():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        A[-1] = 0

    refused(f, ints(4), match=r"`A\[-1\]` is written", check=False)


def test_a_lane_out_of_bounds():
    @T.prim_func
    def f(A: T.Buffer((6,), "int32")):
        A[T.Ramp(3, 1, 4)] = T.Broadcast(1, 4)

    refused(f, ints(6), match=r"`A\[6\]` is written")


def test_a_view_may_not_reach_past_its_memory():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        B = T.decl_buffer((8,), "int32", data=A.data)
        B[4] = 1

    refused(f, ints(4), match="access outside of the memory of `A`")


# -- initialisation --


def test_an_allocation_is_uninitialised():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        with T.block("root"):
            C = T.alloc_buffer((4,), "int32")
            for i in range(3):
                C[i] = i
            for i in range(4):
                B[i] = C[i]

    refused(f, ints(4), match=r"uninitialised: `C\[3\]` is read, but was never written")


def test_an_output_can_be_marked_uninitialised():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            B[i] = B[i] + A[i]

    interpret(f, ints(4), ints(4))
    refused(f, ints(4), ints(4), match=r"uninitialised: `B\[0\]`", outputs=[1])


def test_a_reduction_without_init_is_found():
    @T.prim_func
    def f(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
        for i, k in T.grid(4, 4):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                B[vi] = B[vi] + A[vi, vk]

    interpret(f, ints(4, 4), ints(4))
    refused(f, ints(4, 4), ints(4), match=r"uninitialised: `B\[0\]`", outputs=[1])


# -- blocks --


def test_a_read_outside_of_the_declared_region():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in range(7):
            with T.block("shift"):
                v = T.axis.spatial(7, i)
                T.reads(A[v])
                T.writes(B[v])
                B[v] = A[v + 1]

    refused(f, ints(8), ints(8), match=r"undeclared access: block `shift` reads `A\[1\]`, .* outside of the reads")
    interpret(f, ints(8), ints(8), check=False)


def test_a_write_outside_of_the_declared_region():
    @T.prim_func
    def f(B: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("fill"):
                v = T.axis.spatial(8, i)
                T.reads()
                T.writes(B[0:4])
                B[v] = 1

    text = refused(f, ints(8), match=r"undeclared access: block `fill` writes `B\[4\]`")
    assert "i = 4" in text


def test_a_block_that_reads_what_it_writes_must_say_so():
    @T.prim_func
    def f(B: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("increment"):
                v = T.axis.spatial(8, i)
                T.reads()
                T.writes(B[v])
                B[v] = B[v] + 1

    refused(f, ints(8), match=r"block `increment` reads `B\[0\]`")


def test_an_outer_block_declares_what_inner_blocks_do():
    @T.prim_func
    def f(B: T.Buffer((8,), "int32")):
        for i in range(2):
            with T.block("outer"):
                vo = T.axis.spatial(2, i)
                T.reads()
                T.writes(B[vo * 4 : vo * 4 + 3])
                for j in range(4):
                    with T.block("inner"):
                        vi = T.axis.spatial(4, j)
                        T.reads()
                        T.writes(B[vo * 4 + vi])
                        B[vo * 4 + vi] = 1

    refused(f, ints(8), match=r"block `outer` writes `B\[3\]`")


def test_a_match_outside_of_the_declared_region():
    @T.prim_func
    def f(B: T.Buffer((8,), "int32")):
        for i in range(2):
            with T.block("half"):
                v = T.axis.spatial(2, i)
                T.reads()
                T.writes(B[v * 4 : v * 4 + 2])
                C = T.match_buffer(B[v * 4 : v * 4 + 4], (4,), "int32", offset_factor=1)
                C[0] = 1

    refused(f, ints(8), match=r"block `half` matches `B\[3\]`")


def test_an_iteration_variable_leaves_its_domain():
    @T.prim_func
    def f(B: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("fill"):
                v = T.axis.spatial(4, i)
                B[v] = 1

    refused(f, ints(8), match="block `fill`: the iteration variable `v` is 4, outside of its domain")


# -- races --


def test_two_iterations_of_a_parallel_loop_write_one_element():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        for i in T.parallel(8):
            B[i // 2] = i

    refused(
        f,
        ints(4),
        match=r"race: one element of `B` is written by iteration 0 and written by iteration 1 of the parallel loop `i`",
    )


def test_an_iteration_reads_what_another_writes():
    @T.prim_func
    def f(B: T.Buffer((9,), "int32")):
        for i in T.parallel(8):
            B[i + 1] = B[i]

    refused(f, ints(9), match="written by iteration 0 and read by iteration 1 of the parallel loop `i`")

    @T.prim_func
    def g(B: T.Buffer((9,), "int32")):
        for i in T.parallel(8):
            B[i] = B[i + 1]

    refused(g, ints(9), match="read by iteration 0 and written by iteration 1 of the parallel loop `i`")


def test_a_reduction_in_a_parallel_or_vectorized_loop():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32"), B: T.Buffer((1,), "int32")):
        for i in T.vectorized(8):
            B[0] = B[0] + A[i]

    refused(f, ints(8), ints(1), match="iteration 0 .* iteration 1 of the vectorized loop `i`")


def test_a_temporary_shared_by_iterations():
    @T.prim_func
    def f(B: T.Buffer((8,), "int32")):
        with T.block("root"):
            C = T.alloc_buffer((1,), "int32")
            for i in T.parallel(8):
                C[0] = i
                B[i] = C[0]

    refused(f, ints(8), match="one element of `C`")

    @T.prim_func
    def private(B: T.Buffer((8,), "int32")):
        for i in T.parallel(8):
            with T.block("each"):
                v = T.axis.spatial(8, i)
                C = T.alloc_buffer((1,), "int32")
                C[0] = v
                B[v] = C[0]

    b = ints(8)
    interpret(private, b)
    assert b.tolist() == list(range(8))


def test_a_write_races_with_the_first_of_many_readers():
    """Of all readers only two are remembered; a writer in the iteration of either is still found."""

    @T.prim_func
    def f(A: T.Buffer((1,), "int32"), B: T.Buffer((8, 2), "int32")):
        for i in T.parallel(8):
            for j in T.parallel(2):
                B[i, j] = A[0]
            if i == 7:
                A[0] = 5

    refused(f, ints(1), ints(8, 2), match="one element of `A` is read by iteration 0 and written by iteration 7")


def test_loops_that_follow_each_other_do_not_race():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for t in range(3):
            for i in T.parallel(8):
                B[i] = A[7 - i] + t
            for i in T.parallel(8):
                A[i] = B[7 - i]

    interpret(f, ints(8), ints(8))


# -- threads --


def launch_reversal(sync):
    if sync:

        @T.prim_func
        def f(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
            bx = T.launch_thread("blockIdx.x", 2)
            tx = T.launch_thread("threadIdx.x", 16)
            data = T.allocate([16], "int32", "shared")
            S = T.decl_buffer((16,), "int32", data=data, scope="shared")
            S[tx] = A[bx * 16 + tx]
            T.evaluate(T.tvm_storage_sync("shared"))
            B[bx * 16 + tx] = S[15 - tx]

        return f

    @T.prim_func
    def f(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 16)
        data = T.allocate([16], "int32", "shared")
        S = T.decl_buffer((16,), "int32", data=data, scope="shared")
        S[tx] = A[bx * 16 + tx]
        B[bx * 16 + tx] = S[15 - tx]

    return f


def test_threads_exchange_through_shared_memory():
    a, b = np.arange(32, dtype="int32"), ints(32)
    interpret(launch_reversal(sync=True), a, b)
    assert b.tolist() == [*range(15, -1, -1), *range(31, 15, -1)]


def test_a_missing_barrier_is_found():
    """Thread 7 reads what thread 8 writes; both accesses are underlined."""
    text = refused(
        launch_reversal(sync=False),
        ints(32),
        ints(32),
        match=r"`S` is read by iteration \(7,\) and written by iteration \(8,\) of the threads of the block",
    )
    assert 'put a barrier between the two, `T.tvm_storage_sync("shared")`' in text
    assert text.endswith(
        "    8 |     S[tx] = A[bx * 16 + tx]\n"
        "      |     ^^^^^^^^^^^^^^^^^^^^^^^\n"
        "    9 |     B[bx * 16 + tx] = S[15 - tx]\n"
        "      |                       ^^^^^^^^^^"
    )


def test_shared_memory_that_no_thread_writes():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        data = T.allocate([5], "int32", "shared")
        S = T.decl_buffer((5,), "int32", data=data, scope="shared")
        S[tx] = tx
        T.evaluate(T.tvm_storage_sync("shared"))
        B[tx] = S[tx + 1]

    text = refused(f, ints(4), match=r"uninitialised: `S\[4\]` is read, but was never written; no thread of the block")
    assert "write it, or guard the read" in text
    assert text.endswith("B[tx] = S[tx + 1]\n      |             ^^^^^^^^^")


def test_two_threads_that_write_one_shared_element():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        data = T.allocate([2], "int32", "shared")
        S = T.decl_buffer((2,), "int32", data=data, scope="shared")
        S[tx // 2] = tx
        T.evaluate(T.tvm_storage_sync("shared"))
        B[tx] = S[tx // 2]

    text = refused(f, ints(4), match=r"`S` is written by iteration \(0,\) and written by iteration \(1,\)")
    assert "let one thread write" in text
    assert text.endswith("S[tx // 2] = tx\n      |     ^^^^^^^^^^^^^^^")


def test_threads_of_a_warp_wait_for_each_other_only():
    """Two warps of two threads: within a warp, a barrier of the warp orders; between warps it does not."""

    def kernel(distance):
        @T.prim_func
        def f(B: T.Buffer((4,), "int32")):
            T.func_attr({"target": T.target({"kind": "cuda", "thread_warp_size": 2})})
            tx = T.launch_thread("threadIdx.x", 4)
            data = T.allocate([4], "int32", "shared")
            S = T.decl_buffer((4,), "int32", data=data, scope="shared")
            S[tx] = tx
            T.evaluate(T.tvm_storage_sync("warp"))
            B[tx] = S[(tx + distance) % 4] if distance == 2 else S[tx // 2 * 2 + 1 - tx % 2]

        return f

    b = ints(4)
    interpret(kernel(1), b)
    assert b.tolist() == [1, 0, 3, 2]
    refused(kernel(2), ints(4), match="of the warps of the block")


def test_a_race_between_threads_names_both():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        B[tx // 2] = tx

    refused(
        f, ints(4), match=r"written by iteration \(0,\) and written by iteration \(1,\) of the threads of the block"
    )


def test_a_race_between_blocks():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 2)
        B[tx] = bx

    refused(f, ints(4), match="of the blocks of the kernel")


def test_a_second_barrier_is_missing_before_shared_memory_is_used_again():
    @T.prim_func
    def f(A: T.Buffer((2, 4), "int32"), B: T.Buffer((2, 4), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        data = T.allocate([4], "int32", "shared")
        S = T.decl_buffer((4,), "int32", data=data, scope="shared")
        for k in range(2):
            S[tx] = A[k, tx]
            T.evaluate(T.tvm_storage_sync("shared"))
            B[k, tx] = S[3 - tx]

    refused(f, ints(2, 4), ints(2, 4), match=r"`S` is written by iteration \(1,\) and read by iteration \(2,\)")


def test_a_divergent_barrier_is_found():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        if tx < 2:
            T.evaluate(T.tvm_storage_sync("shared"))
        B[tx] = tx

    text = refused(f, ints(4), match=r"divergent barrier: thread \(threadIdx.x = 0\) waits, thread .* has ended")
    assert "move it out of what only some of them execute" in text
    assert text.endswith('T.tvm_storage_sync("shared")\n      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^')


def test_threads_that_wait_at_different_barriers_are_found():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        if tx < 2:
            T.evaluate(T.tvm_storage_sync("shared"))
            B[tx] = tx
        else:
            T.evaluate(T.tvm_storage_sync("shared"))

    refused(f, ints(4), match=r"divergent barrier: thread \(threadIdx.x = 0\) waits at .*threadIdx.x = 2\) at")


def test_local_memory_is_each_threads_own():
    @T.prim_func
    def f(B: T.Buffer((4,), "int32")):
        with T.block("root"):
            L = T.alloc_buffer((1,), "int32", scope="local")
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("write"):
                    v = T.axis.spatial(4, tx)
                    T.reads()
                    T.writes(L[0])
                    L[0] = v
                with T.block("read"):
                    v = T.axis.spatial(4, tx)
                    T.reads(L[0])
                    T.writes(B[v])
                    B[v] = L[0]

    b = ints(4)
    interpret(f, b)
    assert b.tolist() == [0, 1, 2, 3]


def test_blocks_that_write_shared_memory_are_separated_before_barriers_are_inserted():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        with T.block("root"):
            S = T.alloc_buffer((8,), "int32", scope="shared")
            for bx in T.thread_binding(2, thread="blockIdx.x"):
                for tx in T.thread_binding(4, thread="threadIdx.x"):
                    for fetch in T.thread_binding(4, thread="threadIdx.x"):
                        with T.block("copy"):
                            v = T.axis.spatial(8, bx * 4 + fetch)
                            S[v] = A[v]
                    with T.block("reverse"):
                        v = T.axis.spatial(8, bx * 4 + tx)
                        T.reads(S[v // 4 * 4 + 3 - v % 4])
                        T.writes(B[v])
                        B[v] = S[v // 4 * 4 + 3 - v % 4]

    b = ints(8)
    interpret(f, np.arange(8, dtype="int32"), b)
    assert b.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]


def test_a_reduction_across_threads():
    @T.prim_func
    def f(A: T.Buffer((2, 8), "int32"), B: T.Buffer((2,), "int32"), C: T.Buffer((2, 4), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                for k in range(2):
                    with T.block("sum"):
                        vi = T.axis.spatial(2, bx)
                        vk = T.axis.reduce(8, k * 4 + tx)
                        with T.init():
                            B[vi] = 0
                        B[vi] = B[vi] + A[vi, vk]
                with T.block("use"):
                    vi, vj = T.axis.remap("SS", [bx, tx])
                    C[vi, vj] = B[vi]

    a, b, c = np.arange(16, dtype="int32").reshape(2, 8), ints(2), ints(2, 4)
    interpret(f, a, b, c, outputs=[1, 2])
    assert b.tolist() == a.sum(1).tolist()
    assert c.tolist() == [[28] * 4, [92] * 4]


def test_an_allreduce_gives_every_thread_the_sum():
    @T.prim_func
    def f(A: T.Buffer((2, 4), "float32"), B: T.Buffer((2, 4), "float32")):
        ty = T.launch_thread("threadIdx.y", 2)
        tx = T.launch_thread("threadIdx.x", 4)
        data = T.allocate([1], "float32", "local")
        R = T.decl_buffer((1,), "float32", data=data, scope="local")
        with T.attr(
            T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", T.reinterpret("handle", T.uint64(0))
        ):
            T.tvm_thread_allreduce(T.uint32(1), A[ty, tx], T.bool(True), R[0], tx)
        B[ty, tx] = R[0]

    a, b = np.arange(8, dtype="float32").reshape(2, 4), np.zeros((2, 4), "float32")
    interpret(f, a, b)
    assert b.tolist() == [[6] * 4, [22] * 4]
