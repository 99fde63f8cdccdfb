"""ROCm devices, over a library that has HIP's names and numbers and runs kernels on the host.

What the driver shares with CUDA's is proved in `test_cuda.py`; here is what HIP has otherwise, and that all of it works.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import devices
import numpy as np
import pytest
from cuda_stub import Stub, needs_stub, stubbed

import oneir
from oneir.contrib import hipcc
from oneir.runtime import driver as drivers
from oneir.runtime.error import CompileError, DeviceError, InvalidValue, TypeMismatch, UnsupportedError
from oneir.runtime.registry import register_func
from oneir.runtime.rocm import HipApi, Rocm
from oneir.script import tir as T
from oneir.target import Target

pytestmark = needs_stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stubbed("rocm") as found:
        yield found


def on_device(array, number=0):
    return oneir.runtime.tensor(array, oneir.rocm(number))


built = partial(devices.built, kind="rocm")


@T.prim_func
def scale(x: T.handle, y: T.handle, factor: T.float32):
    T.func_attr({"global_symbol": "scale"})
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    for i in range(n):
        with T.block("y"):
            vi = T.axis.spatial(n, i)
            Y[vi] = X[vi] * factor


@T.prim_func
def reverse(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    T.func_attr({"global_symbol": "reverse"})
    for _ in T.thread_binding(1, "blockIdx.x"):
        with T.block("root"):
            S = T.alloc_buffer((256,), "float32", scope="shared.dyn")
            for j in T.thread_binding(256, "threadIdx.x"):
                with T.block("s"):
                    v = T.axis.spatial(256, j)
                    S[v] = A[v]
            for j in T.thread_binding(256, "threadIdx.x"):
                with T.block("b"):
                    v = T.axis.spatial(256, j)
                    B[v] = S[255 - v]


def numbers(count=100, seed=0):
    return np.random.default_rng(seed).random(count, dtype="float32")


def softmax_of_a_product():
    builder, n = oneir.relax.BlockBuilder(), oneir.tir.Var("n", "int64")
    x = oneir.relax.Var("x", oneir.relax.TensorStructInfo((n, 8), "float32"))
    w = oneir.relax.Var("w", oneir.relax.TensorStructInfo((8, 4), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            output = builder.emit_output(oneir.relax.op.nn.softmax(oneir.relax.op.matmul(x, w)))
        builder.emit_func_output(output)
    return oneir.relax.build(builder.get(), "rocm")


@pytest.mark.parametrize("library", ["no-such-library.so", "libm.so.6"])
def test_without_hip_there_is_no_device(library):
    driver = Rocm((library,))
    assert driver.count() == 0
    with pytest.raises(DeviceError, match="rocm cannot be used: no GPU of AMD's was found; install ROCm"):
        driver.alloc(0, 16)


def test_devices_tell_what_they_are(stub):
    device = oneir.rocm(1)
    assert device.exist and not oneir.rocm(2).exist
    assert (device.device_name, device.compute_version, device.warp_size) == ("stub 1", "8.0", 64)
    assert (device.max_threads_per_block, device.max_thread_dimensions) == (1024, [1024, 1024, 64])
    assert device.max_shared_memory_per_block == 48 << 10 and device.multi_processor_count == 4
    assert (device.max_clock_rate, device.l2_cache_size_bytes) == (1500000, 1 << 20)
    assert (device.api_version, device.driver_version) == (60240091, "6.2")
    assert device.available_global_memory == device.total_global_memory == 1 << 30
    with pytest.raises(DeviceError, match="there is no rocm:2: this machine has 2 such devices"):
        oneir.rocm(2).sync()


@pytest.mark.parametrize("pools", [0, 1])
def test_a_graph_runs_natively(stub, pools):
    stub.library.stub_is(8, 0, pools)
    for number in (0, 1):
        machine = oneir.relax.VirtualMachine(softmax_of_a_product(), oneir.rocm(number))
        for count in (3, 0, 70):
            rows, weight = numbers(count * 8).reshape(count, 8), numbers(32, 1).reshape(8, 4)
            found = machine["main"](on_device(rows, number), on_device(weight, number)).numpy()
            exponential = np.exp(rows @ weight)
            np.testing.assert_allclose(found, exponential / exponential.sum(1, keepdims=True), rtol=1e-5)
    assert stub.library.stub_launches() > 0


def test_dynamic_shared_memory_needs_no_grant(stub):
    a, b = on_device(numbers(256)), on_device(np.zeros(256, "float32"))
    oneir.build(reverse, target=Target("rocm", host="llvm"))["reverse"](a, b)
    np.testing.assert_array_equal(b.numpy(), numbers(256)[::-1])


def test_a_launch_is_on_the_device_of_its_tensors_in_any_thread(stub):
    """A thread has the first device to begin with, on which HIP would take launches of the second."""
    lib = built(scale)
    x = [on_device(numbers(), number) for number in (0, 1)]
    for tensor in x:
        lib["scale"](tensor, tensor, 1.0)

    def work():
        for tensor in (x[1], x[0], x[1]):
            lib["scale"](tensor, tensor, 2.0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for tensor, factor in zip(x, (2, 4), strict=True):
        np.testing.assert_array_equal(tensor.numpy(), numbers() * factor)


def test_streams_and_events(stub):
    device, lib = oneir.rocm(1), built(scale)
    x, y = on_device(numbers(), 1), on_device(np.zeros(100, "float32"), 1)
    driver = drivers.find_driver(10)
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    try:
        begin = driver.record_event(1)
        lib["scale"](x, y, 3.0)
        end = driver.record_event(1)
        assert driver.elapsed(1, begin, end) > 0
        driver.free_event(1, begin)
        driver.free_event(1, end)
    finally:
        device.set_raw_stream(0)
    driver.sync_streams(1, stream, 0)
    np.testing.assert_array_equal(y.numpy(), numbers() * np.float32(3))
    device.free_raw_stream(stream)
    with pytest.raises(InvalidValue, match="is no stream of rocm:1 that create_raw_stream made"):
        device.free_raw_stream(stream)


def test_out_of_memory_tells_what_is_in_use(stub):
    stub.library.stub_capacity(1000)
    kept = on_device(numbers(100))
    with pytest.raises(DeviceError, match="rocm:0 has no memory for 800 bytes: 400 of its 1000 bytes are in use"):
        on_device(numbers(200))
    np.testing.assert_array_equal(kept.numpy(), numbers(100))


def test_a_launch_that_fails_names_the_kernel(stub):
    lib, x = built(scale), on_device(numbers())
    stub.fail("hipModuleLaunchKernel", 701)
    with pytest.raises(DeviceError, match=r"`scale_kernel` cannot be launched on rocm:0 .*LAUNCH_OUT_OF_RESOURCES"):
        lib["scale"](x, x, 2.0)
    lib["scale"](x, x, 3.0)
    np.testing.assert_array_equal(x.numpy(), numbers() * np.float32(3))


def test_a_device_that_is_lost(stub):
    x, other = on_device(numbers()), on_device(numbers(), 1)
    stub.library.stub_lose(0, 700)
    with pytest.raises(DeviceError, match=r"rocm:0, .*ILLEGAL_ADDRESS\); what was launched before may have failed"):
        x.numpy()
    with pytest.raises(DeviceError, match="rocm:0 cannot be used any more"):
        oneir.rocm(0).sync()
    np.testing.assert_array_equal(other.numpy(), numbers())


def test_tensors_elsewhere_are_refused(stub):
    lib, x = built(scale), on_device(numbers())
    with pytest.raises(DeviceError, match="argument 0 `X` of `scale`: expected a tensor on rocm, found one on cpu:0"):
        lib["scale"](oneir.runtime.tensor(numbers()), x, 1.0)
    with pytest.raises(InvalidValue, match="`Y`: expected a tensor on the same rocm as the first"):
        lib["scale"](x, on_device(numbers(), 1), 1.0)


def test_programs_are_compiled_for_the_architecture_of_the_device(stub, monkeypatch):
    lib, x = built(scale), on_device(numbers())
    lib["scale"](x, x, 1.0)
    stub.library.stub_is(9, 0, 1)
    lib = built(scale)
    lib["scale"](on_device(numbers(), 1), on_device(numbers(), 1), 1.0)
    assert stub.compiled_for == ["gfx803", "gfx90a:sramecc+:xnack-"]
    stub.fail("hipModuleLoadData", 209)
    with pytest.raises(CompileError, match=r"rocm:0 \(stub 0, gfx90a.*\) does not take the compiled program"):
        built(scale)["scale"](x, x, 1.0)
    monkeypatch.setattr(HipApi, "architecture", lambda self, device_id: None)
    with pytest.raises(DeviceError, match="rocm:0 does not tell its architecture; expected one such as gfx90a"):
        built(scale)["scale"](x, x, 1.0)


def test_what_compiles_must_be_there_and_return_code(stub, monkeypatch):
    x = on_device(numbers())
    monkeypatch.setattr(hipcc, "_library", lambda: None)
    register_func("tvm_callback_hip_compile", lambda code, target: hipcc.compile_hip(code, target.mcpu), override=True)
    with pytest.raises(UnsupportedError, match=r"HIPRTC, which compiles HIP, was not found: install ROCm.*ld\.lld"):
        built(scale)["scale"](x, x, 1.0)
    register_func("tvm_callback_hip_compile", lambda code, target: 7, override=True)
    with pytest.raises(TypeMismatch, match="`tvm_callback_hip_compile` returned a int; expected a code object"):
        built(scale)["scale"](x, x, 1.0)
