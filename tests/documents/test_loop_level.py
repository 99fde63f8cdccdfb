"""Every TensorIR function of the reference documents computes what it is named for, by itself."""

from __future__ import annotations

import re

import numpy as np
import pytest
from published import loop_functions

import oneir
from oneir.script import from_source
from oneir.testing import interpret

rng = np.random.default_rng(11)


def functions(document: str) -> dict[str, str]:
    """The functions of one document, by name; of several of one name the first."""
    found: dict[str, str] = {}
    for text in loop_functions(document):
        match = re.search(r"(?m)^def (\w+)", text)
        assert match is not None
        found.setdefault(match[1], text)
    return found


DOCUMENTS = ["000", "001", "002", "003", "004"]
RUNNABLE = [(d, f) for d in DOCUMENTS for f in functions(d)]


def expected(name: str, inputs: list[np.ndarray]) -> np.ndarray | None:
    """What NumPy computes for the functions that the documents name alike."""
    if name.startswith("linear"):
        x, w, b = inputs
        return x @ w.T + b
    if name.startswith(("relu", "te_relu")):
        return np.maximum(inputs[0], 0)
    if name.startswith("add"):
        return inputs[0] + inputs[1]
    if name.startswith(("matmul", "tir_matmul", "te_matmul", "main")):  # 002 calls its product `main`
        return inputs[0] @ inputs[1]
    if name.startswith("dense"):
        return inputs[0] @ inputs[1].T
    if name.startswith("transpose"):
        return inputs[0].T
    if name == "fused_matmul_add_relu":
        return np.maximum(inputs[0] @ inputs[1] + inputs[2], 0)
    if name == "fused_matmul1_add1":
        return inputs[0] @ inputs[1] + inputs[2]
    if name.startswith("my_linear"):
        x, w, _ = inputs
        return x[:, : len(w)] @ w[:, : len(w)].T
    return None


@pytest.mark.parametrize(("document", "name"), RUNNABLE)
def test_functions_compute_what_the_documents_say(document, name):
    func = from_source(functions(document)[name])
    buffers = [func.buffer_map[p] for p in func.params]
    arrays = [rng.standard_normal([int(d) for d in b.shape], dtype="float32") for b in buffers]
    wanted = expected(name, arrays[:-1])
    assert wanted is not None, f"no expectation for {name}"
    oneir.build(func.with_attr("global_symbol", "main"))["main"](*arrays)
    np.testing.assert_allclose(arrays[-1], wanted, rtol=1e-4, atol=1e-4)


def test_the_interpreter_agrees_on_the_small_ones():
    func = from_source(functions("004")["relu0"])
    x, y = rng.standard_normal((1, 128), dtype="float32"), np.zeros((1, 128), "float32")
    interpret(func, x, y)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
