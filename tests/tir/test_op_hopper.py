"""Intrinsics of sm_90: a tile lies in shared memory as the documentation of PTX says; what there is not is refused."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from devices import needs_compiler

import oneir
from oneir.ir.structural import structural_equal
from oneir.runtime.error import CompileError, DeviceError
from oneir.runtime.tensor_map import TensorMap
from oneir.script import from_source
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import interpret
from oneir.testing.cuda_host import CudaOnHost, cuda_on_host

TARGET = Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm")


@T.prim_func
def tile(A: T.Buffer((3, 40, 72), "float16"), B: T.Buffer((64, 64), "uint16"), x: T.int32, y: T.int32, z: T.int32):
    T.func_attr({"global_symbol": "tile"})
    barriers = T.alloc_buffer((1,), "uint64", scope="shared")
    shared = T.alloc_buffer((4096,), "uint16", scope="shared.dyn")
    A_map: T.handle("uint64", "grid_constant") = T.cuda_tensor_map(A.data, 2, 72, 40, 3, 144, 5760, 64, 64, 1)
    for _ in T.thread_binding(1, "blockIdx.x"):
        for thread in T.thread_binding(64, "threadIdx.x"):
            if thread == 0:
                T.ptx_mbarrier_init(barriers.data, 0, 1)
                T.ptx_fence_proxy_async()
                T.ptx_mbarrier_arrive_expect_tx(barriers.data, 0, 8192)
                T.ptx_cp_async_bulk_tensor(shared.data, 0, A_map, barriers.data, 0, x, y, z)
            T.tvm_storage_sync("shared")
            T.ptx_mbarrier_wait(barriers.data, 0, 0)
            for column in range(64):
                B[thread, column] = shared[thread * 64 + column]


def tensor():
    return np.random.default_rng(0).standard_normal((3, 40, 72)).astype("float16")


def expected(x, y, z):
    """The tile at a place, in which piece p of 8 elements of row r lies where p ^ (r % 8) would."""
    whole = np.zeros((5, 200, 300), "float16")
    whole[1:4, 70:110, 70:142] = tensor()
    rows = whole[z + 1, y + 70 : y + 134, x + 70 : x + 134].view("uint16")
    found = np.empty_like(rows)
    for r in range(64):
        for p in range(8):
            found[r, 8 * (p ^ r % 8) :][:8] = rows[r, 8 * p :][:8]
    return found


@needs_compiler
@pytest.mark.parametrize("place", [(0, 0, 0), (64, 32, 2), (8, 5, 1), (-8, -60, 1), (0, 0, 3)])
def test_a_tile_is_permuted_and_zero_beyond_the_end(place):
    ex = oneir.build(tile, TARGET)
    with cuda_on_host("backward"):
        dev = oneir.cuda()
        b = oneir.nd.array(np.full((64, 64), 7, "uint16"), dev)
        ex["tile"](oneir.nd.array(tensor(), dev), b, *place)
        np.testing.assert_array_equal(b.numpy(), expected(*place))


@needs_compiler
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (r"oneir_copy_tile\(shared,", "oneir_copy_tile(shared + 8,", "does not go to a multiple of 128 bytes"),
        (r"barriers, x,", "barriers, x + 7,", "a tile does not begin at 16 bytes of a row"),
        (r"oneir_mbarrier_init\(barriers, 1\)", "oneir_mbarrier_init(barriers, 0)", "a barrier is made for 0 arrivals"),
        (r"oneir_mbarrier_wait\(barriers, 0\)", "oneir_mbarrier_wait(barriers, 1)", "a tile is still being copied"),
        (r", 8192\)", ", 4096)", "wait forever: thread"),
    ],
)
def test_misuse_is_reported(before, after, message):
    text = oneir.build(tile, TARGET).inspect_source("cuda")
    kernel = text.index('extern "C"')
    broken, count = re.subn(before, after, text[kernel:])
    assert count == 1
    a, b = tensor(), np.zeros((64, 64), "uint16")
    described = TensorMap(a.ctypes.data, 2, (72, 40, 3), (144, 5760), (64, 64, 1))
    with pytest.raises(DeviceError, match=message):
        CudaOnHost(text[:kernel] + broken).launch("tile_kernel", [1], [64], [described, b, 0, 0, 0])


def test_scripts_have_them():
    assert structural_equal(from_source(tile.script()), tile)


@pytest.mark.parametrize("kind", ["opencl", "metal"])
def test_other_languages_have_no_tiles_of_tensors(kind):
    with pytest.raises(CompileError, match="has no copies of tiles of tensors"):
        oneir.build(tile, Target(kind, host="llvm"))


# -- products --


def products(columns, dtype, out, across):
    """What one instruction multiplies: as a kernel that stores what each thread holds, and, of every tenth, in loops."""
    size = oneir.DataType(dtype).itemsize
    length, held = 32 // size, columns // 2
    a_shape, b_shape = ((length, 64), (length, columns)) if across else ((64, length), (columns, length))
    step, panels = a_shape[0] * 128, -(-columns // 64) if across else 1
    announced = step + panels * b_shape[0] * 128

    def described(data, shape):
        rows, row = shape
        return T.cuda_tensor_map(data, size, row, rows, 1, row * size, rows * row * size, 128 // size, rows, 1)

    def factor(buffer, i, k):
        return T.Cast(out, buffer[k, i] if across else buffer[i, k])

    @T.prim_func
    def kernel(A: T.Buffer(a_shape, dtype), B: T.Buffer(b_shape, dtype), C: T.Buffer((128, held), out)):
        T.func_attr({"global_symbol": "product"})
        barriers = T.alloc_buffer((1,), "uint64", scope="shared")
        shared = T.alloc_buffer((49152,), "uint8", scope="shared.dyn")
        sums = T.alloc_buffer((held,), out, scope="local")
        A_map: T.handle("uint64", "grid_constant") = described(A.data, a_shape)
        B_map: T.handle("uint64", "grid_constant") = described(B.data, b_shape)
        for _ in T.thread_binding(1, "blockIdx.x"):
            for thread in T.thread_binding(128, "threadIdx.x"):
                if thread == 0:
                    T.ptx_mbarrier_init(barriers.data, 0, 1)
                    T.ptx_fence_proxy_async()
                    T.ptx_mbarrier_arrive_expect_tx(barriers.data, 0, announced)
                    T.ptx_cp_async_bulk_tensor(shared.data, 0, A_map, barriers.data, 0, 0, 0, 0)
                    for p in T.unroll(panels):
                        T.ptx_cp_async_bulk_tensor(shared.data, 8192 + p * step, B_map, barriers.data, 0, p * 64, 0, 0)
                T.tvm_storage_sync("shared")
                T.ptx_mbarrier_wait(barriers.data, 0, 0)
                T.ptx_wgmma_fence()
                kind = T.meta_var((f"m64n{columns}k{length}", dtype, out, across, across))
                T.ptx_wgmma(
                    kind[0], kind[1], kind[2], kind[3], kind[4], sums.data, 0,
                    shared.data, 0, step, shared.data, 8192, step, False,
                )  # fmt: skip
                T.ptx_wgmma_commit_group()
                T.ptx_wgmma_wait_group(0, sums.data, 0, held)
                for e in T.unroll(held):
                    C[thread, e] = sums[e]

    @T.prim_func
    def loops(A: T.Buffer(a_shape, dtype), B: T.Buffer(b_shape, dtype), C: T.Buffer((13, held), out)):
        for t, e, k in T.grid(13, held, length):
            with T.block("C"):
                vt, ve, vk = T.axis.remap("SSR", [t, e, k])
                with T.init():
                    C[vt, ve] = T.Cast(out, 0)
                thread = T.meta_var(vt * 10)
                i = T.meta_var(thread // 32 * 16 + ve % 4 // 2 * 8 + thread % 32 // 4)
                j = T.meta_var(ve // 4 * 8 + thread % 4 * 2 + ve % 2)
                C[vt, ve] = C[vt, ve] + factor(A, i, vk) * factor(B, j, vk)

    return kernel, loops, (a_shape, b_shape)


@needs_compiler
@pytest.mark.parametrize(
    ("columns", "dtype", "out", "across"),
    [
        (16, "float16", "float32", False),
        (96, "bfloat16", "float32", True),
        (32, "int8", "int32", False),
    ],
)
def test_a_warpgroup_does_what_plain_loops_say(columns, dtype, out, across):
    kernel, loops, shapes = products(columns, dtype, out, across)
    rng = np.random.default_rng(0)
    stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    a, b = (rng.integers(-9, 10, shape).astype(stored) for shape in shapes)
    expected, found = np.zeros((13, columns // 2), out), np.full((128, columns // 2), 7, out)
    interpret(loops, a, b, expected, outputs=[2])
    ex = oneir.build(kernel, TARGET)
    with cuda_on_host("shuffled"):
        dev = oneir.cuda()
        c = oneir.nd.array(found, dev)
        ex["product"](oneir.nd.array(a, dev), oneir.nd.array(b, dev), c)
        np.testing.assert_array_equal(c.numpy()[::10], expected)


@pytest.mark.parametrize(
    ("shape", "dtype", "out"),
    [
        ("m64n12k16", "float16", "float32"),
        ("m64n264k16", "float16", "float32"),
        ("m64n64k16", "float32", "float32"),
        ("m64n64k16", "float16", "float16"),
        ("m64n64k16", "int8", "int32"),
    ],
)
def test_products_that_there_are_not(shape, dtype, out):
    @T.prim_func
    def f(B: T.Buffer((1,), "float32")):
        sums = T.alloc_buffer((32,), "float32", scope="local")
        shared = T.alloc_buffer((4096,), "uint8", scope="shared.dyn")
        for _ in T.thread_binding(1, "blockIdx.x"):
            for _t in T.thread_binding(128, "threadIdx.x"):
                T.ptx_wgmma(shape, dtype, out, False, False, sums.data, 0, shared.data, 0, 16, shared.data, 0, 16, True)
                B[0] = sums[0]

    message = f"expected a product m64nNk16 .* found {shape} of {dtype} to {out}"
    with pytest.raises(CompileError, match=message):
        oneir.build(f, TARGET)
