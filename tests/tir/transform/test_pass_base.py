"""Passes over TensorIR are values: equal by class and options, shown with their options, and told apart by a key."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from oneir import tir
from oneir.ir import IRModule
from oneir.ir.transform import Pass, PassContext, Sequential, module_pass, pass_key
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir import PrimFunc
from oneir.tir.transform import (
    Apply,
    BindTarget,
    CommonSubexprElimTIR,
    CompactBufferAllocation,
    Filter,
    FP8ComputeLegalize,
    HoistIfThenElse,
    NarrowDataType,
    PrimFuncPass,
    RemoveWeightLayoutRewriteBlock,
    Simplify,
    SkipAssert,
    ThreadSync,
    VectorizeLoop,
    prim_func_pass,
)

PASSES = [cls for cls in vars(tir.transform).values() if isinstance(cls, type) and issubclass(cls, Pass)]


def defaults(cls: type) -> dict[str, Any]:
    return {p.name: p.default for p in inspect.signature(cls).parameters.values()}


WITHOUT_ARGUMENTS = [cls for cls in PASSES if inspect.Parameter.empty not in defaults(cls).values()]


@pytest.mark.parametrize("cls", WITHOUT_ARGUMENTS, ids=lambda cls: cls.__name__)
def test_a_pass_is_a_value(cls: type[Pass]) -> None:
    made, again = cls(), cls()
    assert made == again and hash(made) == hash(again) and {made: 1}[again] == 1
    options = ", ".join(f"{name}={value!r}" for name, value in defaults(cls).items())
    assert repr(made) == f"{cls.__name__}({options})"
    key = pass_key(made)
    assert key == pass_key(again)
    assert key is not None and cls.__name__ in key


def test_all_passes_differ() -> None:
    assert Simplify in WITHOUT_ARGUMENTS and VectorizeLoop in WITHOUT_ARGUMENTS and ThreadSync in PASSES
    made = [cls() for cls in WITHOUT_ARGUMENTS]
    assert len({pass_key(one) for one in made}) == len(made)
    assert len({one.info.name for one in made}) == len(made)
    assert all(one != other for one in made for other in made if one is not other)


def test_no_pass_of_the_package_is_a_function() -> None:
    named_like_passes = {name: value for name, value in vars(tir.transform).items() if name[0].isupper()}
    assert [name for name, value in named_like_passes.items() if not isinstance(value, type)] == []


@pytest.mark.parametrize(
    "one, other, shown",
    [
        (ThreadSync("shared"), ThreadSync("shared.dyn"), "ThreadSync(storage_scope='shared')"),
        (VectorizeLoop(False), VectorizeLoop(), "VectorizeLoop(enable_vectorize=False, mask_lanes=False)"),
        (
            CommonSubexprElimTIR(identify_equiv_terms=True),
            CommonSubexprElimTIR(False, True),
            "CommonSubexprElimTIR(enable_cse_tir=True, identify_equiv_terms=True)",
        ),
        (CompactBufferAllocation(), CompactBufferAllocation(False), "CompactBufferAllocation(is_strict=True)"),
        (HoistIfThenElse("basic"), HoistIfThenElse(), "HoistIfThenElse(variant='basic')"),
        (NarrowDataType(64), NarrowDataType(), "NarrowDataType(target_bits=64)"),
        (FP8ComputeLegalize("float16"), FP8ComputeLegalize(), "FP8ComputeLegalize(promote_dtype='float16')"),
        (
            RemoveWeightLayoutRewriteBlock(True),
            RemoveWeightLayoutRewriteBlock(),
            "RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)",
        ),
    ],
)
def test_options_tell_passes_apart(one: Pass, other: Pass, shown: str) -> None:
    assert one != other and repr(one) == shown
    assert pass_key(one) != pass_key(other)
    assert pass_key(Sequential([one])) != pass_key(Sequential([other]))
    assert one.info.name == other.info.name == f"tir.{type(one).__name__}"


def test_options_do_not_change() -> None:
    one = VectorizeLoop()
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'enable_vectorize'"):
        one.enable_vectorize = False
    assert one == VectorizeLoop(True)


def test_arguments_that_a_pass_does_not_have() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'storage_scope'"):
        ThreadSync()
    with pytest.raises(TypeError, match="unexpected keyword argument 'enabled'"):
        VectorizeLoop(enabled=False)
    with pytest.raises(TypeError, match="takes no arguments"):
        Simplify(3)


def same(func: PrimFunc) -> PrimFunc:
    return func


def test_passes_of_functions_are_equal_for_the_same_function_and_have_no_key() -> None:
    assert Apply(same) == Apply(same) and Apply(same) != Apply(lambda func: func)
    assert Apply(ftransform=same) != Filter(fcond=same)
    assert BindTarget(Target("llvm")) == BindTarget(Target("llvm")) != BindTarget(None)
    of_function = prim_func_pass(lambda func, mod, ctx: func, name="same")
    of_module = module_pass(lambda mod, ctx: mod, name="same")
    for one in (Apply(same), Filter(bool), of_function, of_module, Sequential([Simplify(), Apply(same)])):
        assert pass_key(one) is None


class Named(PrimFuncPass):
    """Gives functions a name; those that are called `dropped` go."""

    name: str
    dropped: str = "dropped"

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return None if func.attrs.get("global_symbol") == self.dropped else func.with_attr("global_symbol", self.name)


@T.prim_func(private=True)
def nothing(a: T.Buffer((4,), "float32")):
    T.evaluate(0)


def test_a_class_is_a_pass_with_its_fields_as_options() -> None:
    mod = IRModule({"a": nothing, "b": nothing.with_attr("global_symbol", "dropped")})
    after = Named("new")(mod)
    assert [(var.name_hint, func.attrs["global_symbol"]) for var, func in after.functions_items()] == [("a", "new")]
    assert SkipAssert()(mod) is mod
    assert Named("x").info.name == "tir.Named" and repr(Named("x")) == "Named(name='x', dropped='dropped')"
    assert Named("x") == Named("x", dropped="dropped") != Named("y")
    assert pass_key(Named("x")) is None  # its code may change between two processes
    with pytest.raises(NotImplementedError):
        PrimFuncPass()(mod)
