"""CUDA devices, over a driver that runs kernels on the host: memory, launches, limits, and every way in which they fail.

The stub counts what no driver allows (freed handles, a missing context, memory of others); `stubbed` fails if it does.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial

import devices
import ml_dtypes
import numpy as np
import pytest
from cuda_stub import Stub, needs_stub, stubbed
from devices import needs_nvrtc

import oneir
from oneir.runtime import driver as drivers
from oneir.runtime import launch, load_module
from oneir.runtime.cuda_api import CudaApi
from oneir.runtime.error import CompileError, DeviceError, InvalidValue, TypeMismatch
from oneir.runtime.registry import get_global_func, register_func
from oneir.script import tir as T
from oneir.target import Target

pytestmark = needs_stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stubbed() as found:
        yield found


def on_device(array, number=0):
    return oneir.runtime.tensor(array, oneir.cuda(number))


built = partial(devices.built, kind="cuda")


@T.prim_func
def scale(x: T.handle, y: T.handle, factor: T.float32, offset: T.int32):
    T.func_attr({"global_symbol": "scale"})
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    for i in range(n):
        with T.block("y"):
            vi = T.axis.spatial(n, i)
            Y[vi] = X[vi] * factor + T.cast(offset, "float32")


def numbers(count=100, seed=0):
    return np.random.default_rng(seed).random(count, dtype="float32")


# -- devices and memory --


def test_without_a_driver_there_is_no_device():
    driver = oneir.runtime.cuda_driver.Cuda(("no-such-library.so",))
    assert driver.count() == 0
    with pytest.raises(DeviceError, match="cuda cannot be used: no GPU of NVIDIA's was found; install its driver"):
        driver.alloc(0, 16)


def test_a_library_that_is_no_driver_is_passed_over():
    assert oneir.runtime.cuda_driver.Cuda(("libm.so.6",)).count() == 0


def test_devices_tell_what_they_are(stub):
    device = oneir.cuda(1)
    assert device.exist and not oneir.cuda(2).exist
    assert (device.device_name, device.compute_version, device.warp_size) == ("stub 1", "8.0", 32)
    assert (device.max_threads_per_block, device.max_thread_dimensions) == (1024, [1024, 1024, 64])
    assert device.max_shared_memory_per_block == 48 << 10 and device.multi_processor_count == 4
    assert (device.api_version, device.driver_version) == (12040, "12.4")
    assert device.available_global_memory == device.total_global_memory == 1 << 30
    with pytest.raises(DeviceError, match="there is no cuda:2: this machine has 2 such devices"):
        oneir.cuda(2).sync()


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float32", "int64"])
@pytest.mark.parametrize("pools", [0, 1])
def test_tensors_go_there_and_back(stub, dtype, pools):
    stub.library.stub_is(8, 0, pools)
    array = np.random.default_rng(0).integers(0, 2, (3, 5, 7)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    for number in (1, 0):
        tensor = on_device(array, number)
        assert tensor.device == oneir.cuda(number)
        np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(on_device(array[::2, ::-1]).copyto(oneir.cuda(1)).numpy(), array[::2, ::-1])
    assert on_device(np.zeros((0, 3), dtype="float32")).numpy().shape == (0, 3)


@pytest.mark.parametrize("pools", [0, 1])
def test_memory_is_given_back(stub, pools):
    stub.library.stub_is(8, 0, pools)
    before, device = stub.live()["blocks"], oneir.cuda(1)
    tensors = [on_device(numbers(), 1) for _ in range(5)]
    assert stub.live()["blocks"] == before + 5 and device.available_global_memory == (1 << 30) - 5 * 400
    del tensors
    assert stub.live()["blocks"] == before + (5 if pools else 0)  # what only the default stream uses is kept
    drivers.drop_kept_memory(2, 1)
    assert stub.live()["blocks"] == before and device.available_global_memory == 1 << 30


def test_memory_that_was_given_back_is_used_again(stub):
    stub.library.stub_is(8, 0, 1)
    first = oneir.runtime.empty((100,), "float32", oneir.cuda())
    address = first.address
    del first
    other = oneir.runtime.empty((50,), "float32", oneir.cuda())
    assert other.address != address and oneir.runtime.empty((100,), "float32", oneir.cuda()).address == address


def test_what_is_kept_goes_when_it_is_too_much(stub, monkeypatch):
    stub.library.stub_is(8, 0, 1)
    monkeypatch.setattr(oneir.runtime.cuda_driver, "_MOST_KEPT_BYTES", 1000)
    held = stub.live()["blocks"]
    for count, kept in ((100, 1), (150, 2), (50, 1), (300, 1)):  # 400, 1000, 200, and one of 1200 bytes by itself
        tensor = oneir.runtime.empty((count,), "float32", oneir.cuda())
        del tensor
        assert stub.live()["blocks"] == held + kept


def test_memory_that_other_streams_may_use_is_not_used_again_at_once(stub):
    stub.library.stub_is(8, 0, 1)
    device = oneir.cuda()
    stream = device.create_raw_stream()
    held = stub.live()["blocks"]
    first = oneir.runtime.empty((100,), "float32", device)
    del first
    assert stub.live()["blocks"] == held
    device.free_raw_stream(stream)


def test_more_memory_than_there_is_says_how_much_was_asked_for(stub):
    kept = on_device(numbers())
    with pytest.raises(
        DeviceError, match=r"cuda:0 has no memory for 4294967296 bytes: 400 of its 1073741824 bytes are"
    ):
        oneir.runtime.empty((1 << 30,), "float32", oneir.cuda(0))
    np.testing.assert_array_equal(kept.numpy(), numbers())


@T.prim_func
def through_memory(X: T.Buffer((1000,), "float32"), Y: T.Buffer((1000,), "float32")):
    T.func_attr({"global_symbol": "through_memory", "tir.is_scheduled": True})
    B = T.alloc_buffer((1000,), "float32")
    for i in T.thread_binding(1000, "blockIdx.x"):
        with T.block("b"):
            vi = T.axis.spatial(1000, i)
            B[vi] = X[vi] * T.float32(2)
    for i in T.thread_binding(1000, "blockIdx.x"):
        with T.block("c"):
            vi = T.axis.spatial(1000, i)
            Y[vi] = B[999 - vi]


def test_what_is_kept_is_given_back_before_memory_runs_out(stub):
    """Temporary memory of kernels, arenas of graphs, and pools of storage."""
    lib, x = built(through_memory), on_device(numbers(1000))
    builder, var = oneir.relax.BlockBuilder(), oneir.relax.Var("x", oneir.relax.TensorStructInfo((20, 50), "float32"))
    with builder.function("main", [var]):
        with builder.dataflow():
            softmax = builder.emit(oneir.relax.op.nn.softmax(oneir.relax.op.nn.softmax(var)))
            output = builder.emit_output(oneir.relax.op.sum(softmax))
        builder.emit_func_output(output)
    machine = oneir.relax.VirtualMachine(oneir.relax.build(builder.get(), "cuda"), oneir.cuda())
    y = oneir.runtime.empty((1000,), "float32", oneir.cuda())
    held = stub.library.stub_in_use(0)
    lib["through_memory"](x, y)
    machine["main"](x._create_view((20, 50)))
    machine.interpret("main", x._create_view((20, 50)))
    kept = stub.library.stub_in_use(0) - held
    assert kept >= 3 * 4000
    stub.library.stub_capacity(held + kept + 100)
    large = oneir.runtime.empty((kept,), "uint8", oneir.cuda())  # there is room for 100 bytes
    assert stub.library.stub_in_use(0) == held + kept
    del large
    lib["through_memory"](x, y)  # and all goes on
    np.testing.assert_array_equal(y.numpy(), 2 * numbers(1000)[::-1])


def test_no_temporary_memory_says_how_much_was_asked_for(stub):
    lib, x = built(through_memory), on_device(numbers(1000))
    lib["through_memory"](x, x)
    drivers.drop_kept_memory(2, 0)
    stub.library.stub_capacity(stub.library.stub_in_use(0) + 100)
    message = r"no temporary memory for `B\w*`, 4000 bytes: cuda:0 has no memory for 4000 bytes: 4000 of its 4100 bytes"
    with pytest.raises(DeviceError, match=message):
        lib["through_memory"](x, x)
    stub.library.stub_capacity(1 << 30)
    lib["through_memory"](x, x)


# -- kernels --


def test_a_kernel_runs_on_tensors_of_any_size(stub):
    lib = built(scale)
    for n in (0, 1, 255, 256, 1000):
        y = on_device(np.zeros(n, "float32"))
        lib["scale"](on_device(numbers(n)), y, 2.5, -3)
        np.testing.assert_array_equal(y.numpy(), numbers(n) * np.float32(2.5) - 3)


def test_a_program_runs_on_each_device_and_in_any_thread(stub):
    lib, wrong = built(scale), []

    def work(seed):
        for number in (seed % 2, 1 - seed % 2):
            x, y = on_device(numbers(500, seed), number), on_device(np.zeros(500, "float32"), number)
            lib["scale"](x, y, 2.0, seed)
            if not np.array_equal(y.numpy(), numbers(500, seed) * 2 + seed):
                wrong.append(seed)

    work(0)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_thread_that_only_launches_needs_no_context_of_its_own(stub):
    lib, x = built(scale), on_device(numbers())
    ys = [on_device(np.zeros(100, "float32"), number) for number in (0, 0)]
    lib["scale"](x, ys[0], 2.0, 1)
    thread = threading.Thread(target=lambda: lib["scale"](x, ys[1], 2.0, 1))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(ys[1].numpy(), ys[0].numpy())


def test_another_librarys_context_stays_the_threads_own(stub):
    """What other libraries set is there after a launch and after a copy."""
    lib = built(scale)
    x, y = on_device(numbers(), 1), on_device(np.zeros(100, "float32"), 1)
    driver = drivers.find_driver(2)
    on_device(numbers(), 0)  # opens the other device
    other = driver._open[0].context
    stub.library.cuCtxSetCurrent(ctypes.c_void_p(other))
    lib["scale"](x, y, 2.0, 0)
    lib["scale"](x, y, 3.0, 0)
    np.testing.assert_array_equal(y.numpy(), numbers() * 3)
    found = ctypes.c_void_p()
    stub.library.cuCtxGetCurrent(ctypes.byref(found))
    assert found.value == other


def test_a_graph_of_symbolic_shape_and_temporary_memory(stub):
    n = oneir.tir.Var("n", "int64")
    builder = oneir.relax.BlockBuilder()
    x = oneir.relax.Var("x", oneir.relax.TensorStructInfo((n, 8), "float32"))
    w = oneir.relax.Var("w", oneir.relax.TensorStructInfo((8, 4), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            output = builder.emit_output(oneir.relax.op.nn.softmax(oneir.relax.op.matmul(x, w)))
        builder.emit_func_output(output)
    machine = oneir.relax.VirtualMachine(oneir.relax.build(builder.get(), "cuda"), oneir.cuda(1))
    for count in (3, 0, 70, 3):
        rows, weight = numbers(count * 8).reshape(count, 8), numbers(32, 1).reshape(8, 4)
        found = machine["main"](on_device(rows, 1), on_device(weight, 1)).numpy()
        exponential = np.exp(rows @ weight)
        np.testing.assert_allclose(found, exponential / exponential.sum(1, keepdims=True), rtol=1e-5)


def reverse_through_shared(step):
    """With dynamic shared memory of 255 * step + 1 numbers."""
    size = 255 * step + 1

    @T.prim_func
    def reverse(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
        T.func_attr({"global_symbol": "reverse"})
        for i in T.thread_binding(1, "blockIdx.x"):
            with T.block("root"):
                T.reads(A[0:256])
                T.writes(B[0:256])
                S = T.alloc_buffer((size,), "float32", scope="shared.dyn")
                for j in T.thread_binding(256, "threadIdx.x"):
                    with T.block("s"):
                        v = T.axis.spatial(256, j)
                        S[v * step] = A[v]
                for j in T.thread_binding(256, "threadIdx.x"):
                    with T.block("b"):
                        v = T.axis.spatial(256, j)
                        B[v] = S[(255 - v) * step]

    return oneir.build(reverse, target=Target("cuda", host="llvm"))


def test_more_than_48_kib_of_dynamic_shared_memory(stub):
    a, b = on_device(numbers(256)), on_device(np.zeros(256, "float32"))
    reverse_through_shared(100)["reverse"](a, b)
    np.testing.assert_array_equal(b.numpy(), numbers(256)[::-1])


@pytest.mark.parametrize("name", ["scale.so", "scale.bin"])
def test_programs_are_saved_and_loaded(stub, tmp_path, name):
    built(scale).export_library(tmp_path / name)
    y = on_device(np.zeros(100, "float32"))
    load_module(tmp_path / name)["scale"](on_device(numbers()), y, 2.0, 1)
    np.testing.assert_array_equal(y.numpy(), numbers() * 2 + 1)


def test_programs_go_with_the_modules_that_own_them(stub, tmp_path):
    def programs():
        gc.collect()
        return stub.live()["programs"]

    before, launches = programs(), len(launch._of_launches)
    built(scale).export_library(tmp_path / "scale.so")
    for make in (lambda: built(scale), lambda: load_module(tmp_path / "scale.so")):
        x = on_device(numbers()), on_device(numbers(), 1)
        one, other = make(), make()
        for lib in (one, other):
            for tensor in x:
                lib["scale"](tensor, tensor, 1.0, 0)
        assert programs() == before + 2  # one text, on two devices
        del one
        other["scale"](x[0], x[0], 1.0, 0)
        np.testing.assert_array_equal(x[0].numpy(), numbers())
        assert programs() == before + 2
        del other, lib
        assert programs() == before
        assert len(launch._of_launches) == launches


def test_launches_enter_no_python_function(stub):
    def steps(count):
        builder = oneir.relax.BlockBuilder()
        value = oneir.relax.Var("x", oneir.relax.TensorStructInfo((1000,), "float32"))
        kernel = builder.add_func(through_memory.without_attr("global_symbol").with_attr("op_pattern", 8), "step")
        with builder.function("main", [value]):
            with builder.dataflow():
                for _ in range(count):
                    value = builder.emit(oneir.relax.op.call_tir(kernel, (value,), value.struct_info))
                output = builder.emit_output(value)
            builder.emit_func_output(output)
        return oneir.relax.VirtualMachine(oneir.relax.build(builder.get(), "cuda"), oneir.cuda(1))["main"]

    def frames(main):
        x, entered = on_device(numbers(1000), 1), []
        main(x)
        sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
        try:
            main(x)
        finally:
            sys.setprofile(None)
        return len(entered)

    assert frames(steps(1)) == frames(steps(20))  # those that allocate the result


# -- compiling --


def test_programs_are_compiled_for_the_device(stub):
    lib, x = built(scale), on_device(numbers())
    lib["scale"](x, x, 1.0, 0)
    stub.library.stub_is(9, 0, 1)
    other = built(scale)
    y = on_device(numbers(), 1)
    other["scale"](y, y, 1.0, 0)
    assert stub.compiled_for == ["sm_80", "sm_90"]


@needs_nvrtc
def test_nvrtc_makes_machine_code_or_ptx():
    code = 'extern "C" __global__ void f(float* x) { x[0] = 1.0f; }'
    compile_program = get_global_func("tvm_callback_cuda_compile")
    assert compile_program(code, Target({"kind": "cuda", "arch": "sm_80"})).startswith(b"\x7fELF")
    assert compile_program(code, Target({"kind": "cuda", "arch": "sm_90"})).startswith(b"\x7fELF")
    assert b".entry f" in compile_program(code, Target({"kind": "cuda", "arch": "sm_199"}))
    with pytest.raises(CompileError, match=r"NVRTC compiles for sm_\d+ and newer, not for sm_20; install an older one"):
        compile_program(code, Target({"kind": "cuda", "arch": "sm_20"}))


def test_what_the_device_does_not_take(stub):
    lib, x = built(scale), on_device(numbers())
    stub.fail("cuModuleLoadData", 209)
    message = r"cuda:0 \(stub 0, compute capability 8.0\) does not take the compiled program: .*NO_BINARY_FOR_GPU"
    with pytest.raises(CompileError, match=message):
        lib["scale"](x, x, 1.0, 0)
    lib["scale"](x, x, 2.0, 0)  # the next try works
    np.testing.assert_array_equal(x.numpy(), numbers() * 2)


def test_a_compiler_of_the_users_must_return_code(stub):
    register_func("tvm_callback_cuda_compile", lambda code, target: 7, override=True)
    lib, x = built(scale), on_device(numbers())
    with pytest.raises(TypeMismatch, match="`tvm_callback_cuda_compile` returned a int; expected PTX or machine code"):
        lib["scale"](x, x, 1.0, 0)


# -- limits --


def filling(threads, blocks=1, axis="x"):
    @T.prim_func
    def fill(A: T.Buffer((1 << 20,), "float32")):
        T.func_attr({"global_symbol": "fill"})
        for b in T.thread_binding(blocks, thread=f"blockIdx.{axis}"):
            for i in T.thread_binding(threads, thread=f"threadIdx.{axis}"):
                with T.block("a"):
                    v = T.axis.spatial(1 << 20, b * threads + i)
                    T.where(b * threads + i < 1 << 20)
                    A[v] = T.float32(1)

    return oneir.build(fill, target=Target("cuda", host="llvm"))


@pytest.mark.parametrize(
    "threads, blocks, axis, message",
    [
        (2048, 1, "x", "with 1×1×1 blocks of 2048×1×1 threads: 2048 threads along x are over the limit of 1024"),
        (128, 1, "z", "128 threads along z are over the limit of 64"),
        (1, 70000, "y", "70000 blocks along y are over the limit of 65535"),
    ],
)
def test_a_launch_over_the_limits_is_refused_before(stub, threads, blocks, axis, message):
    a = on_device(np.zeros(1 << 20, "float32"))
    with pytest.raises(DeviceError, match=rf"`fill_kernel` cannot be launched on cuda:0 .*{message}"):
        filling(threads, blocks, axis)["fill"](a)
    assert not a.numpy().any()


def test_shared_memory_over_the_limit_is_refused_before(stub):
    a, b = on_device(numbers(256)), on_device(np.zeros(256, "float32"))
    message = "`reverse_kernel` cannot .* 204004 bytes of dynamic shared memory are over the limit of 166912"
    with pytest.raises(DeviceError, match=message):
        reverse_through_shared(200)["reverse"](a, b)
    assert not b.numpy().any()


# -- tiles of tensors --


@T.prim_func
def tile(A: T.Buffer((24, 72), "float16"), B: T.Buffer((8, 64), "uint16")):
    T.func_attr({"global_symbol": "tile"})
    barriers = T.alloc_buffer((1,), "uint64", scope="shared")
    shared = T.alloc_buffer((512,), "uint16", scope="shared.dyn")
    A_map: T.handle("uint64", "grid_constant") = T.cuda_tensor_map(A.data, 2, 72, 24, 1, 144, 3456, 64, 8, 1)
    for _ in T.thread_binding(1, "blockIdx.x"):
        for thread in T.thread_binding(32, "threadIdx.x"):
            if thread == 0:
                T.ptx_mbarrier_init(barriers.data, 0, 1)
                T.ptx_fence_proxy_async()
                T.ptx_mbarrier_arrive_expect_tx(barriers.data, 0, 1024)
                T.ptx_cp_async_bulk_tensor(shared.data, 0, A_map, barriers.data, 0, 8, 16, 0)
            T.tvm_storage_sync("shared")
            T.ptx_mbarrier_wait(barriers.data, 0, 0)
            for n in range(16):
                B[thread // 4, thread % 4 * 16 + n] = shared[thread * 16 + n]


def test_a_launch_makes_maps_of_tensors(stub):
    lib = oneir.build(tile, Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm"))
    a = np.random.default_rng(0).standard_normal((24, 72)).astype("float16")
    for number in (0, 1):
        x, b = on_device(a, number), on_device(np.zeros((8, 64), "uint16"), number)
        lib["tile"](x, b)
        pieces = b.numpy().view("float16").reshape(8, 8, 8)
        rows = np.stack([pieces[r, np.arange(8) ^ r].ravel() for r in range(8)])
        np.testing.assert_array_equal(rows, a[16:, 8:])
    stub.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(DeviceError, match=r"`tile_kernel` cannot be launched on cuda:1 .*INVALID_VALUE"):
        lib["tile"](x, b)
    lib["tile"](x, b)


def test_a_driver_that_makes_no_maps(stub, monkeypatch):
    monkeypatch.setattr(
        CudaApi, "has_tensor_maps", property(lambda self: False, lambda self, value: None), raising=False
    )
    lib = oneir.build(tile, Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm"))
    a, b = on_device(np.zeros((24, 72), "float16")), on_device(np.zeros((8, 64), "uint16"))
    message = "`tile_kernel` copies tiles of tensors, for which the driver of cuda:0 is too old; .* CUDA 12.0 or newer"
    with pytest.raises(DeviceError, match=message):
        lib["tile"](a, b)


# -- what fails --


def test_a_launch_that_fails_names_the_kernel(stub):
    lib, x = built(scale), on_device(numbers())
    lib["scale"](x, x, 1.0, 0)
    stub.fail("cuLaunchKernel", 701)
    with pytest.raises(DeviceError, match=r"`scale_kernel` cannot be launched on cuda:0 .*LAUNCH_OUT_OF_RESOURCES"):
        lib["scale"](x, x, 2.0, 0)
    lib["scale"](x, x, 3.0, 0)
    np.testing.assert_array_equal(x.numpy(), numbers() * 3)


def test_a_device_that_is_lost(stub):
    lib, x, other = built(scale), on_device(numbers()), on_device(numbers(), 1)
    lib["scale"](x, x, 1.0, 0)
    stub.library.stub_lose(0, 700)
    with pytest.raises(DeviceError, match=r"cuda:0, .*ILLEGAL_ADDRESS\); what was launched before may have failed"):
        x.numpy()
    for use in (oneir.cuda(0).sync, lambda: on_device(numbers()), lambda: x.copyfrom(numbers())):
        with pytest.raises(
            DeviceError, match=r"cuda:0 cannot be used any more: .*ILLEGAL_ADDRESS.*start the process anew"
        ):
            use()
    with pytest.raises(DeviceError, match=r"`scale_kernel` cannot be launched on cuda:0 .*ILLEGAL_ADDRESS"):
        lib["scale"](x, x, 1.0, 0)
    assert drivers.find_driver(2).memory_in_use(0) == 0
    np.testing.assert_array_equal(other.numpy(), numbers())  # the other device goes on
    lib["scale"](other, other, 2.0, 0)
    np.testing.assert_array_equal(other.numpy(), numbers() * 2)
    del x, lib
    gc.collect()


def test_a_kernel_that_fails_while_it_runs_is_told_by_who_waits(stub):
    lib, x = built(scale), on_device(numbers())
    lib["scale"](x, x, 1.0, 0)
    x.numpy()
    lib["scale"](x, x, 1.0, 0)
    stub.library.stub_lose(0, 719)
    with pytest.raises(DeviceError, match=r"cuda:0, waiting for it: .*LAUNCH_FAILED\); what was launched before"):
        oneir.cuda(0).sync()


def test_tensors_elsewhere_are_refused(stub):
    lib, x = built(scale), on_device(numbers())
    with pytest.raises(DeviceError, match="argument 0 `X` of `scale`: expected a tensor on cuda, found one on cpu:0"):
        lib["scale"](oneir.runtime.tensor(numbers()), x, 1.0, 0)
    with pytest.raises(InvalidValue, match="`Y`: expected a tensor on the same cuda as the first"):
        lib["scale"](x, on_device(numbers(), 1), 1.0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_of_fork_is_told_so(stub):
    lib, x = built(scale), on_device(numbers())
    lib["scale"](x, x, 1.0, 0)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            x.numpy()
        except DeviceError as error:
            os.write(writing, str(error).encode())
        del x, lib
        gc.collect()
        os.write(writing, b" done")
        os._exit(0)
    os.waitpid(child, 0)
    text = os.read(reading, 4096).decode()
    assert "cuda cannot be used in a child of `fork` if its parent has used it; start the process by" in text
    assert text.endswith(" done")


def test_a_program_without_its_device(stub):
    """It is compiled anywhere; to run it, its device must be there."""
    builder, x = oneir.relax.BlockBuilder(), oneir.relax.Var("x", oneir.relax.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(oneir.relax.op.exp(x)))
    executable = oneir.relax.build(builder.get(), "cuda")
    with_device = drivers.replace_driver(2, oneir.runtime.cuda_driver.Cuda(("no-such-library.so",)))
    try:
        for use in (lambda: on_device(numbers()), lambda: oneir.relax.VirtualMachine(executable, oneir.cuda())["main"]):
            with pytest.raises(DeviceError, match=r"cuda:0 .*no GPU of NVIDIA's was found; install its driver"):
                use()
    finally:
        drivers.replace_driver(2, with_device)
    machine = oneir.relax.VirtualMachine(executable, oneir.cuda())
    np.testing.assert_allclose(machine["main"](on_device(numbers(4))).numpy(), np.exp(numbers(4)), rtol=1e-6)


def test_a_program_without_the_kernel_is_not_kept(stub):
    x, y = on_device(numbers()), on_device(numbers())
    before, program = stub.live()["programs"], built(scale)
    for _ in range(2):
        stub.fail("cuModuleGetFunction", 500)
        with pytest.raises(DeviceError, match="looking for the kernel"):
            program["scale"](x, y, 2.0, 1)
    program["scale"](x, y, 2.0, 1)
    np.testing.assert_allclose(y.numpy(), numbers() * 2 + 1, rtol=1e-6)
    del program
    gc.collect()
    assert stub.live()["programs"] == before
