"""Statements: each construct becomes the node that its constructor makes."""

from __future__ import annotations

import numpy as np
import pytest

from oneir.ir import assert_structural_equal
from oneir.ir.expr import Add, Broadcast, IntImm, Ramp, Range, StringImm, Var, const, pointer_to
from oneir.runtime.error import ParseError
from oneir.script import from_source
from oneir.script import tir as T
from oneir.tir import op
from oneir.tir.buffer import decl_buffer
from oneir.tir.expr import BufferLoad, IterVar, IterVarType
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    While,
)


def body_is(func, expected, *buffers):
    """Whether the body of a function over some buffers is a statement over buffers of the same form."""
    params = {Var(b.name, "handle"): b for b in buffers}
    assert_structural_equal(func.without_attr("global_symbol"), PrimFunc(list(params), expected, None, params))


A = decl_buffer((16, 16), "float32", "A")
B = decl_buffer((64,), "float32", "B")
zero = T.float32(0)


def test_nested_loops_of_a_grid():
    @T.prim_func
    def func(A: T.Buffer((16, 16), "float32")):
        for i, j in T.grid(16, T.int64(8)):
            A[i, j] = T.float32(0)

    i, j = Var("i", "int32"), Var("j", "int64")
    inner = For(j, const(0, "int64"), const(8, "int64"), ForKind.SERIAL, BufferStore(A, zero, [i, j]))
    body_is(func, For(i, 0, 16, ForKind.SERIAL, inner), A)


def test_one_name_for_a_grid_of_one():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        for i in T.grid(64):
            B[i] = T.float32(0)

    i = Var("i", "int32")
    body_is(func, For(i, 0, 64, ForKind.SERIAL, BufferStore(B, zero, [i])), B)


@pytest.mark.parametrize(
    ("loop", "kind"),
    [
        ("range(2, 10)", ForKind.SERIAL),
        ("T.serial(2, 10)", ForKind.SERIAL),
        ("T.parallel(2, 10)", ForKind.PARALLEL),
        ("T.vectorized(2, 10)", ForKind.VECTORIZED),
        ("T.unroll(2, 10)", ForKind.UNROLLED),
        ("T.unrolled(2, 10)", ForKind.UNROLLED),
    ],
)
def test_kinds_of_loops(loop: str, kind: ForKind):
    func = from_source(
        f'@T.prim_func\ndef f(B: T.Buffer((64,), "float32")):\n    for i in {loop}:\n        B[i] = 0.0\n'
    )
    i = Var("i", "int32")
    body_is(func, For(i, 2, 8, kind, BufferStore(B, zero, [i])), B)


def test_thread_binding_and_annotations():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        for i in T.thread_binding(64, thread="threadIdx.x", annotations={"pragma_unroll": 1}):
            B[i] = T.float32(0)

    i = Var("i", "int32")
    thread = IterVar(None, Var("", "int32"), IterVarType.ThreadIndex, "threadIdx.x")
    store = BufferStore(B, zero, [i])
    body_is(func, For(i, 0, 64, ForKind.THREAD_BINDING, store, thread, {"pragma_unroll": 1}), B)


def test_loop_bounds_may_be_expressions():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32"), n: T.int32):
        for i in range(n):
            for j in range(i, n):
                B[j] = T.float32(0)

    n = func.params[1]
    loop = func.body
    assert loop.extent is n and loop.body.min is loop.loop_var
    assert_structural_equal(loop.body.extent, n - loop.loop_var)


def test_a_step_counts_iterations():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        for i in range(1, 64, 3):
            B[i] = T.float32(0)

    v = Var("i", "int32")
    body_is(func, For(v, 0, 21, ForKind.SERIAL, BufferStore(B, zero, [1 + v * 3])), B)
    assert func.body.loop_var.name == "i"


def test_while_break_continue():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        while B[0] < T.float32(10):
            B[0] = B[0] + T.float32(1)
            if B[0] > T.float32(5):
                break
            else:
                continue

    load = BufferLoad(B, [0])
    branch = IfThenElse(load > T.float32(5), Evaluate(op.break_loop()), Evaluate(op.continue_loop()))
    step = BufferStore(B, Add(load, T.float32(1)), [0])
    body_is(func, While(load < T.float32(10), SeqStmt([step, branch])), B)


def test_elif_nests_and_python_conditions_choose():
    flag = False

    @T.prim_func
    def func(B: T.Buffer((64,), "float32"), n: T.int32):
        if n == 0:
            B[0] = T.float32(0)
        elif n == 1:
            B[1] = T.float32(0)
        if flag:
            B[2] = T.float32(0)
        else:
            B[3] = T.float32(0)

    n = func.params[1]
    (buffer,) = func.buffer_map.values()
    expected = SeqStmt(
        [
            IfThenElse(
                n.equal(0),
                BufferStore(buffer, zero, [0]),
                IfThenElse(n.equal(1), BufferStore(buffer, zero, [1])),
            ),
            BufferStore(buffer, zero, [3]),
        ]
    )
    assert_structural_equal(func.body, expected)


def test_if_then_else_frames():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32"), n: T.int32):
        with T.If(n > 0):
            with T.Then():
                B[0] = T.float32(0)
            with T.Else():
                B[1] = T.float32(0)

    (buffer,) = func.buffer_map.values()
    expected = IfThenElse(func.params[1] > 0, BufferStore(buffer, zero, [0]), BufferStore(buffer, zero, [1]))
    assert_structural_equal(func.body, expected)


def test_let_statements_in_three_spellings():
    @T.prim_func
    def plain(B: T.Buffer((64,), "float32")):
        x = B[0] + B[1]
        B[2] = x

    @T.prim_func
    def annotated(B: T.Buffer((64,), "float32")):
        x: T.float32 = B[0] + B[1]
        B[2] = x

    @T.prim_func
    def framed(B: T.Buffer((64,), "float32")):
        with T.LetStmt(B[0] + B[1]) as x:
            B[2] = x

    x = Var("x", "float32")
    expected = LetStmt(x, BufferLoad(B, [0]) + BufferLoad(B, [1]), BufferStore(B, x, [2]))
    for func in (plain, annotated, framed):
        body_is(func, expected, B)
        assert func.body.var.name == "x"


def test_a_name_may_be_bound_again():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        x = B[0]
        x = x * T.float32(2)
        x += T.float32(1)
        B[1] = x

    a, b, c = (Var("x", "float32") for _ in range(3))
    expected = LetStmt(
        a,
        BufferLoad(B, [0]),
        LetStmt(b, a * T.float32(2), LetStmt(c, b + T.float32(1), BufferStore(B, c, [1]))),
    )
    body_is(func, expected, B)


def test_numbers_and_other_values_stay_in_python():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        width = 4
        half = width // 2
        table = {"first": half}
        rows, columns = (1, 2)
        meta = T.meta_var(B[0] + B[1])
        B[table["first"] + rows + columns] = meta

    body_is(func, BufferStore(B, BufferLoad(B, [0]) + BufferLoad(B, [1]), [5]), B)


def test_an_annotated_number_is_a_variable():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        i: T.int64 = 3
        B[i] = T.float32(0)

    i = Var("i", "int64")
    body_is(func, LetStmt(i, const(3, "int64"), BufferStore(B, zero, [i])), B)


def test_allocate_as_statement_and_as_frame():
    @T.prim_func
    def statement():
        p = T.allocate([16, 4], "float32", "shared", annotations={"k": 1})
        q = T.Buffer((64,), data=p, scope="shared")
        q[0] = T.float32(0)

    @T.prim_func
    def frame():
        with T.allocate([16, 4], "float32", "shared", annotations={"k": 1}) as p:
            q = T.Buffer((64,), data=p, scope="shared")
            q[0] = T.float32(0)

    p = Var("p", pointer_to("float32", "shared"))
    q = decl_buffer((64,), "float32", data=p)
    expected = Allocate(p, "float32", [16, 4], True, BufferStore(q, zero, [0]), {"k": 1})
    body_is(statement, expected)
    body_is(frame, expected)
    assert statement.body.buffer_var.name == "p" and statement.body.body.buffer.name == "q"


def test_allocate_const():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        p = T.allocate_const([1.0, 2.0, 3.0, 4.0], "float32", [2, 2])
        q = T.Buffer((2, 2), data=p)
        B[0] = q[1, 1]

    stmt = func.body
    assert isinstance(stmt, AllocateConst)
    np.testing.assert_array_equal(stmt.data.numpy(), np.array([[1, 2], [3, 4]], "float32"))
    assert isinstance(stmt.body, BufferStore) and stmt.body.value.buffer.data is stmt.buffer_var


def test_decl_buffer_with_and_without_memory():
    @T.prim_func
    def func(A: T.Buffer((16, 16), "float32")):
        flat = T.decl_buffer((256,), "float32", data=A.data)
        own = T.decl_buffer((4,), "int32", scope="local")
        flat[0] = T.cast(own[0], "float32")

    flat, own = decl_buffer((256,), "float32", data=A.data), decl_buffer((4,), "int32", scope="local")
    store = BufferStore(flat, BufferLoad(own, [0]).astype("float32"), [0])
    body_is(func, DeclBuffer(flat, Allocate(own.data, "int32", [4], True, DeclBuffer(own, store))), A)


def test_asserts_and_attributes():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32"), n: T.int32):
        assert n > 0, "n is positive"
        T.Assert(n < 64, "n is small")
        T.attr("scope", "key", n)
        with T.attr(B.data, "other", "text"):
            B[n] = T.float32(0)

    n = func.params[1]
    (b,) = func.buffer_map.values()
    store = BufferStore(b, zero, [n])
    inner = AttrStmt(StringImm("scope"), "key", n, AttrStmt(b.data, "other", StringImm("text"), store))
    expected = AssertStmt(n > 0, StringImm("n is positive"), AssertStmt(n < 64, StringImm("n is small"), inner))
    assert_structural_equal(func.body, expected)


def test_launch_thread_by_tag_and_by_variable():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        bx = T.launch_thread("blockIdx.x", 8)
        tx = T.env_thread("threadIdx.x")
        v = T.env_thread("vthread.x")
        with T.launch_thread(tx, 8), T.launch_thread(v, 2):
            B[bx * 8 + tx] = T.float32(0)

    bx, tx, v = Var("bx", "int32"), Var("tx", "int32"), Var("v", "int32")
    threads = [
        (IterVar(Range(0, 8), bx, IterVarType.ThreadIndex, "blockIdx.x"), "thread_extent", 8),
        (IterVar(Range(0, 8), tx, IterVarType.ThreadIndex, "threadIdx.x"), "thread_extent", 8),
        (IterVar(Range(0, 2), v, IterVarType.ThreadIndex, "vthread.x"), "virtual_thread", 2),
    ]
    found = func.body
    for iter_var, key, extent in threads:
        assert (found.attr_key, found.node.thread_tag, int(found.value)) == (key, iter_var.thread_tag, extent)
        assert found.node.iter_type == IterVarType.ThreadIndex and int(found.node.dom.extent) == extent
        assert found.node.var.name == iter_var.var.name
        found = found.body
    assert_structural_equal(found.indices[0], func.body.node.var * 8 + func.body.body.node.var)


def test_realize():
    @T.prim_func
    def func():
        b = T.Buffer((64,), "float32")
        T.realize(b[0:32], "shared")
        b[0] = T.float32(0)

    attr = func.body
    assert isinstance(attr, AttrStmt) and attr.attr_key == "realize_scope" and attr.value == "shared"
    assert isinstance(attr.body, BufferRealize) and attr.body.buffer is attr.node
    assert attr.body.bounds == [Range(0, 32)]


def test_stores_and_loads_of_slices():
    @T.prim_func
    def func(A: T.Buffer((16, 16), "float32"), B: T.Buffer((64,), "float32")):
        B[0:16] = A[3, 0:16]
        B[0:16:2] = A[3, 0:16:2]
        x = B[0:4]
        B[8:12] = x + B[4:8]
        B[0:1] = T.float32(0)

    x = Var("x", "float32x4")
    expected = SeqStmt(
        [
            BufferStore(B, BufferLoad(A, [3, Ramp(0, 1, 16)]), [Ramp(0, 1, 16)]),
            BufferStore(B, BufferLoad(A, [3, Ramp(0, 2, 8)]), [Ramp(0, 2, 8)]),
            LetStmt(
                x,
                BufferLoad(B, [Ramp(0, 1, 4)]),
                SeqStmt(
                    [
                        BufferStore(B, x + BufferLoad(B, [Ramp(4, 1, 4)]), [Ramp(8, 1, 4)]),
                        BufferStore(B, zero, [0]),
                    ]
                ),
            ),
        ]
    )
    body_is(func, expected, A, B)


def test_vector_loads_and_stores_by_method():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        B.vstore([0], B.vload([4], "float32x4"))
        T.buffer_store(B, T.broadcast(T.float32(0), 4), [T.ramp(8, 1, 4)])
        T.evaluate(B.access_ptr("r"))

    expected = SeqStmt(
        [
            BufferStore(B, BufferLoad(B, [Ramp(4, 1, 4)]), [Ramp(0, 1, 4)]),
            BufferStore(B, Broadcast(zero, 4), [Ramp(8, 1, 4)]),
            Evaluate(op.tvm_access_ptr("float32", B.data, 0, 64, 1)),
        ]
    )
    body_is(func, expected, B)


def test_augmented_stores():
    @T.prim_func
    def func(A: T.Buffer((16, 16), "float32")):
        A[1, 2] += T.float32(3)
        A[1, 2] *= A[0, 0]

    load = BufferLoad(A, [1, 2])
    expected = SeqStmt(
        [BufferStore(A, load + T.float32(3), [1, 2]), BufferStore(A, load * BufferLoad(A, [0, 0]), [1, 2])]
    )
    body_is(func, expected, A)


def test_calls_strings_and_pass():
    @T.prim_func
    def func(B: T.Buffer((64,), "float32")):
        """A docstring is no statement."""
        T.call_packed("print", B[0])
        T.call_extern("int32", "f", 1)
        pass

    expected = SeqStmt(
        [Evaluate(op.call_packed("print", BufferLoad(B, [0]))), Evaluate(op.call_extern("int32", "f", 1))]
    )
    body_is(func, expected, B)


def test_an_empty_body_does_nothing():
    @T.prim_func
    def func():
        pass

    body_is(func, Evaluate(IntImm("int32", 0)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("for i in [1, 2]:\n        T.evaluate(i)", "expected a loop of the program: range, T.serial"),
        (
            "for i in T.grid(2, 2, 2):\n        T.evaluate(0)\n    for i, j in T.grid(2):\n        T.evaluate(0)",
            "2 values",
        ),
        ("for i in range(0, 4, 0):\n        T.evaluate(i)", "the step of a loop must be a positive number, found 0"),
        ("for i in T.serial(4, step=-1):\n        T.evaluate(i)", "the step of a loop must be a positive number"),
        ("for i in T.serial(1.5):\n        T.evaluate(i)", "a loop runs over integers, found bounds of dtype"),
        ("for i in range(4):\n        T.evaluate(i)\n    else:\n        T.evaluate(1)", "has no `else`"),
        ("with 3:\n        pass", "expected T.block, T.init, T.attr or the like after `with`, found 3"),
        ("x = y = 1", "assign to one target at a time"),
        ("n[0] = 1", "`n` is not a buffer; it cannot be stored to"),
        ("B.shape = 1", "expected a name or an element of a buffer to assign to"),
        ("return", "`return` in a prim_func expects a value"),
        ("x: T.int32 = B[0]", "a variable of dtype int32 cannot stand for"),
        ("with T.Then():\n        pass", "T.Then stands outside of a T.If"),
        ("with T.If(n > 0):\n        pass", "T.If expects `with T.Then():` inside of it"),
        ("T.launch_thread(n, 4)", "`n` is no thread: make it with T.env_thread, or name it by a tag"),
        ("B[0, 0] = 1.0", "buffer `B` has 1 dimensions, found 2 indices"),
        ("T.where(n > 0)", "T.where describes a block"),
        ("raise ValueError", "`raise` cannot stand in a prim_func"),
    ],
)
def test_refused_statements(line: str, message: str):
    text = f'@T.prim_func\ndef f(n: T.int32, B: T.Buffer((64,), "float32")):\n    {line}\n    B[0] = 0.0\n'
    with pytest.raises(ParseError) as caught:
        from_source(text, check_well_formed=False)
    assert message in str(caught.value)


def test_a_value_of_an_outer_scope_cannot_be_updated_in_a_loop():
    text = """
    @T.prim_func
    def f(B: T.Buffer((64,), "float32")):
        x = B[0]
        for i in range(4):
            x = x + B[i]
    """
    with pytest.raises(ParseError, match="`x` stands for a value that was computed outside of this loop or branch"):
        from_source(text)
