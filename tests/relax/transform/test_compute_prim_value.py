"""ComputePrimValue: numbers in graphs are constants or symbolic variables."""

from __future__ import annotations

from oneir.relax.transform import ComputePrimValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tuple(R.Prim("int64"), R.Prim("bool"), R.Prim("int64")):
        m = T.int64()
        n = T.int64()
        a: R.Prim("int64") = R.prim_value(m * n + 1)
        b: R.Prim("bool") = R.prim_value(m == n)
        c: R.Prim("int64") = R.prim_value(n)
        return (a, b, c)


def test_what_has_to_be_computed_is_a_call_of_loops() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def compute_symbolic_expr(m: T.int64, n: T.int64) -> T.int64:
            T.func_attr({"tir.is_host_func": True})
            T.ret(m * n + T.int64(1))

        @T.prim_func(private=True)
        def compute_symbolic_expr1(m: T.int64, n: T.int64) -> T.bool:
            T.func_attr({"tir.is_host_func": True})
            T.ret(m == n)

        @R.function
        def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tuple(R.Prim("int64"), R.Prim("bool"), R.Prim("int64")):
            m = T.int64()
            n = T.int64()
            cls = Expected
            a: R.Prim("int64") = cls.compute_symbolic_expr(R.prim_value(m), R.prim_value(n))
            b: R.Prim("bool") = cls.compute_symbolic_expr1(R.prim_value(m), R.prim_value(n))
            c: R.Prim("int64") = R.prim_value(n)
            return (a, b, c)

    check_pass(ComputePrimValue(), Before, Expected, numbers=False)


def test_an_argument_gets_a_variable_and_equal_expressions_one_function() -> None:
    @I.ir_module
    class Args:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            _ = R.print(R.prim_value(n * 2), R.prim_value(n * 2), R.prim_value(3), format="{} {} {}")
            return x

    after = ComputePrimValue()(Args)
    assert sorted(v.name_hint for v in after.functions) == ["compute_symbolic_expr", "main"]
    first, second, printed = after["main"].body.blocks[0].bindings
    assert printed.value.args[1] is first.var and printed.value.args[2] is second.var
    assert str(first.var.struct_info) == 'R.Prim("int64")'


def test_nothing_to_compute() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Prim("int64"):
            n = T.int64()
            return R.prim_value(n)

    check_pass(ComputePrimValue(), Module, Module)
