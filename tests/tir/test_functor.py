"""Visitors and mutators with published names: what they meet, and that what did not change stays as it is."""

from __future__ import annotations

import pytest

from oneir import tir
from oneir.ir.structural import assert_structural_equal
from oneir.script import from_source
from oneir.tir import PyStmtExprMutator, PyStmtExprVisitor, functor

SOURCE = """
@T.prim_func
def func(A: T.Buffer((16, 8), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
    for i in range(16):
        for j in range(n):
            with T.block("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    B[vi] = T.float32(0)
                if vj < 8:
                    B[vi] = B[vi] + A[vi, vj] * T.float32(4)
"""
FUNC = from_source(SOURCE)


@functor.visitor
class Names(PyStmtExprVisitor):
    """The names of what is met, in order."""

    def __init__(self):
        self.met = []

    def visit_stmt(self, stmt):
        self.met.append(type(stmt).__name__)
        super().visit_stmt(stmt)

    def visit_var_(self, var):
        self.met.append(var.name)

    def visit_buffer_load_(self, load):
        self.met.append(f"{load.buffer.name} loaded")
        super().visit_buffer_load_(load)


def test_a_visitor_meets_uses_of_variables_and_no_definitions():
    names = Names()
    names.visit_stmt(FUNC.body.block.body)
    assert names.met == [
        *("For", "For", "n", "BlockRealize", "i", "j", "Block"),
        *("n", "vi", "vj", "vi"),  # the range of vj, and what the block reads and writes
        *("IfThenElse", "vj", "BufferStore", "B loaded", "vi", "A loaded", "vi", "vj", "vi"),
        *("BufferStore", "vi"),
    ]


def test_a_mutator_replaces_what_its_methods_return():
    class Halve(PyStmtExprMutator):
        def visit_float_imm_(self, value):
            return tir.FloatImm(value.dtype, value.value / 2)

        def visit_for_(self, loop):
            loop = super().visit_for_(loop)
            return loop.replace(kind=tir.ForKind.UNROLLED)

    body = Halve().visit_stmt(FUNC.body.block.body)
    halved = FUNC.with_body(FUNC.body.replace(block=FUNC.body.block.replace(body=body)))
    text = SOURCE.replace("T.float32(4)", "T.float32(2)").replace("range(", "T.unroll(")
    assert_structural_equal(halved, from_source(text))


def test_what_does_not_change_is_the_identical_object():
    assert PyStmtExprMutator().visit_stmt(FUNC.body) is FUNC.body
    load = FUNC.body.block.body.body.body.block.init.value
    assert PyStmtExprMutator().visit_expr(load) is load


def test_a_decorated_class_can_be_derived_from():
    class More(Names._cls):
        def visit_for_(self, loop):
            self.met.append("stop")

    more = More()
    more.visit_stmt(FUNC.body.block.body)
    assert more.met == ["For", "stop"]


def test_methods_of_unknown_nodes_do_not_exist():
    with pytest.raises(AttributeError, match="visit_prim_func_"):
        PyStmtExprVisitor().visit_stmt(FUNC)
