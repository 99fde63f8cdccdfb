"""Programs that write programs: values from around the definition, `T.meta_var`, macros."""

from __future__ import annotations

import pytest

from oneir.ir import assert_structural_equal
from oneir.ir.expr import Var
from oneir.runtime.error import ParseError
from oneir.script import from_source
from oneir.script import tir as T
from oneir.tir.stmt import BufferStore, For, IfThenElse, SeqStmt, stmt_list

GLOBAL_SIZE = 3


def relu(value):
    """A Python function over expressions."""
    return T.max(value, T.float32(0))


def same(left, right):
    assert_structural_equal(left.without_attr("global_symbol"), right.without_attr("global_symbol"))


def test_values_and_functions_of_the_world_around():
    size = 5
    offsets = [1, 2]

    class Config:
        scale = 2.0

    @T.prim_func
    def func(A: T.Buffer((16,), "float32")):
        A[size + offsets[1] + GLOBAL_SIZE] = relu(A[0] * T.float32(Config.scale))

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32")):
        A[10] = T.max(A[0] * T.float32(2), T.float32(0))

    same(func, expected)


def test_a_cell_is_read_when_the_function_is_defined():
    def outer():
        step = 1

        def advance():
            nonlocal step
            step += 1

        def make():
            @T.prim_func(private=True)
            def func(A: T.Buffer((16,), "float32")):
                A[step] = T.float32(0)

            return func

        first = make()
        advance()
        return first, make()

    first, second = outer()
    assert (int(first.body.indices[0]), int(second.body.indices[0])) == (1, 2)


def test_names_of_a_class_around():
    class Kernels:
        width = 6

        @T.prim_func
        def func(A: T.Buffer((16,), "float32")):
            A[width] = T.float32(0)

    assert int(Kernels.func.body.indices[0]) == 6


def test_python_functions_may_give_statements():
    def fill(buffer, count):
        return [BufferStore(buffer, T.float32(k), [k]) for k in range(count)]

    @T.prim_func
    def func(A: T.Buffer((16,), "float32")):
        fill(A, 3)

    assert [int(s.indices[0]) for s in stmt_list(func.body)] == [0, 1, 2]


def test_meta_variables_of_several_values():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32")):
        x, y = T.meta_var((A[0] + A[1], 3))
        A[y] = x

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32")):
        A[3] = A[0] + A[1]

    same(func, expected)


def test_a_hygienic_macro_sees_its_own_surroundings():
    scale = 2.0

    @T.macro
    def assign(buffer, index, *, bias=1.0):
        buffer[index] = buffer[index] * T.float32(scale) + T.float32(bias)

    def use():
        scale = 100.0

        @T.prim_func
        def func(A: T.Buffer((16,), "float32")):
            for i in range(16):
                assign(A, i)
            assign(A, 0, bias=3.0)

        return func

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = A[i] * T.float32(2) + T.float32(1)
        A[0] = A[0] * T.float32(2) + T.float32(3)

    same(use(), expected)


def test_any_other_macro_sees_the_names_around_its_call():
    @T.macro(hygienic=False)
    def assign(index):
        A[index] = T.float32(value)

    value = 1

    def use():
        value = 4

        @T.prim_func
        def func(A: T.Buffer((16,), "float32")):
            for i in range(value):
                assign(i)

        return func

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32")):
        for i in range(4):
            A[i] = T.float32(4)

    same(use(), expected)


def test_inline_functions_inside_of_a_function():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), n: T.int32):
        @T.inline
        def clear(index):
            if index < n:
                A[index] = T.float32(0)

        for i in range(16):
            clear(i)

    loop = func.body
    assert isinstance(loop, For) and isinstance(loop.body, IfThenElse)
    assert_structural_equal(loop.body.condition, loop.loop_var < func.params[1])


def test_macros_with_blocks_and_lets():
    @T.macro
    def copy(source, target, i):
        with T.block("copy"):
            vi = T.axis.spatial(8, i)
            x = source[vi]
            target[vi] = x

    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            copy(A, B, i)
        for i in range(8):
            copy(B, A, i)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("copy"):
                vi = T.axis.spatial(8, i)
                x = A[vi]
                B[vi] = x
        for i in range(8):
            with T.block("copy"):
                vi = T.axis.spatial(8, i)
                x = B[vi]
                A[vi] = x

    same(func, expected)


def test_extra_names_of_a_text():
    func = from_source(
        "@T.prim_func\ndef f(A: T.Buffer((n,), dtype)):\n    A[n - 1] = T.cast(1, dtype)\n",
        extra_vars={"n": 4, "dtype": "int8"},
    )
    (buffer,) = func.buffer_map.values()
    assert (int(buffer.shape[0]), buffer.dtype) == (4, "int8")


def test_tuples_of_new_variables_are_named_after_the_tuple():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("b"):
                axes = T.axis.remap("SS", [i, j])
                A[axes] = T.float32(0)

    block = func.body.block.body.body.body.block
    assert [v.var.name for v in block.iter_vars] == ["axes_0", "axes_1"]


def test_a_variable_that_is_known_gets_a_let_and_a_new_one_a_name():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), n: T.int32):
        m = n
        A[m] = T.float32(0)

    let = func.body
    assert let.var.name == "m" and let.value is func.params[1]


def test_a_captured_variable_stays_the_same_object():
    outside = Var("outside", "int32")

    @T.prim_func
    def func(a: T.handle):
        n = outside
        A = T.match_buffer(a, (n,))
        A[n - 1] = T.float32(0)

    (buffer,) = func.buffer_map.values()
    assert buffer.shape[0] is outside and outside.name == "outside"


def test_starred_targets():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        first, *rest = (1, 2, 3)
        A[first] = T.float32(0)
        A[rest[-1]] = T.float32(0)

    assert isinstance(func.body, SeqStmt)
    assert [int(s.indices[0]) for s in func.body.seq] == [1, 3]


def test_wrong_arguments_of_a_macro_are_shown_at_the_call():
    @T.macro
    def two(a, b):
        T.evaluate(a + b)

    with pytest.raises(ParseError) as caught:
        from_source("@T.prim_func\ndef f():\n    two(1)\n", extra_vars={"two": two})
    assert "two(a, b): missing a required argument: 'b'" in str(caught.value)
    assert "3 |     two(1)\n  |     ^^^^^^" in str(caught.value)


def test_a_mistake_inside_of_a_macro_is_shown_there():
    @T.macro
    def wrong(a):
        T.evaluate(a + missing)

    with pytest.raises(ParseError) as caught:
        from_source("@T.prim_func\ndef f():\n    wrong(1)\n", extra_vars={"wrong": wrong})
    assert "undefined name `missing`" in str(caught.value)
    assert "T.evaluate(a + missing)" in str(caught.value) and "test_meta.py" in str(caught.value)


def test_a_macro_outside_of_a_function_is_refused():
    @T.macro
    def one(a):
        T.evaluate(a)

    with pytest.raises(TypeError, match="the macro one can only be called inside of a prim_func"):
        one(1)


def test_a_function_in_a_function_must_be_a_macro():
    with pytest.raises(ParseError, match="a function inside of a prim_func must be a macro: decorate it with @T"):
        from_source("@T.prim_func\ndef f():\n    def g():\n        pass\n    g()\n")
