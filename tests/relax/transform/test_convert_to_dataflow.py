"""ConvertToDataflow: where dataflow blocks begin and end."""

from __future__ import annotations

from oneir.relax.transform import ConvertToDataflow
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


@I.ir_module
class Plain:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        a = R.exp(x)
        b = R.add(a, a)
        _ = R.print(b, format="{}")
        c = R.add(b, x)
        return c


def test_a_run_of_pure_bindings_becomes_a_block() -> None:
    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, a)
                R.output(b)
            _ = R.print(b, format="{}")
            c = R.add(b, x)
            return c

    check_pass(ConvertToDataflow(), Plain, Expected, numbers=False)


def test_min_size_of_one_takes_single_bindings() -> None:
    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, a)
                R.output(b)
            _ = R.print(b, format="{}")
            with R.dataflow():
                c = R.add(b, x)
                R.output(c)
            return c

    check_pass(ConvertToDataflow(min_size=1), Plain, Expected, numbers=False)


def test_a_run_that_is_too_short_stays() -> None:
    check_pass(ConvertToDataflow(min_size=3), Plain, Plain, numbers=False)


def test_a_block_that_is_there_grows_on_both_sides_and_never_goes() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            with R.dataflow():
                b = R.add(a, x)
                R.output(b)
            c = R.add(b, a)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)
                c = R.add(b, a)
                R.output(c)
            return c

    check_pass(ConvertToDataflow(), Before, Expected)

    @I.ir_module
    class Short:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                b = R.exp(x)
                R.output(b)
            return b

    check_pass(ConvertToDataflow(min_size=5), Short, Short)


def test_conditions_are_no_dataflow_but_their_branches_may_be() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                a = R.exp(x)
                y = R.add(a, a)
            else:
                y = R.exp(x)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                with R.dataflow():
                    a = R.exp(x)
                    b = R.add(a, a)
                    R.output(b)
                y = b
            else:
                y = R.exp(x)
            return y

    check_pass(ConvertToDataflow(), Before, Expected)
