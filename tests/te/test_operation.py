"""Tensor expressions: what tensors, operations and variables are, what they compute, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import tir as T
from oneir.te.tag import TagScope
from oneir.testing import interpret

rng = np.random.default_rng(3)


def run(tensors: list[Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Runs the function of the tensors, natively and interpreted; the last ones are what it computes."""
    func = te.create_prim_func(tensors)
    results = [np.empty([int(e) for e in t.shape], t.dtype) for t in tensors[len(arrays) :]]
    oneir.build(func)(*arrays, *results)
    again = [np.empty_like(r) for r in results]
    interpret(func, *arrays, *again)
    for native, other in zip(results, again, strict=True):
        np.testing.assert_allclose(native, other, rtol=1e-6)
    return results


def test_operations_and_their_tensors() -> None:
    n = te.var("n", "int64")
    A = te.placeholder((n, 4), "int8", "A")
    assert isinstance(A.op, te.PlaceholderOp) and isinstance(A.op, te.Operation)
    assert (A.op.name, A.dtype, A.ndim, A.value_index, A.op.num_outputs) == ("A", "int8", 2, 0, 1)
    k = te.reduce_axis((0, 4), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k].astype("int32"), axis=k), "B", tag="mine", attrs={"a": 1})
    assert (
        isinstance(B.op, te.ComputeOp) and isinstance(B.op, te.BaseComputeOp) and not isinstance(A.op, te.BaseComputeOp)
    )
    assert (B.op.tag, B.op.attrs["a"], B.dtype, B.op.reduce_axis[0].var.name) == ("mine", 1, "int32", "k")
    assert [iv.var.name for iv in B.op.axis] == [iv.var.name for iv in B.axis] == ["i"]
    assert list(B.op.input_tensors) == [A] and not A.op.input_tensors and B.op.output(0) == B
    assert A.op.output(0) == A and hash(A) == hash(A.op.output(0)) and A != B and te.placeholder((n, 4), name="A") != A
    same = te.create_prim_func([A, B.op.output(0), te.compute((n,), lambda i: B[i] + 1, name="C")])
    assert [p.name for p in same.params] == ["var_A", "var_B", "var_C"]
    with pytest.raises(InvalidValue, match="`B` has 1 outputs, found index 1"):
        B.op.output(1)


def test_elements_and_slices_of_tensors() -> None:
    A = te.placeholder((3, 4), name="A")
    i = te.var("i")
    row = A[i]
    assert isinstance(row, te.TensorSlice) and row.dtype == "float32" and len(row.indices) == 1
    element = row[2]
    load = A(i, 2)
    assert isinstance(load, tir.ProducerLoad) and isinstance(element, te.TensorSlice)
    oneir.ir.assert_structural_equal(element.asobject(), load)
    oneir.ir.assert_structural_equal(A[-1, -2].asobject(), A(2, 2))
    oneir.ir.assert_structural_equal(A[i, 2] * 2 + 1, load * 2 + 1)
    with pytest.raises(TypeMismatch, match="tensor `A` has 2 dimensions, found 1 indices"):
        row + 1
    with pytest.raises(TypeMismatch, match="tensor `A` has 2 dimensions; index it to get a value"):
        tir.exp(A)


def test_several_outputs() -> None:
    A = te.placeholder((5,), name="A")
    low, high = te.compute((5,), lambda i: (A[i] - 1, A[i] + 1), name="pair")
    assert low.op is high.op and low.op.num_outputs == 2 and (low.name, high.name) == ("pair.v0", "pair.v1")
    a = rng.standard_normal(5).astype("float32")
    found = run([A, low, high], a)
    np.testing.assert_array_equal(found[0], a - 1)
    np.testing.assert_array_equal(found[1], a + 1)
    with pytest.raises(InvalidValue, match="`x`: either all outputs are reductions or none is"):
        k = te.reduce_axis((0, 5))
        te.compute((5,), lambda i: (A[i], te.sum(A[k], axis=k)), name="x")


def test_names_of_indices() -> None:
    A = te.placeholder((2, 3, 4))
    names = {
        "free": te.compute((2, 3, 4), lambda row, *rest: A(row, *rest)),
        "given": te.compute((2, 3, 4), lambda row, *rest: A(row, *rest), varargs_names=["y", "x"]),
        "ax": te.compute((2, 3, 4), lambda *ax: A(*ax)),
    }
    assert [iv.var.name for iv in names["free"].op.axis] == ["row", "i0", "i1"]
    assert [iv.var.name for iv in names["given"].op.axis] == ["row", "y", "x"]
    assert [iv.var.name for iv in names["ax"].op.axis] == ["ax0", "ax1", "ax2"]
    with pytest.raises(TypeMismatch, match="the function of a compute takes 1 indices, the shape has 3 dimensions"):
        te.compute((2, 3, 4), lambda i: i)
    with pytest.raises(InvalidValue, match=r"expected 2 names for \*rest, found 1"):
        te.compute((2, 3, 4), lambda i, *rest: i, varargs_names=["x"])


def test_recurrences() -> None:
    steps, width = 5, 3
    X = te.placeholder((steps, width), name="X")
    state = te.placeholder((steps, width), name="state")
    init = te.compute((1, width), lambda _, i: X[0, i], name="init")
    update = te.compute((steps, width), lambda t, i: state[t - 1, i] * 0.5 + X[t, i], name="update")
    scan = te.scan(init, update, state, inputs=[X], name="scan")
    assert isinstance(scan.op, te.ScanOp) and scan.op.scan_axis.iter_type == tir.IterVar.Ordered
    assert list(scan.op.input_tensors) == [init, update, X] and scan.op.num_outputs == 1
    x = rng.standard_normal((steps, width)).astype("float32")
    expected = x.copy()
    for t in range(1, steps):
        expected[t] += expected[t - 1] * np.float32(0.5)
    np.testing.assert_allclose(run([X, scan], x)[0], expected, rtol=1e-6)
    with pytest.raises(InvalidValue, match="`scan`: expected as many init, update and state tensors, found 1, 1, 2"):
        te.scan(init, update, [state, state])


def test_statements_by_hand() -> None:
    A = te.placeholder((4,), name="A")

    def fill(ins: Any, outs: Any) -> tir.Stmt:
        i = tir.Var("i", "int32")
        return tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(outs[0], ins[0][3 - i], [i]))

    made = te.extern((4,), [A], fill, name="reversed")
    assert isinstance(made.op, te.ExternOp) and list(made.op.input_tensors) == [A] and made.dtype == "float32"
    a = rng.standard_normal(4).astype("float32")
    np.testing.assert_array_equal(run([A, made], a)[0], a[::-1])
    with pytest.raises(TypeMismatch, match="`bad`: the function must return a statement or an expression, found None"):
        te.extern((4,), [A], lambda ins, outs: None, name="bad")
    with pytest.raises(InvalidValue, match=r"`bad`: give dtype; the inputs have \['float32', 'int8'\]"):
        te.extern((4,), [A, te.placeholder((4,), "int8")], fill, name="bad")


def test_functions_as_operations() -> None:
    @T.prim_func
    def double(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            with T.block("y"):
                v = T.axis.spatial(n, i)
                Y[v] = X[v] * T.float32(2)

    A = te.placeholder((tir.IntImm("int64", 6),), name="A")
    doubled = te.extern_primfunc([A], double)
    after = te.compute((6,), lambda i: doubled[i] + 1.0, name="after")
    a = rng.standard_normal(6).astype("float32")
    found = np.empty(6, "float32")
    oneir.build(te.create_prim_func([A, after]))(a, found)
    np.testing.assert_allclose(found, 2 * a + 1, rtol=1e-6)

    @T.prim_func
    def with_number(x: T.Buffer((4,)), n: T.int32):
        T.evaluate(n)

    with pytest.raises(InvalidValue, match="expected a function of tensors only, 1 of them inputs"):
        te.extern_primfunc([A], with_number)


def test_variables_and_constants() -> None:
    n, size = te.var("n", "int64"), te.size_var("size")
    assert (n.name, n.dtype, size.dtype) == ("n", "int64", "int32") and isinstance(size, tir.SizeVar)
    analyzer = oneir.arith.Analyzer()
    assert analyzer.can_prove(size >= 0) and not analyzer.can_prove(n >= 0)
    assert (te.const(3).dtype, te.const(3, "int8").dtype, te.const(1.5).dtype) == ("int32", "int8", "float32")
    thread = te.thread_axis("threadIdx.x")
    assert (thread.thread_tag, thread.iter_type, thread.dom) == ("threadIdx.x", tir.IterVar.ThreadIndex, None)
    limited = te.thread_axis((0, 8), "blockIdx.y", name="by")
    assert (limited.var.name, int(limited.dom.extent)) == ("by", 8)
    k = te.reduce_axis((2, 7), "k")
    assert (k.iter_type, int(k.dom.min), int(k.dom.extent), k.var.name) == (tir.IterVar.CommReduce, 2, 5, "k")
    with pytest.raises(InvalidValue, match="a thread axis needs a tag, such as"):
        te.thread_axis((0, 8))


def test_tags() -> None:
    A = te.placeholder((4,), name="A")
    with te.tag_scope("mine") as scope:
        assert isinstance(scope, TagScope) and TagScope.get_current() is scope
        made = te.compute((4,), lambda i: A[i])

    @te.tag_scope("other")
    def tagged() -> te.Tensor:
        return te.compute((4,), lambda i: A[i])

    assert (made.op.tag, tagged().op.tag) == ("mine", "other") and TagScope.get_current() is None
    assert te.compute((4,), lambda i: A[i]).op.tag == ""
    with te.tag_scope("mine"):
        with pytest.raises(InvalidValue, match="the operation has the tag 'own' and stands in the tag scope 'mine'"):
            te.compute((4,), lambda i: A[i], tag="own")
        with pytest.raises(InvalidValue, match=r"a tag scope \('mine'\) is entered already; tag scopes do not nest"):
            te.tag_scope("b").__enter__()


def test_a_reduction_is_all_that_a_compute_does() -> None:
    A = te.placeholder((4, 6), name="A")
    k, m = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "m")
    for inside in (lambda i: te.sum(A[i, k], axis=k) + 1, lambda i: A[i, 0] * te.sum(A[i, k], axis=k)):
        with pytest.raises(InvalidValue, match="`B`: a reduction is all that a compute does; found one inside"):
            te.compute((4,), inside, name="B")
    with pytest.raises(InvalidValue, match="`B`: either all outputs are reductions or none is"):
        te.compute((4,), lambda i: (te.sum(A[i, k], axis=k), A[i, 0]), name="B")
    with pytest.raises(InvalidValue, match="`B`: the outputs of a compute are those of one reduction"):
        te.compute((4,), lambda i: (te.sum(A[i, k], axis=k), te.sum(A[i, m], axis=m)), name="B")
