"""Products with weights that lie row by row: against NumPy, with values that the package gguf gives."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_opencl
from weight_forms import random_weight

import oneir
from oneir.ir import IRModule
from oneir.ir.transform import Sequential
from oneir.llm.kernels.forms import FORMS
from oneir.llm.kernels.row_forms import RowForm
from oneir.runtime.error import ShapeMismatch
from oneir.testing import interpret
from oneir.testing.interpreter.memory import Memory
from oneir.tir import PrimFunc
from oneir.tir.transform import FlattenBuffer, LowerOpaqueBlock, ThreadSync, UnifyThreadBinding

COUNT, N, K = 3, 6, 256
BARRIERS = Sequential([UnifyThreadBinding(), LowerOpaqueBlock(), FlattenBuffer(), ThreadSync("shared")])
RNG = np.random.default_rng(5)


def given(name: str, n: int, form: RowForm) -> tuple[list[np.ndarray], np.ndarray]:
    """The arrays of a weight (n, K), and its values."""
    stored, values = random_weight(name, n, K)
    return list(form.pack(stored, n, K).values()), values.astype("float64")


def on_device(func: PrimFunc, arguments: list[np.ndarray]) -> np.ndarray:
    """What a function stores in its last argument on the OpenCL device."""
    run, device = oneir.build(func.with_attr("global_symbol", "f"), "opencl")["f"], oneir.opencl()
    tensors = [oneir.nd.array(x, device) for x in arguments]
    run(*tensors)
    return tensors[-1].numpy()


@needs_opencl
@pytest.mark.parametrize("name", ["Q4_0", "Q6_K", "MXFP4", "F16"])
@pytest.mark.parametrize("m", [3, 20])
def test_few_and_many_rows(m: int, name: str) -> None:
    form = RowForm(FORMS[name])
    arrays, values = given(name, 64, form)
    x = RNG.standard_normal((m, K)).astype("float32")
    expected = x @ values.T
    found = on_device(form.product(64, K), [x, *arrays, np.zeros(expected.shape, "float32")])
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def of_experts(name: str, experts: np.ndarray) -> tuple[PrimFunc, list[np.ndarray], np.ndarray]:
    """A product with those of chosen experts, its arguments, and what comes out."""
    form = RowForm(FORMS[name])
    arrays, values = given(name, COUNT * N, form)
    x = RNG.standard_normal((len(experts), K)).astype("float32")
    expected = np.einsum("mk,mcnk->mcn", x, values.reshape(COUNT, N, K)[experts.clip(0, COUNT - 1)])
    return form.expert_products(COUNT, N, K), [x, experts, *arrays, np.zeros(expected.shape, "float32")], expected


@needs_opencl
@pytest.mark.parametrize("name", FORMS)
def test_experts_of_every_form(name: str) -> None:
    func, arguments, expected = of_experts(name, np.int32([[0, 2], [1, 7]]))  # the last is not there
    assert np.abs(on_device(func, arguments) - expected).max() <= 1e-6 * np.abs(expected).max()


def test_only_rows_of_chosen_experts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each digit of them once, by one thread; the interpreter finds no race between threads."""
    read, places = Memory.read, []

    def counted(memory: Memory, dtype: object, offset: int) -> object:
        if memory.name == "weight":
            places.append(offset)
        return read(memory, dtype, offset)

    monkeypatch.setattr(Memory, "read", counted)
    func, arguments, expected = of_experts("Q4_0", np.int32([[2]]))
    mod = BARRIERS(IRModule({"main": func}))
    interpret(mod["main"], *arguments)
    assert np.abs(arguments[-1] - expected).max() <= 1e-6 * np.abs(expected).max()
    of_rows = N * K // 8  # words of eight digits
    assert {place // 4 for place in places} == set(range(2 * of_rows, 3 * of_rows)) and len(places) == N * K


def test_sums_are_of_whole_groups() -> None:
    with pytest.raises(ShapeMismatch, match=r"the sum of a product with weights .* to be a multiple of 32, found 40"):
        RowForm(FORMS["Q4_0"]).expert_products(COUNT, N, 40)
