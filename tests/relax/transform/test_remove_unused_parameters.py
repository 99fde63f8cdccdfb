"""RemoveUnusedParameters: only what is used is passed."""

from __future__ import annotations

import pytest

from oneir.relax.transform import RemoveUnusedParameters
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_unused_arguments_go_with_what_computed_them() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), unused: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            a = R.exp(x)
            b = R.add(a, unused)
            c = cls.f(b, a)
            return c

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.multiply(y, y)
            return a

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), unused: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            a = R.exp(x)
            c = cls.f(a)
            return c

        @R.function(private=True)
        def f(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.multiply(y, y)
            return a

    check_pass(RemoveUnusedParameters(), Before, Expected)


def test_symbolic_variables_that_only_an_unused_parameter_defines_are_passed() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((16, 32), "float32")) -> R.Tensor((48,), "float32"):
            cls = Before
            y: R.Tensor((48,), "float32") = cls.f(x)
            return y

        @R.function(private=True)
        def f(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m + n",), "float32"):
            m = T.int64()
            n = T.int64()
            y: R.Tensor((m + n,), "float32") = R.zeros(R.shape([m + n]), dtype="float32")
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((16, 32), "float32")) -> R.Tensor((48,), "float32"):
            cls = Expected
            y: R.Tensor((48,), "float32") = cls.f(R.prim_value(32), R.prim_value(16))
            return y

        @R.function(private=True)
        def f(param_n: R.Prim(value="n"), param_m: R.Prim(value="m")) -> R.Tensor(("m + n",), "float32"):
            m = T.int64()
            n = T.int64()
            y: R.Tensor((m + n,), "float32") = R.zeros(R.shape([m + n]), dtype="float32")
            return y

    check_pass(RemoveUnusedParameters(), Before, Expected)


def test_numbers_are_passed_only_if_they_alone_tell_an_extent() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((20,), "float32"):
            cls = Before
            y: R.Tensor((20,), "float32") = cls.f(R.prim_value(16), x, R.prim_value(4))
            return y

        @R.function(private=True)
        def f(_n: R.Prim(value="n"), x: R.Tensor(("n",), "float32"), _m: R.Prim(value="m")) -> R.Tensor(
            ("n + m",), "float32"
        ):
            n = T.int64()
            m = T.int64()
            y = R.zeros(R.shape([m]), dtype="float32")
            z: R.Tensor((n + m,), "float32") = R.concat([x, y])
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((20,), "float32"):
            cls = Expected
            y: R.Tensor((20,), "float32") = cls.f(x, R.prim_value(4))
            return y

        @R.function(private=True)
        def f(x: R.Tensor(("n",), "float32"), _m: R.Prim(value="m")) -> R.Tensor(("n + m",), "float32"):
            n = T.int64()
            m = T.int64()
            y = R.zeros(R.shape([m]), dtype="float32")
            z: R.Tensor((n + m,), "float32") = R.concat([x, y])
            return z

    check_pass(RemoveUnusedParameters(), Before, Expected)


def test_public_functions_keep_their_parameters() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), unused: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

    check_pass(RemoveUnusedParameters(), Module, Module)


def test_an_extent_that_no_argument_tells_is_refused() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
            cls = Module
            y = cls.f(x)
            return y

        @R.function(private=True)
        def f(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y: R.Tensor((n,), "float32") = R.zeros(R.shape([n]), dtype="float32")
            return y

    with pytest.raises(InvalidValue, match="arguments of `f` do not tell the value of its symbolic variables n"):
        RemoveUnusedParameters()(Module)
