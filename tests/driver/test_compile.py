"""`oneir.compile` as a user meets it: what it shows, refuses and gives, and how notebooks show that."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import oneir
from oneir import te
from oneir.ir.instrument import ProgressInstrument
from oneir.runtime.error import TypeMismatch, UnsupportedError
from oneir.script import from_source


def doubled() -> oneir.IRModule:
    return from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
"""
    )


def test_progress(capsys):
    program: Any = oneir.compile(doubled(), progress=True)
    shown = capsys.readouterr().err
    assert shown.startswith("compiled in ") and shown.endswith(" passes\n") and program.vm_functions == ["main"]
    oneir.compile(doubled())
    assert capsys.readouterr().err == ""
    with oneir.transform.PassContext(instruments=[ProgressInstrument()]):
        oneir.tir.transform.Simplify()(oneir.IRModule())
    assert capsys.readouterr().err.endswith(" s, 1 pass\n")


def test_what_is_no_module():
    wrong: Any = 3
    with pytest.raises(TypeMismatch, match="compile expects an IRModule, a PrimFunc or a relax Function, found int"):
        oneir.compile(wrong)


@pytest.fixture(scope="module")
def kernel() -> Any:
    x = te.placeholder((3,), "float32", name="x")
    return oneir.build(te.create_prim_func([x, te.compute((3,), lambda i: x[i] * 2, name="y")]), "llvm")


def test_kernels_are_pickled_and_copied(kernel):
    for again in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        result = np.empty(3, "float32")
        again["main"](np.arange(3, dtype="float32"), result)
        np.testing.assert_array_equal(result, [0, 2, 4])


def test_a_function_is_not_pickled_without_its_module(kernel):
    program: Any = oneir.compile(doubled())
    for call in (kernel["main"], oneir.relax.VirtualMachine(program, oneir.cpu())["main"]):
        assert copy.deepcopy({"call": call})["call"] is call, "a copy has the function itself, as of any function"
        with pytest.raises(UnsupportedError, match=r"`main` is a compiled function.*: pickle the module or the exec"):
            pickle.dumps(call)


def test_notebooks():
    mod = doubled()
    assert "main" in mod._repr_html_() and "<" in mod._repr_html_()
    values = oneir.runtime.tensor(np.ones((2, 3), "float32"))
    assert values._repr_html_().startswith("<b>Tensor</b> float32[2, 3] on cpu")
    program: Any = oneir.compile(mod)
    machine = oneir.relax.VirtualMachine(program, oneir.cpu())
    table = machine.profile("main", values)._repr_html_()
    assert table.startswith("<table>") and "<td>Sum</td>" in table


def test_names_of_the_package():
    assert "compile" in dir(oneir) and "Any" not in dir(oneir)
    assert [n for n in dir(oneir) if n.startswith("_") and not n.startswith("__")] == []
