"""The loop-level cells of the reference documents, run as scripts for TVM are run, and their programs natively.

What needs the graph level (`R.function`, `relax.*`) or a network stands elsewhere. The texts of the functions are those of
`tests/script/parser/documents`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oneir
from oneir.script import from_source
from oneir.testing import interpret

TEXTS = Path(__file__).parent.parent / "script" / "parser" / "documents"
rng = np.random.default_rng(11)


def functions(name: str) -> dict[str, str]:
    """The functions of one document, by name; of several of one name the first."""
    text = (TEXTS / name).read_text()
    found: dict[str, str] = {}
    for part in re.split(r"(?m)^(?=@T\.prim_func)", text):
        match = re.match(r"@T\.prim_func.*\ndef (\w+)", part)
        if match:
            found.setdefault(match[1], part)
    return found


DOCUMENTS = sorted(p.name for p in TEXTS.iterdir())
RUNNABLE = [(d, f) for d in DOCUMENTS for f in functions(d) if not d.startswith("002")]


def expected(name: str, inputs: list[np.ndarray]) -> np.ndarray | None:
    """What NumPy computes for the functions that the documents name alike."""
    if name.startswith("linear"):
        x, w, b = inputs
        return x @ w.T + b
    if name.startswith(("relu", "te_relu")):
        return np.maximum(inputs[0], 0)
    if name.startswith("add"):
        return inputs[0] + inputs[1]
    if name.startswith(("matmul", "tir_matmul", "te_matmul")):
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
    func = from_source("from tvm.script import tir as T\n" + functions(document)[name])
    buffers = [func.buffer_map[p] for p in func.params]
    arrays = [rng.standard_normal([int(d) for d in b.shape], dtype="float32") for b in buffers]
    wanted = expected(name, arrays[:-1])
    assert wanted is not None, f"no expectation for {name}"
    oneir.build(func.with_attr("global_symbol", "main"))["main"](*arrays)
    np.testing.assert_allclose(arrays[-1], wanted, rtol=1e-4, atol=1e-4)


def test_the_interpreter_agrees_on_the_small_ones():
    func = from_source("from tvm.script import tir as T\n" + functions("004.txt")["relu0"])
    x, y = rng.standard_normal((1, 128), dtype="float32"), np.zeros((1, 128), "float32")
    interpret(func, x, y)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


TENSOR_EXPRESSIONS = """
from tvm import te

A = te.placeholder((128, 128), name="A", dtype="float32")
B = te.placeholder((128, 128), name="B", dtype="float32")
print(type(A))


def te_matmul(A: te.Tensor, B: te.Tensor) -> te.Tensor:
    assert A.shape[1] == B.shape[0]
    n = A.shape[0]
    m = A.shape[1]
    k = te.reduce_axis((0, A.shape[1]), name="k")
    return te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")


C = te_matmul(A, B)  # create the result
te.create_prim_func([A, B, C]).show()


def te_relu(A: te.Tensor) -> te.Tensor:  # * used to unpack list
    return te.compute(A.shape, lambda *i: te.max(A(*i), 0), name="relu")


C = te_matmul(A, B)
D = te_relu(C)
print("----------Composed Operation-----------")
te.create_prim_func([A, B, D]).show()
"""


def test_the_tensor_expression_cells_print_what_they_show(tmp_path):
    (tmp_path / "cells.py").write_text(TENSOR_EXPRESSIONS)
    done = subprocess.run(
        [sys.executable, "-m", "oneir.compat", "cells.py"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    head, _, composed = done.stdout.partition("----------Composed Operation-----------\n")
    kind, _, single = head.partition("\n")
    assert kind.endswith("te.tensor.Tensor'>")
    shown = functions_of_002()
    assert lines(single) == lines(shown[0]) and lines(composed) == lines(shown[1])


def functions_of_002() -> list[str]:
    """The two functions that the document shows as the cells' output."""
    name = next(d for d in DOCUMENTS if d.startswith("002"))
    parts = re.split(r"(?m)^(?=@T\.prim_func)", (TEXTS / name).read_text())
    return [p for p in parts if p.startswith("@T.prim_func\ndef main(A")][:2]


def lines(text: str) -> list[str]:
    """The program's lines without header and indentation, with `T.bool(True)` as we print it."""
    stripped = (line.strip() for line in text.replace("T.bool(True)", "True").splitlines())
    return [line for line in stripped if line and not line.startswith("# from")]
