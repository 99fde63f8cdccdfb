"""RemovePurityChecking: purity by declaration instead of by proof."""

from __future__ import annotations

from oneir.relax.transform import RemovePurityChecking
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_pure_functions_are_declared_so() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

        @R.function(pure=False)
        def effect(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            _ = R.print(x, format="{}")
            return x

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"relax.force_pure": True})
            return R.exp(x)

        @R.function(pure=False)
        def effect(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            _ = R.print(x, format="{}")
            return x

    check_pass(RemovePurityChecking(), Before, Expected, numbers=False)


def test_calls_that_are_pure_by_their_operator_are_unwrapped() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.call_pure_packed("vm.builtin.copy", x, sinfo_args=(R.Tensor((4,), "float32"),))
            z = R.call_inplace_packed("vm.builtin.copy", y, inplace_indices=0, sinfo_args=(R.Tensor((4,), "float32"),))
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"relax.force_pure": True})
            y = R.call_packed("vm.builtin.copy", x, sinfo_args=(R.Tensor((4,), "float32"),))
            z = R.call_packed("vm.builtin.copy", y, sinfo_args=(R.Tensor((4,), "float32"),))
            return z

    check_pass(RemovePurityChecking(), Before, Expected, numbers=False)


def test_closures_and_local_functions() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), f: R.Object) -> R.Tensor((4,), "float32"):
            @R.function
            def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                return R.exp(a)

            y = R.invoke_pure_closure(f, (x,), sinfo_args=(R.Tensor((4,), "float32"),))
            return inner(y)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), f: R.Object) -> R.Tensor((4,), "float32"):
            R.func_attr({"relax.force_pure": True})

            @R.function
            def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                R.func_attr({"relax.force_pure": True})
                return R.exp(a)

            y = R.invoke_closure(f, (x,), sinfo_args=(R.Tensor((4,), "float32"),))
            return inner(y)

    check_pass(RemovePurityChecking(), Before, Expected, numbers=False)
