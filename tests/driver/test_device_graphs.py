"""Graphs on OpenCL devices as host functions: what they compute, what they check, and that launches need no Python.

`benchmarks/launch.py` measures launches; with PoCL, which starts its threads for each, one takes 1.9 µs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from devices import needs_opencl
from tensor_graphs import module

import oneir
from oneir import relax, tir
from oneir.driver.stages import Stages
from oneir.ir.module import IRModule
from oneir.relax import op
from oneir.runtime import error
from oneir.script import tir as T

pytestmark = needs_opencl

N = tir.Var("n", "int64")


def machine_of(mod: IRModule, is_native: bool = True) -> relax.VirtualMachine:
    executable = relax.build(mod, "opencl")
    assert bool(executable.natives) is is_native
    return relax.VirtualMachine(executable, oneir.opencl())


def on_device(array: np.ndarray) -> oneir.runtime.Tensor:
    return oneir.runtime.tensor(array, oneir.opencl())


def rows(count: int, width: int = 8) -> np.ndarray:
    return np.random.default_rng(count).random((count, width), "float32")


def both(machine: relax.VirtualMachine, *arrays: np.ndarray) -> Any:
    """The result of the host function, which is that of bytecode."""
    args = [on_device(array) for array in arrays]
    native, bytecode = machine["main"](*args), machine.interpret("main", *args)
    pairs = zip(native, bytecode, strict=True) if isinstance(native, tuple) else [(native, bytecode)]
    for one, other in pairs:
        assert one.device == other.device == oneir.opencl()
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    return native


def softmax_of_product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    product = x @ w
    exponential = np.exp(product - product.max(1, keepdims=True))
    return exponential / exponential.sum(1, keepdims=True)


def test_static_shapes():
    machine = machine_of(module(lambda x, w: op.nn.softmax(op.matmul(x, w)), (5, 8), (8, 4)))
    x, w = rows(5), rows(8, 4)
    np.testing.assert_allclose(both(machine, x, w).numpy(), softmax_of_product(x, w), rtol=1e-5)


@pytest.fixture(scope="module")
def dynamic() -> relax.VirtualMachine:
    return machine_of(module(lambda x, w: op.nn.softmax(op.matmul(x, w)), (N, 8), (8, 4)))


def test_symbolic_shapes_and_no_rows(dynamic):
    w = rows(8, 4)
    for count in (3, 1, 0, 70, 3, 0, 2):
        result = both(dynamic, rows(count), w)
        assert result.shape == (count, 4)
        if count:
            np.testing.assert_allclose(result.numpy(), softmax_of_product(rows(count), w), rtol=1e-5)


def test_several_results_and_a_parameter():
    machine = machine_of(module(lambda x: relax.Tuple([op.exp(x), op.sum(x, axis=0), x]), (N, 8)))
    given = on_device(rows(6))
    exponential, total, same = machine["main"](given)
    assert same is given
    np.testing.assert_allclose(exponential.numpy(), np.exp(rows(6)), rtol=1e-6)
    np.testing.assert_allclose(total.numpy(), rows(6).sum(0), rtol=1e-6)
    both(machine, rows(6))


def test_a_tuple_in_the_middle():
    def build(x: Any) -> Any:
        left, right = op.split(x, 2, axis=1)[0], op.split(x, 2, axis=1)[1]
        return op.matmul(left, op.permute_dims(right))

    x = rows(5)
    result = both(machine_of(module(build, (N, 8))), x)
    np.testing.assert_allclose(result.numpy(), x[:, :4] @ x[:, 4:].T, rtol=1e-5)


def test_constants_are_on_the_device_and_can_be_replaced():
    weight, other, x = rows(8, 3), rows(4, 6).reshape(8, 3), rows(5)
    machine = machine_of(module(lambda x: op.matmul(x, relax.const(weight)), (N, 8)))
    np.testing.assert_allclose(both(machine, x).numpy(), x @ weight, rtol=1e-5)
    executable = machine.executable
    (place,) = [i for i, c in enumerate(executable.program.constants) if getattr(c, "shape", None) == (8, 3)]
    executable.set_constant(place, other)
    np.testing.assert_allclose(both(machine, x).numpy(), x @ other, rtol=1e-5)


def test_a_constant_is_returned_from_the_device():
    weight = rows(8, 3)
    machine = machine_of(module(lambda x: relax.Tuple([op.exp(x), relax.const(weight)]), (4, 8)))
    np.testing.assert_array_equal(both(machine, rows(4))[1].numpy(), weight)


def test_threads(dynamic):
    weight, wrong = rows(8, 4), []
    w = on_device(weight)

    def work(start: int) -> None:
        for count in range(start, start + 40):
            found = dynamic["main"](on_device(rows(count)), w).numpy()
            if not np.allclose(found, softmax_of_product(rows(count), weight), rtol=1e-5):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(start,)) for start in (1, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_saved_program(tmp_path):
    weight, x = rows(8, 4), rows(5)
    executable = relax.build(module(lambda x: op.nn.softmax(op.matmul(x, relax.const(weight))), (N, 8)), "opencl")
    for name in ("graph.so", "graph.tar"):
        loaded = oneir.runtime.load_module(executable.export_library(tmp_path / name))
        assert loaded.natives
        result = both(relax.VirtualMachine(loaded, oneir.opencl()), x)
        np.testing.assert_allclose(result.numpy(), softmax_of_product(x, weight), rtol=1e-5)


def test_wrong_arguments(dynamic):
    x, w = on_device(rows(3)), on_device(rows(8, 4))
    with pytest.raises(
        error.DeviceError, match="argument 0 `x0` of `main`: expected a tensor on opencl, found one on cpu"
    ):
        dynamic["main"](oneir.runtime.tensor(rows(3)), w)
    with pytest.raises(error.DeviceError, match="argument 1 `x1` of `main`: expected a tensor on opencl"):
        dynamic["main"](x, rows(8, 4))
    with pytest.raises(
        error.ShapeMismatch, match=r"argument 1 `x1` of `main`: expected shape \(8, 4\), found \(8, 5\)"
    ):
        dynamic["main"](x, on_device(rows(8, 5)))
    with pytest.raises(error.TypeMismatch, match="`main` expects 2 arguments, found 1"):
        dynamic["main"](x)


def test_a_machine_without_the_device(dynamic):
    machine = relax.VirtualMachine(dynamic.executable, oneir.cpu())
    with pytest.raises(error.DeviceError, match="`main` is compiled for opencl; the machine has only cpu:0"):
        machine["main"]


@T.prim_func(private=True)
def plus_one(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    T.func_attr({"op_pattern": 8})
    for i in range(16):
        with T.block("plus_one"):
            v = T.axis.spatial(16, i)
            B[v] = A[v] + T.float32(1)


def steps(count: int) -> IRModule:
    """As many launches as steps, none of which is fused with another."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(plus_one, "plus_one")
    value: Any = relax.Var("x", relax.TensorStructInfo((16,), "float32"))
    with builder.function("main", [value]):
        with builder.dataflow():
            for _ in range(count):
                value = builder.emit(op.call_tir(kernel, (value,), relax.TensorStructInfo((16,), "float32")))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def frames_of_a_call(machine: relax.VirtualMachine) -> int:
    """How many Python functions a call enters: profilers see callbacks of native code, too."""
    x, entered = on_device(np.zeros(16, "float32")), []
    main = machine["main"]
    main(x)  # the first launch of a kernel compiles it
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        main(x)
    finally:
        sys.setprofile(None)
    return len(entered)


def test_launches_enter_no_python_function():
    one, many = machine_of(steps(1)), machine_of(steps(50))
    np.testing.assert_array_equal(both(many, np.zeros(16, "float32")).numpy(), np.full(16, 50, "float32"))
    assert frames_of_a_call(one) == frames_of_a_call(many)  # those that allocate the result


def test_kernels_with_temporary_memory_enter_no_python_function():
    @T.prim_func(private=True)
    def through_memory(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        T.func_attr({"op_pattern": 8, "tir.is_scheduled": True})
        C = T.alloc_buffer((16,))
        for bx in T.thread_binding(16, "blockIdx.x"):
            with T.block("double"):
                v = T.axis.spatial(16, bx)
                C[v] = A[v] * T.float32(2)
        for bx in T.thread_binding(16, "blockIdx.x"):
            with T.block("turn"):
                v = T.axis.spatial(16, bx)
                B[v] = C[15 - v]

    def build(x: Any) -> Any:
        builder = relax.BlockBuilder.current()
        kernel = builder.add_func(through_memory, "through_memory")
        for _ in range(20):
            x = builder.emit(op.call_tir(kernel, (x,), relax.TensorStructInfo((16,), "float32")))
        return x

    machine, x = machine_of(module(build, (16,))), np.arange(16, dtype="float32")
    assert "oneir_alloc_device_memory" in machine.executable.library.inspect_source("host")
    np.testing.assert_array_equal(both(machine, x).numpy(), x * 2**20)
    assert frames_of_a_call(machine) == frames_of_a_call(machine_of(steps(1)))
    given = [on_device(x + i) for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for i, result in enumerate(pool.map(machine["main"], given)):
            np.testing.assert_array_equal(result.numpy(), (x + i) * 2**20)


def test_a_branch_on_a_tensor_is_bytecode():
    def build(x: Any, builder: relax.BlockBuilder) -> Any:
        return relax.If(op.greater(op.sum(x), relax.const(0.0)), op.exp(x), op.negative(x))

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((4, 8), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(build(x, builder)))
    machine = machine_of(builder.get(), is_native=False)
    np.testing.assert_allclose(machine["main"](on_device(rows(4))).numpy(), np.exp(rows(4)), rtol=1e-6)


def test_a_runtime_function_gets_tensors_of_the_device():
    seen: list[oneir.runtime.Device] = []

    @oneir.register_func("test.double_on_device", override=True)
    def double(source: oneir.runtime.Tensor, target: oneir.runtime.Tensor) -> None:
        seen.append(source.device)
        target.copyfrom(source.numpy() * 2)

    def build(x: Any) -> Any:
        made = op.call_dps_packed("test.double_on_device", (op.exp(x),), relax.TensorStructInfo((4, 8), "float32"))
        return op.negative(made)

    result = both(machine_of(module(build, (4, 8))), rows(4))
    np.testing.assert_allclose(result.numpy(), -2 * np.exp(rows(4)), rtol=1e-6)
    assert set(seen) == {oneir.opencl()}


SECOND_DEVICE = """
import numpy as np, oneir
from oneir import relax
from oneir.relax import op
builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((4, 8), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit_output(op.nn.softmax(op.matmul(x, relax.const(np.eye(8, dtype="float32")))))
    builder.emit_func_output(y)
executable = relax.build(builder.get(), "opencl")
values = np.zeros((4, 8), "float32")
for number in (1, 0, 1):
    device = oneir.opencl(number)
    result = relax.VirtualMachine(executable, device)["main"](oneir.runtime.tensor(values, device))
    assert result.device == device, result.device
    np.testing.assert_allclose(result.numpy(), np.full((4, 8), 0.125))
try:
    relax.VirtualMachine(executable, oneir.opencl(0))["main"](oneir.runtime.tensor(values, oneir.opencl(1)))
except oneir.OneIRError as error:
    print(error)
"""


def test_two_devices():
    environment = {**os.environ, "POCL_DEVICES": "basic basic"}
    found = subprocess.run([sys.executable, "-c", SECOND_DEVICE], capture_output=True, text=True, env=environment)
    if "there is no opencl:1" in found.stderr:
        pytest.skip("the OpenCL driver has one device")
    assert found.returncode == 0, found.stderr
    assert "expected a tensor on the same opencl as the first" in found.stdout


def test_the_host_function_is_shown():
    stages = Stages(module(lambda x, w: op.nn.softmax(op.matmul(x, w)), (N, 8), (8, 4)), "opencl")
    text = stages.text("kernels")
    assert "def main(" in text and '"tir.tensors_on": 4' in text and "def main__plan(" in text
    assert "__direct(" in stages.text("kernels", "main")
