"""What programs written for TVM say to `tir`: names, parameters and their order, results."""

from __future__ import annotations

import numpy as np
import pytest

import oneir as tvm
from oneir import tir
from oneir.script import tir as T

x, y = tir.Var("x", dtype="int32"), tir.SizeVar("y", dtype="int32")
A = tir.decl_buffer((8,), "float32", name="A")
nothing = tir.Evaluate(0)


def same(found, expected):
    tvm.ir.assert_structural_equal(found, expected)


def test_variables():
    pointer = tir.Var("p", tvm.ir.PointerType(tvm.ir.PrimType("float16"), "shared"))
    assert tir.Var(name="n", dtype="int64", span=None).dtype == "int64" and tir.SizeVar("n", "int64").name == "n"
    assert pointer.dtype == "handle" and pointer.type_annotation.storage_scope == "shared"
    with pytest.raises(TypeError, match="unexpected keyword argument 'type_annotation'"):
        tir.Var("n", **{"type_annotation": "int64"})


def test_reductions_and_constants_in_memory():
    k = tir.IterVar((0, 8), "k", tir.IterVar.CommReduce)
    combiner = tir.CommReducer([x], [y], [x + y], [tir.const(0, "int32")])
    reduce = tir.Reduce(combiner, src=[k.var], rdom=[k], condition=True, value_index=0, init=None)
    assert reduce.source[0] is k.var and reduce.axis[0] is k and reduce.dtype == "int32"
    data = tvm.nd.array(np.arange(8, dtype="float32"))
    constant = tir.AllocateConst(A.data, "float32", [8], data_or_idx=data, body=nothing)
    assert constant.data is data
    with pytest.raises(TypeError, match="unexpected keyword argument 'source'"):
        tir.Reduce(combiner, source=[k.var], rdom=[k], condition=True, value_index=0)


def test_nodes_take_none_for_nothing():
    block = tir.Block([], [], [], "root", nothing, None, None, None, None)
    assert block.alloc_buffers == [] and block.match_buffers == [] and dict(block.annotations) == {}
    same(block, tir.Block([], [], [], "root", nothing))
    loop = tir.For(x, 0, 8, tir.ForKind.SERIAL, nothing, thread_binding=None, annotations=None)
    same(loop, tir.For(x, 0, 8, tir.ForKind.SERIAL, nothing))
    assert tir.BlockRealize([], True, block).predicate.value == 1


def test_access_masks_of_buffers():
    same(A.access_ptr(tir.Buffer.READ | tir.Buffer.WRITE), A.access_ptr("rw"))
    assert tir.Buffer.READ == 1 and tir.Buffer.WRITE == 2


def test_operators_take_published_names():
    same(tir.bitwise_and(x=x, y=y), x & y)
    same(tir.bitwise_or(x=x, y=y), x | y)
    same(tir.bitwise_xor(x=x, y=y), x ^ y)
    same(tir.bitwise_not(x=x), ~x)
    same(tir.shift_left(x=x, y=y), x << y)
    same(tir.shift_right(x=x, y=y), x >> y)
    same(tir.abs(x=x), abs(x))
    same(T.bitwise_and(x=x, y=y), x & y)
    with pytest.raises(TypeError, match="bitwise_and expects integers, found float32"):
        tir.bitwise_and(x=A[0], y=A[1])


def test_generic_arithmetic():
    same(tir.generic.add(lhs=x, rhs=y), x + y)
    same(tir.generic.subtract(lhs=x, rhs=y), x - y)
    same(tir.generic.multiply(lhs=x, rhs=y), x * y)
    same(tir.generic.divide(lhs=A[0], rhs=A[1]), A[0] / A[1])
    same(tir.generic.floordiv(x, y), x // y)
    same(tir.generic.cast(x, "float32"), x.astype("float32"))
    same(tir.generic.cast(src=x, dtype="float32"), x.astype("float32"))
    with pytest.raises(TypeError, match="ambiguous"):
        tir.generic.divide(x, y)


def test_names_stand_where_published():
    for name in ("Add", "And", "Call", "IntImm", "Let", "Range", "Select", "Var"):
        assert getattr(tir.expr, name) in (getattr(tir, name, None), getattr(tvm.ir, name, None))
    assert tir.function.IndexMap is tir.IndexMap
    assert isinstance(tir.expr.div_ambiguity_error(), TypeError)


def test_convert():
    assert tir.convert(3).value == 3 and tir.convert("text").value == "text" and tir.convert(x) is x
    several = tir.convert([1, x, (2.0,)])
    assert isinstance(several, tvm.ir.Array) and several[1] is x and several[2][0].dtype == "float32"
    with pytest.raises(tvm.TVMError, match="expected a number or an expression, found None"):
        tir.convert(None)


def test_visitors_take_published_names():
    body, seen = tir.SeqStmt([nothing, tir.Evaluate(x)]), []
    tir.stmt_functor.post_order_visit(stmt=body, fvisit=seen.append)
    assert seen[-1] is body and x in seen
    seen.clear()

    def enter(node):
        seen.append(node)
        return node is body

    tir.stmt_functor.pre_order_visit(stmt=body, fvisit=enter)
    assert [type(node).__name__ for node in seen] == ["SeqStmt", "Evaluate", "Evaluate"]
    assert tir.analysis.expr_deep_equal(lhs=x + 1, rhs=x + 1) and not tir.analysis.expr_deep_equal(x, y)


def test_inverse_takes_ranges():
    split = tir.IndexMap.from_func(lambda i: [i // 4, i % 4], index_dtype="int32")
    assert split.inverse([tvm.ir.Range(0, 16)]).is_equivalent_to(split.inverse([16]))
    with pytest.raises(ValueError, match=r"indices of a layout start at 0, found the range .*Range\(4, 16\)"):
        split.inverse([tvm.ir.Range(4, 16)])


@T.prim_func
def hoistable(a: T.handle, n: T.int32):
    A = T.match_buffer(a, (32, 8), "float32")
    for i in T.thread_binding(32, thread="threadIdx.x"):
        for j in range(8):
            if n > 4:
                A[i, j] = T.float32(0)


def test_variants_of_hoisting():
    mod = tvm.IRModule({"main": hoistable})
    with tvm.transform.PassContext(config={"tir.HoistIfThenElse": {"support_block_scope_hoisting": True}}):
        everywhere = tir.transform.HoistIfThenElse()(mod)["main"].body
        basic = tir.transform.HoistIfThenElse("basic")(mod)["main"].body
    assert isinstance(everywhere, tir.IfThenElse)
    assert basic.kind == tir.ForKind.THREAD_BINDING and isinstance(basic.body, tir.IfThenElse)
    with pytest.raises(ValueError, match=r"HoistIfThenElse has the variant .basic., found 'advanced'"):
        tir.transform.HoistIfThenElse(variant="advanced")
