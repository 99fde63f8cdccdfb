"""Each rule of graphs: programs that keep it, and one that breaks it, with the message."""

from __future__ import annotations

import re

import pytest

from oneir import IRModule, relax, te, tir
from oneir.ir.expr import GlobalVar
from oneir.ir.span import SourceName, Span
from oneir.relax import BlockBuilder, FuncStructInfo, ShapeStructInfo, TensorStructInfo
from oneir.relax.analysis import verify_well_formed, well_formed
from oneir.runtime.error import TypeMismatch, WellFormedError

INFO = TensorStructInfo((2, 3), "float32")


def tensor(name, info=INFO):
    return relax.Var(name, info)


def dataflow(name, info=INFO):
    return relax.DataflowVar(name, info)


def normal(expr):
    return BlockBuilder().normalize(expr)


def function(blocks, result, params=(), ret=INFO, **options):
    return relax.Function(params, relax.SeqExpr(blocks, result), ret, **options)


def block(*pairs):
    return relax.BindingBlock([relax.VarBinding(var, value) for var, value in pairs])


def dataflow_block(*pairs):
    return relax.DataflowBlock([relax.VarBinding(var, value) for var, value in pairs])


def refused(obj, message, **options):
    with pytest.raises(WellFormedError, match=re.escape(message)):
        verify_well_formed(obj, **options)
    assert not well_formed(obj, **options)


def symbolic_module():
    n = tir.Var("n", "int64")
    x = tensor("x", TensorStructInfo((n, 4), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.exp(x))
            out = builder.emit_output(builder.call_te(lambda a: te.compute(a.shape, lambda *i: a(*i) + 1.0), y))
        builder.emit_func_output(out)
    return builder.finalize()


def test_what_a_builder_makes_is_well_formed():
    mod = symbolic_module()
    verify_well_formed(mod)
    assert well_formed(mod) and well_formed(mod["main"])


def test_only_graphs_and_modules_are_asked_about():
    with pytest.raises(TypeMismatch, match="expected a relax Function or an IRModule, found Var"):
        well_formed(tensor("x"))


# -- variables --


def test_a_variable_must_be_defined():
    x, y, other = tensor("x"), tensor("y"), tensor("other")
    refused(function([block((y, normal(relax.op.add(x, other))))], y, [x]), "`other` is used, but not defined here")


def test_a_variable_must_be_defined_before_its_use():
    x, y, z = tensor("x"), tensor("y"), tensor("z")
    refused(
        function([block((y, normal(relax.op.exp(z))), (z, normal(relax.op.exp(x))))], y, [x]),
        "in `function`: `z` is used, but not defined here",
    )


def test_a_variable_is_bound_once():
    x, y = tensor("x"), tensor("y")
    refused(
        function([block((y, x), (y, normal(relax.op.exp(x))))], y, [x]),
        "`y` is defined again where it is defined already; use another variable",
    )


def test_branches_may_bind_the_same_variable_but_it_is_not_seen_behind_them():
    x, y, z = tensor("x"), tensor("y"), tensor("z")
    branch = relax.SeqExpr([block((y, normal(relax.op.exp(x))))], y)
    condition = relax.If(relax.const(True, "bool"), branch, branch)
    condition.struct_info_ = INFO
    verify_well_formed(function([block((z, condition))], z, [x]))
    refused(function([block((z, condition))], y, [x]), "`y` is used, but not defined here")


def test_dataflow_variables_end_with_their_block():
    x, y, z = tensor("x"), dataflow("y"), tensor("z")
    step = dataflow_block((y, normal(relax.op.exp(x))))
    verify_well_formed(function([dataflow_block((y, x), (z, y))], z, [x]))
    refused(function([step], y, [x]), "the dataflow variable `y` is used outside of its dataflow block")
    refused(function([step, dataflow_block((z, normal(relax.op.exp(y))))], z, [x]), "`y` is used, but not defined here")


def test_dataflow_variables_are_defined_in_dataflow_blocks():
    x, y = tensor("x"), dataflow("y")
    refused(function([block((y, x))], x, [x]), "the dataflow variable `y` is defined outside of a dataflow block")


def test_two_functions_do_not_share_parameters():
    x = tensor("x")
    refused(
        IRModule({"f": function([], x, [x]), "g": function([], x, [x])}),
        "in `g`: `x` is a parameter of `f` and of `g`; use two variables",
    )
    refused(function([], x, [x, x]), "`x` is a parameter twice; use two variables")


def test_a_local_function_sees_variables_around_it_and_itself():
    x, y, local, out = tensor("x"), tensor("y"), relax.Var("local", FuncStructInfo([INFO], INFO)), tensor("out")
    again = tensor("again")
    inner = function([block((again, normal(relax.Call(local, [x]))))], again, [y])
    verify_well_formed(function([block((local, inner), (out, normal(relax.Call(local, [x]))))], out, [x]))
    refused(
        function([block((out, normal(relax.Call(local, [x])))), block((local, inner))], out, [x]), "`local` is used"
    )


# -- the normal form --


def test_arguments_of_calls_are_leaves():
    x, y = tensor("x"), tensor("y")
    nested = relax.op.exp(relax.op.exp(x))
    nested.struct_info_ = INFO
    refused(
        function([block((y, nested))], y, [x]),
        "an argument of `relax.exp` must be a variable, a constant or a tuple of these, found a Call",
    )


def test_the_value_of_a_body_is_a_leaf():
    x = tensor("x")
    refused(function([], normal(relax.op.exp(x)), [x]), "the value of a body must be a variable, a constant")


def test_fields_and_conditions_are_leaves():
    x, y = tensor("x"), tensor("y")
    call = normal(relax.op.exp(x))
    refused(
        function([block((y, relax.TupleGetItem(relax.Tuple([call, x]), 1)))], y, [x]),
        "what a field is taken of must be a variable",
    )
    condition = relax.If(call, x, x)
    condition.struct_info_ = INFO
    refused(function([block((y, condition))], y, [x]), "a condition must be a variable, a constant")


def test_a_body_is_no_value():
    x, y = tensor("x"), tensor("y")
    refused(function([block((y, relax.SeqExpr([], x)))], y, [x]), "a body (SeqExpr) is the value of a variable")


def test_loops_are_no_value():
    x, y = tensor("x"), relax.Var("y", relax.ObjectStructInfo())
    refused(
        function([block((y, tir.PrimFunc([], tir.Evaluate(0))))], x, [x]),
        "a TensorIR function is the value of a variable; add it to the module and use its name",
    )


# -- effects --


def test_dataflow_blocks_have_no_effects():
    x, y = tensor("x"), dataflow("y", relax.TupleStructInfo([]))
    printed = normal(relax.op.print(x, format="{}"))
    verify_well_formed(function([block((relax.Var("y", relax.TupleStructInfo([])), printed))], x, [x], is_pure=False))
    bad = function([dataflow_block((y, printed))], x, [x], is_pure=False)
    refused(bad, "`relax.print` may have a side effect, but is called in a dataflow block")
    assert well_formed(bad, check_struct_info=False)


def test_dataflow_blocks_have_no_conditions():
    x, y = tensor("x"), dataflow("y")
    condition = relax.If(relax.const(True, "bool"), x, x)
    condition.struct_info_ = INFO
    refused(function([dataflow_block((y, condition))], x, [x]), "a condition (If) is no part of a dataflow block")


def test_pure_functions_have_no_effects_unless_forced():
    x, y = tensor("x"), relax.Var("y", relax.TupleStructInfo([]))
    step = block((y, normal(relax.op.print(x, format="{}"))))
    refused(function([step], x, [x]), "the function is pure, but calls `relax.print`, which may have a side effect")
    verify_well_formed(function([step], x, [x], attrs={"relax.force_pure": True}))
    refused(
        function([step], x, [x], is_pure=False, attrs={"relax.force_pure": True}),
        "a function with the attribute relax.force_pure must be pure, but is_pure is False",
    )


# -- symbolic variables --


def test_symbolic_variables_come_from_parameters_and_casts():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x = tensor("x", TensorStructInfo((n,), "float32"))
    info = ShapeStructInfo([n, m])
    y = relax.Var("y", info)
    refused(
        function([block((y, relax.ShapeExpr([n, m])))], y, [x], info),
        "the struct info of the result, R.Shape([n, m]), uses the symbolic variable `m`, which is not defined here",
    )
    cast = relax.MatchCast(tensor("z", TensorStructInfo((m,), "float32")), x, TensorStructInfo((m,), "float32"))
    verify_well_formed(
        function([relax.BindingBlock([cast]), block((y, relax.ShapeExpr([n, m])))], y, [x], ShapeStructInfo(ndim=2))
    )


def test_an_extent_that_does_not_stand_alone_is_no_definition():
    n = tir.Var("n", "int64")
    x = tensor("x", TensorStructInfo((n * 2,), "float32"))
    refused(function([], x, [x], TensorStructInfo(dtype="float32", ndim=1)), "uses the symbolic variable `n`")


def test_functions_do_not_share_symbolic_variables():
    n = tir.Var("n", "int64")
    info = TensorStructInfo((n,), "float32")
    x, y = tensor("x", info), tensor("y", info)
    refused(
        IRModule({"f": function([], x, [x], info), "g": function([], y, [y], info)}),
        "the symbolic variable `n` is used in `f` and in `g`; each function has symbolic variables of its own",
    )


def test_a_local_function_does_not_see_symbolic_variables_around_it():
    n = tir.Var("n", "int64")
    info = TensorStructInfo((n,), "float32")
    x, y = tensor("x", info), tensor("y", TensorStructInfo(dtype="float32", ndim=1))
    local = relax.Var("local", FuncStructInfo([y.struct_info], y.struct_info))
    inner = function([], x, [y], y.struct_info)
    refused(
        function([block((local, inner))], x, [x], info), "uses the symbolic variable `n`, which is not defined here"
    )


# -- struct info --


def test_struct_info_must_be_known():
    x, y = tensor("x"), relax.Var("y")
    bad = function([block((y, normal(relax.op.exp(x))))], x, [x])
    refused(bad, "the struct info of the variable `y` is missing; normalize the program with a BlockBuilder")
    assert well_formed(bad, check_struct_info=False)
    refused(function([block((tensor("z"), relax.op.exp(x)))], x, [x]), "the struct info of the call of `relax.exp`")


def test_a_variable_is_what_its_value_is():
    x, y = tensor("x"), tensor("y", TensorStructInfo((3, 2), "float32"))
    refused(
        function([block((y, normal(relax.op.exp(x))))], x, [x]),
        '`y` is declared as R.Tensor((3, 2), dtype="float32"), but its value is R.Tensor((2, 3), dtype="float32")',
    )
    vague = tensor("y", TensorStructInfo(dtype="float32", ndim=2))
    verify_well_formed(function([block((vague, normal(relax.op.exp(x))))], x, [x]))


def test_a_call_gives_what_it_is_said_to_give():
    x, y = tensor("x"), tensor("y", TensorStructInfo((3, 2), "float32"))
    call = relax.op.exp(x)
    call.struct_info_ = y.struct_info
    refused(
        function([block((y, call))], x, [x]),
        'a call of `relax.exp` is said to give R.Tensor((3, 2), dtype="float32"), but gives '
        'R.Tensor((2, 3), dtype="float32")',
    )


def test_arguments_that_an_operator_cannot_take():
    x, z, y = tensor("x"), tensor("z", TensorStructInfo((5, 7), "float32")), tensor("y")
    call = relax.op.add(x, z)
    call.struct_info_ = INFO
    refused(function([block((y, call))], x, [x, z]), "what a call of `relax.add` gives cannot be known")


def test_a_function_returns_what_it_declares():
    x = tensor("x")
    refused(
        function([], x, [x], TensorStructInfo((2, 3), "int32")),
        'the function is declared to return R.Tensor((2, 3), dtype="int32"), but returns R.Tensor((2, 3), '
        'dtype="float32")',
    )
    verify_well_formed(function([], x, [x], TensorStructInfo(dtype="float32")))


# -- functions --


def test_a_public_function_has_the_name_of_its_symbol():
    x = tensor("x")
    refused(
        IRModule({"main": function([], x, [x], attrs={"global_symbol": "other"})}),
        "the function `main` has the global_symbol 'other'; both must be one name",
    )


def test_a_function_that_is_called_is_in_the_module():
    x, y, gone = tensor("x"), tensor("y"), GlobalVar("gone")
    gone.struct_info_ = FuncStructInfo([INFO], INFO)
    func = function([block((y, normal(relax.Call(gone, [x]))))], y, [x])
    verify_well_formed(func)
    refused(IRModule({"main": func}), "the module has no function `gone`")


def loops_module(shape=(2, 3), dtype="float32", extra=0, out=INFO, tir_vars=None):
    """main(x) calls loops over a tensor of the shape and dtype, with `extra` further arguments."""
    a = te.placeholder(shape, dtype, name="a")
    loops = te.create_prim_func([a, te.compute(shape, lambda *i: a(*i), name="b")], "int64")
    name, x, y = GlobalVar("loops"), tensor("x"), tensor("y", out)
    call = normal(relax.op.call_tir(name, [x] * (1 + extra), out, tir_vars))
    return IRModule({name: loops, "main": function([block((y, call))], x, [x])})


def test_loops_get_the_arguments_that_they_take():
    verify_well_formed(loops_module())
    refused(loops_module(extra=1), "`loops` takes 2 arguments (var_a, var_b), found 3 with the outputs")
    refused(loops_module(tir_vars=[4]), "`loops` takes 2 arguments (var_a, var_b), found 3 with the outputs")
    refused(loops_module(shape=(2, 4)), "argument 0 (`a`) of `loops`: expected a tensor of shape [2, 4]")
    refused(
        loops_module(dtype="int32"), "argument 0 (`a`) of `loops`: expected a tensor of shape [2, 3] and dtype int32"
    )
    refused(
        loops_module(out=TensorStructInfo((3, 3), "float32")),
        "argument 1 (`b`) of `loops`: expected a tensor of shape [2, 3] and dtype float32, found "
        'R.Tensor((3, 3), dtype="float32")',
    )
    assert well_formed(loops_module(shape=(2, 4)), check_struct_info=False)


def test_symbolic_extents_of_loops_are_matched():
    n = tir.Var("n", "int64")
    verify_well_formed(loops_module(shape=(n, 3)))
    refused(loops_module(shape=(n, n)), "argument 0 (`a`) of `loops`: expected a tensor of shape [n, n]")


def test_call_tir_calls_loops():
    x, y, name = tensor("x"), tensor("y"), GlobalVar("graph")
    graph = function([], (z := tensor("z")), [z])
    call = normal(relax.op.call_tir(name, [x], INFO))
    refused(
        IRModule({name: graph, "main": function([block((y, call))], y, [x])}),
        "`relax.call_tir` calls loops, but `graph` is a Function",
    )


def test_outputs_in_place_name_arguments():
    a = te.placeholder((2, 3), "float32", name="a")
    loops = te.create_prim_func([a, te.compute((2, 3), lambda *i: a(*i), name="b")], "int64")
    name, x, y = GlobalVar("loops"), tensor("x"), tensor("y")

    def module(arguments, indices):
        call = normal(relax.op.call_tir_inplace(name, arguments, indices, INFO))
        return IRModule({name: loops, "main": function([block((y, call))], y, [x])})

    verify_well_formed(module([x, x], 1))
    refused(module([x], 1), "`relax.call_tir_inplace` writes an output into argument 1, but takes only 1")


# -- messages --


def test_the_message_quotes_the_binding():
    x, y, other = tensor("x"), tensor("y"), tensor("other")
    refused(function([block((y, normal(relax.op.exp(other))))], y, [x]), "= R.exp(other)")


def test_the_message_underlines_the_source(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("y = R.exp(other)\n")
    span = Span(SourceName(str(file)), 1, 1, 5, 17)
    x, y, other = tensor("x"), tensor("y"), tensor("other")
    call = normal(relax.op.exp(other)).replace(span=span)
    func = function([relax.BindingBlock([relax.VarBinding(y, normal(call), span)])], y, [x])
    with pytest.raises(WellFormedError) as caught:
        verify_well_formed(func)
    assert "1 | y = R.exp(other)\n  |     ^^^^^^^^^^^^" in str(caught.value)
