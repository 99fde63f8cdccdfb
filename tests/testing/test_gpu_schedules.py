"""Schedules for GPUs, made by primitives: they equal NumPy as blocks and after every pass down to barriers and trees.

Sizes are odd, so that tiles are uneven, and symbolic, so that nothing folds.
"""

from __future__ import annotations

import numpy as np
import pytest

from oneir.ir import IRModule
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InterpreterError
from oneir.script import from_source
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir import Schedule, transform

PASSES = [
    transform.LowerCrossThreadReduction(),
    transform.LowerInitBlock(),
    transform.PlanAndUpdateBufferAllocationLocation(),
    transform.ConvertBlocksToOpaque(),
    transform.LiftThreadBinding(),
    transform.CompactBufferAllocation(),
    transform.LowerMatchBuffer(),
    transform.UnifyThreadBinding(),
    # From here on barriers are needed, until they are there.
    transform.LowerOpaqueBlock(),
    transform.FlattenBuffer(),
    transform.Simplify(),
    transform.LoopPartition(),
    transform.VectorizeLoop(),
    transform.InjectVirtualThread(),
    transform.StorageRewrite(keep_small=True),
    transform.UnrollLoop(),
    transform.Simplify(),
    transform.RemoveNoOp(),
    transform.ThreadSync("shared"),
    transform.ThreadSync("shared.dyn"),
    transform.LowerThreadAllreduce(),
]
UNORDERED = range(8, 19)
"""The passes after which accesses of threads are not ordered."""


def lowered(mod, inputs, expected, tolerance=1e-4):
    """Checks a module, and what each pass makes of it, against NumPy; returns the last."""
    mod = transform.BindTarget(Target("opencl"))(mod)
    for number in range(-1, len(PASSES)):
        if number >= 0:
            mod = PASSES[number](mod)
        assert_structural_equal(from_source(mod.script(show_meta=True)), mod)
        args = [a.copy() for a in inputs] + [np.zeros_like(expected)]
        if number not in UNORDERED:
            interpret(mod, *args, outputs=[len(inputs)])
            np.testing.assert_allclose(args[-1], expected, rtol=tolerance, atol=tolerance)
    return mod


def barriers(mod):
    """How many barriers stand in the text of a module."""
    return mod.script().count("T.tvm_storage_sync(")


def random(*shape, seed=0):
    return np.random.default_rng(seed).random(shape, dtype="float32")


# -- matrix product through shared memory --


@T.prim_func
def matmul(A: T.Buffer((11, 7), "float32"), B: T.Buffer((7, 13), "float32"), C: T.Buffer((11, 13), "float32")):
    for i, j, k in T.grid(11, 13, 7):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]


@T.prim_func
def symbolic_matmul(a: T.handle, b: T.handle, c: T.handle):
    n, m = T.int32(), T.int32()
    A = T.match_buffer(a, (n, 11), "float32")
    B = T.match_buffer(b, (11, m), "float32")
    C = T.match_buffer(c, (n, m), "float32")
    for i, j, k in T.grid(n, m, 11):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]


def tiled(func, scope="shared", vthreads=1):
    """4 x 4 threads compute a tile, whose operands they fetch together."""
    sch = Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    by, vy, ty, yi = sch.split(i, [None, vthreads, 4, 1])
    bx, vx, tx, xi = sch.split(j, [None, vthreads, 4, 1])
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(by, bx, vy, vx, ty, tx, ko, ki, yi, xi)
    axes = [(by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")]
    if vthreads > 1:
        axes += [(vy, "vthread.y"), (vx, "vthread.x")]
    for loop, thread in axes:
        sch.bind(loop, thread)
    result = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(result, tx, preserve_unit_loops=True)
    for operand in (0, 1):
        fetch = sch.cache_read(block, operand, scope)
        sch.compute_at(fetch, ko, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(fetch)[-2:])
        _, fy, fx = sch.split(fused, [None, 4, 4])
        sch.bind(fy, "threadIdx.y")
        sch.bind(fx, "threadIdx.x")
    sch.decompose_reduction(block, ko)
    return sch.mod


@pytest.mark.parametrize("scope", ["shared", "shared.dyn"])
def test_tiles_of_a_product_are_fetched_by_all_threads(scope):
    a, b = random(11, 7), random(7, 13, seed=1)
    mod = lowered(tiled(matmul, scope), [a, b], a @ b)
    # Before the tiles are used, and before the next ones are fetched.
    assert barriers(mod) == 2


def test_virtual_threads_share_the_tiles():
    a, b = random(11, 7), random(7, 13, seed=1)
    mod = lowered(tiled(matmul, vthreads=2), [a, b], a @ b)
    assert "vthread" not in mod.script()
    assert barriers(mod) == 2


@pytest.mark.parametrize("shape", [(5, 9), (8, 4), (1, 1)])
def test_a_product_of_symbolic_shape(shape):
    a, b = random(shape[0], 11), random(11, shape[1], seed=1)
    lowered(tiled(symbolic_matmul), [a, b], a @ b)


# -- reductions across threads --


@T.prim_func
def softmax(x: T.handle, y: T.handle):
    n, m = T.int32(), T.int32()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n, m), "float32")
    M = T.alloc_buffer((n,), "float32")
    S = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, m):
        with T.block("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.min_value("float32")
            M[vi] = T.max(M[vi], X[vi, vk])
    for i, k in T.grid(n, m):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + T.exp(X[vi, vk] - M[vi])
    for i, k in T.grid(n, m):
        with T.block("Y"):
            vi, vk = T.axis.remap("SS", [i, k])
            Y[vi, vk] = T.exp(X[vi, vk] - M[vi]) / S[vi]


def scheduled_softmax(threads):
    sch = Schedule(softmax)
    result = sch.get_block("Y")
    row, column = sch.get_loops(result)
    sch.bind(row, "blockIdx.x")
    sch.bind(sch.split(column, [None, threads])[1], "threadIdx.x")
    for name in ("S", "M"):
        block = sch.get_block(name)
        sch.set_scope(block, 0, "shared")
        sch.compute_at(block, row)
        sch.bind(sch.split(sch.get_loops(block)[-1], [None, threads])[1], "threadIdx.x")
    return sch.mod


@pytest.mark.parametrize(("rows", "columns", "threads"), [(2, 37, 16), (3, 5, 8), (1, 20, 6)])
def test_softmax_reduces_across_threads(rows, columns, threads):
    x = random(rows, columns)
    e = np.exp(x - x.max(1, keepdims=True))
    mod = lowered(scheduled_softmax(threads), [x], e / e.sum(1, keepdims=True))
    assert "tvm_thread_allreduce" not in mod.script()


@T.prim_func
def row_sums(A: T.Buffer((3, 45), "float32"), B: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 45):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]


def test_partial_sums_of_threads_are_summed_across_threads():
    sch = Schedule(row_sums)
    _, k = sch.get_loops(sch.get_block("B"))
    _, thread = sch.split(k, [None, 9])
    partial = sch.rfactor(thread, 0)
    total = sch.get_block("B")
    row, across = sch.get_loops(total)
    sch.bind(row, "blockIdx.x")
    sch.bind(across, "threadIdx.x")
    sch.set_scope(partial, 0, "local")
    sch.compute_at(partial, across)
    a = random(3, 45)
    mod = lowered(sch.mod, [a], a.sum(1))
    assert "red_buf0" in mod.script()


def test_several_axes_of_threads_reduce_for_several_rows():
    """Threads (x, y) reduce a row, for rows along z: groups in one tree."""
    sch = Schedule(row_sums)
    i, k = sch.get_loops(sch.get_block("B"))
    _, ty, tx = sch.split(k, [None, 3, 4])
    sch.bind(sch.split(i, [None, 3])[1], "threadIdx.z")
    sch.reorder(ty, tx, sch.get_loops(sch.get_block("B"))[2])
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")
    a = random(3, 45)
    lowered(sch.mod, [a], a.sum(1))


# -- transposition through a padded tile --


@T.prim_func
def transpose(a: T.handle, b: T.handle):
    n, m = T.int32(), T.int32()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    for j, i in T.grid(m, n):
        with T.block("B"):
            vj, vi = T.axis.remap("SS", [j, i])
            B[vj, vi] = A[vi, vj]


def scheduled_transpose():
    sch = Schedule(transpose)
    block = sch.get_block("B")
    tile = sch.cache_read(block, 0, "shared")
    j, i = sch.get_loops(block)
    (jo, ji), (io, ii) = sch.split(j, [None, 4]), sch.split(i, [None, 4])
    sch.reorder(jo, io, ji, ii)
    for loop, thread in ((jo, "blockIdx.y"), (io, "blockIdx.x"), (ji, "threadIdx.y"), (ii, "threadIdx.x")):
        sch.bind(loop, thread)
    sch.compute_at(tile, io)
    for loop, thread in zip(sch.get_loops(tile)[-2:], ("threadIdx.y", "threadIdx.x"), strict=True):
        sch.bind(loop, thread)
    sch.storage_align(tile, 0, 0, 4, 1)
    return sch.mod


@pytest.mark.parametrize("shape", [(8, 8), (7, 10), (1, 3)])
def test_transposition_through_a_padded_tile(shape):
    a = random(*shape)
    mod = lowered(scheduled_transpose(), [a], a.T.copy())
    assert barriers(mod) == 1


# -- what is wrong with a schedule is found --


def without_barriers(mod):
    """The module just before barriers are inserted."""
    for step in PASSES[: UNORDERED.stop - 1]:
        mod = step(mod)
    return mod


@pytest.mark.parametrize("make", [lambda: tiled(symbolic_matmul), scheduled_transpose])
def test_without_barriers_the_use_of_fetched_tiles_is_a_race(make):
    inputs = [random(8, 11), random(11, 8), np.zeros((8, 8), "float32")]
    mod = without_barriers(make())
    args = inputs if len(mod["main"].params) == 3 else [random(8, 8), inputs[2]]
    with pytest.raises(InterpreterError, match=r"_shared` is .* by iteration .* of the threads of the block") as caught:
        interpret(mod, *args)
    assert 'T.tvm_storage_sync("shared")' in str(caught.value)
    assert "^^^" in str(caught.value)


def test_a_schedule_whose_threads_all_sum_into_one_element():
    """A spatial variable in the place of the reduction's: nothing says that threads have to work together."""

    @T.prim_func
    def wrong(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
        for tx in T.thread_binding(8, "threadIdx.x"):
            with T.block("B"):
                vk = T.axis.spatial(8, tx)
                T.reads(A[vk], B[0])
                T.writes(B[0])
                B[0] = B[0] + A[vk]

    with pytest.raises(InterpreterError, match="`B` is written by iteration 0 and read by iteration 1") as caught:
        interpret(IRModule({"main": wrong}), random(8), np.zeros(1, "float32"))
    assert "B[0] = B[0] + A[vk]" in str(caught.value)
