"""EliminateCommonSubexpr: what counts as the same, and where the first result may be used."""

from __future__ import annotations

from oneir.relax.transform import EliminateCommonSubexpr
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_the_second_of_two_is_a_name_for_the_first() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.add(x, y)
                b = R.add(x, y)
                c = R.exp(a)
                d = R.exp(b)
                e = R.add(y, x)
                f = R.add(c, d)
                gv = R.add(e, f)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.add(x, y)
                b = a
                c = R.exp(a)
                d = c
                e = R.add(y, x)
                f = R.add(c, c)
                gv = R.add(e, f)
                R.output(gv)
            return gv

    check_pass(EliminateCommonSubexpr(), Before, Expected)


def test_attributes_and_constants_count() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
            a = R.sum(x, axis=0)
            b = R.sum(x, axis=1)
            c = R.sum(x, axis=0)
            d = R.add(x, R.const(1, "float32"))
            e = R.add(x, R.const(2, "float32"))
            f = R.add(x, R.const(1, "float32"))
            return R.add(R.add(R.add(R.add(a, b), c), R.add(d, e)), f)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
            a = R.sum(x, axis=0)
            b = R.sum(x, axis=1)
            c = a
            d = R.add(x, R.const(1, "float32"))
            e = R.add(x, R.const(2, "float32"))
            f = d
            return R.add(R.add(R.add(R.add(a, b), a), R.add(d, e)), d)

    check_pass(EliminateCommonSubexpr(), Before, Expected)


def test_call_only_leaves_tuples() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a = (x, x)
            b = (x, x)
            c = a[0]
            d = b[0]
            e = R.exp(c)
            f = R.exp(c)
            return (e, R.add(d, f))

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a = (x, x)
            b = (x, x)
            c = a[0]
            d = b[0]
            e = R.exp(c)
            f = e
            return (e, R.add(d, e))

    check_pass(EliminateCommonSubexpr(call_only=True), Before, Expected)

    @I.ir_module
    class All:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            a = (x, x)
            b = a
            c = a[0]
            d = c
            e = R.exp(c)
            f = e
            return (e, R.add(c, e))

    check_pass(EliminateCommonSubexpr(), Before, All)


def test_what_a_dataflow_block_keeps_to_itself_is_computed_again_outside() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                inside = R.exp(x)
                seen = R.add(inside, x)
                R.output(seen)
            a = R.exp(x)
            b = R.add(a, x)
            return R.add(seen, b)

    check_pass(EliminateCommonSubexpr(), Before, Before)

    @I.ir_module
    class Outputs:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                seen = R.exp(x)
                R.output(seen)
            a = R.exp(x)
            return R.add(seen, a)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                seen = R.exp(x)
                R.output(seen)
            a = seen
            return R.add(seen, seen)

    check_pass(EliminateCommonSubexpr(), Outputs, Expected)


def test_branches_use_what_was_before_but_not_one_another() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            if c:
                b = R.exp(x)
                d = R.add(b, x)
                y = R.add(d, d)
            else:
                d = R.add(a, x)
                y = d
            return R.add(y, R.add(a, x))

    @I.ir_module
    class Expected:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            if c:
                b = a
                d = R.add(a, x)
                y = R.add(d, d)
            else:
                d = R.add(a, x)
                y = d
            return R.add(y, R.add(a, x))

    check_pass(EliminateCommonSubexpr(), Before, Expected)


def test_casts_that_define_variables_of_their_own_are_not_the_same() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
            m = T.int64()
            a = R.match_cast(x, R.Tensor((m,), "float32"))
            n = T.int64()
            b = R.match_cast(x, R.Tensor((n,), "float32"))
            return R.add(a, b)

    check_pass(EliminateCommonSubexpr(), Module, Module)


def test_effects_and_allocations_are_not_shared() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Object:
            a = R.print(x, format="{}")
            b = R.print(x, format="{}")
            c = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            d = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            return (a, b, c, d)

    check_pass(EliminateCommonSubexpr(), Module, Module, numbers=False)
