"""`dump_ast` names the classes and fields that a graph is made of."""

from __future__ import annotations

import textwrap

from oneir import relax
from oneir.relax.testing import dump_ast
from oneir.script import relax as R


@R.function
def func(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
    y = R.add(x, x)
    return y


def test_a_graph_without_what_is_known_of_it():
    assert dump_ast(func.body, include_struct_info_annotations=False) == textwrap.dedent("""\
        SeqExpr(
            blocks=[
                BindingBlock(
                    bindings=[
                        VarBinding(
                            var=Var(name_hint="y"),
                            value=Call(
                                op=Op(name="relax.add"),
                                args=[
                                    Var(name_hint="x"),
                                    Var(name_hint="x")
                                ]
                            )
                        )
                    ]
                )
            ],
            body=Var(name_hint="y")
        )""")


def test_what_is_known_and_attributes_are_shown_when_asked_for():
    text = dump_ast(func.params[0], indent_str="")
    extents = "values=[PrimExpr(value=`T.int64(2)`),PrimExpr(value=`T.int64(3)`)]"
    assert text.replace("\n", "") == (
        f'Var(name_hint="x",struct_info=TensorStructInfo(dtype=float32,shape=ShapeExpr({extents},'
        f"struct_info=ShapeStructInfo(ndim=2,{extents}))))"
    )
    call = relax.op.astype(func.params[0], "int8")
    assert '{"dtype": int8}' in dump_ast(call).replace("\n", "")
    assert "int8" not in dump_ast(call, include_call_attrs=False, include_struct_info_annotations=False)
    assert dump_ast(func).startswith("Function(") and '"global_symbol": "func"' in dump_ast(func)
