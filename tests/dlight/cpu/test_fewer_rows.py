"""Products of an unknown number of rows end in a tile of the next of a few numbers of rows that holds those left."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.dlight.cpu import Contraction
from oneir.ir.visitor import Visitor
from oneir.target import Target
from oneir.testing import interpret

TARGET = Target("llvm -mcpu=x86-64-v3")


def product(rows: int | tir.Var, columns: int = 32, depth: int = 16) -> tir.PrimFunc:
    """C = max(A @ B + bias, 0)"""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((rows, columns), lambda i, j: te.max(c[i, j] + bias[j], 0.0), name="D")
    return te.create_prim_func([a, b, bias, d])


class Branches(Visitor):
    """The numbers that what is left is compared with, from the outside in; and annotations of loops."""

    def __init__(self, func: tir.PrimFunc):
        super().__init__()
        self.found: list[int] = []
        self.annotations: list[str] = []
        self(func.body)

    def visit_IfThenElse(self, node: tir.IfThenElse) -> None:
        self.found.append(int(node.condition.b))
        self.generic_visit(node)

    def visit_For(self, loop: tir.For) -> None:
        self.annotations += loop.annotations
        self.generic_visit(loop)


def test_the_last_tile_has_one_to_four_or_all_rows():
    scheduled = Contraction().apply(product(te.var("n")), TARGET)
    assert scheduled is not None
    branches = Branches(scheduled.mod["main"])
    assert branches.found in ([1, 2, 3], [1, 2, 3, 4]) and branches.annotations == []


def test_a_known_number_of_rows_has_no_branches():
    scheduled = Contraction().apply(product(20), TARGET)
    assert scheduled is not None and Branches(scheduled.mod["main"]).found == []


@pytest.mark.parametrize("columns", [32, 24, 10])
def test_numbers_of_every_remainder(columns):
    program = oneir.build(product(te.var("n"), columns), "llvm")["main"]
    rng = np.random.default_rng(0)
    b, bias = (rng.standard_normal(shape, dtype="float32") for shape in ((16, columns), columns))
    for rows in range(36):
        a, found = rng.standard_normal((rows, 16), dtype="float32"), np.full((rows + 1, columns), 7, "float32")
        program(a, b, bias, found[:rows])
        np.testing.assert_allclose(found[:rows], np.maximum(a @ b + bias, 0), atol=1e-5)
        assert (found[rows:] == 7).all(), "rows past the end stay"


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_the_interpreter_finds_no_access_out_of_bounds(rows):
    scheduled = Contraction().apply(product(te.var("n"), 16, 4), TARGET)
    assert scheduled is not None
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape, dtype="float32") for shape in ((rows, 4), (4, 16), 16))
    found = np.zeros((rows, 16), "float32")
    interpret(scheduled.mod, a, b, bias, found)
    np.testing.assert_allclose(found, np.maximum(a @ b + bias, 0), atol=1e-5)
