"""Functors over graphs: which method is called for what, what a visitor sees, what a mutator makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneir import IRModule, ir, relax, tir
from oneir.ir import assert_structural_equal
from oneir.relax import ExprFunctor, PyExprMutator, PyExprVisitor, TensorStructInfo, op
from oneir.relax.expr_functor import mutator, visitor
from oneir.runtime.error import TypeMismatch
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import interpret

n = tir.Var("n", "int64")


@R.function
def model(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")):
    n = T.int64()
    a = R.exp(x)
    with R.dataflow():
        b = R.add(a, R.const(1.0))
        d = R.match_cast(b, R.Tensor((n, 4), "float32"))
        p = (d, R.shape([n, 4]), R.prim_value(3), R.str("s"), R.dtype("int8"))
        e = p[0]
        R.output(e)
    if c:
        f = R.call_pure_packed("my.function", e, sinfo_args=R.Tensor((n, 4), "float32"))
        g = R.tanh(f)
    else:
        g = R.negative(e)
    return g


KINDS = {
    relax.Var: "visit_var_",
    relax.DataflowVar: "visit_dataflow_var_",
    relax.Constant: "visit_constant_",
    relax.Tuple: "visit_tuple_",
    relax.TupleGetItem: "visit_tuple_getitem_",
    relax.ShapeExpr: "visit_shape_expr_",
    relax.PrimValue: "visit_prim_value_",
    relax.StringImm: "visit_string_imm_",
    relax.DataTypeImm: "visit_data_type_imm_",
    relax.Call: "visit_call_",
    relax.If: "visit_if_",
    relax.SeqExpr: "visit_seq_expr_",
    relax.Function: "visit_function_",
    relax.ExternFunc: "visit_extern_func_",
    relax.GlobalVar: "visit_global_var_",
    ir.Op: "visit_op_",
}
X = relax.Var("x", TensorStructInfo((n, 4), "float32"))
EXAMPLES: list[Any] = [
    X,
    relax.DataflowVar("y", X.struct_info),
    relax.const(1),
    relax.Tuple([X]),
    relax.TupleGetItem(relax.Tuple([X]), 0),
    relax.ShapeExpr([n]),
    relax.PrimValue(1),
    relax.StringImm("a"),
    relax.DataTypeImm("int8"),
    op.exp(X),
    relax.If(relax.const(True), X, X),
    relax.SeqExpr([], X),
    relax.Function([X], X, X.struct_info),
    relax.ExternFunc("f"),
    relax.GlobalVar("g"),
    ir.Op.get("relax.exp"),
]


def test_a_functor_calls_the_method_of_the_class() -> None:
    called: list[str] = []
    methods = {name: (lambda self, node, name=name: called.append(name) or name) for name in KINDS.values()}
    functor = type("Names", (ExprFunctor,), methods)()
    assert [type(e) for e in EXAMPLES] == list(KINDS)
    assert [functor.visit_expr(e) for e in EXAMPLES] == list(KINDS.values())
    assert functor(X) == "visit_var_" and called[-1] == "visit_var_"
    with pytest.raises(TypeMismatch, match="a IterVar is no part of a graph"):
        functor.visit_expr(tir.IterVar((0, 1), "i", 0))


def test_a_visitor_sees_everything_in_order() -> None:
    @visitor
    class Trace(PyExprVisitor):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def visit_call_(self, op: relax.Call) -> None:
            super().visit_call_(op)
            self.seen.append(op.op.name)

        def visit_var_def_(self, var: relax.Var) -> None:
            self.seen.append(f"{var.name_hint} is defined")

        def visit_constant_(self, op: relax.Constant) -> None:
            self.seen.append("constant")

        def visit_shape_expr_(self, op: relax.ShapeExpr) -> None:
            super().visit_shape_expr_(op)
            self.seen.append("shape")

        def visit_prim_expr(self, op: tir.PrimExpr) -> None:
            self.seen.append(str(op))

        def visit_string_imm_(self, op: relax.StringImm) -> None:
            self.seen.append(op.value)

        def visit_data_type_imm_(self, op: relax.DataTypeImm) -> None:
            self.seen.append(str(op.value))

        def visit_extern_func_(self, op: relax.ExternFunc) -> None:
            self.seen.append(op.global_symbol)

        def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> None:
            super().visit_tuple_getitem_(op)
            self.seen.append(f"field {op.index}")

        def visit_match_cast_(self, binding: relax.MatchCast) -> None:
            super().visit_match_cast_(binding)
            self.seen.append("cast")

        def visit_dataflow_block_(self, block: relax.DataflowBlock) -> None:
            self.seen.append("{")
            super().visit_dataflow_block_(block)
            self.seen.append("}")

        def visit_if_(self, op: relax.If) -> None:
            self.seen.append("if")
            super().visit_if_(op)

    trace = Trace()
    trace.visit_expr(model)
    assert trace.seen == [
        "x is defined", "c is defined", "relax.exp", "a is defined",
        "{", "constant", "relax.add", "b is defined", "d is defined", "cast",
        "n", "T.int64(4)", "shape", "T.int64(3)", "s", "int8", "p is defined", "field 0", "e is defined", "}",
        "if", "my.function", "relax.call_pure_packed", "f is defined", "relax.tanh", "gv is defined",
        "relax.negative", "gv1 is defined", "g is defined",
    ]  # fmt: skip


@mutator
class ExpAsPower(PyExprMutator):
    """exp(x) -> e ** x; emits the constant's product with ones of its own before it."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op.name != "relax.exp":
            return call
        base = self.builder_.emit(op.full_like(call.args[0], relax.const(np.float32(np.e))))
        return op.power(base, call.args[0])


def test_a_mutator_rewrites_and_emits() -> None:
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.tanh(x)
            b = R.exp(a)
            c = R.add(b, b)
            R.output(c)
        return c

    @R.function
    def expected(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.tanh(x)
            lv = R.full_like(a, R.const(np.float32(np.e)))
            b = R.power(lv, a)
            c = R.add(b, b)
            R.output(c)
        return c

    after = ExpAsPower().visit_expr(before)
    assert_structural_equal(after, expected.with_attr("global_symbol", "before"))
    a = np.float32([[-1, 0, 1], [2, 0.5, 3]])
    found, same = (interpret(IRModule({"main": f}), a) for f in (after, before))
    np.testing.assert_allclose(found, same, rtol=1e-5)
    # What is not concerned stays the identical object.
    unconcerned = model.body.blocks[0].bindings[0].value
    assert PyExprMutator().visit_expr(model) is model and ExpAsPower().visit_expr(expected) is expected
    assert unconcerned.op.name == "relax.exp"


def test_a_mutator_of_struct_info_and_variables() -> None:
    class Halve(PyExprMutator):
        def visit_var_def_(self, var: relax.Var) -> relax.Var:
            info = var.struct_info
            if not isinstance(info, TensorStructInfo) or info.dtype != "float32":
                return super().visit_var_def_(var)
            new = self.with_struct_info(var, TensorStructInfo(info.shape, "float16"))
            self.set_var_remap(var, new)
            return new

    @R.function
    def before(x: R.Tensor(("n", 4), "float32")):
        a = R.exp(x)
        return a

    @R.function
    def expected(x: R.Tensor(("n", 4), "float16")):
        a = R.exp(x)
        return a

    after = Halve().visit_expr(before)
    assert_structural_equal(after, expected.with_attr("global_symbol", "before"))


def test_a_mutator_knows_bindings_and_the_module() -> None:
    class Folds(PyExprMutator):
        """negative(negative(x)) -> x"""

        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = super().visit_call_(call)
            if call.op.name == "relax.negative" and isinstance(call.args[0], relax.Var):
                inner = self.lookup_binding(call.args[0])
                if isinstance(inner, relax.Call) and inner.op.name == "relax.negative":
                    return inner.args[0]
            return call

    @R.function
    def before(x: R.Tensor((2,), "float32")):
        a = R.negative(x)
        b = R.negative(a)
        c = R.exp(b)
        return c

    mod = IRModule({"main": before})
    rewriter = Folds(mod)
    after = relax.analysis.remove_all_unused(rewriter.visit_expr(before))
    assert [b.value.op.name for b in after.body.blocks[0].bindings if isinstance(b.value, relax.Call)] == ["relax.exp"]
    var = next(iter(mod.functions))
    rewriter.builder_.update_func(rewriter.builder_.get().get_global_var("main"), after)
    assert_structural_equal(rewriter.builder_.get()["main"], after)
    assert mod[var] is before


def test_expressions_in_post_order() -> None:
    class Depths(PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = self.visit_expr_post_order(call)
            return op.abs(call.args[0]) if call.op.name == "relax.tanh" else call

    x = relax.Var("x", TensorStructInfo((2,), "float32"))
    rewriter = Depths()
    with rewriter.builder_.testing_scope([]):
        found = rewriter.visit_expr(op.tanh(x))
    assert found.op.name == "relax.abs" and found.args[0] is x
