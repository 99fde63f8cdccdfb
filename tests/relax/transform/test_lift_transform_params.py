"""LiftTransformParams: what weights alone decide is computed before."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir.module import IRModule
from oneir.ir.structural import assert_structural_equal
from oneir.ir.transform import PassContext
from oneir.relax.transform import LiftTransformParams
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass
from oneir.testing.interpreter import interpret

rng = np.random.default_rng(0)


@I.ir_module
class Linear:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32"), b: R.Tensor((3,), "float32")
    ) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            w_t = R.permute_dims(w)
            y = R.matmul(x, w_t)
            z = R.add(y, b)
            R.output(z)
        return z


@I.ir_module
class LinearLifted:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), b: R.Tensor((3,), "float32"), w_t: R.Tensor((4, 3), "float32")
    ) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w_t)
            z = R.add(y, b)
            R.output(z)
        return z

    @R.function
    def main_transform_params(
        model_params: R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((3,), "float32")),
    ) -> R.Tuple(R.Tensor((3,), "float32"), R.Tensor((4, 3), "float32")):
        R.func_attr({"num_input": 0})
        with R.dataflow():
            w = model_params[0]
            w_t = R.permute_dims(w)
            b = model_params[1]
            gv = (b, w_t)
            R.output(gv)
        return gv


def test_a_transposed_weight_is_an_input() -> None:
    check_pass(LiftTransformParams(), Linear, LinearLifted, numbers=False)


def test_both_parts_give_what_the_whole_gave_in_the_interpreter_and_the_machine() -> None:
    after = LiftTransformParams()(Linear)
    x, w, b = (rng.standard_normal(shape).astype("float32") for shape in ((2, 4), (3, 4), (3,)))
    vm = relax.VirtualMachine(relax.build(after, "llvm"), oneir.cpu())
    weights = [oneir.runtime.tensor(v) for v in (w, b)]
    lifted = list(vm["main_transform_params"](weights))
    np.testing.assert_allclose(vm["main"](oneir.runtime.tensor(x), *lifted).numpy(), x @ w.T + b, rtol=1e-5)
    interpreted = interpret(after, (w, b), entry="main_transform_params")
    np.testing.assert_array_equal(interpreted[1], w.T)
    np.testing.assert_allclose(interpret(after, x, *interpreted), x @ w.T + b, rtol=1e-5)


def test_weights_are_dropped_where_that_is_asked_for() -> None:
    @R.function
    def expected(
        model_params: R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((3,), "float32")),
    ) -> R.Tuple(R.Tensor((3,), "float32"), R.Tensor((4, 3), "float32")):
        R.func_attr({"num_input": 0})
        with R.dataflow():
            w = model_params[0]
            _ = R.call_pure_packed("vm.builtin.tuple_reset_item", model_params, R.prim_value(0), sinfo_args=(R.Tuple,))
            w_t = R.permute_dims(w)
            b = model_params[1]
            _1 = R.call_pure_packed("vm.builtin.tuple_reset_item", model_params, R.prim_value(1), sinfo_args=(R.Tuple,))
            gv = (b, w_t)
            R.output(gv)
        return gv

    with PassContext(config={"relax.lift_transform_params.consume_params": True}):
        after = LiftTransformParams()(Linear)
    assert_structural_equal(
        after["main_transform_params"], expected.with_attr("global_symbol", "main_transform_params")
    )
    vm = relax.VirtualMachine(relax.build(after, "llvm"), oneir.cpu())
    weights = [oneir.runtime.tensor(rng.standard_normal(s).astype("float32")) for s in ((3, 4), (3,))]
    lifted = vm["main_transform_params"](weights)
    np.testing.assert_array_equal(lifted[0].numpy(), weights[1].numpy())
    np.testing.assert_array_equal(lifted[1].numpy(), weights[0].numpy().T)


def test_what_a_marker_stops_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                a = R.exp(w)
                s = R.builtin.stop_lift_params(a)
                b = R.sin(s)
                y = R.add(x, b)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                b = R.sin(a)
                y = R.add(x, b)
                R.output(y)
            return y

        @R.function
        def main_transform_params(
            model_params: R.Tuple(R.Tensor((4,), "float32")),
        ) -> R.Tuple(R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = model_params[0]
                a = R.exp(w)
                gv = (a,)
                R.output(gv)
            return gv

    # Without the marker, a second run finds more to lift.
    check_pass(LiftTransformParams(), Before, Expected, numbers=False, idempotent=False)


def test_what_no_weight_decides_is_computed_where_it_is_used() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                one = R.ones(R.shape([4]), "float32")
                y = R.add(x, one)
                z = R.multiply(y, w)
                R.output(z)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                one = R.ones(R.shape([4]), "float32")
                y = R.add(x, one)
                z = R.multiply(y, w)
                R.output(z)
            return z

        @R.function
        def main_transform_params(
            model_params: R.Tuple(R.Tensor((4,), "float32")),
        ) -> R.Tuple(R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 0})
            return model_params

    check_pass(LiftTransformParams(), Before, Expected, numbers=False)


def test_constants_go_with_the_weights_that_they_meet() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                a = R.multiply(w, R.const(2.0, "float32"))
                b = R.add(x, R.const(1.0, "float32"))
                c = R.add(a, b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                b = R.add(x, R.const(1.0, "float32"))
                c = R.add(a, b)
                R.output(c)
            return c

        @R.function
        def main_transform_params(
            model_params: R.Tuple(R.Tensor((4,), "float32")),
        ) -> R.Tuple(R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = model_params[0]
                a = R.multiply(w, R.const(2.0, "float32"))
                gv = (a,)
                R.output(gv)
            return gv

    check_pass(LiftTransformParams(), Before, Expected, numbers=False)


def test_a_weight_that_is_returned_is_an_output() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                a = R.exp(w)
                b = R.add(x, a)
                R.output(a, b)
            return (a, b)

    after = LiftTransformParams()(Before)
    relax.analysis.verify_well_formed(after)
    assert [p.name for p in after["main"].params] == ["x", "a"]


def test_a_symbolic_variable_of_a_weight_is_passed_on() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), shape: R.Shape(["n"]), w: R.Tensor(("n",), "float32")) -> R.Tensor(
            dtype="float32", ndim=1
        ):
            n = T.int64()
            R.func_attr({"num_input": 1})
            with R.dataflow():
                total = R.sum(w)
                zeros = R.zeros(R.shape([n]), "float32")
                scaled = R.sum(R.multiply(x, total))
                out = R.add(zeros, scaled)
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((4,), "float32"),
            vars_from_compile_time_params: R.Shape(["n"]),
            total: R.Tensor((), "float32"),
        ) -> R.Tensor(dtype="float32", ndim=1):
            n = T.int64()
            R.func_attr({"num_input": 1})
            with R.dataflow():
                zeros = R.zeros(R.shape([n]), "float32")
                lv = R.multiply(x, total)
                scaled = R.sum(lv)
                out = R.add(zeros, scaled)
                R.output(out)
            return out

        @R.function
        def main_transform_params(
            model_params: R.Tuple(R.Shape(["n"]), R.Tensor(("n",), "float32")),
        ) -> R.Tuple(R.Shape(["n"]), R.Tensor((), "float32")):
            n = T.int64()
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = model_params[1]
                total = R.sum(w)
                gv = (R.shape([n]), total)
                R.output(gv)
            return gv

    check_pass(LiftTransformParams(), Before, Expected, numbers=False, idempotent=False)


@I.ir_module
class Two:
    @R.function
    def decode(x: R.Tensor((1, 4), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((1, 3), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            w_t = R.permute_dims(w)
            y = R.matmul(x, w_t)
            R.output(y)
        return y

    @R.function
    def prefill(x: R.Tensor((8, 4), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((8, 3), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            e = R.exp(t)
            a = R.matmul(x, t)
            b = R.matmul(x, e)
            c = R.add(a, b)
            R.output(c)
        return c


@I.ir_module
class TwoLifted:
    @R.function
    def decode(x: R.Tensor((1, 4), "float32"), w_t: R.Tensor((4, 3), "float32")) -> R.Tensor((1, 3), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w_t)
            R.output(y)
        return y

    @R.function
    def prefill(x: R.Tensor((8, 4), "float32"), t: R.Tensor((4, 3), "float32")) -> R.Tensor((8, 3), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            e = R.exp(t)
            a = R.matmul(x, t)
            b = R.matmul(x, e)
            c = R.add(a, b)
            R.output(c)
        return c

    @R.function
    def transform_params(
        model_params: R.Tuple(R.Tensor((3, 4), "float32")),
    ) -> R.Tuple(R.Tensor((4, 3), "float32")):
        R.func_attr({"num_input": 0})
        with R.dataflow():
            w = model_params[0]
            w_t = R.permute_dims(w)
            gv = (w_t,)
            R.output(gv)
        return gv


@pytest.mark.parametrize("shared", [True, ["decode", "prefill"], ["prefill", "decode"]])
def test_a_shared_transform_computes_what_all_functions_need(shared: bool | list[str]) -> None:
    check_pass(LiftTransformParams(shared), Two, TwoLifted, numbers=False, idempotent=False)


def test_a_second_run_is_composed_with_the_first() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                b = R.exp(a)
                y = R.add(x, b)
                R.output(y)
            return y

        @R.function
        def main_transform_params(
            model_params: R.Tuple(R.Tensor((4,), "float32")),
        ) -> R.Tuple(R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = model_params[0]
                a = R.sin(w)
                gv = (a,)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.add(x, b)
                R.output(y)
            return y

        @R.function
        def main_transform_params(
            model_params: R.Tuple(R.Tensor((4,), "float32")),
        ) -> R.Tuple(R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = model_params[0]
                a = R.sin(w)
                b = R.exp(a)
                gv = (b,)
                R.output(gv)
            return gv

    check_pass(LiftTransformParams(), Before, Expected, numbers=False)


def test_functions_that_do_not_say_what_their_inputs_are_stay() -> None:
    mod = IRModule({"main": Linear["main"].without_attr("num_input")})
    assert LiftTransformParams()(mod) is mod


@pytest.mark.parametrize(
    ("shared", "kind", "message"),
    [
        (["nothing"], NotRegistered, "no function `nothing`.*it has `decode`, `prefill`"),
        (["decode", "prefill"], InvalidValue, "`decode` does not say how many of its parameters are inputs"),
        ([1], TypeMismatch, "a bool or a list of names"),
    ],
)
def test_functions_that_cannot_be_lifted_are_named(shared: list, kind: type[Exception], message: str) -> None:
    mod = IRModule(dict(Two.functions))
    mod["decode"] = Two["decode"].without_attr("num_input")
    with pytest.raises(kind, match=message):
        LiftTransformParams(shared)(mod)


def test_a_shared_transform_needs_the_same_weights() -> None:
    mod = IRModule({"main": Linear["main"], **{v.name_hint: f for v, f in Two.functions.items()}})
    with pytest.raises(InvalidValue, match="`decode` has 1 and `main` has 2"):
        LiftTransformParams(True)(mod)
