"""Rewriters written as two functions."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.ir.structural import assert_structural_equal
from oneir.relax.dpl import PatternMatchingRewriter
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def named(func: relax.Function) -> relax.Function:
    return func.with_attr("global_symbol", "main")


@R.rewriter
class Distribute:
    """(a + b) * c -> a * c + b * c, of tensors of one shape."""

    @R.function
    def pattern(a: R.Tensor(["m", "n"], "float32"), b: R.Tensor(["m", "n"], "float32"), c: R.Tensor((), "float32")):
        s = R.add(a, b)
        p = R.multiply(s, c)
        return p

    @R.function
    def replacement(a: R.Tensor(["m", "n"], "float32"), b: R.Tensor(["m", "n"], "float32"), c: R.Tensor((), "float32")):
        with R.dataflow():
            p = R.multiply(a, c)
            q = R.multiply(b, c)
            s = R.add(p, q)
            R.output(s)
        return s


def test_a_function_is_replaced_by_another() -> None:
    assert isinstance(Distribute, PatternMatchingRewriter)

    @R.function
    def before(
        x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32"), r: R.Tensor((8,), "float32")
    ) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            lv = R.add(x, y)
            lv1 = R.multiply(lv, R.const(4.0, "float32"))
            lv2 = R.add(lv1, r)
            gv = R.multiply(lv2, R.const(2.0, "float32"))
            R.output(gv)
        return gv

    @R.function
    def expected(
        x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32"), r: R.Tensor((8,), "float32")
    ) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            p = R.multiply(x, R.const(4.0, "float32"))
            q = R.multiply(y, R.const(4.0, "float32"))
            s = R.add(p, q)
            lv2 = R.add(s, r)
            gv = R.multiply(lv2, R.const(2.0, "float32"))
            R.output(gv)
        return gv

    # The second product is of a broadcast sum, which the pattern excludes.
    check_pass(Distribute, named(before), named(expected))


def test_dynamic_shapes_outside_of_dataflow() -> None:
    @R.function
    def before(x: R.Tensor(("k", 8), "float32"), y: R.Tensor(("k", 8), "float32")) -> R.Tensor(("k", 8), "float32"):
        lv = R.add(x, y)
        gv = R.multiply(lv, R.const(4.0, "float32"))
        return gv

    @R.function
    def expected(x: R.Tensor(("k", 8), "float32"), y: R.Tensor(("k", 8), "float32")) -> R.Tensor(("k", 8), "float32"):
        p = R.multiply(x, R.const(4.0, "float32"))
        q = R.multiply(y, R.const(4.0, "float32"))
        gv = R.add(p, q)
        return gv

    check_pass(Distribute, named(before), named(expected))


def test_attributes_of_calls_must_be_the_same() -> None:
    @R.rewriter
    class Transposed:
        @R.function
        def pattern(a: R.Tensor((2, 3, 4), "float32")):
            b = R.permute_dims(a, axes=[0, 2, 1])
            return b

        @R.function
        def replacement(a: R.Tensor((2, 3, 4), "float32")):
            b = R.permute_dims(a, axes=[0, -1, -2])
            return b

    @R.function
    def other(x: R.Tensor((2, 3, 4), "float32")) -> R.Tensor((3, 2, 4), "float32"):
        with R.dataflow():
            gv = R.permute_dims(x, axes=[1, 0, 2])
            R.output(gv)
        return gv

    assert Transposed(other) is other


def test_a_tuple_of_results() -> None:
    @R.rewriter
    class Both:
        @R.function
        def pattern(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
            p = R.add(a, b)
            q = R.subtract(a, b)
            return (p, q)

        @R.function
        def replacement(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
            q = R.subtract(a, b)
            p = R.subtract(a, R.negative(b))
            return (p, q)

    @R.function
    def before(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.add(x, y)
            lv1 = R.subtract(x, y)
            gv = R.multiply(lv, lv1)
            R.output(gv)
        return gv

    @R.function
    def expected(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv1 = R.subtract(x, y)
            n = R.negative(y)
            lv = R.subtract(x, n)
            gv = R.multiply(lv, lv1)
            R.output(gv)
        return gv

    check_pass(Both, named(before), named(expected), idempotent=False)


@I.ir_module
class CallsLoops:
    @R.function
    def pattern(a: R.Tensor((4,), "float32")):
        b = R.exp(a)
        return b

    @R.function
    def replacement(a: R.Tensor((4,), "float32")):
        cls = CallsLoops
        b = R.call_tir(cls.loops, (a,), out_sinfo=R.Tensor((4,), "float32"))
        return b

    @T.prim_func(private=True)
    def loops(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("exp"):
                vi = T.axis.spatial(4, i)
                b[vi] = T.exp(a[vi])


def test_functions_that_the_replacement_calls_come_along() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                lv = R.exp(x)
                gv = R.exp(lv)
                R.output(gv)
            return gv

        @R.function
        def loops(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                lv = R.call_tir(cls.loops_1, (x,), out_sinfo=R.Tensor((4,), "float32"))
                gv = R.call_tir(cls.loops_1, (lv,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(gv)
            return gv

        @R.function
        def loops(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

        @T.prim_func(private=True)
        def loops_1(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("exp"):
                    vi = T.axis.spatial(4, i)
                    b[vi] = T.exp(a[vi])

    rewriter = PatternMatchingRewriter.from_module(CallsLoops)
    check_pass(rewriter, Before, Expected)
    with pytest.raises(InvalidValue, match="the replacement calls `loops`, so the rewriter must be applied to a whole"):
        rewriter(Before["main"])


def test_a_rewriter_needs_both_functions_and_no_other_public_one() -> None:
    @I.ir_module
    class OnlyPattern:
        @R.function
        def pattern(a: R.Tensor((4,), "float32")):
            b = R.exp(a)
            return b

    with pytest.raises(KeyError, match="has the functions `pattern` and `replacement`; no `replacement` here"):
        PatternMatchingRewriter.from_module(OnlyPattern)
    public = CallsLoops.clone()
    public["other"] = CallsLoops["pattern"]
    with pytest.raises(InvalidValue, match="two public functions, `pattern` and `replacement`, but `other` is public"):
        PatternMatchingRewriter.from_module(public)
    loops = CallsLoops.clone()
    loops.update_func(loops.get_global_var("pattern"), CallsLoops["loops"])
    with pytest.raises(
        TypeMismatch, match="the function `pattern` of a rewriter is a graph function, found a PrimFunc"
    ):
        PatternMatchingRewriter.from_module(loops)


def test_both_functions_have_one_signature() -> None:
    with pytest.raises(InvalidValue, match="must have the same signature, but the first is"):

        @R.rewriter
        class Different:
            @R.function
            def pattern(a: R.Tensor((4,), "float32")):
                b = R.exp(a)
                return b

            @R.function
            def replacement(a: R.Tensor((4,), "float16")):
                b = R.exp(a)
                return b


def test_what_no_pattern_can_be_made_of_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="the function `pattern` has a GlobalVar, of which no pattern can be made"):

        @R.rewriter
        class CallsItself:
            @R.function
            def pattern(a: R.Tensor((4,), "float32")):
                b = R.call_tir(CallsItself.f, (a,), out_sinfo=R.Tensor((4,), "float32"))
                return b

            @R.function
            def replacement(a: R.Tensor((4,), "float32")):
                b = R.exp(a)
                return b

            @T.prim_func(private=True)
            def f(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
                for i in range(4):
                    b[i] = a[i]


def test_rewriters_are_composed() -> None:
    @R.rewriter
    class Tanh:
        @R.function
        def pattern(a: R.Tensor((4,), "float32")):
            b = R.tanh(a)
            return b

        @R.function
        def replacement(a: R.Tensor((4,), "float32")):
            b = R.sigmoid(a)
            return b

    @R.function
    def before(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.tanh(x)
            lv1 = R.add(lv, x)
            gv = R.multiply(lv1, R.const(4.0, "float32"))
            R.output(gv)
        return gv

    first = Tanh(before)
    assert_structural_equal((Tanh | Distribute)(before), first)
    assert first is not before
