"""PointerValueTypeRewrite: memory of vectors, where nothing else is done with it."""

from __future__ import annotations

from pass_checks import apply, check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import PointerValueTypeRewrite


def test_memory_accessed_as_vectors_only():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        B_data = T.allocate([64], "float32", "global")
        B = T.Buffer((64,), data=B_data)
        for i in range(16):
            B[T.Ramp(i * 4, 1, 4)] = A[T.Ramp(i * 4, 1, 4)] * T.Broadcast(T.float32(2), 4)
        for i in range(16):
            C[T.Ramp(i * 4, 1, 4)] = B[T.Ramp(60 - i * 4, 1, 4)]

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        B_data = T.allocate([16], "float32x4", "global")
        B = T.Buffer((16,), "float32x4", data=B_data)
        for i in range(16):
            B[i] = A[T.Ramp(i * 4, 1, 4)] * T.Broadcast(T.float32(2), 4)
        for i in range(16):
            C[T.Ramp(i * 4, 1, 4)] = B[15 - i]

    after = check(PointerValueTypeRewrite(), before, expected)
    unchanged(PointerValueTypeRewrite(), after)


def test_a_pointer_among_the_parameters():
    @T.prim_func
    def before(p: T.handle("float32"), n: T.int32):
        B = T.Buffer((64,), data=p)
        B[T.Ramp(n * 8, 1, 4)] = B[T.Ramp(n * 8 + 4, 1, 4)]

    after = apply(PointerValueTypeRewrite(), before)
    assert str(after.params[0].type_annotation.element_type.dtype) == "float32x4"
    assert str(after.body.indices[0]) == "n * 2"
    assert str(after.body.value.indices[0]) == "n * 2 + 1"


def test_a_pointer_that_is_bound():
    @T.prim_func
    def before(n: T.int32):
        p: T.handle("float32") = T.call_extern("handle", "memory")
        B = T.Buffer((64,), data=p)
        B[T.Ramp(n * 8, 1, 8)] = T.Broadcast(T.float32(1), 8)

    @T.prim_func
    def expected(n: T.int32):
        p: T.handle("float32x8") = T.call_extern("handle", "memory")
        B = T.Buffer((8,), "float32x8", data=p)
        B[n] = T.Broadcast(T.float32(1), 8)

    check(PointerValueTypeRewrite(), before, expected, numbers=False)


def test_scalars_mixed_lengths_odd_places_and_addresses_keep_the_type():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        one = T.allocate([64], "float32", "global")
        two = T.allocate([64], "float32", "global")
        three = T.allocate([62], "float32", "global")
        four = T.allocate([64], "float32", "global")
        B = T.Buffer((64,), data=one)
        C = T.Buffer((64,), data=two)
        D = T.Buffer((62,), data=three)
        E = T.Buffer((64,), data=four)
        B[T.Ramp(n * 4, 1, 4)] = A[T.Ramp(n * 4, 1, 4)]
        B[0] = A[0]
        C[T.Ramp(n * 4, 1, 4)] = A[T.Ramp(n * 4, 1, 4)]
        C[T.Ramp(n * 8, 1, 8)] = A[T.Ramp(n * 8, 1, 8)]
        D[T.Ramp(n * 4, 1, 4)] = A[T.Ramp(n * 4, 1, 4)]
        E[T.Ramp(n * 4, 1, 4)] = A[T.Ramp(n * 4, 1, 4)]
        T.evaluate(T.call_extern("int32", "fill", four))

    unchanged(PointerValueTypeRewrite(), func)


def test_a_vector_that_may_begin_anywhere_keeps_the_type():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        data = T.allocate([64], "float32", "global")
        B = T.Buffer((64,), data=data)
        B[T.Ramp(n, 1, 4)] = A[T.Ramp(n, 1, 4)]

    unchanged(PointerValueTypeRewrite(), func)
