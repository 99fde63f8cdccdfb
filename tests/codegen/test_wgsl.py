"""WGSL: its text, what it refuses, and run by a WebGPU device it equals NumPy."""

from __future__ import annotations

import re

import languages
import numpy as np
import pytest
from devices import needs_webgpu

import oneir
from oneir import relax
from oneir.runtime.error import CompileError, InvalidValue
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.intrin_rules.formula import ROUNDER

CASES = languages.PLAIN | languages.EXACT_FLOATS | languages.SHORT


def source(func, target="webgpu"):
    return oneir.build(func, Target(target, host="llvm")).inspect_source("wgsl")


@T.prim_func
def reverse(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 64), "float32")
    B = T.match_buffer(b, (n, 64), "float32")
    for bx in T.thread_binding(n, "blockIdx.x"):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for tx in T.thread_binding(64, "threadIdx.x"):
            with T.block("in"):
                i, j = T.axis.remap("SS", [bx, tx])
                S[j] = A[i, j]
        for tx in T.thread_binding(64, "threadIdx.x"):
            with T.block("out"):
                i, j = T.axis.remap("SS", [bx, tx])
                B[i, j] = S[63 - j] * T.float32(2)


def test_a_kernel_reads_as_one_would_write_it():
    text = source(reverse)
    assert (
        text[text.index("@group") :]
        == """\
@group(0) @binding(0) var<storage, read> reverse_kernel_A: array<f32>; // float32
@group(0) @binding(1) var<storage, read_write> reverse_kernel_B: array<f32>; // float32
struct reverse_kernel_numbers { A_at: i32, B_at: i32, n: i32, }
@group(0) @binding(2) var<uniform> reverse_kernel_number: reverse_kernel_numbers;
var<workgroup> reverse_kernel_S: array<f32, 64>;
@compute @workgroup_size(64, 1, 1)
fn reverse_kernel(@builtin(workgroup_id) blockIdx: vec3<u32>, @builtin(local_invocation_id) threadIdx: vec3<u32>) {
  let A_at = reverse_kernel_number.A_at;
  let B_at = reverse_kernel_number.B_at;
  let n = reverse_kernel_number.n;
  let blockIdx_x = i32(blockIdx.x);
  let threadIdx_x = i32(threadIdx.x);
  let cse_v1 = (blockIdx_x * 64) + threadIdx_x;
  reverse_kernel_S[threadIdx_x] = reverse_kernel_A[A_at + cse_v1];
  workgroupBarrier();
  reverse_kernel_B[B_at + cse_v1] = reverse_kernel_S[63 - threadIdx_x] * 2f;
}
"""
    )


def elementwise(dtype, value=None):
    @T.prim_func
    def f(A: T.Buffer((64,), dtype), B: T.Buffer((64,), dtype)):
        for i in T.thread_binding(64, "threadIdx.x"):
            with T.block("f"):
                j = T.axis.spatial(64, i)
                B[j] = A[63 - j]

    return f


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "float16", "bfloat16"])
def test_short_elements_lie_in_words_that_are_written_atomically(dtype):
    text = source(elementwise(dtype))
    assert re.search(r"var<storage, read> f_kernel_A: array<u32>; // \w+\n", text)
    assert re.search(r"var<storage, read_write> f_kernel_B: array<atomic<u32>>; // \w+\n", text)
    assert text.count("atomicAnd(") == text.count("atomicOr(") == 1 and "enable f16" not in text


def test_half_precision_in_memory_where_the_target_has_it():
    text = source(elementwise("float16"), "webgpu -supports_float16")
    assert text.startswith("enable f16;\n") and "array<f16>" in text and "atomic" not in text


def test_index_arithmetic_of_int64_is_done_in_int32():
    text = source(reverse)
    assert "i64" not in text


def test_names_are_those_of_the_program_unless_the_language_has_them():
    @T.prim_func
    def f(fn: T.Buffer((8,), "float32"), target: T.Buffer((8,), "float32")):
        for i in T.thread_binding(1, "threadIdx.x"):
            for let in range(8):
                fn[let] = target[let]

    text = source(f)
    assert "let fn_at = f_kernel_number.fn_at;" in text and "f_kernel_fn_1[fn_at + let_1]" in text


# -- refusals --


def thread_loop(extent, body):
    """A kernel of one loop, written as text since what differs is a statement."""
    from oneir.script import from_source

    return from_source(
        "from oneir.script import tir as T\n@T.prim_func\n"
        'def f(A: T.Buffer((64,), "float32"), I: T.Buffer((64,), "int32")):\n'
        f'    for i in T.thread_binding({extent}, "threadIdx.x"):\n        {body}\n'
    )


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_dtypes_of_64_bits_in_memory_are_refused_by_name(dtype):
    with pytest.raises(CompileError, match=rf"`[AB]` in the kernel `f_kernel` has the dtype {dtype}, which WebGPU"):
        source(elementwise(dtype))


@pytest.mark.parametrize(
    "extent, body, message",
    [
        (
            64,
            "A[i] = T.Cast('float32', T.Cast('float64', A[i]) * T.float64(0.1))",
            "has the dtype float64, which WebGPU",
        ),
        (
            64,
            "I[i] = T.Cast('int32', T.Cast('int64', I[i]) * T.Cast('int64', I[i]) // T.int64(7))",
            "needs 64 bits, and WebGPU's integers have 32; use int32",
        ),
        (64, "I[i] = T.Cast('int32', T.Cast('int64', I[i]) + T.int64(68719476736))", "68719476736 in the kernel"),
        (64, "A[i] = T.Cast('float32', T.Cast('int64', I[i]) * T.int64(3))", "needs 64 bits"),
        (512, "A[i % 64] = T.float32(0)", "has 512×1×1 threads; the target allows 256 (max_threads_per_block)"),
        (64, 'T.evaluate(T.tvm_storage_sync("warp"))', "WebGPU has no barrier of the scope 'warp'; expected 'shared'"),
        (
            64,
            "T.evaluate(T.call_extern('int32', 'f', A.access_ptr('r')))",
            "WebGPU has no functions of C; the kernel `f_kernel` calls `f`",
        ),
    ],
    ids=["float64", "quotient", "constant", "float of int64", "threads", "barrier", "function"],
)
def test_refusals(extent, body, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        source(thread_loop(extent, body))


def test_products_of_int64_whose_low_bits_suffice_are_not_refused():
    body = "I[i] = T.Cast('int32', T.Cast('int64', I[i]) * T.Cast('int64', I[i]) + T.int64(7))"
    assert "(f_kernel_I[" in source(thread_loop(64, body)).replace("i32(f", "(f")


def test_an_index_that_int32_cannot_hold_is_refused():
    @T.prim_func
    def f(A: T.Buffer((1 << 32,), "float32")):
        for b in T.thread_binding(T.int64(1 << 20), "blockIdx.x"):
            for i in T.thread_binding(T.int64(64), "threadIdx.x"):
                A[(b * T.int64(64) + i) * T.int64(64)] = T.float32(0)

    with pytest.raises(CompileError, match=r"the index .* in the kernel `f_kernel` needs 64 bits"):
        source(f)


def test_threads_that_are_known_at_the_launch_only_are_refused():
    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in T.thread_binding(n, "threadIdx.x"):
            A[i] = T.float32(1)

    with pytest.raises(CompileError, match="has n, 1, 1 threads, which must be constants for WebGPU"):
        source(f)


def test_more_shared_memory_than_the_target_has_is_refused():
    @T.prim_func
    def f(A: T.Buffer((8192,), "float32")):
        for b in T.thread_binding(1, "blockIdx.x"):
            S = T.alloc_buffer((8192,), "float32", scope="shared")
            for i in T.thread_binding(64, "threadIdx.x"):
                for j in range(128):
                    S[j * 64 + i] = A[j * 64 + i]
            for i in T.thread_binding(64, "threadIdx.x"):
                for j in range(128):
                    A[j * 64 + i] = S[8191 - j * 64 - i]

    with pytest.raises(CompileError, match=r"needs 32768 bytes of shared memory, in f_kernel_S; the target has 16384"):
        source(f)
    assert "array<f32, 8192>" in source(f, "webgpu -max_shared_memory_per_block=32768")


def test_more_than_eight_tensors_are_refused():
    mod = languages.graph(lambda *xs: relax.op.concat(list(xs), 0), *[languages.random(4, 4) for _ in range(8)])
    with pytest.raises(CompileError, match=r"has 9 tensors, .*; a WebGPU kernel has at most 8 \(storage buffers\)"):
        relax.build(mod, "webgpu").mod


@pytest.mark.parametrize("name", languages.LONG)
def test_graphs_of_int64_are_refused(name):
    with pytest.raises(CompileError, match="has the dtype int64, which WebGPU's memory does not have; use int32"):
        relax.build(languages.LONG[name].mod, "webgpu").mod


@needs_webgpu
def test_more_than_a_kernel_may_have_are_several_kernels():
    arrays = [languages.random(4, 5) + i for i in range(20)]
    mod = languages.graph(lambda *xs: relax.op.exp(sum(xs[1:], xs[0]) * relax.const(0.01)), *arrays)
    machine = relax.VirtualMachine(relax.build(mod, "webgpu"), oneir.webgpu())
    found = machine["main"](*(oneir.nd.array(x, oneir.webgpu()) for x in arrays)).numpy()
    np.testing.assert_allclose(found, np.exp(np.sum(arrays, 0) * 0.01), rtol=1e-5)


def test_unknown_formats_are_named():
    built = oneir.build(reverse, Target("webgpu", host="llvm"))
    with pytest.raises(InvalidValue, match='expected the format "wgsl" or "host", found \'spirv\''):
        built.inspect_source("spirv")


# -- execution --


@needs_webgpu
@pytest.mark.parametrize("name", CASES)
def test_programs(name):
    CASES[name].check(languages.run(CASES[name], "webgpu", oneir.webgpu()))


@needs_webgpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_precision_in_memory(dtype):
    case = languages.SHORT["half matmul" if dtype == "float16" else "float32 to float16"]
    case.check(languages.run(case, "webgpu -supports_float16", oneir.webgpu()))


@needs_webgpu
def test_every_pattern_of_half_precision_is_converted():
    bits = np.arange(1 << 16, dtype="uint16")
    half = bits.view("float16")
    to_float = languages.case(lambda a: relax.op.astype(a, "float32"), lambda a: a.astype("float32"), half)
    to_float.check(languages.run(to_float, "webgpu", oneir.webgpu()))
    values = half.astype("float32")
    with np.errstate(all="ignore"):
        between = np.nextafter(values, np.float32(0)) * np.float32(1.0001)
    between = between[np.abs(between) > 2.0**-120]  # WebGPU may take denormals of float32 for zeros
    to_half = languages.case(lambda a: relax.op.astype(a, "float16"), lambda a: a.astype("float16"), between)
    to_half.check(languages.run(to_half, "webgpu", oneir.webgpu()))


FUNCTIONS = {
    "exp": (np.exp, -20, 20),
    "log": (np.log, 0.01, 100),
    "sin": (np.sin, -1000, 1000),
    "cos": (np.cos, -1000, 1000),
    "tan": (np.tan, -1.5, 1.5),
    "tanh": (np.tanh, -10, 10),
    "sinh": (np.sinh, -5, 5),
    "asin": (np.arcsin, -1, 1),
    "atan": (np.arctan, -50, 50),
    "sqrt": (np.sqrt, 0, 100),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.01, 100),
}


@needs_webgpu
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_exact_as_those_of_processors(name):
    function, low, high = FUNCTIONS[name]
    x = languages.random(999, low=low, high=high)
    case = languages.case(getattr(relax.op, name), lambda x: function(x.astype("float64")).astype("float32"), x)
    found = languages.run(case, "webgpu", oneir.webgpu())
    np.testing.assert_allclose(found, case.expected, rtol=2e-6, atol=1e-6)


@needs_webgpu
def test_the_remainder_of_floats_is_exact():
    x = languages.random(500, low=-1e9, high=1e9)
    y = np.concatenate([languages.random(250), languages.random(240, low=-1e-3, high=1e-3), np.full(10, 3e-45)])
    y = y.astype("float32")
    case = languages.case(relax.op.mod, np.fmod, x, y)
    found = languages.run(case, "webgpu", oneir.webgpu())
    np.testing.assert_array_equal(found, case.expected)


@needs_webgpu
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32"])
def test_bits_are_counted_in_the_width_of_the_dtype(dtype):
    @T.prim_func
    def f(A: T.Buffer((64,), dtype), B: T.Buffer((64,), "int32"), C: T.Buffer((64,), dtype)):
        for i in T.thread_binding(64, "threadIdx.x"):
            with T.block("f"):
                j = T.axis.spatial(64, i)
                B[j] = T.clz(A[j])
                C[j] = T.popcount(A[j])

    x = np.arange(-32, 32).astype(dtype)
    bits = 8 * x.itemsize
    text = [np.binary_repr(int(v) % 2**bits, bits) for v in x]
    tensors = [oneir.nd.array(a, oneir.webgpu()) for a in (x, np.zeros(64, "int32"), np.zeros_like(x))]
    oneir.build(f, Target("webgpu", host="llvm"))["f"](*tensors)
    np.testing.assert_array_equal(tensors[1].numpy(), [bits if "1" not in t else t.index("1") for t in text])
    np.testing.assert_array_equal(tensors[2].numpy(), [t.count("1") for t in text])


def test_the_trick_that_rounds_is_an_operation_of_bits():
    text = relax.build(languages.PLAIN["softmax"].mod, "webgpu").inspect_source("wgsl")
    assert "0x4b400000" in text and f"- {ROUNDER:.9g}f" not in text
