"""Forms that operators have for their calls (`FNormalize`), where graphs are built and rewritten; scripts stay."""

from __future__ import annotations

import pytest

import oneir
from oneir import ir, relax
from oneir.relax.testing.transform import ApplyEmptyCppMutator
from oneir.runtime.error import InvalidValue, TypeMismatch, WellFormedError
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


@pytest.fixture
def pairs():
    """An operator whose calls have two arguments in normal form."""
    op = ir.Op.register("test.pairs")

    def normalize(builder, call):
        return call if len(call.args) == 2 else relax.Call(call.op, [call.args[0], relax.Tuple([])])

    facts = {"FInferStructInfo": lambda call, builder: call.args[0].struct_info, "FPurity": True}
    for key, fact in {**facts, "FNormalize": normalize}.items():
        op.set_attr(key, fact)
    yield op
    for key in (*facts, "FNormalize"):
        op.reset_attr(key)


def test_scripts_stay_as_they_are_and_passes_normalize(pairs):
    @I.ir_module(check_well_formed=False)
    class Before:
        @R.function
        def main(x: R.Tensor((4,))):
            return relax.Call(pairs, [x])

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,))):
            return relax.Call(pairs, [x, R.tuple()])

    assert len(Before["main"].body.blocks[0].bindings[0].value.args) == 1
    assert not relax.analysis.well_formed(Before) and relax.analysis.well_formed(Expected)
    after = ApplyEmptyCppMutator()(Before)
    ir.assert_structural_equal(after, Expected)
    assert ApplyEmptyCppMutator()(after) is after
    with pytest.raises(WellFormedError, match=r"`test\.pairs` is not in"):
        relax.analysis.verify_well_formed(Before)


@I.ir_module
class Kernel:
    @T.prim_func(private=True)
    def twice(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            B[i] = A[i] * T.float32(2)


def test_arguments_of_kernels_are_tuples_in_place():
    gvar, info = Kernel.get_global_var("twice"), relax.TensorStructInfo((16,), "float32")
    x, pair = relax.Var("x", info), relax.Var("pair", relax.TupleStructInfo([info]))
    builder = relax.BlockBuilder(Kernel)
    with builder.function("main", [x, pair]):
        bound = builder.emit(relax.Tuple([x]))
        for arguments, expected in ((bound, x), (pair, None)):
            call = builder.normalize(relax.Call(ir.Op.get("relax.call_tir"), [gvar, arguments], sinfo_args=[info]))
            (field,) = call.args[1].fields
            if expected is None:
                value = builder.lookup_binding(field)
                assert isinstance(value, relax.TupleGetItem) and value.tuple_value is pair and value.index == 0
            else:
                assert field is expected
        with pytest.raises(TypeMismatch, match=r"expected a tuple of arguments, found R.Tensor"):
            builder.normalize(relax.Call(ir.Op.get("relax.call_tir"), [gvar, x], sinfo_args=[info]))
        builder.emit_func_output(x)


def test_arguments_that_are_written():
    gvar, info = Kernel.get_global_var("twice"), relax.TensorStructInfo((16,), "float32")
    x = relax.Var("x", info)
    with pytest.raises(InvalidValue, match=r"two outputs cannot be written into one argument, found \[0, 0\]"):
        relax.op.call_tir_inplace(gvar, [x, x], [0, 0], [info, info])
    with pytest.raises(TypeMismatch, match=r"argument 0 is written into, so it must be a tensor, found R.Object"):
        relax.op.call_tir_inplace(gvar, [relax.Var("y", relax.ObjectStructInfo())], [0], info)


def test_signatures_of_other_functions_have_variables_of_their_own():
    @I.ir_module
    class Module:
        @R.function
        def other(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            return x

        @R.function
        def main(x: R.Tensor(("m",), "float32")):
            cls = Module
            functions = (cls.other, x)
            return functions

    assert relax.analysis.well_formed(Module)


def test_what_is_returned_counts_not_what_was_declared():
    text = "@R.function\ndef main(x: R.Tensor((4,))) -> R.Tensor((5,)):\n    return x"
    with pytest.warns(
        UserWarning, match=r"`main` is declared to return R.Tensor\(\(5,\)\), but returns R.Tensor\(\(4,\)\)"
    ):
        main = oneir.script.from_source(text, {"R": R})
    assert [int(extent) for extent in main.ret_struct_info.shape] == [4]
