"""BindParams: parameters become constants, and shapes known."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import relax, runtime
from oneir.relax.transform import BindParams
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass

WEIGHTS = np.arange(8, dtype="float32").reshape(4, 2)


@I.ir_module
class Linear:
    @R.function
    def main(
        x: R.Tensor(("batch", "n"), "float32"), w: R.Tensor(("n", 2), "float32"), b: R.Tensor((2,), "float32")
    ) -> R.Tensor(("batch", 2), "float32"):
        with R.dataflow():
            lv = R.matmul(x, w)
            gv = R.add(lv, b)
            R.output(gv)
        return gv

    @R.function
    def other(w: R.Tensor((4, 2), "float32")) -> R.Tensor((4, 2), "float32"):
        return R.exp(w)


@pytest.mark.parametrize("form", [np.asarray, runtime.tensor, relax.const])
def test_a_parameter_becomes_a_constant_and_its_symbolic_extent_a_number(form) -> None:
    after = BindParams("main", {"w": form(WEIGHTS)})(Linear)
    func = after["main"]
    assert [p.name for p in func.params] == ["x", "b"]
    assert str(func.params[0].struct_info) == 'R.Tensor((batch, 4), dtype="float32")'
    constant = func.body.blocks[0].bindings[0].value.args[1]
    assert isinstance(constant, relax.Constant)
    np.testing.assert_array_equal(constant.data.numpy(), WEIGHTS)
    assert after["other"] is Linear["other"]
    relax.analysis.verify_well_formed(after)


def test_keys_may_be_variables_and_values_of_any_number() -> None:
    func = Linear["main"]
    after = BindParams("main", {func.params[1]: WEIGHTS, "b": np.ones(2, "float32")})(Linear)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("batch", 4), "float32")) -> R.Tensor(("batch", 2), "float32"):
            with R.dataflow():
                lv = R.matmul(x, R.const([[0, 1], [2, 3], [4, 5], [6, 7]], "float32"))
                gv = R.add(lv, R.const([1, 1], "float32"))
                R.output(gv)
            return gv

        @R.function
        def other(w: R.Tensor((4, 2), "float32")) -> R.Tensor((4, 2), "float32"):
            return R.exp(w)

    check_pass(
        BindParams("main", {func.params[1]: WEIGHTS, "b": np.ones(2, "float32")}),
        Linear,
        Expected,
        idempotent=False,
        numbers=False,
    )
    assert after["main"].bind_params({}) is after["main"]


def test_numbers_take_the_dtype_of_the_parameter() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(k: R.Prim("int32")) -> R.Prim("int32"):
            return k

    body = BindParams("main", {"k": 3})(Module)["main"].body.body
    assert isinstance(body, relax.PrimValue) and body.value.dtype == "int32" and body.value.value == 3


def test_a_public_function_goes_by_its_global_symbol() -> None:
    mod = Linear.replace_global_vars({"other": "renamed"})
    mod["renamed"] = mod["renamed"].with_attr("global_symbol", "outside")
    assert not BindParams("outside", {"w": WEIGHTS})(mod)["renamed"].params
    with pytest.raises(NotRegistered, match="no graph function 'renamed'"):
        BindParams("renamed", {"w": WEIGHTS})(mod)


@pytest.mark.parametrize(
    ("params", "kind", "message"),
    [
        ({"weight": WEIGHTS}, NotRegistered, "no parameter `weight`; it has x, w, b"),
        ({"w": WEIGHTS.T}, TypeMismatch, r"parameter `w` .* expected .*\(2, 2\).*, found .*\(2, 4\)"),
        ({"b": np.ones(2)}, TypeMismatch, r"parameter `b` .* expected .*float32.*, found .*float64"),
        ({"b": np.ones((2, 1), "float32")}, TypeMismatch, r"parameter `b` .* found .*\(2, 1\)"),
        ({"w": WEIGHTS, "x": np.ones((1, 3), "float32")}, TypeMismatch, r"parameter `x` .*\(1, 4\).* found .*\(1, 3\)"),
        ({"b": object()}, TypeMismatch, "parameter `b` is bound to <object"),
        ({3: WEIGHTS}, TypeMismatch, "named by str or relax.Var, found 3"),
    ],
)
def test_what_does_not_fit_is_refused(params, kind, message) -> None:
    with pytest.raises(kind, match=message):
        BindParams("main", params)(Linear)


def test_a_parameter_given_twice_or_a_name_that_two_have_is_refused() -> None:
    func = Linear["main"]
    with pytest.raises(InvalidValue, match="`w` is given two values"):
        func.bind_params({"w": WEIGHTS, func.params[1]: WEIGHTS})
    x, y = (relax.Var("a", relax.TensorStructInfo((2,), "float32")) for _ in range(2))
    twins = relax.Function([x, y], x)
    with pytest.raises(InvalidValue, match="2 parameters named 'a'"):
        twins.bind_params({"a": np.ones(2, "float32")})
    assert twins.bind_params({y: np.ones(2, "float32")}).params == [x]


def test_what_a_value_says_more_than_its_parameter_is_known_of_the_result():
    @R.function(private=True)
    def func(w: R.Tensor(ndim=2)):
        v: R.Tensor(ndim=2) = w
        return R.add(v, v)

    bound = func.bind_params({"w": WEIGHTS})
    assert str(bound.ret_struct_info) == 'R.Tensor((4, 2), dtype="float32")'
