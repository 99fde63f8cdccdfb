"""Functions: parameters, buffers, attributes and result types become what the constructors make."""

from __future__ import annotations

import pytest

from oneir.ir import assert_structural_equal
from oneir.ir.expr import Call, SizeVar, Var, pointer_to
from oneir.ir.type import PrimType, TupleType
from oneir.runtime.error import ParseError
from oneir.script import from_source
from oneir.script import tir as T
from oneir.tir import op
from oneir.tir.buffer import decl_buffer
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import BufferStore, Evaluate, SeqStmt


def _store_zero(buffer):
    return BufferStore(buffer, 0.0, [0])


def test_buffer_parameter_is_a_handle_and_an_entry_of_the_buffer_map():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32")):
        A[0] = T.float32(0)

    handle, buffer = Var("h", "handle"), decl_buffer((16,), "float32")
    expected = PrimFunc([handle], _store_zero(buffer), None, {handle: buffer}, {"global_symbol": "func"})
    assert_structural_equal(func, expected)
    (found,) = func.buffer_map.values()
    assert (found.name, found.data.name, func.params[0].name) == ("A", "A", "A_handle")


def test_both_spellings_of_an_annotation_and_strings_are_the_same():
    @T.prim_func(private=True)
    def call(A: T.Buffer((1, 16), "float32")):
        A[0, 0] = T.float32(0)

    index = from_source(
        """
        @T.prim_func(private=True)
        def index(A: T.Buffer[(1, 16), "float32"]):
            A[0, 0] = T.float32(0)
        """
    )
    text = from_source(
        """
        @T.prim_func(private=True)
        def text(A: "T.Buffer((1, 16), 'float32')"):
            A[0, 0] = T.float32(0)
        """
    )
    assert_structural_equal(call, index)
    assert_structural_equal(call, text)


def test_subscript_with_a_shape_only_is_float32():
    @T.prim_func
    def func(A: T.Buffer[(4, 8)], B: T.Buffer[16]):
        A[0, 0] = B[0]

    a, b = func.buffer_map.values()
    assert (list(map(int, a.shape)), a.dtype, list(map(int, b.shape))) == ([4, 8], "float32", [16])


def test_scalar_parameters_and_result():
    @T.prim_func
    def func(n: T.int32, x: T.float32, p: T.handle("float32"), q: T.handle) -> T.int32:
        return n

    n, x = Var("n", "int32"), Var("x", "float32")
    p, q = Var("p", pointer_to("float32")), Var("q", "handle")
    body = Evaluate(Call("int32", "tir.ret", [n]))
    assert_structural_equal(func, PrimFunc([n, x, p, q], body, PrimType("int32"), {}, {"global_symbol": "func"}))


def test_no_result_is_the_empty_tuple():
    @T.prim_func
    def func() -> None:
        T.evaluate(0)

    assert func.ret_type == TupleType(())
    assert_structural_equal(func.body, Evaluate(0))


def test_match_buffer_with_symbolic_shape():
    @T.prim_func
    def func(a: T.handle, b: T.handle):
        n = T.int32()
        m = T.int64(is_size_var=True)
        A = T.match_buffer(a, (n, 8), "float16")
        B = T.match_buffer(b, (m,), "int8", scope="shared", align=128, offset_factor=4)
        A[0, 0] = T.float16(1)
        B[T.int64(0)] = T.int8(2)

    a, b, n, m = Var("a", "handle"), Var("b", "handle"), Var("n", "int32"), SizeVar("m", "int64")
    A = decl_buffer((n, 8), "float16")
    B = decl_buffer((m,), "int8", scope="shared", data_alignment=128, offset_factor=4)
    body = SeqStmt([BufferStore(A, T.float16(1), [0, 0]), BufferStore(B, T.int8(2), [T.int64(0)])])
    expected = PrimFunc([a, b], body, None, {a: A, b: B}, {"global_symbol": "func"})
    assert_structural_equal(func, expected)
    shape_var = func.buffer_map[func.params[0]].shape[0]
    offset = func.buffer_map[func.params[1]].elem_offset
    assert isinstance(shape_var, Var) and shape_var.name == "n"
    assert isinstance(offset, Var) and offset.name == "B_elem_offset"


def test_match_buffer_with_strides_offset_and_separators():
    @T.prim_func
    def func(a: T.handle):
        o = T.int32()
        A = T.match_buffer(
            a, (4, 8), "float32", strides=("s0", "s1"), elem_offset=o, buffer_type="auto", axis_separators=[1]
        )
        A[0, 0] = 0.0

    (buffer,) = func.buffer_map.values()
    assert [s.name for s in buffer.strides] == ["s0", "s1"]
    assert buffer.elem_offset.name == "o"
    assert (buffer.buffer_type, list(buffer.axis_separators)) == ("auto_broadcast", [1])


def test_later_parameters_may_use_earlier_variables():
    @T.prim_func
    def func(n: T.int32, A: T.Buffer((n,), "float32")):
        A[n - 1] = T.float32(0)

    assert func.buffer_map[func.params[1]].shape[0] is func.params[0]


def test_attributes_and_symbol():
    @T.prim_func
    def named():
        T.func_attr({"global_symbol": "other", "tir.noalias": T.bool(True), "layout_free_buffers": [1]})
        T.evaluate(0)

    @T.prim_func(private=True)
    def hidden():
        T.func_attr({"tir.noalias": True})
        T.evaluate(0)

    assert dict(named.attrs) == {"global_symbol": "other", "tir.noalias": True, "layout_free_buffers": (1,)}
    assert dict(hidden.attrs) == {"tir.noalias": True}


def test_builder_style_statements_of_a_function():
    @T.prim_func
    def func():
        T.func_name("renamed")
        T.func_ret("int32")
        x = T.arg("x", T.int32())
        T.evaluate(T.ret(x))

    assert func.attrs["global_symbol"] == "renamed" and func.ret_type == PrimType("int32")
    assert [p.name for p in func.params] == ["x"]
    assert_structural_equal(func.body, Evaluate(op.ret(func.params[0])))


def test_one_captured_annotation_gives_each_parameter_its_own_buffer():
    Tile = T.Buffer((8, 8), "float32")

    @T.prim_func
    def func(A: Tile, B: Tile):
        A[0, 0] = B[0, 0]

    a, b = func.buffer_map.values()
    assert a is not b and a.data is not b.data and (a.name, b.name) == ("A", "B")
    assert Tile.name == ""


def test_shapes_from_closures_and_globals():
    def make(n, dtype):
        @T.prim_func
        def func(A: T.Buffer((n, _COLUMNS), dtype)):
            A[n - 1, 0] = T.cast(1, dtype)

        return func

    (buffer,) = make(12, "int16").buffer_map.values()
    assert [int(d) for d in buffer.shape] == [12, 7] and buffer.dtype == "int16"


_COLUMNS = 7


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("A", 'parameter `A` expects an annotation, for instance T.Buffer((128,), "float32")'),
        ("A: 3", "expected a type such as T.int32 or T.handle, found 3"),
        ("*A: T.int32", "a prim_func takes plain parameters: no defaults, no stars, no keyword-only ones"),
        ("A: T.int32 = 1", "a prim_func takes plain parameters: no defaults, no stars, no keyword-only ones"),
    ],
)
def test_refused_parameters(signature: str, message: str):
    with pytest.raises(ParseError) as caught:
        from_source(f"@T.prim_func\ndef f({signature}):\n    T.evaluate(0)\n")
    assert f"error: {message}\n" in str(caught.value)


def test_two_function_attributes_are_refused():
    with pytest.raises(
        ParseError, match=r"T.func_attr is stated already for this function; put all attributes into one"
    ):
        from_source("@T.prim_func\ndef f():\n    T.func_attr({})\n    T.func_attr({})\n")


def test_match_buffer_of_something_else_is_refused():
    with pytest.raises(ParseError, match=r"T.match_buffer expects a parameter of the function or a region, found `n`"):
        from_source("@T.prim_func\ndef f():\n    n = T.int32()\n    A = T.match_buffer(n, (4,))\n    A[0] = 1.0\n")
