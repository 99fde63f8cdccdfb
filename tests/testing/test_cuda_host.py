"""CUDA programs on the host equal NumPy, and faults that are planted in them are found."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_compiler

import oneir
from oneir.runtime.error import CompileError, DeviceError, InvalidValue, UnsupportedError
from oneir.testing import cuda_host
from oneir.testing.cuda_host import ORDERS, CudaOnHost, cuda_on_host

BLOCK = 96
REVERSE = """\
extern "C" __global__ void __launch_bounds__(96) reverse(float* __restrict__ x, float scale, int n) {
  __shared__ float part[96];
  const int t = threadIdx.x;
  part[t] = x[blockIdx.x * 96 + t];
  __syncthreads();
  x[blockIdx.x * 96 + t] = t < n ? part[95 - t] * scale : -1.0f;
}
"""
NEIGHBOURS = """\
extern "C" __global__ void neighbours(int* x) {
  __shared__ int part[96];
  const int t = threadIdx.x;
  part[t] = t;
  __syncwarp();
  x[t] = part[t ^ 31];
}
"""
DYNAMIC = """\
extern "C" __global__ void dynamic(float* x) {
  extern __shared__ unsigned char oneir_dynamic_shared[];
  float* part = (float*)oneir_dynamic_shared;
  part[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = part[31 - threadIdx.x];
}
"""


def numbers():
    return np.random.default_rng(0).random((3, BLOCK), dtype="float32")


def reversed_by(source, order):
    x = numbers()
    CudaOnHost(source).launch("reverse", [3], [BLOCK], [x, 2.5, BLOCK], order)
    return x


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_threads_meet_at_barriers(order):
    np.testing.assert_array_equal(reversed_by(REVERSE, order), numbers()[:, ::-1] * np.float32(2.5))


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_warps_meet_at_their_barriers(order):
    x = np.zeros(BLOCK, "int32")
    CudaOnHost(NEIGHBOURS).launch("neighbours", [1], [BLOCK], [x], order)
    np.testing.assert_array_equal(x, np.arange(BLOCK) ^ 31)


@needs_compiler
def test_a_program_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    first = reversed_by(REVERSE, "forward")

    def refuse(*args, **kwargs):
        raise UnsupportedError("the compiler was asked")

    monkeypatch.setattr(cuda_host.subprocess, "run", refuse)
    np.testing.assert_array_equal(reversed_by(REVERSE, "backward"), first)
    with pytest.raises(UnsupportedError, match="the compiler was asked"):
        CudaOnHost(REVERSE.replace("95 - t", "94 - t"))
    monkeypatch.setenv("ONEIR_CACHE_DIR", "")
    with pytest.raises(UnsupportedError, match="the compiler was asked"):
        CudaOnHost(REVERSE)


@needs_compiler
def test_dynamic_shared_memory():
    x = numbers()[0, :32].copy()
    CudaOnHost(DYNAMIC).launch("dynamic", [1], [32], [x])
    np.testing.assert_array_equal(x, numbers()[0, 31::-1])


@needs_compiler
@pytest.mark.parametrize("barrier", ["", "__syncwarp();"])
def test_a_missing_barrier_is_found(barrier):
    broken = REVERSE.replace("__syncthreads();", barrier)
    assert all(np.isnan(reversed_by(broken, order)).any() for order in ORDERS)


@needs_compiler
@pytest.mark.parametrize(
    "barrier, message",
    [
        ("if (t < 40) __syncthreads();", "thread 32 waits at the barrier in line 5, thread 40 has ended"),
        ("if (t == 95) return; __syncthreads();", "thread 64 waits at the barrier in line 5, thread 95 has ended"),
        ("if (t < 64) __syncthreads();\nelse __syncthreads();", "line 5, thread 64 waits at the barrier in line 6"),
        ("if (t & 1) __syncwarp();", "thread 0 has ended, thread 1 waits at the barrier in line 5"),
    ],
)
def test_a_barrier_in_a_divergent_branch_is_reported(barrier, message):
    with pytest.raises(DeviceError, match=rf"`reverse`: threads of block \(0, 0, 0\) diverge: .*{message}"):
        reversed_by(REVERSE.replace("__syncthreads();", barrier), "forward")


@needs_compiler
def test_half_precision_is_rounded_as_numpy_does():
    source = 'extern "C" __global__ void f(float* x, uint16_t* y, float* z) '
    source += "{ int i = threadIdx.x; y[i] = oneir_bits_of_f16(x[i]); z[i] = oneir_f16_of_bits(y[i]); }"
    bits = np.random.default_rng(1).integers(0, 1 << 32, 1000, dtype="uint32").view("float32")
    near = np.random.default_rng(2).normal(size=1000).astype("float32")
    edges = np.float32([0, -0.0, 65504, 65519.9, 65520, -1e9, np.inf, np.nan, 2**-14, 2**-24, 2**-25, 3 * 2**-25])
    program = CudaOnHost(source)
    for x in (bits, near, near * np.float32(1e-7), near * np.float32(1e5), edges):
        y, z = np.zeros(x.shape, "uint16"), np.zeros(x.shape, "float32")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            expected = x.astype("float16")
        program.launch("f", [1], [x.size], [x, y, z])
        np.testing.assert_array_equal(z, expected.astype("float32"))
        same = (y == expected.view("uint16")) | np.isnan(x)
        assert same.all(), x[~same]


@needs_compiler
def test_what_cannot_be_launched():
    program = CudaOnHost(REVERSE)
    with pytest.raises(InvalidValue, match="the program has no kernel `f`; it has reverse"):
        program.launch("f", [1], [1], [])
    with pytest.raises(InvalidValue, match="`reverse` takes 3 arguments, found 1"):
        program.launch("reverse", [1], [1], [numbers()])
    with pytest.raises(InvalidValue, match="a block has 1 to 1024 threads, found 2048"):
        program.launch("reverse", [1], [2048], [numbers(), 1.0, 1])
    with pytest.raises(InvalidValue, match="expected one of the orders forward, backward, shuffled, found 'odd'"):
        program.launch("reverse", [1], [1], [numbers(), 1.0, 1], "odd")
    with pytest.raises(CompileError, match=r"program.cu:2:.*error"):
        CudaOnHost(REVERSE.replace("float part", "floot part"))


@needs_compiler
def test_the_device_is_there_inside_of_the_context():
    assert not oneir.cuda(0).exist or oneir.cuda(0).device_name != "CUDA on the host"
    with cuda_on_host():
        device = oneir.cuda(0)
        assert device.exist and not oneir.cuda(1).exist
        assert (device.device_name, device.warp_size, device.max_threads_per_block) == ("CUDA on the host", 32, 1024)
        x = oneir.nd.array(numbers(), device)
        np.testing.assert_array_equal(x.numpy(), numbers())
    assert not oneir.cuda(0).exist or oneir.cuda(0).device_name != "CUDA on the host"
    with pytest.raises(InvalidValue, match="expected one of the orders"), cuda_on_host("odd"):
        pass


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(cuda_host.shutil, "which", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"g\+\+, which is not installed"):
        CudaOnHost(REVERSE)
    with pytest.raises(UnsupportedError, match=r"g\+\+, which is not installed"), cuda_on_host():
        pass
