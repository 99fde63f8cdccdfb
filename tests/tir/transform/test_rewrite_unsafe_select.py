"""RewriteUnsafeSelect: only selections between loads become branches."""

from __future__ import annotations

from pass_checks import check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import RewriteUnsafeSelect


def test_a_load_is_not_evaluated_where_it_is_not_taken():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((9,), "float32")):
        for i in range(8):
            B[i] = T.Select(i > 2, A[i], T.float32(0)) + T.Select(i > 2, T.float32(1), T.float32(0))

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((9,), "float32")):
        for i in range(8):
            B[i] = T.if_then_else(i > 2, A[i], T.float32(0)) + T.Select(i > 2, T.float32(1), T.float32(0))

    check(RewriteUnsafeSelect(), before, expected)


def test_selections_of_vectors_stay():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        B[T.Ramp(0, 1, 8)] = T.Select(
            T.Ramp(0, 1, 8) > T.Broadcast(2, 8), A[T.Ramp(0, 1, 8)], T.Broadcast(T.float32(0), 8)
        )

    unchanged(RewriteUnsafeSelect(), func)
