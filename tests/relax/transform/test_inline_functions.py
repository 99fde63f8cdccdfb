"""InlinePrivateFunctions: bodies in the place of calls."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.ir.expr import GlobalVar
from oneir.ir.module import IRModule
from oneir.relax.transform import InlinePrivateFunctions
from oneir.runtime.error import TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_calls_in_calls_become_one_block() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            with R.dataflow():
                a = cls.outer(x)
                b = cls.inner(a)
                R.output(b)
            return b

        @R.function(private=True)
        def outer(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            a = cls.inner(x)
            b = R.add(a, x)
            return b

        @R.function(private=True)
        def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.multiply(a, a)
                R.output(b)
            return b

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.multiply(a, a)
                c = R.add(b, x)
                d = R.exp(c)
                e = R.multiply(d, d)
                R.output(e)
            return e

    check_pass(InlinePrivateFunctions(), Before, Expected)


def test_a_body_with_dataflow_splits_the_block_around_the_call() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            a = R.exp(x)
            b = cls.inner(a)
            c = R.add(b, a)
            return c

        @R.function(private=True)
        def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.multiply(a, a)
                R.output(b)
            return b

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            with R.dataflow():
                b = R.exp(a)
                c = R.multiply(b, b)
                R.output(c)
            d = R.add(c, a)
            return d

    check_pass(InlinePrivateFunctions(), Before, Expected)


def test_symbolic_extents_become_those_of_the_arguments() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((3, 4), "float32")) -> R.Tensor((20,), "float32"):
            cls = Before
            a: R.Tensor((8,), "float32") = cls.flat(x)
            b: R.Tensor((12,), "float32") = cls.flat(y)
            return R.concat((a, b))

        @R.function(private=True)
        def flat(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n * 4",), "float32"):
            n = T.int64()
            a: R.Tensor((n * 4,), "float32") = R.reshape(x, R.shape([n * 4]))
            return a

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((3, 4), "float32")) -> R.Tensor((20,), "float32"):
            a: R.Tensor((8,), "float32") = R.reshape(x, R.shape([8]))
            b: R.Tensor((12,), "float32") = R.reshape(y, R.shape([12]))
            return R.concat((a, b))

    check_pass(InlinePrivateFunctions(), Before, Expected)


def test_recursive_functions_stay() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            return cls.loop(c, x)

        @R.function(private=True)
        def loop(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            if c:
                y = x
            else:
                y = cls.loop(c, x)
            return y

    check_pass(InlinePrivateFunctions(), Module, Module, numbers=False)


def test_a_call_with_the_wrong_number_of_arguments_is_refused() -> None:
    info = relax.TensorStructInfo((4,), "float32")
    x, a = relax.Var("x", info), relax.Var("a", info)
    callee = GlobalVar("f")
    call = relax.Call(callee, [x, x])
    call.struct_info_ = info
    y = relax.Var("y", info)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, call)])], y)
    main = relax.Function([x], body, info, attrs={"global_symbol": "main"})
    with pytest.raises(TypeMismatch, match="`f` takes 1 arguments, found 2"):
        InlinePrivateFunctions()(IRModule({"main": main, callee: relax.Function([a], a)}))
