"""HIP for AMD's GPUs: its text, and run on the host it equals NumPy, in wavefronts of 64 threads."""

from __future__ import annotations

import re

import languages
import numpy as np
import pytest
from devices import needs_compiler

import oneir
from oneir.runtime.error import CompileError, DeviceError, InvalidValue
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing.cuda_host import ORDERS, HipOnHost, rocm_on_host

NAMES = [
    "elementwise",
    "functions",
    "softmax",
    "dynamic",
    "gemv",
    "scatter",
    "floordiv",
    "wrapping",
    "saturating",
    "nan",
]
NAMES += [
    "half matmul",
    "add int8",
    "add float16",
    "compare",
    "float32 to float16",
    "gather int64",
    "functions float64",
]
"""HIP shares what it writes with CUDA C++: some programs of each kind will do."""


def source(func, target="rocm"):
    return oneir.build(func, Target(target, host="llvm")).inspect_source("hip")


def test_the_text_of_a_kernel():
    text = source(languages.row_sums)
    assert "#include" not in text and "asm" not in text and "__CUDA" not in text
    kernel = text[text.index('extern "C"') :]
    assert kernel.startswith('extern "C" __global__ void __launch_bounds__(64) row_sums_kernel(float* __restrict__ ')
    assert "alignas(16) __shared__ float red_buf0[64];" in kernel


def test_a_wavefront_has_as_many_threads_as_the_target_says():
    wide, narrow = (source(languages.row_sums, {"kind": "rocm", "thread_warp_size": warp}) for warp in (64, 32))
    # The step of the tree from 64 threads to 32 stays in a wavefront of 64, and crosses those of 32.
    assert narrow.count("__syncthreads();") == wide.count("__syncthreads();") + 1
    assert narrow.count("oneir_syncwarp();") < wide.count("oneir_syncwarp();")


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_wavefronts_go_on_alone(order):
    x, y = languages.random(4, 64), np.zeros(4, "float32")
    HipOnHost(source(languages.row_sums)).launch("row_sums_kernel", [4], [64], [x, y], order)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("name", NAMES)
def test_programs(name):
    case = languages.ALL[name]
    with rocm_on_host("backward") as driver:
        case.check(languages.run(case, "rocm", oneir.rocm()))
        assert driver.launched


@needs_compiler
def test_the_host_stands_in_for_a_device():
    with rocm_on_host():
        device = oneir.rocm()
        assert device.exist and device.warp_size == 64 and device.device_name == "ROCm on the host"
    with pytest.raises(DeviceError, match="rocm:0 cannot be used"):
        oneir.nd.array(np.zeros(3), oneir.rocm())


def test_unknown_formats_are_named():
    built = oneir.build(languages.row_sums, Target("rocm", host="llvm"))
    assert "oneir_launch_kernel" in built.inspect_source("host")
    with pytest.raises(InvalidValue, match='expected the format "hip" or "host", found \'cuda\''):
        built.inspect_source("cuda")


@pytest.mark.parametrize(
    "tag, scope, message",
    [
        ("clusterIdx.x", "shared", "HIP has no thread axis 'clusterIdx.x'"),
        ("threadIdx.x", "global", "HIP has no barrier of the scope 'global'; expected 'shared' or 'warp'"),
    ],
)
def test_refusals(tag, scope, message):
    @T.prim_func
    def f(A: T.Buffer((32,), "float32")):
        for i in T.thread_binding(32, tag):
            A[i] = T.float32(1)
            T.evaluate(T.tvm_storage_sync(scope))

    with pytest.raises(CompileError, match=re.escape(message)):
        source(f)
