"""Streams and events: what is in order, what is not, and that memory is not used again too soon.

The stub does work only when somebody waits for it, and alternates between streams when it is told to; so an order that
nobody asked for is missing, and memory that two streams share is spoilt.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from cuda_stub import Stub, needs_stub, stubbed
from devices import needs_opencl

import oneir
from oneir import dlight as dl
from oneir import relax
from oneir.relax import op
from oneir.runtime import driver as drivers
from oneir.runtime.error import InvalidValue, UnsupportedError
from oneir.script import tir as T
from oneir.target import Target


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stubbed() as found:
        yield found


@T.prim_func
def double(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "double"})
    for i in range(64):
        with T.block("y"):
            vi = T.axis.spatial(64, i)
            Y[vi] = X[vi] * T.float32(2)


@T.prim_func
def through_memory(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "through_memory", "tir.is_scheduled": True})
    B = T.alloc_buffer((64,), "float32")
    for i in T.thread_binding(64, "blockIdx.x"):
        with T.block("b"):
            vi = T.axis.spatial(64, i)
            B[vi] = X[vi] * T.float32(2)
    for i in T.thread_binding(64, "blockIdx.x"):
        with T.block("c"):
            vi = T.axis.spatial(64, i)
            Y[vi] = B[63 - vi]


def built(func, kind="cuda"):
    target = Target(kind, host="llvm")
    with target:
        mod = dl.ApplyDefaultSchedule(dl.gpu.Fallback())(oneir.ir.IRModule({"main": func}))
    return oneir.build(mod, target=target)[func.attrs["global_symbol"]]


def graph():
    """x -> ((x @ x) @ x) @ x: kernels whose intermediate results are in the arena."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.matmul(x, x))
            y = builder.emit(op.matmul(y, x))
            y = builder.emit_output(op.matmul(y, x))
        builder.emit_func_output(y)
    return relax.VirtualMachine(relax.build(builder.get(), "cuda"), oneir.cuda())


def values(seed=0):
    return np.random.default_rng(seed).random(64, dtype="float32")


def tensor(array, device=None):
    return oneir.runtime.tensor(array, device or oneir.cuda())


@needs_stub
def test_a_launch_goes_into_the_threads_stream(stub):
    run, device, x, y = built(double), oneir.cuda(), tensor(values()), tensor(values())
    run(x, y)
    device.sync()
    stream = device.create_raw_stream()
    before = stub.library.stub_launches()
    device.set_raw_stream(stream)
    run(x, y)
    assert device.current_raw_stream() == stream
    device.set_raw_stream(None)
    assert device.current_raw_stream() == 0
    device.sync()
    assert stub.library.stub_launches() == before  # nobody waits for the stream
    device.sync(stream)
    assert stub.library.stub_launches() == before + 1
    device.free_raw_stream(stream)


@needs_stub
def test_each_thread_and_each_device_has_its_own(stub):
    device, seen = oneir.cuda(1), []
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    thread = threading.Thread(target=lambda: seen.append(device.current_raw_stream()))
    thread.start()
    thread.join()
    assert (seen, device.current_raw_stream(), oneir.cuda(0).current_raw_stream()) == ([0], stream, 0)
    device.set_raw_stream(0)
    device.free_raw_stream(stream)


@needs_stub
def test_copies_go_into_the_threads_stream(stub):
    device = oneir.cuda()
    stream = device.create_raw_stream()
    run, x, y = built(double), tensor(values()), tensor(values())
    device.set_raw_stream(stream)
    run(x, y)
    np.testing.assert_array_equal(y.numpy(), 2 * values())  # waits for this stream
    device.set_raw_stream(0)
    device.free_raw_stream(stream)


@needs_stub
def test_memory_that_another_stream_reads_is_given_back_afterwards(stub):
    run, device, x, y = built(double), oneir.cuda(), tensor(values()), tensor(values(1))
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    run(x, y)
    device.set_raw_stream(0)
    del x
    device.sync()  # the stub overwrites what is freed
    device.sync(stream)
    np.testing.assert_array_equal(y.numpy(), 2 * values())
    device.free_raw_stream(stream)


@needs_stub
@pytest.mark.parametrize("make, expected", [(lambda: built(through_memory), lambda x: 2 * x[::-1])])
def test_temporary_memory_is_a_streams_own(stub, make, expected):
    run, device = make(), oneir.cuda()
    xs, ys = [tensor(values(seed)) for seed in (1, 2)], [tensor(values()) for _ in range(2)]
    run(xs[0], ys[0])  # the block that is kept is the default stream's
    device.sync()
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    run(xs[0], ys[0])
    device.set_raw_stream(0)
    run(xs[1], ys[1])
    stub.library.stub_alternate()
    for seed, y in zip((1, 2), ys, strict=True):
        np.testing.assert_array_equal(y.numpy(), expected(values(seed)))
    device.free_raw_stream(stream)


@needs_stub
def test_arenas_of_graphs_are_a_streams_own(stub):
    run, device = graph()["main"], oneir.cuda()
    xs = [tensor(values(seed).reshape(8, 8)) for seed in (1, 2)]
    expected = [np.linalg.matrix_power(values(seed).reshape(8, 8).astype("float64"), 4) for seed in (1, 2)]
    np.testing.assert_allclose(run(xs[0]).numpy(), expected[0], rtol=1e-5)
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    first = run(xs[0])
    device.set_raw_stream(0)
    second = run(xs[1])
    stub.library.stub_alternate()
    np.testing.assert_allclose(first.numpy(), expected[0], rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), expected[1], rtol=1e-5)
    del first, second
    device.free_raw_stream(stream)


@needs_stub
def test_another_librarys_stream(stub):
    """It may be destroyed once no thread works in it: what is freed later does not wait for it."""
    run, device, x, y = built(double), oneir.cuda(), tensor(values()), tensor(values())
    foreign = device.create_raw_stream()
    driver = drivers.find_driver(2)
    del driver._open[0].streams[foreign]  # as if another library had made it
    device.set_raw_stream(foreign)
    run(x, y)
    device.set_raw_stream(0)
    np.testing.assert_array_equal(y.numpy(), 2 * values())  # the default stream waits for what it was given
    assert driver._open[0].streams == {}
    with pytest.raises(InvalidValue, match=r"0x[0-9a-f]+ is no stream of cuda:0 that create_raw_stream made"):
        device.free_raw_stream(foreign)
    stub.library.cuStreamDestroy_v2(drivers.ctypes.c_void_p(foreign))
    del x


@needs_stub
def test_events_measure_what_is_between_them(stub):
    run, device, x, y = built(double), oneir.cuda(), tensor(values()), tensor(values())
    driver = drivers.find_driver(2)
    run(x, y)
    before = stub.live()["events"]
    begin = driver.record_event(0)
    for _ in range(3):
        run(x, y)
    end = driver.record_event(0)
    assert driver.elapsed(0, begin, end) == pytest.approx(3 * 1.5e-3 + 0.5e-3)  # the stub's clock
    for event in (begin, end):
        driver.free_event(0, event)
    assert stub.live()["events"] == before and device.exist


@needs_stub
def test_streams_are_given_back(stub):
    device, before = oneir.cuda(), None
    device.sync()
    before = stub.live()
    for _ in range(5):
        device.free_raw_stream(device.create_raw_stream())
    assert stub.live() == before
    with pytest.raises(InvalidValue, match="0x10 is no stream of cuda:0 that create_raw_stream made"):
        device.free_raw_stream(16)


def test_a_processor_has_no_streams():
    with pytest.raises(UnsupportedError, match="cpu:0 has no streams: it works synchronously"):
        oneir.cpu().create_raw_stream()
    oneir.cpu().sync()


@needs_opencl
def test_queues_of_opencl():
    device = oneir.opencl()
    run, x, y = built(double, "opencl"), tensor(values(), device), tensor(values(), device)
    streams = [device.create_raw_stream() for _ in range(2)]
    for stream in streams:
        device.set_raw_stream(stream)
        run(x, y)
        device.sync()
    device.set_raw_stream(None)
    device.sync(streams[0])
    np.testing.assert_array_equal(y.numpy(), 2 * values())
    del x  # freed after what the other queues do
    for stream in streams:
        device.free_raw_stream(stream)
    for misuse in (device.free_raw_stream, device.set_raw_stream):
        with pytest.raises(InvalidValue, match="0x10 is no stream of opencl:0 that create_raw_stream made"):
            misuse(16)


@needs_opencl
def test_events_of_opencl():
    device, driver = oneir.opencl(), drivers.find_driver(4)
    run, x, y = built(double, "opencl"), tensor(values(), device), tensor(values(), device)
    begin = driver.record_event(0)
    run(x, y)
    end = driver.record_event(0)
    assert 0 < driver.elapsed(0, begin, end) < 60
    for event in (begin, end):
        driver.free_event(0, event)


# -- times --


@needs_stub
def test_time_evaluators_use_the_devices_clock(stub):
    """The stub's clock: 1.5 ms a kernel, and 0.5 ms for the event at the end."""
    run, x, y = built(double), tensor(values()), tensor(values())
    result = oneir.runtime.benchmark.time_evaluator(run, number=4, repeat=2, device=oneir.cuda())(x, y)
    assert result.results == pytest.approx([1.5e-3 + 0.5e-3 / 4] * 2)
    live = stub.live()["events"]
    result = oneir.runtime.benchmark.time_evaluator(run, number=4, device=oneir.cuda())(x, y)
    assert stub.live()["events"] == live


@needs_stub
def test_profiles_use_the_devices_clock(stub):
    machine, x, live = graph(), tensor(values().reshape(8, 8)), stub.live()["events"]
    report = machine.profile("main", x)
    kernels = [call for call in report.calls if call["Argument Shapes"] and "matmul" in call["Name"]]
    assert len(kernels) == 3
    for call in kernels:
        assert call["Duration (us)"].microseconds == pytest.approx(2e3, rel=1e-3)  # a kernel, and the event after it
    starts = [call["Start (us)"].microseconds for call in kernels]
    assert starts == sorted(starts) and len(set(starts)) == 3
    assert stub.live()["events"] == live


@needs_opencl
def test_time_evaluators_wait_for_opencl():
    module = oneir.build(double, target=Target("opencl", host="llvm"))
    device = oneir.opencl()
    x, y = tensor(values(), device), tensor(values(), device)
    assert module.time_evaluator("double", device, number=3)(x, y).mean > 0
