"""ExpandTupleArguments: fields of tuples as arguments of their own."""

from __future__ import annotations

from oneir.relax.transform import ExpandTupleArguments
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_tuples_in_tuples_become_single_arguments() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
        ) -> R.Tensor((4,), "float32"):
            cls = Before
            a = cls.f((x, t), x)
            return a

        @R.function(private=True)
        def f(
            p: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))),
            q: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            a = p[0]
            b = p[1]
            c = b[1]
            d = R.add(a, c)
            e = R.add(d, q)
            return e

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
        ) -> R.Tensor((4,), "float32"):
            cls = Expected
            t0 = t[0]
            t1 = t[1]
            a = cls.f(x, t0, t1, x)
            return a

        @R.function(private=True)
        def f(
            p_0: R.Tensor((4,), "float32"),
            p_1_0: R.Tensor((4,), "float32"),
            p_1_1: R.Tensor((4,), "float32"),
            q: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            d = R.add(p_0, p_1_1)
            e = R.add(d, q)
            return e

    after = check_pass(ExpandTupleArguments(), Before, Expected)
    assert [p.name for p in after["f"].params] == ["p_0", "p_1_0", "p_1_1", "q"]


def test_public_functions_and_functions_used_as_values_keep_their_signature() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"))) -> R.Object:
            cls = Module
            f = R.make_closure(cls.f, R.tuple())
            return f

        @R.function(private=True)
        def f(t: R.Tuple(R.Tensor((4,), "float32"))) -> R.Tensor((4,), "float32"):
            a = t[0]
            return a

    check_pass(ExpandTupleArguments(), Module, Module, numbers=False)
