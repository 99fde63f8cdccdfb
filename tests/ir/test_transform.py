"""Passes: contexts, order, decorators, which ones run, and what is refused."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from oneir.ir import IRModule
from oneir.ir.transform import (
    ApplyPassToFunction,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    module_pass,
    register_config_option,
)
from oneir.runtime.error import NotRegistered, OneIRError, TypeMismatch
from oneir.script import tir as T
from oneir.tir.transform import prim_func_pass

register_config_option("test.count", int)


@T.prim_func(private=True)
def f(A: T.Buffer((4,), "float32")):
    A[0] = T.float32(1)


MOD = IRModule({"f": f})


def mark(name, opt_level=0):
    """A pass that appends its name to the module's attribute `seen`."""

    def transform(mod, ctx):
        return mod.with_attr("seen", (*mod.attrs.get("seen", ()), name))

    return module_pass(transform, opt_level=opt_level, name=name)


def seen(mod):
    return mod.attrs.get("seen", ())


def test_a_function_becomes_a_pass():
    @module_pass(opt_level=1, name="Named", required=["Other"], traceable=True)
    def transform(mod, ctx):
        assert isinstance(ctx, PassContext)
        return mod

    info = transform.info
    assert (info.name, info.opt_level, info.required, info.traceable) == ("Named", 1, ["Other"], True)
    assert isinstance(transform, ModulePass) and transform(MOD) is MOD

    @module_pass
    def bare(mod, ctx):
        return mod

    assert bare.info.name == "bare" and bare.info.opt_level == 0


def test_a_class_becomes_a_pass_class():
    @module_pass(opt_level=0)
    class Tag:
        """Sets an attribute."""

        def __init__(self, value, *, key="tag"):
            self.value, self.key = value, key

        def transform_module(self, mod, ctx):
            return mod.with_attr(self.key, self.value)

    tagged = Tag(3)
    assert tagged(MOD).attrs["tag"] == 3 and Tag(4, key="k")(MOD).attrs["k"] == 4
    assert tagged.value == 3 and tagged.info.name == "Tag" and Tag.__doc__ == "Sets an attribute."
    assert issubclass(Tag, ModulePass) and isinstance(tagged, Pass)


def test_function_passes_see_each_function_and_may_drop_it():
    @prim_func_pass(opt_level=0)
    def drop_g(func, mod, ctx):
        return None if func.attrs.get("drop") else func.with_attr("kept", len(mod))

    mod = drop_g(IRModule({"f": f, "g": f.with_attr("drop", True)}))
    assert [v.name_hint for v in mod.get_global_vars()] == ["f"] and mod["f"].attrs["kept"] == 2
    same = prim_func_pass(lambda func, mod, ctx: func, opt_level=0, name="same")
    assert same(MOD) is MOD


def test_what_is_no_pass_is_refused():
    with pytest.raises(TypeMismatch, match=r"the pass class Empty must define transform_module"):

        @module_pass(opt_level=0)
        class Empty:
            pass

    with pytest.raises(TypeMismatch, match=r"the pass 'Wrong' must return an IRModule, found NoneType"):
        module_pass(lambda mod, ctx: None, name="Wrong")(MOD)
    with pytest.raises(TypeMismatch, match="Sequential expects passes, found 3"):
        Sequential([3])
    with pytest.raises(TypeMismatch, match="a pass is a function or a class, found 'x'"):
        module_pass(opt_level=0, name="n")("x")


def test_sequential_runs_in_order_and_nests():
    inner = Sequential([mark("b"), mark("c")], name="inner")
    assert seen(Sequential([mark("a"), inner, mark("d")])(MOD)) == ("a", "b", "c", "d")
    assert Sequential()(MOD) is MOD and inner.info.name == "inner"


def test_the_level_of_the_context_decides_which_passes_run():
    pipeline = Sequential([mark("a", 0), mark("b", 2), mark("c", 3)])
    for level, expected in {0: ("a",), 2: ("a", "b"), 3: ("a", "b", "c")}.items():
        with PassContext(opt_level=level):
            assert seen(pipeline(MOD)) == expected
    assert seen(pipeline(MOD)) == ("a", "b")


def test_required_and_disabled_passes():
    pipeline = Sequential([mark("a"), mark("b", 3)])
    with PassContext(required_pass=["b"]):
        assert seen(pipeline(MOD)) == ("a", "b")
    with PassContext(disabled_pass=["a"], required_pass=["a", "b"]):
        assert seen(pipeline(MOD)) == ("b",)
    assert seen(mark("b", 3)(MOD)) == ("b",)


def test_contexts_nest_and_belong_to_their_thread():
    default = PassContext.current()
    assert default.opt_level == 2 and default.config == {}
    with PassContext(opt_level=1) as outer:
        assert PassContext.current() is outer
        with PassContext(opt_level=3) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
        others = []
        thread = threading.Thread(target=lambda: others.append(PassContext.current()))
        thread.start()
        thread.join()
    assert others == [default] and PassContext.current() is default


def test_a_context_is_left_after_an_error():
    with pytest.raises(ZeroDivisionError), PassContext(opt_level=0):
        raise ZeroDivisionError
    assert PassContext.current().opt_level == 2


def test_options_are_declared():
    with PassContext(config={"test.count": 3}) as ctx:
        assert ctx.config["test.count"] == 3
    assert PassContext.list_configs()["test.count"] == {"type": "int"}
    assert list(PassContext.list_configs()) == sorted(PassContext.list_configs())


@dataclass(frozen=True)
class Limits:
    depth: int = 3
    wide: bool = True


register_config_option("test.limits", Limits)


def test_an_option_with_fields_is_read_as_an_object_with_the_defaults_of_those_that_are_not_given():
    limits = PassContext(config={"test.limits": {"depth": 5}}).config["test.limits"]
    assert limits == Limits(5, True)
    assert PassContext(config={"test.limits": limits}).config["test.limits"] is limits
    with pytest.raises(TypeMismatch, match=r"the option 'test.limits' has no field 'deep'; it has depth, wide"):
        PassContext(config={"test.limits": {"deep": 5}})


def test_wrong_options_are_refused():
    with pytest.raises(NotRegistered, match=r"PassContext has no option 'test.cuont'; did you mean 'test.count'\?"):
        PassContext(config={"test.cuont": 3})
    with pytest.raises(TypeMismatch, match=r"PassContext option 'test.count' expects .*int.*, found 'three'"):
        PassContext(config={"test.count": "three"})


def test_pass_enabled_tells_what_a_sequence_would_do():
    with PassContext(opt_level=1, disabled_pass=["x"]) as ctx:
        assert ctx.pass_enabled(PassInfo(1, "a")) and not ctx.pass_enabled(PassInfo(2, "a"))
        assert not ctx.pass_enabled(PassInfo(0, "x"))


def test_print_ir(capsys):
    assert PrintIR("# here")(MOD) is MOD and PrintIR()(MOD) is MOD
    assert capsys.readouterr().out == f"# here\n{MOD.script()}\n{MOD.script()}\n"


@prim_func_pass(opt_level=0)
def tag(func, mod, ctx):
    return func.with_attr("functions", len(mod))


def test_a_pass_is_applied_to_functions_by_name():
    mod = IRModule({"main": f, "helper_1": f, "helper_2": f, "my_helper_1": f}, attrs={"k": 1})
    new = ApplyPassToFunction(tag, "helper_.*")(mod)
    assert {v.name_hint: new[v].attrs.get("functions") for v in new.get_global_vars()} == {
        "helper_1": 2,
        "helper_2": 2,
        "main": None,
        "my_helper_1": None,
    }
    assert new.attrs["k"] == 1 and new["main"] is f
    assert set(new) == set(mod)
    assert ApplyPassToFunction(tag, "nothing")(mod) is mod


def test_a_pattern_that_matches_nothing_can_be_an_error():
    with pytest.raises(NotRegistered, match="no function of the module matches 'nothing'; it has f"):
        ApplyPassToFunction(tag, "nothing", error_if_no_function_matches_regex=True)(MOD)
    with pytest.raises(OneIRError, match=r"'\(' is no regular expression"):
        ApplyPassToFunction(tag, "(")
