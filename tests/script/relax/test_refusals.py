"""What is no graph is refused: the message says what was expected, and the user's own source is underlined."""

from __future__ import annotations

import re

import pytest

from oneir import relax
from oneir.ir.json import JSONError, load_json, save_json
from oneir.runtime.error import ParseError, WellFormedError
from oneir.script import from_source
from oneir.script import relax as R

HEAD = """@R.function
def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((8,), "float32"), c: R.Tensor((), "bool")):
"""
TAIL = "\n    return x"


def underlined(message: str) -> str:
    """The source above the carets of an error."""
    line, carets = message.splitlines()[-2:]
    return line[carets.index("^") : carets.rindex("^") + 1]


def refuse(text: str, message: str, place: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        from_source(text)
    assert underlined(str(caught.value)) == place


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        ("z = R.add(x, yy)", "undefined name `yy`; did you mean `y`", "yy"),
        ("z = R.addd(x, y)", "`R` has no attribute `addd`; did you mean `add`", "R.addd"),
        ("z = R.nn.rellu(x)", "`R.nn` has no attribute `rellu`; did you mean `relu`", "R.nn.rellu"),
        ("z = cls.f(x)", "undefined name `cls`", "cls"),
        ("z = metadata['k'][0]", "show_meta=True", "metadata"),
        ("x[0] = y", "expected a name to assign to; tensors of a graph cannot be written into", "x[0]"),
        ("a = b = x", "assign to one target at a time", "a = b = x"),
        ("a, b = R.exp(x)", "expected 2 values to unpack, found one", "a, b"),
        ("a, b = x, y, c", "expected 2 values to unpack, found 3", "a, b"),
        ("t = (x, y); z = t[2]", "field 2 of a tuple of 2", "t[2]"),
        ("R.exp(x)", r"this gives R.Tensor\(\(4, 8\), .* assign it to a name, `_` if it is not used", "R.exp(x)"),
        ("3 + 4", "neither a statement nor a graph value: 7", "3 + 4"),
        ("z: R.Tensor((4, 8))", "expected `name: R.Tensor", "z: R.Tensor((4, 8))"),
        ("for i in range(4):\n        pass", "a loop cannot stand in a graph function", "for i in range(4):"),
        ("assert c", r"`assert` \(R.assert_op checks while the program runs\) cannot stand", "assert c"),
        ("import os", "`import` cannot stand in a graph function", "import os"),
        ("return", "`return` in a graph function expects a value", "return"),
        ("with R.Then():\n        z = x", r"`with R.Then\(\):` stands inside of `with R.If", "with R.Then():"),
        ("with x:\n        z = x", r"expected `with R.dataflow\(\):`", "x"),
        ("z = x.y", "`x` has no attribute `y`", "x.y"),
    ],
)
def test_names_and_statements(body: str, message: str, place: str):
    refuse(f"{HEAD}    {body}{TAIL}", message, place)


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        (
            'z: R.Tensor((4, 9), "float32") = R.add(x, y)',
            r"the annotation says R.Tensor\(\(4, 9\), .*but the value is R.Tensor\(\(4, 8\), ",
            'R.Tensor((4, 9), "float32")',
        ),
        ("z: R.Shape = x", r"the annotation says R.Shape\(ndim=-1\), but the value is R.Tensor", "R.Shape"),
        ("z: 3 = x", "expected struct info, such as R.Tensor", "3"),
        ("z: R.Tensor = [x]", r"an annotated assignment expects a graph value, found \[x\]", "z"),
        (
            "z: R.Tensor(ndim=2) = R.match_cast(x, R.Tensor((4, 8)))",
            r"the annotation says R.Tensor\(ndim=2\), but the cast is to R.Tensor\(\(4, 8\)\)",
            "R.Tensor(ndim=2)",
        ),
        (
            "z = R.match_cast(x, R.Shape(ndim=2))",
            r"`x` can never be R.Shape\(ndim=2\): it is R.Tensor",
            "R.match_cast(x, R.Shape(ndim=2))",
        ),
        (
            "z = R.add(x, R.add(y, R.const([1.0, 2.0])))",
            "relax.add: shapes .* cannot be broadcast",
            "R.add(y, R.const([1.0, 2.0]))",
        ),
        ("z = x(y)", "expected a function to call, found `x`", "x(y)"),
        ("z = R.call_tir(x, x, R.Tensor)", "call_tir expects the GlobalVar", "R.call_tir(x, x, R.Tensor)"),
        ("z = R.call_dps_packed('f', x, (3,))", "a shape alone needs dtype=", "R.call_dps_packed('f', x, (3,))"),
        ("z = R.call_packed(x, y)", "R.call_packed expects the name of a function, found x", "R.call_packed(x, y)"),
        ("z = R.shape([2.5])", "an extent of a shape is an integer", "R.shape([2.5])"),
        ("z = R.Tensor(3)", "the shape of a tensor is a list or tuple of extents, found 3", "R.Tensor(3)"),
        ("z = R.Tensor((2, 3), ndim=3)", "has 2 dimensions, not ndim=3", "R.Tensor((2, 3), ndim=3)"),
        ("z = R.Prim()", "expects a dtype or a value", "R.Prim()"),
        ("R.emit_var_binding(x)", "expects a VarBinding, found x", "R.emit_var_binding(x)"),
        ("z = R.to_vdevice(x, 'llvm:0')", "0 devices of kind 'llvm'", "R.to_vdevice(x, 'llvm:0')"),
        ("n = T.int64(); n = T.int32()", "`n` is a symbolic variable of dtype int64, not int32", "n"),
    ],
)
def test_values(body: str, message: str, place: str):
    refuse(f"{HEAD}    {body}{TAIL}", message, place)


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        ("R.output(x)", r"write it inside `with R.dataflow\(\):`", "R.output(x)"),
        (
            "with R.dataflow():\n        a = R.exp(x)\n        R.output(a)\n        R.output(a)",
            "stated already",
            "R.output(a)",
        ),
        (
            "with R.dataflow():\n        a = R.exp(x)\n        R.output(x)",
            "bound in its dataflow block, found `x`",
            "R.output(x)",
        ),
        (
            "with R.dataflow():\n        a = x\n        R.output(a)\n        b = R.exp(a)",
            "nothing can be bound after it",
            "R.exp(a)",
        ),
        (
            "with R.dataflow():\n        a = x\n        b = a\n        R.output(b)\n    z = a",
            r"make it an output: R.output\(a\)",
            "a",
        ),
        ("with R.dataflow():\n        return x", "a function returns outside of its dataflow blocks", "return x"),
        (
            "with R.dataflow():\n        with R.dataflow():\n            a = x",
            "cannot stand in another one",
            "with R.dataflow():",
        ),
        (
            "with R.dataflow():\n        if c:\n            a = x\n        else:\n            a = y",
            "cannot stand in a dataflow",
            "if c:",
        ),
        ("if c:\n        a = x", "needs both branches: add `else:`", "if c:"),
        ("if c:\n        a = x\n    else:\n        b = y", "one ends with `a`, the other with `b`", "b = y"),
        (
            "if c:\n        pass\n    else:\n        b = y",
            "a branch ends with the variable that gets its value",
            "pass",
        ),
        ("if c:\n        return x\n    else:\n        b = y", "a branch does not return", "return x"),
        ("with R.If(c):\n        a = x", r"R.If holds `with R.Then\(\):` and then", "with R.If(c):"),
    ],
)
def test_blocks_and_branches(body: str, message: str, place: str):
    refuse(f"{HEAD}    {body}{TAIL}", message, place)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("def main(x):\n    return x", "parameter `x` expects an annotation, for instance R.Tensor", "x"),
        (
            "def main(x: 3):\n    return x",
            r"expected struct info, such as R.Tensor\(\(2, 3\), 'float32'\), found 3",
            "3",
        ),
        ("def main(x: R.Tensor = 3):\n    return x", "plain parameters: no defaults", "3"),
        ("def main(*x: R.Tensor):\n    return x", "plain parameters: no defaults, no stars", "x: R.Tensor"),
        ("def main(x: R.Tensor((2.5,))):\n    return x", "an extent of a shape is an integer", "R.Tensor((2.5,))"),
        ("def main(x: R.Tensor(('n +',))):\n    return x", "found the text 'n \\+'", "R.Tensor(('n +',))"),
        (
            "def main(x: R.Tensor(('n * 2',))):\n    return x",
            "undefined symbolic variable `n`: no parameter of `main` has it as an extent",
            "def main(x: R.Tensor(('n * 2',))):",
        ),
        ("def main(x: R.Tensor(('n',))) -> R.Tensor(('m',)):\n    return x", "undefined name `m`", "R.Tensor(('m',))"),
        (
            "def main(x: R.Tensor((2,), 'int8', 'cuda:1')):\n    return x",
            "0 devices of kind 'cuda'",
            "R.Tensor((2,), 'int8', 'cuda:1')",
        ),
        ("def main(x: R.Object):\n    y = x", "`main` returns nothing; end it with `return`", "def main(x: R.Object):"),
        (
            "def main(x: R.Tensor(('n',))):\n    n = T.int32()\n    return x",
            "the symbolic extent `n` must be int64, found int32",
            "T.int32()",
        ),
        (
            "def main(x: R.Object):\n    @R.function\n    def f():\n        R.func_attr({'global_symbol': 'g'})\n"
            "        return x\n    return x",
            "`f` is private, so nothing outside can call it by a global_symbol",
            "return x",
        ),
        ("def main(x: R.Object):\n    return x\n    return x", "`main` has returned already", "return x"),
        (
            "def main(x: R.Object):\n    @T.prim_func\n    def f():\n        pass\n    return x",
            "a function inside of a graph function is one itself: decorate it with @R.function",
            "def f():",
        ),
        (
            "def main(x: R.Object):\n    @R.function\n    def f(y: R.Object):\n        return f(y)\n    return x",
            "undefined name `f`",
            "f",
        ),
        (
            "def main(x: R.Object):\n    @R.macro\n    def m(a):\n        b = a\n    y = m(x)\n    return x",
            "the macro `m` ends with `return` and a value",
            "b = a",
        ),
        (
            "def main(x: R.Object):\n    y = R.emit_te(lambda a: a, 3)\n    return x",
            "must return tensor expressions",
            "R.emit_te(lambda a: a, 3)",
        ),
    ],
)
def test_functions(text: str, message: str, place: str):
    refuse(f"@R.function\n{text}", message, place)


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        ("return cls.f(x, x)", "`f` takes 1 arguments, found 2", "cls.f(x, x)"),
        ("return cls.f(R.exp(x))", "argument 0 of `f`: expected R.Tensor.*int8.*found", "cls.f(R.exp(x))"),
        ("return R.call_tir(cls.ff, x, R.Tensor((3,), 'int8'))", "`cls` has no attribute `ff`", "cls.ff"),
        ("R.print(x)\n        return x", "the function is pure, but calls `relax.print`", "R.print(x)"),
        (
            "with R.dataflow():\n            y = R.call_packed('p', x)\n            R.output(y)\n        return y",
            "`p` may have a side effect, but is called in a dataflow block",
            "R.call_packed('p', x)",
        ),
        (
            "m = T.int64()\n        z = R.shape([m])\n        return z",
            "uses the symbolic variable `m`, which is not defined",
            "z",
        ),
    ],
)
def test_modules(body: str, message: str, place: str):
    refuse(
        f"""
@I.ir_module
class Module:
    @R.function
    def f(x: R.Tensor((3,), "int8")):
        return x

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = Module
        {body}
""",
        message,
        place,
    )


def test_a_rule_of_graphs_that_is_broken_is_a_well_formedness_error_too():
    with pytest.raises(WellFormedError, match=r"relax\.print"):
        from_source(f"{HEAD}    R.print(x){TAIL}")
    assert isinstance(from_source(f"{HEAD}    R.print(x){TAIL}", check_well_formed=False), relax.Function)


def test_loops_from_tensor_expressions_need_a_module():
    from oneir import topi

    with pytest.raises(ParseError, match=r"R\.emit_te adds a function to the module, but this function stands in none"):
        from_source(f"{HEAD}    z = R.emit_te(add, x, y){TAIL}", {"add": topi.add})


def test_the_source_of_a_decorated_function_is_underlined():
    with pytest.raises(ParseError, match="undefined name `z`") as caught:

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.add(x, z)
            return y

    assert re.search(r"test_refusals\.py:\d+:26", str(caught.value)) and underlined(str(caught.value)) == "z"


def test_struct_info_in_json_must_be_a_node():
    text = save_json(relax.op.exp(relax.Var("x", R.Tensor((2,), "float32"))).op)
    assert load_json(text).name == "relax.exp"
    call = relax.BlockBuilder().normalize(relax.op.exp(relax.Var("x", R.Tensor((2,), "float32"))))
    saved = save_json(call)
    assert load_json(saved).struct_info == call.struct_info
    broken = re.sub(r'(\["relax\.Call",\{"struct_info_":)\{"node":(\d+)\}', r"\1\2", saved)
    assert broken != saved
    with pytest.raises(JSONError, match="the field struct_info_ holds a node, found"):
        load_json(broken)
