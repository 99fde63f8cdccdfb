"""Substitution, copies that share nothing, and rewriting by functions."""

from __future__ import annotations

from oneir import tir
from oneir.ir import assert_structural_equal, structural_equal
from oneir.ir.expr import Let, Var, const
from oneir.script import tir as T
from oneir.tir.stmt_functor import ir_transform, post_order_visit, pre_order_visit, renew_defs, renew_stmt, substitute

x, y = Var("x", "int32"), Var("y", "int32")


@T.prim_func(private=True)
def blur(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
    with T.block("root"):
        C = T.alloc_buffer((16,))
        for i in range(n):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                view = T.match_buffer(A[vi], (1,), offset_factor=1)
                C[vi] = view[0] * T.float32(2)
        for i in T.vectorized(16):
            B[i] = C[i] + A[i]


def test_variables_are_replaced_by_expressions_and_numbers():
    assert substitute(x + y, {x: y * 2}) == y * 2 + y
    assert substitute(x + y, {x: 3}) == const(3) + y
    assert substitute(x + y, {x: y, y: x}) == y + x


def test_nothing_to_replace_gives_the_same_object():
    expr = x + y
    assert substitute(expr, {}) is expr and substitute(expr, {Var("z", "int32"): x}) is expr
    assert substitute(blur, {x: y}) is blur


def test_definitions_are_kept():
    inner = Let(x, y, x + y)
    assert substitute(inner, {y: 4}) == Let(x, const(4), x + 4)
    assert substitute(inner, {x: 4}).var is x


def test_a_buffer_whose_shape_changes_is_replaced_everywhere():
    n = Var("n", "int32")
    a = tir.decl_buffer((n,), name="A")
    store = tir.BufferStore(a, a[0] + 1.0, [n - 1])
    new = substitute(store, {n: 8})
    assert new.buffer is new.value.a.buffer is not a and int(new.buffer.shape[0]) == 8
    assert structural_equal(new.indices[0], tir.Sub(8, const(1)))
    assert new.buffer.data is a.data


def definitions(func):
    """All variables and buffers that a function defines."""
    found = {*func.params, *func.buffer_map.values()}

    def add(node):
        match node:
            case tir.For():
                found.add(node.loop_var)
            case tir.Block():
                found.update(iv.var for iv in node.iter_vars)
                found.update(node.alloc_buffers)
                found.update(m.buffer for m in node.match_buffers)

    post_order_visit(func.body, add)
    return found


def test_a_renewed_function_is_equal_and_shares_nothing():
    new = renew_defs(blur)
    assert_structural_equal(new, blur)
    assert len(definitions(blur)) == 10 and not definitions(new) & definitions(blur)
    assert [p.name for p in new.params] == [p.name for p in blur.params]


def test_a_renewed_buffer_may_use_an_extent_that_a_later_one_defines():
    n = Var("n", "int64")
    rows, matrix = tir.decl_buffer((n * 16, 32), name="rows"), tir.decl_buffer((n, 16, 32), name="matrix")
    params = [Var("a", "handle"), Var("b", "handle")]
    func = tir.PrimFunc(params, tir.Evaluate(n), buffer_map=dict(zip(params, (rows, matrix), strict=True)))
    new = renew_defs(func)
    (flat, whole), used = (new.buffer_map[p] for p in new.params), new.body.value
    assert used is whole.shape[0] is not n and structural_equal(flat.shape[0], used * 16)


def test_a_renewed_statement_keeps_what_it_does_not_define():
    i = Var("i", "int32")
    loop = tir.For(i, 0, x, tir.ForKind.SERIAL, tir.Evaluate(i + x))
    new = renew_stmt(loop)
    assert new.loop_var is not i and new.extent is x and structural_equal(new, loop)


def test_functions_before_and_after_the_children():
    stmt = tir.SeqStmt([tir.Evaluate(x + 1), tir.Evaluate(x + 2)])

    def after(node):
        return tir.IntImm("int32", node.value * 10) if isinstance(node, tir.IntImm) else None

    assert structural_equal(ir_transform(stmt, None, after), tir.SeqStmt([tir.Evaluate(x + 10), tir.Evaluate(x + 20)]))

    def before(node):
        return tir.Evaluate(0) if isinstance(node.value, tir.Add) and int(node.value.b) == 2 else None

    new = ir_transform(stmt, before, None, ["tir.Evaluate"])
    assert structural_equal(new, tir.SeqStmt([tir.Evaluate(x + 1), tir.Evaluate(0)]))
    assert ir_transform(stmt, None, lambda node: None) is stmt


def test_a_replacement_is_not_looked_into():
    seen = []

    def before(node):
        seen.append(type(node).__name__)
        return tir.Evaluate(y) if isinstance(node, tir.Evaluate) else None

    ir_transform(tir.SeqStmt([tir.Evaluate(x + 1)] * 2), before, None)
    assert "Add" not in seen and seen.count("Evaluate") == 2


def test_the_order_of_visits():
    order = []
    post_order_visit(tir.Evaluate(x + y * 2), lambda n: order.append(type(n).__name__))
    assert order == ["Var", "Var", "IntImm", "Mul", "Add", "Evaluate"]
    order.clear()
    pre_order_visit(tir.Evaluate(x + y * 2), lambda n: order.append(type(n).__name__) or not isinstance(n, tir.Mul))
    assert order == ["Evaluate", "Add", "Var", "Mul"]
