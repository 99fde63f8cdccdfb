"""The bases that programs check for, types, attributes, facts of modules and of operators, sources."""

from __future__ import annotations

from typing import Any

import pytest

from oneir import IRModule, ir, relax, tir, transform
from oneir.ir import Attrs, BaseExpr, DictAttrs, GlobalInfo, Op, RelaxExpr, SourceMap, TensorMapType, Type
from oneir.ir import assert_structural_equal as assert_equal
from oneir.runtime.error import OneIRError, TypeMismatch

i = tir.Var("i", "int32")
x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))


def test_expressions_of_loops_and_of_graphs() -> None:
    for expr in (i, i + 1, tir.const(1), tir.BufferLoad(tir.decl_buffer((4,)), [i])):
        assert isinstance(expr, BaseExpr) and isinstance(expr, ir.PrimExpr) and not isinstance(expr, RelaxExpr)
    for expr in (x, relax.op.exp(x), relax.const(1), ir.GlobalVar("f"), relax.Tuple([x])):
        assert isinstance(expr, BaseExpr) and isinstance(expr, RelaxExpr) and not isinstance(expr, ir.PrimExpr)
    assert relax.Expr is RelaxExpr and not isinstance(x.struct_info, BaseExpr)
    with pytest.raises(OneIRError, match="struct info"):
        relax.op.exp(x).struct_info


def test_kinds_of_operations_of_loops() -> None:
    j = tir.Var("j", "int32")
    comparisons = [tir.EQ(i, j), tir.NE(i, j), tir.LT(i, j), tir.LE(i, j), tir.GT(i, j), tir.GE(i, j)]
    assert all(
        isinstance(c, tir.CmpExpr) and isinstance(c, tir.BinaryOpExpr) and c.dtype == "bool" for c in comparisons
    )
    connectives = [
        tir.And(comparisons[0], comparisons[1]),
        tir.Or(comparisons[0], comparisons[1]),
        tir.Not(comparisons[0]),
    ]
    assert all(isinstance(c, tir.LogicalExpr) for c in connectives[:2])
    arithmetic = [tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max]
    for kind in arithmetic:
        made = kind(i, j)
        assert isinstance(made, tir.BinaryOpExpr) and not isinstance(made, (tir.CmpExpr, tir.LogicalExpr))
        assert isinstance(made, tir.PrimExprWithOp) and isinstance(made, tir.ExprOp) and made.dtype == "int32"
    constants = [tir.IntImm("int8", 1), tir.FloatImm("float32", 1.0), tir.StringImm("a")]
    assert all(isinstance(c, tir.ConstExpr) for c in constants) and not isinstance(i, tir.ConstExpr)
    with pytest.raises(TypeMismatch, match="And expects bool operands, found int32"):
        tir.And(i, j)
    with pytest.raises(TypeMismatch, match="`/` between integers is ambiguous"):
        i / j
    assert isinstance(tir.div_ambiguity_error(), TypeMismatch)


def test_comparisons_that_are_not_decided_yet() -> None:
    j = tir.Var("j", "int32")
    same, equal, differ = i == i, i == j, i != j
    assert isinstance(equal, tir.EqualOp) and isinstance(differ, tir.NotEqualOp)
    assert (bool(same), bool(equal), bool(differ)) == (True, False, True)
    assert_equal(equal.asobject(), tir.EQ(i, j))
    assert_equal(differ.asobject(), tir.NE(i, j))
    assert_equal(tir.all(equal, i < 3), tir.And(tir.EQ(i, j), tir.LT(i, tir.const(3))))
    assert_equal(tir.Select(equal, i, j).condition, tir.EQ(i, j))


def test_an_enumerator_is_a_number() -> None:
    kind = tir.IntImmEnum(7)
    assert kind.value == 7
    assert_equal(kind + i, tir.Add(tir.const(7), i))
    assert_equal(tir.Call("int32", "tir.likely", [kind]).args[0], tir.const(7))


def test_producers() -> None:
    from oneir import te

    A = te.placeholder((4,), "int8", "A")
    load = A(i)
    assert isinstance(load, tir.ProducerLoad) and isinstance(A, tir.DataProducer) and load.dtype == "int8"
    assert load.producer is A and list(load.indices) == [i]
    assert_equal(tir.ProducerLoad(A, [i]), load)
    assert not ir.structural_equal(load, A(i + 1))


def test_types() -> None:
    kinds = [
        ir.PrimType("int32"),
        ir.PrimType("int8"),
        ir.PointerType(ir.PrimType("int32")),
        ir.PointerType(ir.PrimType("int32"), "shared"),
        ir.TupleType([]),
        ir.TupleType([ir.PrimType("int32")]),
        ir.FuncType([ir.PrimType("int32")], ir.TupleType([])),
        TensorMapType(),
    ]
    again = [type(t)(*(getattr(t, f.name) for f in t.init_fields)) for t in kinds]
    assert all(isinstance(t, Type) for t in kinds)
    for m, a in enumerate(kinds):
        assert [a == b for b in again] == [m == n for n in range(len(kinds))]
        assert [ir.structural_equal(a, b) for b in again] == [m == n for n in range(len(kinds))]
        assert_equal(ir.load_json(ir.save_json(a)), a)
    assert ir.PointerType(ir.PrimType("int8"), "global") == ir.PointerType(ir.PrimType("int8"))
    handle = tir.Var("p", ir.PointerType(TensorMapType()))
    assert handle.dtype == "handle" and handle.type_annotation.element_type == TensorMapType()


def test_attributes() -> None:
    attrs = ir.make_node("ir.DictAttrs", a=1, b="text", c=[1, 2])
    assert isinstance(attrs, DictAttrs) and isinstance(attrs, Attrs)
    assert (attrs["a"], attrs["b"], list(attrs["c"]), "d" in attrs, attrs.get("d", 5)) == (1, "text", [1, 2], False, 5)
    assert sorted(attrs.keys()) == ["a", "b", "c"] and len(attrs) == 3
    assert_equal(attrs, ir.make_node("DictAttrs", c=[1, 2], b="text", a=1))
    assert not ir.structural_equal(attrs, ir.make_node("ir.DictAttrs", a=2, b="text", c=[1, 2]))
    assert isinstance(relax.op.nn.softmax(x).attrs, Attrs)
    with pytest.raises(OneIRError, match=r"no\.such\.Node"):
        ir.make_node("no.such.Node")


def test_facts_of_modules() -> None:
    first, second = ir.VDevice("llvm", 0), ir.VDevice("llvm", 1, "global")
    assert all(isinstance(v, GlobalInfo) for v in (first, second, ir.DummyGlobalInfo()))
    mod = IRModule({}, global_infos={"vdevice": [first, second], "mine": [ir.DummyGlobalInfo()]})
    assert mod.global_infos["vdevice"][1] is second and len(mod.global_infos["mine"]) == 1
    mod.update_global_info("mine", [ir.DummyGlobalInfo(), ir.DummyGlobalInfo()])
    assert len(mod.global_infos["mine"]) == 2
    assert (second.vdevice_id, second.memory_scope, second.target.kind.name) == (1, "global", "llvm")
    with pytest.raises(OneIRError, match='There is no target kind or tag "lvm"'):
        ir.VDevice("lvm")
    assert not ir.structural_equal(first, second) and ir.structural_equal(first, ir.VDevice("llvm", 0))


def test_facts_of_operators() -> None:
    ir.register_op_attr("test.bases", "TNumber", 3)
    op = Op.get("test.bases")
    assert op.get_attr("TNumber") == 3 and op.has_attr("TNumber") and not op.has_attr("TOther")

    @ir.register_op_attr("test.bases", "FRule")
    def rule(call: Any) -> Any:
        return call

    assert op.get_attr("FRule") is rule
    ir.register_op_attr("test.bases", "TNumber", 4, level=11)
    assert op.get_attr("TNumber") == 4
    ir.register_op_attr("test.bases", "TNumber", 5, level=5)
    assert op.get_attr("TNumber") == 4
    op.reset_attr("FRule")  # with code of a user registered, no graph is kept on disk


def test_an_intrinsic_says_how_it_is_written_for_a_target() -> None:
    ir.register_op_attr("test.twice", "TCallEffectKind", tir.CallEffectKind.Pure)

    @ir.register_intrin_lowering("test.twice", target="default")
    def lower(call: tir.Call) -> tir.PrimExpr:
        return call.args[0] * 2

    def function(value: tir.PrimExpr) -> IRModule:
        A = tir.decl_buffer((4,), "int32", "A")
        handle = tir.Var("a", "handle")
        body = tir.BufferStore(A, value, [0])
        func = tir.PrimFunc([handle, i], body, buffer_map={handle: A}).with_attr("target", ir_target())
        return IRModule({"main": func})

    def ir_target() -> Any:
        from oneir.target import Target

        return Target("llvm")

    lowered = transform.Sequential([tir.transform.LowerIntrin()])(function(tir.Call("int32", "test.twice", [i])))
    assert_equal(lowered, function(i * 2), map_free_vars=True)


def test_sources() -> None:
    sources = SourceMap()
    name = sources.add("mine.py", "first\nsecond")
    assert isinstance(name, ir.SourceName) and name.name == "mine.py"
    assert sources.lines("mine.py") == ["first", "second"] and sources.lines("nowhere.py") == []
    assert sources.source_map["mine.py"] == "first\nsecond"
    span = ir.Span(name, 2, 2, 1, 7)
    assert (span.line, span.end_column, span.source_name) == (2, 7, name)
    both = ir.SequentialSpan([span, ir.Span(name, 1, 1, 1, 6)])
    assert len(both.spans) == 2
