"""What the machine code of hot loops looks like: vector width, fused operations, nothing on the stack."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest
import torch

import oneir
from examples.matmul import tiled_matmul
from oneir import te
from oneir.script import tir as T

TARGETS = [
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3", "ymm", 12),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", "zmm", 24),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5", "zmm", 24),
]


def inner_loops(assembly: str) -> list[list[str]]:
    """The instructions of each innermost loop: from a label to the jump back to it."""
    loops: list[list[str]] = []
    body: list[str] = []
    label = ""
    for line in assembly.splitlines():
        start = re.match(r"(\.LBB\w+):", line)
        if start:
            label, body = start[1], []
            continue
        text = line.strip().split("#")[0].strip()
        if text and not text.startswith("."):
            body.append(text)
            if re.match(rf"j\w+\s+{re.escape(label)}$", text) and label:
                loops.append(body)
    return loops


@pytest.mark.parametrize(("target", "register", "products"), TARGETS)
def test_the_register_tile_stays_in_registers(target, register, products):
    assembly = oneir.build(tiled_matmul(768, target=target), target=target).inspect_source("asm")
    loop = max(inner_loops(assembly), key=lambda body: sum("vfmadd" in i for i in body))
    fused = [i for i in loop if i.startswith("vfmadd")]
    # The scheduler may unroll; the ratio of loads to products may not change, and nothing may be spilled.
    assert len(fused) % products == 0 and all(register in i for i in fused)
    assert not [i for i in loop if "(%rsp" in i or "(%rbp" in i], "spilled"
    assert sum(i.startswith("vbroadcastss") for i in loop) == len(fused) // products * 6
    assert not [i for i in loop if i.startswith(("vmulps", "vaddps"))], "not fused"


def test_elementwise_loops_use_the_widest_vectors():
    @T.prim_func
    def axpy(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32"), s: T.float32):
        T.func_attr({"tir.noalias": True})
        for i in range(4096):
            B[i] = B[i] + A[i] * s

    for cpu, register in (("znver3", "ymm"), ("skylake-avx512", "[yz]mm"), ("nehalem", "xmm")):
        target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
        loops = inner_loops(oneir.build(axpy, target=target).inspect_source("asm"))
        assert any(re.search(rf"ps\s.*%{register}", i) for body in loops for i in body), cpu


def test_without_noalias_no_pointer_claims_it():
    def build(**attrs):
        @T.prim_func
        def copy(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in range(64):
                B[i] = A[i]

        return oneir.build(copy.with_attrs(attrs)).inspect_source("ll-unoptimized")

    assert "ptr noalias %capture" not in build()
    assert "ptr noalias %capture" in build(**{"tir.noalias": True})


def test_vector_mathematics_calls_no_library():
    @T.prim_func
    def smooth(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in T.vectorized(64):
            B[i] = T.tanh(A[i]) + T.exp(A[i]) * T.erf(A[i])

    assembly = oneir.build(smooth).inspect_source("asm")
    assert not re.search(r"call\w*\s+(tanh|exp|erf)", assembly)


def test_memory_is_given_back_when_a_call_fails():
    @T.prim_func
    def leaky(A: T.Buffer((300, 300), "float32")):
        big = T.alloc_buffer((300, 300), "float32")
        for i, j in T.grid(300, 300):
            big[i, j] = A[j, i]
        T.evaluate(T.call_packed("test.codegen.fails", big[0, 0]))
        for i, j in T.grid(300, 300):
            A[i, j] = big[i, j]

    text = oneir.build(leaky).inspect_source("ll-unoptimized")
    failing = text.split("@oneir_call_packed(ptr @")[1].split("fine")[1]
    assert text.count("call void @oneir_free_workspace") >= 2 and "oneir_free_workspace" in failing.split("ret i32")[0]


def test_a_symbol_is_called_with_the_packed_convention():
    @T.prim_func
    def caller(A: T.Buffer((4,), "float32")):
        T.evaluate(T.call_cpacked("somebodys_function", A, 3))

    text = oneir.build(caller).inspect_source("ll-unoptimized")
    assert "call i32 @somebodys_function(ptr null, ptr" in text


def test_loops_of_float_to_integer_casts_are_vectorized():
    @T.prim_func
    def cast(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "int32")):
        T.func_attr({"tir.noalias": True})
        for i in range(4096):
            B[i] = T.Cast("int32", A[i])

    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver3"
    loops = inner_loops(oneir.build(cast, target=target).inspect_source("asm"))
    assert any(re.match(r"vcvttps2dq\s.*%ymm", i) for body in loops for i in body)


def test_roots_of_short_floats_are_vectors_and_rounded_once():
    def build(target):
        a = te.placeholder((1 << 16,), "float16", "A")
        func = te.create_prim_func([a, te.compute(a.shape, lambda i: te.sqrt(a[i]), name="B")])
        return oneir.build(func.with_attr("global_symbol", "main"), target)

    text = build("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3").inspect_source("asm")
    assert re.search(r"vsqrtps\s+.*%ymm", text) and not re.search(r"vsqrts[sh]\s", text)
    every = np.arange(1 << 16, dtype="uint16").view("float16")
    found = oneir.runtime.empty(every.shape, "float16")
    build("llvm")["main"](oneir.runtime.tensor(every), found)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(every.astype("float64")).astype("float16")
    np.testing.assert_array_equal(found.numpy(), expected)


def test_loops_that_come_back_to_an_element_lose_no_update():
    """LLVM's vectors of such loops keep one of several updates; they are right where each iteration is by itself."""

    @T.prim_func
    def conv(
        A: T.Buffer((6, 5, 2), "float32"), W: T.Buffer((3, 2, 2, 4), "float32"), C: T.Buffer((4, 4, 4), "float32")
    ):
        S = T.alloc_buffer((4, 4, 4), "float32")
        for x, i, o, k in T.grid(2, 4, 4, 24):
            with T.block("S"):
                vi, vj, vo = T.axis.spatial(4, i), T.axis.spatial(4, k % 4), T.axis.spatial(4, o)
                vk, vx, vc = T.axis.reduce(3, k // 8), T.axis.reduce(2, x), T.axis.reduce(2, k % 8 // 4)
                with T.init():
                    S[vi, vj, vo] = T.float32(0)
                S[vi, vj, vo] = S[vi, vj, vo] + A[vi + vk, vj + vx, vc] * W[vk, vx, vc, vo]
        for i, j, o in T.grid(4, 4, 4):
            with T.block("C"):
                vi, vj, vo = T.axis.remap("SSS", [i, j, o])
                C[vi, vj, vo] = S[vi, vj, vo]

    a = np.arange(60, dtype="float32").reshape(6, 5, 2)
    w = np.arange(48, dtype="float32").reshape(3, 2, 2, 4)
    c = np.zeros((4, 4, 4), "float32")
    oneir.build(conv, target="llvm")["conv"](a, w, c)
    windows = np.lib.stride_tricks.sliding_window_view(a, (3, 2), axis=(0, 1))
    np.testing.assert_array_equal(c, np.einsum("ijckx,kxco->ijo", windows, w))


@pytest.mark.parametrize("count", [3, 60])
def test_checks_of_arguments_are_not_optimized_and_hold(capfd, count):
    tensors = [te.placeholder((2,), "float32", name=f"a{i}") for i in range(count)]
    total = te.compute((2,), lambda i: sum((t[i] for t in tensors[1:]), tensors[0][i]))
    built = oneir.build(te.create_prim_func([*tensors, total]))
    unoptimized = [line for line in built.inspect_source("ll-unoptimized").splitlines() if " optnone " in line]
    assert [line.split("@")[1].split("(")[0] for line in unoptimized] == ["oneir_check_tensor", "__oneir_main"]
    assert capfd.readouterr().err == ""
    arrays = [np.array([i, 1], "float32") for i in range(count)]
    result = np.zeros(2, "float32")
    built["main"](*arrays, result)
    assert result.tolist() == [count * (count - 1) / 2, count]
    with pytest.raises(ValueError, match=rf"a{count - 1}\b"):
        built["main"](*arrays[:-1], np.zeros(3, "float32"), result)


def test_the_reduction_of_huge_arguments_is_behind_a_branch_of_vectors():
    @T.prim_func
    def sine(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(8):
            for v in T.vectorized(8):
                B[i * 8 + v] = T.sin(A[i * 8 + v])

    text = oneir.build(sine, target="llvm -mtriple=x86_64-linux-gnu -mcpu=znver3").inspect_source("ll")
    blocks = re.split(r"\n(?=[\w.]+:)", text)
    (loop,) = [block for block in blocks if "load <8 x float>" in block]
    (rare,) = [block for block in blocks if "mul <8 x i64>" in block]
    assert "x i64>" not in loop
    label = rare.split(":")[0]
    assert re.search(rf"br i1 %\w+, label %{label}, label", loop)


@T.prim_func
def quarters(A: T.Buffer((64,), "float32"), B: T.Buffer((256,), "float32")):
    """For each vector of A and each i, the elements i of its four quarters, four times each."""
    T.func_attr({"tir.noalias": True})
    for v, i in T.grid(4, 4):
        for lane in T.vectorized(16):
            B[v * 64 + i * 16 + lane] = A[v * 16 + lane // 4 * 4 + i]


@pytest.mark.parametrize("cpu", ["skylake-avx512", "haswell"])
def test_loads_within_one_vector_are_permuted(cpu):
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
    assembly = oneir.build(quarters, target=target).inspect_source("asm")
    # Of 16 elements, an AVX2 vector has 8.
    assert ("{z}" in assembly) == (cpu == "skylake-avx512")


def test_permuted_loads_read_nothing_past_the_last_element():
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = np.frombuffer(memory, "uint8").ctypes.data
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
    try:
        values = torch.frombuffer(memory, dtype=torch.float32, count=64, offset=page - 256)
        values.copy_(torch.arange(64))
        out = oneir.nd.array(np.zeros(256, "float32"))
        oneir.build(quarters, target="llvm")["quarters"](oneir.runtime.from_dlpack(values), out)
        expected = np.arange(64).reshape(4, 4, 4).transpose(0, 2, 1).repeat(4, axis=-1)
        np.testing.assert_array_equal(out.numpy(), expected.reshape(-1))
    finally:
        libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), mmap.PROT_READ | mmap.PROT_WRITE)
