"""Statements print as TVMScript; scopes that end with their surroundings need no `with`."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from oneir import relax
from oneir.ir import Range
from oneir.ir import expr as e
from oneir.ir.type import PointerType, PrimType
from oneir.runtime.tensor import tensor
from oneir.script.printer import script
from oneir.tir import op
from oneir.tir import stmt as s
from oneir.tir.buffer import Buffer, decl_buffer
from oneir.tir.expr import IterVar
from oneir.tir.function import PrimFunc

i, j, k = (e.Var(name, "int32") for name in "ijk")
A = decl_buffer((128, 128), "float32", "A")


def store(*indices, value=0.0, buffer=A):
    return s.BufferStore(buffer, value, indices)


def lines(node, **options):
    """The text as the body of a function, below the declarations of free variables."""
    _, _, text = script(PrimFunc([], node), **options).partition("def main():\n")
    text = dedent(text)
    declared = ("A = T.Buffer", "i = T.int32()", "j = T.int32()", "k = T.int32()")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(declared))


def expect(node, text, **options):
    assert lines(node, **options) == dedent(text).strip()


def serial(var, extent, body, minimum=0, kind=s.ForKind.SERIAL, **rest):
    return s.For(var, minimum, extent, kind, body, **rest)


def test_what_a_statement_alone_surrounds_stands_below_it():
    let = s.LetStmt(i, j + 1, store(i, 0))
    assert lines(let) == "i: T.int32 = j + 1\nA[i, 0] = T.float32(0.0)"
    assert script(let).endswith(
        "with T.LetStmt(j + 1) as i:\n    A = T.Buffer((128, 128))\n    A[i, 0] = T.float32(0.0)"
    )


def test_a_statement_alone_declares_its_free_variables():
    assert script(store(i, j)) == dedent(
        """\
        A = T.Buffer((128, 128))
        i = T.int32()
        j = T.int32()
        A[i, j] = T.float32(0.0)"""
    )


def test_free_variables_are_declared_where_all_uses_see_them():
    n, m = e.Var("n", "int32"), e.Var("m", "int32")
    body = serial(i, 4, s.IfThenElse(n < 2, s.SeqStmt([store(i, n), store(n, m)])))
    assert script(body) == dedent(
        """\
        for i in range(4):
            n = T.int32()
            if n < 2:
                A = T.Buffer((128, 128))
                A[i, n] = T.float32(0.0)
                m = T.int32()
                A[n, m] = T.float32(0.0)"""
    )


def test_what_the_second_branch_needs_is_declared_above_the_first():
    n, m = e.Var("n", "int32"), e.Var("m", "int32")
    body = s.SeqStmt([s.IfThenElse(n < 2, s.Evaluate(n), s.Evaluate(m + n)), s.Evaluate(m)])
    assert script(body) == dedent(
        """\
        n = T.int32()
        m = T.int32()
        if n < 2:
            T.evaluate(n)
        else:
            T.evaluate(m + n)
        T.evaluate(m)"""
    )
    condition, x, y = (relax.Var(name, relax.TensorStructInfo((), "bool")) for name in "cxy")
    assert script(relax.If(condition, x, y)) == dedent(
        """\
        c: R.Tensor((), dtype="bool")
        y: R.Tensor((), dtype="bool")
        x: R.Tensor((), dtype="bool")
        if c:
            x
        else:
            y"""
    )


@pytest.mark.parametrize(
    ("loop", "header"),
    [
        (serial(i, 128, store(i, 0)), "for i in range(128):"),
        (serial(i, 10, store(i, 0), minimum=2), "for i in range(2, 12):"),
        (serial(i, 8, store(i, 0), annotations={"k": 1}), 'for i in T.serial(8, annotations={"k": 1}):'),
        (serial(i, 8, store(i, 0), kind=s.ForKind.PARALLEL), "for i in T.parallel(8):"),
        (serial(i, 8, store(i, 0), kind=s.ForKind.VECTORIZED), "for i in T.vectorized(8):"),
        (serial(i, 8, store(i, 0), kind=s.ForKind.UNROLLED, minimum=1), "for i in T.unroll(1, 9):"),
        (
            serial(
                i,
                32,
                store(i, 0),
                kind=s.ForKind.THREAD_BINDING,
                thread_binding=IterVar(None, "tx", IterVar.ThreadIndex, "threadIdx.x"),
                annotations={"b": True, "a": "x"},
            ),
            'for i in T.thread_binding(32, thread="threadIdx.x", annotations={"a": "x", "b": True}):',
        ),
        (serial(e.Var("i", "int64"), e.IntImm("int64", 8), store(0, 0)), "for i in range(T.int64(8)):"),
    ],
)
def test_loops(loop, header):
    assert lines(loop).splitlines()[0] == header


def test_nests_of_plain_loops_print_as_a_grid():
    nest = serial(i, 4, serial(j, 8, serial(k, 2, store(i, j))))
    expect(nest, "for i, j, k in T.grid(4, 8, 2):\n    A[i, j] = T.float32(0.0)")
    expect(
        nest,
        """
        for i in range(4):
            for j in range(8):
                for k in range(2):
                    A[i, j] = T.float32(0.0)
        """,
        syntax_sugar=False,
    )


def test_a_grid_ends_where_a_loop_depends_on_another_or_is_special():
    dependent = serial(i, 4, serial(j, 8, serial(k, i + 1, store(i, j))))
    expect(
        dependent,
        """
        for i, j in T.grid(4, 8):
            for k in range(i + 1):
                A[i, j] = T.float32(0.0)
        """,
    )
    special = serial(i, 4, serial(j, 8, store(i, j), kind=s.ForKind.UNROLLED))
    expect(
        special,
        """
        for i in range(4):
            for j in T.unroll(8):
                A[i, j] = T.float32(0.0)
        """,
    )


def test_scopes_release_their_names():
    first, second, inner = e.Var("v", "int32"), e.Var("v", "int32"), e.Var("v", "int32")
    body = s.SeqStmt(
        [serial(first, 4, serial(inner, first + 1, store(first, inner))), serial(second, 8, store(second, 0))]
    )
    expect(
        body,
        """
        for v in range(4):
            for v_1 in range(v + 1):
                A[v, v_1] = T.float32(0.0)
        for v in range(8):
            A[v, 0] = T.float32(0.0)
        """,
    )


def test_many_nested_scopes_of_one_name_print():
    body = s.Evaluate(0)
    for _ in range(5_000):
        body = s.LetStmt(e.Var("v", "int32"), 1, body)
    text = script(s.SeqStmt([body, s.LetStmt(e.Var("v", "int32"), 2, s.Evaluate(0))])).splitlines()
    assert text[0] == "with T.LetStmt(1) as v:"
    assert text[4_999].strip() == "v_4999: T.int32 = 1"
    assert text[-2] == "v: T.int32 = 2"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("lambda", "lambda_1"),
        ("T", "T_1"),
        ("a.b-c", "a_b_c"),
        ("0", "_0"),
        ("", "v"),
        ("range", "range_1"),
        ("é", "_"),
    ],
)
def test_names_that_python_cannot_have_are_changed(name, printed):
    loop = serial(e.Var(name, "int32"), 4, s.Evaluate(0))
    assert script(loop) == f"for {printed} in range(4):\n    T.evaluate(0)"


def test_let_is_an_assignment_where_its_scope_ends_with_its_surroundings():
    x, p = e.Var("x", "int32"), e.Var("p", PointerType(PrimType("float32"), "shared"))
    expect(
        s.LetStmt(x, i + 1, s.SeqStmt([store(x, 0), store(0, x)])),
        """
        x: T.int32 = i + 1
        A[x, 0] = T.float32(0.0)
        A[0, x] = T.float32(0.0)
        """,
    )
    expect(
        s.SeqStmt([s.LetStmt(x, i + 1, store(x, 0)), store(0, 0)]),
        """
        with T.LetStmt(i + 1) as x:
            A[x, 0] = T.float32(0.0)
        A[0, 0] = T.float32(0.0)
        """,
    )
    pointer = e.Call("handle", "tir.lookup_param", [e.StringImm("w")])
    expect(
        s.SeqStmt([s.LetStmt(p, pointer, s.Evaluate(op.isnullptr(p))), s.Evaluate(0)]),
        """
        with T.LetStmt(T.lookup_param("w"), T.handle("float32", "shared")) as p:
            T.isnullptr(p)
        T.evaluate(0)
        """,
    )


def test_control_flow():
    expect(
        s.IfThenElse(i < 1, store(0, 0), s.IfThenElse(i < 2, store(1, 1))),
        """
        if i < 1:
            A[0, 0] = T.float32(0.0)
        else:
            if i < 2:
                A[1, 1] = T.float32(0.0)
        """,
    )
    expect(s.While(i < 4, store(i, 0)), "while i < 4:\n    A[i, 0] = T.float32(0.0)")
    expect(s.AssertStmt(i < 4, "too large", store(i, 0)), 'assert i < 4, "too large"\nA[i, 0] = T.float32(0.0)')
    expect(
        s.SeqStmt([s.AssertStmt(i < 4, "too large", store(i, 0)), store(0, 0)]),
        """
        with T.Assert(i < 4, "too large"):
            A[i, 0] = T.float32(0.0)
        A[0, 0] = T.float32(0.0)
        """,
    )
    expect(s.Evaluate(op.ret(i)), "return i")
    expect(s.Evaluate(op.ret(i)), "T.ret(i)", syntax_sugar=False)
    expect(s.Evaluate(op.call_extern("int32", "f", i)), 'T.call_extern("int32", "f", i)')
    expect(s.Evaluate(i + 1), "T.evaluate(i + 1)")


def test_vector_stores():
    v = decl_buffer((64,), "float32", "V")
    ramp = e.Ramp(i * 4, 1, 4)
    zero = e.Broadcast(e.FloatImm("float32", 0.0), 4)
    mask = e.Broadcast(i < 2, 4)
    assert script(s.BufferStore(v, zero, [ramp])).splitlines()[-1] == (
        "V[i * 4:i * 4 + 4] = T.Broadcast(T.float32(0.0), 4)"
    )
    assert script(s.BufferStore(v, zero, [ramp], mask)).splitlines()[-1] == (
        "V.vstore([T.Ramp(i * 4, 1, 4)], T.Broadcast(T.float32(0.0), 4), predicate=T.Broadcast(i < 2, 4))"
    )


def test_memory():
    pointer = e.Var("B_data", PointerType(PrimType("float32"), "shared"))
    view = Buffer(pointer, "float32", [16], name="B")
    use = store(0, buffer=view)
    expect(
        s.Allocate(pointer, "float32", [16], True, s.DeclBuffer(view, use)),
        'B = T.decl_buffer((16,), scope="shared")\nB[0] = T.float32(0.0)',
    )
    expect(
        s.Allocate(pointer, "float32", [32], True, s.DeclBuffer(view, use), {"a": 1}),
        """
        B_data = T.allocate([32], "float32", "shared", annotations={"a": 1})
        B = T.decl_buffer((16,), data=B_data, scope="shared")
        B[0] = T.float32(0.0)
        """,
    )
    expect(
        s.SeqStmt([s.Allocate(pointer, "float32", [32], i < 2, s.Evaluate(0)), s.Evaluate(1)]),
        """
        with T.allocate([32], "float32", "shared", i < 2) as B_data:
            T.evaluate(0)
        T.evaluate(1)
        """,
    )
    expect(
        s.SeqStmt([s.Allocate(pointer, "float32", [16], True, s.DeclBuffer(view, use)), s.Evaluate(1)]),
        """
        with T.decl_buffer((16,), scope="shared") as B:
            B[0] = T.float32(0.0)
        T.evaluate(1)
        """,
    )


def test_constants_print_as_lists_when_they_are_small():
    pointer = e.Var("c", PointerType(PrimType("float32")))
    data = np.array([[1.0, 0.5], [-2.0, 1e-3]], "float32")
    expect(
        s.AllocateConst(pointer, "float32", [2, 2], tensor(data), s.Evaluate(0)),
        """
        c = T.allocate_const([1.0, 0.5, -2.0, 0.0010000000474974513], "float32", [2, 2])
        T.evaluate(0)
        """,
    )


def test_large_constants_go_to_the_metadata():
    pointer = e.Var("c", PointerType(PrimType("int8")))
    large = s.AllocateConst(pointer, "int8", [1000], tensor(np.zeros(1000, "int8")), s.Evaluate(0))
    text = script(large)
    assert text.splitlines()[0] == 'with T.allocate_const(metadata["runtime.Tensor"][0], "int8", [1000]) as c:'
    assert text.splitlines()[-1] == "# Metadata omitted. Use show_meta=True in script() method to show it."
    assert script(large, show_meta=True).startswith('metadata = tvm.ir.load_json("{')


def test_attributes_and_threads():
    expect(s.AttrStmt(A, "pragma", e.StringImm("x"), store(0, 0)), 'T.attr(A, "pragma", "x")\nA[0, 0] = T.float32(0.0)')
    tx = IterVar((0, 32), "tx", IterVar.ThreadIndex, "threadIdx.x")
    expect(
        s.AttrStmt(tx, "thread_extent", 32, store(tx.var, 0)),
        'tx = T.launch_thread("threadIdx.x", 32)\nA[tx, 0] = T.float32(0.0)',
    )
    twice = [s.AttrStmt(tx, "thread_extent", 32, store(tx.var, column)) for column in (0, 1)]
    expect(
        s.SeqStmt(twice),
        """
        tx = T.env_thread("threadIdx.x")
        with T.launch_thread(tx, 32):
            A[tx, 0] = T.float32(0.0)
        T.launch_thread(tx, 32)
        A[tx, 1] = T.float32(0.0)
        """,
    )
    realize = s.BufferRealize(A, [Range(0, 4), Range(0, 128)], True, store(0, 0))
    expect(
        s.AttrStmt(A, "realize_scope", e.StringImm("global"), realize),
        'T.realize(A[0:4, 0:128], "global")\nA[0, 0] = T.float32(0.0)',
    )


def block(axes, values=None, predicate=True, **parts):
    node = s.Block(axes, [], [s.BufferRegion.from_point(A, [0, 0])], "B", store(0, 0), **parts)
    return node if values is None else s.BlockRealize(values, predicate, node)


def axis(name, extent, kind=IterVar.DataPar, minimum=0):
    return IterVar((minimum, minimum + extent), name, kind)


def test_axes_are_remapped_only_where_they_run_with_a_loop():
    axes = [axis("vi", 4), axis("vj", 8, IterVar.CommReduce), axis("vk", 2), axis("vl", 9, IterVar.DimInfo)]
    nest = serial(i, 4, serial(j, 8, serial(k, 4, block(axes, [i, j, k, k + 1], predicate=i < 3))))
    expect(
        nest,
        """
        for i, j, k in T.grid(4, 8, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SR", [i, j])
                vk = T.axis.spatial(2, k)
                vl = T.axis.opaque(9, k + 1)
                T.where(i < 3)
                T.reads()
                T.writes(A[0, 0])
                A[0, 0] = T.float32(0.0)
        """,
    )
    lone = serial(i, 4, block([axis("vi", 4), axis("vj", 3, IterVar.Ordered, minimum=1)], [i, 1]))
    expect(
        lone,
        """
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.scan((1, 4), 1)
                T.reads()
                T.writes(A[0, 0])
                A[0, 0] = T.float32(0.0)
        """,
    )


def test_the_parts_of_a_block_print_in_their_order():
    local = decl_buffer((4,), "int8", "L", scope="local")
    source = s.BufferRegion(A, [Range(0, 4), Range(0, 4)])
    view = decl_buffer((4, 4), "float32", "V", strides=[e.Var("s0", "int32"), e.Var("s1", "int32")], offset_factor=1)
    node = block(
        [],
        [],
        annotations={"pragma": 2, "b": [1, 2]},
        alloc_buffers=[local],
        match_buffers=[s.MatchBufferRegion(view, source)],
        init=s.BufferStore(view, 0.0, [view.strides[0], view.elem_offset]),
    )
    expect(
        node,
        """
        with T.block("B"):
            T.reads()
            T.writes(A[0, 0])
            T.block_attr({"b": [1, 2], "pragma": 2})
            L = T.alloc_buffer((4,), "int8", scope="local")
            V = T.match_buffer(A[0:4, 0:4], (4, 4), strides=("s0", "s1"), offset_factor=1)
            with T.init():
                V[V.strides[0], V.elem_offset] = T.float32(0.0)
            A[0, 0] = T.float32(0.0)
        """,
    )


def test_a_block_without_values_for_its_axes_says_so():
    expect(
        block([axis("vi", 4)]),
        """
        with T.block("B", no_realize=True):
            vi = T.axis.spatial(4)
            T.reads()
            T.writes(A[0, 0])
            A[0, 0] = T.float32(0.0)
        """,
    )


# -- functions --


def main(*params, body=None, **rest):
    return PrimFunc(params, body or s.Evaluate(0), attrs={"global_symbol": "main"}, **rest)


def header(func, **options):
    """The lines of a function below the decorator, without the body's no-op."""
    text = script(func, **options).splitlines()
    assert text[:3] == ["# from tvm.script import tir as T", "", "@T.prim_func"]
    return "\n".join(line for line in text[3:] if "T.evaluate(0)" not in line)


def test_scalar_and_pointer_parameters():
    func = main(e.Var("n", "int64"), e.Var("p", "handle"), e.Var("q", PointerType(PrimType("int8"))))
    assert header(func) == 'def main(n: T.int64, p: T.handle, q: T.handle("int8")):'


def test_a_result_type_is_printed():
    assert header(main(i, ret_type=PrimType("int32"))) == "def main(i: T.int32) -> T.int32:"


def test_buffers_that_an_annotation_cannot_describe_are_matched():
    n = e.Var("n", "int32")
    shaped = decl_buffer((n, 16), "float32", "X")
    strided = decl_buffer((16, n), "int8", "Y", strides=[e.Var("s", "int32"), 1])
    plain = decl_buffer((4,), "float32", "Z")
    assert header(main(shaped, strided, plain)) == dedent(
        """\
        def main(X: T.handle, Y: T.handle, Z: T.Buffer((4,), "float32")):
            n = T.int32()
            X_1 = T.match_buffer(X, (n, 16))
            Y_1 = T.match_buffer(Y, (16, n), "int8", strides=("s", 1))"""
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scope": "shared"}, 'scope="shared"'),
        ({"data_alignment": 128}, "align=128"),
        ({"offset_factor": 8}, "offset_factor=8"),
        ({"elem_offset": 4}, "elem_offset=4"),
        ({"elem_offset": 0, "offset_factor": 16}, "elem_offset=0, offset_factor=16"),
        ({"buffer_type": "auto_broadcast"}, 'buffer_type="auto"'),
        ({"axis_separators": [1]}, "axis_separators=[1]"),
        ({"strides": [8, 1]}, "strides=(8, 1)"),
    ],
)
def test_unusual_buffers(options, text):
    buffer = decl_buffer((4, 8), "float16", "X", **options)
    assert header(main(buffer)).splitlines()[1] == f'    X_1 = T.match_buffer(X, (4, 8), "float16", {text})'


def test_several_new_variables_are_declared_together():
    n, m = e.Var("n", "int32"), e.SizeVar("m", "int64")
    buffer = decl_buffer((n, m), "float32", "X")
    assert header(main(buffer)).splitlines()[1:] == [
        "    n, m = T.int32(), T.int64(is_size_var=True)",
        "    X_1 = T.match_buffer(X, (n, m))",
    ]


def test_a_data_pointer_of_another_type_is_declared():
    pointer = e.Var("p", PointerType(PrimType("int8")))
    func = main(Buffer(pointer, "bool", [4], name="X"))
    assert header(func).splitlines()[1:] == [
        '    p = T.handle("int8")',
        '    X_1 = T.match_buffer(X, (4,), "bool", data=p)',
    ]


def test_a_parameter_whose_handle_is_used_stays_a_handle():
    handle = e.Var("h", "handle")
    buffer = decl_buffer((4,), "float32", "X")
    func = PrimFunc(
        [handle], s.Evaluate(op.isnullptr(handle)), buffer_map={handle: buffer}, attrs={"global_symbol": "f"}
    )
    assert script(func).splitlines()[3:] == [
        "def f(h: T.handle):",
        "    X = T.match_buffer(h, (4,))",
        "    T.isnullptr(h)",
    ]


def test_the_data_of_a_parameter_prints_through_its_buffer():
    buffer = decl_buffer((4,), "float32", "X")
    func = main(buffer, body=s.Evaluate(op.isnullptr(buffer.data)))
    assert script(func).splitlines()[-1] == "    T.isnullptr(X.data)"


def test_a_root_block_that_says_something_is_printed():
    inner = serial(i, 4, block([axis("vi", 4)], [i]))
    plain = s.BlockRealize([], True, s.Block([], [], [], "root", inner))
    assert script(main(A, body=plain)).splitlines()[4] == '    # with T.block("root"):'
    named = s.BlockRealize([], True, s.Block([], [], [], "root", inner, annotations={"a": 1}))
    assert script(main(A, body=named)).splitlines()[4:8] == [
        '    with T.block("root"):',
        "        T.reads()",
        "        T.writes()",
        '        T.block_attr({"a": 1})',
    ]
    assert script(main(A, body=plain), syntax_sugar=False).splitlines()[4:6] == [
        "    A_1 = T.match_buffer(A, (128, 128))",
        '    with T.block("root"):',
    ]
