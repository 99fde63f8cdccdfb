"""Modules: classes and texts with several functions, their references to each other, attributes and global infos."""

from __future__ import annotations

import linecache

import pytest

from oneir.ir import IRModule, assert_structural_equal, json
from oneir.ir.expr import Call, GlobalVar, IntImm, Var
from oneir.ir.global_info import DummyGlobalInfo, VDevice
from oneir.runtime.error import ParseError
from oneir.script import from_source, ir_module
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import Evaluate, SeqStmt

SCALE = 3


def test_a_class_of_functions_in_any_order():
    offset = 2

    @I.ir_module
    class Module:
        @T.prim_func
        def main(x: T.int32, p: T.handle("float32")) -> T.int32:
            cls.effect(p)
            return Module.helper(x + 1) + helper(x)

        @T.prim_func(private=True)
        def helper(x: T.int32) -> T.int32:
            return x * SCALE + offset

        @T.prim_func
        def effect(p: T.handle("float32")):
            T.evaluate(0)

    assert isinstance(Module, IRModule)
    assert [v.name_hint for v in Module.functions] == ["main", "helper", "effect"]
    main = Module["main"]
    helper, effect = Module.get_global_var("helper"), Module.get_global_var("effect")
    x, p = main.params
    call = Call("int32", helper, [x + 1]) + Call("int32", helper, [x])
    expected = SeqStmt([Evaluate(Call("void", effect, [p])), Evaluate(T.ret(call))])
    assert_structural_equal(main.body, expected)
    assert "global_symbol" not in Module["helper"].attrs


def test_call_tir_has_the_dtype_of_the_result():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(x: T.float32) -> T.float32:
            return T.call_tir(cls.other, x)

        @T.prim_func
        def other(x: T.float32) -> T.float32:
            return x

    assert Module["main"].body.value.args[0].dtype == "float32"


def test_call_tir_and_the_alias_of_a_module():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(p: T.handle):
            this = Module
            T.call_tir(this.other, p, 1)

        @T.prim_func
        def other(p: T.handle, n: T.int32):
            T.evaluate(n)

    call = Module["main"].body.value
    assert call.op is Module.get_global_var("other") and len(call.args) == 2


def test_attributes_and_global_infos():
    @I.ir_module
    class Module:
        I.module_attrs({"key": 1, "text": "x"})
        I.module_global_infos({"dummy": [I.dummy_global_info()], "vdevice": [I.vdevice(None, 1, "shared")]})
        size = 4

        @T.prim_func
        def main(A: T.Buffer((size,), "float32")):
            A[size - 1] = T.float32(0)

    assert dict(Module.attrs) == {"key": 1, "text": "x"}
    (dummy,), (device,) = Module.global_infos["dummy"], Module.global_infos["vdevice"]
    assert isinstance(dummy, DummyGlobalInfo)
    assert isinstance(device, VDevice) and (device.vdevice_id, device.memory_scope) == (1, "shared")
    assert int(Module["main"].buffer_map[Module["main"].params[0]].shape[0]) == 4


def test_devices_are_looked_up_by_kind():
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 1), I.vdevice({"kind": "cuda"}, 0)]})
        last = I.lookup_vdevice("cuda", 1)
        I.module_attrs({"last": last})

        @T.prim_func
        def main():
            T.evaluate(0)

    assert Module.attrs["last"] is Module.global_infos["vdevice"][2]


def test_the_decorator_with_options_and_by_another_name():
    @ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(check_well_formed=False)
        def main():
            T.evaluate(0)

    assert [v.name_hint for v in Module] == ["main"]


def test_a_plain_class_keeps_its_functions():
    class Plain:
        @T.prim_func
        def main():
            T.evaluate(0)

    assert isinstance(Plain.main, PrimFunc)


def test_two_classes_of_one_name():
    def first():
        @I.ir_module
        class Module:
            @T.prim_func
            def main():
                T.evaluate(1)

        return Module

    @I.ir_module
    class Module:
        @T.prim_func
        def main():
            T.evaluate(2)

    assert (int(first()["main"].body.value), int(Module["main"].body.value)) == (1, 2)


TEXT = """
# from tvm.script import ir as I
# from tvm.script import tir as T

@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((8,), "float32")):
        # with T.block("root"):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                T.reads()
                T.writes(A[vi])
                A[vi] = T.float32(0.0)
"""


def test_a_text_is_what_the_class_is():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.block("A"):
                    vi = T.axis.spatial(8, i)
                    A[vi] = T.float32(0.0)

    assert_structural_equal(from_source(TEXT), Module)
    indented = "\n".join("    " + line for line in TEXT.splitlines())
    assert_structural_equal(from_source(indented), Module)


def test_a_text_may_import_and_define_values():
    func = from_source(
        """
        from __future__ import annotations
        import math
        from oneir.script import tir as TT
        from tvm.script import tir as T, ir as I
        import oneir.tir.op as ops
        N = int(math.sqrt(16))

        @TT.prim_func
        def f(A: T.Buffer((N,), "float32")):
            A[0] = ops.exp(A[N - 1])
        """
    )
    assert int(func.buffer_map[func.params[0]].shape[0]) == 4


def test_the_last_definition_counts():
    func = from_source("@T.prim_func\ndef f():\n    T.evaluate(1)\n\n@T.prim_func\ndef g():\n    T.evaluate(2)\n")
    assert func.attrs["global_symbol"] == "g"


def test_a_notebook_cell():
    """Notebooks register the text of a cell under a name that is no file."""
    name = "<ipython-input-7-0123456789ab>"
    text = (
        "from oneir.script import ir as I, tir as T\n"
        "@T.prim_func\ndef lone(A: T.Buffer((4,), 'float32')):\n    A[0] = T.float32(0)\n\n"
        "@I.ir_module\nclass Cell:\n    @T.prim_func\n    def main():\n        T.evaluate(0)\n"
    )
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict = {}
    exec(compile(text, name, "exec"), names)
    assert isinstance(names["lone"], PrimFunc) and isinstance(names["Cell"], IRModule)
    assert names["lone"].body.span.source_name.name == name and names["lone"].body.span.line == 4


def test_functions_that_were_made_without_a_text_are_refused():
    with pytest.raises(ParseError, match=r"the source of `f` was not found in <nowhere>: there is no such file"):
        exec(compile("@T.prim_func\ndef f():\n    pass\n", "<nowhere>", "exec"), {"T": T})


MODULE = "@I.ir_module\nclass M:\n    @T.prim_func\n    def f():\n        {}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODULE.format("cls.g()"), "`cls` has no attribute `g`"),
        (MODULE.format("g()"), "undefined name `g`"),
        ("@I.ir_module\nclass M:\n    def f():\n        pass\n", "expected `f` to be decorated with @T.prim_func"),
        ("class M:\n    pass\n", "expected the class `M` to be decorated with @I.ir_module"),
        ("x = 1\n", "the text defines neither a function (@T.prim_func) nor a module (@I.ir_module)"),
        ("for i in range(3):\n    pass\n", "expected a function or a module"),
        ("@T.prim_func\ndef f(:\n    pass\n", "this is not Python: invalid syntax"),
        ("from tvm.nowhere import x\n", "cannot import `x`"),
        (MODULE.format("pass") + "    for i in range(3):\n        pass\n", "`For` cannot stand in a module"),
        (
            MODULE.format("pass") + "    @T.prim_func\n    def f():\n        pass\n",
            "the module has two functions with the name `f`",
        ),
        (
            "@I.ir_module\nclass M:\n    I.module_attrs({'a': 1})\n    I.module_attrs({'b': 1})\n",
            "I.module_attrs is stated already",
        ),
        ('@I.ir_module\nclass M:\n    d = I.lookup_vdevice("cuda")\n', "the module has 0 devices of kind 'cuda'"),
        (MODULE.format('T.evaluate(metadata["tir.IntImm"][0])'), "print the module with show_meta=True"),
    ],
)
def test_refused_modules(text: str, message: str):
    with pytest.raises(ParseError) as caught:
        from_source(text, check_well_formed=False)
    assert message in str(caught.value)


def test_calls_of_functions_of_another_module_keep_their_identity():
    var = GlobalVar("elsewhere")
    x = Var("x", "int32")
    func = from_source("@T.prim_func\ndef f():\n    var(x)\n", extra_vars={"var": var, "x": x}, check_well_formed=False)
    assert_structural_equal(func.body, Evaluate(Call("void", var, [x])))


def test_metadata_may_stand_before_or_after_what_refers_to_it():
    body = '@T.prim_func\ndef f():\n    T.evaluate(metadata["tir.IntImm"][0] + 1)\n'
    data = json.save_json({"tir.IntImm": [IntImm("int64", 5)]})
    block = f'metadata = tvm.ir.load_json("""{data}""")\n'
    for text in (block + body, body + block):
        func = from_source(text, check_well_formed=False)
        assert (func.body.value.dtype, int(func.body.value)) == ("int64", 6)
