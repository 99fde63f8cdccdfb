"""What programs written for TVM say to `ir`, `error` and `transform`: names, parameters, results."""

from __future__ import annotations

import pytest

import oneir as tvm
from oneir.ir.base import deprecated
from oneir.script import tir as T
from oneir.tir import Evaluate, PrimFunc, Var


@T.prim_func
def func(a: T.handle):
    A = T.match_buffer(a, (4,), "float32")
    for i in T.serial(4, annotations={"mark": 1}):
        A[i] = A[i] + T.float32(1)


def test_containers_are_arrays_and_maps():
    assert isinstance(func.params, tvm.ir.Array) and isinstance(func.params, tvm.container.Array)
    assert isinstance(func.buffer_map, tvm.ir.Map) and isinstance(func.body.annotations, tvm.ir.container.Map)
    assert func.params[0:1] == [func.params[0]] and len(func.params) == 1 and func.params[-1] is func.params[0]
    assert dict(func.body.annotations) == {"mark": 1}


def test_objects_have_one_base():
    for value in (func, func.params, func.body, tvm.target.Target("llvm"), tvm.nd.array([1.0])):
        assert isinstance(value, tvm.runtime.Object)
        assert value.same_as(value) and not value.same_as(func.attrs)
    assert isinstance("text", tvm.runtime.String)


def test_runtime_convert():
    x = Var("x", "int32")
    converted = tvm.runtime.convert([1, "two", (x, None), {"three": [3.0]}, x == 1])
    assert isinstance(converted, tvm.ir.Array) and isinstance(converted[2], tvm.ir.Array)
    assert list(converted[:2]) == [1, "two"] and converted[2][0] is x and converted[2][1] is None
    assert isinstance(converted[3]["three"], tvm.ir.Array)
    assert isinstance(converted[4], tvm.tir.EQ)
    assert tvm.runtime.convert(abs)(-1) == 1


def test_runtime_convert_refuses_what_programs_cannot_hold():
    with pytest.raises(tvm.TVMError, match=r"expected a number, a string.* found <object object at .*of type object"):
        tvm.runtime.convert(object())


def test_errors_by_the_names_that_programs_catch():
    assert tvm.error.TVMError is tvm.TVMError
    with pytest.raises(tvm.error.OpError, match=r"operator 'tir\.nonesuch' is not registered"):
        tvm.ir.Op.get("tir.nonesuch")
    with pytest.raises(tvm.error.DiagnosticError, match="undefined_name"):
        tvm.script.from_source("@T.prim_func\ndef f():\n    T.evaluate(undefined_name)")


def test_json_takes_published_names():
    text = tvm.ir.save_json(node=func)
    tvm.ir.assert_structural_equal(tvm.ir.load_json(json_str=text), func)
    with pytest.raises(TypeError, match="unexpected keyword argument 'text'"):
        tvm.ir.load_json(**{"text": text})


def test_renamed_fields_survive_json_and_mapping():
    """The constructor's name of a field may be another than the field's."""
    k = tvm.tir.IterVar((0, 4), "k", tvm.tir.IterVar.CommReduce)
    A = func.buffer_map[func.params[0]]
    total = tvm.te.sum(A[k.var], axis=k)
    restored = tvm.ir.load_json(tvm.ir.save_json(total))
    tvm.ir.assert_structural_equal(restored, total, map_free_vars=True)
    other = total.replace(source=[A[k.var] * T.float32(2)])
    assert other.axis == total.axis and str(other.source[0]) == "A[k] * T.float32(2.0)"
    with pytest.raises(TypeError, match="Reduce has no field src; it has combiner, source, axis"):
        total.replace(src=[A[k.var]])


def test_deprecated_functions_warn():
    @deprecated("old", "new")
    def old(value):
        return value + 1

    with pytest.warns(DeprecationWarning, match="old is deprecated, use new instead"):
        assert old(1) == 2


def test_module_attributes():
    mod = tvm.IRModule({"main": func}, attrs={"answer": 42})
    assert mod.get_attr(attr_key="answer") == 42 and mod.get_attr("question") is None
    assert func.get_attr(attr_key="global_symbol") == "func"


def test_attributes_by_their_older_key():
    assert tvm.ir.make_node("DictAttrs", a=1)["a"] == tvm.ir.make_node("ir.DictAttrs", a=1)["a"] == 1
    with pytest.raises(tvm.TVMError, match=r"operator .ListAttrs. is not registered"):
        tvm.ir.make_node("ListAttrs", a=1)


def test_sequential_takes_none_for_nothing():
    mod = tvm.IRModule({"main": func})
    assert tvm.transform.Sequential(None, opt_level=0, name="nothing", required=None)(mod) is mod
    with pytest.raises(TypeError, match="Sequential expects passes, found 'Simplify'"):
        tvm.transform.Sequential(passes=[*("Simplify",)])


def test_from_source_takes_a_program():
    parsed = tvm.script.from_source(program=func.script(), extra_vars={}, check_well_formed=True)
    tvm.ir.assert_structural_equal(parsed, func)
    assert isinstance(tvm.script.from_source("@T.prim_func\ndef f():\n    T.evaluate(n)", {"n": 3}), PrimFunc)


def test_a_function_without_effect_is_still_a_function():
    assert isinstance(PrimFunc([], Evaluate(0)).body, Evaluate)


def test_calling_conventions_of_lowered_functions():
    with tvm.target.Target("llvm"):
        packed = tvm.tir.get_tir_pipeline("default")(tvm.IRModule({"func": func}))
    found = [f.attrs["calling_conv"] for _, f in packed.functions_items()]
    assert found == [tvm.ir.CallingConv.C_PACKED_FUNC]
    with pytest.raises(ValueError, match="7 is not a valid CallingConv"):
        tvm.ir.CallingConv(7)
