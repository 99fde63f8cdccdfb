"""Passes over functions and over dataflow blocks, and what keeps the names of a module's functions in order."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from oneir import IRModule, relax
from oneir.ir import assert_structural_equal
from oneir.ir.global_info import VDevice
from oneir.ir.instrument import PassInstrument
from oneir.ir.transform import Pass, PassContext, PassInfo, pass_key
from oneir.relax import op, transform
from oneir.relax.transform import DataflowBlockPass, FunctionPass, NormalizeGlobalVar, dataflowblock_pass, function_pass
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch
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


# -- passes are values --

PASSES = {
    name: value
    for name, value in vars(transform).items()
    if isinstance(value, type) and issubclass(value, Pass) and value not in (FunctionPass, DataflowBlockPass)
}


def keep(param: relax.Var) -> None:
    """Says of each parameter that it keeps its struct info."""


def no_library(matches: Any) -> tuple[str, int, list[Any]]:
    return "", 0, []


LAYOUTS = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
NEEDS_OPTIONS: dict[str, tuple[tuple[Any, ...], str | None]] = {
    "AlterOpImpl": (({}, {}), "its options are mappings"),
    "AttachExternModules": (([],), None),
    "BindParams": (("main", {"x": 1}), "its options are mappings"),
    "BindSymbolicVars": (({"n": 1},), "its options are mappings"),
    "ConvertLayout": ((LAYOUTS,), "its options are mappings"),
    "FuseOpsByPattern": (([],), None),
    "Gradient": (("main",), None),
    "SplitCallTIRByPattern": (([], no_library), "its options are functions"),
    "UpdateParamStructInfo": ((keep,), "its options are functions"),
    "UpdateVDevice": ((VDevice("llvm"), 0), "its options are objects"),
}
"""For passes that cannot be made without options: such options, and why such a pass has no key, if it has none."""


def parameters(cls: type[Pass]) -> list[inspect.Parameter]:
    return list(inspect.signature(cls).parameters.values())


def test_whatever_is_named_as_a_pass_is_a_class() -> None:
    named = {name for name in vars(transform) if name[0].isupper()}
    assert named - set(PASSES) == {"FunctionPass", "DataflowBlockPass", "FusionPattern", "PatternCheckContext"}
    needing = {name for name, cls in PASSES.items() if any(p.default is p.empty for p in parameters(cls))}
    assert needing == set(NEEDS_OPTIONS)


@pytest.mark.parametrize("name", sorted(PASSES))
def test_passes_of_equal_options_are_equal(name: str) -> None:
    cls = PASSES[name]
    options, why_no_key = NEEDS_OPTIONS.get(name, ((), None))
    one, other = cls(*options), cls(*options)
    assert one is not other and one == other
    values = [f"{p.name}={getattr(one, p.name)!r}" for p in parameters(cls)]
    assert repr(one) == f"{cls.__name__}({', '.join(values)})"
    by_name = {p.name: value for p, value in zip(parameters(cls), options, strict=False)}
    assert cls(**by_name) == one
    if why_no_key is None:
        assert hash(one) == hash(other)
        assert pass_key(one) == pass_key(other) is not None
    else:
        assert pass_key(one) is None, f"{name} has a key, though {why_no_key}"


def test_passes_of_other_classes_or_options_differ() -> None:
    passes = [cls() for name, cls in PASSES.items() if name not in NEEDS_OPTIONS and cls.__name__ == name]
    passes += [transform.FuseOps(2), transform.DeadCodeElimination(["f"]), transform.TopologicalSort("breadth-first")]
    assert len({pass_key(p) for p in passes}) == len(set(passes)) == len(passes)
    assert all(a != b for i, a in enumerate(passes) for b in passes[:i])
    assert transform.ConvertLayout(LAYOUTS) != transform.ConvertLayout({})


def test_a_list_as_an_option_is_held_as_a_tuple() -> None:
    names = ["f"]
    passes = [transform.DeadCodeElimination(names), transform.LiftTransformParams(names)]
    passes += [transform.ToMixedPrecision(fp16_input_names=names), transform.RunCodegen(entry_functions=names)]
    kept = [repr(p) for p in passes]
    names.append("g")
    assert [repr(p) for p in passes] == kept and all("('f',)" in text for text in kept)
    assert passes[0] == transform.DeadCodeElimination(iter("f"))
    assert transform.DeadCodeElimination() == transform.DeadCodeElimination([])


PUBLISHED = {
    "AlterOpImpl": "op_impl_map, op_buffer_transforms, op_buffer_axis_separators=None, "
    "op_buffer_input_axis_separators=None",
    "AttachExternModules": "extern_modules",
    "BindParams": "func_name, params",
    "BindSymbolicVars": "binding_map, func_name=None",
    "BundleModelParams": "param_tuple_name=None",
    "CombineParallelMatmul": "check=None",
    "ConvertLayout": "desired_layouts, layout_cb=None",
    "ConvertToDataflow": "min_size=2",
    "DeadCodeElimination": "entry_functions=None",
    "DecomposeOpsForInference": "func_name=None",
    "DecomposeOpsForTraining": "func_name=None",
    "EliminateCommonSubexpr": "call_only=False",
    "FuseOps": "fuse_opt_level=-1",
    "FuseOpsByPattern": "patterns, bind_constants=True, annotate_codegen=False, entry_functions=None",
    "FuseTransposeMatmul": "max_rows=None",
    "Gradient": "func_name, require_grads=None, target_index=0",
    "LazyTransformParams": "fget_item='get_item', fset_item='set_item', extra_get_item_params=None, "
    "extra_set_item_params=None",
    "LegalizeOps": "customize_legalize_map=None, enable_warning=False",
    "LiftTransformParams": "shared_transform=False",
    "RunCodegen": "target_options=None, entry_functions=None",
    "SplitCallTIRByPattern": "patterns, fcodegen",
    "ToMixedPrecision": "out_dtype='float32', fp16_input_names=None",
    "TopologicalSort": "order='depth-first', direction='from-inputs'",
    "UpdateParamStructInfo": "sinfo_func",
    "UpdateVDevice": "new_vdevice, index",
    "VMShapeLower": "emit_err_ctx=True",
}
"""The options of passes that have any, as they are published."""


def test_options_and_their_defaults_are_the_published_ones() -> None:
    found = {
        name: ", ".join(str(p.replace(annotation=p.empty)) for p in parameters(cls)) for name, cls in PASSES.items()
    }
    assert {name: text for name, text in found.items() if text} == PUBLISHED


def test_options_of_a_pass_are_fixed() -> None:
    fuse = transform.FuseOps()
    with pytest.raises(FrozenInstanceError, match="fuse_opt_level"):
        fuse.fuse_opt_level = 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'level'"):
        transform.FuseOps(level=2)
    with pytest.raises(TypeError):
        transform.Normalize(1)


def test_options_are_checked_when_a_pass_is_made() -> None:
    with pytest.raises(InvalidValue, match="order is 'depth-first' or 'breadth-first', found 'random'"):
        transform.TopologicalSort("random")
    with pytest.raises(TypeMismatch, match=r"shared_transform is a bool or a list of names of functions, found \[3\]"):
        transform.LiftTransformParams([3])
    with pytest.raises(InvalidValue, match="out_dtype is that of sums of floats, found 'int8'"):
        transform.ToMixedPrecision("int8")
    with pytest.raises(TypeMismatch, match="expected a VDevice, found 'llvm'"):
        transform.UpdateVDevice("llvm", 0)


class Heard(PassInstrument):
    """The names of passes, as they begin, and of the one inside of which each does."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.depth = 0

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.names.append("  " * self.depth + info.name)
        self.depth += 1

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.depth -= 1


TRAINING = ["DecomposeOpsForTraining", "  MutateOpsForTraining", "  DecomposeOps"]


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        (
            transform.AttachAttrLayoutFreeBuffers(),
            ["AttachAttrLayoutFreeBuffers", "  _AttachAttrLayoutFreeBuffers", "  DeadCodeElimination"],
        ),
        (transform.ConvertToDataflow(), ["ConvertToDataflow", "  ConvertToDataflow", "  CanonicalizeBindings"]),
        (transform.DecomposeOpsForInference(), ["DecomposeOps"]),
        (transform.DecomposeOpsForInference("main"), ["ApplyPassToFunction", "  DecomposeOps"]),
        (transform.DecomposeOpsForTraining(), TRAINING),
        (transform.DecomposeOpsForTraining("main"), ["ApplyPassToFunction", *("  " + name for name in TRAINING)]),
        (
            transform.ExpandTupleArguments(),
            [
                "ExpandTupleArguments",
                "  ExpandTupleArgumentsInner",
                "  CanonicalizeBindings",
                "  DeadCodeElimination",
            ],
        ),
        (
            transform.LiftTransformParams(),
            ["LiftTransformParams", "  PartitionTransformParams", "  LambdaLift", "  LiftTransformParamsPostProc"],
        ),
        (
            transform.RemoveUnusedOutputs(),
            ["RemoveUnusedOutputs", "  RemoveUnusedOutputsInner", "  CanonicalizeBindings", "  DeadCodeElimination"],
        ),
        (
            transform.SplitLayoutRewritePreproc(),
            ["SplitLayoutRewritePreproc", "  SplitLayoutRewritePreproc", "  DeadCodeElimination"],
        ),
    ],
    ids=repr,
)
def test_instruments_hear_of_the_steps_of_a_pass(steps: Pass, names: list[str]) -> None:
    heard = Heard()
    with PassContext(instruments=[heard]):
        steps(Model)
    assert heard.names == names and steps.info.name == names[0]


def test_a_context_leaves_steps_of_a_pass_out() -> None:
    heard = Heard()
    with PassContext(instruments=[heard], disabled_pass=["CanonicalizeBindings"]):
        transform.ExpandTupleArguments()(Model)
    assert heard.names == ["ExpandTupleArguments", "  ExpandTupleArgumentsInner", "  DeadCodeElimination"]
    heard.names.clear()
    with PassContext(instruments=[heard], opt_level=0):
        transform.ExpandTupleArguments()(Model)
        transform.LiftTransformParams()(Model)
    steps = ["ExpandTupleArguments", "  ExpandTupleArgumentsInner", "  CanonicalizeBindings"]
    assert heard.names == [*steps, "LiftTransformParams"]


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
