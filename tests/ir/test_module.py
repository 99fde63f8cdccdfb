"""The IRModule: functions by name, changed in place by scripts and in copies by passes."""

from __future__ import annotations

import pickle

import pytest

from oneir.ir import BaseFunc, GlobalVar, IRModule, assert_structural_equal, structural_equal
from oneir.ir.global_info import VDevice
from oneir.ir.json import JSONError
from oneir.ir.transform import module_pass
from oneir.runtime.error import NotRegistered, OneIRError, TypeMismatch
from oneir.script import ir as I
from oneir.script import tir as T


@T.prim_func(private=True)
def f(A: T.Buffer((4,), "float32")):
    A[0] = T.float32(1)


@T.prim_func(private=True)
def g(A: T.Buffer((4,), "float32")):
    A[0] = T.float32(2)


def names(mod):
    return [var.name_hint for var in mod.get_global_vars()]


def test_names_may_be_strings_or_global_vars():
    var = GlobalVar("g")
    mod = IRModule({"f": f, var: g})
    assert mod["f"] is f and mod["g"] is g and mod[var] is g and mod.get_global_var("g") is var
    assert mod[GlobalVar("g")] is g
    assert "f" in mod and var in mod and "h" not in mod and len(mod) == 2
    assert len(IRModule()) == 0 and IRModule().attrs.get("x") is None


def test_global_vars_are_in_alphabetical_order():
    mod = IRModule({"z": f, "a": g, "m": f})
    assert names(mod) == ["a", "m", "z"]
    assert [v.name_hint for v, _ in mod.functions_items()] == ["a", "m", "z"]
    assert [v.name_hint for v in mod] == ["z", "a", "m"]


def test_unknown_names_are_refused_with_the_nearest():
    mod = IRModule({"matmul": f})
    with pytest.raises(NotRegistered, match=r"no function 'matmull'; it has matmul; did you mean 'matmul'\?"):
        mod["matmull"]
    with pytest.raises(NotRegistered, match="no function 'f'; it has none"):
        IRModule().get_global_var("f")
    with pytest.raises(TypeMismatch, match="expected the name of a function or a GlobalVar, found 3"):
        mod[3]


def test_wrong_tables_are_refused():
    with pytest.raises(TypeMismatch, match="named by str or GlobalVar, found 1"):
        IRModule({1: f})
    with pytest.raises(OneIRError, match="two functions of a module have the name 'f'"):
        IRModule({"f": f, GlobalVar("f"): g})


def test_functions_are_set_updated_and_deleted_in_place():
    mod = IRModule({"f": f})
    var = mod.get_global_var("f")
    mod["f"] = g
    assert mod["f"] is g and mod.get_global_var("f") is var
    mod["h"] = f
    mod.update_func(mod.get_global_var("h"), g)
    assert names(mod) == ["f", "h"] and mod["h"] is g
    mod.update(IRModule({"h": f, "k": g}))
    mod.update({"l": g})
    assert names(mod) == ["f", "h", "k", "l"] and mod["h"] is f
    del mod["h"]
    assert names(mod) == ["f", "k", "l"]
    with pytest.raises(NotRegistered, match="no function 'h'"):
        del mod["h"]


def test_update_func_with_another_global_var_of_the_name_takes_it_over():
    mod, var = IRModule({"f": f}), GlobalVar("f")
    mod.update_func(var, g)
    assert mod.get_global_var("f") is var and len(mod) == 1 and mod["f"] is g


def test_a_clone_is_changed_alone():
    mod = IRModule({"f": f}, attrs={"a": 1})
    clone = mod.clone()
    clone["g"] = g
    assert names(mod) == ["f"] and names(clone) == ["f", "g"] and clone["f"] is f and clone.attrs["a"] == 1


def test_attributes_are_set_in_copies():
    mod = IRModule({"f": f})
    one = mod.with_attr("a", 1).with_attrs({"b": "x", "c": True})
    assert dict(one.attrs) == {"a": 1, "b": "x", "c": True} and len(mod.attrs) == 0
    assert one.get_attr("a") == 1 and one.get_attr("z", 5) == 5 and one.get_attr("z") is None
    assert dict(one.without_attr("a").attrs) == {"b": "x", "c": True} and mod.without_attr("a") is mod


def test_attributes_of_functions():
    func = f.with_attr({"tir.noalias": True, "n": T.int32(3)})
    assert func.attrs["tir.noalias"] is True and func.attrs["n"] == 3 and type(func.attrs["n"]) is int
    assert func.without_attr("n").get_attr("n") is None and "n" in func.attrs


def test_renaming_functions_renames_definition_symbol_and_calls():
    @I.ir_module
    class Mod:
        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            Mod.helper(A.data)

        @T.prim_func(private=True)
        def helper(a: T.handle("float32")):
            A = T.decl_buffer((4,), "float32", data=a)
            A[0] = T.float32(1)

    new = Mod.replace_global_vars({"helper": "inner", Mod.get_global_var("main"): GlobalVar("entry")})
    assert names(new) == ["entry", "inner"] and new["entry"].attrs["global_symbol"] == "entry"
    assert new["entry"].body.value.op is new.get_global_var("inner")
    assert names(Mod) == ["helper", "main"] and Mod["main"].attrs["global_symbol"] == "main"
    back = new.replace_global_vars({"inner": "helper", "entry": "main"})
    assert structural_equal(back, Mod)
    with pytest.raises(NotRegistered, match="no function 'other'"):
        Mod.replace_global_vars({"other": "x"})


def test_renaming_to_a_name_that_is_taken_is_refused():
    with pytest.raises(OneIRError, match="two functions of a module have the name 'g'"):
        IRModule({"f": f, "g": g}).replace_global_vars({"f": "g"})


def test_from_expr_names_the_function_by_its_symbol():
    assert names(IRModule.from_expr(f)) == ["main"]
    assert names(IRModule.from_expr(f.with_attr("global_symbol", "s"), {GlobalVar("g"): g})) == ["g", "s"]


def test_global_infos():
    mod = IRModule({"f": f}, global_infos={"vdevice": [VDevice("llvm")]})
    assert mod.global_infos["vdevice"][0].target.kind.name == "llvm"
    mod.update_global_info("vdevice", [])
    assert len(mod.global_infos["vdevice"]) == 0


def test_a_module_and_its_functions_print(capsys):
    mod = IRModule({"f": f})
    assert isinstance(f, BaseFunc) and "A[0] = T.float32(1.0)" in f.script()
    mod.show()
    assert capsys.readouterr().out == mod.script() + "\n" == str(mod) + "\n"
    assert mod.script(name="Other").count("class Other:") == 1


def test_passes_leave_the_module_they_are_given_alone():
    @module_pass(opt_level=0)
    def add_g(mod, ctx):
        new = mod.clone()
        new["g"] = g
        return new

    mod = IRModule({"f": f})
    assert names(add_g(mod)) == ["f", "g"] and names(mod) == ["f"]


def test_the_state_of_a_module_is_taken_over_in_place():
    one, other = IRModule({"f": f}, {"key": 1}), IRModule({"g": g})
    alias = other
    other.__setstate__(one.__getstate__())
    assert_structural_equal(alias, one)
    assert [var.name_hint for var in alias.get_global_vars()] == ["f"] and alias.attrs["key"] == 1
    assert_structural_equal(pickle.loads(pickle.dumps(alias)), one)
    with pytest.raises(JSONError, match="expected a program as JSON"):
        other.__setstate__({"handle": "{}"})
