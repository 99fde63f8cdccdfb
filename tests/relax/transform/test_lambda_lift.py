"""LambdaLift: names of lifted functions, closures, recursion."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.ir.structural import assert_structural_equal
from oneir.relax.transform import LambdaLift
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_a_function_that_captures_nothing_is_called_directly() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                b = R.exp(a)
                return b

            y = inner(x)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            y = cls.main_inner(x)
            return y

        @R.function(private=True)
        def main_inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.exp(a)
            return b

    check_pass(LambdaLift(), Before, Expected)


def test_a_function_that_captures_becomes_a_closure() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def add_y(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                b = R.add(a, y)
                return b

            z = add_y(x)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            add_y = R.make_closure(cls.main_add_y, (y,))
            z = R.invoke_pure_closure(add_y, (x,), sinfo_args=(R.Tensor((4,), "float32"),))
            return z

        @R.function(private=True)
        def main_add_y(a: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.add(a, y)
            return b

    check_pass(LambdaLift(), Before, Expected)


def test_a_returned_closure_is_invoked_by_the_caller() -> None:
    @I.ir_module
    class Before:
        @R.function
        def adder(y: R.Tensor((4,), "float32")) -> R.Object:
            @R.function
            def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                b = R.add(a, y)
                return b

            return inner

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            add_x: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")) = cls.adder(x)
            y = R.invoke_pure_closure(add_x, (x,), sinfo_args=(R.Tensor((4,), "float32"),))
            return y

    after = LambdaLift()(Before)
    assert [v.name_hint for v, _ in after.functions_items()] == ["adder", "adder_inner", "main"]
    made = after["adder"].body.blocks[0].bindings[0].value
    assert made.op.name == "relax.make_closure" and made.args[1].fields[0] is after["adder"].params[0]
    relax.analysis.verify_well_formed(after)


def test_recursion_goes_by_the_new_name() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def loop(d: R.Tensor((), "bool"), a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                if d:
                    r = a
                else:
                    e = R.exp(a)
                    r = loop(c, e)
                return r

            y = loop(c, x)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            loop = R.make_closure(cls.main_loop, (c,))
            y = R.invoke_pure_closure(loop, (c, x), sinfo_args=(R.Tensor((4,), "float32"),))
            return y

        @R.function(private=True)
        def main_loop(d: R.Tensor((), "bool"), a: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (4,), "float32"
        ):
            cls = Expected
            if d:
                r = a
            else:
                e = R.exp(a)
                r = cls.main_loop(c, e, c)
            return r

    check_pass(LambdaLift(), Before, Expected, numbers=False)


def test_a_function_inside_of_a_closure_captures_through_it() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def outer(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                @R.function
                def inner(b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                    c = R.add(b, y)
                    return c

                d = inner(a)
                return d

            z = outer(x)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            outer = R.make_closure(cls.main_outer, (y,))
            z = R.invoke_pure_closure(outer, (x,), sinfo_args=(R.Tensor((4,), "float32"),))
            return z

        @R.function(private=True)
        def main_outer(a: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            inner = R.make_closure(cls.main_inner, (y,))
            d = R.invoke_pure_closure(inner, (a,), sinfo_args=(R.Tensor((4,), "float32"),))
            return d

        @R.function(private=True)
        def main_inner(b: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            c = R.add(b, y)
            return c

    check_pass(LambdaLift(), Before, Expected)


def local(name: str, **attrs: object) -> tuple[relax.Var, relax.Function]:
    info = relax.TensorStructInfo((4,), "float32")
    a = relax.Var("a", info)
    func = relax.Function([a], a, info, attrs=attrs)
    return relax.Var(name, func.struct_info), func


def around(*locals_: tuple[relax.Var, relax.Function]) -> relax.Function:
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    bindings = [relax.VarBinding(var, func) for var, func in locals_]
    return relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], x), x.struct_info)


def lifted(**functions: relax.Function) -> list[str]:
    from oneir.ir.module import IRModule

    after = LambdaLift()(IRModule(functions))
    return [v.name_hint for v, _ in after.functions_items() if v.name_hint not in functions]


def test_names_are_short_then_whole_then_numbered() -> None:
    assert lifted(f=around(local("g")), h=around(local("g"))) == ["f_g", "h_g"]
    assert lifted(f=around(local("g")), f_g=around()) == ["f_g_0"]
    assert lifted(f=around(local("g"), local("g"))) == ["f_g_0", "f_g_1"]
    nested = around(local("g"))
    assert lifted(f=around(local("g"), (relax.Var("k", nested.struct_info), nested))) == ["f_g_0", "f_k", "f_k_g"]
    assert lifted(f=around(local("g", global_symbol="public"))) == ["public"]


def test_a_public_name_that_is_taken_is_refused() -> None:
    with pytest.raises(InvalidValue, match="local function `g` of `f` has the global_symbol 'h'"):
        lifted(f=around(local("g", global_symbol="h")), h=around())
    with pytest.raises(InvalidValue, match="local function `k` of `f` has the global_symbol 'p'"):
        lifted(f=around(local("g", global_symbol="p"), local("k", global_symbol="p")))


def test_nothing_to_lift() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

    assert_structural_equal(check_pass(LambdaLift(), Module, Module), Module)
