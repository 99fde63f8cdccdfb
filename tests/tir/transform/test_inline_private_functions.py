"""InlinePrivateFunctions: the body of a private function in the place of its call."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import unchanged

from oneir.ir.structural import assert_structural_equal
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir.transform import InlinePrivateFunctions


def test_each_call_gets_a_body_of_its_own_and_the_function_goes():
    @I.ir_module
    class Before:
        @T.prim_func
        def main(A: T.Buffer((16,), "float32")):
            for i in range(4):
                Before.row(T.address_of(A[i * 4]), i * 2)
            Before.row(A.data, 1)

        @T.prim_func(private=True)
        def row(data: T.handle("float32"), n: T.int32):
            B = T.decl_buffer((4,), "float32", data=data)
            for j in range(4):
                B[j] = T.Cast("float32", n + j)

    after = InlinePrivateFunctions()(Before)
    assert [v.name_hint for v in after.functions] == ["main"]

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32")):
        for i in range(4):
            data: T.handle("float32") = T.address_of(A[i * 4])
            B = T.decl_buffer((4,), "float32", data=data)
            n: T.int32 = i * 2
            for j in range(4):
                B[j] = T.Cast("float32", n + j)
        C = T.decl_buffer((4,), "float32", data=A.data)
        for j in range(4):
            C[j] = T.Cast("float32", 1 + j)

    assert_structural_equal(after["main"].with_attr("global_symbol", "f"), expected.with_attr("global_symbol", "f"))
    assert InlinePrivateFunctions()(after) is after


def test_functions_that_call_themselves_return_or_are_public_stay():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((4,), "int32")):
            Module.forever(A.data)
            Module.public(A.data)
            A[0] = Module.three()

        @T.prim_func(private=True)
        def forever(data: T.handle("int32")):
            Module.forever(data)

        @T.prim_func
        def public(data: T.handle("int32")):
            B = T.decl_buffer((4,), "int32", data=data)
            B[0] = 1

        @T.prim_func(private=True)
        def three() -> T.int32:
            T.ret(3)

    assert InlinePrivateFunctions()(Module) is Module


@pytest.mark.parametrize(("target", "stays"), [("llvm", False), ("cuda", True), (None, False)])
def test_functions_for_another_target_are_launched(target, stays):
    attributes = {} if target is None else {"target": T.target(target)}

    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((4,), "int32")):
            T.func_attr({"target": T.target("llvm")})
            Module.one(A.data)

        @T.prim_func(private=True)
        def one(data: T.handle("int32")):
            T.func_attr(attributes)
            B = T.decl_buffer((4,), "int32", data=data)
            B[0] = 1

    assert (InlinePrivateFunctions()(Module) is Module) == stays


def test_inlining_reaches_through_several_functions():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((4,), "int32")):
            Module.outer(A.data, 5)

        @T.prim_func(private=True)
        def outer(data: T.handle("int32"), n: T.int32):
            Module.inner(data, n + 1)

        @T.prim_func(private=True)
        def inner(data: T.handle("int32"), n: T.int32):
            B = T.decl_buffer((4,), "int32", data=data)
            for i in range(4):
                B[i] = n * i

    after = InlinePrivateFunctions()(Module)
    a = np.zeros(4, "int32")
    interpret(after["main"], a)
    assert a.tolist() == [0, 6, 12, 18]


def test_a_module_without_private_functions_is_left_alone():
    @T.prim_func
    def func(A: T.Buffer((4,), "int32")):
        A[0] = 1

    unchanged(InlinePrivateFunctions(), func)
