"""RemoveUnusedOutputs: only what some caller uses is returned."""

from __future__ import annotations

import numpy as np

from oneir.relax.transform import RemoveUnusedOutputs
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass
from oneir.testing.interpreter import interpret


def test_the_fields_that_some_call_uses_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            s = cls.f(x)
            a = s[0]
            t = cls.f(a)
            b = t[2]
            c = t[0]
            return R.add(R.add(a, b), c)

        @R.function(private=True)
        def f(
            x: R.Tensor((4,), "float32"),
        ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.add(x, x)
            c = R.multiply(x, x)
            return (a, b, c)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            s = cls.f(x)
            a = s[0]
            t = cls.f(a)
            c = t[0]
            b = t[1]
            return R.add(R.add(a, b), c)

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a = R.exp(x)
            c = R.multiply(x, x)
            return (a, c)

    after = check_pass(RemoveUnusedOutputs(), Before, Expected, numbers=False)
    x = np.linspace(-1, 1, 4, dtype="float32")
    np.testing.assert_array_equal(interpret(after, x), interpret(Before, x))


def test_a_lone_field_is_no_tuple_any_more() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            s = cls.f(x)
            again = s
            a = again[1]
            return a

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.add(x, x)
            return (a, b)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            a = cls.f(x)
            return a

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.add(x, x)
            return b

    after = check_pass(RemoveUnusedOutputs(), Before, Expected, numbers=False)
    x = np.linspace(-1, 1, 4, dtype="float32")
    np.testing.assert_array_equal(interpret(after, x), interpret(Before, x))


def test_a_tuple_that_is_used_whole_stays() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            cls = Module
            s = cls.f(x)
            return s

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a = R.exp(x)
            return (a, x)

    check_pass(RemoveUnusedOutputs(), Module, Module)


def test_a_function_with_effects_keeps_its_outputs() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            s = cls.f(x)
            a = s[0]
            return a

        @R.function(pure=False, private=True)
        def f(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            _ = R.print(x, format="{}")
            a = R.exp(x)
            return (a, x)

    check_pass(RemoveUnusedOutputs(), Module, Module, numbers=False)
