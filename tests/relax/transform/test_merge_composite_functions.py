"""MergeCompositeFunctions: which composite calls become one function for a compiler."""

from __future__ import annotations

import pytest

from oneir import IRModule
from oneir.relax.dpl import is_op, wildcard
from oneir.relax.transform import FuseOpsByPattern, MergeCompositeFunctions
from oneir.runtime.error import NotRegistered
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass
from oneir.testing.numerics import assert_same_numbers


def composites(mod: IRModule) -> IRModule:
    """exp, tanh and add for the compiler `a`, negative for `b`; abs stays."""
    unary = [(f"a.{name}", is_op(f"relax.{name}")(wildcard())) for name in ("exp", "tanh")]
    total = ("a.add", is_op("relax.add")(wildcard(), wildcard()))
    return FuseOpsByPattern([*unary, total, ("b.negative", is_op("relax.negative")(wildcard()))])(mod)


def compilers(mod: IRModule) -> dict[str, str]:
    return {v.name_hint: f.attrs["Codegen"] for v, f in mod.functions.items() if "Codegen" in f.attrs}


def test_neighbours_for_one_compiler_become_one_function() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def fused_relax_exp(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Composite": "a.exp", "Primitive": True})
            with R.dataflow():
                gv = R.exp(x)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            with R.dataflow():
                lv = cls.fused_relax_exp(x)
                lv1 = cls.fused_relax_exp(lv)
                gv = R.abs(lv1)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def fused_relax_exp_relax_exp_a(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "a"})

            @R.function
            def local(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                R.func_attr({"Composite": "a.exp"})
                with R.dataflow():
                    gv = R.exp(y)
                    R.output(gv)
                return gv

            lv = local(x)
            lv1 = local(lv)
            return lv1

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                lv = cls.fused_relax_exp_relax_exp_a(x)
                gv = R.abs(lv)
                R.output(gv)
            return gv

    check_pass(MergeCompositeFunctions(), Before, Expected)


def test_a_diamond_is_one_function_unless_another_compiler_is_between() -> None:
    @I.ir_module
    class Diamond:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                top = R.exp(x)
                left = R.tanh(top)
                right = R.exp(top)
                gv = R.add(left, right)
                R.output(gv)
            return gv

    @I.ir_module
    class Through:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                top = R.exp(x)
                left = R.tanh(top)
                right = R.negative(top)
                gv = R.add(left, right)
                R.output(gv)
            return gv

    before = composites(Diamond)
    after = MergeCompositeFunctions()(before)
    assert list(compilers(after).values()) == ["a"]
    assert_same_numbers(before, after, entry="main")
    # What is added needs `b`, which needs the upper part of `a`: two functions of `a`.
    before = composites(Through)
    after = MergeCompositeFunctions()(before)
    assert sorted(compilers(after).values()) == ["a", "a", "b"]
    assert "fused_relax_exp_relax_tanh_a" in compilers(after)
    assert_same_numbers(before, after, entry="main")


def test_what_needs_one_part_through_a_tuple_or_an_operator_is_not_merged_with_it() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                top = R.exp(x)
                between = R.split(top, indices_or_sections=2, axis=0)
                part = between[0]
                wide = R.concat((part, part), axis=0)
                gv = R.add(wide, top)
                R.output(gv)
            return gv

    before = composites(Before)
    after = MergeCompositeFunctions()(before)
    assert sorted(compilers(after).values()) == ["a", "a"]
    assert_same_numbers(before, after, entry="main")


def test_two_groups_are_joined_by_what_uses_both() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.tanh(y)
                c = R.abs(a)
                d = R.add(a, b)
                e = R.add(d, c)
                R.output(e)
            return e

    before = composites(Before)
    after = MergeCompositeFunctions()(before)
    # The last sum needs abs(a), so it is a function of its own.
    assert sorted(compilers(after).values()) == ["a", "a"]
    assert_same_numbers(before, after, entry="main")


def test_another_name_of_a_result_belongs_to_its_function() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.tanh(a)
                c = b
                R.output(c)
            return c

    before = composites(Before)
    after = MergeCompositeFunctions()(before)
    assert len(after["main"].body.blocks[0].bindings) == 1
    assert_same_numbers(before, after, entry="main")


def test_a_module_without_composite_functions_stays_as_it_is() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                gv = R.exp(x)
                R.output(gv)
            return gv

    assert MergeCompositeFunctions()(Before) is Before
    with pytest.raises(NotRegistered, match="merges what the graph function `main` calls; the module has none"):
        MergeCompositeFunctions()(IRModule({}))
