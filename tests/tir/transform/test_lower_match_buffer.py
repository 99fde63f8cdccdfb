"""LowerMatchBuffer: views give way to what they view."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, unchanged

from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.tir import decl_buffer
from oneir.tir.transform import LowerMatchBuffer


def test_accesses_move_to_the_region():
    @T.prim_func
    def before(A: T.Buffer((8, 16), "float32"), C: T.Buffer((8, 16), "float32")):
        for i, j in T.grid(2, 4):
            with T.block("copy"):
                T.reads(A[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4])
                T.writes(C[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4])
                a = T.match_buffer(
                    A[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4], (4, 4), "float32", strides=[16, 1], offset_factor=1
                )
                c = T.match_buffer(
                    C[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4], (4, 4), "float32", strides=[16, 1], offset_factor=1
                )
                for x, y in T.grid(4, 4):
                    c[x, y] = a[x, y] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((8, 16), "float32"), C: T.Buffer((8, 16), "float32")):
        for i, j in T.grid(2, 4):
            with T.block("copy"):
                T.reads(A[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4])
                T.writes(C[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4])
                for x, y in T.grid(4, 4):
                    C[i * 4 + x, j * 4 + y] = A[i * 4 + x, j * 4 + y] + 1.0

    check(LowerMatchBuffer(), before, expected)


def test_leading_dimensions_may_be_dropped_and_symbols_get_their_values():
    @T.prim_func
    def before(A: T.Buffer((8, 16), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("row"):
                T.reads(A[i, 0:16])
                T.writes(C[i])
                n = T.int32()
                s = T.int32()
                a = T.match_buffer(A[i, 0:16], (n,), "int32", strides=[s], offset_factor=16)
                C[i] = a[n - 1] * s

    @T.prim_func
    def expected(A: T.Buffer((8, 16), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("row"):
                T.reads(A[i, 0:16])
                T.writes(C[i])
                assert i * 16 % 16 == 0, "ValueError: a view in block `row` is not as declared"
                C[i] = T.Mul(A[i, T.Sub(16, 1)], 1)

    after = apply(LowerMatchBuffer(), before)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))


def test_a_view_of_a_view():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32")):
        with T.block("outer"):
            T.reads()
            T.writes(A[4:12])
            b = T.match_buffer(A[4:12], (8,), "float32", offset_factor=1)
            with T.block("inner"):
                T.reads()
                T.writes(b[2:6])
                c = T.match_buffer(b[2:6], (4,), "float32", offset_factor=1)
                for i in range(4):
                    c[i] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32")):
        with T.block("outer"):
            T.reads()
            T.writes(A[4:12])
            with T.block("inner"):
                T.reads()
                T.writes(A[6:10])
                for i in range(4):
                    A[6 + i] = T.float32(1)

    check(LowerMatchBuffer(), before, expected)


def test_the_offset_of_a_pointer_is_that_of_the_region():
    @T.prim_func
    def before(A: T.Buffer((8, 16), "float32")):
        for i in range(8):
            with T.block("row"):
                T.reads()
                T.writes(A[i, 4:8])
                a = T.match_buffer(A[i, 4:8], (4,), "float32", offset_factor=1)
                T.evaluate(T.call_extern("int32", "fill", a.access_ptr("w")))

    @T.prim_func
    def expected(A: T.Buffer((8, 16), "float32")):
        for i in range(8):
            with T.block("row"):
                T.reads()
                T.writes(A[i, 4:8])
                T.evaluate(
                    T.call_extern(
                        "int32", "fill", T.tvm_access_ptr(T.type_annotation("float32"), A.data, i * 16 + 4, 4, 2)
                    )
                )

    check(LowerMatchBuffer(), before, expected, numbers=False)


def test_an_extent_that_cannot_be_that_of_the_region_is_refused():
    @T.prim_func
    def func(a: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "float32")
        with T.block("b"):
            T.reads()
            T.writes(A[0:n])
            view = T.match_buffer(A[0:n], (4,), "float32", offset_factor=1)
            view[0] = T.float32(1)

    with pytest.raises(WellFormedError, match="`view` has an extent of 4, but what it views has 8"):
        apply(LowerMatchBuffer(), func.specialize({func.params[0]: decl_buffer((8,), "float32")}))


def test_a_stride_that_is_not_that_of_the_source_is_refused():
    @T.prim_func
    def func(A: T.Buffer((8, 16), "float32")):
        with T.block("b"):
            T.reads()
            T.writes(A[0:4, 0:4])
            a = T.match_buffer(A[0:4, 0:4], (4, 4), "float32", strides=[4, 1], offset_factor=1)
            a[0, 0] = T.float32(1)

    with pytest.raises(WellFormedError, match="`a` has a stride of 4, but what it views has 16"):
        apply(LowerMatchBuffer(), func)


def test_the_pointer_of_a_view_that_says_it_starts_elsewhere_is_refused():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32")):
        with T.block("b"):
            T.reads()
            T.writes(A[8:16])
            a = T.match_buffer(A[8:16], (8,), "float32")
            T.evaluate(T.call_extern("int32", "fill", a.data))

    with pytest.raises(WellFormedError, match=r"pointer of `a` is used.*offset_factor=1"):
        apply(LowerMatchBuffer(), func)


def test_a_function_without_views_is_left_alone():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        with T.block("b"):
            T.reads()
            T.writes(A[0])
            A[0] = T.float32(0)

    unchanged(LowerMatchBuffer(), func)
