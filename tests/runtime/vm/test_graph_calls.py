"""Programs whose launches are captured: what they compute, how often they launch, and what happens when they cannot.

The stub of CUDA's driver runs what a graph has captured, and counts uses of what is freed.
"""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_stub import Stub, needs_stub, stubbed

import oneir
from oneir import relax, tir
from oneir.relax import op
from oneir.runtime.error import DeviceError, OneIRError, UnsupportedError
from oneir.runtime.vm import graph_calls

pytestmark = needs_stub

N = tir.Var("n", "int64")
rng = np.random.default_rng(2)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stubbed() as found:
        oneir.cuda().sync()  # which opens the device
        streams = found.live()["streams"]
        yield found
        gc.collect()
        live = found.live()
        assert (live["graphs"], live["graph executables"], live["streams"]) == (0, 0, streams)


def layers(x: Any, w: Any, b: Any) -> Any:
    """Four kernels, of which the last sorts, by several launches and temporary memory."""
    return op.sort(op.nn.softmax(op.add(op.matmul(x, w), b), axis=-1))


def program(build: Any = layers, shapes: Any = ((N, 8), (8, 300), (300,)), graphs: bool = True, device: int = 0) -> Any:
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(shape, "float32")) for i, shape in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(build(*params))
        bb.emit_func_output(out)
    with oneir.transform.PassContext(config={"relax.backend.use_cuda_graph": graphs}):
        executable = relax.build(bb.get(), "cuda")
    return relax.VirtualMachine(executable, oneir.cuda(device))


def arrays(rows: int = 3) -> list[np.ndarray]:
    return [rng.standard_normal(shape).astype("float32") for shape in ((rows, 8), (8, 300), (300,))]


def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    e = np.exp((y := x @ w + b) - y.max(-1, keepdims=True))
    return np.sort(e / e.sum(-1, keepdims=True))


def on_device(*values: np.ndarray) -> list[Any]:
    return [oneir.runtime.tensor(value, oneir.cuda()) for value in values]


def counted(stub: Stub, call: Any) -> tuple[Any, int, int]:
    """The result, and how many kernels and graphs the call launched."""
    before = stub.library.stub_direct_launches(), stub.library.stub_graph_launches()
    result = call()
    return result, stub.library.stub_direct_launches() - before[0], stub.library.stub_graph_launches() - before[1]


def close(found: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_the_second_call_of_a_shape_is_one_launch(stub):
    main, values = program()["main"], arrays()
    given = on_device(*values)
    first, kernels, graphs = counted(stub, lambda: main(*given))
    assert kernels > 4 and graphs == 0
    for _ in range(3):
        again, kernels, graphs = counted(stub, lambda: main(*given))
        assert (kernels, graphs) == (0, 1)
        close(again, expected(*values))
    close(first, expected(*values))


def test_results_are_the_callers_own(stub):
    main, values = program()["main"], arrays()
    given = on_device(*values)
    results = [main(*given) for _ in range(4)]
    given[0].copyfrom(np.zeros_like(values[0]))
    zeros = main(*given)
    for result in results:
        close(result, expected(*values))
    close(zeros, expected(np.zeros_like(values[0]), *values[1:]))


def test_arguments_that_move_are_copied_and_those_that_stay_are_not(stub):
    main, values = program()["main"], arrays()
    weights = on_device(*values[1:])
    main(*on_device(values[0]), *weights)
    keep = []
    for i in range(4):
        x = arrays()[0]
        keep += on_device(x)
        found, kernels, graphs = counted(stub, lambda: main(keep[-1], *weights))
        assert (kernels, graphs) == (0, 1)
        close(found, expected(x, *values[1:]))
        assert i == 0 or stub.live()["graph executables"] == 1
    # All of them may move at once.
    values = arrays()
    close(main(*on_device(*values)), expected(*values))


def test_another_shape_is_captured_anew_and_the_first_stays(stub):
    main = program()["main"]
    for rows, launches in ((3, 0), (5, 0), (3, 1), (5, 1), (3, 1), (0, 0)):
        values = arrays(rows)
        found, _, graphs = counted(stub, lambda values=values: main(*on_device(*values)))
        assert graphs == launches
        close(found, expected(*values))
    assert stub.live()["graph executables"] == 2


def test_only_so_many_shapes_are_kept(stub, monkeypatch):
    monkeypatch.setattr(graph_calls, "LIMIT", 2)
    main = program()["main"]
    for rows in (1, 1, 2, 2, 3, 3):
        close(main(*on_device(*(values := arrays(rows)))), expected(*values))
    assert stub.live()["graph executables"] == 2


def test_without_the_option_nothing_is_captured(stub):
    main, given = program(graphs=False)["main"], on_device(*arrays())
    main(*given)
    assert counted(stub, lambda: main(*given))[2] == 0


@pytest.mark.parametrize(
    "function", ["cuStreamCreate", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
)
def test_where_nothing_can_be_captured_calls_go_on_without(stub, function):
    main, values = program()["main"], arrays()
    given = on_device(*values)
    main(*given)
    stub.fail(function, 900)
    for _ in range(3):
        found, kernels, graphs = counted(stub, lambda: main(*given))
        assert kernels > 4 and graphs == 0
        close(found, expected(*values))


def test_a_launch_that_fails_while_it_is_captured_leaves_all_well(stub):
    main, values = program()["main"], arrays()
    given = on_device(*values)
    main(*given)
    stub.fail("cuLaunchKernel", 701, after=2)
    close(main(*given), expected(*values))
    assert oneir.cuda().device_type == 2 and oneir.runtime.driver.find_driver(2).current_stream(0) == 0
    close(main(*given), expected(*values))


def test_wrong_arguments_are_refused_before_and_after(stub):
    main, values = program()["main"], arrays()
    given = on_device(*values)
    for _ in range(3):
        with pytest.raises(OneIRError, match="main"):
            main(given[0], *on_device(np.zeros((7, 300), "float32")), given[2])
        main(*given)
    with pytest.raises(OneIRError):
        main(*given[:2])


def test_a_constant_that_is_replaced_is_seen(stub):
    weight = np.eye(4, dtype="float32")
    machine = program(lambda x: op.nn.softmax(op.matmul(x, relax.const(weight))), ((N, 4),))
    main, x = machine["main"], rng.standard_normal((2, 4)).astype("float32")
    (given,) = on_device(x)
    before = [main(given).numpy() for _ in range(3)]
    executable = machine.executable
    place = next(i for i, c in enumerate(executable.program.constants) if getattr(c, "shape", None) == (4, 4))
    executable.set_constant(place, oneir.runtime.tensor(np.zeros((4, 4), "float32")))
    after = main(given).numpy()
    np.testing.assert_allclose(after, np.full((2, 4), 0.25), rtol=1e-6)
    np.testing.assert_array_equal(before[0], before[2])


def test_calls_are_not_pickled_without_their_executable(stub):
    with pytest.raises(UnsupportedError, match=r"`main` is a compiled function, .* pickle the module or the exec"):
        pickle.dumps(program()["main"])


def test_in_a_stream_of_its_own_a_call_is_not_captured(stub):
    main, values, device = program()["main"], arrays(), oneir.cuda()
    given = on_device(*values)
    main(*given), main(*given)
    device.sync()
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    try:
        found, kernels, graphs = counted(stub, lambda: main(*given))
        assert kernels > 4 and graphs == 0
        device.sync()
        close(found, expected(*values))
    finally:
        device.set_raw_stream(0)
        device.free_raw_stream(stream)


def test_memory_that_is_short_is_taken_from_graphs(stub):
    main, values = program()["main"], arrays()
    given = on_device(*values)
    main(*given), main(*given)
    stub.library.stub_capacity(stub.library.stub_in_use(0) + 64)
    half = oneir.runtime.empty((stub.library.stub_in_use(0) // 2,), "uint8", oneir.cuda())
    assert stub.live()["graph executables"] == 0
    del half
    stub.library.stub_capacity(1 << 30)
    close(main(*given), expected(*values))


def test_threads_share_a_graph(stub):
    main, wrong = program()["main"], []
    weights = arrays()[1:]
    shared = on_device(*weights)
    main(*on_device(arrays()[0]), *shared)

    def work() -> None:
        for _ in range(5):
            x = np.random.default_rng(threading.get_ident()).standard_normal((3, 8)).astype("float32")
            found = main(*on_device(x), *shared)
            if not np.allclose(found.numpy(), expected(x, *weights), rtol=1e-5, atol=1e-6):
                wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_files_say_that_launches_are_captured(stub, tmp_path):
    program().executable.export_library(tmp_path / "net.so")
    main = relax.VirtualMachine(oneir.runtime.load_module(str(tmp_path / "net.so")), oneir.cuda())["main"]
    given = on_device(*arrays())
    main(*given)
    assert counted(stub, lambda: main(*given))[1:] == (0, 1)


def test_a_graph_that_fails_on_the_device_is_an_error_and_the_device_is_lost():
    with stubbed() as stub:  # what the device had is never given back
        main = program(device=1)["main"]
        given = [oneir.runtime.tensor(value, oneir.cuda(1)) for value in arrays()]
        main(*given), main(*given)
        stub.fail("cuGraphLaunch", 719)
        with pytest.raises(DeviceError, match="cannot be used any more"):
            main(*given)
