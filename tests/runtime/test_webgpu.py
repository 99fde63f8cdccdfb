"""WebGPU devices: memory without addresses, launches, programs, and every way in which these fail."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial

import devices
import ml_dtypes
import numpy as np
import pytest
from devices import needs_webgpu

import oneir
from oneir import relax
from oneir.relax.frontend import nn
from oneir.runtime.driver import KernelRecord, find_driver
from oneir.runtime.error import CompileError, DeviceError, ShapeMismatch
from oneir.runtime.webgpu import WebGPU
from oneir.script import tir as T
from oneir.target import Target

pytestmark = needs_webgpu

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64")


def on_device(array):
    return oneir.runtime.tensor(array, oneir.webgpu())


built = partial(devices.built, kind="webgpu")


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
    assert tensor.device == oneir.webgpu() and tensor.dtype == dtype
    np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(tensor.copyto(oneir.cpu()).numpy(), array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_odd_shapes(shape):
    array = np.full(shape, 7, "float32")
    np.testing.assert_array_equal(on_device(array).numpy(), array)


@pytest.mark.parametrize("source, target, count", [(0, 1, 3), (1, 0, 6), (3, 2, 1), (2, 5, 11), (4, 8, 4), (5, 5, 0)])
def test_bytes_are_copied_from_and_to_any_place(source, target, count):
    a, b = np.arange(100, 116, dtype="uint8"), np.arange(16, dtype="uint8")
    x, y = on_device(a), on_device(b)
    driver = find_driver(15)
    assert driver is not None
    driver.copy(0, y.address + target, x.address + source, count)
    b[target : target + count] = a[source : source + count]
    np.testing.assert_array_equal(y.numpy(), b)


def test_memory_that_is_no_tensors_any_more_is_an_error():
    driver = find_driver(15)
    assert driver is not None
    address = driver.alloc(0, 64)
    driver.free(0, address)
    with pytest.raises(DeviceError, match="memory of a WebGPU device is used that was given back"):
        driver.copy(0, address, address, 4)


def test_copies_between_tensors_convert_and_check():
    tensor = on_device(np.zeros((2, 3), "float32"))
    tensor.copyfrom(np.arange(6).reshape(2, 3))
    other = oneir.runtime.empty((2, 3), "float32", oneir.webgpu())
    tensor.copyto(other)
    np.testing.assert_array_equal(other.numpy(), np.arange(6).reshape(2, 3))
    with pytest.raises(ShapeMismatch, match=r"expected an array of shape \(2, 3\), found \(3, 2\)"):
        tensor.copyfrom(np.zeros((3, 2)))


def test_more_memory_than_a_buffer_has_says_how_much_was_asked_for():
    with pytest.raises(DeviceError, match=r"has no memory for 4398046511104 bytes: a buffer has at most \d+ bytes"):
        oneir.runtime.empty((1 << 40,), "float32", oneir.webgpu())


def test_devices_tell_what_they_are():
    device = oneir.webgpu()
    assert device.exist and not oneir.webgpu(99).exist
    assert device.device_name and device.compute_version and device.warp_size == 1
    assert device.max_threads_per_block >= 256 and device.max_shared_memory_per_block >= 16384
    assert len(device.max_thread_dimensions) == 3 and device.max_clock_rate is None
    device.sync()
    with pytest.raises(DeviceError, match=r"there is no webgpu:99: this machine has \d+ such device"):
        oneir.webgpu(99).sync()


# -- programs --


def test_looking_for_devices_prints_nothing_where_there_is_no_desktop():
    program = (
        "import os, oneir; from oneir.runtime.driver import find_driver\n"
        "count = find_driver(oneir.webgpu().device_type).count()\n"
        "print(count > 0, 'NODEVICE_SELECT' in os.environ)"
    )
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "NODEVICE"))}
    done = subprocess.run([sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_a_kernel_runs_on_tensors_of_any_size():
    lib = built(scale)
    for n in (0, 1, 255, 256, 1000):
        x = np.arange(n, dtype="float32")
        y = on_device(np.zeros_like(x))
        lib["scale"](on_device(x), y)
        np.testing.assert_array_equal(y.numpy(), x * 2)


def test_one_buffer_may_be_read_and_written_by_one_launch():
    x = on_device(np.arange(300, dtype="float32"))
    built(scale)["scale"](x, x)
    np.testing.assert_array_equal(x.numpy(), np.arange(300, dtype="float32") * 2)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(20, 33), nn.Linear(33, 17), nn.Linear(17, 3)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.softmax(self.third(nn.op.silu(self.second(nn.op.relu(self.first(x))))))


@pytest.mark.parametrize("batch", [5, "n"])
def test_a_network_whose_tensors_share_an_arena(batch):
    mod, named = Perceptron().export_tvm({"forward": {"x": nn.spec.Tensor((batch, 20), "float32")}})
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=p.shape).astype("float32") for _, p in named]
    x = rng.normal(size=(5, 20)).astype("float32")
    arguments = [x, *weights]
    results = []
    for target, device in (("webgpu", oneir.webgpu()), ("llvm", oneir.cpu())):
        vm = relax.VirtualMachine(relax.build(mod, target), device)
        results.append(vm["forward"](*[oneir.runtime.tensor(a, device) for a in arguments]).numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)


def test_a_saved_library_runs(tmp_path):
    path = tmp_path / "scale.o"
    built(scale).export_library(path)
    lib = oneir.runtime.load_module(path)
    y = on_device(np.zeros(9, "float32"))
    lib["scale"](on_device(np.arange(9, dtype="float32")), y)
    np.testing.assert_array_equal(y.numpy(), np.arange(9, dtype="float32") * 2)


def test_threads_launch_at_once():
    lib, found = built(scale), {}

    def work(i):
        y = on_device(np.zeros(100, "float32"))
        for _ in range(5):
            lib["scale"](on_device(np.full(100, i, "float32")), y)
        found[i] = y.numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((found[i] == 2 * i).all() for i in range(4))


# -- failures --


def test_a_text_that_the_device_does_not_take_shows_what_it_says():
    driver = find_driver(15)
    assert isinstance(driver, WebGPU)
    with pytest.raises(CompileError, match=r"webgpu:0 does not take the program:(?s:.*)unknown identifier"):
        driver._module(0, KernelRecord("f", "fn f() -> i32 { return missing; }", "", []))


def test_more_blocks_than_a_grid_has():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32")):
        for b in T.thread_binding(70000, "blockIdx.x"):
            for i in T.thread_binding(64, "threadIdx.x"):
                A[i] = T.float32(1)

    lib = oneir.build(f, Target("webgpu", host="llvm"))
    with pytest.raises(DeviceError, match=r"70000×1×1 blocks of 64×1×1 threads: a grid has at most \d+ blocks in each"):
        lib["f"](on_device(np.zeros(64, "float32")))


def test_numbers_of_more_than_32_bits():
    @T.prim_func
    def f(A: T.Buffer((64,), "int32"), n: T.int64):
        for i in T.thread_binding(64, "threadIdx.x"):
            with T.block("f"):
                j = T.axis.spatial(64, i)
                A[j] = T.Cast("int32", n + T.Cast("int64", j))

    lib, tensor = oneir.build(f, Target("webgpu", host="llvm")), on_device(np.zeros(64, "int32"))
    lib["f"](tensor, 7)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(64) + 7)
    lib["f"](tensor, -7)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(64) - 7)
    with pytest.raises(
        DeviceError, match="a number that it takes needs more than the 32 bits that WebGPU's integers have"
    ):
        lib["f"](tensor, 1 << 40)


def test_tensors_of_another_device_are_refused():
    with pytest.raises(DeviceError, match=r"expected .*webgpu"):
        built(scale)["scale"](oneir.runtime.tensor(np.zeros(3, "float32")), on_device(np.zeros(3, "float32")))
