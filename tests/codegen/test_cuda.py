"""CUDA C++ of kernels: its text, NVRTC takes it, and run on the host it equals NumPy."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from devices import needs_compiler, needs_nvrtc

import oneir
from oneir import dlight as dl
from oneir import relax, tir
from oneir.contrib import nvcc
from oneir.runtime.error import CompileError, DeviceError, InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, CudaOnHost, cuda_on_host

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16"]
DTYPES += ["float32", "float64"]


def graph(build, *params):
    """A graph of one function, `main`, whose parameters are given by shape and dtype."""
    bb = relax.BlockBuilder()
    args = [relax.Var(f"x{i}", R.Tensor(shape, dtype)) for i, (shape, dtype) in enumerate(params)]
    with bb.function("main", args):
        with bb.dataflow():
            out = bb.emit_output(build(*args))
        bb.emit_func_output(out)
    return bb.get()


def ran(mod, *inputs, order="forward"):
    """The result of a graph on the host's CUDA device."""
    ex = relax.build(mod, "cuda")
    with cuda_on_host(order) as driver:
        dev = oneir.cuda()
        result = relax.VirtualMachine(ex, dev)["main"](*[oneir.nd.array(x, dev) for x in inputs]).numpy()
        assert driver.launched
    return result


def kernels(mod):
    """The CUDA text of a graph's operators under default schedules."""
    mod = relax.transform.LegalizeOps()(mod)
    with Target("cuda", host="llvm"):
        rules = [dl.gpu.Matmul(), dl.gpu.Reduction(), dl.gpu.GeneralReduction(), dl.gpu.Fallback()]
        mod = dl.ApplyDefaultSchedule(*rules)(mod)
    functions = {
        var.name_hint: func.with_attr("global_symbol", var.name_hint)
        for var, func in mod.functions_items()
        if isinstance(func, tir.PrimFunc)
    }
    return source(oneir.IRModule(functions))


def source(mod):
    return oneir.build(mod, Target("cuda", host="llvm")).inspect_source("cuda")


def random(*shape, dtype="float32"):
    values = np.random.default_rng(0).random(shape) * 100
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


GRAPHS = {
    "matmul": graph(lambda a, b: relax.op.matmul(a, b), ((40, 24), "float32"), ((24, 40), "float32")),
    "half matmul": graph(lambda a, b: relax.op.matmul(a, b), ((16, 16), "float16"), ((16, 16), "float16")),
    "softmax": graph(lambda a: relax.op.nn.softmax(a), ((5, 300), "float32")),
    "sum": graph(lambda a: relax.op.sum(a, axis=[1]), ((6, 700), "float32")),
    "sort": graph(lambda a: relax.op.sort(a), ((5, 40), "float32")),
    "functions": graph(
        lambda a: relax.op.add(relax.op.erf(relax.op.exp(a)), relax.op.round(relax.op.sqrt(a))), ((77,), "float64")
    ),
    "where": graph(lambda a, b: relax.op.where(relax.op.greater(a, b), a, b), ((9,), "int8"), ((9,), "int8")),
} | {
    f"elementwise {dtype}": graph(lambda a, b: relax.op.add(relax.op.multiply(a, b), a), ((70,), dtype), ((70,), dtype))
    for dtype in DTYPES
}


# -- text --


@T.prim_func
def moved(A: T.Buffer((256,), "float16"), B: T.Buffer((256,), "float16")):
    for bx in T.thread_binding(2, "blockIdx.x"):
        S = T.alloc_buffer((128,), "float16", scope="shared")
        for tx in T.thread_binding(32, "threadIdx.x"):
            for v in T.vectorized(4):
                with T.block("in"):
                    b = T.axis.spatial(2, bx)
                    i = T.axis.spatial(128, tx * 4 + v)
                    S[i] = A[b * 128 + i]
        for tx in T.thread_binding(32, "threadIdx.x"):
            for v in T.vectorized(4):
                with T.block("out"):
                    b = T.axis.spatial(2, bx)
                    i = T.axis.spatial(128, tx * 4 + v)
                    B[b * 128 + i] = S[127 - i]


def test_the_text_of_a_kernel():
    text = source(moved)
    assert "#include" not in text
    kernel = text[text.index('extern "C"') :]
    assert kernel.startswith(
        'extern "C" __global__ void __launch_bounds__(32) moved_kernel(uint16_t* __restrict__ A, uint16_t* __restrict__ B) {\n'
        "  const int blockIdx_x = (int)blockIdx.x;\n"
        "  const int threadIdx_x = (int)threadIdx.x;\n"
        "  alignas(16) __shared__ uint16_t S[128];\n"
    )
    assert kernel.count("__syncthreads();") == 1 and "asm" not in kernel
    # Shared memory is aligned; the tensors of users begin at any element.
    assert len(re.findall(r"\*\(oneir_vector<uint16_t, 4>\*\)\(S \+ \w+\) = ", kernel)) == 1
    assert not re.search(r"oneir_vector<uint16_t, \d>\*\)\([AB] ", kernel)


def test_the_block_size_of_a_kernel_may_be_known_at_the_launch_only():
    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in T.thread_binding(n, "threadIdx.x"):
            with T.block("f"):
                j = T.axis.spatial(n, i)
                A[j] = T.float32(1)

    assert 'extern "C" __global__ void f_kernel(' in source(f)


def test_unknown_formats_are_named():
    built = oneir.build(moved, Target("cuda", host="llvm"))
    assert "oneir_launch_kernel" in built.inspect_source("host")
    with pytest.raises(InvalidValue, match='expected the format "cuda" or "host", found \'ptx\''):
        built.inspect_source("ptx")


@pytest.mark.parametrize(
    "scope, message",
    [("global", "CUDA has no barrier of the scope 'global'"), ("cluster", "expected 'shared' or 'warp'")],
)
def test_unknown_barriers_are_errors(scope, message):
    @T.prim_func
    def f(A: T.Buffer((32,), "float32")):
        for i in T.thread_binding(32, "threadIdx.x"):
            A[i] = T.float32(1)
            T.evaluate(T.tvm_storage_sync(scope))

    with pytest.raises(CompileError, match=message):
        source(f)


def test_unknown_threads_are_errors():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32")):
        for i in T.thread_binding(32, "clusterIdx.x"):
            A[i] = T.float32(1)

    with pytest.raises(CompileError, match=r"CUDA has no thread axis 'clusterIdx\.x'"):
        source(f)


# -- NVRTC --


@needs_nvrtc
@pytest.mark.parametrize("name", GRAPHS)
def test_nvrtc_takes_the_kernels(name):
    text = kernels(GRAPHS[name])
    for arch in ("sm_80", "sm_90a"):
        assert nvcc.compile_cuda(text, target_format="cubin", arch=arch).startswith(b"\x7fELF")


@needs_nvrtc
def test_nvrtc_does_not_take_a_broken_kernel():
    with pytest.raises(CompileError, match="error"):
        nvcc.compile_cuda(source(moved).replace("alignas(16) __shared__ uint16_t S[128];", ""))


# -- execution --


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise(dtype):
    a, b = random(70, dtype=dtype), random(70, dtype=dtype)[::-1].copy()
    with np.errstate(over="ignore"):
        expected = a * b + a
    found = ran(GRAPHS[f"elementwise {dtype}"], a, b)
    assert found.dtype == expected.dtype
    if dtype == "bfloat16":  # computed in float32 and rounded once
        np.testing.assert_allclose(found.astype("float32"), expected.astype("float32"), rtol=2**-7)
    else:
        np.testing.assert_array_equal(found, expected)


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_reductions(order):
    x = random(5, 300)
    e = np.exp(x - x.max(1, keepdims=True))
    smallest = np.finfo("float32").tiny  # exponentials below it are 0
    exact = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(ran(GRAPHS["softmax"], x, order=order), exact, rtol=1e-5, atol=smallest)
    x = random(6, 700)
    np.testing.assert_allclose(ran(GRAPHS["sum"], x, order=order), x.sum(1), rtol=1e-5)


@needs_compiler
def test_sort_functions_and_choices():
    x = random(5, 40)
    np.testing.assert_array_equal(ran(GRAPHS["sort"], x), np.sort(x))
    a, b = random(9, dtype="int8"), random(9, dtype="int8")[::-1].copy()
    np.testing.assert_array_equal(ran(GRAPHS["where"], a, b), np.maximum(a, b))


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_a_vectorized_kernel(order):
    ex = oneir.build(moved, Target("cuda", host="llvm"))
    x = random(256, dtype="float16")
    with cuda_on_host(order):
        a, b = (oneir.nd.array(v, oneir.cuda()) for v in (x, 0 * x))
        ex["moved"](a, b)
        np.testing.assert_array_equal(b.numpy(), x.reshape(2, 128)[:, ::-1].reshape(256))


@needs_compiler
def test_more_threads_than_a_block_has():
    @T.prim_func
    def f(A: T.Buffer((2048,), "float32")):
        for i in T.thread_binding(2048, "threadIdx.x"):
            A[i] = T.float32(1)

    with cuda_on_host():
        a = oneir.nd.array(random(2048), oneir.cuda())
        ex = oneir.build(f, Target("cuda", host="llvm"))
        with pytest.raises(DeviceError, match="1×1×1 blocks of 2048×1×1 threads: a block has at most 1024 threads"):
            ex["f"](a)


# -- programs as users write them for a GPU --


@I.ir_module
class Product:
    @T.prim_func(private=True)
    def tir_matmul(x: T.handle, y: T.handle, z: T.handle):
        m, n, k = T.int64(), T.int64(), T.int64()
        A = T.match_buffer(x, (m, k))
        B = T.match_buffer(y, (k, n))
        C = T.match_buffer(z, (m, n))
        for i, j, r in T.grid(m, n, k):
            with T.block("matmul"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vr] * B[vr, vj]

    @R.function
    def main(x: R.Tensor((37, 20), "float32"), y: R.Tensor((20, 45), "float32")) -> R.Tensor((37, 45), "float32"):
        cls = Product
        with R.dataflow():
            z = R.call_tir(cls.tir_matmul, (x, y), out_sinfo=R.Tensor((37, 45), "float32"))
            out = R.nn.relu(z)
            R.output(out)
        return out


def default_schedule(mod):
    return tir.transform.DefaultGPUSchedule()(mod)


def matmul_schedule(mod):
    return dl.ApplyDefaultSchedule(dl.gpu.Matmul(), dl.gpu.Fallback())(mod)


@needs_compiler
@pytest.mark.parametrize("schedule", [default_schedule, matmul_schedule])
@pytest.mark.parametrize("order", ORDERS)
def test_a_graph_is_scheduled_built_and_run(schedule, order):
    with Target("cuda"):
        mod = schedule(relax.transform.LegalizeOps()(Product))
    x, y = random(37, 20), random(20, 45)
    np.testing.assert_allclose(ran(mod, x, y, order=order), np.maximum(x @ y, 0), rtol=1e-5)


# -- planted faults --


def reversed_halves(text, order):
    x, y = random(256, dtype="float16"), np.zeros(256, "float16")
    CudaOnHost(text).launch("moved_kernel", [2], [32], [x, y], order)
    return np.array_equal(y, x.reshape(2, 128)[:, ::-1].reshape(256))


@needs_compiler
def test_vectors_have_names_too():
    @T.prim_func
    def squared(A: T.Buffer((8, 4), "int32"), B: T.Buffer((8, 4), "int32")):
        for i in T.thread_binding(8, "threadIdx.x"):
            v: T.int32x4 = A[i, 0:4]
            B[i, 0:4] = v * v

    a = np.arange(32, dtype="int32").reshape(8, 4)
    b = np.zeros_like(a)
    CudaOnHost(source(squared)).launch("squared_kernel", [1], [8], [a, b])
    np.testing.assert_array_equal(b, a * a)


@needs_compiler
def test_a_removed_barrier_is_found():
    text = source(moved)
    assert all(reversed_halves(text, order) for order in ORDERS)
    assert not all(reversed_halves(text.replace("__syncthreads();", ""), order) for order in ORDERS)


@needs_compiler
def test_a_barrier_in_a_branch_is_reported():
    text = source(moved).replace("__syncthreads();", "if (threadIdx_x < 7) __syncthreads();")
    with pytest.raises(DeviceError, match="thread 0 waits at the barrier in line"):
        reversed_halves(text, "forward")
