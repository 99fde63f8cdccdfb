"""Normalize: one value a binding, everything with its struct info."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.ir.module import IRModule
from oneir.ir.structural import assert_structural_equal
from oneir.relax import op
from oneir.relax.analysis import verify_well_formed
from oneir.relax.transform import Normalize
from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass

INFO = relax.TensorStructInfo((4,), "float32")


def function(body: relax.Expr, *params: relax.Var) -> relax.Function:
    return relax.Function(params, body, INFO, attrs={"global_symbol": "main"})


def test_nested_calls_get_variables_from_the_inside_out() -> None:
    x = relax.Var("x", INFO)
    before = IRModule({"main": function(op.exp(op.add(op.exp(x), x)), x)})

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            b = R.add(a, x)
            c = R.exp(b)
            return c

    after = Normalize()(before)
    assert_structural_equal(after, Expected)
    verify_well_formed(after)
    assert Normalize()(after) is after


def test_what_stands_in_two_places_is_computed_once() -> None:
    x = relax.Var("x", INFO)
    shared = op.exp(x)
    after = Normalize()(IRModule({"main": function(op.add(shared, shared), x)}))

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            b = R.add(a, a)
            return b

    assert_structural_equal(after, Expected)


def test_a_nested_sequence_becomes_part_of_its_surroundings() -> None:
    x, y, z = (relax.Var(name, INFO) for name in "xyz")
    inner = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, op.exp(x))])], y)
    outer = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(z, inner)])], z)
    after = Normalize()(IRModule({"main": function(outer, x)}))

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            z = y
            return z

    assert_structural_equal(after, Expected)


def test_empty_blocks_go_and_neighbours_of_one_kind_merge() -> None:
    x, y, z = (relax.Var(name, INFO) for name in "xyz")
    blocks = [
        relax.DataflowBlock([relax.VarBinding(y, op.exp(x))]),
        relax.BindingBlock([]),
        relax.DataflowBlock([relax.VarBinding(z, op.exp(y))]),
    ]
    after = Normalize()(IRModule({"main": function(relax.SeqExpr(blocks, z), x)}))
    assert [len(block.bindings) for block in after["main"].body.blocks] == [2]


def test_a_normal_module_comes_back() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                y = R.exp(x)
            else:
                y = R.add(x, x)
            return y

    check_pass(Normalize(), Module, Module)


def test_a_variable_without_struct_info_is_refused() -> None:
    x, unknown = relax.Var("x", INFO), relax.Var("unknown")
    with pytest.raises(InvalidValue, match="struct info of the variable `unknown` is not known"):
        Normalize()(IRModule({"main": function(op.add(x, unknown), x)}))


def test_an_operator_without_a_rule_is_refused() -> None:
    from oneir.ir.op import Op

    x = relax.Var("x", INFO)
    call = relax.Call(Op.register("test.relax.without_rule"), [x])
    with pytest.raises(NotRegistered, match=r"`test\.relax\.without_rule` has no rule"):
        Normalize()(IRModule({"main": function(call, x)}))
