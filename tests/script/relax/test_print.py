"""Each construct of graphs prints as it is written here, and the text reads back as the same program.

The texts are written by hand, in the dialect of the reference documents; both ways go through JSON as well.
"""

from __future__ import annotations

import numpy as np
import pytest

from oneir import relax, tir
from oneir.ir import IRModule, assert_structural_equal, load_json, save_json
from oneir.ir.expr import GlobalVar
from oneir.relax.expr import Function
from oneir.runtime.tensor import tensor
from oneir.script import from_source
from oneir.script import relax as R

R_HEADER = "# from tvm.script import relax as R\n\n"
T_HEADER = "# from tvm.script import tir as T\n" + R_HEADER
M_HEADER = "# from tvm.script import ir as I\n" + R_HEADER
MT_HEADER = "# from tvm.script import ir as I\n" + T_HEADER

TEXTS = {
    "bindings outside and inside of a dataflow block": R_HEADER
    + """\
@R.function
def main(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
    a: R.Tensor((4,), dtype="float32") = R.exp(x)
    with R.dataflow():
        lv: R.Tensor((4,), dtype="float32") = R.add(a, x)
        gv: R.Tensor((4,), dtype="float32") = R.nn.relu(lv)
        gv1: R.Tensor((4,), dtype="float32") = lv
        R.output(gv, gv1)
    b: R.Tensor((4,), dtype="float32") = R.add(gv, gv1)
    return b""",
    "options and attributes": R_HEADER
    + """\
@R.function(pure=False, private=True)
def main(x: R.Object) -> R.Object:
    R.func_attr({"a": 1, "b": "text", "c": [1, 2], "d": True, "e": {"k": 1.5}, "global_symbol_of": None})
    return x""",
    "struct info of every kind": T_HEADER
    + """\
@R.function
def main(a: R.Tensor, b: R.Tensor(dtype="float32"), c: R.Tensor(ndim=2), d: R.Tensor(dtype="int8", ndim=0), \
e: R.Tensor((), dtype="bool"), f: R.Tensor((1, "n")), g: R.Shape(["n", 4]), h: R.Shape(ndim=-1), i: R.Shape([]), \
j: R.Prim("float16"), k: R.Prim(value="m"), l: R.Prim(value=4), m: R.Tuple, o: R.Tuple(R.Object, R.Tuple(R.Object)), \
p: R.Callable, q: R.Callable(ret=R.Tensor, purity=True), r: R.Callable((R.Tensor(("k",)),), R.Tensor(("k",)), False)) \
-> R.Tensor:
    n = T.int64()
    m_1 = T.int64()
    k_1 = T.int64()
    return a""".replace('value="m")', 'value="m_1")').replace('(("k",))', '(("k_1",))'),
    "symbolic shapes": T_HEADER
    + """\
@R.function
def main(x: R.Tensor(("m", "n * 2"), dtype="float32"), y: R.Tensor(("n", "T.max(m, 4)"))) -> R.Tensor(("m", "n * 2"), \
dtype="float32"):
    m = T.int64()
    n = T.int64()
    R.func_attr({"tir_var_upper_bound": {"m": 16}})
    a: R.Tensor((m, n * 2), dtype="float32") = R.exp(x)
    b: R.Shape([m, n * 2 + 1, 7, (m + n) // 4]) = R.shape([m, n * 2 + 1, 7, (m + n) // 4])
    c: R.Prim(value=n * m) = R.prim_value(n * m)
    return a""",
    "casts declare symbolic variables": T_HEADER
    + """\
@R.function
def main(x: R.Tensor(dtype="float32", ndim=2), s: R.Shape(ndim=2)) -> R.Tuple(R.Tensor(dtype="float32", ndim=2), \
R.Tensor(dtype="float32", ndim=2)):
    m = T.int64()
    n = T.int64()
    k = T.int32()
    a: R.Tensor((m, n), dtype="float32") = R.match_cast(x, R.Tensor((m, n), dtype="float32"))
    with R.dataflow():
        lv: R.Shape([k, 4]) = R.match_cast(s, R.Shape([k, 4]))
        b: R.Tensor((m, n), dtype="float32") = R.exp(a)
        c: R.Tensor((n, n), dtype="float32") = R.match_cast(b, R.Tensor((n, n), dtype="float32"))
        R.output(b, c)
    return (b, c)""",
    "plain values": T_HEADER
    + """\
@R.function
def main() -> R.Tuple(R.Prim(value=3), R.Prim(value=T.float64(0.5)), R.Prim(value=T.bool(True)), R.Object, R.Object, \
R.Tuple, R.Tensor((), dtype="float32"), R.Tensor((), dtype="int32"), R.Tensor((), dtype="bool"), \
R.Tensor((), dtype="float16")):
    a: R.Prim(value=3) = R.prim_value(3)
    b: R.Prim(value=T.float64(0.5)) = R.prim_value(T.float64(0.5))
    c: R.Prim(value=T.bool(True)) = R.prim_value(T.bool(True))
    d: R.Object = R.str("te\\"xt")
    e: R.Object = R.dtype("float16")
    f: R.Tuple = R.tuple()
    g: R.Tensor((), dtype="float32") = R.const(0.10000000149011612, "float32")
    h: R.Tensor((), dtype="int32") = R.const(-3, "int32")
    i: R.Tensor((), dtype="bool") = R.const(True, "bool")
    j: R.Tensor((), dtype="float16") = R.const(float("inf"), "float16")
    return (a, b, c, d, e, f, g, h, i, j)""",
    "tuples and their fields": R_HEADER
    + """\
@R.function
def main(x: R.Tensor((2,), dtype="int8"), t: R.Tuple(R.Object, R.Tensor((3,), dtype="int8"))) -> R.Tensor((3,), \
dtype="int8"):
    a: R.Tuple(R.Tensor((2,), dtype="int8"), R.Tuple(R.Tensor((2,), dtype="int8")), R.Tuple) = (x, (x,), R.tuple())
    b: R.Tuple(R.Tensor((2,), dtype="int8")) = a[1]
    c: R.Tensor((3,), dtype="int8") = t[1]
    return c""",
    "calls for their effect": R_HEADER
    + """\
@R.function(pure=False)
def main(x: R.Tensor((4,), dtype="float32")) -> R.Tuple:
    R.print(x, x, format=R.str("{} {}"))
    R.print(format=R.str(""))
    R.assert_op(R.const(True, "bool"), format=R.str("no"))
    R.assert_op(R.const(True, "bool"), x, format=R.str("no {}"))
    R.assert_op(R.const(True, "bool"), [x, x], format=R.str("no {} {}"))
    a: R.Tuple = R.print(x, format=R.str(""))
    return a""",
    "calls of the runtime": R_HEADER
    + """\
@R.function(pure=False)
def main(x: R.Tensor((4,), dtype="float32")) -> R.Object:
    a: R.Tuple(R.Tensor((4,), dtype="float32"), R.Object) = R.call_packed("f", x, R.prim_value(1), \
sinfo_args=(R.Tensor((4,), dtype="float32"), R.Object))
    b: R.Object = R.call_packed("f", axis=1, sinfo_args=(R.Object,))
    c: R.Tensor((4,), dtype="float32") = R.call_pure_packed("g", x, sinfo_args=(R.Tensor((4,), dtype="float32"),))
    d = R.call_dps_packed("h", (x, c), out_sinfo=R.Tensor((4,), dtype="float32"))
    e: R.Object = R.call_builtin_with_ctx("vm.builtin.f", (x, R.shape([2])), sinfo_args=(R.Object,))
    f: R.Tensor((4,), dtype="float32") = R.call_py_func(R.str("p"), (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
    g: R.Callable = R.ExternFunc("k")
    return e""",
    "memory": R_HEADER
    + """\
@R.function(pure=False)
def main() -> R.Tensor((4, 4), dtype="float32"):
    s: R.Object = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
    t: R.Tensor((4, 4), dtype="float32") = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4, 4]), \
R.dtype("float32"), R.prim_value(0))
    u: R.Tensor((2,), dtype="int8") = R.builtin.alloc_tensor(R.shape([2]), R.dtype("int8"), R.prim_value(0), \
R.str("global"))
    R.memory.kill_tensor(u)
    v: R.Object = R.vm.alloc_storage(R.shape([4]), R.prim_value(0), R.dtype("uint8"), R.str("global"))
    R.vm.kill_object(v)
    return t""",
    "conditions": R_HEADER
    + """\
@R.function
def main(c: R.Tensor((), dtype="bool"), x: R.Tensor((1,), dtype="float32")) -> R.Tensor((1,), dtype="float32"):
    if c:
        w: R.Tensor((1,), dtype="float32") = R.add(x, x)
        gv: R.Tensor((1,), dtype="float32") = R.exp(w)
        y: R.Tensor((1,), dtype="float32") = gv
    else:
        if c:
            inner: R.Tensor((1,), dtype="float32") = x
        else:
            with R.dataflow():
                lv: R.Tensor((1,), dtype="float32") = R.exp(x)
                gv: R.Tensor((1,), dtype="float32") = R.exp(lv)
                R.output(gv)
            inner: R.Tensor((1,), dtype="float32") = gv
        y: R.Tensor((1,), dtype="float32") = inner
    return y""",
    "an annotation that says less": R_HEADER
    + """\
@R.function
def main(c: R.Tensor((), dtype="bool"), x: R.Tensor((1,), dtype="float32")) -> R.Object:
    a: R.Tensor(ndim=1) = R.exp(x)
    b: R.Object = a
    d: R.Tensor(dtype="float32", ndim=1) = R.call_dps_packed("f", (x,), out_sinfo=R.Tensor((1,), dtype="float32"))
    if c:
        y: R.Object = x
    else:
        y: R.Object = a
    return y""",
    "local functions": T_HEADER
    + """\
@R.function
def main(x: R.Tensor((2, 3), dtype="float32")) -> R.Tensor((2, 3), dtype="float32"):
    n = T.int64()
    # from tvm.script import relax as R

    @R.function
    def inner(y: R.Tensor((2, 3), dtype="float32")) -> R.Tensor((2, 3), dtype="float32"):
        R.func_attr({"Composite": "c"})
        z: R.Tensor((2, 3), dtype="float32") = R.add(x, y)
        return z

    # from tvm.script import tir as T
    # from tvm.script import relax as R

    @R.function(pure=False)
    def again(c: R.Tensor((), dtype="bool"), s: R.Tensor((n,), dtype="float32")) -> R.Tensor((n,), dtype="float32"):
        if c:
            gv: R.Tensor((n,), dtype="float32") = again(c, s)
            r: R.Tensor((n,), dtype="float32") = gv
        else:
            r: R.Tensor((n,), dtype="float32") = s
        return r

    g: R.Callable((R.Tensor((2, 3), dtype="float32"),), R.Tensor((2, 3), dtype="float32"), True) = inner
    out: R.Tensor((2, 3), dtype="float32") = g(x)
    return out""",
    "names are made unique": R_HEADER
    + """\
@R.function
def main(x: R.Object) -> R.Object:
    y: R.Object = x
    y_1: R.Object = y
    y_2: R.Object = y_1
    return y_2""",
    "functions of a module": MT_HEADER
    + """\
@I.ir_module
class Module:
    I.module_attrs({"version": 1})
    @T.prim_func
    def first(a: T.Buffer((T.int64(4),), "float32"), b: T.Buffer((T.int64(4),), "float32")):
        T.evaluate(0)

    @T.prim_func(private=True)
    def several(a: T.Buffer((T.int64(4),), "float32"), b: T.Buffer((T.int64(4),), "float32"), \
c: T.Buffer((T.int64(4),), "float32"), n: T.int64):
        T.evaluate(0)

    ext = R.ExternFunc("env.ext")
    @R.function(private=True)
    def helper(x: R.Object, n: R.Prim("int64")) -> R.Object:
        cls = Module
        f: R.Callable((R.Tensor((4,), dtype="float32"),), R.Object, True) = cls.main
        return x

    @R.function(pure=False)
    def opaque(x: R.Object) -> R.Object:
        cls = Module
        a: R.Object = cls.ext(x)
        return a

    @R.function
    def main(x: R.Tensor((4,), dtype="float32")) -> R.Object:
        cls = Module
        a: R.Object = cls.helper(x, R.prim_value(1))
        b = R.call_tir(cls.first, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
        c = R.call_tir(cls.several, (b,), out_sinfo=[R.Tensor((4,), dtype="float32"), R.Tensor((4,), dtype="float32")], \
tir_vars=R.shape([4]))
        d: R.Tensor((4,), dtype="float32") = R.call_tir_with_grad(cls.first, (x,), \
out_sinfo=R.Tensor((4,), dtype="float32"), te_grad_name="grad", te_grad_kwargs={"k": 1})
        e: R.Tensor((4,), dtype="float32") = R.call_tir_inplace(cls.first, (b, d), \
out_sinfo=R.Tensor((4,), dtype="float32"), inplace_indices=[1])
        f: R.Object = R.make_closure(cls.helper, (x,))
        g: R.Object = R.invoke_pure_closure(f, (x,), sinfo_args=(R.Object,))
        return a""",
    "devices": M_HEADER
    + """\
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice({"keys": ["cpu"], "kind": "llvm", "tag": ""}, 0, "global"), \
I.vdevice({"keys": ["cpu"], "kind": "llvm", "tag": ""}, 1, "global")]})
    @R.function
    def main(x: R.Tensor((4,), dtype="float32", vdevice="llvm:1")) -> R.Tensor((4,), dtype="float32", vdevice="llvm:0"):
        y: R.Tensor((4,), dtype="float32", vdevice="llvm:0") = R.to_vdevice(x, dst_vdevice="llvm:0")
        return y""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_reads_and_prints_as_it_stands(name: str):
    program = from_source(TEXTS[name])
    assert program.script() == TEXTS[name]
    again = from_source(program.script())
    assert_structural_equal(again, program)
    saved = load_json(save_json(program))
    assert_structural_equal(saved, program)
    assert saved.script() == TEXTS[name]


def one(**options) -> str:
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Object)):
    a = R.exp(x)
    b: R.Object = R.exp(x)
    c = t[0]
    d = (a, c)
    e = a
    f = R.match_cast(x, R.Tensor((4,), "float32"))
    return R.add(a, x)
"""
    )
    return func.script(**options)


def test_annotations_that_can_be_inferred_may_be_left_out():
    text = one(show_all_struct_info=False)
    assert text.splitlines()[4:-2] == [
        "    a = R.exp(x)",
        "    b: R.Object = R.exp(x)",
        "    c = t[0]",
        "    d = (a, c)",
        "    e = a",
        '    f = R.match_cast(x, R.Tensor((4,), dtype="float32"))',
    ]
    assert from_source(text).script() == one()


def test_prefixes_and_the_alias_are_options():
    text = one(relax_prefix="Rx")
    assert text.startswith("# from tvm.script import relax as Rx\n\n@Rx.function\ndef main(x: Rx.Tensor((4,)")
    module = from_source(TEXTS["functions of a module"]).script(module_alias="mod")
    assert "        mod = Module\n" in module and "mod.helper(x, R.prim_value(1))" in module
    direct = from_source(TEXTS["functions of a module"]).script(module_alias="")
    assert "cls" not in direct and "Module.helper(x, R.prim_value(1))" in direct
    assert_structural_equal(from_source(direct), from_source(TEXTS["functions of a module"]))


def test_bindings_and_values_are_underlined_and_commented():
    func = from_source(TEXTS["bindings outside and inside of a dataflow block"])
    binding = func.body.blocks[0].bindings[0]
    text = func.script(obj_to_underline=[binding.value], obj_to_annotate={func.body.blocks[1].bindings[1]: "here"})
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "R.exp(x)" in line)
    assert lines[at + 1] == " " * lines[at].index("R.exp") + "^" * len("R.exp(x)")
    assert '        gv: R.Tensor((4,), dtype="float32") = R.nn.relu(lv)  # here' in lines


def test_nodes_print_by_themselves():
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 4), "float32"))
    call = relax.op.exp(x)
    binding = relax.VarBinding(relax.Var("y", x.struct_info), call)
    assert str(R.Tensor((1, 784), "float32")) == 'R.Tensor((1, 784), dtype="float32")'
    assert str(x.struct_info) == 'R.Tensor((n, 4), dtype="float32")'
    assert str(x) == "x" and str(call) == "R.exp(x)" and str(relax.Tuple([x])) == "(x,)"
    assert str(binding).splitlines() == [
        "n = T.int64()",
        'x: R.Tensor((n, 4), dtype="float32")',
        'y: R.Tensor((n, 4), dtype="float32") = R.exp(x)',
    ]
    assert str(GlobalVar("f")) == 'I.GlobalVar("f")' and str(relax.ShapeExpr([n, 4])) == "R.shape([n, 4])"
    assert str(relax.Call(GlobalVar("f"), [x])) == "f(x)"
    assert str(relax.ty.TensorType(2, "int8")) == 'R.Tensor(ndim=2, dtype="int8")'
    assert str(relax.ExternFunc("f")) == 'R.ExternFunc("f")'


def test_a_function_that_is_no_member_names_functions_plainly():
    module = from_source(TEXTS["functions of a module"])
    assert "R.call_tir(first, (x,), out_sinfo=" in module["main"].script()
    assert "cls" not in module["main"].script()


def test_a_constant_that_stands_in_two_places_is_one():
    weight = relax.const(np.ones((2, 2), "float32"))
    x = relax.Var("x", R.Tensor((2, 2), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        first = builder.emit(relax.op.add(x, weight))
        builder.emit_func_output(builder.emit(relax.op.add(first, weight)))
    text = builder.finalize().script()
    assert text.count('metadata["relax.expr.Constant"][0]') == 2 and 'Constant"][1]' not in text


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_scalars_whose_text_would_not_say_their_value_are_metadata(dtype: str):
    constant = relax.const(1, dtype)
    func = Function([], relax.SeqExpr([], constant), constant.struct_info, attrs={"global_symbol": "main"})
    text = func.script(show_meta=True)
    assert 'return metadata["relax.expr.Constant"][0]' in text
    assert_structural_equal(from_source(text), func)


def test_a_one_field_tuple_as_output_is_not_taken_for_the_field():
    info = relax.TupleStructInfo([R.Tensor((2,), "int8")])
    x = relax.Var("x", R.Tensor((2,), "int8"))
    call = relax.op.call_dps_packed("f", x, info)
    assert str(call) == 'R.call_dps_packed("f", (x,), out_sinfo=R.Tuple(R.Tensor((2,), dtype="int8")))'


def test_arguments_that_a_call_holds_in_another_order_are_named():
    func = from_source(
        """
@R.function
def main(q: R.Tensor((1, 7, 4, 8)), s: R.Tensor((3,), "int32"), k: R.Tensor((3,), "int32"), n: R.Tensor((), "int32")):
    return R.nn.attention_var_len(q, q, q, s, n, k, n)
"""
    )
    assert "R.nn.attention_var_len(queries=q, keys=q, values=q, seqstart_q=s, seqstart_k=k, max_seqlen_q=n, " in str(
        func
    )
    assert_structural_equal(from_source(func.script()), func)


def test_struct_info_is_there_after_json():
    for text in TEXTS.values():
        program = load_json(save_json(from_source(text)))
        functions = list(program.functions.values()) if isinstance(program, IRModule) else [program]
        for func in functions:
            if isinstance(func, Function):
                for block in func.body.blocks:
                    for binding in block.bindings:
                        assert binding.value.struct_info is not None
                assert func.body.struct_info is not None


def test_what_is_asserted_of_an_external_function_is_there_after_json():
    func = relax.ExternFunc("f", relax.FuncStructInfo([R.Object()], R.Tensor((2,), "int8"), purity=True))
    loaded = load_json(save_json(func))
    assert loaded.struct_info == func.struct_info and loaded.struct_info.purity
    constant = relax.Constant(tensor(np.zeros(3, "int8")), relax.TensorStructInfo(None, "int8", ndim=1))
    assert str(load_json(save_json(constant)).struct_info) == 'R.Tensor(dtype="int8", ndim=1)'


def test_what_a_dataflow_block_alone_uses_is_declared_above_it():
    n = tir.Var("n", "int64")
    a = relax.Var("a", relax.TensorStructInfo([n, 3], "float32"))
    b = relax.Var("b", relax.TensorStructInfo([n, 3], "float32"))
    block = relax.DataflowBlock([relax.VarBinding(b, relax.op.sin(a))])
    assert block.script().splitlines() == [
        "n = T.int64()",
        'a: R.Tensor((n, 3), dtype="float32")',
        "with R.dataflow():",
        '    b: R.Tensor((n, 3), dtype="float32") = R.sin(a)',
        "    R.output(b)",
    ]
