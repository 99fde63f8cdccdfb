"""LazyTransformParams: weights are loaded and handed out one by one."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.transform import LazyTransformParams
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    @R.function
    def main_transform_params(
        params: R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((3,), "float32")),
    ) -> R.Tuple(R.Tensor((3,), "float32"), R.Tensor((4, 3), "float32"), R.Tensor((), "float32")):
        R.func_attr({"relax.force_pure": True})
        w = params[0]
        b = params[1]
        w_t = R.permute_dims(w)
        gv = (b, w_t, R.const(1.0, "float32"))
        return gv


@I.ir_module
class Expected:
    @R.function(pure=False)
    def main_transform_params() -> R.Tuple:
        gv = R.call_packed("get_item", R.prim_value(0), sinfo_args=(R.Object,))
        gv1 = R.match_cast(gv, R.Tensor((3, 4), "float32"))
        w = gv1
        gv2 = R.call_packed("get_item", R.prim_value(1), sinfo_args=(R.Object,))
        gv3 = R.match_cast(gv2, R.Tensor((3,), "float32"))
        b = gv3
        _ = R.call_packed("set_item", R.prim_value(0), b, sinfo_args=(R.Object,))
        _1 = R.vm.kill_object(b)
        w_t = R.permute_dims(w)
        _2 = R.vm.kill_object(w)
        _3 = R.call_packed("set_item", R.prim_value(1), w_t, sinfo_args=(R.Object,))
        gv4 = R.tuple()
        _4 = R.call_packed("set_item", R.prim_value(2), R.const(1.0, "float32"), sinfo_args=(R.Object,))
        return gv4


def test_weights_live_from_their_first_to_their_last_use() -> None:
    check_pass(LazyTransformParams(), Before, Expected, numbers=False, idempotent=False)


def test_the_machine_loads_and_hands_out() -> None:
    rng = np.random.default_rng(0)
    w, b = (rng.standard_normal(shape).astype("float32") for shape in ((3, 4), (3,)))
    results = {}

    @oneir.register_global_func("tests.lazy_transform_params.get", override=True)
    def get(index: int) -> oneir.runtime.Tensor:
        return oneir.runtime.tensor((w, b)[index])

    @oneir.register_global_func("tests.lazy_transform_params.set", override=True)
    def put(index: int, value: oneir.runtime.Tensor) -> None:
        results[index] = value.numpy().copy()

    names = [f"tests.lazy_transform_params.{name}" for name in ("get", "set")]
    vm = relax.VirtualMachine(relax.build(LazyTransformParams(*names)(Before), "llvm"), oneir.cpu())
    vm["main_transform_params"]()
    assert list(results) == [0, 1, 2]
    np.testing.assert_array_equal(results[0], b)
    np.testing.assert_array_equal(results[1], w.T)
    assert results[2] == 1


def test_inputs_and_extra_parameters_come_first() -> None:
    @I.ir_module
    class Inputs:
        @R.function
        def transform_params(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 1})
            y = R.add(x, w)
            gv = (y,)
            return gv

    @I.ir_module
    class InputsLazy:
        @R.function(pure=False)
        def transform_params(x: R.Tensor((4,), "float32"), loader: R.Object, saver: R.Object) -> R.Tuple:
            R.func_attr({"num_input": 1})
            gv = R.call_packed("load", loader, R.prim_value(0), sinfo_args=(R.Object,))
            w = R.match_cast(gv, R.Tensor((4,), "float32"))
            y = R.add(x, w)
            _ = R.call_packed("save", saver, R.prim_value(0), y, sinfo_args=(R.Object,))
            gv1 = R.tuple()
            return gv1

    extra = [relax.Var(name, relax.ObjectStructInfo()) for name in ("loader", "saver")]
    check_pass(
        LazyTransformParams("load", "save", extra[:1], extra[1:]), Inputs, InputsLazy, numbers=False, idempotent=False
    )


def test_without_a_function_that_takes_results_they_are_returned() -> None:
    @I.ir_module
    class Returned:
        @R.function
        def transform_params(params: R.Tuple(R.Shape(["n"]), R.Tensor(("n",), "float32"))):
            w = params[1]
            y = R.exp(w)
            gv = (y,)
            return gv

    after = LazyTransformParams(fset_item=None)(Returned)
    relax.analysis.verify_well_formed(after)
    function = after["transform_params"]
    assert [p.name for p in function.params] == ["symbolic_var_holder"]
    assert [b.var.name for b in function.body.blocks[0].bindings][2:] == ["w", "y", "gv"]


def test_other_functions_stay() -> None:
    @I.ir_module
    class Other:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    check_pass(LazyTransformParams(), Other, Other)


def test_dataflow_blocks_are_refused() -> None:
    @I.ir_module
    class Dataflow:
        @R.function
        def transform_params(params: R.Tuple(R.Tensor((4,), "float32"))):
            with R.dataflow():
                w = params[0]
                gv = (w,)
                R.output(gv)
            return gv

    with pytest.raises(InvalidValue, match=r"`transform_params` has dataflow blocks.*run ToNonDataflow"):
        LazyTransformParams()(Dataflow)


def test_a_result_that_is_no_tuple_is_refused() -> None:
    @I.ir_module
    class Single:
        @R.function
        def transform_params(params: R.Tuple(R.Tensor((4,), "float32"))):
            w = params[0]
            return w

    with pytest.raises(InvalidValue, match="expected `transform_params` to return a tuple of weights"):
        LazyTransformParams()(Single)
    with pytest.raises(TypeMismatch, match="handing out results alone is not supported"):
        LazyTransformParams(None)
