"""SPIR-V for Vulkan: its text, what it refuses, valid by its own tools, and run by a Vulkan device it equals NumPy."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import languages
import numpy as np
import pytest
from devices import needs_spirv_tools, needs_vulkan

import oneir
from oneir import relax
from oneir.runtime.error import CompileError, InternalError, InvalidValue
from oneir.runtime.spirv import assemble
from oneir.script import from_source
from oneir.script import tir as T
from oneir.target import Target

CASES = {
    **languages.PLAIN,
    **languages.EXACT_FLOATS,
    **languages.SHORT,
    **languages.LONG,
    "float64 to float32": languages.DOUBLE["float64 to float32"],
}


def source(func, target="vulkan"):
    return oneir.build(func, Target(target, host="llvm")).inspect_source("spirv")


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
    assert text.startswith(
        """\
; reverse_kernel: 64×1×1 threads, 256 bytes of shared memory
OpCapability Shader
OpCapability PhysicalStorageBufferAddresses
OpCapability SignedZeroInfNanPreserve
OpCapability Int64
%glsl = OpExtInstImport "GLSL.std.450"
OpMemoryModel PhysicalStorageBuffer64 GLSL450
OpEntryPoint GLCompute %reverse_kernel "reverse_kernel" \
%reverse_kernel_arguments %WorkgroupId %LocalInvocationId %reverse_kernel_S
OpExecutionMode %reverse_kernel LocalSize 64 1 1
OpExecutionMode %reverse_kernel SignedZeroInfNanPreserve 32
"""
    )
    names: dict[str, str] = {}
    body = text[text.index("%t_4 = ") :]
    body = re.sub(r"%t(_\d+)?\b", lambda found: names.setdefault(found[0], f"%{len(names)}"), body)
    assert (
        body
        == """\
%0 = OpSConvert %ulong %1
  %2 = OpIMul %ulong %0 %ulong_64
  %3 = OpSConvert %ulong %4
  %5 = OpIAdd %ulong %2 %3
  %6 = OpAccessChain %PhysicalStorageBuffer_float %7 %uint_0 %5
  %8 = OpLoad %float %6 Aligned 4
  %9 = OpAccessChain %Workgroup_float %reverse_kernel_S %4
  OpStore %9 %8
  OpControlBarrier %uint_2 %uint_2 %uint_264
  %10 = OpISub %uint %uint_63 %4
  %11 = OpAccessChain %Workgroup_float %reverse_kernel_S %10
  %12 = OpLoad %float %11
  %13 = OpFMul %float %12 %float_40000000
  %14 = OpAccessChain %PhysicalStorageBuffer_float %15 %uint_0 %5
  OpStore %14 %13 Aligned 4
  OpReturn
OpFunctionEnd
"""
    )


def elementwise(dtype):
    @T.prim_func
    def f(A: T.Buffer((64,), dtype), B: T.Buffer((64,), dtype)):
        for i in T.thread_binding(64, "threadIdx.x"):
            with T.block("f"):
                j = T.axis.spatial(64, i)
                B[j] = A[63 - j]

    return f


@pytest.mark.parametrize(
    "dtype, capabilities",
    [
        ("float32", []),
        ("bool", ["StorageBuffer8BitAccess", "Int8"]),
        ("int8", ["StorageBuffer8BitAccess", "Int8"]),
        ("float16", ["StorageBuffer16BitAccess", "Int16"]),
        ("bfloat16", ["StorageBuffer16BitAccess", "Int16"]),
        ("int64", ["Int64"]),
        ("float64", ["Float64"]),
    ],
)
def test_a_program_declares_what_it_needs_of_a_device(dtype, capabilities):
    found = re.findall(r"OpCapability (\w+)", source(elementwise(dtype)))
    assert found[3:] == capabilities


def test_indices_that_are_known_to_fit_need_no_int64():
    mod = languages.graph(lambda a: relax.op.exp(a), languages.random(40, 50))
    assert "Int64" not in relax.build(mod, "vulkan").inspect_source("spirv")


def test_a_value_under_a_condition_is_loaded_under_that_condition():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((70,), "float32")):
        for i in T.thread_binding(70, "threadIdx.x"):
            B[i] = T.if_then_else(i < 64, A[i], T.float32(7))

    text = source(f)
    load = text.index("OpLoad %float")
    assert text.rindex("OpSelectionMerge", 0, load) > 0 and "OpPhi %float" in text


# -- assembly --


def valid(text: str, folder: Path) -> None:
    """The published assembler makes the same words of a text, and the published validator takes them."""
    words = assemble(text)
    (folder / "k.spvasm").write_text(text, encoding="utf-8")
    (folder / "k.spv").write_bytes(words)
    assembler = ["spirv-as", "--target-env", "spv1.5", str(folder / "k.spvasm"), "-o", str(folder / "other.spv")]
    for command in (assembler, ["spirv-val", "--target-env", "vulkan1.2", str(folder / "k.spv")]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stdout + done.stderr
    other = (folder / "other.spv").read_bytes()
    assert other[:8] + other[12:] == words[:8] + words[12:]  # but for the name of the program that wrote it


@needs_spirv_tools
@pytest.mark.parametrize("name", CASES)
def test_modules_are_valid_and_their_words_those_of_the_published_assembler(name, tmp_path):
    valid(relax.build(CASES[name].mod, "vulkan").inspect_source("spirv"), tmp_path)


@needs_spirv_tools
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 0.1, -3e-45, 1e30, float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_are_exact(value, dtype, tmp_path):
    @T.prim_func
    def f(A: T.Buffer((1,), dtype)):
        for i in T.thread_binding(1, "threadIdx.x"):
            A[i] = T.Cast(dtype, T.float64(value)) if dtype == "float64" else T.float32(value)

    text = source(f)
    valid(text, tmp_path)
    kind = np.dtype(dtype)
    bits = np.array(value, kind).view(f"uint{8 * kind.itemsize}").tobytes()
    assert bits in assemble(text)


def test_the_assembler_refuses_what_it_does_not_know():
    with pytest.raises(InternalError, match="SPIR-V: the assembler knows no OpKill: OpKill"):
        assemble("OpKill")
    with pytest.raises(InternalError, match="SPIR-V: the assembler knows no 'Kernel'"):
        assemble("OpCapability Kernel")


# -- refusals --


def thread_loop(extent, body):
    """A kernel of one loop, written as text since what differs is a statement."""
    return from_source(
        "from oneir.script import tir as T\n@T.prim_func\n"
        'def f(A: T.Buffer((64,), "float32"), I: T.Buffer((64,), "int32")):\n'
        f'    for i in T.thread_binding({extent}, "threadIdx.x"):\n        {body}\n'
    )


@pytest.mark.parametrize(
    "extent, body, message",
    [
        (512, "A[i % 64] = T.float32(0)", "has 512×1×1 threads; the target allows 256 (max_threads_per_block)"),
        (64, 'T.evaluate(T.tvm_storage_sync("warp"))', "Vulkan has no barrier of the scope 'warp'; expected 'shared'"),
        (
            64,
            "T.evaluate(T.call_extern('int32', 'f', A.access_ptr('r')))",
            "Vulkan has no functions of C; the kernel `f_kernel` calls `f`",
        ),
        (
            64,
            "A[i] = T.Cast('float32', T.exp(T.Cast('float64', A[i])))",
            "the operator tir.exp of float64 cannot be written as SPIR-V",
        ),
    ],
    ids=["threads", "barrier", "function", "float64"],
)
def test_refusals(extent, body, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        source(thread_loop(extent, body))


def test_threads_that_are_known_at_the_launch_only_are_refused():
    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in T.thread_binding(n, "threadIdx.x"):
            A[i] = T.float32(1)

    with pytest.raises(CompileError, match="has n×1×1 threads, which must be constants for Vulkan"):
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

    with pytest.raises(CompileError, match=r"needs 32768 bytes of shared memory, in S; the target has 16384"):
        source(f)
    assert "32768 bytes of shared memory" in source(f, "vulkan -max_shared_memory_per_block=32768")


def test_unknown_formats_are_named():
    built = oneir.build(reverse, Target("vulkan", host="llvm"))
    with pytest.raises(InvalidValue, match='expected the format "spirv" or "host", found \'wgsl\''):
        built.inspect_source("wgsl")


# -- execution --


@needs_vulkan
@pytest.mark.parametrize("name", CASES)
def test_programs(name):
    CASES[name].check(languages.run(CASES[name], "vulkan", oneir.vulkan()))


@needs_vulkan
def test_every_pattern_of_half_precision_is_converted():
    bits = np.arange(1 << 16, dtype="uint16")
    half = bits.view("float16")
    to_float = languages.case(lambda a: relax.op.astype(a, "float32"), lambda a: a.astype("float32"), half)
    to_float.check(languages.run(to_float, "vulkan", oneir.vulkan()))
    values = half.astype("float32")
    with np.errstate(all="ignore"):
        between = np.nextafter(values, np.float32(0)) * np.float32(1.0001)
    between = np.concatenate([between, values])
    to_half = languages.case(lambda a: relax.op.astype(a, "float16"), lambda a: a.astype("float16"), between)
    to_half.check(languages.run(to_half, "vulkan", oneir.vulkan()))


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


@needs_vulkan
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_exact_as_those_of_processors(name):
    function, low, high = FUNCTIONS[name]
    x = languages.random(999, low=low, high=high)
    case = languages.case(getattr(relax.op, name), lambda x: function(x.astype("float64")).astype("float32"), x)
    found = languages.run(case, "vulkan", oneir.vulkan())
    np.testing.assert_allclose(found, case.expected, rtol=1e-6, atol=1e-6)


@needs_vulkan
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_remainder_of_floats_is_exact(dtype):
    x = languages.random(500, dtype=dtype, low=-1e9, high=1e9)
    y = np.concatenate([languages.random(250), languages.random(240, low=-1e-3, high=1e-3), np.full(10, 3e-45)])
    edges = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 7.0, 1e30], dtype)
    x, y = np.concatenate([x, np.repeat(edges, 9)]), np.concatenate([y.astype(dtype), np.tile(edges, 9)])
    case = languages.case(relax.op.mod, np.fmod, x, y)
    np.testing.assert_array_equal(languages.run(case, "vulkan", oneir.vulkan()), case.expected)


@needs_vulkan
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64"])
def test_bits_are_counted_in_the_width_of_the_dtype(dtype):
    @T.prim_func
    def f(A: T.Buffer((64,), dtype), B: T.Buffer((64,), "int32"), C: T.Buffer((64,), dtype)):
        for i in T.thread_binding(64, "threadIdx.x"):
            with T.block("f"):
                j = T.axis.spatial(64, i)
                B[j] = T.clz(A[j])
                C[j] = T.popcount(A[j])

    x = np.concatenate([np.arange(-16, 32), 1 << np.arange(16) * 4]).astype(dtype)
    bits = 8 * x.itemsize
    text = [np.binary_repr(int(v) % 2**bits, bits) for v in x]
    tensors = [oneir.nd.array(a, oneir.vulkan()) for a in (x, np.zeros(64, "int32"), np.zeros_like(x))]
    oneir.build(f, Target("vulkan", host="llvm"))["f"](*tensors)
    np.testing.assert_array_equal(tensors[1].numpy(), [bits if "1" not in t else t.index("1") for t in text])
    np.testing.assert_array_equal(tensors[2].numpy(), [t.count("1") for t in text])


@needs_vulkan
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_division_and_shifts_are_defined_for_all_operands(dtype):
    info = np.iinfo(dtype)
    edges = [v for v in (info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 3, 7, info.max - 1, info.max) if v >= info.min]
    a, b = (np.array(part, dtype) for part in zip(*[(x, y) for x in edges for y in edges], strict=True))
    bits, n = info.bits, len(a)

    @T.prim_func
    def f(A: T.Buffer((n,), dtype), B: T.Buffer((n,), dtype), C: T.Buffer((6, n), dtype)):
        for i in T.thread_binding(n, "threadIdx.x"):
            with T.block("f"):
                j = T.axis.spatial(n, i)
                C[0, j] = A[j] // B[j]
                C[1, j] = A[j] % B[j]
                C[2, j] = T.truncdiv(A[j], B[j])
                C[3, j] = T.truncmod(A[j], B[j])
                C[4, j] = T.shift_left(A[j], B[j])
                C[5, j] = T.shift_right(A[j], B[j])

    def wrapped(value):
        return (value - info.min) % 2**bits + info.min

    def truncated(x, y):
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    def row(x, y):
        outside = not 0 <= y < bits
        return [
            0 if y == 0 else x // y,
            x if y == 0 else x % y,
            0 if y == 0 else truncated(x, y),
            x if y == 0 else x - truncated(x, y) * y,
            0 if outside else x << y,
            (-1 if x < 0 else 0) if outside else x >> y,
        ]

    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    expected = np.array([[wrapped(v) for v in row(x, y)] for x, y in pairs], dtype).T
    result = oneir.nd.array(np.zeros((6, n), dtype), oneir.vulkan())
    oneir.build(f, Target("vulkan", host="llvm"))["f"](*(oneir.nd.array(v, oneir.vulkan()) for v in (a, b)), result)
    np.testing.assert_array_equal(result.numpy(), expected)
