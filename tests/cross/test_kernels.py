"""Kernels for other processors compute there what the same graph computes here, by C programs under emulators."""

from __future__ import annotations

import numpy as np
import pytest
from cross_kernels import KERNELS, module
from cross_machines import ARMV7, MACHINES, RISCV_V, Machine, computed

import oneir
from oneir import relax
from oneir.runtime.vm import VirtualMachine

ALL = list(KERNELS)
FEW = ["exp", "erf", "floor_divide_int32", "sum_rows", "argmax", "matmul", "conv2d", "depthwise", "layer_norm"]


@pytest.fixture(scope="module")
def expected():
    """What this machine computes."""
    machine = VirtualMachine(relax.build(module(ALL), "llvm"), oneir.cpu())
    return {name: machine[f"k_{name}"](*KERNELS[name][1]).numpy() for name in ALL}


def compare(machine: Machine, names: list[str], folder, expected) -> None:
    machine.require()
    executable = relax.build(module(names), machine.target)
    functions = {f"m_k_{name}": (KERNELS[name][1], [expected[name]]) for name in names}
    found = computed(machine, folder, executable, functions)
    wrong = []
    for name in names:
        (value,), right = found[f"m_k_{name}"], expected[name]
        if right.dtype.kind == "f":
            tolerance = 2e-3 if right.dtype == "float16" else 1e-5
            good = np.allclose(value, right, rtol=tolerance, atol=tolerance)
        else:
            good = np.array_equal(value, right)
        if not good:
            wrong.append(f"{name}: {np.abs(value.astype('float64') - right.astype('float64')).max()}")
    assert not wrong


@pytest.mark.parametrize("machine", [ARMV7, RISCV_V], ids=lambda machine: machine.name)
def test_some_kernels(machine, tmp_path, expected):
    compare(machine, FEW, tmp_path, expected)


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_all_kernels(machine, tmp_path, expected):
    compare(machine, ALL, tmp_path, expected)


def test_the_kernels_are_what_they_are_called(expected):
    """This machine's results, with which others are compared, against NumPy's."""
    a, _ = KERNELS["add"][1]
    assert len(ALL) >= 74
    assert np.allclose(expected["exp"], np.exp(a), rtol=1e-6)
    assert np.allclose(expected["matmul"], np.matmul(*KERNELS["matmul"][1]), rtol=1e-5, atol=1e-5)
    assert np.array_equal(expected["argmax"], a.argmax(axis=1))
    assert np.array_equal(expected["floor_divide_int32"], np.floor_divide(*KERNELS["floor_divide_int32"][1]))
