"""Vulkan devices: memory in pieces, copies, launches, events, and every way in which these fail."""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import replace
from functools import partial

import devices
import ml_dtypes
import numpy as np
import pytest
from devices import needs_vulkan
from languages import graph

import oneir
from oneir import relax
from oneir.runtime import launch, load_module
from oneir.runtime.driver import find_driver
from oneir.runtime.error import CompileError, DeviceError, ShapeMismatch, UnsupportedError
from oneir.runtime.vulkan import Vulkan
from oneir.runtime.vulkan_memory import Heap, Piece
from oneir.script import tir as T
from oneir.target import Target

pytestmark = needs_vulkan

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64")


def on_device(array):
    return oneir.runtime.tensor(array, oneir.vulkan())


built = partial(devices.built, kind="vulkan")


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
    assert tensor.device == oneir.vulkan() and tensor.dtype == dtype
    np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(tensor.copyto(oneir.cpu()).numpy(), array)


@pytest.mark.parametrize("source, target, count", [(0, 1, 3), (1, 0, 6), (3, 2, 1), (2, 5, 11), (4, 8, 4), (5, 5, 0)])
def test_bytes_are_copied_from_and_to_any_place(source, target, count):
    a, b = np.arange(100, 116, dtype="uint8"), np.arange(16, dtype="uint8")
    x, y = on_device(a), on_device(b)
    driver = find_driver(7)
    assert driver is not None
    driver.copy(0, y.address + target, x.address + source, count)
    b[target : target + count] = a[source : source + count]
    np.testing.assert_array_equal(y.numpy(), b)


def test_what_is_larger_than_the_buffer_for_copies_goes_in_parts():
    array = np.random.default_rng(0).integers(0, 256, 9_000_001, dtype="uint8")
    np.testing.assert_array_equal(on_device(array).numpy(), array)


def test_memory_that_is_no_tensors_is_an_error():
    driver = find_driver(7)
    assert driver is not None
    with pytest.raises(DeviceError, match="memory of vulkan:0 is used that was given back, or that is none of it"):
        driver.copy(0, (1 << 60) + 4096, on_device(np.zeros(4, "int8")).address, 4)


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
    other = oneir.runtime.empty((2, 3), "float32", oneir.vulkan())
    tensor.copyto(other)
    np.testing.assert_array_equal(other.numpy(), tensor.numpy())
    with pytest.raises(ShapeMismatch, match=r"expected an array of shape \(2, 3\), found \(3, 2\)"):
        tensor.copyfrom(np.zeros((3, 2)))


def test_a_tensor_prints_its_values_and_is_not_read_in_place():
    tensor = on_device(np.arange(3, dtype="int32"))
    assert str(tensor) == "[0 1 2]" and repr(tensor) == "Tensor(shape=(3,), dtype=int32, device=vulkan:0)"
    with pytest.raises(DeviceError, match="cannot be read from here; copy it to the CPU"):
        tensor[0]


def test_memory_is_given_back():
    device = oneir.vulkan()
    before = device.available_global_memory
    tensor = oneir.runtime.empty((1 << 20,), "float32", device)
    assert before - device.available_global_memory == 4 << 20
    del tensor
    assert device.available_global_memory == before


def test_more_memory_than_there_is_says_how_much_was_asked_for():
    with pytest.raises(DeviceError, match=r"vulkan:0 has no memory for 4398046511104 bytes: \d+ of its \d+ bytes"):
        oneir.runtime.empty((1 << 40,), "float32", oneir.vulkan())


def test_devices_tell_what_they_are():
    device = oneir.vulkan()
    assert device.exist and not oneir.vulkan(99).exist
    assert device.device_name and device.max_threads_per_block >= 1 and device.max_shared_memory_per_block >= 1024
    assert len(device.max_thread_dimensions) == 3 and device.total_global_memory > 0 and device.warp_size == 1
    device.sync()
    assert oneir.vulkan(99).device_name is None
    with pytest.raises(DeviceError, match=r"there is no vulkan:99: this machine has \d+ such device"):
        oneir.vulkan(99).sync()


# -- programs --


def test_the_target_of_a_device_says_what_the_device_has():
    target, ask = Target.from_device("vulkan"), oneir.get_global_func("device_api.vulkan.get_target_property")
    names = [f"supports_{name}" for name in ("float16", "float64", "int8", "int16", "int64")]
    assert [target.attrs[name] for name in names] == [ask(oneir.vulkan(), name) for name in names]
    assert ask(oneir.vulkan(), "supports_dragons") is None


def test_a_kernel_runs_on_tensors_of_any_size():
    lib = built(scale)
    for n in (0, 1, 255, 256, 1000):
        x = np.arange(n, dtype="float32")
        y = on_device(np.zeros(n, "float32"))
        lib["scale"](on_device(x), y)
        np.testing.assert_array_equal(y.numpy(), 2 * x)


@pytest.mark.parametrize("name", ["scale.so", "scale.o", "scale.bin"])
def test_programs_are_saved_and_loaded(tmp_path, name):
    built(scale).export_library(tmp_path / name)
    y = on_device(np.zeros(10, "float32"))
    load_module(tmp_path / name)["scale"](on_device(np.arange(10, dtype="float32")), y)
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(10))


def test_programs_go_with_the_modules_that_own_them(tmp_path):
    driver = find_driver(7)

    def programs():
        gc.collect()
        return sum(program.kernels for program in driver._open[0].programs.values()), len(launch._of_launches)

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

    lib = oneir.build(twice, target=Target("vulkan", host="llvm"))
    a, c = on_device(np.arange(100, dtype="float32")), on_device(np.zeros(100, "float32"))
    lib["twice"](a, c)
    np.testing.assert_array_equal(c.numpy(), (np.arange(100)[::-1] + 1) * 2)
    # What the first call took is kept, and used again.
    before = oneir.vulkan().available_global_memory
    for _ in range(3):
        lib["twice"](a, c)
    assert oneir.vulkan().available_global_memory == before


# -- what fails --


def test_tensors_elsewhere_are_refused():
    lib = built(scale)
    x = oneir.runtime.tensor(np.zeros(4, "float32"))
    with pytest.raises(
        DeviceError, match=r"argument 0 `X` of `scale`: expected a tensor on vulkan, found one on cpu:0"
    ):
        lib["scale"](x, x)
    with pytest.raises(
        DeviceError, match=r"argument 1 `Y` of `scale`: expected a tensor on vulkan, found one on cpu:0"
    ):
        lib["scale"](on_device(np.zeros(4, "float32")), x)


def test_a_block_over_the_limits_is_an_error_with_the_limit():
    device = oneir.vulkan()
    threads = 2 * device.max_threads_per_block

    @T.prim_func
    def large(A: T.Buffer((100000,), "float32")):
        T.func_attr({"global_symbol": "large"})
        for i in T.thread_binding(threads, thread="threadIdx.x"):
            with T.block("a"):
                vi = T.axis.spatial(threads, i)
                A[vi] = T.float32(1)

    lib = oneir.build(large, target=Target(f"vulkan -max_threads_per_block={threads}", host="llvm"))
    a = on_device(np.zeros(100000, "float32"))
    message = rf"`large_kernel` has blocks of {threads}×1×1 threads; a block has at most {threads // 2} on vulkan:0"
    with pytest.raises(DeviceError, match=message):
        lib["large"](a)
    assert not a.numpy().any()  # the process, the device and other tensors go on


def test_a_grid_over_the_limits_is_an_error_with_the_limit():
    @T.prim_func
    def wide(a: T.handle, n: T.int32):
        T.func_attr({"global_symbol": "wide"})
        A = T.match_buffer(a, (4,), "float32")
        for b in T.thread_binding(n, thread="blockIdx.y"):
            for i in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("a"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = T.float32(1)

    lib = oneir.build(wide, target=Target("vulkan", host="llvm"))
    a = on_device(np.zeros(4, "float32"))
    with pytest.raises(
        DeviceError, match=r"with 1×2147483647×1 blocks of .* threads: a grid has at most \d+×\d+×\d+ blocks"
    ):
        lib["wide"](a, 2**31 - 1)
    assert not a.numpy().any()
    lib["wide"](a, 3)
    assert a.numpy().all()


def test_a_program_that_needs_what_the_device_lacks_names_it(monkeypatch):
    module = sys.modules[Vulkan.__module__]
    device = module._devices()[0]
    monkeypatch.setattr(module, "_devices", lambda: [replace(device, features=device.features - {"shaderFloat64"})])

    @T.prim_func
    def wide(A: T.Buffer((4,), "float64")):
        for i in T.thread_binding(4, thread="threadIdx.x"):
            A[i] = A[i] * T.float64(2)

    lib = oneir.build(wide, target=Target("vulkan", host="llvm"))
    message = r"the program of `wide_kernel` needs float64, which vulkan:0 \(.*\) does not have \(shaderFloat64\)"
    with pytest.raises(CompileError, match=message):
        lib["wide"](on_device(np.zeros(4)))


def test_a_device_that_was_lost_says_so_and_others_go_on():
    driver = Vulkan()
    address = driver.allocate(0, 1024)
    assert address >= 1 << 60
    with pytest.raises(DeviceError, match=r"vulkan:0: working: the device is lost.*VK_ERROR_DEVICE_LOST"):
        driver._check(0, -4, "working")
    assert driver.memory_in_use(0) == 0
    with pytest.raises(DeviceError, match="vulkan:0 is lost: work that it was given failed"):
        driver.sync(0)
    driver.release(0, address)
    np.testing.assert_array_equal(on_device(np.arange(5)).numpy(), np.arange(5))


def test_more_arguments_than_are_pushed_lie_in_memory():
    arrays = [np.random.default_rng(i).random((4, 5), dtype="float32") for i in range(20)]
    mod = graph(lambda *xs: relax.op.concat(list(xs), 0), *arrays)
    machine = relax.VirtualMachine(relax.build(mod, "vulkan"), oneir.vulkan())
    for _ in range(2):
        found = machine["main"](*map(on_device, arrays)).numpy()
        np.testing.assert_array_equal(found, np.concatenate(arrays))


def test_many_launches_are_recorded_before_they_are_done():
    lib, x = built(scale), on_device(np.ones(64, "float32"))
    for _ in range(100):
        lib["scale"](x, x)
    np.testing.assert_array_equal(x.numpy(), np.full(64, 2.0**100, "float32"))


def test_events_measure_time_on_the_device():
    driver, lib, x = find_driver(7), built(scale), on_device(np.ones(1 << 20, "float32"))
    assert driver is not None and driver.has_events
    begin = driver.record_event(0)
    for _ in range(20):
        lib["scale"](x, x)
    end = driver.record_event(0)
    assert 0 < driver.elapsed(0, begin, end) < 60
    for event in (begin, end):
        driver.free_event(0, event)


def test_there_are_no_streams():
    with pytest.raises(UnsupportedError, match="vulkan has no streams besides the default one"):
        oneir.vulkan().create_raw_stream()
    with pytest.raises(UnsupportedError, match="vulkan:0 has no streams besides the default one"):
        oneir.vulkan().set_raw_stream(7)


# -- the heap --


def test_parts_of_memory_are_used_again_and_joined():
    made, dropped, done = [], [], [0]

    def make(nbytes):
        if nbytes > 64 << 20:
            return None
        made.append(Piece(len(made), 0, (len(made) + 1) << 32, nbytes))
        return made[-1]

    heap = Heap(make, dropped.append, lambda: 5)

    def alloc(nbytes):
        return heap.alloc(nbytes, lambda: done[0], lambda: None)

    rng, live, taken = np.random.default_rng(0), {}, set()
    for _ in range(2000):
        if live and rng.random() < 0.5:
            address = list(live)[rng.integers(len(live))]
            taken -= set(range(address, address + live.pop(address), 256))
            heap.free(address)
        else:
            size = int(rng.integers(1, 1 << 16))
            address = alloc(size)
            size = -(-size // 256) * 256
            grains = set(range(address, address + size, 256))
            assert address % 256 == 0 and not grains & taken
            live[address], taken = size, taken | grains
    for address in live:
        heap.free(address)
    idle = [piece for piece in made if piece not in dropped]
    heap.reap(4)
    assert not dropped
    heap.reap(5)
    assert len(idle) - len(dropped) == 1 and all(piece.free == [(0, piece.nbytes)] for piece in made)
    large = alloc(40 << 20)
    assert large is not None and alloc(65 << 20) is None
    heap.free(large)
    done[0] = 5
    assert alloc(40 << 20) is not None and dropped[-1].nbytes == 40 << 20
