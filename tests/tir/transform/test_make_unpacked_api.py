"""MakeUnpackedAPI: public functions are C functions over data pointers and numbers."""

from __future__ import annotations

import pytest
from pass_checks import unchanged

from oneir.ir import IRModule
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InternalError
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.tir.transform import MakeUnpackedAPI


def test_public_functions_take_pointers_and_return_a_code():
    @I.ir_module
    class Before:
        @T.prim_func
        def main(A: T.Buffer((4,), "float32"), n: T.int32):
            T.func_attr({"target": T.target("llvm", host="llvm")})
            Before.sub(T.tvm_stack_make_array(A.data, T.tvm_stack_make_shape(4), 0, 1, T.float32(0), 0))
            Before.own(n)

        @T.prim_func
        def sub(B: T.Buffer((4,), "float32")):
            T.func_attr({"target": T.target("llvm", host="llvm")})
            T.evaluate(B.data)

        @T.prim_func(private=True)
        def own(n: T.int32):
            T.evaluate(n)

    @I.ir_module
    class Expected:
        @T.prim_func
        def main(A: T.handle("float32"), n: T.int32) -> T.int32:
            T.func_attr({"target": T.target("llvm")})
            T.attr("default", "device_id", 0)
            T.attr("default", "device_type", 1)
            T.call_intrin("int32", Expected.sub, A)
            Expected.own(n)
            return 0

        @T.prim_func
        def sub(B: T.handle("float32")) -> T.int32:
            T.func_attr({"target": T.target("llvm")})
            T.attr("default", "device_id", 0)
            T.attr("default", "device_type", 1)
            T.evaluate(B)
            return 0

        @T.prim_func(private=True)
        def own(n: T.int32):
            T.evaluate(n)

    assert_structural_equal(MakeUnpackedAPI()(Before), Expected)


def test_private_functions_stay():
    @T.prim_func(private=True)
    def func(A: T.Buffer((4,), "float32")):
        A[0] = 1.0

    unchanged(MakeUnpackedAPI(), func)


def test_a_function_without_a_target_is_refused():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        A[0] = 1.0

    with pytest.raises(InternalError, match="required the function to be annotated with tvm::attr::kTarget"):
        MakeUnpackedAPI()(IRModule({"main": func}))
