"""Changes of a dataflow block show in the block, in its function and in its module; what is impossible is refused."""

from __future__ import annotations

import pytest

from oneir import IRModule, relax
from oneir.ir.structural import structural_equal
from oneir.relax import DataflowBlockRewrite, TensorStructInfo
from oneir.relax.analysis import verify_well_formed
from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.script import ir as I
from oneir.script import relax as R

INFO = TensorStructInfo((2, 3), "float32")


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            c = R.exp(b)
            out = R.add(b, b)
            R.output(out)
        return out


def start():
    func = Module["main"]
    rewrite = DataflowBlockRewrite(func.body.blocks[0], func)
    return rewrite, {b.var.name: b.var for b in func.body.blocks[0].bindings}, func.params[0]


def names(rewrite):
    return [b.var.name for b in rewrite.mutated_dfb().bindings]


def check(rewrite):
    """The function holds the block, and the module the function."""
    func, mod = rewrite.mutated_root_fn(), rewrite.mutate_irmodule(Module)
    assert func.body.blocks[0] is rewrite.mutated_dfb()
    assert mod["main"] is func
    verify_well_formed(mod)


def test_without_a_change_everything_stays():
    rewrite, _, _ = start()
    assert rewrite.mutated_root_fn() is Module["main"] and rewrite.mutated_dfb() is Module["main"].body.blocks[0]
    assert structural_equal(rewrite.mutate_irmodule(Module), Module)


def test_uses_are_replaced_everywhere_but_where_the_variable_is_defined():
    rewrite, variables, x = start()
    rewrite.replace_all_uses(variables["a"], x)
    first, second = rewrite.mutated_dfb().bindings[:2]
    assert first.var is variables["a"]
    assert all(a is x for a in second.value.args)
    check(rewrite)


def test_the_result_of_the_function_is_a_use():
    rewrite, variables, x = start()
    rewrite.replace_all_uses(variables["out"], x)
    assert rewrite.mutated_root_fn().body.body is x
    check(rewrite)


def test_an_unused_binding_is_removed():
    rewrite, variables, _ = start()
    rewrite.remove_unused(variables["c"])
    assert names(rewrite) == ["a", "b", "out"]
    check(rewrite)


def test_a_used_or_unknown_binding_is_not_removed():
    rewrite, variables, _ = start()
    with pytest.raises(InvalidValue, match="`b` is used by `c`, `out`, so it cannot be removed"):
        rewrite.remove_unused(variables["b"])
    with pytest.raises(InvalidValue, match="`out` is used by the function's result, so it cannot be removed"):
        rewrite.remove_unused(variables["out"])
    unknown = relax.Var("unknown", INFO)
    with pytest.raises(NotRegistered, match="the function has no variable `unknown`; allow_undef=True lets that pass"):
        rewrite.remove_unused(unknown)
    rewrite.remove_unused(unknown, allow_undef=True)
    with pytest.raises(NotRegistered, match="the function has no variable `unknown`"):
        rewrite.replace_all_uses(variables["b"], unknown)
    assert names(rewrite) == ["a", "b", "c", "out"]


def test_everything_unused_is_removed_at_once():
    rewrite, variables, x = start()
    rewrite.replace_all_uses(variables["b"], x)
    rewrite.remove_all_unused()
    assert names(rewrite) == ["out"]
    check(rewrite)


def test_a_value_is_added_behind_what_it_uses():
    rewrite, variables, x = start()
    rewrite.add(relax.op.exp(variables["b"]), name="new", is_dfvar=True)
    assert names(rewrite) == ["a", "b", "new", "c", "out"]
    assert isinstance(rewrite.mutated_dfb().bindings[2].var, relax.DataflowVar)
    rewrite.add(relax.op.add(x, relax.op.exp(x)))
    added = [b for b in rewrite.mutated_dfb().bindings if b.var.name.startswith("tmp")]
    assert len(added) == 1 and type(added[0].var) is relax.Var
    check(rewrite)


def test_a_binding_is_added_once():
    rewrite, variables, _ = start()
    new = relax.VarBinding(relax.DataflowVar("new", INFO), variables["a"])
    rewrite.add_binding(new)
    assert new in rewrite.mutated_dfb().bindings
    check(rewrite)
    with pytest.raises(InvalidValue, match="the function has the variable `new` already; bind another one"):
        rewrite.add_binding(new)


def test_other_functions_of_the_module_stay():
    y = relax.Var("y", INFO)
    other = relax.Function([y], y, INFO)
    mod = IRModule({**Module.functions, "other": other})
    rewrite, variables, _ = start()
    rewrite.remove_unused(variables["c"])
    assert rewrite.mutate_irmodule(mod)["other"] is other
