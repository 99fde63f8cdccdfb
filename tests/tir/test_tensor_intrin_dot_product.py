"""Dot products in one instruction: on processors that have it, they compute what their descriptions say."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import te
from oneir.ir import IRModule
from oneir.runtime.error import ScheduleError
from oneir.target import Target, codegen
from oneir.testing import interpret
from oneir.tir import Schedule, TensorIntrin
from oneir.tir.tensor_intrin.arm_cpu import ARM_DOT_4x4_i8_NEON_INTRIN, ARM_DOT_4x4_i8_SDOT_INTRIN
from oneir.tir.tensor_intrin.dot_product_common import DP4A_U8S8S32_INTRIN
from oneir.tir.tensor_intrin.hexagon import VDMPY_i16i16i32_INTRIN
from oneir.tir.tensor_intrin.x86 import AVX512_DOT_16x4_INTRIN, VNNI_DOT_16x4_INTRIN

HERE = set(codegen.llvm_get_cpu_features(Target("llvm")))
NEEDS = {VNNI_DOT_16x4_INTRIN: "avx512vnni", AVX512_DOT_16x4_INTRIN: "avx512bw"}


def matmul(dtypes, m=3, n=32, k=8):
    x, w = te.placeholder((m, k), dtypes[0], name="X"), te.placeholder((n, k), dtypes[1], name="W")
    r = te.reduce_axis((0, k), name="k")
    product = te.compute((m, n), lambda i, j: te.sum(x[i, r].astype("int32") * w[j, r].astype("int32"), r), name="C")
    return te.create_prim_func([x, w, product])


def tensorized(func, lanes, k, intrinsic):
    sch = Schedule(func)
    block = sch.get_block("C")
    sch.transform_layout(block, "W", lambda i, j: [i // lanes, j // k, i % lanes, j % k])
    _, j, r = sch.get_loops(block)
    _, inner = sch.split(j, [None, lanes])
    outer, each = sch.split(r, [None, k])
    sch.reorder(outer, inner, each)
    sch.decompose_reduction(block, outer)
    sch.tensorize(inner, intrinsic)
    return sch.mod["main"]


@pytest.mark.parametrize("intrinsic", NEEDS)
def test_a_matrix_product_on_this_processor(intrinsic):
    if NEEDS[intrinsic] not in HERE:
        pytest.skip(f"this processor has no {NEEDS[intrinsic]}")
    rng = np.random.default_rng(0)
    # Below half of their range, pairs of products do not saturate at 16 bits.
    x, w = rng.integers(0, 127, (3, 8)).astype("uint8"), rng.integers(-128, 128, (32, 8)).astype("int8")
    func = tensorized(matmul(("uint8", "int8")), 16, 4, intrinsic)
    packed = np.ascontiguousarray(w.reshape(2, 16, 2, 4).transpose(0, 2, 1, 3))
    out = oneir.nd.array(np.zeros((3, 32), "int32"))
    program = oneir.build(IRModule({"main": func.with_attr("global_symbol", "main")}), Target("llvm"))
    program["main"](oneir.nd.array(x), oneir.nd.array(packed), out)
    np.testing.assert_array_equal(out.numpy(), x.astype("int32") @ w.astype("int32").T)


@pytest.mark.parametrize("intrinsic", [ARM_DOT_4x4_i8_SDOT_INTRIN, ARM_DOT_4x4_i8_NEON_INTRIN])
def test_code_for_arm_has_the_instruction(intrinsic):
    func = tensorized(matmul(("int8", "int8")), 4, 4, intrinsic).with_attr("global_symbol", "main")
    program = oneir.build(IRModule({"main": func}), Target("llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod"))
    assert ("sdot" if intrinsic == ARM_DOT_4x4_i8_SDOT_INTRIN else "saddlp") in program.get_source("asm")


@pytest.mark.parametrize(("intrinsic", "lanes", "k"), [(DP4A_U8S8S32_INTRIN, 1, 4), (VDMPY_i16i16i32_INTRIN, 32, 2)])
def test_descriptions_are_dot_products(intrinsic, lanes, k):
    described = TensorIntrin.get(intrinsic).desc
    a_dtype, b_dtype = (described.buffer_map[p].dtype.to_numpy() for p in described.params[:2])
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 100, (k,)).astype(a_dtype), rng.integers(0, 100, (lanes, k)).astype(b_dtype)
    c = np.arange(lanes, dtype="int32")
    expected = c + b.astype("int32") @ a.astype("int32")
    interpret(described, a, b if lanes > 1 else b[0], c)
    np.testing.assert_array_equal(c, expected)


def test_other_dtypes_are_refused():
    with pytest.raises(ScheduleError, match="tensorize"):
        tensorized(matmul(("int8", "int8")), 16, 4, VNNI_DOT_16x4_INTRIN)
