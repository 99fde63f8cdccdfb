"""Which calls have side effects, and what that makes of the function around them."""

from __future__ import annotations

from oneir import relax
from oneir.ir.expr import GlobalVar
from oneir.relax import FuncStructInfo, TensorStructInfo
from oneir.relax.analysis import contains_impure_call

INFO = TensorStructInfo((2, 3), "float32")


def function(*values, params=()):
    """A function that binds each value to a variable and returns the last variable."""
    variables = [relax.Var(f"v{i}", INFO) for i in range(len(values))]
    bindings = [relax.VarBinding(var, value) for var, value in zip(variables, values, strict=True)]
    return relax.Function(params, relax.SeqExpr([relax.BindingBlock(bindings)], variables[-1]), INFO, False)


def test_operators_without_effects_are_pure():
    x = relax.Var("x", INFO)
    assert not contains_impure_call(function(relax.op.exp(x), relax.op.add(x, x), params=[x]))


def test_printing_is_an_effect():
    x = relax.Var("x", INFO)
    assert contains_impure_call(function(relax.op.print(x, format="{}"), params=[x]))


def test_a_function_of_the_runtime_may_do_anything_unless_said_otherwise():
    x = relax.Var("x", INFO)
    assert contains_impure_call(function(relax.Call(relax.extern("f"), [x], sinfo_args=[INFO]), params=[x]))
    assert not contains_impure_call(function(relax.op.call_pure_packed("f", x, sinfo_args=[INFO]), params=[x]))


def test_a_function_is_as_pure_as_its_struct_info_says():
    x = relax.Var("x", INFO)
    for purity in (True, False):
        callee = relax.Var("f", FuncStructInfo([INFO], INFO, purity))
        assert contains_impure_call(function(relax.Call(callee, [x]), params=[x])) is not purity


def test_calls_of_itself_are_left_out_on_request():
    x, name = relax.Var("x", INFO), GlobalVar("main")
    name.struct_info_ = FuncStructInfo([INFO], INFO, purity=False)
    func = function(relax.Call(name, [x]), params=[x])
    assert contains_impure_call(func)
    assert not contains_impure_call(func, own_name=name)


def test_a_local_function_has_its_effect_where_it_is_called():
    x, y = relax.Var("x", INFO), relax.Var("y", INFO)
    inner = function(relax.op.print(y, format=""), params=[y])
    local = relax.Var("local", inner.struct_info)
    binding = relax.VarBinding(local, inner)

    def around(result):
        return relax.Function([x], relax.SeqExpr([relax.BindingBlock([binding])], result), INFO, False)

    assert contains_impure_call(inner)
    assert not contains_impure_call(around(x))
    assert contains_impure_call(around(relax.Call(local, [x])))


def test_what_is_called_without_being_known_is_impure():
    x, anything = relax.Var("x", INFO), relax.Var("f", relax.ObjectStructInfo())
    assert contains_impure_call(relax.Call(anything, [x], sinfo_args=[INFO]))
