"""InjectPTXLDG32: guarded loads into registers are one instruction; what is no such load stays as it is."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from pass_checks import apply, unchanged

from oneir import build, cuda, nd
from oneir.ir.structural import assert_structural_equal
from oneir.ir.transform import PassContext
from oneir.script import from_source
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, cuda_on_host
from oneir.tir.transform import InjectPTXLDG32


def threads(statement: str, dtype: str = "float32", scope: str = "local") -> Any:
    """Each thread runs a statement, which stores in memory of its own."""
    return from_source(f"""
@T.prim_func
def func(A: T.Buffer((16,), "{dtype}"), index: T.Buffer((32,), "int32")):
    tx = T.launch_thread("threadIdx.x", 32)
    data = T.allocate([32], "{dtype}", "{scope}")
    L = T.decl_buffer((32,), "{dtype}", data=data, scope="{scope}")
    {statement}
""")


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
def test_a_guarded_load_is_one_instruction(dtype: str):
    before = threads(f"L[tx] = T.if_then_else(index[tx] < 16, A[tx // 2], T.{dtype}(0))", dtype)
    instruction = f'T.ptx_ldg32("{dtype}", T.address_of(L[tx]), index[tx] < 16, T.address_of(A[tx // 2]))'
    assert_structural_equal(apply(InjectPTXLDG32(), before), threads(instruction, dtype))


OTHERS = {
    "no condition": "A[tx // 2]",
    "another value": "T.if_then_else(tx < 16, A[tx], T.float32(1))",
    "zero with a sign": "T.if_then_else(tx < 16, A[tx], T.float32(-0.0))",
    "arithmetic": "T.if_then_else(tx < 16, A[tx] + T.float32(1), T.float32(0))",
    "an index read under the condition": "T.if_then_else(tx < 16, A[index[tx]], T.float32(0))",
}


@pytest.mark.parametrize("value", OTHERS)
def test_other_values_are_stored(value: str):
    unchanged(InjectPTXLDG32(), threads(f"L[tx] = {OTHERS[value]}"))


@pytest.mark.parametrize(("dtype", "scope"), [("float16", "local"), ("float64", "local"), ("float32", "shared")])
def test_other_sizes_and_memories_are_stored(dtype: str, scope: str):
    unchanged(InjectPTXLDG32(), threads(f"L[tx] = T.if_then_else(tx < 16, A[tx], T.{dtype}(0))", dtype, scope))


def test_a_processor_loads_as_before():
    func = from_source("""
@T.prim_func
def func(A: T.Buffer((16,), "float32"), B: T.Buffer((32,), "float32")):
    L = T.alloc_buffer((1,), "float32", scope="local")
    for i in range(32):
        L[0] = T.if_then_else(i < 16, A[i], T.float32(0))
        B[i] = L[0]
""")
    unchanged(InjectPTXLDG32(), func)


def test_the_pass_can_be_switched_off():
    unchanged(InjectPTXLDG32(False), threads("L[tx] = T.if_then_else(tx < 16, A[tx], T.float32(0))"))


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_kernels_of_the_pipeline_load_so_where_the_context_says_it():
    """Every other element is one of A, and all are one more."""
    spread: Any = from_source("""
@T.prim_func
def spread(A: T.Buffer((16,), "float32"), B: T.Buffer((32,), "float32")):
    for tx in T.thread_binding(32, "threadIdx.x"):
        with T.block("all"):
            T.reads(A[0:16])
            T.writes(B[tx])
            L = T.alloc_buffer((1,), "float32", scope="local")
            L[0] = T.if_then_else(tx % 2 == 0, A[tx // 2], T.float32(0))
            B[tx] = L[0] + T.float32(1)
""")
    target = Target("cuda", host="llvm")
    assert "oneir_ldg32" not in build(spread, target).inspect_source("cuda")
    with PassContext(config={"tir.ptx_ldg32": True}):
        ex = build(spread, target)
        assert "ld.global.b32" in ex.inspect_source("cuda")
    a = np.random.default_rng(0).standard_normal(16).astype("float32")
    expected = np.ones(32, "float32")
    expected[::2] += a
    for order in ORDERS:
        with cuda_on_host(order):
            b = nd.array(np.zeros(32, "float32"), cuda())
            ex["spread"](nd.array(a, cuda()), b)
            np.testing.assert_array_equal(b.numpy(), expected)
