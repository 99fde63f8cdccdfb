"""Whole models on other processors: a C program under an emulator computes what PyTorch and this machine compute."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from cross_machines import AARCH64, ISSUED, WASM, Machine, computed
from cross_models import SMALL, small

import oneir
from oneir import relax
from oneir.runtime.object_file import read_symbols
from oneir.runtime.vm import VirtualMachine

LIBC = {"malloc", "free", "memcpy", "memset", "memmove"}
"""What a program may need of the C library, without weights in a file of their own."""
COMPILER = {"__aeabi_", "__udiv", "__div", "__mod", "__umod"}
"""What begins the names of the compiler's support library, which 32-bit processors divide 64-bit numbers with."""


@functools.lru_cache(maxsize=1)
def prepared(name: str):
    """A model, its inputs, and what PyTorch and this machine compute."""
    graph, tensors, exact = small(name)
    inputs = [tensor.numpy() for tensor in tensors]
    here = VirtualMachine(relax.build(graph, "llvm"), oneir.cpu())["main"](*inputs).numpy()
    return graph, inputs, here, exact.numpy()


def compare(machine: Machine, name: str, folder) -> None:
    machine.require()
    graph, inputs, here, exact = prepared(name)
    executable = relax.build(graph, machine.target)
    found = computed(machine, folder, executable, {"m": (inputs, [here])})["m"][0]
    size = max(1.0, np.abs(here).max())
    assert np.abs(found - here).max() <= 1e-5 * size, "differs from this machine"
    assert np.abs(found - exact).max() <= 1e-5 * size, "differs from PyTorch in float64"
    data = (folder / "m.o").read_bytes()
    others = {each for each in read_symbols(data).undefined - LIBC if not each.startswith(tuple(COMPILER))}
    assert others <= {"__stack_pointer", "__linear_memory", "__indirect_function_table"}
    if name == "mlp":
        assert len(data) <= 1_200_000
    print(f"{machine.name} {name}: {len(data)} bytes, error {np.abs(found - here).max():.1e} of {size:.1f}")


@pytest.mark.parametrize(
    ("machine", "name"), [(AARCH64, "mlp"), (WASM, "fashion_cnn")], ids=lambda value: getattr(value, "name", value)
)
def test_small_classifiers(machine, name, tmp_path):
    compare(machine, name, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("machine", ISSUED, ids=lambda machine: machine.name)
def test_models(machine, name, tmp_path):
    compare(machine, name, tmp_path)
