"""DeadCodeElimination: what nothing needs goes, what has effects stays."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.ir.module import IRModule
from oneir.relax.transform import DeadCodeElimination
from oneir.runtime.error import NotRegistered
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_unused_bindings_go_in_and_out_of_dataflow() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                unused = R.add(a, a)
                unused1 = R.exp(unused)
                b = R.add(a, x)
                R.output(b, unused1)
            c = R.exp(unused1)
            return b

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)
                R.output(b)
            return b

    check_pass(DeadCodeElimination(), Before, Expected)


def test_effects_and_casts_stay() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            y = R.exp(x)
            _ = R.print(y, format="{}")
            z = R.match_cast(x, R.Tensor((8,), "float32"))
            return x

    check_pass(DeadCodeElimination(), Module, Module, numbers=False)


@I.ir_module
class Functions:
    @T.prim_func(private=True)
    def loops(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] + T.float32(1)

    @T.prim_func(private=True)
    def unused_loops(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] + T.float32(2)

    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Functions
        y = R.call_tir(cls.loops, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return y

    @R.function(private=True)
    def unused(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Functions
        y = R.call_tir(cls.unused_loops, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Functions
        dead = cls.unused(x)
        return cls.helper(x)


def test_functions_that_are_not_called_go_also_when_only_dead_code_calls_them() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def loops(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("b"):
                    v = T.axis.spatial(4, i)
                    B[v] = A[v] + T.float32(1)

        @R.function(private=True)
        def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            y = R.call_tir(cls.loops, (x,), out_sinfo=R.Tensor((4,), "float32"))
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            return cls.helper(x)

    check_pass(DeadCodeElimination(), Functions, Expected)


def test_entry_functions_stay_with_what_they_call() -> None:
    after = DeadCodeElimination(["unused"])(Functions)
    assert {v.name_hint for v in after.functions} == {"main", "helper", "loops", "unused", "unused_loops"}


def test_external_functions_stay() -> None:
    info = relax.FuncStructInfo.opaque_func()
    mod = IRModule({**Functions.functions, "outside": relax.ExternFunc("outside", info)})
    assert "outside" in {v.name_hint for v in DeadCodeElimination()(mod).functions}


def test_nothing_goes_from_a_module_that_is_not_complete() -> None:
    functions = {var: func for var, func in Functions.functions.items() if var.name_hint != "helper"}
    after = DeadCodeElimination()(IRModule(functions))
    assert {v.name_hint for v in after.functions} == {v.name_hint for v in functions}


def test_an_unknown_entry_function_is_refused() -> None:
    with pytest.raises(NotRegistered, match=r"no function 'mian'; it has helper, .*did you mean 'main'"):
        DeadCodeElimination(["mian"])(Functions)
