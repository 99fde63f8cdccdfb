"""CanonicalizeBindings: every value under one name, and what that does to symbolic variables."""

from __future__ import annotations

import pytest

from oneir import relax, tir
from oneir.relax.transform import CanonicalizeBindings
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_names_of_names_go() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = x
                b = R.exp(a)
                c = b
                d = c
                gv = R.add(a, d)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                b = R.exp(x)
                gv = R.add(x, b)
                R.output(gv)
            return gv

    check_pass(CanonicalizeBindings(), Before, Expected)


def test_an_output_that_names_a_value_takes_its_place() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                lv = R.exp(x)
                lv1 = R.add(lv, lv)
                gv = lv
                gv2 = lv
                gv1 = lv1
                R.output(gv, gv1, gv2)
            y = R.add(gv, gv1)
            return R.add(y, gv2)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                gv = R.exp(x)
                gv1 = R.add(gv, gv)
                R.output(gv, gv1)
            y = R.add(gv, gv1)
            return R.add(y, gv)

    check_pass(CanonicalizeBindings(), Before, Expected)


def test_an_output_that_only_its_block_uses_is_none() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                inner = R.exp(x)
                gv = R.add(inner, inner)
                R.output(inner, gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                inner = R.exp(x)
                gv = R.add(inner, inner)
                R.output(gv)
            return gv

    after = check_pass(CanonicalizeBindings(), Before, Expected)
    assert isinstance(after["main"].body.blocks[0].bindings[0].var, relax.DataflowVar)


def test_fields_of_known_tuples_are_the_values() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            pair = ((x, y), x)
            first = pair[0]
            z = first[1]
            return R.add(z, z)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            pair = ((x, y), x)
            first = pair[0]
            return R.add(y, y)

    check_pass(CanonicalizeBindings(), Before, Expected)


def test_a_tuple_that_is_taken_apart_and_put_together_is_the_tuple() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((2,), "float32"))) -> R.Tuple(
            R.Tensor((4,), "float32"), R.Tensor((2,), "float32")
        ):
            a = t[0]
            b = t[1]
            again = (a, b)
            return again

    @I.ir_module
    class Expected:
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((2,), "float32"))) -> R.Tuple(
            R.Tensor((4,), "float32"), R.Tensor((2,), "float32")
        ):
            a = t[0]
            b = t[1]
            return t

    check_pass(CanonicalizeBindings(), Before, Expected)


def test_constants_stand_where_they_are_used() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
            one = R.const(1, "float32")
            return R.add(x, one)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
            one = R.const(1, "float32")
            return R.add(x, R.const(1, "float32"))

    check_pass(CanonicalizeBindings(), Before, Expected)


def test_a_cast_to_what_is_known_already_goes_with_its_symbolic_variables() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
            p = T.int64()
            q = T.int64()
            y = R.match_cast(x, R.Tensor((p, q), "float32"))
            r = T.int64()
            s = T.int64()
            z = R.match_cast(y, R.Tensor((r, s), "float32"))
            return R.add(x, z)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
            m = T.int64()
            n = T.int64()
            gv: R.Tensor((m, n), "float32") = R.add(x, x)
            return gv

    check_pass(CanonicalizeBindings(), Before, Expected)


def test_a_cast_that_checks_something_stays() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("m", 4), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                lv = R.exp(x)
                gv = R.match_cast(lv, R.Tensor((8, 4), "float32"))
                R.output(gv)
            return gv

    check_pass(CanonicalizeBindings(), Module, Module, numbers=False)


def test_a_cast_to_an_extent_that_the_value_itself_depends_on_stays() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((8,), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            with R.dataflow():
                lv = R.strided_slice(y, axes=[0], begin=[0], end=[n])
                lv1 = R.match_cast(lv, R.Tensor((n,), "float32"))
                gv = R.add(x, lv1)
                R.output(gv)
            return gv

    check_pass(CanonicalizeBindings(), Module, Module, numbers=False)


def test_branches_may_learn_different_extents() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(
            ("n",), "float32"
        ):
            n = T.int64()
            if c:
                a = R.match_cast(x, R.Tensor((n,), "float32"))
                z: R.Tensor((n,), "float32") = R.exp(a)
            else:
                z: R.Tensor((n,), "float32") = R.exp(y)
            return z

    after = CanonicalizeBindings()(Before)
    value = after["main"].body.blocks[0].bindings[0].value
    assert value.true_branch.body.name == "then_branch_with_dyn"
    assert isinstance(value.true_branch.blocks[-1].bindings[-1], relax.MatchCast)
    assert [type(b) for block in value.false_branch.blocks for b in block.bindings] == [relax.VarBinding]
    relax.analysis.verify_well_formed(after)


def test_what_a_local_function_uses_stays_visible() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)

            @R.function
            def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                return R.add(a, y)

            z = inner(x)
            return z

    check_pass(CanonicalizeBindings(), Module, Module, numbers=False)


def test_contradicting_casts_are_refused() -> None:
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    y = relax.Var("y", relax.TensorStructInfo((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        builder.match_cast(x, relax.TensorStructInfo((n,), "float32"), "a")
        builder.match_cast(y, relax.TensorStructInfo((n,), "float32"), "b")
        builder.emit_func_output(x)
    with pytest.raises(
        InvalidValue, match=r"define `a` and `b` contradict each other.*`n` is .*3.*, by the second .*4"
    ):
        CanonicalizeBindings()(builder.get())


def test_a_cast_to_the_extent_of_a_parameter_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(s: R.Tensor(("p",), "float32"), w: R.Tensor("float32", ndim=1)) -> R.Tensor(("p",), "float32"):
            p = T.int64()
            n = T.int64()
            with R.dataflow():
                a: R.Tensor((n,), "float32") = R.match_cast(w, R.Tensor((n,), "float32"))
                b: R.Tensor((p,), "float32") = R.match_cast(a, R.Tensor((p,), "float32"))
                c: R.Tensor((p,), "float32") = R.add(s, b)
                R.output(c)
            return c

    # Without it, nothing would be known of the sum.
    assert CanonicalizeBindings()(Before)["main"] is Before["main"]
