"""Passes over functions and over dataflow blocks, and what keeps the names of a module's functions in order."""

from __future__ import annotations

from typing import Any

import pytest

from oneir import IRModule, relax
from oneir.ir import assert_structural_equal
from oneir.ir.transform import PassContext
from oneir.relax import op
from oneir.relax.transform import DataflowBlockPass, FunctionPass, NormalizeGlobalVar, dataflowblock_pass, function_pass
from oneir.runtime.error import OneIRError, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


@I.ir_module
class Model:
    @T.prim_func(private=True)
    def loops(a: T.Buffer((4,)), b: T.Buffer((4,))):
        for i in range(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                b[v] = a[v]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        with R.dataflow():
            b = R.exp(a)
            gv = R.add(b, a)
            R.output(gv)
        c = R.exp(gv)
        with R.dataflow():
            d = R.tanh(c)
            gv1 = R.exp(d)
            R.output(gv1)
        return gv1

    @R.function(private=True)
    def other(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            gv = R.tanh(x)
            R.output(gv)
        return gv


def operators(func: relax.Function) -> list[str]:
    return [b.value.op.name.removeprefix("relax.") for block in func.body.blocks for b in block.bindings]


def with_abs(block: relax.BindingBlock) -> relax.BindingBlock:
    """exp becomes abs."""
    bindings = []
    for binding in block.bindings:
        value = binding.value
        if value.op.name == "relax.exp":
            new = op.abs(value.args[0])
            new.struct_info_ = value.struct_info
            binding = binding.replace(value=new)
        bindings.append(binding)
    unchanged = all(new is old for new, old in zip(bindings, block.bindings, strict=True))
    return block if unchanged else block.replace(bindings=bindings)


def test_a_function_pass_gets_each_graph_function() -> None:
    seen: list[Any] = []

    @function_pass(opt_level=1, name="Mine", required=["Other"])
    def mine(func: relax.Function, mod: IRModule, ctx: PassContext) -> relax.Function:
        seen.append((func, mod is Model, isinstance(ctx, PassContext)))
        return func.with_attr("mine", 1) if "global_symbol" in func.attrs else func

    assert isinstance(mine, FunctionPass)
    assert (mine.info.name, mine.info.opt_level, list(mine.info.required)) == ("Mine", 1, ["Other"])
    with PassContext(opt_level=0):
        after = mine(Model)
    assert after is not Model and after["main"].attrs["mine"] == 1
    assert after["other"] is Model["other"] and after["loops"] is Model["loops"]
    assert seen == [(Model["main"], True, True), (Model["other"], True, True)]


def test_a_pass_that_changes_nothing_gives_the_identical_module() -> None:
    @function_pass
    def nothing(func: relax.Function, mod: IRModule, ctx: PassContext) -> relax.Function:
        return func

    @dataflowblock_pass(opt_level=0)
    def no_block(block: relax.DataflowBlock, mod: IRModule, ctx: PassContext) -> relax.DataflowBlock:
        return block

    assert nothing(Model) is Model and no_block(Model) is Model


def test_a_class_is_a_pass_with_options() -> None:
    @function_pass(opt_level=0)
    class Marks:
        """Marks functions."""

        def __init__(self, mark: str):
            self.mark = mark

        def transform_function(self, func: relax.Function, mod: IRModule, ctx: PassContext) -> relax.Function:
            return func.with_attr(self.mark, 1)

    marks = Marks("here")
    assert isinstance(marks, FunctionPass) and marks.info.name == "Marks" and marks.mark == "here"
    assert marks(Model)["other"].attrs["here"] == 1

    @dataflowblock_pass(opt_level=0)
    class Absolute:
        def transform_dataflowblock(
            self, block: relax.DataflowBlock, mod: IRModule, ctx: PassContext
        ) -> relax.DataflowBlock:
            return with_abs(block)

    assert isinstance(Absolute(), DataflowBlockPass)
    assert operators(Absolute()(Model)["main"]) == ["exp", "abs", "add", "exp", "tanh", "abs"]


def test_a_dataflow_block_pass_gets_dataflow_blocks_only() -> None:
    blocks: list[int] = []

    @dataflowblock_pass(opt_level=0, name="Absolute")
    def absolute(block: relax.DataflowBlock, mod: IRModule, ctx: PassContext) -> relax.DataflowBlock:
        blocks.append(len(block.bindings))
        return with_abs(block)

    after = absolute(Model)
    assert blocks == [2, 2, 1] and absolute.info.name == "Absolute"
    assert operators(after["main"]) == ["exp", "abs", "add", "exp", "tanh", "abs"]
    relax.analysis.verify_well_formed(after)
    assert after["other"] is Model["other"]


def test_a_class_without_the_method_is_refused() -> None:
    with pytest.raises(TypeMismatch, match=r"the pass class Nothing must define transform_function"):

        @function_pass(opt_level=0)
        class Nothing:
            pass

    with pytest.raises(TypeMismatch, match=r"the pass class Other must define transform_dataflowblock"):

        @dataflowblock_pass(opt_level=0)
        class Other:
            def transform_function(self) -> None: ...

    with pytest.raises(TypeMismatch, match="a pass is a function or a class, found 3"):
        function_pass(3)


# -- NormalizeGlobalVar --


def test_public_functions_are_named_by_their_symbol_and_private_ones_give_way() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def f1(x: R.Tensor((4,), "float32")):
            return x

        @R.function
        def f(x: R.Tensor((4,), "float32")):
            cls = Before
            gv = cls.f1(x)
            return gv

    before = IRModule(dict(Before.functions))
    before.update_func(before.get_global_var("f"), before["f"].with_attr("global_symbol", "f1"))
    after = NormalizeGlobalVar()(before)
    assert sorted(v.name_hint for v in after.functions) == ["f1", "f1_1"]
    assert after["f1"].attrs["global_symbol"] == "f1"
    assert after["f1"].body.blocks[0].bindings[0].value.op is after.get_global_var("f1_1")
    assert NormalizeGlobalVar()(after) is after
    assert_structural_equal(after["f1_1"], Before["f1"])


def test_two_public_functions_of_one_symbol_are_refused() -> None:
    mod = IRModule({"a": Model["main"], "b": Model["main"]})
    with pytest.raises(OneIRError, match="main"):
        NormalizeGlobalVar()(mod)
