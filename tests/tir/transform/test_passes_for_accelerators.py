"""Passes for processors with engines, matrix units and memories of their own: the calls and memory that they give."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pass_checks import apply, check, unchanged

import oneir
from oneir import target as targets
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InvalidValue, NotRegistered, WellFormedError
from oneir.runtime.registry import register_global_func
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir import transform
from oneir.tir.stmt import Allocate


@T.prim_func
def plain(A: T.Buffer((8,), "int32")):
    T.func_attr({"global_symbol": "main"})
    for i in range(8):
        A[i] = i


@pytest.mark.parametrize(
    "name",
    ["InferFragment", "LowerAsyncDMA", "LowerDeviceStorageAccessInfo", "LowerVtcmAlloc", "TransformMmaBufferLayout"],
)
def test_what_needs_none_of_it_is_left_alone(name):
    unchanged(getattr(transform, name)(), plain)


# -- LowerVtcmAlloc --


def test_tightly_coupled_memory_comes_from_the_runtime():
    @T.prim_func
    def before(A: T.Buffer((8,), "int8")):
        scratch = T.allocate([4, 8], "int8", "global.vtcm")
        other = T.allocate([8], "int8", "global")
        S = T.decl_buffer((4, 8), "int8", data=scratch, scope="global.vtcm")
        O = T.decl_buffer((8,), "int8", data=other)
        for i in range(8):
            S[0, i] = A[i]
            O[i] = S[0, i]

    @T.prim_func
    def expected(A: T.Buffer((8,), "int8")):
        scratch: T.handle("int8", "global.vtcm") = T.nd_mem_alloc_with_scope(
            "global.vtcm", T.int64(2), T.tvm_stack_make_shape(4, 8)
        )
        other = T.allocate([8], "int8", "global")
        S = T.decl_buffer((4, 8), "int8", data=scratch, scope="global.vtcm")
        O = T.decl_buffer((8,), "int8", data=other)
        for i in range(8):
            S[0, i] = A[i]
            O[i] = S[0, i]

    check(transform.LowerVtcmAlloc(), before, expected, numbers=False)


# -- LowerAsyncDMA --


def test_a_copy_is_made_by_the_engine_and_waited_for():
    @T.prim_func
    def before(A: T.Buffer((128,), "int32"), B: T.Buffer((64,), "int32")):
        S = T.alloc_buffer((64,), "int32")
        with T.attr(0, "async_commit_queue_scope", 0), T.attr(0, "async_scope", 1):
            for i in range(64):
                S[i] = A[i + 64]
        with T.attr(0, "async_wait_queue_scope", 0), T.attr(0, "async_wait_inflight_count", 0):
            for i in range(64):
                B[i] = S[i] + 1

    @T.prim_func
    def expected(A: T.Buffer((128,), "int32"), B: T.Buffer((64,), "int32")):
        S = T.alloc_buffer((64,), "int32")
        with T.attr(0, "async_commit_queue_scope", 0), T.attr(0, "async_scope", 1):
            T.dma_copy(0, T.address_of(S[0]), T.address_of(A[64]), 256, False)
        T.dma_wait(0, 0)
        for i in range(64):
            B[i] = S[i] + 1

    check(transform.LowerAsyncDMA(), before, expected)
    with oneir.transform.PassContext(config={"tir.experimental_dma_bypass_cache": True}):
        assert "T.dma_copy(0, T.address_of(S[0]), T.address_of(A[64]), 256, T.bool(True))" in str(
            apply(transform.LowerAsyncDMA(), before)
        )


def test_several_copies_of_a_scope_are_a_group():
    @T.prim_func
    def before(A: T.Buffer((16,), "float16"), B: T.Buffer((16,), "float16"), C: T.Buffer((32,), "float16")):
        with T.attr(0, "async_commit_queue_scope", 3):
            for i in range(16):
                C[i] = A[i]
            for i, j in T.grid(4, 4):
                C[16 + i * 4 + j] = B[i * 4 + j]

    @T.prim_func
    def expected(A: T.Buffer((16,), "float16"), B: T.Buffer((16,), "float16"), C: T.Buffer((32,), "float16")):
        T.dma_start_group(3)
        with T.attr(0, "async_commit_queue_scope", 3):
            T.dma_copy(3, T.address_of(C[0]), T.address_of(A[0]), 32, False)
            T.dma_copy(3, T.address_of(C[16]), T.address_of(B[0]), 32, False)
        T.dma_end_group(3)

    check(transform.LowerAsyncDMA(), before, expected)


def test_waits_for_a_queue_without_copies_stay():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32")):
        with T.attr(0, "async_wait_queue_scope", 1), T.attr(0, "async_wait_inflight_count", 0):
            A[0] = 1

    unchanged(transform.LowerAsyncDMA(), func)


def test_what_is_no_copy_of_contiguous_elements_is_refused():
    @T.prim_func
    def strided(A: T.Buffer((16,), "int32"), B: T.Buffer((8,), "int32")):
        with T.attr(0, "async_commit_queue_scope", 0):
            for i in range(8):
                B[i] = A[i * 2]

    @T.prim_func
    def tiled(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
        with T.attr(0, "async_commit_queue_scope", 0):
            for i, j in T.grid(4, 4):
                B[i, j] = A[i, j]

    with pytest.raises(WellFormedError, match="expects copies of contiguous elements in queue 0: Mismatch between"):
        apply(transform.LowerAsyncDMA(), strided)
    with pytest.raises(WellFormedError, match="expects flat buffers, found a copy of `A` to `B`: run FlattenBuffer"):
        apply(transform.LowerAsyncDMA(), tiled)


# -- LowerDeviceStorageAccessInfo --


@register_global_func("tvm.info.mem.global.scratch_without_address")
def _without_address():
    return targets.MemoryInfo(unit_bits=128, max_num_bits=1 << 20, max_simd_bits=128)


@register_global_func("tvm.info.mem.global.scratch_with_address")
def _with_address():
    address = T.call_extern("handle", "address_of_scratch")
    return targets.MemoryInfo(unit_bits=32, max_num_bits=1 << 20, max_simd_bits=128, head_address=address)


def test_memory_without_an_address_is_not_allocated_and_its_units_are_numbers():
    @T.prim_func
    def before():
        scratch = T.allocate([64], "float32", "global.scratch_without_address")
        T.evaluate(
            T.call_extern("int32", "load", T.Call("int32", "tir.tvm_access_ptr", [T.float32(0), scratch, 8, 4, 1]))
        )

    lowered = str(apply(transform.LowerDeviceStorageAccessInfo(), before))
    assert 'T.call_extern("int32", "load", 2)' in lowered  # units of four elements
    assert "allocate" not in lowered


def test_memory_with_an_address_begins_there():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        scratch = T.allocate([64], "int32", "global.scratch_with_address")
        S = T.decl_buffer((64,), "int32", data=scratch, scope="global.scratch_with_address")
        S[0] = A[0]

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32")):
        scratch: T.handle("int32", "global.scratch_with_address") = T.call_extern("handle", "address_of_scratch")
        S = T.decl_buffer((64,), "int32", data=scratch, scope="global.scratch_with_address")
        S[0] = A[0]

    check(transform.LowerDeviceStorageAccessInfo(), before, expected, numbers=False)


def test_pointers_into_other_memory_are_addresses_of_elements():
    seen = []

    @register_global_func("test_accelerators.see")
    def see(first):
        seen.append(int(first[0]))

    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        A[5] = 42
        T.evaluate(T.call_packed("test_accelerators.see", T.tvm_access_ptr("int32", A.data, 5, 4, 1)))

    lowered = apply(transform.LowerDeviceStorageAccessInfo(), before)
    assert "tvm_access_ptr" not in str(lowered)
    for func in (before, lowered):
        interpret(func, np.zeros(16, "int32"))
    assert seen == [42, 42]


def test_memory_that_is_allocated_when_a_kernel_starts_is_kept():
    @T.prim_func
    def func():
        shared = T.allocate([64], "float32", "shared.dyn")
        S = T.decl_buffer((64,), data=shared, scope="shared.dyn")
        S[0] = T.float32(0)

    unchanged(transform.LowerDeviceStorageAccessInfo(), func)


def test_memories_that_nothing_describes_and_pointers_without_an_address_are_refused():
    @T.prim_func
    def unknown():
        scratch = T.allocate([64], "float32", "global.never_described")
        T.evaluate(T.call_extern("int32", "f", scratch))

    @T.prim_func
    def pointer():
        scratch = T.allocate([64], "float32", "global.scratch_without_address")
        T.evaluate(T.call_extern("int32", "f", T.tvm_access_ptr("float32", scratch, 0, 4, 1)))

    @T.prim_func
    def uneven():
        scratch = T.allocate([64], "float32x3", "global.scratch_without_address")
        T.evaluate(T.Call("int32", "tir.tvm_access_ptr", [T.type_annotation("float32x3"), scratch, 8, 4, 1]))

    with pytest.raises(NotRegistered, match=re.escape('no memory "global.never_described" is known; register')):
        apply(transform.LowerDeviceStorageAccessInfo(), unknown)
    with pytest.raises(InvalidValue, match="points into `scratch`, a memory without an address"):
        apply(transform.LowerDeviceStorageAccessInfo(), pointer)
    with pytest.raises(InvalidValue, match="names elements of 96 bits in a memory of units of 128 bits"):
        apply(transform.LowerDeviceStorageAccessInfo(), uneven)


# -- InferFragment --


def matrices(n_of_b=16, layout_of_b="row_major", fill=True):
    """A product of matrices in tensor cores."""

    @T.prim_func
    def func(P: T.handle):
        A = T.allocate([256], "float16", "wmma.matrix_a")
        B = T.allocate([256], "float16", "wmma.matrix_b")
        C = T.allocate([256], "float32", "wmma.accumulator")
        if fill:
            T.evaluate(T.tvm_fill_fragment(C, 16, 16, 16, 0, T.float32(0)))
        T.evaluate(T.tvm_load_matrix_sync(A, 16, 16, 16, 0, P, 16, "row_major"))
        T.evaluate(T.tvm_load_matrix_sync(B, 16, 16, 16, 0, P, 16, "col_major"))
        T.evaluate(T.tvm_load_matrix_sync(B, 16, n_of_b, 16, 0, P, 16, layout_of_b))
        T.evaluate(T.tvm_mma_sync(C, 0, A, 0, B, 0, C, 0))

    return func


def test_fragments_are_described_next_to_their_memory():
    after = apply(transform.InferFragment(), matrices(layout_of_b="col_major"))
    allocated = []
    post_order_visit(after.body, lambda node: allocated.append(node) if isinstance(node, Allocate) else None)
    text = str(after)
    for name, layout in (("A", "row_major"), ("B", "col_major"), ("C", "row_major")):
        assert f'T.attr({name}, "fragment_shape", "16, 16, 16")' in text
        assert f'T.attr({name}, "fragment_layout", "{layout}")' in text
    assert len(allocated) == 3


def test_fragments_that_calls_disagree_about_are_refused():
    with pytest.raises(WellFormedError, match=re.escape("the matrix `B` is one of (16, 16, 16) col_major in one call")):
        apply(transform.InferFragment(), matrices())
    with pytest.raises(WellFormedError, match=re.escape("and of (16, 8, 16) col_major in another")):
        apply(transform.InferFragment(), matrices(8, "col_major"))
    with pytest.raises(WellFormedError, match="the matrix `C` is part of a product, but neither loaded"):
        apply(transform.InferFragment(), matrices(layout_of_b="col_major", fill=False))


# -- TransformMmaBufferLayout --


def test_sums_of_tensor_cores_become_registers():
    @T.prim_func
    def before(D: T.Buffer((32, 16), "float32")):
        with T.block("root"):
            T.reads()
            T.writes(D[0:32, 0:16])
            C = T.alloc_buffer((32, 16), "float32", scope="m16n8k8.matrixC")
            for i, j in T.grid(32, 16):
                C[i, j] = T.float32(1)
                D[i, j] = C[i, j]

    @T.prim_func
    def expected(D: T.Buffer((32, 16), "float32")):
        with T.block("root"):
            T.reads()
            T.writes(D[0:32, 0:16])
            C = T.alloc_buffer((2, 2, 2, 2), "float32", scope="local")
            for i, j in T.grid(32, 16):
                C[i // 8 // 2, j // 8, i // 8 % 2, j % 2] = T.float32(1)
                D[i, j] = C[i // 8 // 2, j // 8, i // 8 % 2, j % 2]

    check(transform.TransformMmaBufferLayout(), before, expected)


def test_a_warp_holds_each_element_of_the_sums_once():
    """A thread's element at (row, column) of a block is what PTX says: group = lane // 4, row = group + 8 * (i // 2)."""
    held = {}
    for lane in range(32):
        for i in range(4):
            row, column = lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2
            assert (row // 8 // 2, column // 8, row // 8 % 2, column % 2) == (0, 0, i // 2, i % 2)
            held[row, column] = lane
    assert len(held) == 16 * 8


@pytest.mark.parametrize(
    ("scope", "shape", "registers"),
    [("matrixA", (64, 16), (2, 2, 4, 2)), ("matrixB", (8, 64), (1, 2, 1, 8)), ("matrixC", (16, 8), (1, 1, 2, 2))],
)
def test_a_thread_has_a_32nd_of_each_matrix(scope, shape, registers):
    @T.prim_func
    def before():
        with T.block("root"):
            M = T.alloc_buffer(shape, "float32", scope=f"m16n8k8.{scope}")
            T.evaluate(T.call_extern("int32", "f", M.data))

    after = apply(transform.TransformMmaBufferLayout(), before)
    [made] = after.body.block.alloc_buffers
    assert tuple(int(d) for d in made.shape) == registers
    assert np.prod(registers) * 32 == np.prod(shape)
    assert after.body.block.body.value.args[1] is made.data


def test_matrices_of_other_sizes_and_elements_of_operands_are_refused():
    @T.prim_func
    def odd():
        with T.block("root"):
            M = T.alloc_buffer((24, 8), "float32", scope="m16n8k8.matrixC")
            T.evaluate(T.call_extern("int32", "f", M.data))

    @T.prim_func
    def element():
        with T.block("root"):
            M = T.alloc_buffer((32, 8), "float32", scope="m16n8k8.matrixA")
            M[0, 0] = T.float32(0)

    with pytest.raises(InvalidValue, match=re.escape("has the shape (24, 8); expected multiples of 16 rows and 8")):
        apply(transform.TransformMmaBufferLayout(), odd)
    with pytest.raises(WellFormedError, match="only tensor intrinsics access elements of `M`"):
        apply(transform.TransformMmaBufferLayout(), element)
