"""Tensor expressions become the functions that the documents show, and those compute what NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch, UnsupportedError
from oneir.testing import interpret

rng = np.random.default_rng(3)


def te_matmul(A, B):
    assert A.shape[1] == B.shape[0]
    n = A.shape[0]
    m = A.shape[1]
    k = te.reduce_axis((0, A.shape[1]), name="k")
    return te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")


def te_relu(A):
    return te.compute(A.shape, lambda *i: te.max(A(*i), 0), name="relu")


MATMUL = """
# from tvm.script import tir as T

@T.prim_func
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), matmul: T.Buffer((128, 128), "float32")):
    T.func_attr({"tir.noalias": True})
    # with T.block("root"):
    for i, j, k in T.grid(128, 128, 128):
        with T.block("matmul"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            T.reads(A[v_i, v_k], B[v_k, v_j])
            T.writes(matmul[v_i, v_j])
            with T.init():
                matmul[v_i, v_j] = T.float32(0.0)
            matmul[v_i, v_j] = matmul[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
"""

COMPOSED = """
# from tvm.script import tir as T

@T.prim_func
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), relu: T.Buffer((128, 128), "float32")):
    T.func_attr({"tir.noalias": True})
    # with T.block("root"):
    matmul = T.alloc_buffer((128, 128))
    for i, j, k in T.grid(128, 128, 128):
        with T.block("matmul"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            T.reads(A[v_i, v_k], B[v_k, v_j])
            T.writes(matmul[v_i, v_j])
            with T.init():
                matmul[v_i, v_j] = T.float32(0.0)
            matmul[v_i, v_j] = matmul[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    for i0, i1 in T.grid(128, 128):
        with T.block("relu"):
            v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
            T.reads(matmul[v_i0, v_i1])
            T.writes(relu[v_i0, v_i1])
            relu[v_i0, v_i1] = T.max(matmul[v_i0, v_i1], T.float32(0.0))
"""


@pytest.fixture
def ab():
    return te.placeholder((128, 128), name="A", dtype="float32"), te.placeholder((128, 128), name="B", dtype="float32")


def test_matmul_prints_as_documented(ab):
    assert te.create_prim_func([*ab, te_matmul(*ab)]).script().strip() == MATMUL.strip()


def test_composition_keeps_the_intermediate_local(ab):
    func = te.create_prim_func([*ab, te_relu(te_matmul(*ab))])
    assert func.script().strip() == COMPOSED.strip()
    a, b = (rng.standard_normal((128, 128), dtype="float32") for _ in range(2))
    c = np.zeros((128, 128), "float32")
    oneir.build(func)(a, b, c)
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


def test_an_input_that_nothing_reads_stays_a_parameter(ab):
    A, B = ab
    func = te.create_prim_func([A, B, te_relu(A)])
    assert [func.buffer_map[p].name for p in func.params] == ["A", "B", "relu"]


def test_shapes_slice_add_and_compare(ab):
    A, _ = ab
    three = [3]
    assert A.shape[:-1] + three == [128, 3] and three + A.shape[1:] == (3, 128)
    assert A.shape == (128, 128) and A.shape[1] != 64


def test_symbolic_shapes_become_match_buffer():
    n = te.var("n")
    X = te.placeholder((n, 4), name="X")
    func = te.create_prim_func([X, te.compute((n, 4), lambda i, j: X[i, j] * 2.0, name="Y")])
    assert "X = T.match_buffer(var_X, (n, 4))" in func.script()
    x = rng.standard_normal((5, 4), dtype="float32")
    y = np.zeros_like(x)
    oneir.build(func)(x, y)
    np.testing.assert_array_equal(y, x * 2)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_reductions(name):
    A = te.placeholder((6, 7), name="A")
    k = te.reduce_axis((0, 7), "k")
    func = te.create_prim_func([A, te.compute((6,), lambda i: getattr(te, name)(A[i, k], axis=k), name="B")])
    a = rng.standard_normal((6, 7), dtype="float32")
    b = np.zeros(6, "float32")
    oneir.build(func)(a, b)
    np.testing.assert_allclose(b, getattr(np, name)(a, axis=1), rtol=1e-5)


def test_a_reduction_over_two_axes_with_a_condition():
    A = te.placeholder((6, 7), name="A")
    i, j = te.reduce_axis((0, 6), "i"), te.reduce_axis((0, 7), "j")
    total = te.compute((1,), lambda _: te.sum(A[i, j], axis=[i, j], where=te.all(i < j, j < 5)), name="total")
    a = rng.standard_normal((6, 7), dtype="float32")
    b = np.zeros(1, "float32")
    oneir.build(te.create_prim_func([A, total]))(a, b)
    np.testing.assert_allclose(b[0], sum(a[x, y] for x in range(6) for y in range(5) if x < y), rtol=1e-5)


def test_a_reduction_that_says_no_combiner_is_refused():
    x, k = te.placeholder((4, 8), name="x"), te.reduce_axis((0, 8), name="k")
    sums = te.compute((4,), lambda i: tir.Reduce(None, [x[i, k]], [k], None, 0), name="sums")
    with pytest.raises(InvalidValue, match="the reduction of sums says no combiner"):
        te.create_prim_func([x, sums])


def test_a_reducer_of_pairs():
    def combine(x, y):
        return (
            te.if_then_else(x[1] >= y[1], x[0], y[0]),
            te.if_then_else(x[1] >= y[1], x[1], y[1]),
        )

    argmax = te.comm_reducer(combine, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax")
    index, value = te.placeholder((8, 16), "int32", name="index"), te.placeholder((8, 16), "float32", name="value")
    k = te.reduce_axis((0, 16), "k")
    where, most = te.compute((8,), lambda i: argmax((index[i, k], value[i, k]), axis=k), name="T")
    v = rng.standard_normal((8, 16), dtype="float32")
    n, m = np.zeros(8, "int32"), np.zeros(8, "float32")
    oneir.build(te.create_prim_func([index, value, where, most]))(
        np.tile(np.arange(16, dtype="int32"), (8, 1)), v, n, m
    )
    np.testing.assert_array_equal(n, v.argmax(1))
    np.testing.assert_array_equal(m, v.max(1))


def test_several_outputs():
    plus, times = te.compute((4, 5), lambda i, j: (i + j, i * j), name="two")
    a, b = np.zeros((4, 5), "int32"), np.zeros((4, 5), "int32")
    oneir.build(te.create_prim_func([plus, times]))(a, b)
    i, j = np.indices((4, 5))
    np.testing.assert_array_equal(a, i + j)
    np.testing.assert_array_equal(b, i * j)


def test_extern_calls_a_registered_function():
    @oneir.register_func("test.row_sums", override=True)
    def row_sums(x, y):
        np.from_dlpack(y)[...] = x.numpy().sum(1)

    A = te.placeholder((3, 4), name="A")
    B = te.extern((3,), [A], lambda ins, outs: tir.call_packed("test.row_sums", ins[0], outs[0]), name="B")
    a, b = rng.standard_normal((3, 4), dtype="float32"), np.zeros(3, "float32")
    oneir.build(te.create_prim_func([A, B]))(a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_extern_primfunc_takes_a_function_as_it_is(ab):
    square = te.create_prim_func([ab[0], te.compute((128, 128), lambda i, j: ab[0][i, j] * ab[0][i, j], name="S")])
    X = te.placeholder((128, 128), name="X")
    Y = te.extern_primfunc([X], square)
    x, z = rng.standard_normal((128, 128), dtype="float32"), np.zeros((128, 128), "float32")
    oneir.build(te.create_prim_func([X, te_relu(Y)]))(x, z)
    np.testing.assert_allclose(z, x * x, rtol=1e-6)


def test_index_dtype_override_changes_every_index(ab):
    func = te.create_prim_func([*ab, te_matmul(*ab)], index_dtype_override="int64")
    assert "T.grid(T.int64(128), T.int64(128), T.int64(128))" in func.script()
    assert 'A: T.Buffer((T.int64(128), T.int64(128)), "float32")' in func.script()


def test_layout_free_placeholders_become_an_attribute(ab):
    A, B = ab
    C = te.compute((128, 128), lambda i, j: A[i, j] + B[i, j], name="C", attrs={"layout_free_placeholders": [B]})
    assert list(te.create_prim_func([A, B, C]).attrs["layout_free_buffers"]) == [1]


def test_tags():
    with te.tag_scope("mine"):
        A = te.compute((4,), lambda i: i, name="A")
    assert A.op.tag == "mine" and te.compute((4,), lambda i: i).op.tag == ""
    with te.tag_scope("outer"), pytest.raises(InvalidValue, match="do not nest"), te.tag_scope("inner"):
        pass


def test_a_scan_is_a_recurrence_in_order():
    X = te.placeholder((5, 3), name="X")
    state = te.placeholder((5, 3), name="state")
    init = te.compute((1, 3), lambda _, i: X[0, i])
    update = te.compute((5, 3), lambda t, i: state[t - 1, i] + X[t, i])
    total = te.scan(init, update, state, inputs=[X])
    assert list(total.shape) == [5, 3] and total.op.scan_axis.dom.min.value == 1
    x, y = rng.standard_normal((5, 3), dtype="float32"), np.zeros((5, 3), "float32")
    oneir.build(te.create_prim_func([X, total]))(x, y)
    np.testing.assert_allclose(y, np.cumsum(x, axis=0), rtol=1e-5, atol=1e-6)


def test_a_scan_of_two_states_advances_both_together():
    a, b = te.placeholder((6,), "int32", name="a"), te.placeholder((6,), "int32", name="b")
    ones = te.compute((1,), lambda _: 1), te.compute((1,), lambda _: 1)
    steps = te.compute((6,), lambda t: b[t - 1]), te.compute((6,), lambda t: a[t - 1] + b[t - 1])
    first, second = te.scan(ones, steps, [a, b])
    x, y = np.zeros(6, "int32"), np.zeros(6, "int32")
    oneir.build(te.create_prim_func([first, second]))(x, y)
    assert x.tolist() == [1, 1, 2, 3, 5, 8] and y.tolist() == [1, 2, 3, 5, 8, 13]


# -- refusals --


def test_a_placeholder_that_is_read_must_be_an_argument(ab):
    with pytest.raises(InvalidValue, match="placeholder `B` is read but not among the arguments"):
        te.create_prim_func([ab[0], te_matmul(*ab)])


def test_wrong_numbers_of_indices_are_named(ab):
    with pytest.raises(TypeMismatch, match="tensor `A` has 2 dimensions, found 1 indices"):
        te.compute((128,), lambda i: ab[0][i])
    with pytest.raises(TypeMismatch, match="takes 1 indices, the shape has 2 dimensions"):
        te.compute((4, 4), lambda i: i)


def test_other_arguments_are_refused(ab):
    with pytest.raises(TypeMismatch, match="expects tensors and variables, found 3"):
        te.create_prim_func([*ab, 3])
    with pytest.raises(OneIRError, match="ambiguous"):
        te.compute((4,), lambda i: i / 2)


def test_scans_that_route_the_state_through_another_compute_are_refused():
    state = te.placeholder((5, 3), name="state")
    doubled = te.compute((5, 3), lambda t, i: state[t, i] * 2.0, name="doubled")
    init = te.compute((1, 3), lambda _, i: te.const(1.0))
    total = te.scan(init, te.compute((5, 3), lambda t, i: doubled[t - 1, i]), state)
    with pytest.raises(UnsupportedError, match="`doubled` depends on a state; write it into the update"):
        te.create_prim_func([total])


def test_an_axis_that_depends_on_another_stands_in_a_block_over_it():
    A = te.placeholder((5, 4), name="A")

    def element(i):
        j, k = te.reduce_axis((0, i + 1), "j"), te.reduce_axis((0, 4), "k")
        return te.sum(A[j, k], axis=[j, k])

    func = te.create_prim_func([A, te.compute((5,), element, name="B")])
    text = func.script()
    assert "for i, k in T.grid(5, 4):" in text and 'with T.block("B_l1"):' in text
    assert "for j in range(v_i + 1):" in text and 'with T.block("B"):' in text
    a = rng.standard_normal((5, 4), dtype="float32")
    for execute in (oneir.build(func), lambda *arrays: interpret(func, *arrays)):
        b = np.zeros(5, "float32")
        execute(a, b)
        np.testing.assert_allclose(b, np.cumsum(a.sum(1)), rtol=1e-5, atol=1e-5)


def test_a_scan_computes_what_its_states_pass_through():
    X = te.placeholder((4, 3), name="X")
    state = te.placeholder((5, 3), name="state")
    doubled = te.compute((5, 3), lambda t, i: state[t - 1, i] * 2.0, name="doubled")
    init = te.compute((1, 3), lambda _, i: te.const(1.0))
    total = te.scan(init, te.compute((5, 3), lambda t, i: doubled[t, i] + X[t - 1, i]), state)
    x, y = rng.standard_normal((4, 3), dtype="float32"), np.zeros((5, 3), "float32")
    oneir.build(te.create_prim_func([X, total]))(x, y)
    expected = [np.ones(3)]
    for row in x:
        expected.append(expected[-1] * 2 + row)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_blocks_of_one_name_are_numbered():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    text = te.create_prim_func([A, te.compute((4,), lambda i: B[i] * 2.0, name="B")]).script()
    assert 'with T.block("B"):' in text and 'with T.block("B_1"):' in text


def test_a_quotient_stays_one():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] / te.const(8.0, "float32"), name="B")
    assert "B[v_i] = A[v_i] / T.float32(8.0)" in te.create_prim_func([A, B]).script()


def test_a_block_of_one_element_has_a_variable():
    A = te.placeholder((), name="A")
    func = te.create_prim_func([A, te.compute((), lambda: A() + 1.0, name="B")], "int64")
    assert "vi = T.axis.spatial(1, T.int64(0))" in func.script()
