"""OpenCL devices: memory, copies, launches, and every way in which these fail."""

from __future__ import annotations

import gc
import threading
from functools import partial

import devices
import ml_dtypes
import numpy as np
import pytest
from devices import needs_opencl

import oneir
from oneir.runtime import launch, load_module
from oneir.runtime.driver import find_driver
from oneir.runtime.error import CompileError, DeviceError, InvalidValue, ShapeMismatch
from oneir.script import tir as T
from oneir.target import Target

pytestmark = needs_opencl

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64")


def on_device(array):
    return oneir.runtime.tensor(array, oneir.opencl())


built = partial(devices.built, kind="opencl")


@T.prim_func
def scale(x: T.handle, y: T.handle):
    T.func_attr({"global_symbol": "scale"})
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    for i in range(n):
        with T.block("y"):
            vi = T.axis.spatial(n, i)
            Y[vi] = X[vi] * T.float32(2)


# -- memory --


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_go_there_and_back(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.random.default_rng(0).integers(0, 2, (3, 5, 7)).astype(kind)
    tensor = on_device(array)
    assert tensor.device == oneir.opencl() and tensor.dtype == dtype
    np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(tensor.copyto(oneir.cpu()).numpy(), array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_odd_shapes(shape):
    array = np.full(shape, 7, "float32")
    np.testing.assert_array_equal(on_device(array).numpy(), array)


def test_arrays_with_gaps_become_compact():
    array = np.arange(24, dtype="float32").reshape(4, 6)[::2, ::-3]
    np.testing.assert_array_equal(on_device(array).numpy(), array)


def test_copies_between_tensors_convert_and_check():
    tensor = on_device(np.zeros((2, 3), "float32"))
    tensor.copyfrom(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(tensor.numpy(), np.arange(6).reshape(2, 3))
    other = oneir.runtime.empty((2, 3), "float32", oneir.opencl())
    tensor.copyto(other)
    np.testing.assert_array_equal(other.numpy(), tensor.numpy())
    with pytest.raises(ShapeMismatch, match=r"expected an array of shape \(2, 3\), found \(3, 2\)"):
        tensor.copyfrom(np.zeros((3, 2)))


def test_a_tensor_prints_its_values_and_is_not_read_in_place():
    tensor = on_device(np.arange(3, dtype="int32"))
    assert str(tensor) == "[0 1 2]" and repr(tensor) == "Tensor(shape=(3,), dtype=int32, device=opencl:0)"
    with pytest.raises(DeviceError, match="cannot be read from here; copy it to the CPU"):
        tensor[0]


def test_memory_is_given_back():
    device = oneir.opencl()
    before = device.available_global_memory
    tensor = oneir.runtime.empty((1 << 20,), "float32", device)
    assert before - device.available_global_memory == 4 << 20
    del tensor
    assert device.available_global_memory == before


def test_more_memory_than_there_is_says_how_much_was_asked_for():
    with pytest.raises(DeviceError, match=r"opencl:0 has no memory for 4398046511104 bytes: \d+ of its \d+ bytes"):
        oneir.runtime.empty((1 << 40,), "float32", oneir.opencl())


def test_devices_tell_what_they_are():
    device = oneir.opencl()
    assert device.exist and not oneir.opencl(99).exist
    assert device.device_name and device.max_threads_per_block >= 1 and device.max_shared_memory_per_block >= 1024
    assert len(device.max_thread_dimensions) == 3 and device.total_global_memory > 0 and device.warp_size == 1
    device.sync()
    assert oneir.opencl(99).device_name is None
    with pytest.raises(DeviceError, match=r"there is no opencl:99: this machine has \d+ such device"):
        oneir.opencl(99).sync()


# -- programs --


def test_a_kernel_runs_on_tensors_of_any_size():
    lib = built(scale)
    for n in (0, 1, 255, 256, 1000):
        x = np.arange(n, dtype="float32")
        y = on_device(np.zeros(n, "float32"))
        lib["scale"](on_device(x), y)
        np.testing.assert_array_equal(y.numpy(), 2 * x)


def test_the_source_is_that_of_the_kernels():
    lib = built(scale)
    assert lib.inspect_source().count("__kernel void scale_kernel(") == 1
    assert "oneir_launch_kernel" in lib.inspect_source("host")
    with pytest.raises(InvalidValue, match='expected the format "opencl" or "host", found \'cuda\''):
        lib.inspect_source("cuda")


@pytest.mark.parametrize("name", ["scale.so", "scale.o", "scale.bin"])
def test_programs_are_saved_and_loaded(tmp_path, name):
    built(scale).export_library(tmp_path / name)
    y = on_device(np.zeros(10, "float32"))
    load_module(tmp_path / name)["scale"](on_device(np.arange(10, dtype="float32")), y)
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(10))


def test_programs_go_with_the_modules_that_own_them(tmp_path):
    driver = find_driver(4)

    def programs():
        gc.collect()
        return sum(program.kernels for program in driver._programs.values()), len(launch._of_launches)

    before = programs()
    built(scale).export_library(tmp_path / "scale.so")
    for make in (lambda: built(scale), lambda: load_module(tmp_path / "scale.so")):
        libraries, x = [make(), make()], on_device(np.zeros(10, "float32"))
        for lib in libraries:
            lib["scale"](x, x)
        del lib, libraries
        assert programs() == before


def test_many_threads_launch_one_kernel():
    lib, wrong = built(scale), []

    def work(seed):
        x = np.random.default_rng(seed).random(1000, dtype="float32")
        x_there, y = on_device(x), on_device(np.zeros(1000, "float32"))
        for _ in range(20):
            lib["scale"](x_there, y)
        if not np.array_equal(y.numpy(), 2 * x):
            wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_temporary_memory_between_kernels_is_the_devices():
    @T.prim_func
    def twice(A: T.Buffer((100,), "float32"), C: T.Buffer((100,), "float32")):
        B = T.alloc_buffer((100,), "float32")
        for i in T.parallel(100):
            with T.block("b"):
                vi = T.axis.spatial(100, i)
                B[vi] = A[vi] + T.float32(1)
        for i in T.parallel(100):
            with T.block("c"):
                vi = T.axis.spatial(100, i)
                C[vi] = B[99 - vi] * T.float32(2)

    lib = oneir.build(twice, target=Target("opencl", host="llvm"))
    a, c = on_device(np.arange(100, dtype="float32")), on_device(np.zeros(100, "float32"))
    lib["twice"](a, c)
    np.testing.assert_array_equal(c.numpy(), (np.arange(100)[::-1] + 1) * 2)
    # What the first call took is kept, and used again.
    before = oneir.opencl().available_global_memory
    for _ in range(3):
        lib["twice"](a, c)
    assert oneir.opencl().available_global_memory == before


# -- what fails --


def test_tensors_elsewhere_are_refused():
    lib = built(scale)
    x = oneir.runtime.tensor(np.zeros(4, "float32"))
    with pytest.raises(
        DeviceError, match=r"argument 0 `X` of `scale`: expected a tensor on opencl, found one on cpu:0"
    ):
        lib["scale"](x, x)
    with pytest.raises(
        DeviceError, match=r"argument 1 `Y` of `scale`: expected a tensor on opencl, found one on cpu:0"
    ):
        lib["scale"](on_device(np.zeros(4, "float32")), x)


def test_a_block_over_the_limits_is_an_error_with_the_limit():
    device = oneir.opencl()
    threads = 2 * device.max_threads_per_block

    @T.prim_func
    def large(A: T.Buffer((100000,), "float32")):
        T.func_attr({"global_symbol": "large"})
        for i in T.thread_binding(threads, thread="threadIdx.x"):
            with T.block("a"):
                vi = T.axis.spatial(threads, i)
                A[vi] = T.float32(1)

    lib = oneir.build(large, target=Target("opencl", host="llvm"))
    a = on_device(np.zeros(100000, "float32"))
    message = rf"`large_kernel` cannot be launched on opencl:0 with 1×1×1 blocks of {threads}×1×1 threads: .*at most"
    with pytest.raises(DeviceError, match=message):
        lib["large"](a)
    assert not a.numpy().any()  # the process, the device and other tensors go on


def test_a_program_that_the_devices_compiler_refuses_says_what_it_said():
    @T.prim_func
    def foreign(A: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "foreign"})
        for i in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("a"):
                vi = T.axis.spatial(4, i)
                A[vi] = T.call_pure_extern("float32", "no_such_function", A[vi])

    lib = oneir.build(foreign, target=Target("opencl", host="llvm"))
    with pytest.raises(CompileError, match="the compiler of opencl:0 does not take the program:"):
        lib["foreign"](on_device(np.zeros(4, "float32")))
