"""Graphs of which parts run on different devices: what they compute, where memory lies, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from devices import needs_opencl

import oneir
from oneir import relax
from oneir.driver.stages import Stages
from oneir.ir.module import IRModule
from oneir.runtime import error
from oneir.script import ir as I
from oneir.script import relax as R

W = np.random.default_rng(3).random((4, 5), "float32")


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[0]).random(shape, "float32")


def on_device(array: np.ndarray) -> oneir.runtime.Tensor:
    return oneir.runtime.tensor(array, oneir.opencl())


def machine_of(mod: IRModule, target: str | None = None) -> relax.VirtualMachine:
    executable = relax.build(mod, target)
    assert list(executable.natives) == ["main"], "the host's part of the graph is no native function"
    return relax.VirtualMachine(executable, [oneir.opencl(), oneir.cpu()])


def both(machine: relax.VirtualMachine, *args: Any) -> Any:
    """The result of the host function, which is that of bytecode, on the same devices."""
    native, bytecode = machine["main"](*args), machine.interpret("main", *args)
    pairs = zip(native, bytecode, strict=True) if isinstance(native, tuple) else [(native, bytecode)]
    for one, other in pairs:
        assert one.device == other.device
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    return native


@I.ir_module
class TwoParts:
    I.module_global_infos({"vdevice": [I.vdevice("opencl"), I.vdevice("llvm")]})

    @R.function
    def main(
        x: R.Tensor(("n", 3), "float32", "llvm:0"), y: R.Tensor((3, 4), "float32"), z: R.Tensor((4, 5), "float32")
    ):
        with R.dataflow():
            a = R.exp(R.matmul(x, y))
            b = R.to_vdevice(a, "opencl:0")
            c = R.matmul(R.exp(b), z)
            R.output(c)
        return c


@needs_opencl
@pytest.mark.parametrize("target", [None, "llvm", "opencl"])
def test_a_part_on_each_device(target):
    machine = machine_of(TwoParts, target)
    for count in (2, 33, 1):
        x, y, z = rows(count, 3), rows(3, 4), rows(4, 5)
        result = both(machine, x, y, on_device(z))
        assert result.device == oneir.opencl()
        np.testing.assert_allclose(result.numpy(), np.exp(np.exp(x @ y)) @ z, rtol=1e-5)


def test_memory_and_kernels_are_those_of_each_device():
    stages = Stages(TwoParts, "opencl")
    planned = stages.text("planned")
    # R.exp is one kernel per kind of device, fused with what it follows on the host only.
    assert "fused_matmul_tir_exp_llvm" in planned and "tir_exp_llvm" in planned
    assert planned.count("R.vm.alloc_storage(") == 3, "an arena for each device, and the result"
    assert '"vm.builtin.copy_to"' in planned
    kernels = stages.module("kernels")
    targets = {v.name_hint: str(f.attrs["target"].kind) for v, f in kernels.functions.items() if "target" in f.attrs}
    assert targets == {"fused_matmul_tir_exp_llvm__direct": "llvm", "main": "llvm", "main__plan": "llvm"}


@needs_opencl
def test_code_is_shown_by_target():
    executable = relax.build(TwoParts, "opencl")
    text = executable.library.inspect_source("opencl")
    assert "__kernel" in text and "fused_matmul" not in text
    assert "fused_matmul_tir_exp_llvm" in executable.library.inspect_source("asm")


@needs_opencl
def test_results_on_different_devices_and_a_function_on_both():
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("opencl")]})

        @R.function
        def main(x: R.Tensor((6, 4), "float32")):
            with R.dataflow():
                h = R.hint_on_device(x, oneir.cpu())
                parts = R.split(R.exp(h), 2)
                first = R.exp(R.hint_on_device(parts[0], oneir.opencl()))
                second = R.exp(parts[1])
                back = R.add(second, R.hint_on_device(first, oneir.cpu()))
                R.output(first, back)
            return first, back

    x = rows(6, 4)
    first, back = both(machine_of(Module), x)
    assert (first.device, back.device) == (oneir.opencl(), oneir.cpu())
    wanted = np.exp(np.exp(x))
    np.testing.assert_allclose(first.numpy(), wanted[:3], rtol=1e-5)
    np.testing.assert_allclose(back.numpy(), wanted[:3] + wanted[3:], rtol=1e-5)


def two_layers() -> IRModule:
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("opencl"), I.vdevice("llvm")]})

        @R.function
        def main(x: R.Tensor((3, 4), "float32", "llvm:0")):
            with R.dataflow():
                a = R.matmul(x, R.const(W))
                b = R.to_vdevice(R.tanh(x), "opencl:0")
                c = R.matmul(b, R.const(W))
                d = R.add(R.to_vdevice(c, "llvm:0"), a)
                R.output(d)
            return d

    return Module


@needs_opencl
def test_a_constant_on_both_devices_which_is_replaced():
    machine, x = machine_of(two_layers()), rows(3, 4)
    np.testing.assert_allclose(both(machine, x).numpy(), np.tanh(x) @ W + x @ W, rtol=1e-5)
    executable, other = machine.executable, rows(4, 5)
    (place,) = [i for i, c in enumerate(executable.program.constants) if getattr(c, "shape", None) == (4, 5)]
    executable.set_constant(place, other)
    np.testing.assert_allclose(both(machine, x).numpy(), np.tanh(x) @ other + x @ other, rtol=1e-5)


@needs_opencl
def test_a_saved_program_knows_its_devices(tmp_path):
    path = tmp_path / "two.so"
    relax.build(two_layers()).export_library(str(path))
    loaded = oneir.runtime.load_module(str(path))
    x = rows(3, 4)
    machine = relax.VirtualMachine(loaded, [oneir.opencl(), oneir.cpu()])
    np.testing.assert_allclose(both(machine, x).numpy(), np.tanh(x) @ W + x @ W, rtol=1e-5)


@needs_opencl
def test_arguments_that_are_kept_go_to_their_devices():
    machine = machine_of(TwoParts)
    x, y, z = rows(2, 3), rows(3, 4), rows(4, 5)
    machine.set_input("main", x, y, z)
    machine.invoke_stateful("main")
    np.testing.assert_allclose(machine.get_outputs("main").numpy(), np.exp(np.exp(x @ y)) @ z, rtol=1e-5)


TWO_OPENCL_DEVICES = """
import numpy as np
import oneir
from oneir import relax
from oneir.script import ir as I
from oneir.script import relax as R

if oneir.opencl(1).exist:
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("opencl", 1), I.vdevice("opencl", 0)]})

        @R.function
        def main(x: R.Tensor((6, 4), "float32", "opencl:0")):
            with R.dataflow():
                a = R.exp(x)
                b = R.tanh(R.to_vdevice(a, "opencl:1"))
                c = R.add(R.to_vdevice(b, "opencl:0"), a)
                R.output(b, c)
            return b, c

    # In the text of a script, "opencl:0" is the first device of the kind that is declared.
    executable = relax.build(Module)
    assert list(executable.natives) == ["main"]
    machine = relax.VirtualMachine(executable, [oneir.opencl(1), oneir.opencl(0)])
    x = np.random.default_rng(0).random((6, 4), "float32")
    own, other = oneir.opencl(1), oneir.opencl(0)
    for run in (machine["main"], lambda *args: machine.interpret("main", *args)):
        b, c = run(oneir.runtime.tensor(x, own))
        assert (b.device, c.device) == (other, own), (b.device, c.device)
        np.testing.assert_allclose(b.numpy(), np.tanh(np.exp(x)), rtol=1e-5)
        np.testing.assert_allclose(c.numpy(), np.tanh(np.exp(x)) + np.exp(x), rtol=1e-5)
    try:
        machine["main"](oneir.runtime.tensor(x, other))
    except oneir.runtime.error.DeviceError as error:
        print(error)
else:
    print("one device")
"""


@needs_opencl
def test_two_devices_of_one_kind(tmp_path):
    script = tmp_path / "two_devices.py"
    script.write_text(TWO_OPENCL_DEVICES)
    environment = {**os.environ, "POCL_DEVICES": "pthread basic"}
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    if found.stdout.startswith("one device"):
        pytest.skip("the OpenCL driver has one device")
    assert found.returncode == 0, found.stderr
    assert "expected a tensor on opencl:" in found.stdout


# -- refusals --


@needs_opencl
def test_an_argument_on_another_device_is_refused():
    machine = machine_of(TwoParts)
    x, y, z = rows(2, 3), rows(3, 4), rows(4, 5)
    with pytest.raises(
        error.DeviceError, match="argument 2 `z` of `main`: expected a tensor on opencl:0, found one on"
    ):
        machine["main"](x, y, z)
    with pytest.raises(
        error.DeviceError, match="argument 0 `x` of `main`: expected a tensor on cpu:0, found one on op"
    ):
        machine["main"](on_device(x), y, on_device(z))
    with pytest.raises(
        error.DeviceError, match="argument 2 `z` of `main`: expected a tensor on opencl:0, found one on"
    ):
        machine.interpret("main", x, y, z)


def test_operands_on_different_devices_are_refused():
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("opencl"), I.vdevice("llvm")]})

        @R.function
        def main(x: R.Tensor((3, 4), "float32", "llvm:0"), y: R.Tensor((3, 4), "float32", "opencl:0")):
            with R.dataflow():
                z = R.add(x, y)
                R.output(z)
            return z

    with pytest.raises(
        error.DeviceError, match=r"`[xy]` is on \w+:0, and the result on \w+:0; copy it there first: R.to_"
    ):
        relax.build(Module)


@needs_opencl
def test_a_machine_without_one_of_the_devices_is_refused():
    executable = relax.build(TwoParts)
    wanted = r"the program has tensors on opencl:0, and the machine has only cpu:0; .*\[opencl:0, cpu:0\]"
    with pytest.raises(error.DeviceError, match=wanted):
        relax.VirtualMachine(executable, oneir.cpu())


def test_a_device_that_does_not_exist_is_refused():
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("opencl", 7)]})

        @R.function
        def main(x: R.Tensor((3, 4), "float32")):
            with R.dataflow():
                a = R.hint_on_device(R.exp(x), oneir.cpu())
                b = R.exp(R.hint_on_device(a, oneir.opencl(7)))
                R.output(b)
            return b

    executable = relax.build(Module)
    with pytest.raises(error.DeviceError, match="the program has tensors on opencl:7, and the machine has only cpu:0"):
        relax.VirtualMachine(executable, oneir.cpu())
    with pytest.raises(error.DeviceError, match="opencl:7"):
        relax.VirtualMachine(executable, [oneir.opencl(7), oneir.cpu()])


def test_no_program_that_stands_alone(tmp_path):
    executable = relax.build(TwoParts, "llvm")
    with pytest.raises(
        error.UnsupportedError, match=r"has tensors on opencl:0, cpu:0: compile it from a module without"
    ):
        executable.export_library(str(tmp_path / "p.so"), header=str(tmp_path / "p.h"))
