"""Unused bindings go, with what only they used; effects, casts and what is returned stay."""

from __future__ import annotations

from oneir import relax, tir
from oneir.relax import BlockBuilder, TensorStructInfo
from oneir.relax.analysis import remove_all_unused

INFO = TensorStructInfo((2, 3), "float32")


def names(func):
    return [[b.var.name for b in block.bindings] for block in func.body.blocks]


def test_a_chain_that_leads_nowhere_goes():
    x, builder = relax.Var("x", INFO), BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.exp(x), "a")
            b = builder.emit(relax.op.exp(x), "b")
            builder.emit(relax.op.exp(b), "c")
            out = builder.emit_output(a, "out")
        builder.emit_func_output(out)
    func = builder.finalize()["main"]
    assert names(func) == [["a", "b", "c", "out"]]
    assert names(remove_all_unused(func)) == [["a", "out"]]


def test_a_body_alone_is_cleaned_too():
    x, builder = relax.Var("x", INFO), BlockBuilder()
    with builder.function("main", [x]):
        builder.emit(relax.op.exp(x), "unused")
        builder.emit_func_output(builder.emit(relax.op.exp(x), "used"))
    func = builder.finalize()["main"]
    cleaned = remove_all_unused(func.body)
    assert [b.var.name for b in cleaned.blocks[0].bindings] == ["used"]
    assert remove_all_unused(cleaned) is cleaned and remove_all_unused(x) is x


def test_nothing_to_remove_is_the_identical_function():
    x, builder = relax.Var("x", INFO), BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(relax.op.exp(x))
        builder.emit_func_output(y)
    func = builder.finalize()["main"]
    assert remove_all_unused(func) is func


def test_a_block_that_is_empty_then_goes_too():
    x, builder = relax.Var("x", INFO), BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit_output(relax.op.exp(x))
        y = builder.emit(relax.op.exp(x), "y")
        builder.emit_func_output(y)
    assert names(remove_all_unused(builder.finalize()["main"])) == [["y"]]


def test_effects_stay_with_what_they_use():
    x, builder = relax.Var("x", INFO), BlockBuilder()
    with builder.function("main", [x], pure=False):
        y = builder.emit(relax.op.exp(x), "y")
        builder.emit(relax.op.print(y, format="{}"), "printed")
        builder.emit(relax.op.exp(y), "unused")
        builder.emit_func_output(x)
    assert names(remove_all_unused(builder.finalize()["main"])) == [["y", "printed"]]


def test_casts_stay_with_what_they_cast():
    n = tir.Var("n", "int64")
    x, builder = relax.Var("x", TensorStructInfo(dtype="float32", ndim=1)), BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(relax.op.exp(x), "y")
        builder.match_cast(y, TensorStructInfo((n,), "float32"), "cast")
        shape = builder.emit(relax.ShapeExpr([n]), "shape")
        builder.emit_func_output(shape)
    assert names(remove_all_unused(builder.finalize()["main"])) == [["y", "cast", "shape"]]


def test_branches_are_cleaned_and_keep_what_they_use_alive():
    x, used, unused = (relax.Var(name, INFO) for name in ("x", "used", "unused"))
    inner, dropped, result = (relax.Var(name, INFO) for name in ("inner", "dropped", "result"))
    exp = BlockBuilder().normalize(relax.op.exp(used))
    branch = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(dropped, x), relax.VarBinding(inner, exp)])], inner)
    condition = relax.If(relax.const(True, "bool"), branch, x)
    bindings = [relax.VarBinding(used, x), relax.VarBinding(unused, x), relax.VarBinding(result, condition)]
    func = relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], result), INFO)
    cleaned = remove_all_unused(func)
    assert names(cleaned) == [["used", "result"]]
    new_branch = cleaned.body.blocks[0].bindings[1].value.true_branch
    assert [b.var.name for b in new_branch.blocks[0].bindings] == ["inner"]


def test_a_local_function_that_nothing_calls_goes_even_if_it_calls_itself():
    x, y = relax.Var("x", INFO), relax.Var("y", INFO)
    local = relax.Var("local", relax.FuncStructInfo([INFO], INFO))
    inner = relax.Function([y], relax.SeqExpr([], y), INFO)
    recursive = relax.Function([y], relax.SeqExpr([], relax.Call(local, [y])), INFO)
    for value in (inner, recursive):
        block = relax.BindingBlock([relax.VarBinding(local, value)])
        func = relax.Function([x], relax.SeqExpr([block], x), INFO)
        assert names(remove_all_unused(func)) == []
