"""Where variables get their values, and the chain from a definition to its uses."""

from __future__ import annotations

from oneir import relax
from oneir.relax import BlockBuilder, TensorStructInfo
from oneir.relax.analysis import get_var2val, name_to_binding, udchain


def tensor(name):
    return relax.Var(name, TensorStructInfo((2, 3), "float32"))


def chain():
    """main(x): a = exp(x); b = add(a, x); c = exp(b) (unused); returns b."""
    x, builder = tensor("x"), BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.exp(x), "a")
            b = builder.emit(relax.op.add(a, x), "b")
            builder.emit(relax.op.exp(b), "c")
            out = builder.emit_output(b, "out")
        builder.emit_func_output(out)
    return builder.finalize()["main"]


def by_name(func):
    return {b.var.name: b for block in func.body.blocks for b in block.bindings}


def test_each_bound_variable_has_its_value():
    func = chain()
    bindings, values = by_name(func), get_var2val(func)
    assert set(values) == {b.var for b in bindings.values()}
    for binding in bindings.values():
        assert values[binding.var] is binding.value


def test_values_in_branches_and_local_functions_are_found():
    x, y, z = tensor("x"), tensor("y"), tensor("z")
    inner = relax.Function([y], relax.SeqExpr([relax.BindingBlock([relax.VarBinding(z, y)])], z))
    local = relax.Var("local", inner.struct_info)
    branch, result = tensor("branch"), tensor("result")
    condition = relax.If(
        relax.const(True, "bool"), relax.SeqExpr([relax.BindingBlock([relax.VarBinding(branch, x)])], branch), x
    )
    block = relax.BindingBlock([relax.VarBinding(local, inner), relax.VarBinding(result, condition)])
    func = relax.Function([x], relax.SeqExpr([block], result), TensorStructInfo((2, 3), "float32"))
    assert get_var2val(func) == {local: inner, z: y, result: condition, branch: x}


def test_names_lead_to_all_bindings_of_that_name():
    x, first, second = tensor("x"), tensor("y"), tensor("y")
    bindings = [relax.VarBinding(first, x), relax.VarBinding(second, first)]
    func = relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], second))
    assert name_to_binding(func) == {"y": bindings}


def test_the_chain_of_a_block_names_the_users():
    func = chain()
    b = by_name(func)
    found = udchain(func.body.blocks[0])
    names = {var.name: [user.name for user in users] for var, users in found.items()}
    assert names == {"x": ["a", "b"], "a": ["b"], "b": ["c", "out"], "c": [], "out": []}
    assert found[func.params[0]][0] is b["a"].var


def test_a_variable_used_twice_by_one_value_has_one_user():
    x, y = tensor("x"), relax.DataflowVar("y", TensorStructInfo((2, 3), "float32"))
    block = relax.DataflowBlock([relax.VarBinding(y, relax.op.add(x, x))])
    assert [user.name for user in udchain(block)[x]] == ["y"]
