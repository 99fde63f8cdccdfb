"""BlockBuilder: what is emitted, in which blocks, under which names, and what it refuses."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from oneir import IRModule, ir, relax, te, tir
from oneir.relax import BlockBuilder, TensorStructInfo, op
from oneir.relax.block_builder import DataflowScope, FunctionScope, TestingScope
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import interpret

n = tir.Var("n", "int64")


def variable(name: str = "x", *shape: Any, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, TensorStructInfo(shape or (n, 4), dtype))


def test_functions_blocks_and_names() -> None:
    bb, x = BlockBuilder(), variable()
    assert not bb.current_block_is_dataflow() and BlockBuilder.current() is None
    scope = bb.function("main", [x], attrs={"mine": 1})
    assert isinstance(scope, FunctionScope) and isinstance(bb.dataflow(), DataflowScope)
    with scope:
        assert BlockBuilder.current() is bb and not bb.current_block_is_dataflow()
        first = bb.emit(op.exp(x))
        with bb.dataflow():
            assert bb.current_block_is_dataflow()
            inner = bb.emit(op.add(first, op.exp(first)))
            named = bb.emit(op.tanh(inner), name_hint="y")
            again = bb.emit(op.sin(named), name_hint="y")
            out = bb.emit_output(again)
        assert not bb.current_block_is_dataflow()
        gvar = bb.emit_func_output(op.negative(out))
    assert BlockBuilder.current() is None and gvar.name_hint == "main"
    assert [type(v) for v in (first, inner, named, out)] == [relax.Var, relax.DataflowVar, relax.DataflowVar, relax.Var]
    assert bb.lookup_binding(named).op.name == "relax.tanh" and bb.lookup_binding(x) is None

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            R.func_attr({"mine": 1})
            gv = R.exp(x)
            with R.dataflow():
                lv = R.exp(gv)
                lv1 = R.add(gv, lv)
                y = R.tanh(lv1)
                y1 = R.sin(y)
                gv1 = y1
                R.output(gv1)
            gv2 = R.negative(gv1)
            return gv2

    found = bb.finalize()
    ir.assert_structural_equal(found, Expected)
    names = [b.var.name_hint for block in found["main"].body.blocks for b in block.bindings]
    assert names == ["gv", "lv", "lv1", "y", "y1", "gv1", "gv2"]


def test_private_and_impure_functions_and_late_parameters() -> None:
    bb, x = BlockBuilder(), variable()
    with bb.function("helper", private=True, pure=False):
        bb.emit_func_output(bb.emit(op.exp(x)), params=[x])
    helper = bb.get()["helper"]
    assert "global_symbol" not in helper.attrs and not helper.is_pure and list(helper.params) == [x]
    # What is taken is a copy; the builder goes on.
    taken = bb.get()
    with bb.function("main", [x]):
        bb.emit_func_output(x)
    assert [v.name_hint for v in taken.functions] == ["helper"] and len(bb.get().functions) == 2


def test_each_thread_has_its_own_builder() -> None:
    seen: list[Any] = []
    bb, x = BlockBuilder(), variable()
    with bb.function("main", [x]):
        thread = threading.Thread(target=lambda: seen.append(BlockBuilder.current()))
        thread.start()
        thread.join()
        bb.emit_func_output(x)
    assert seen == [None]


def test_names_are_given_once() -> None:
    bb = BlockBuilder(IRModule({"main": relax.Function([variable()], variable("y"), TensorStructInfo((n, 4)))}))
    assert [bb.get_unique_name(p) for p in ("a", "a", "a", "main", "b.c")] == ["a", "a1", "a2", "main1", "b_c"]


def test_equal_functions_are_added_once() -> None:
    @T.prim_func(private=True)
    def twice(a: T.Buffer((4,)), b: T.Buffer((4,))):
        for i in range(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                b[v] = a[v] * T.float32(2)

    bb = BlockBuilder()
    first, second = bb.add_func(twice, "twice"), bb.add_func(twice, "other")
    assert first is second and first.name_hint == "twice"
    renamed = bb.add_func(twice.with_attr("kind", 1), "twice")
    assert renamed.name_hint == "twice1"
    bb.update_func(renamed, twice)
    ir.assert_structural_equal(bb.get()["twice1"], twice)
    with pytest.raises(NotRegistered, match="the module has no function `unknown`"):
        bb.update_func(ir.GlobalVar("unknown"), twice)


def test_loops_of_tensor_expressions() -> None:
    def scaled(a: te.Tensor, factor: int) -> te.Tensor:
        return te.compute(a.shape, lambda i, j: a[i, j] * factor, name="scaled")

    bb, x = BlockBuilder(), variable()
    with bb.function("main", [x]):
        call = bb.call_te(scaled, x, 2)
        assert call.op.name == "relax.call_tir" and not bb.lookup_binding(x)
        y = bb.emit_te(scaled, bb.emit(call), 2, primfunc_name_hint="other", primfunc_attrs={"mine": 1})
        z = bb.emit_te(scaled, y, 3, name_hint="z")
        bb.emit_func_output(z)
    mod = bb.finalize()
    assert sorted(v.name_hint for v in mod.functions) == ["main", "other", "scaled", "scaled1"]
    assert mod["other"].attrs["mine"] == 1 and z.name_hint == "z"
    a = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(interpret(mod, a), 12 * a)


def test_loops_that_name_their_gradient() -> None:
    def double(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i, j: a[i, j] * 2.0)

    bb, x = BlockBuilder(), variable("x", 3, 4)
    with bb.function("main", [x]):
        call = bb.call_te_with_grad(double, x, te_grad_name="double_grad", te_grad_kwargs={"k": 1.0})
        assert call.op.name == "relax.call_tir_with_grad"
        assert call.attrs.te_grad_name == "double_grad" and dict(call.attrs.te_grad_kwargs) == {"k": 1.0}
        assert call.args[0].name_hint == "double" and list(call.args[1].fields) == [x]
        bb.emit_func_output(bb.emit(call))
    ir.assert_structural_equal(bb.get()["main"].ret_struct_info, TensorStructInfo((3, 4), "float32"))


def test_casts_bring_symbolic_variables() -> None:
    bb, m = BlockBuilder(), tir.Var("m", "int64")
    x = relax.Var("x", TensorStructInfo(ndim=2, dtype="float32"))
    with bb.function("main", [x]):
        y = bb.match_cast(x, TensorStructInfo((m, 4), "float32"), "y")
        z = bb.emit(op.add(y, y))
        bb.emit_func_output(z)
    assert y.name_hint == "y"
    ir.assert_structural_equal(z.struct_info, TensorStructInfo((m, 4), "float32"), map_free_vars=False)
    # The caller does not know m.
    ir.assert_structural_equal(bb.get()["main"].ret_struct_info, TensorStructInfo(ndim=2, dtype="float32"))


def test_expressions_are_normalized() -> None:
    bb, x = BlockBuilder(), variable()
    scope = bb.testing_scope([n])
    assert isinstance(scope, TestingScope)
    with scope:
        value = bb.normalize(op.matmul(x, variable("y", 4, n)))
        ir.assert_structural_equal(value.struct_info, TensorStructInfo((n, n), "float32"), map_free_vars=False)
    with bb.function("main", [x]):
        value = bb.normalize(op.exp(op.tanh(x)))
        assert bb.lookup_binding(value.args[0]).op.name == "relax.tanh"
        bound = relax.Var("w", x.struct_info)
        bb.emit_normalized(relax.VarBinding(bound, value))
        assert bb.lookup_binding(bound) is value
        bb.emit_func_output(bound)
    assert [b.var.name_hint for b in bb.get()["main"].body.blocks[0].bindings] == ["gv", "w"]


def test_scopes_without_a_function() -> None:
    bb, x = BlockBuilder(), variable()
    bb.begin_scope([x])
    bb.begin_dataflow_block()
    y = bb.emit(op.exp(x))
    block = bb.end_block()
    bb.end_scope()
    assert isinstance(block, relax.DataflowBlock) and [b.var for b in block.bindings] == [y]
    bb.begin_scope()
    bb.begin_binding_block()
    ir.assert_structural_equal(bb.emit(op.exp(x)).struct_info, TensorStructInfo((n, 4), "float32"), map_free_vars=False)
    assert type(bb.end_block()) is relax.BindingBlock


def test_a_function_inside_of_anothers_scope_is_one_of_the_module() -> None:
    bb = BlockBuilder()
    x, y = (relax.Var(name, TensorStructInfo((4,), "float32")) for name in "xy")
    with bb.function("main", [x]):
        before = bb.emit(op.exp(x))
        with bb.function("part", [y]):
            assert bb.variable(before) is None and bb.variable(y) is y
            part = bb.emit_func_output(bb.emit(op.negative(y)))
        bb.emit_func_output(bb.emit(relax.Call(part, [before])))
    mod = bb.finalize()
    relax.analysis.verify_well_formed(mod)
    assert [len(f.body.blocks[0].bindings) for f in (mod["main"], mod["part"])] == [2, 1]
    assert mod["main"].body.blocks[0].bindings[1].value.op is mod.get_global_var("part")


def refused(body: Any, error: type[Exception], message: str) -> None:
    bb, x = BlockBuilder(), variable()
    with pytest.raises(error, match=message):
        body(bb, x)


def test_refusals() -> None:
    def nested(bb: BlockBuilder, x: relax.Var) -> None:
        with bb.function("a", [x]), bb.function("b", [x]):
            pass

    def without_output(bb: BlockBuilder, x: relax.Var) -> None:
        with bb.function("a", [x]):
            bb.emit(op.exp(x))

    def twice(bb: BlockBuilder, x: relax.Var) -> None:
        with bb.function("a", [x]):
            bb.emit_func_output(x)
            bb.emit_func_output(x)

    def inside(bb: BlockBuilder, x: relax.Var) -> None:
        with bb.function("a", [x]), bb.dataflow():
            bb.emit_func_output(x)

    def parameters_twice(bb: BlockBuilder, x: relax.Var) -> None:
        with bb.function("a", [x]):
            bb.emit_func_output(x, [x])

    def output_outside(bb: BlockBuilder, x: relax.Var) -> None:
        with bb.function("a", [x]):
            bb.emit_output(x)

    def unfinished(bb: BlockBuilder, x: relax.Var) -> None:
        with bb.function("a", [x]):
            bb.finalize()

    refused(nested, InvalidValue, "emit_func_output was not called in the scope of the function `b`")
    refused(without_output, InvalidValue, "emit_func_output was not called in the scope of the function `a`")
    refused(twice, InvalidValue, "emit_func_output is called a second time for the function `a`")
    refused(inside, InvalidValue, "emit_func_output is called outside of the dataflow block")
    refused(parameters_twice, InvalidValue, "the parameters of `a` are given twice")
    refused(output_outside, InvalidValue, "emit_output is called inside of a dataflow block")
    refused(unfinished, InvalidValue, "the function `a` is not finished")
    refused(lambda bb, x: bb.emit(op.exp(x)), InvalidValue, "there is no block to emit to")
    refused(lambda bb, x: bb.normalize(op.exp(op.exp(x))), InvalidValue, "there is no block to emit to")
    refused(lambda bb, x: bb.emit_func_output(x), InvalidValue, "emit_func_output is called in the scope of")
    refused(
        lambda bb, x: bb.function("a", [te.placeholder((2,))]).__enter__(),
        TypeMismatch,
        "the parameters of a function are graph variables, found .* makes a tensor expression",
    )
    assert BlockBuilder.current() is None
