"""What graphs may be written as, and what each spelling means: the expected text is in the dialect that is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax, te, tir
from oneir.ir import IRModule, assert_structural_equal
from oneir.ir.expr import SizeVar
from oneir.ir.node import Node
from oneir.ir.visitor import post_order_visit
from oneir.relax.expr import DataflowVar
from oneir.runtime.error import OneIRError, TypeMismatch
from oneir.script import from_source
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

SIGNATURE = """
@R.function(pure=False)
def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((8,), "float32"), c: R.Tensor((), "bool"), t: R.Tuple(R.Object,
         R.Tensor((2,), "int8")), s: R.Shape(ndim=2), n: R.Prim("int64"), o: R.Object):
"""


def lines_of(body: str) -> list[str]:
    """The lines that a body prints as, without its `return`."""
    text = SIGNATURE + "".join(f"    {line}\n" for line in body.strip("\n").splitlines()) + "    return o\n"
    printed = from_source(text).script().splitlines()
    start = next(i for i, line in enumerate(printed) if line.startswith("def "))
    return [line[4:] for line in printed[start + 1 : -1]]


# -- values and names --


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("a = R.add(R.exp(x), y)", ["gv: {x} = R.exp(x)", "a: {x} = R.add(gv, y)"]),
        ("a = x + y", ["a: {x} = R.add(x, y)"]),
        ("x += y", ["x_1: {x} = R.add(x, y)"]),
        ("a = t[1]", ['a: R.Tensor((2,), dtype="int8") = t[1]']),
        ("a = t[-1]", ['a: R.Tensor((2,), dtype="int8") = t[1]']),
        ("a, b = t", ["a: R.Object = t[0]", 'b: R.Tensor((2,), dtype="int8") = t[1]']),
        ("a, b = x, y", ["a: {x} = x", "b: {y} = y"]),
        ("(a, b), d = (t, y)", ["a: R.Object = t[0]", 'b: R.Tensor((2,), dtype="int8") = t[1]', "d: {y} = y"]),
        ("a = (x, y)", ["a: R.Tuple({x}, {y}) = (x, y)"]),
        ("a = R.tuple(x)", ["a: R.Tuple({x}) = (x,)"]),
        ("a = 1", ['a: R.Tensor((), dtype="int32") = R.const(1, "int32")']),
        ("a = 1.5", ['a: R.Tensor((), dtype="float32") = R.const(1.5, "float32")']),
        ("a = R.shape([2, 3])", ["a: R.Shape([2, 3]) = R.shape([2, 3])"]),
        ("a = x; b = a", ["a: {x} = x", "b: {x} = a"]),
        ("a = [x, y]; b = a[1]", ["b: {y} = y"]),
        ("a: R.Object = x", ["a: R.Object = x"]),
        ("a: R.Prim('int64') = T.int64(3) + 4", ['a: R.Prim("int64") = R.prim_value(7)']),
        ("R.print(x)", ['R.print(x, format=R.str(""))']),
        ("_ = R.print(x)", ['R.print(x, format=R.str(""))']),
        ("a = R.emit(R.exp(x))", ["gv: {x} = R.exp(x)", "a: {x} = gv"]),
        ("R.emit(R.exp(x))", ["gv: {x} = R.exp(x)"]),
        ("R.emit(R.exp(x), R.Object)", ["gv: R.Object = R.exp(x)"]),
        ("a = R.match_cast(o, R.Tensor)", ["a: R.Tensor = R.match_cast(o, R.Tensor)"]),
        ("a = R.emit_match_cast(o, R.Tensor)", ["gv: R.Tensor = R.match_cast(o, R.Tensor)", "a: R.Tensor = gv"]),
        ("a = R.const(2, 'int8')", ['a: R.Tensor((), dtype="int8") = R.const(2, "int8")']),
        ("a = R.call_packed('f', x, sinfo_args=R.Object)", ['a: R.Object = R.call_packed("f", x, {o})']),
        ("a = R.call_packed('f', x, sinfo_args=[R.Object])", ['a: R.Object = R.call_packed("f", x, {o})']),
        ("a = R.call_packed('f', x, sinfo_args=(R.Object(),))", ['a: R.Object = R.call_packed("f", x, {o})']),
        ("pass", []),
        ("'a docstring'", []),
        ("if 1 < 2:\n    a = x\nelse:\n    a = y", ["a: {x} = x"]),
    ],
)
def test_statements(written: str, printed: list[str]):
    parts = {
        "x": 'R.Tensor((4, 8), dtype="float32")',
        "y": 'R.Tensor((8,), dtype="float32")',
        "o": "sinfo_args=(R.Object,)",
    }
    assert lines_of(written) == [line.format(**parts) for line in printed]


@pytest.mark.parametrize(
    "call",
    [
        "R.call_dps_packed('f', (x, y), out_sinfo=R.Tensor((4,), 'float32'))",
        "R.call_dps_packed('f', [x, y], R.Tensor((4,), dtype='float32'))",
        "R.call_dps_packed('f', (x, y), out_ty=R.Tensor((4,), 'float32'))",
        "R.call_dps_packed('f', (x, y), (4,), dtype='float32')",
        "R.call_tir('f', (x, y), out_sinfo=R.Tensor((4,), 'float32'))",
        "R.call_tir('f', (x, y), (4,), dtype='float32')",
        "R.call_tir(R.ExternFunc('f'), R.tuple(x, y), [R.Tensor((4,), 'float32')])",
    ],
)
def test_published_spellings_of_a_call_with_outputs(call: str):
    text = 'a = R.call_dps_packed("f", (x, y), out_sinfo=R.Tensor((4,), dtype="float32"))'
    assert lines_of(f"a = {call}") == [text]


def test_a_single_argument_and_several_outputs():
    several = "[R.Tensor((4,), 'float32'), R.Tensor((2,), 'int8')]"
    expected = (
        'a = R.call_dps_packed("f", (x,), out_sinfo=[R.Tensor((4,), dtype="float32"), R.Tensor((2,), dtype="int8")])'
    )
    assert lines_of(f"a = R.call_dps_packed('f', x, {several})") == [expected]
    assert lines_of("a = R.call_tir('f', x, [(4,), (2,)], dtype=['float32', 'int8'])") == [expected]
    assert lines_of("a = R.call_dps_packed('f', t, R.Object)") == ['a = R.call_dps_packed("f", t, out_sinfo=R.Object)']


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("R.Tensor", "R.Tensor"),
        ("R.Tensor()", "R.Tensor"),
        ('R.Tensor("float32")', 'R.Tensor(dtype="float32")'),
        ('R.Tensor("float32", ndim=2)', 'R.Tensor(dtype="float32", ndim=2)'),
        ('R.Tensor(None, "float32", ndim=2)', 'R.Tensor(dtype="float32", ndim=2)'),
        ("R.Tensor(ndim=3)", "R.Tensor(ndim=3)"),
        ("R.Tensor([2, 3], T.float32)", 'R.Tensor((2, 3), dtype="float32")'),
        ('R.Tensor((2,), dtype="int8", ndim=1)', 'R.Tensor((2,), dtype="int8")'),
        ("R.Tensor(())", "R.Tensor(())"),
        ("R.Tensor(R.shape([2]))", "R.Tensor((2,))"),
        ('Tensor((2, 3), "float32")', 'R.Tensor((2, 3), dtype="float32")'),
        ('Tensor[(2, 3), "float32"]', 'R.Tensor((2, 3), dtype="float32")'),
        ("Object", "R.Object"),
        ("R.Shape", "R.Shape(ndim=-1)"),
        ("R.Shape([2])", "R.Shape([2])"),
        ("R.Prim('int32')", 'R.Prim("int32")'),
        ("R.Tuple(R.Tensor, Object)", "R.Tuple(R.Tensor, R.Object)"),
        ("R.Tuple([R.Tensor])", "R.Tuple(R.Tensor)"),
        ("R.Callable", "R.Callable"),
        ("R.Callable(ret=R.Tensor)", "R.Callable(ret=R.Tensor)"),
        ("R.Callable(R.Tensor, R.Object)", "R.Callable((R.Tensor,), R.Object, True)"),
        (
            "R.Callable((R.Tensor, R.Shape), R.Object, purity=False)",
            "R.Callable((R.Tensor, R.Shape(ndim=-1)), R.Object, False)",
        ),
        ('"R.Tensor((2,))"', "R.Tensor((2,))"),
        ("None", "R.Tuple"),
    ],
)
def test_struct_info_of_parameters(written: str, printed: str):
    func = from_source(f"@R.function\ndef main(x: {written}):\n    return x")
    assert str(func.params[0].struct_info) == printed
    assert f"def main(x: {printed}) -> {printed}:" in func.script()


def test_struct_info_outside_of_scripts():
    n = tir.Var("n", "int64")
    assert relax.Var("x", R.Tensor((n, 4), "float32")).struct_info == relax.TensorStructInfo((n, 4), "float32")
    assert relax.Var("x", R.Tensor).struct_info == relax.TensorStructInfo(None, "")
    assert R.Shape([n]) == relax.ShapeStructInfo([n]) and R.Object() == relax.ObjectStructInfo()
    with pytest.raises(OneIRError, match="texts can only be written in a script"):
        relax.Var("x", R.Tensor(("n", 4)))


# -- symbolic variables --


def test_texts_declare_symbolic_variables():
    func = from_source(
        """
@R.function
def main(x: R.Tensor(("m * n", "m"), "float32"), y: R.Tensor(("n",))) -> R.Tensor(("m * n", "m"), "float32"):
    m, n = T.int64(), T.int64()
    k = m * n
    z: R.Tensor((k, m), "float32") = R.exp(x)
    w = R.shape([k + 1])
    return z
"""
    )
    rows, m = func.params[0].struct_info.extents
    (n,) = func.params[1].struct_info.extents
    assert rows.a is m and rows.b is n and m.name == "m" and m.dtype == "int64"
    assert func.ret_struct_info == func.params[0].struct_info
    assert func.body.blocks[0].bindings[1].value.values[0].a.a is m


def test_the_body_says_what_kind_a_symbolic_variable_is():
    func = from_source(
        """
@R.function
def main(x: R.Tensor(("m", "n"))):
    m = T.int64()
    n = T.int64(is_size_var=True)
    return x
"""
    )
    m, n = func.params[0].struct_info.extents
    assert type(m) is tir.Var and isinstance(n, SizeVar)
    assert "    m = T.int64()\n    n = T.int64(is_size_var=True)\n" in func.script()


def test_variables_of_python_are_extents():
    rows, k = T.Var("rows", "int64"), 3

    @R.function
    def main(x: R.Tensor((rows, k), "float32")) -> R.Tensor((rows, k * 2 - 3), "float32"):
        return x

    assert main.params[0].struct_info.extents[0] is rows
    assert main.script().splitlines()[4].startswith('def main(x: R.Tensor(("rows", 3), dtype="float32")) -> ')


def test_a_shape_that_is_a_parameter():
    text = "@R.function\ndef main(s: R.Shape(ndim=2), x: R.Tensor(s, 'int8')):\n    return x"
    func = from_source(text)
    assert func.params[1].struct_info.shape is func.params[0]
    assert_structural_equal(from_source(func.script()), func)


# -- functions and modules --


def test_functions_call_each_other_in_any_order():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            cls = Module
            a = cls.later(x)
            b = later(a)
            return Module.later(b)

        @R.function
        def later(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
            return R.exp(y)

    main = Module["main"]
    (n,) = main.params[0].struct_info.extents
    for binding in main.body.blocks[0].bindings:
        assert binding.value.op is Module.get_global_var("later")
        assert binding.var.struct_info == relax.TensorStructInfo([n], "float32")
    assert Module.script().count("cls.later(") == 3


def test_the_result_of_an_earlier_function_is_known_without_annotation():
    module = from_source(
        """
@I.ir_module
class M:
    @R.function
    def first(x: R.Tensor((4,), "float32")):
        return R.exp(x)

    @R.function
    def second(x: R.Tensor((4,), "float32")):
        a = M.first(x)
        b = M.third(x)
        return (a, b)

    @R.function
    def third(x: R.Tensor((4,), "float32")):
        return x
"""
    )
    assert all(var.struct_info == func.struct_info for var, func in module.functions.items())
    assert str(module["second"].ret_struct_info) == 'R.Tuple(R.Tensor((4,), dtype="float32"), R.Object)'


def test_the_body_may_know_more_of_the_result_than_the_annotation():
    func = from_source('@R.function\ndef f(x: R.Tensor((4,), "int8")) -> R.Tensor(ndim=1):\n    return x')
    assert func.ret_struct_info == relax.TensorStructInfo((4,), "int8")
    func = from_source('@R.function\ndef f(x: R.Tensor(ndim=1)) -> R.Tensor((4,), "int8"):\n    return x')
    assert func.ret_struct_info == relax.TensorStructInfo((4,), "int8")


def test_options_of_the_decorator():
    @R.function(private=True, pure=False)
    def hidden(x: R.Object):
        return x

    @R.function
    def shown(x: R.Object):
        R.func_attr({"Codegen": "c", "k": [1, 2]})
        return x

    assert not hidden.is_pure and "global_symbol" not in hidden.attrs
    assert shown.is_pure and dict(shown.attrs)["global_symbol"] == "shown" and shown.attrs["Codegen"] == "c"


def test_notes_state_the_parts_of_a_function():
    func = from_source(
        """
@R.function
def main(x: R.Object):
    R.func_name("other")
    R.func_attr({"a": 1})
    R.func_attr({"b": 2})
    R.func_ret_struct_info(R.Object)
    R.func_ret_value(x)
"""
    )
    assert dict(func.attrs) == {"a": 1, "b": 2, "global_symbol": "other"}
    assert func.body.body is func.params[0]


def test_loops_made_from_tensor_expressions_join_the_module():
    def te_double(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda *i: a(*i) * 2.0, name="out")

    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def double(a: T.handle):
            T.evaluate(0)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.emit_te(te_double, x, primfunc_name_hint="double")
                b = R.emit_te(te_double, a, primfunc_name_hint="double")
                c = R.emit_te(te_double, b, primfunc_name_hint="twice")
                R.output(c)
            return c

    names = [call.args[0].name_hint for call in calls(Module["main"])]
    assert names == ["double1", "double1", "double1"]
    assert {var.name_hint for var in Module.functions} == {"double", "double1", "main"}


def test_macros_stand_for_their_statements():
    @R.macro
    def doubled(a, times=1):
        b = R.add(a, a)
        return R.add(b, b)

    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    @R.macro(hygienic=False)
    def inner(a):
        return R.add(a, x)

    y = doubled(x)
    with R.dataflow():
        z = inner(doubled(y))
        R.output(z)
    return z
""",
        {"doubled": doubled},
    )
    assert [b.value.op.name for block in func.body.blocks for b in block.bindings] == ["relax.add"] * 5


def test_python_of_the_script_runs_while_it_is_read():
    weights = [np.full((4,), i, "float32") for i in range(3)]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        constants = [R.const(w) for w in weights]
        y = R.add(x, constants[len(weights) - 1])
        return y

    (constant,) = [a for a in calls(main)[0].args if isinstance(a, relax.Constant)]
    assert constant.data.numpy().tolist() == [2.0] * 4


def test_a_public_module_of_earlier_releases():
    text = "@tvm.script.ir_module\nclass MyModule:\n    @R.function\n    def main(x: Object):\n        return x\n"
    assert isinstance(from_source(text), IRModule)


def test_the_vocabulary_goes_by_several_names():
    from oneir.script.parser import ir, relax, tir

    assert (ir, relax, tir) == (I, R, T)
    assert oneir.script.relax is R


def test_every_operator_is_a_member():
    from oneir.relax import op

    assert R.add is op.add and R.nn is op.nn and R.builtin.alloc_tensor is op.builtin.alloc_tensor
    assert {"add", "nn", "memory", "Tensor", "dataflow"} <= set(dir(R))


# -- blocks and branches --


def test_outputs_of_a_dataflow_block_are_seen_outside():
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        a = R.exp(a)
        b = R.add(a, x)
        R.output(a, b)
    c = R.add(a, b)
    return c
"""
    )
    first, second = func.body.blocks
    kinds = [type(b.var) for b in first.bindings]
    assert kinds == [DataflowVar, relax.Var, relax.Var]
    assert second.bindings[0].value.args[0] is first.bindings[1].var


def test_both_spellings_of_a_condition():
    if_else = "if c:\n    z = R.exp(x)\nelse:\n    z = x"
    frames = "with R.If(c):\n    with R.Then():\n        z = R.exp(x)\n    with R.Else():\n        z = x"
    assert lines_of(if_else) == lines_of(frames)
    assert lines_of("if R.prim_value(True):\n    z = x\nelse:\n    z = x")[0] == "if R.prim_value(T.bool(True)):"


def test_what_the_branches_have_in_common_is_known_of_a_condition():
    lines = lines_of("if c:\n    z = x\nelse:\n    z = y")
    assert lines == [
        "if c:",
        '    z: R.Tensor(dtype="float32") = x',
        "else:",
        '    z: R.Tensor(dtype="float32") = y',
    ]


def test_local_functions_see_what_is_around_them():
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    y = R.exp(x)

    @R.function
    def inner(z: R.Tensor((4,), "float32")):
        with R.dataflow():
            w = R.add(y, z)
            R.output(w)
        return w

    return inner(x)
"""
    )
    binding, local = func.body.blocks[0].bindings[:2]
    assert local.value.body.blocks[0].bindings[0].value.args[0] is binding.var
    assert "global_symbol" not in local.value.attrs
    assert local.var.struct_info == local.value.struct_info


# -- places --


def test_every_node_knows_its_place():
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
    y: R.Tensor((4,), "float32") = R.add(R.exp(x), R.const(1.0))
    with R.dataflow():
        z = R.call_dps_packed("f", (x, y), R.Tensor((4,), "float32"))
        R.output(z)
    if c:
        w = R.exp(z)
    else:
        w = z
    s = R.shape([4, 2])
    u = R.match_cast(w, R.Tensor((4,), "float32"))
    return (u, s)
"""
    )
    lines = {"relax.exp": {4, 9}, "relax.add": {4}, "relax.call_dps_packed": {6}}
    without: list[Node] = []

    def look(node: Node) -> None:
        elsewhere = isinstance(node, (oneir.ir.Op, relax.SeqExpr, relax.ExternFunc))
        if isinstance(node, (relax.Expr, relax.Binding)) and not elsewhere and getattr(node, "span", None) is None:
            without.append(node)
        if isinstance(node, relax.Call):
            assert node.span.line in lines[node.op.name]

    post_order_visit(func, look)
    assert not without
    assert [block.span.line for block in func.body.blocks] == [4, 6, 8]


def test_an_ill_formed_function_can_be_read_when_asked():
    text = (
        SIGNATURE + "    with R.dataflow():\n        a = R.exp(x)\n        b = a\n        R.output(b)\n    return a\n"
    )
    func = from_source(text, check_well_formed=False)
    assert isinstance(func.body.body, DataflowVar)
    assert from_source(func.script(), check_well_formed=False).script() == func.script()
    with pytest.raises(OneIRError, match="make it an output"):
        from_source(text)


def calls(node: Node) -> list[relax.Call]:
    found: list[relax.Call] = []
    post_order_visit(node, lambda n: found.append(n) if isinstance(n, relax.Call) else None)
    return found


def test_frames_and_functions_of_the_vocabulary_need_a_function_around_them():
    name: Any = 3
    with pytest.raises(OneIRError, match=r"R\.dataflow can only be used in a function"), R.dataflow():
        pass
    with pytest.raises(TypeMismatch, match=r"R\.call_packed expects the name of a function, found 3"):
        R.call_packed(name)
    with pytest.raises(AttributeError, match="R has no member `permute_dimz`; did you mean `permute_dims`"):
        R.permute_dimz


def test_a_symbolic_variable_of_the_signature_may_be_declared_with_its_name() -> None:
    @R.function
    def func(x: R.Tensor(("n", "m"), "float32")) -> R.Shape(ndim=1):
        n = T.Var("n", "int64")
        return R.shape([n + 1])

    (extent,) = func.ret_struct_info.values
    assert extent.a is func.params[0].struct_info.extents[0]


def test_functions_of_loops_give_nothing_and_are_called_as_statements() -> None:
    @I.ir_module
    class Module:
        @T.prim_func
        def fill(x: T.Buffer((4,), "float32")):
            for i in range(4):
                x[i] = T.float32(1)

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            cls.fill(x)
            return x

    (binding,) = Module["main"].body.blocks[0].bindings
    assert binding.var.struct_info == relax.TupleStructInfo([])
