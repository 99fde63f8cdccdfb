"""Tiles for tensor intrinsics: the loops that result, and that programs compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir.runtime.error import OneIRError
from oneir.script import tir as T
from oneir.tir import Schedule, TensorIntrin
from oneir.tir.schedule.transform import tile_with_tensor_intrin


@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 2), "float32", offset_factor=1)
    B = T.match_buffer(b, (2, 8), "float32", offset_factor=1)
    C = T.match_buffer(c, (4, 8), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:8], A[0:4, 0:2], B[0:2, 0:8])
        T.writes(C[0:4, 0:8])
        for i, j, k in T.grid(4, 8, 2):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


TensorIntrin.register("test_tile_product", product, product)


def matmul(m: int, n: int, k: int) -> Schedule:
    @T.prim_func
    def main(A: T.Buffer((m, k), "float32"), B: T.Buffer((k, n), "float32"), C: T.Buffer((m, n), "float32")):
        for r, i, j in T.grid(k, m, n):
            with T.block("C"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vr] * B[vr, vj]

    return Schedule(main)


def check(sch: Schedule, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((m, k), (k, n)))
    out = oneir.runtime.tensor(np.full((m, n), 7, "float32"))
    oneir.compile(sch.mod, "llvm")["main"](oneir.runtime.tensor(a), oneir.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


def extents(sch: Schedule) -> list[int]:
    return [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_block("C"))]


def test_the_tile_is_innermost_in_the_order_of_the_intrinsic():
    sch = matmul(12, 16, 6)
    loop = tile_with_tensor_intrin(sch, sch.get_block("C"), "test_tile_product")
    assert extents(sch) == [3, 3, 2, 4, 8, 2]
    assert sch.get(loop).same_as(sch.get(sch.get_loops(sch.get_block("C"))[3]))
    check(sch, 12, 16, 6)
    sch.decompose_reduction("C", sch.get_loops(sch.get_block("C"))[0])
    sch.tensorize(loop, "test_tile_product")
    check(sch, 12, 16, 6)


def test_padding_leaves_only_the_copy_into_the_result():
    sch = matmul(10, 13, 5)
    loop = tile_with_tensor_intrin(sch, sch.get_block("C"), "test_tile_product", allow_padding=True)
    assert loop is not None and extents(sch) == [3, 3, 2, 4, 8, 2]
    root = sch.get(sch.get_block("root"))
    assert [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))] == ["C", "C_pad"]
    assert [buffer.name for buffer in root.alloc_buffers] == ["C_pad"]
    check(sch, 10, 13, 5)


def test_what_does_not_match():
    sch = matmul(10, 13, 5)
    before = sch.mod
    assert tile_with_tensor_intrin(sch, sch.get_block("C"), "test_tile_product") is None
    assert sch.mod.same_as(before)
    with pytest.raises(OneIRError, match="test_tile_unknown"):
        tile_with_tensor_intrin(sch, sch.get_block("C"), "test_tile_unknown")
