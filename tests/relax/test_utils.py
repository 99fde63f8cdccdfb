"""The published helpers."""

from __future__ import annotations

import pytest

from oneir import relax, te, tir
from oneir.ir.structural import assert_structural_equal
from oneir.relax.utils import convert_to_expr, gen_call_tir_inputs, metadata_partitioner
from oneir.runtime.error import InvalidValue, TypeMismatch


def test_metadata_is_taken_off_a_text():
    text = 'metadata = {"a": {"b": [1, 2]}}\n@R.function\ndef main(): ...\n'
    program, metadata = metadata_partitioner(text)
    assert metadata == '{"a": {"b": [1, 2]}}'
    assert program == "\n@R.function\ndef main(): ..."


@pytest.mark.parametrize("text", ["", "no braces", "{ not closed {}"])
def test_a_text_without_metadata_is_refused(text):
    with pytest.raises(InvalidValue, match="the metadata section was not found"):
        metadata_partitioner(text)


def test_values_become_expressions():
    n = tir.Var("n", "int64")
    assert_structural_equal(convert_to_expr(3), relax.PrimValue(tir.IntImm("int64", 3)))
    assert_structural_equal(convert_to_expr(1.5), relax.PrimValue(tir.FloatImm("float64", 1.5)))
    assert convert_to_expr(n).value is n
    assert convert_to_expr("text").value == "text"
    assert len(convert_to_expr([1, ("a", n)]).fields) == 2
    x = relax.Var("x", relax.ObjectStructInfo())
    assert convert_to_expr(x) is x


def test_values_that_are_ambiguous_or_none_are_refused():
    with pytest.raises(TypeMismatch, match=r"may be meant as relax\.StringImm or relax\.PrimValue"):
        convert_to_expr(tir.StringImm("text"))
    with pytest.raises(TypeMismatch, match="expected a graph expression"):
        convert_to_expr(object())


def test_the_inputs_of_a_call_of_loops():
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 4), "float32"))
    loops, args, infos, tir_vars = gen_call_tir_inputs(lambda a: te.compute(a.shape, lambda i, j: a[i, j] + 1.0), x)
    assert isinstance(loops, tir.PrimFunc) and args == [x] and tir_vars is None
    assert_structural_equal(infos[0], x.struct_info, map_free_vars=True)
